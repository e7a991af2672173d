"""Finalize in front of a step: forced stables, and what is late (errata C17, C18, C24, D14)."""

from collections import Counter
from itertools import pairwise

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given
from unary_laws import cuts, streams

from anabranch import testing
from anabranch.batch.codec import from_elements, to_elements
from anabranch.batch.schema import ElementSchema, TimeType
from anabranch.errors import StateError, UsageError
from anabranch.model import Insert, Stable, parse
from anabranch.model.forgetting import Kept, Lateness
from anabranch.model.history import History, replay
from anabranch.model.properties import StreamProperties
from anabranch.model.time import NEVER
from anabranch.operators.contract import Arrival, Bucket, Inputs, Reached, Reason
from anabranch.operators.report_final import ReportFinalState
from anabranch.operators.waiting.finalize import FinalizeOperator

SCHEMA = ElementSchema(TimeType.BIGINT, pa.schema([("name", pa.string())]))
LATE = {Lateness.BEHIND: "BEHIND_FORCED", Lateness.FORGOTTEN: "OF_FORGOTTEN"}


def step(state, elements=(), *control):
    arrivals = (Arrival("input", from_elements(elements, SCHEMA)),) if elements else ()
    return state.step(Inputs(arrivals, control))


class Judge:
    """The model beside an engine: what is kept, and why the rest is late."""

    def __init__(self, remember):
        self.remember, self.kept, self.stream = remember, Kept(), []
        self.late, self.frontier = [], NEVER

    def take(self, elements):
        for one in elements:
            if isinstance(one, Stable):
                self.frontier = max(self.frontier, one.time)
                continue
            lateness = self.kept.take(one)
            if lateness is not None:
                self.late.append(LATE[lateness])
        self.stream += elements

    def reach(self):
        starts = [one.start for one in self.stream if not isinstance(one, Stable)]
        if not starts:
            return None
        self.kept.force(max(starts) - self.remember)
        return max(starts)

    def judge(self, engine):
        out = replay(engine.output)
        assert out.violations == ()
        assert out.history == self.kept.history
        assert out.frontier == max(self.frontier, self.kept.forced)
        buckets = engine.account.get("input", {})
        assert sum(buckets.values()) == len(self.stream)
        assert buckets.get("late", 0) == len(self.late)
        if engine.reasons is not None:
            late = [one for one in engine.reasons if Reason[one].bucket is Bucket.LATE]
            assert late == self.late
            taken = [
                one
                for one, reason in zip(self.stream, engine.reasons, strict=True)
                if Reason[reason].bucket is not Bucket.LATE
            ]
            assert replay(taken).violations == ()
            assert History.of(taken) == out.history, "the input without what was late"


@given(data=st.data(), remember=st.sampled_from([0, 2, 6]))
def test_the_output_is_the_input_without_what_was_late(data, remember):
    """However a stream is cut, wherever it is saved, whenever a stable is forced."""
    stream = data.draw(streams())
    ends = data.draw(cuts(len(stream)))
    flags = st.lists(st.booleans(), min_size=len(ends), max_size=len(ends))
    restarts, reaches = data.draw(flags), data.draw(flags)
    names = ("reference", "kernel", *(["lanes"] if len(stream) % 3 == 0 else []))
    for name in names:
        with testing.engine(name, "finalize", remember=remember, check_every=2) as engine:
            judge = Judge(remember)
            for (begin, end), again, reach in zip(
                pairwise([0, *ends]), restarts, reaches, strict=True
            ):
                engine.push("input", stream[begin:end])
                engine.restart() if again else engine.cut()
                judge.take(stream[begin:end])
                reached = judge.reach() if reach else None
                if reached is not None:
                    engine.reach(reached)
                judge.judge(engine)


