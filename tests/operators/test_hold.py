"""Align in front of a step: what it releases, when, and in which order (errata C14 to C17)."""

from collections import Counter
from itertools import pairwise

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given
from unary_laws import cuts, streams

from anabranch import testing
from anabranch.batch.batch import FOREVER_UNITS
from anabranch.batch.codec import from_elements, to_elements
from anabranch.batch.schema import ElementSchema, TimeType
from anabranch.errors import StateError, UsageError
from anabranch.model import Adjust, Insert, Stable, parse
from anabranch.model.equivalence import equivalent_until
from anabranch.model.history import History, replay
from anabranch.model.net_change import sync_time
from anabranch.model.properties import StreamProperties
from anabranch.model.time import NEVER
from anabranch.model.waiting import final_in_order, in_sync_order, limit
from anabranch.operators.contract import Arrival, Bucket, Inputs, Reached, Reason
from anabranch.operators.report_final import ReportFinalState
from anabranch.operators.waiting.hold import HoldOperator
from anabranch.operators.waiting.hold_state import OrderedState
from anabranch.operators.waiting.level import Release

SCHEMA = ElementSchema(TimeType.BIGINT, pa.schema([("name", pa.string())]))
NAMES = ("reference", "kernel", "lanes")


def step(state, elements=(), *control):
    arrivals = (Arrival("input", from_elements(elements, SCHEMA)),) if elements else ()
    return state.step(Inputs(arrivals, control))


def starts_seen(stream):
    return max((one.start for one in stream if not isinstance(one, Stable)), default=NEVER)


def lined_up(steps):
    """What several lanes emitted: the order holds within each, and from step to step."""
    data = [[one for one in step if not isinstance(one, Stable)] for step in steps]
    return [one for step in data for one in sorted(step, key=sync_time)]


def judge_ordered(output, stream, passed):
    """Valid, as far as the input, with all that must be out and nothing that must not be."""
    seen, out = replay(stream), replay(output)
    assert seen.violations == out.violations == ()
    assert out.frontier == seen.frontier
    assert equivalent_until(out.history, seen.history, seen.frontier)
    for one in (out.history, seen.history):
        assert Counter(e for e in seen.history if e.start <= passed) == Counter(
            e for e in out.history if e.start <= passed
        ), one
    held = max(passed, seen.frontier - 1)
    assert all(event.start <= held for event in out.history)


def judge_account(engine, count, pending):
    """Every element is in one bucket; what is held is pending."""
    buckets = engine.account.get("input", {})
    assert sum(buckets.values()) == count
    assert buckets.get("pending", 0) == engine.counts["live"] == pending(engine)


@given(data=st.data(), wait=st.sampled_from([None, 0, 2, 6]))
def test_any_cut_any_restart(data, wait):
    """However a stream is cut: what the frontier or the wait has passed is out, and no more."""
    stream = data.draw(streams())
    ends = data.draw(cuts(len(stream)))
    restarts = data.draw(st.lists(st.booleans(), min_size=len(ends), max_size=len(ends)))
    reaches = data.draw(st.lists(st.booleans(), min_size=len(ends), max_size=len(ends)))
    for name in NAMES if len(stream) % 3 == 0 else NAMES[:2]:
        with testing.engine(name, "hold", check_every=2, wait=wait) as engine:
            passed, reached, steps = NEVER, [], []
            for (begin, end), again, reach in zip(
                pairwise([0, *ends]), restarts, reaches, strict=True
            ):
                before = len(engine.output)
                engine.push("input", stream[begin:end])
                engine.restart() if again else engine.cut()
                seen = starts_seen(stream[:end])
                if reach and seen != NEVER:
                    engine.reach(seen)
                    reached.append((seen, NEVER))
                    passed = limit(reached, wait=wait)
                judge_ordered(engine.output, stream[:end], passed)
                judge_account(engine, end, lambda one: one.counts["live"])
                steps.append(engine.output[before:])
                if wait is None:
                    assert in_sync_order(lined_up(steps) if name == "lanes" else engine.output)
            if stream[-1] == Stable(float("inf")):
                assert engine.history == History.of(stream)
                assert engine.counts["live"] == 0


@given(stream=streams(), wait=st.sampled_from([None, 0, 3]))
def test_the_kernel_emits_what_the_reference_emits(stream, wait):
    """Element by element, but for the order of one sync time; for the same reasons."""
    engines = [testing.engine(name, "hold", wait=wait) for name in NAMES[:2]]
    for count, element in enumerate(stream, start=1):
        made = []
        for engine in engines:
            engine.push("input", [element])
            out = engine.cut()
            before = len(engine.output)
            if starts_seen(stream[:count]) != NEVER:
                engine.reach(starts_seen(stream[:count]))
            made.append((by_time(out), by_time(engine.output[before:])))
        assert made[0] == made[1]
        assert engines[0].counts["live"] == engines[1].counts["live"]
    assert engines[0].reasons == engines[1].reasons


