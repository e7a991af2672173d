"""Every table and example of LMerge, sections I to III, as printed.

Examples 1 and 2 have a notation of their own, translated here: `a(value, start, end)` adds an
event, `m(value, start, newEnd)` moves its end, `f(time)` freezes.
"""

import re
from itertools import product

import pytest
from open_close import (
    Close,
    Open,
    as_elements,
    can_follow,
    closes_once,
    is_ordered,
)

from anabranch.model.element import Adjust, Element, Event, Identity, Insert, Stable
from anabranch.model.equivalence import compatible, consistent, equivalent
from anabranch.model.frozen import Status, status
from anabranch.model.history import History, Reason, Replay, replay, replays
from anabranch.model.notation import parse, parse_events, split_rows
from anabranch.model.properties import MergeCase, cheapest, observe
from anabranch.model.time import FOREVER, Time
from anabranch.testing.conditions import breaches_r3

TABLE_1 = """
Phy1 |            |             | a(B, 8, oo) | a(A, 6, 12) | m(B, 8, 10) | f(11) | f(oo)
Phy2 | a(A, 6, 7) | a(B, 8, 15) | m(A, 6, 12) |             | m(B, 8, 10) |       | f(oo)
"""

TABLE_2 = """
In1  | a(A, 6, 10) |             |             | m(A, 6, 15) |             |
In2  |             | a(A, 6, 12) | a(B, 7, 14) |             | m(A, 6, 15) | f(16)
Out1 | a(A, 6, 10) | m(A, 6, 12) | a(B, 7, 14) | m(A, 6, 15) |             | f(16)
Out2 |             |             |             |      |      | a(A, 6, 15) a(B, 7, 14) f(16)
Out3 | a(A, 6, 10) |             | a(B, 7, 14) |             |             | m(A, 6, 15) f(16)
"""


def table(text: str) -> dict[str, list[list[Element]]]:
    """Name -> elements of each instant."""
    return {name: translate(cells) for name, cells in split_rows(text)}


def translate(cells: list[str]) -> list[list[Element]]:
    ends: dict[tuple[str, int], Time] = {}
    instants = []
    for cell in cells:
        elements: list[Element] = []
        for kind, body in re.findall(r"([amf])\(([^)]*)\)", cell):
            value, *times = body.split(", ") if kind != "f" else ("", body)
            start, end = [FOREVER if t == "oo" else int(t) for t in (times[0], times[-1])]
            if kind == "f":
                elements.append(Stable(end))
            elif kind == "a":
                elements.append(Insert(value, start, end))
            else:
                elements.append(Adjust(value, start, ends[value, start], end))
            ends[value, start] = end
        instants.append(elements)
    return instants


def flat(instants: list[list[Element]]) -> list[Element]:
    return [element for instant in instants for element in instant]


def history(text: str) -> History:
    return History.from_events(parse_events(text))


def test_lmerge_table_1() -> None:
    phy1, phy2 = (replay(flat(stream)) for stream in table(TABLE_1).values())
    assert phy1.violations == phy2.violations == ()
    assert phy1.history == phy2.history == history("A 6..12; B 8..10")
    assert equivalent(phy1, phy2)
    assert phy1.frontier == phy2.frontier == FOREVER


def test_lmerge_example_1() -> None:
    """Prefixes are not always equivalent, but can still become so."""
    phy1, phy2 = (list(replays(flat(stream))) for stream in table(TABLE_1).values())
    pairs = list(product(phy1, phy2))
    assert all(consistent(pair) for pair in pairs)
    assert not all(equivalent(*pair) for pair in pairs)


def test_lmerge_section_1_b_punctuation() -> None:
    """f(11) of Phy1 cannot be passed on while A ends at 7 and B at 15 on the output."""
    streams = table(TABLE_1)
    inputs = [replay(flat(stream[:6])) for stream in streams.values()]
    output = parse("insert A 6..7; insert B 8..15")
    assert compatible(replay(output), inputs)
    at_once = replay([*output, Stable(11)])
    assert not compatible(at_once, inputs)
    assert {one.identity for one in breaches_r3(at_once, inputs)} == {(6, "A"), (8, "B")}
    adjusted = parse("adjust A 6..7->12; adjust B 8..15->10; stable 11")
    assert compatible(replay([*output, *adjusted]), inputs)


