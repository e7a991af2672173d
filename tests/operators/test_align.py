"""Align: inserts by start, and at every prefix what starts before the frontier."""

from collections import Counter
from itertools import pairwise

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given
from unary_laws import any_cut_any_restart, by_element, whole

from anabranch import testing
from anabranch.batch.codec import from_elements, to_elements
from anabranch.batch.schema import ElementSchema, TimeType
from anabranch.errors import StateError
from anabranch.model import Adjust, Insert, MergeCase, Stable
from anabranch.model.history import replay
from anabranch.operators.align import AlignOperator, AlignState
from anabranch.operators.contract import Arrival, Inputs
from anabranch.operators.reference.cleanse import release_order
from anabranch.operators.report_final import ReportFinalState
from anabranch.testing.strategies import replicas

SCHEMA = ElementSchema(TimeType.BIGINT, pa.schema([("name", pa.string())]))
TIMES = st.integers(0, 20)


def step(state, elements):
    return state.step(Inputs((Arrival("input", from_elements(elements, SCHEMA)),)))


def judge(engine, seen):
    """The output is valid, as far as the input, and has what starts before the frontier."""
    output = replay(engine.output)
    assert output.violations == ()
    assert output.frontier == seen.frontier
    assert Counter(output.history) == Counter(
        event for event in seen.history if event.start < seen.frontier
    )
    starts = [one.start for one in engine.output if isinstance(one, Insert)]
    assert all(one <= other for one, other in pairwise(starts))


@given(data=st.data())
def test_any_cut_any_restart_of_a_stream_that_breaks_promises(data):
    any_cut_any_restart("align", data, judge, lanes=1)


@pytest.mark.parametrize("case", [MergeCase.R0, MergeCase.R3, MergeCase.R4])
@given(data=st.data())
def test_the_order_of_events_does_not_depend_on_steps_or_on_arrival(case, data):
    """Of one stream without adjusts: all engines and cuts release the same sequence."""
    (stream,) = data.draw(replicas(case=case, max_inputs=1))
    stream = [one for one in stream if not isinstance(one, Adjust)]
    shuffled = data.draw(st.permutations([one for one in stream if isinstance(one, Insert)]))
    last = [one for one in stream if isinstance(one, Stable)][-1:]
    found = [
        run(testing.engine(name, "align", lanes=1), some)
        for some in (stream, [*shuffled, *last])
        for name in ("reference", "kernel")
        for run in (whole, by_element)
    ]
    released = [[one for one in some if isinstance(one, Insert)] for some in found]
    assert all(some == released[0] for some in released)
    events = [one.event for one in released[0] if not one.changes_nothing]
    assert events == sorted(events, key=release_order)


def test_a_state_of_another_operator_is_refused():
    with pytest.raises(StateError, match="align"):
        AlignState.from_parts(ReportFinalState(SCHEMA).parts().written, SCHEMA)


def test_a_step_looks_only_at_what_it_releases_or_forgets():
    """Operation counts are free of noise: an event that waits costs a frontier nothing."""
    state = AlignState(SCHEMA)
    step(state, [Insert(f"p{i}", 100 + i, 5000 + i) for i in range(1_000)])
    visits = [step(state, [Stable(time)]).counts["visits"] for time in (50, 100, 101, 103)]
    assert visits == [0, 0, 1, 2]
    found = step(state, [Adjust("p1", 101, 5001, 110), Stable(111)])
    assert to_elements(found.output)[0] == Adjust("p1", 101, 5001, 110)
    assert found.counts["visits"] == 9, "eight that start from 103 to 110, one that is frozen"
    state.check()


def test_a_batch_of_rows_out_of_order_becomes_one_in_order():
    state = AlignState(SCHEMA)
    rows = [Insert(f"p{i}", (i * 7919) % 1000, 2000) for i in range(1000)]
    output = to_elements(step(state, [*rows, Stable(1000)]).output)
    assert [one.start for one in output[:-1]] == list(range(1000))
    assert output[-1] == Stable(1000)


@given(data=st.data())
def test_where_ends_are_known_what_is_released_is_final_in_the_same_order(data):
    """However the stream is cut into steps, and saved between two of them."""
    rows = st.builds(lambda name, at: Insert(name, at, at + 5), st.sampled_from("abc"), TIMES)
    given_ = data.draw(st.lists(st.one_of(rows, st.builds(Stable, TIMES)), max_size=30))
    operator = AlignOperator(SCHEMA, final_at_start=True).reporting_final()
    state, output, final = operator.empty(), [], []
    for element in [*given_, Stable(100)]:
        result = step(state, [element])
        assert result.final is not None
        output += to_elements(result.output)
        final += to_elements(result.final)
        state = operator.from_parts(state.parts().written)
    assert final == [one for one in output if isinstance(one, Insert)]
    assert [one.start for one in final] == sorted(one.start for one in final)
    assert Counter(one.event for one in final) == Counter(replay(output).history)


def test_with_ends_that_may_change_another_operator_reports_what_is_final():
    assert AlignOperator(SCHEMA).reporting_final() is None
    assert AlignOperator(SCHEMA).empty().step(Inputs()).final is None