def by_time(elements):
    """The elements of each sync time, in no order, and these in theirs."""
    keyed = [(one.time if isinstance(one, Stable) else sync_time(one), one) for one in elements]
    times = list(dict.fromkeys(time for time, _ in keyed))
    return [(time, Counter(repr(one) for t, one in keyed if t == time)) for time in times]


@given(stream=streams(), data=st.data())
def test_rows_and_how_far_the_query_is_may_come_in_one_step(stream, data):
    """As in lanes: the limit counts at the end of the step, and the net change is emitted."""
    wait = data.draw(st.sampled_from([0, 2, 6]))
    state, reached, output = HoldOperator(SCHEMA, wait=wait).empty(), [], []
    for begin, end in pairwise([0, *data.draw(cuts(len(stream)))]):
        seen = starts_seen(stream[:end])
        entry = [] if seen == NEVER else [Reached(int(seen))]
        reached += [(one.start, NEVER) for one in entry]
        result = step(state, stream[begin:end], *entry)
        state.check()
        output += to_elements(result.output)
        assert in_sync_order(to_elements(result.output))
        judge_ordered(output, stream[:end], limit(reached, wait=wait))


@given(data=st.data())
def test_final_release_has_final_events_in_the_order_of_starts(data):
    stream = data.draw(streams())
    ends = data.draw(cuts(len(stream)))
    restarts = data.draw(st.lists(st.booleans(), min_size=len(ends), max_size=len(ends)))
    for name in NAMES:
        with testing.engine(name, "hold", lanes=1, release="final") as engine:
            for (begin, end), again in zip(pairwise([0, *ends]), restarts, strict=True):
                engine.push("input", stream[begin:end])
                engine.restart() if again else engine.cut()
                seen, out = replay(stream[:end]), replay(engine.output)
                released, bound = final_in_order(seen.history, seen.frontier)
                assert out.violations == ()
                assert (out.history, out.frontier) == (released, bound)
                judge_account(engine, end, lambda one: one.counts["live"])
            assert not any(isinstance(one, Adjust) for one in engine.output)
            starts = [one.start for one in engine.output if isinstance(one, Insert)]
            assert starts == sorted(starts)


@given(left=streams(), right=streams(), data=st.data())
def test_inputs_of_one_step_are_released_together(left, right, data):
    """By the least of their frontiers: so what both release in a step has times between two."""
    arrived = data.draw(testing.interleavings([left, right]))
    for name in ("reference", "kernel"):
        engines = [testing.engine(name, "hold", beside=1) for _ in range(2)]
        before = NEVER
        for side, element in arrived:
            made = []
            for number, engine in enumerate(engines):
                engine.push("input" if side == number else "beside_0", [element])
                made += engine.cut()
            times = [sync_time(one) for one in made if not isinstance(one, Stable)]
            stables = {one.time for one in made if isinstance(one, Stable)}
            assert len(stables) <= 1
            assert all(before <= time for time in times)
            before = max([before, *stables])
            assert all(time < before for time in times)
        assert [engine.history for engine in engines] == [History.of(left), History.of(right)]


def test_a_wait_by_the_wall_clock_is_over_for_what_was_seen_that_long_ago():
    state = HoldOperator(SCHEMA, wait_wall=100).empty()
    assert state.due is None
    assert not len(step(state, parse("insert a 5..9; insert b 3..4"), Reached(5, 1_000)).output)
    assert state.due == 1_100
    assert not len(step(state, parse("insert c 8..9"), Reached(8, 1_050)).output)
    out = to_elements(step(state, (), Reached(8, 1_100)).output)
    assert [one.start for one in out] == [3, 5]
    assert (state.due, state.live, state.facts) == (
        1_150,
        1,
        {"pending": 1, "wait_wall": 100, "due": 1_150},
    )
    again = HoldOperator(SCHEMA, wait_wall=100).from_parts(state.parts().written)
    assert again.due == 1_150
    assert to_elements(step(again, (), Reached(8, 1_150)).output) == [Insert("c", 8, 9)]
    assert again.due is None
    # What comes for a time that was waited for passes at once.
    assert to_elements(step(again, parse("insert d 2..9")).output) == [Insert("d", 2, 9)]


