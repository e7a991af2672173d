"""The state of merge R4: it survives its bytes, is refused by name, and checks itself."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from merge_driver import SCHEMA, batch_of, cuts, judge_prefix, runs
from merge_r4_driver import KernelR4, ReferenceR4

from anabranch.batch.codec import from_elements, to_elements
from anabranch.batch.schema import ElementSchema, TimeType
from anabranch.errors import SchemaError, StateError, UsageError
from anabranch.model.element import Adjust, Insert, Stable
from anabranch.model.history import History
from anabranch.model.notation import parse
from anabranch.model.properties import MergeCase
from anabranch.operators.merge import r4_codec, r4_locate
from anabranch.operators.merge.contract import GAPS_SHOWN, REASONS, Arrival
from anabranch.operators.merge.r4_kernel import step
from anabranch.operators.merge.r4_state import R4State
from anabranch.operators.merge.route import route
from anabranch.operators.state_codec import write_tables
from anabranch.testing.strategies import interleavings, replicas

DATA = Path(__file__).parent / "data"


def some_state():
    kernel = KernelR4()
    kernel.attach("late", guarantee=40)
    text = "insert a 1..9; insert a 1..9; insert a 1..4; insert b 2..3; insert c 8..9; "
    kernel.step(
        [
            ("1", parse(text + "insert c 8..9; adjust c 8..9->8; adjust c 8..9->8; stable 5")),
            ("2", parse("stable 1; insert a 1..3; insert a 1..4; insert a 1..12")),
        ]
    )
    return kernel.state


def test_a_state_of_bags_survives_its_bytes():
    state = some_state()
    again = R4State.from_bytes(state.to_bytes(), SCHEMA)
    again.check()
    assert again.mark > state.mark
    again.mark = state.mark
    assert again.to_bytes() == state.to_bytes()
    assert again.replicas == state.replicas
    assert (again.live, again.frontier, len(again.settled)) == (2, 5, 1)
    assert not again.shrink_only
    assert [(r.name, r.joined, r.guarantee) for r in again.replicas] == [
        ("late", False, 40),
        ("1", True, None),
        ("2", True, None),
    ]
    # Replica 2 wants an end behind the frontier: also after a restart it is looked at.
    for one in (state, again):
        result = step(one, [Arrival("2", batch_of(parse("stable 7")))])
        assert to_elements(result.output) == parse("adjust a 1..9->5; stable 7")


def test_an_empty_state_of_bags_survives_its_bytes():
    state = R4State.empty(SCHEMA, shrink_only=True)
    again = R4State.from_bytes(state.to_bytes(), SCHEMA)
    again.check()
    assert again.shrink_only


def test_another_version_of_r4_is_refused_by_both_names(monkeypatch):
    monkeypatch.setattr(r4_codec, "KIND", replace(r4_codec.KIND, version=7))
    data = some_state().to_bytes()
    monkeypatch.undo()
    with pytest.raises(StateError, match=r"'anabranch merge r4' version 7.*version 1 and 2"):
        R4State.from_bytes(data, SCHEMA)


def test_foreign_bytes_are_no_r4_state():
    with pytest.raises(StateError, match="not a state of"):
        R4State.from_bytes(b"something else", SCHEMA)
    with pytest.raises(StateError, match="'unknown' version unknown"):
        R4State.from_bytes(write_tables(pa.table({"x": [1]})), SCHEMA)
    with pytest.raises(StateError, match="not a state of"):
        R4State.from_bytes(some_state().to_bytes()[:-400], SCHEMA)


@pytest.mark.parametrize(
    "other",
    [
        ElementSchema(TimeType.TIMESTAMP, SCHEMA.payload),
        ElementSchema(TimeType.BIGINT, pa.schema({"p": pa.int64()})),
    ],
)
def test_an_r4_state_of_other_columns_is_refused(other):
    with pytest.raises(StateError, match="cannot change"):
        R4State.from_bytes(some_state().to_bytes(), other)
    with pytest.raises(SchemaError, match="replica 'x' has"):
        step(some_state(), [Arrival("x", from_elements([], other))])


def test_a_replaced_attachment_is_refused_by_r4_and_nothing_changes():
    kernel, reference = KernelR4(), ReferenceR4()
    for merge in (kernel, reference):
        merge.attach("1", attachment=3)
    before = kernel.state.to_bytes()
    with pytest.raises(UsageError, match="attachment 2, but 3"):
        step(kernel.state, [Arrival("new", batch_of([])), Arrival("1", batch_of([]), None, 2)])
    with pytest.raises(UsageError, match="number 3, but number 3"):
        reference.attach("1", attachment=3)
    assert kernel.state.to_bytes() == before


def test_r4_detach_needs_a_name_that_is_there():
    with pytest.raises(
        UsageError, match=r"'x' cannot be detached, attached are \['late', '1', '2'\]"
    ):
        some_state().detach("x")
    ReferenceR4().detach("x")


def test_a_silent_replica_holds_settled_identities_until_it_is_detached():
    for merge in (KernelR4(), ReferenceR4()):
        merge.attach("silent")
        merge.take("1", parse("insert a 1..3; insert a 1..3; stable 9"))
        assert merge.settled == 1
        merge.detach("silent")
        assert merge.settled == 0


def test_an_r4_seq_that_was_consumed_is_a_redelivery():
    state, reference = R4State.empty(SCHEMA), ReferenceR4()
    elements = parse("insert a 1..3; insert a 1..3; insert a 1..3; insert b 4..5; stable 9")
    seq = [10, 10, 11, 12, 7]
    first = step(state, [Arrival("1", batch_of(elements[:3], seq=seq[:3]))])
    state = R4State.from_bytes(state.to_bytes(), SCHEMA)
    second = step(state, [Arrival("1", batch_of(elements[3:], seq=seq[3:]))])
    names = [REASONS[code].name for r in (first, second) for code in r.reasons[0]]
    assert names == ["FIRST", "REDELIVERY", "FIRST", "FIRST", "REDELIVERY"]
    outcomes = [reference.merge.push("1", e, seq=s) for e, s in zip(elements, seq, strict=True)]
    assert [outcome.reason.name for outcome in outcomes] == names


@pytest.mark.parametrize("granularity", ["batch", "element"])
def test_an_r4_step_of_nothing(granularity):
    result = step(R4State.empty(SCHEMA), [], granularity=granularity)
    assert (len(result.output), result.buckets, result.stable) == (0, (), None)


@pytest.mark.parametrize("granularity", ["batch", "element"])
def test_bags_of_payloads_without_columns(granularity):
    schema = ElementSchema(TimeType.BIGINT, pa.schema([]))
    state = R4State.empty(schema)
    elements = [Insert((), 1, 5), Insert((), 1, 5), Adjust((), 1, 5, 4), Stable(3)]
    result = step(
        state, [Arrival("1", from_elements(elements, schema))], granularity=granularity
    )
    state = R4State.from_bytes(state.to_bytes(), schema)
    state.check()
    assert len(to_elements(result.output)) == 3
    result = step(state, [Arrival("1", from_elements([Stable(6)], schema))])
    output = to_elements(result.output)
    assert output[-1] == Stable(6)
    assert len(output) == (1 if granularity == "batch" else 2)


@pytest.fixture
def colliding(monkeypatch):
    """Every payload has the same hash, so that only values tell them apart."""

    def hash_columns(columns, count):
        return np.zeros((count, 2), np.uint64)

    monkeypatch.setattr(r4_locate, "hash_columns", hash_columns)


@pytest.mark.usefixtures("colliding")
def test_bags_of_payloads_with_one_hash_are_told_apart():
    kernel, reference = KernelR4(granularity="element"), ReferenceR4()
    text = "insert a 1..3; insert b 1..9; insert c 1..9; insert b 1..8; adjust b 1..8->7"
    more = "adjust c 1..9->7; insert d 5..6; insert c 5..6; insert d 5..6; adjust e 5..6->7"
    for some in (text, "stable 5", more, "insert f 5..6; stable forever"):
        kernel.take("1", parse(some))
        reference.take("1", parse(some))
        kernel.restart()
    assert kernel.output == reference.output
    assert kernel.reasons == reference.reasons
    assert kernel.live == 0


def test_long_lists_make_room_for_themselves():
    kernel, reference = KernelR4(granularity="element"), ReferenceR4()
    first = [Insert("a", 0, 10 + (7 * i) % 300) for i in range(300)]
    second = [Insert("a", 0, 500 + (11 * i) % 200) for i in range(200)]
    third = [Adjust("a", 0, e.end, 11 + i % 3) for i, e in enumerate(second[:100])]
    for name, some in (
        ("1", first),
        ("2", second),
        ("2", third),
        ("2", [Stable(5), Stable(13), Stable(520), Stable(FAR)]),
    ):
        kernel.take(name, some)
        reference.take(name, some)
        kernel.restart()
    assert kernel.output == reference.output
    assert History.of(kernel.output) == History.of([*second, *third])
    assert kernel.live == 0
    net = KernelR4()
    net.step([("1", first), ("2", second + third + [Stable(5)])])
    assert len(net.output) == 201
    net.take("2", [Stable(FAR)])
    assert History.of(net.output) == History.of([*second, *third])


FAR = 10_000


def test_many_steps_let_payloads_lists_and_names_go():
    kernel = KernelR4()
    kernel.attach("slow")
    for i in range(60):
        some = [Insert(f"p{i}", i, i + 3 + k) for k in range(3)]
        kernel.take(
            "1", [*some, *(Insert(f"q{i}-{k}", i, i + 1) for k in range(60)), Stable(i)]
        )
    nodes = kernel.state.nodes
    assert kernel.live < 300
    assert nodes.payloads.count <= 2 * kernel.live + 1_100
    assert len(nodes.due) <= 2 * kernel.live + 1_100
    assert len(nodes.facts) < 1_100
    assert kernel.settled > 3_000
    kernel.take("slow", [Stable(59)])
    assert kernel.settled < 200


def test_waiting_nodes_are_compacted_and_looked_at_when_their_replica_decides():
    kernel = KernelR4()
    for i in range(4):
        kernel.take("1", [Insert(f"p{i}-{k}", i, FAR) for k in range(600)])
        kernel.take("1", [Stable(i + 2)])
        kernel.take("2", [Stable(i)])
        kernel.take("2", [Insert(f"p{i}-{k}", i, i + 1) for k in range(600)])
    for i in range(4):
        # Replica 1 shortens all: they are frozen, and replica 2 waits for what is gone.
        kernel.take("1", [Adjust(f"p{i}-{k}", i, FAR, 10 + i) for k in range(600)])
        kernel.take("1", [Stable(12 + i)])
    assert sum(map(len, kernel.state.nodes.waiting[2])) <= 2 * kernel.live + 1_624
    kernel.take("2", [Stable(30)])
    assert kernel.live == 0


def test_what_waits_is_made_anew_when_most_of_it_has_left():
    kernel = KernelR4()
    kernel.take("1", [*(Insert(f"p{k}", 1, 9) for k in range(1_500)), Stable(5)])
    kernel.take("2", [Insert(f"p{k}", 1, 3) for k in range(1_500)])
    assert sum(map(len, kernel.state.nodes.waiting[2])) == 1_500
    kernel.take("1", [Stable(10), Insert("q", 12, 90), Insert("q", 12, 90), Stable(20)])
    kernel.take("2", [Insert("q", 12, 15)])
    assert sum(map(len, kernel.state.nodes.waiting[2])) == 1
    assert repr(kernel.state.nodes).startswith("Nodes(1 of ")
    assert repr(kernel.state.settled) == "Settled(1500 names, the first is number 0)"
    kernel.take("2", [Stable(30)])
    assert kernel.output[-1] == Stable(30)
    assert kernel.conflicts == 1


def test_the_heap_is_made_anew_when_most_of_it_is_stale():
    kernel = KernelR4()
    kernel.take("1", [*(Insert(f"p{k}", 1, FAR) for k in range(100)), Stable(5)])
    for i in range(15):
        kernel.take("1", [Adjust(f"p{k}", 1, FAR - i, FAR - i - 1) for k in range(100)])
    assert len(kernel.state.nodes.due) <= 1_300
    kernel.take("1", [Stable(FAR + 1)])
    assert kernel.live == 0


def test_a_gap_is_named_and_the_others_are_counted():
    kernel = KernelR4()
    kernel.take("1", [Insert(f"p{i}", 1, 5) for i in range(GAPS_SHOWN + 5)])
    kernel.step([("2", [Insert("p3", 1, 5)]), ("2", [Stable(2)])])
    assert len(kernel.missing) == GAPS_SHOWN
    assert ("2", 1, "p3") not in kernel.missing
    assert ("2", 1, "p0") in kernel.missing


def test_a_stable_looks_only_at_what_it_freezes_or_corrects():
    """Operation counts are free of noise: a long-lived event costs nothing per stable."""
    state = R4State.empty(SCHEMA)
    events = [Insert(f"p{i}", 0, FAR) for i in range(1_000)]
    step(state, [Arrival("1", batch_of([*events, *events]))])
    visits = [
        step(state, [Arrival("1", batch_of([Stable(time)]))]).counts["visits"]
        for time in range(1, 30)
    ]
    assert visits == [1_000] + [0] * 28
    late = [Adjust("p7", 0, FAR, 40), Stable(50)]
    assert step(state, [Arrival("1", batch_of(late))]).counts["visits"] == 1


@given(st.data())
def test_lanes_of_bags_together_have_the_same_history(data):
    streams = data.draw(replicas(case=MergeCase.R4))
    arrived = data.draw(interleavings(streams))
    lanes = [R4State.empty(SCHEMA) for _ in range(data.draw(st.integers(1, 4)))]
    output, start = [], 0
    for stop in data.draw(cuts(len(arrived))):
        arrivals = [Arrival(name, batch_of(some)) for name, some in runs(arrived[start:stop])]
        results = [step(lane, part(arrivals, i, len(lanes))) for i, lane in enumerate(lanes)]
        parts = [to_elements(result.output) for result in results]
        output += [e for one in parts for e in one if not isinstance(e, Stable)]
        output += [e for e in parts[0] if isinstance(e, Stable)]
        assert len({result.stable for result in results}) == 1
        assert len({lane.frontier for lane in lanes}) == 1
        if stop:
            judge_prefix(output, arrived[:stop], len(streams))
        start = stop
    assert History.of(output) == History.of(streams[0])


def part(arrivals, lane, lanes):
    """What one lane gets: its data, and all stables."""
    some = []
    for arrival in arrivals:
        to = route(arrival.batch, lanes)
        some.append(Arrival(arrival.replica, arrival.batch.take((to == lane) | (to < 0))))
    return some


@pytest.mark.parametrize("version", [1, 2])
def test_an_old_state_of_bags_is_read(version):
    """Written by each version: `a` has three events, one `b` is settled, `d` is free."""
    data = (DATA / f"merge_r4_v{version}.state").read_bytes()
    state = R4State.from_bytes(data, SCHEMA)
    state.check()
    assert (state.live, state.frontier, len(state.settled)) == (3, 5, 1)
    assert [(r.name, r.joined, r.frontier) for r in state.replicas[1:]] == [
        ("east", True, 5),
        ("west", True, 1),
    ]
    some = "insert b 2..3; insert d 6..12; insert c 8..9; insert z 3..4; stable 7"
    result = step(state, [Arrival("west", batch_of(parse(some)))])
    said = [REASONS[code].name for code in result.reasons[0]]
    assert said == ["SETTLED", "KNOWN", "FIRST", "LATE", "LEADS"]
    assert to_elements(result.output) == parse("adjust a 1..9->5; insert c 8..9; stable 7")