def test_lmerge_table_2() -> None:
    streams = {name: replay(flat(stream)) for name, stream in table(TABLE_2).items()}
    expected = history("A 6..15; B 7..14")
    for name in ("In2", "Out1", "Out2", "Out3"):
        assert streams[name] == Replay(expected, 16)
    assert streams["In1"].history == history("A 6..15")


@pytest.mark.parametrize("name", ["Out1", "Out2", "Out3"])
def test_lmerge_example_2(name: str) -> None:
    """Each of the three outputs can follow its inputs at every instant."""
    streams = table(TABLE_2)
    for instant in range(7):
        inputs = [replay(flat(streams[one][:instant])) for one in ("In1", "In2")]
        output = replay(flat(streams[name][:instant]))
        assert consistent(inputs)
        assert output.violations == ()
        assert compatible(output, inputs)
        assert breaches_r3(output, inputs) == []


def test_lmerge_example_2_chattiness() -> None:
    """Out2 emits least and latest, Out1 most and first, Out3 is between."""
    streams = table(TABLE_2)
    out1, out2, out3 = (streams[name] for name in ("Out1", "Out2", "Out3"))
    assert len(flat(out2)) < len(flat(out3)) < len(flat(out1))
    assert flat(out2[:5]) == [] != flat(out3[:5])


def test_lmerge_section_3_a_no_limit() -> None:
    """A stream that cancels its event over and over has no limit; each prefix has a history."""
    cycle = parse("insert e 1..2; adjust e 1..2->1") * 3
    assert [len(prefix.history) for prefix in replays(cycle)] == [0, 1, 0, 1, 0, 1, 0]


S = [Open("A", 1), Open("B", 2), Open("C", 3), Close("A", 4), Close("B", 5)]
U = [Open("A", 1), Close("A", 4), Open("B", 2), Close("B", 5), Open("C", 3)]
W = [Open("B", 2), Close("B", 6), Open("A", 1), Open("C", 3), Close("A", 4), Close("B", 5)]


@pytest.mark.parametrize("stream", [S, U, W], ids="SUW")
def test_lmerge_example_3(stream: list[Open | Close]) -> None:
    prefix = replay(as_elements(stream))
    assert prefix.violations == ()
    assert prefix.history == history("A 1..4; B 2..5; C 3..forever")


def test_lmerge_section_3_c_properties_of_example_3() -> None:
    assert [is_ordered(stream) for stream in (S, U, W)] == [True, False, False]
    assert [closes_once(stream) for stream in (S, U, W)] == [True, True, False]
    assert all(observe([as_elements(stream)]).keyed for stream in (S, U, W))


def test_lmerge_example_4() -> None:
    """With one close per open an output can follow exactly when it adds nothing of its own."""
    assert can_follow(S[:3], [S])
    assert can_follow(U, [S])
    assert not can_follow([Open("D", 1)], [S]), "an open that no input has"
    assert not can_follow([*S[:3], Close("C", 9)], [S]), "a close that no input has"
    assert can_follow([Open("A", 1), Open("B", 2)], [S[:1], [Open("B", 2)]]), "union of inputs"
    assert not can_follow([*S, Open("A", 1)], [S, U]), "twice what each input has once"