@given(stream=streams(), remember=st.sampled_from([0, 2, 6]))
def test_the_kernel_emits_what_the_reference_emits(stream, remember):
    engines = [
        testing.engine(name, "finalize", remember=remember) for name in ("reference", "kernel")
    ]
    greatest = NEVER
    for element in stream:
        if not isinstance(element, Stable):
            greatest = max(greatest, element.start)
        made = []
        for engine in engines:
            before = len(engine.output)
            engine.push("input", [element])
            engine.cut()
            if greatest != NEVER:
                engine.reach(greatest)
            made.append(engine.output[before:])
        assert made[0] == made[1]
        assert engines[0].counts["live"] == engines[1].counts["live"]
    assert engines[0].reasons == engines[1].reasons


@given(stream=streams(), data=st.data(), remember=st.sampled_from([0, 2, 6]))
def test_rows_and_how_far_the_query_is_may_come_in_one_step(stream, data, remember):
    """As in lanes: the stable is forced at the end of the step, behind all its rows."""
    state, judge, output = FinalizeOperator(SCHEMA, remember).empty(), Judge(remember), []
    for begin, end in pairwise([0, *data.draw(cuts(len(stream)))]):
        judge.take(stream[begin:end])
        reached = judge.reach()
        entry = [] if reached is None else [Reached(int(reached))]
        output += to_elements(step(state, stream[begin:end], *entry).output)
        state.check()
        out = replay(output)
        assert out.violations == ()
        assert out.history == judge.kept.history
        assert out.frontier == max(judge.frontier, judge.kept.forced)


def test_what_is_in_time_costs_no_look_and_no_memory():
    """Operation counts are free of noise; so does what ends before the forced stable."""
    state = FinalizeOperator(SCHEMA, 100).empty()
    rows = [Insert(f"p{i}", i, i + 5) for i in range(1_000)]
    result = step(state, rows, Reached(999))
    assert (result.counts, state.live) == ({"visits": 0, "looks": 0}, 0)
    result = step(state, [Insert("p", 5, 9), Insert("q", 7, 950), Insert("r", 990, 991)])
    assert Counter(result.buckets[0].tolist()) == {Bucket.LATE: 2, Bucket.EMITTED: 1}
    assert state.live == 1, "p ends before the stable: no adjust of it is in time"
    assert step(state, [Stable(960)]).counts["visits"] == 1
    assert state.live == 0
    state.check()


def test_without_adjusts_nothing_of_what_was_late_is_remembered():
    state = FinalizeOperator(SCHEMA, 5, insert_only=True).empty()
    step(state, parse("insert a 20..30"), Reached(20))
    assert len(step(state, parse("insert b 3..forever")).output) == 0
    assert state.live == 0


def test_memory_stays_flat_over_a_long_time():
    """Rows out of order, each adjusted once, with nothing but forced stables."""
    state, live = FinalizeOperator(SCHEMA, 0).empty(), []
    for time in range(0, 4_000, 10):
        rows = [Insert(f"p{i}", time + (i * 7) % 20 - 10, time + 30 + i) for i in range(20)]
        step(state, rows, Reached(time + 10))
        live.append(state.live)
        state.check()
    assert 0 < max(live[:20]) <= max(live) <= max(live[:20]) + 20
    assert state.groups.stored < 2_500


def test_a_span_and_a_state_that_make_no_sense_are_refused():
    with pytest.raises(UsageError, match="finalize: remember is -1; it must be 0 or greater"):
        FinalizeOperator(SCHEMA, -1)
    with pytest.raises(StateError, match="finalize"):
        FinalizeOperator(SCHEMA, 1).from_parts(ReportFinalState(SCHEMA).parts().written)


def test_what_the_output_promises():
    operator, strictly = FinalizeOperator(SCHEMA, 1), StreamProperties(strictly_increasing=True)
    assert operator.properties(strictly) == strictly
    ordered = StreamProperties(ordered=True, ties_in_same_order=True)
    assert operator.properties(ordered) == StreamProperties(ordered=True)
