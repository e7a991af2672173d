"""Normalise over batches: raced against the reference, and judged by the normal form."""

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from unary_driver import SCHEMA, batch_of, broken_streams, cuts, step, streams, violations

from anabranch.batch.codec import from_elements, to_elements
from anabranch.batch.schema import ElementSchema, TimeType
from anabranch.model.element import Insert, Stable
from anabranch.model.history import History, Violation, replay
from anabranch.model.normal_form import normal_form
from anabranch.model.notation import parse
from anabranch.model.time import FOREVER
from anabranch.operators.normalise import NormaliseState
from anabranch.operators.reference.normalise import Normalise


@given(broken_streams())
def test_kernel_says_what_the_reference_says_after_every_element(stream):
    state, reference = NormaliseState(SCHEMA), Normalise()
    for position, element in enumerate(stream):
        result = step(state, batch_of([element]))
        state.check()
        assert to_elements(result.output) == list(reference.push(element))
        reference.check()
        now = [v for v in reference.violations if v.position == position]
        assert [v.reason for v in violations(result, [element])] == [v.reason for v in now]


@given(st.data())
def test_any_cut_any_restart_is_valid_and_the_normal_form_at_its_ends(data):
    stream = data.draw(broken_streams())
    state, output, found = NormaliseState(SCHEMA), [], []
    for begin, end in pairwise([0, *data.draw(cuts(len(stream)))]):
        result = step(state, batch_of(stream[begin:end]))
        state.check()
        output += to_elements(result.output)
        found += [
            Violation(begin + one.position, one.element, one.reason)
            for one in violations(result, stream[begin:end])
        ]
        seen, said = replay(stream[:end]), replay(output)
        assert said.violations == ()
        assert said.history == normal_form(seen.history)
        assert said.frontier == seen.frontier
        assert tuple(found) == seen.violations
        if data.draw(st.booleans()):
            state = NormaliseState.from_parts(state.parts().written, SCHEMA)
            state.check()


@given(streams())
def test_one_batch_says_each_event_once(stream):
    result = step(NormaliseState(SCHEMA), batch_of(stream))
    output = to_elements(result.output)
    history = normal_form(History.of(stream))
    inserts = [e for e in output if isinstance(e, Insert)]
    assert History.from_events(e.event for e in inserts) == history
    assert [e.start for e in inserts] == sorted(e.start for e in inserts)
    assert output[len(inserts) :] == [Stable(FOREVER)]


def test_state_forgets_what_is_frozen():
    """A thousand steps of touching fragments of many payloads: what is held stays small."""
    state = NormaliseState(SCHEMA)
    for time in range(0, 40_000, 40):
        some = [Insert(f"p{(time + i) % 997}", time + i, time + i + 90) for i in range(40)]
        step(state, batch_of([*some, Stable(time)]))
    state.check()
    assert state.live < 400
    assert state.groups.stored < 4_000
    step(state, batch_of([Stable(FOREVER)]))
    assert state.live == len(state.groups.table) == 0


def test_a_run_of_five_hundred_fragments_is_one_event_and_hardly_any_state():
    state = NormaliseState(SCHEMA)
    output = []
    for time in range(500):
        fragment = [Insert("a", time, time + 1), Stable(time)]
        output += to_elements(step(state, batch_of(fragment)).output)
        state.check()
    # The one that ends at the frontier may still be lengthened, the next one is free; of the
    # others no more are held than these.
    assert state.live <= 4
    assert History.of(output).events() == [Insert("a", 0, 500).event]


def test_payloads_are_compared_by_value_whatever_their_type():
    kind = pa.schema({"x": pa.float64(), "tags": pa.list_(pa.string())})
    schema = ElementSchema(TimeType.BIGINT, kind)
    stream = [
        Insert((0.0, ("a",)), 1, 3),
        Insert((-0.0, ("a",)), 3, 5),
        Insert((float("nan"), None), 1, 3),
        Insert((float("nan"), None), 3, 9),
        Insert((None, ("a",)), 3, 5),
    ]
    output = to_elements(step(NormaliseState(schema), from_elements(stream, schema)).output)
    assert len(output) == 3
    assert sorted((e.start, e.end) for e in output) == [(1, 5), (1, 9), (3, 5)]


def test_without_payload_columns_all_events_are_of_one_payload():
    schema = ElementSchema(TimeType.BIGINT, pa.schema({}))
    stream = [Insert((), 1, 3), Insert((), 3, 5), Stable(4)]
    output = to_elements(step(NormaliseState(schema), from_elements(stream, schema)).output)
    assert output == [Insert((), 1, 5), Stable(4)]


@pytest.mark.parametrize("base", [0, -(2**62), 1_700_000_000_000_000])
@pytest.mark.parametrize("width", [10, 2**61])
def test_times_may_be_anywhere(base, width):
    fragments = [
        Insert("a", base + width, base + 2 * width),
        Insert("a", base, base + width),
        Insert("b", base, FOREVER),
    ]
    state = NormaliseState(SCHEMA)
    output = to_elements(step(state, batch_of(fragments)).output)
    assert output == [Insert("a", base, base + 2 * width), Insert("b", base, FOREVER)]


def test_an_empty_batch_changes_nothing():
    state = NormaliseState(SCHEMA)
    result = step(state, batch_of([]))
    assert len(result.output) == len(result.reasons[0]) == 0
    assert repr(state).startswith("NormaliseState(")


def test_positions_are_those_of_the_batch():
    state = NormaliseState(SCHEMA)
    step(state, batch_of(parse("insert a 1..5; insert b 1..5; stable 2")))
    wrong = parse("insert c 3..4; insert a 1..9; stable 3; adjust b 1..6->7; adjust a 1..5->4")
    result = step(state, batch_of(wrong))
    found = [(one.position, one.reason.name) for one in violations(result, wrong)]
    assert found == [(1, "BEHIND_STABLE"), (3, "NO_SUCH_EVENT")]
    assert np.array_equal(result.output.kind, [1, 0, 2])
