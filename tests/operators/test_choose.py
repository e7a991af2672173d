"""Which case is chosen, how it is explained, and how wrong declarations are detected."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import UsageError
from anabranch.model.notation import parse
from anabranch.model.properties import (
    PROPERTIES,
    REQUIRED,
    MergeCase,
    StreamProperties,
    cheapest,
    missing_for,
    shared,
)
from anabranch.operators.contract import Bucket, Reason
from anabranch.operators.merge.choose import (
    NO_GAPS,
    ORDERED,
    REMEMBERS,
    WRONG,
    Choice,
    choose,
    detections,
    explain_choice,
)
from anabranch.operators.reference.ordered import MergeR0, MergeR1, MergeR2
from anabranch.operators.reference.r3 import MergeR3

R0 = StreamProperties(insert_only=True, strictly_increasing=True)
R1 = StreamProperties(insert_only=True, ordered=True, ties_in_same_order=True)
R2 = StreamProperties(insert_only=True, ordered=True, keyed=True)
R3 = StreamProperties(keyed=True)
NOTHING = StreamProperties()

properties = st.builds(StreamProperties, **{name: st.booleans() for name in PROPERTIES})
replicas = st.dictionaries(st.sampled_from(["east", "west", "north"]), st.none() | properties)


@pytest.mark.parametrize(
    ("declared", "case"),
    [
        ({"east": R0, "west": R0}, MergeCase.R0),
        ({"east": R0, "west": R1}, MergeCase.R1),
        ({"east": R0, "west": R2}, MergeCase.R2),
        ({"east": R1, "west": R2}, MergeCase.R4),
        ({"east": R0, "west": R3}, MergeCase.R3),
        ({"east": R0, "west": NOTHING}, MergeCase.R4),
        ({"east": R0, "west": None}, MergeCase.R4),
        ({}, MergeCase.R4),
    ],
)
def test_the_case_is_what_every_replica_permits(declared, case):
    assert choose(declared).case is case


@given(replicas)
def test_what_is_missing_is_all_that_a_cheaper_case_needs(declared):
    choice = choose(declared)
    common = shared(known or NOTHING for known in declared.values())
    assert choice.case is cheapest(common)
    assert [case for case, _ in choice.cheaper] == [
        case for case in MergeCase if case.value < choice.case.value
    ]
    for case, missing in choice.cheaper:
        assert missing == missing_for(common, case) != ()
        if declared:
            more = dict.fromkeys(missing, True)
            added = {
                name: StreamProperties(**{**(known or NOTHING).to_dict(), **more})
                for name, known in declared.items()
            }
            assert choose(added).case.value <= case.value


@given(replicas, st.none() | st.sampled_from(MergeCase))
def test_erratum_l6_never_r1_with_gaps(declared, asked):
    try:
        choice = choose(declared, gaps_possible=True, asked=asked)
    except UsageError:
        assert asked is not None
        return
    assert choice.case not in ORDERED
    for case, missing in choice.cheaper:
        assert (NO_GAPS in missing) == (case in ORDERED)


def test_gaps_move_an_ordered_case_to_the_next_that_is_right():
    assert choose({"east": R1}, gaps_possible=True).case is MergeCase.R4
    both = StreamProperties(insert_only=True, ordered=True, ties_in_same_order=True, keyed=True)
    choice = choose({"east": both}, gaps_possible=True)
    assert choice.case is MergeCase.R3
    assert choice.cheaper[1] == (MergeCase.R1, (NO_GAPS,))
    assert "R1 (remembers the events of one start, counted per replica): no gaps" in (
        explain_choice(choice)
    )
    with pytest.raises(UsageError, match="case R1 was asked for, but replicas may have gaps"):
        choose({"east": both}, gaps_possible=True, asked=MergeCase.R1)


def test_undeclared_is_r4():
    choice = choose({"east": R0, "west": None, "north": None})
    assert (choice.case, choice.was_asked) == (MergeCase.R4, False)
    assert choice.reason == (
        "replicas 'west', 'north' declare nothing, so identities may repeat"
    )


def test_a_case_that_is_asked_for_is_marked_so():
    choice = choose({"east": R0}, asked=MergeCase.R4)
    assert (choice.case, choice.was_asked) == (MergeCase.R4, True)
    assert choice.cheaper[0] == (MergeCase.R0, ())
    assert "nothing more; another case was asked for" in explain_choice(choice)
    assert "starts as" not in explain_choice(choice)


def test_the_reason_names_who_stands_in_the_way():
    assert choose({"east": R3, "west": R1}).reason == (
        "replica 'west' does not declare keyed, so identities may repeat"
    )
    assert choose({}).reason == "there is no replica yet, so nothing is promised"


def test_asking_is_a_declaration_for_those_who_declare_nothing():
    choice = choose({"east": None, "west": R3}, asked=MergeCase.R3)
    assert choice.case is MergeCase.R3
    assert choice.reason == (
        "it was asked for; replica 'east' declares nothing, so keyed is assumed, not verified"
    )
    assert choose({"east": R0}, asked=MergeCase.R2).reason == (
        "it was asked for, and what the replicas promise permits it"
    )
    assert choose({"east": None}, asked=MergeCase.R4).reason.endswith("permits it")


def test_asking_does_not_overrule_what_is_declared():
    wanted = r"case R2 was asked for.*'west' does not declare insert_only and ordered; if it is"
    with pytest.raises(UsageError, match=wanted):
        choose({"east": R0, "west": R3}, asked=MergeCase.R2)


@given(replicas, st.booleans())
def test_every_choice_can_be_explained(declared, gaps):
    choice = choose(declared, gaps_possible=gaps)
    text = explain_choice(choice)
    assert text.startswith(f"case {choice.case.name}: {choice.reason}\n")
    assert REMEMBERS[choice.case] in text
    assert json.loads(json.dumps(choice.to_dict()))["case"] == choice.case.value
    assert ("no gaps: " in text.partition("wrong")[2]) == (
        not gaps and choice.case is not MergeCase.R4
    )


def test_a_choice_is_data():
    assert choose({"east": R3}) == Choice(
        MergeCase.R3,
        "every replica promises keyed",
        (
            (MergeCase.R0, ("insert_only", "strictly_increasing")),
            (MergeCase.R1, ("insert_only", "ordered", "ties_in_same_order")),
            (MergeCase.R2, ("insert_only", "ordered")),
        ),
    )


# The entries of `WRONG`, on the merges themselves.  Each text breaks one declaration; the last
# element of each is the one that shows it, or does not.

MERGES = {
    MergeCase.R0: MergeR0,
    MergeCase.R1: MergeR1,
    MergeCase.R2: MergeR2,
    MergeCase.R3: MergeR3,
}
ADJUSTS = "1: insert a 1..3; 1: adjust a 1..3->4"
BACK = "1: insert a 5..9; 1: insert b 3..9"
SEEN = {
    (MergeCase.R0, "insert_only"): [ADJUSTS],
    (MergeCase.R0, "strictly_increasing"): [BACK, "1: insert a 5..9; 1: insert b 5..9"],
    (MergeCase.R1, "insert_only"): [ADJUSTS],
    (MergeCase.R1, "ordered"): [BACK],
    (MergeCase.R2, "insert_only"): [ADJUSTS],
    (MergeCase.R2, "ordered"): [BACK],
    (MergeCase.R2, "keyed"): ["1: insert a 1..3; 1: insert a 1..3"],
    (MergeCase.R3, "keyed"): ["1: insert a 1..3; 1: insert a 1..5"],
    (MergeCase.R3, NO_GAPS): [
        "1: insert b 1..3; 1: stable 9; 2: insert a 2..3",
    ],
}
GAP = "1: insert a 1..9; 1: insert b 2..9; 2: insert c 1..9"
MISSED = {
    (MergeCase.R0, NO_GAPS): (GAP, Reason.PASSED),
    (MergeCase.R1, NO_GAPS): (GAP, Reason.PASSED),
    (MergeCase.R2, NO_GAPS): (GAP, Reason.PASSED),
    (MergeCase.R1, "ties_in_same_order"): (
        "1: insert a 1..2; 1: insert b 1..2; 2: insert b 1..2; 2: insert a 1..2",
        Reason.KNOWN,
    ),
    (MergeCase.R2, "keyed"): (
        "1: insert a 1..3; 2: insert b 2..3; 1: insert a 1..3",
        Reason.PASSED,
    ),
    (MergeCase.R3, "keyed"): (
        "1: insert a 1..3; 2: insert a 1..3; 2: stable 9; 1: insert a 1..3",
        Reason.SETTLED,
    ),
}


def last_reason(case, text):
    merge = MERGES[case]()
    for arrival in text.split(";"):
        replica, element = arrival.split(":")
        outcome = merge.push(replica.strip(), parse(element)[0])
    return outcome.reason


@pytest.mark.parametrize("wrong", [one for one in WRONG if one.reasons], ids=str)
def test_a_wrong_declaration_has_the_reasons_of_the_table(wrong):
    found = {last_reason(wrong.case, text) for text in SEEN[wrong.case, wrong.declared]}
    is_gap = wrong.declared == NO_GAPS  # MISSED is a reason of steps over batches only
    assert found == {Reason.LATE} if is_gap else found == set(wrong.reasons)
    bucket = Bucket.LATE if is_gap else Bucket.VIOLATION
    assert {reason.bucket for reason in wrong.reasons} == {bucket}


@pytest.mark.parametrize("wrong", [one for one in WRONG if one.missed], ids=str)
def test_a_wrong_declaration_is_missed_where_the_table_has_it(wrong):
    text, reason = MISSED[wrong.case, wrong.declared]
    assert last_reason(wrong.case, text) is reason
    assert reason not in wrong.reasons


def test_every_declaration_that_a_case_needs_has_its_line():
    for case in MergeCase:
        found = [one.declared for one in detections(case)]
        gap = [NO_GAPS] if case is not MergeCase.R4 else []
        assert found == [*REQUIRED[case], *gap]


def test_the_guide_has_the_table_of_wrong_declarations():
    page = (Path(__file__).parents[2] / "docs" / "internals" / "cases.md").read_text()
    for wrong in WRONG:
        reasons = " ".join(f"`{reason.name}`" for reason in wrong.reasons) or "none"
        declared = wrong.declared if wrong.declared == NO_GAPS else f"`{wrong.declared}`"
        cells = (wrong.case.name, declared, wrong.seen, reasons, wrong.missed or "-")
        assert f"| {' | '.join(cells)} |" in page
    for case, remembers in REMEMBERS.items():
        assert re.search(rf"^\| {case.name} \| .* \| {remembers} \|$", page, re.MULTILINE)