def test_lmerge_example_5() -> None:
    """insert, adjust, adjust stand for the same as the one insert."""
    several = parse("insert A 6..20; adjust A 6..20->30; adjust A 6..30->25")
    assert History.of(several) == History.of(parse("insert A 6..25"))
    assert History.of(parse("insert A 6..20; adjust A 6..20->6")) == History({})


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("stable 5; insert A 4..9", Reason.BEHIND_STABLE),
        ("stable 5; insert A 5..9", None),
        ("insert A 1..4; stable 5; adjust A 1..4->9", Reason.BEHIND_STABLE),
        ("insert A 1..9; stable 5; adjust A 1..9->4", Reason.BEHIND_STABLE),
        ("insert A 1..5; stable 5; adjust A 1..5->9", None),
        ("insert A 1..9; stable 5; adjust A 1..9->5", None),
        ("adjust A 1..9->5", Reason.NO_SUCH_EVENT),
    ],
)
def test_lmerge_example_5_promises_of_stable(text: str, reason: Reason | None) -> None:
    assert [one.reason for one in replay(parse(text)).violations] == (
        [reason] if reason else []
    )


@pytest.mark.parametrize(
    ("case", "streams"),
    [
        (MergeCase.R0, ["insert a 1..2; insert b 2..9", "stable 1; insert a 1..2; stable 2"]),
        (MergeCase.R1, ["insert a 1..2; insert a 1..2; insert b 1..3", "insert a 1..2"]),
        (MergeCase.R2, ["insert a 1..2; insert b 1..3", "insert b 1..3; insert a 1..2"]),
        (MergeCase.R3, ["insert a 2..3; insert b 1..3", "insert b 1..3; adjust b 1..3->4"]),
        (MergeCase.R4, ["insert a 2..3; insert b 1..3; insert a 2..4"]),
    ],
)
def test_lmerge_section_3_c_cases(case: MergeCase, streams: list[str]) -> None:
    assert cheapest(observe([parse(text) for text in streams])) is case


# name: last stable; payload, Vs, Ve and the freeze status printed beside it
SECTION_3_D = {
    "I1": (14, "A 2 16 HF, B 3 10 FF, C 4 18 HF, D 15 20 UF"),
    "I2": (11, "A 2 12 HF, B 3 10 FF, C 4 18 HF, E 17 21 UF"),
    "O1": (11, "A 2 oo HF, B 3 10 FF, C 4 oo HF"),
    "O2": (14, "A 2 16 HF, B 3 10 FF, C 4 18 HF, D 15 20 UF, E 17 21 UF"),
    "O3": (13, "A 2 12 FF, C 4 18 HF, D 15 20 UF"),
}
ANNOTATIONS = {"UF": Status.FREE, "HF": Status.HALF_FROZEN, "FF": Status.FROZEN}


def rows(name: str) -> list[tuple[Event, Status]]:
    parsed = (row.split() for row in SECTION_3_D[name][1].split(", "))
    return [
        (Event(p, int(vs), FOREVER if ve == "oo" else int(ve)), ANNOTATIONS[how])
        for p, vs, ve, how in parsed
    ]


def prefix_of(name: str) -> Replay:
    return Replay(History.from_events(event for event, _ in rows(name)), SECTION_3_D[name][0])


@pytest.mark.parametrize("name", SECTION_3_D)
def test_lmerge_section_3_d_freeze_status(name: str) -> None:
    last = SECTION_3_D[name][0]
    for event, annotation in rows(name):
        assert status(event.start, event.end, frontier=last) is annotation


def test_lmerge_section_3_d_inputs_are_consistent() -> None:
    assert consistent([prefix_of("I1"), prefix_of("I2")])


@pytest.mark.parametrize("name", ["O1", "O2"])
def test_lmerge_section_3_d_compatible_outputs(name: str) -> None:
    inputs = [prefix_of("I1"), prefix_of("I2")]
    assert compatible(prefix_of(name), inputs)
    assert breaches_r3(prefix_of(name), inputs) == []


def test_lmerge_section_3_d_o3_is_not_compatible() -> None:
    """For two reasons: A is frozen with a wrong end, and B is missing."""
    inputs = [prefix_of("I1"), prefix_of("I2")]
    assert not compatible(prefix_of("O3"), inputs)
    found = breaches_r3(prefix_of("O3"), inputs)
    assert {(one.condition, one.identity) for one in found} == {
        ("C2", Identity(2, "A")),
        ("C3", Identity(2, "A")),
        ("C3", Identity(3, "B")),
    }