def test_of_two_waits_the_first_that_is_over_counts():
    state = HoldOperator(SCHEMA, wait=4, wait_wall=100).empty()
    out = step(state, parse("insert a 5..9; insert b 1..4"), Reached(5, 1_000)).output
    assert to_elements(out) == [Insert("b", 1, 4)]
    assert to_elements(step(state, (), Reached(5, 1_100)).output) == [Insert("a", 5, 9)]


def test_a_clock_that_was_set_back_releases_nothing_twice_or_early():
    state = HoldOperator(SCHEMA, wait_wall=100).empty()
    assert not len(step(state, parse("insert a 5..9"), Reached(5, 1_000)).output)
    assert not len(step(state, parse("insert b 6..9"), Reached(6, 500)).output)
    assert len(step(state, (), Reached(6, 600)).output) == 2
    assert not len(step(state, (), Reached(6, 1_100)).output)


def test_what_the_guard_of_the_host_does_not_count_waits_for_the_frontier():
    """A start in the far future moves no limit, since it is not in `Reached`."""
    state = HoldOperator(SCHEMA, wait=0).empty()
    out = step(state, parse("insert a 5..9; insert b 5000..5001"), Reached(5)).output
    assert to_elements(out) == [Insert("a", 5, 9)]
    assert state.live == 1


def test_adjusts_of_bags_keep_apart_what_was_released():
    """Of two equal events each has its own adjusts, and leaves with its end."""
    state = HoldOperator(SCHEMA).empty()
    step(state, parse("insert a 1..9; insert a 1..9; stable 2"))
    held = step(state, parse("adjust a 1..9->20; adjust a 1..9->5; adjust a 1..20->9"))
    assert not len(held.output)
    assert state.live == 1, "one of them came back to its end"
    out = to_elements(step(state, parse("stable 6")).output)
    assert out == [Adjust("a", 1, 9, 5), Stable(6)]


def test_a_step_looks_only_at_what_it_releases():
    """Operation counts are free of noise: what waits costs a stable nothing."""
    state = HoldOperator(SCHEMA, wait=1_000).empty()
    step(state, [Insert(f"p{i}", 100 + i, 5000 + i) for i in range(1_000)])
    visits = [step(state, [Stable(time)]).counts["visits"] for time in (50, 100, 101, 103)]
    assert visits == [0, 0, 1, 2]
    assert step(state, (), Reached(1_120)).counts["visits"] == 18
    result = step(state, [Adjust("p500", 600, 5500, 700), Adjust("p500", 600, 700, 650)])
    assert (result.counts["visits"], result.counts["looks"]) == (0, 2)
    state.check()


def test_where_nothing_waits_the_table_is_not_touched():
    state = HoldOperator(SCHEMA, wait=0).empty()
    result = step(state, [Insert(f"p{i}", i, 5000) for i in range(1_000)], Reached(999))
    assert len(result.output) == 1_000
    assert state.groups.table.used == 0


@pytest.mark.parametrize("release", list(Release))
def test_a_state_of_another_operator_is_refused(release):
    with pytest.raises(StateError, match="hold"):
        HoldOperator(SCHEMA, release=release).from_parts(
            ReportFinalState(SCHEMA).parts().written
        )


def test_waits_that_make_no_sense_are_refused():
    with pytest.raises(UsageError, match="align: wait is -1; it must be 0 or greater"):
        HoldOperator(SCHEMA, wait=-1)
    with pytest.raises(UsageError, match=r'release="final" releases final events only'):
        HoldOperator(SCHEMA, wait=1, release=Release.FINAL)


def test_what_the_output_promises():
    rows = StreamProperties(insert_only=True, keyed=True)
    strong = HoldOperator(SCHEMA).properties(rows)
    assert (strong.ordered, strong.ties_in_same_order, strong.keyed) == (True, True, True)
    early = HoldOperator(SCHEMA, wait=3).properties(rows)
    assert (early.ordered, early.insert_only) == (False, True)
    assert HoldOperator(SCHEMA, release=Release.FINAL).properties(StreamProperties()).ordered


def test_resolved_elements_are_those_that_were_pending():
    state = HoldOperator(SCHEMA).empty()
    first = step(state, parse("insert a 4..8"))
    assert [Reason.HELD.code] == first.reasons[0].tolist()
    second = step(state, parse("adjust a 4..8->6"))
    (done,) = second.resolved
    assert to_elements(done.batch) == [Insert("a", 4, 8)]
    third = step(state, parse("stable 9"))
    (done,) = third.resolved
    assert to_elements(done.batch) == [Adjust("a", 4, 8, 6)]
    assert done.buckets.tolist() == [Bucket.ABSORBED]
    assert step(state, [Stable(float("inf"))]).stable == FOREVER_UNITS
    assert isinstance(state, OrderedState)
