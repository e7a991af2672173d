"""ReportFinal: at every prefix exactly the frozen events of the history, each once."""

from collections import Counter
from itertools import pairwise

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given
from unary_laws import any_cut_any_restart, cuts

from anabranch import testing
from anabranch.batch.codec import from_elements, to_elements
from anabranch.batch.schema import ElementSchema, TimeType
from anabranch.errors import StateError
from anabranch.model import Adjust, Insert, MergeCase, Stable
from anabranch.model.frozen import Status, status
from anabranch.model.history import replay
from anabranch.model.time import FOREVER
from anabranch.operators.contract import Arrival, Inputs
from anabranch.operators.report_final import ReportFinalOperator, ReportFinalState
from anabranch.testing.strategies import replicas

SCHEMA = ElementSchema(TimeType.BIGINT, pa.schema([("name", pa.string())]))


def step(state, elements):
    result = state.step(Inputs((Arrival("input", from_elements(elements, SCHEMA)),)))
    assert len(result.output) == 0
    return result


def judge(engine, seen):
    """The output are the frozen events."""
    assert Counter(element.event for element in engine.output) == Counter(
        event
        for event in seen.history
        if status(event.start, event.end, frontier=seen.frontier) is Status.FROZEN
    )


@pytest.mark.parametrize("case", list(MergeCase))
@given(data=st.data())
def test_any_cut_any_restart_exactly_what_is_frozen(case, data):
    (stream,) = data.draw(replicas(case=case, max_inputs=1, truncated=True))
    ends = data.draw(cuts(len(stream)))
    restarts = data.draw(st.lists(st.booleans(), min_size=len(ends), max_size=len(ends)))
    for name in ("reference", "kernel"):
        with testing.engine(name, "final") as final:
            for (begin, end), again in zip(pairwise([0, *ends]), restarts, strict=True):
                final.push("input", stream[begin:end])
                final.restart() if again else final.cut()
                judge(final, replay(stream[:end]))


@given(data=st.data())
def test_any_cut_any_restart_of_a_stream_that_breaks_promises(data):
    any_cut_any_restart("final", data, judge)


def test_a_state_of_another_operator_is_refused():
    from anabranch.operators.cleanse import CleanseState

    with pytest.raises(StateError, match="final"):
        ReportFinalState.from_parts(CleanseState(SCHEMA).parts().written, SCHEMA)


def test_what_is_only_half_frozen_waits(local_engine):
    with local_engine("final") as final:
        final.push("input", "insert a 1..5; stable 5")
        assert final.cut() == ()
        final.push("input", "stable 6")
        assert final.cut() == (Insert("a", 1, 5),)


def test_a_step_looks_only_at_what_it_freezes():
    """Operation counts are free of noise: an event that stays costs a frontier nothing."""
    state = ReportFinalState(SCHEMA)
    step(state, [Insert(f"p{i}", 0, 100 + i) for i in range(1_000)])
    visits = [step(state, [Stable(time)]).counts["visits"] for time in (50, 99, 101, 103)]
    assert visits == [0, 0, 1, 2]
    # Ends that were moved are found at their new time, and not before.
    step(state, [Adjust("p500", 0, 600, 110)])
    output = step(state, [Stable(111)]).final
    assert ("p500", 110) in {(e.payload, e.end) for e in to_elements(output)}
    assert len(output) == 9
    state.check()


@pytest.mark.parametrize("engine", ["reference", "kernel", "lanes"])
@given(data=st.data())
def test_with_known_ends_what_started_before_the_frontier_is_final(engine, data):
    """Events are removed only before the frontier passes their start; ends do not change."""
    (stream,) = data.draw(replicas(case=MergeCase.R1, max_inputs=1, truncated=True))
    ends = data.draw(cuts(len(stream)))
    with testing.engine(engine, "final", final_at_start=True) as final:
        for begin, end in pairwise([0, *ends]):
            final.push("input", stream[begin:end])
            final.restart() if data.draw(st.booleans()) else final.cut()
            seen = replay(stream[:end])
            assert Counter(element.event for element in final.output) == Counter(
                event
                for event in seen.history
                if event.start < seen.frontier and (event.end < FOREVER or is_over(seen))
            )
        assert final.counts["live"] == len(seen.history.events()) - len(final.output)


def is_over(seen):
    return seen.frontier == FOREVER


def test_what_has_no_end_waits_for_the_end_of_the_stream(local_engine):
    with local_engine("final", final_at_start=True) as final:
        final.push("input", "insert a 1..forever; insert b 1..5; stable 3")
        assert final.cut() == (Insert("b", 1, 5),)
        final.restart()
        final.push("input", "stable forever")
        assert final.cut() == (Insert("a", 1, FOREVER),)


def test_a_removal_before_the_start_is_final_is_never_reported(local_engine):
    with local_engine("final", final_at_start=True) as final:
        final.push("input", "insert a 1..9; insert b 2..9; stable 2")
        assert final.cut() == (Insert("a", 1, 9),)
        final.push("input", "adjust b 2..9->2; stable 3")
        assert final.cut() == ()


def test_the_two_kinds_of_state_are_not_mistaken_for_each_other():
    known = ReportFinalOperator(SCHEMA, final_at_start=True)
    with pytest.raises(StateError, match="'anabranch final' version 1, this program reads"):
        known.from_parts(ReportFinalState(SCHEMA).parts().written)
