"""Finalize: at every prefix exactly the frozen events of the history, each once."""

from collections import Counter

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given

from anabranch.batch.codec import from_elements, to_elements
from anabranch.batch.schema import ElementSchema, TimeType
from anabranch.errors import StateError
from anabranch.model import History, Insert, MergeCase, Stable
from anabranch.model.frozen import Status, status
from anabranch.operators.finalize import FinalizeState, step
from anabranch.testing.strategies import replicas

SCHEMA = ElementSchema(TimeType.BIGINT, pa.schema([("name", pa.string())]))


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
        output = step(state, from_elements(stream[at : at + size], SCHEMA))
        at += size
        said.update(element.event for element in to_elements(output))
        state.check()
        assert said == frozen(stream[:at])
        saved = state.parts(since=mark)
        parts |= saved.written
        parts = {name: data for name, data in parts.items() if name not in saved.deleted}
        mark = saved.mark
        how = data.draw(st.sampled_from(["goes on", "bytes", "parts"]))
        if how == "bytes":
            state, mark = FinalizeState.from_bytes(state.to_bytes(), SCHEMA), None
            parts = {}
        elif how == "parts":
            state = FinalizeState.from_parts(parts, SCHEMA)


def test_a_state_of_another_operator_is_refused():
    from anabranch.operators.cleanse_kernel import CleanseState

    with pytest.raises(StateError, match="finalize"):
        FinalizeState.from_bytes(CleanseState(SCHEMA).to_bytes(), SCHEMA)


def test_what_is_only_half_frozen_waits():
    state = FinalizeState(SCHEMA)
    assert len(step(state, from_elements([Insert("a", 1, 5), Stable(5)], SCHEMA))) == 0
    output = step(state, from_elements([Stable(6)], SCHEMA))
    assert to_elements(output) == [Insert("a", 1, 5)]
