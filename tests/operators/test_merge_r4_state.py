"""The state of a merge of bags: it survives its parts, makes room, and checks itself."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from live_events import live_events
from merge_driver import SCHEMA, batch_of, cuts, judge_prefix, runs, step
from merge_r4_driver import KernelR4, ReferenceR4

from anabranch.batch.codec import from_elements, to_elements
from anabranch.batch.schema import ElementSchema, TimeType
from anabranch.model.element import Adjust, Insert, Stable
from anabranch.model.history import History, replay
from anabranch.model.notation import parse
from anabranch.model.properties import MergeCase
from anabranch.operators.contract import GAPS_SHOWN, REASONS, Arrival
from anabranch.operators.merge.state import MergeState
from anabranch.operators.route import route
from anabranch.operators.state import pieces
from anabranch.testing.strategies import interleavings, replicas


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


def restored(state, schema=SCHEMA):
    return MergeState.from_parts(state.parts().written, schema)


def test_a_state_of_bags_survives_its_parts():
    state = some_state()
    again = restored(state)
    again.check()
    assert again.parts().written == state.parts().written
    assert (again.live, again.frontier, len(again.final_names)) == (2, 5, 1)
    assert not again.keyed
    assert live_events(again).output_end.tolist() == live_events(state).output_end.tolist()
    assert live_events(again).ends.tolist() == live_events(state).ends.tolist()
    # Replica 2 wants an end behind the frontier: also after a restart it is looked at.
    for one in (state, again):
        result = step(one, [Arrival("2", batch_of(parse("stable 7")))])
        assert to_elements(result.output) == parse("adjust a 1..9->5; stable 7")


def test_an_end_that_a_joining_replica_is_not_heeded_for_needs_one_visit():
    """Found by the law of restarts: it stays contradicted, and nothing is due for it."""
    kernel = KernelR4()
    kernel.step([("1", parse("insert b 0..99"))])
    kernel.attach("late", guarantee=3)
    late = parse("insert b 0..8; adjust b 0..8->1; stable 9")
    kernel.step([("late", late), ("2", parse("insert b 0..1; adjust b 0..1->99; stable 3"))])
    kernel.state.check()
    restored(kernel.state).check()
    assert (kernel.state.frontier, live_events(kernel.state).output_end.tolist()) == (9, [99])


def test_an_empty_state_of_bags_survives_its_parts():
    again = restored(KernelR4(shrink_only=True).state)
    again.check()
    assert again.policy.shrink_only
    assert not again.keyed


def test_a_silent_replica_holds_settled_identities_until_it_is_detached():
    for merge in (KernelR4(), ReferenceR4()):
        merge.attach("silent")
        merge.take("1", parse("insert a 1..3; insert a 1..3; stable 9"))
        assert merge.settled == 1
        merge.detach("silent")
        assert merge.settled == 0


def test_an_r4_seq_that_was_consumed_is_a_redelivery():
    state, reference = MergeState.empty(SCHEMA, keyed=False), ReferenceR4()
    elements = parse("insert a 1..3; insert a 1..3; insert a 1..3; insert b 4..5; stable 9")
    seq = [10, 10, 11, 12, 7]
    first = step(state, [Arrival("1", batch_of(elements[:3], seq=seq[:3]))])
    state = restored(state)
    second = step(state, [Arrival("1", batch_of(elements[3:], seq=seq[3:]))])
    names = [REASONS[code].name for r in (first, second) for code in r.reasons[0]]
    assert names == ["FIRST", "REDELIVERY", "FIRST", "FIRST", "REDELIVERY"]
    outcomes = [reference.merge.push("1", e, seq=s) for e, s in zip(elements, seq, strict=True)]
    assert [outcome.reason.name for outcome in outcomes] == names


def test_bags_of_payloads_without_columns():
    schema = ElementSchema(TimeType.BIGINT, pa.schema([]))
    state = MergeState.empty(schema, keyed=False)
    elements = [Insert((), 1, 5), Insert((), 1, 5), Adjust((), 1, 5, 4), Stable(3)]
    result = step(state, [Arrival("1", from_elements(elements, schema))])
    state = restored(state, schema)
    state.check()
    assert len(to_elements(result.output)) == 3
    result = step(state, [Arrival("1", from_elements([Stable(6)], schema))])
    output = to_elements(result.output)
    assert output == [Stable(6)]


@pytest.fixture
def colliding(monkeypatch):
    """Every payload has the same hash, so that only values distinguish them."""

    def hash_names(columns, count):
        return np.zeros((count, 2), np.uint64)

    monkeypatch.setattr(pieces, "hash_names", hash_names)


@pytest.mark.usefixtures("colliding")
def test_bags_of_payloads_with_one_hash_are_distinguished():
    kernel, reference = KernelR4(), ReferenceR4()
    text = "insert a 1..3; insert b 1..9; insert c 1..9; insert b 1..8; adjust b 1..8->7"
    more = "adjust c 1..9->7; insert d 5..6; insert c 5..6; insert d 5..6; adjust e 5..6->7"
    for some in (text, "stable 5", more, "insert f 5..6; stable forever"):
        for element in parse(some):
            kernel.take("1", [element])
            reference.take("1", [element])
    assert replay(kernel.output) == replay(reference.output)
    assert kernel.reasons == reference.reasons
    assert kernel.live == 0


def test_long_lists_make_room_for_themselves():
    kernel, reference = KernelR4(), ReferenceR4()
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
    assert replay(kernel.output) == replay(reference.output)
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
    assert nodes.stored <= 2 * kernel.live + 1_100
    assert len(kernel.state.agenda.due) <= 2 * kernel.live + 1_100
    assert nodes.used < 1_100
    assert len(nodes.bags.cells) <= 1_024
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
    assert len(kernel.state.agenda.pending[1]) <= 2 * kernel.live + 1_624
    kernel.take("2", [Stable(30)])
    assert kernel.live == 0


def test_a_bag_that_a_replica_contradicts_is_looked_at_when_it_decides():
    kernel = KernelR4()
    kernel.take("1", [Insert("q", 12, 90), Insert("q", 12, 90), Stable(20)])
    kernel.take("2", [Insert("q", 12, 15)])
    kernel.restart()
    kernel.take("2", [Stable(30)])
    assert kernel.output[-1] == Stable(30)
    assert kernel.conflicts == 1


def test_the_heap_is_made_again_when_most_of_it_is_stale():
    kernel = KernelR4()
    kernel.take("1", [*(Insert(f"p{k}", 1, FAR) for k in range(100)), Stable(5)])
    for i in range(15):
        kernel.take("1", [Adjust(f"p{k}", 1, FAR - i, FAR - i - 1) for k in range(100)])
    assert len(kernel.state.agenda.due) <= 1_300
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
    state = MergeState.empty(SCHEMA, keyed=False)
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
    lanes = [MergeState.empty(SCHEMA, keyed=False) for _ in range(data.draw(st.integers(1, 4)))]
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
        some.append(Arrival(arrival.input, arrival.batch.take((to == lane) | (to < 0))))
    return some
