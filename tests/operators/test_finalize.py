"""Finalize: at every prefix exactly the frozen events of the history, each once."""

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
from anabranch.operators.contract import Arrival, Inputs
from anabranch.operators.finalize import FinalizeState
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
        with testing.engine(name, "finalize") as finalize:
            for (begin, end), again in zip(pairwise([0, *ends]), restarts, strict=True):
                finalize.push("input", stream[begin:end])
                finalize.restart() if again else finalize.cut()
                judge(finalize, replay(stream[:end]))


@given(data=st.data())
def test_any_cut_any_restart_of_a_stream_that_breaks_promises(data):
    any_cut_any_restart("finalize", data, judge)


def test_a_state_of_another_operator_is_refused():
    from anabranch.operators.cleanse import CleanseState

    with pytest.raises(StateError, match="finalize"):
        FinalizeState.from_parts(CleanseState(SCHEMA).parts().written, SCHEMA)


def test_what_is_only_half_frozen_waits(local_engine):
    with local_engine("finalize") as finalize:
        finalize.push("input", "insert a 1..5; stable 5")
        assert finalize.cut() == ()
        finalize.push("input", "stable 6")
        assert finalize.cut() == (Insert("a", 1, 5),)


def test_a_step_looks_only_at_what_it_freezes():
    """Operation counts are free of noise: an event that stays costs a frontier nothing."""
    state = FinalizeState(SCHEMA)
    step(state, [Insert(f"p{i}", 0, 100 + i) for i in range(1_000)])
    visits = [step(state, [Stable(time)]).counts["visits"] for time in (50, 99, 101, 103)]
    assert visits == [0, 0, 1, 2]
    # Ends that were moved are found at their new time, and not before.
    step(state, [Adjust("p500", 0, 600, 110)])
    output = step(state, [Stable(111)]).final
    assert ("p500", 110) in {(e.payload, e.end) for e in to_elements(output)}
    assert len(output) == 9
    state.check()
