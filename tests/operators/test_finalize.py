"""Finalize: at every prefix exactly the frozen events of the history, each once."""

from collections import Counter

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given
from unary_driver import step

from anabranch.batch.codec import from_elements, to_elements
from anabranch.batch.schema import ElementSchema, TimeType
from anabranch.errors import StateError
from anabranch.model import Adjust, History, Insert, MergeCase, Stable
from anabranch.model.frozen import Status, status
from anabranch.operators.finalize import FinalizeState
from anabranch.testing.strategies import replicas

SCHEMA = ElementSchema(TimeType.BIGINT, pa.schema([("name", pa.string())]))


def final(state, elements):
    result = step(state, from_elements(elements, SCHEMA))
    assert len(result.output) == 0
    return result.final


def frozen(prefix):
    frontier = max((e.time for e in prefix if isinstance(e, Stable)), default=float("-inf"))
    return Counter(
        event
        for event in History.of(prefix)
        if status(event.start, event.end, frontier=frontier) is Status.FROZEN
    )


@pytest.mark.parametrize("case", list(MergeCase))
@given(data=st.data())
def test_any_cut_any_restart_exactly_what_is_frozen(case, data):
    (stream,) = data.draw(replicas(case=case, max_inputs=1, truncated=True))
    state, at, said = FinalizeState(SCHEMA), 0, Counter()
    parts, mark = {}, None
    while at < len(stream):
        size = len(stream) - at - data.draw(st.integers(0, len(stream) - at - 1))
        output = final(state, stream[at : at + size])
        at += size
        said.update(element.event for element in to_elements(output))
        state.check()
        assert said == frozen(stream[:at])
        saved = state.parts(since=mark)
        parts |= saved.written
        parts = {name: data for name, data in parts.items() if name not in saved.deleted}
        mark = saved.mark
        if data.draw(st.booleans()):
            state = FinalizeState.from_parts(parts, SCHEMA)


def test_a_state_of_another_operator_is_refused():
    from anabranch.operators.cleanse import CleanseState

    with pytest.raises(StateError, match="finalize"):
        FinalizeState.from_parts(CleanseState(SCHEMA).parts().written, SCHEMA)


def test_what_is_only_half_frozen_waits():
    state = FinalizeState(SCHEMA)
    assert len(final(state, [Insert("a", 1, 5), Stable(5)])) == 0
    assert to_elements(final(state, [Stable(6)])) == [Insert("a", 1, 5)]


def test_a_step_looks_only_at_what_it_freezes():
    """Operation counts are free of noise: an event that stays costs a frontier nothing."""
    state = FinalizeState(SCHEMA)
    step(state, from_elements([Insert(f"p{i}", 0, 100 + i) for i in range(1_000)], SCHEMA))
    visits = [
        step(state, from_elements([Stable(time)], SCHEMA)).counts["visits"]
        for time in (50, 99, 101, 103)
    ]
    assert visits == [0, 0, 1, 2]
    # Ends that were moved are found at their new time, and not before.
    step(state, from_elements([Adjust("p500", 0, 600, 110)], SCHEMA))
    output = final(state, [Stable(111)])
    assert ("p500", 110) in {(e.payload, e.end) for e in to_elements(output)}
    assert len(output) == 9
    state.check()
