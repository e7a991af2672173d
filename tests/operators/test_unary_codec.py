"""States of operators of one input: what is of another kind is refused by name."""

from dataclasses import replace

import pyarrow as pa
import pytest
from unary_driver import SCHEMA, batch_of

from anabranch.batch.schema import ElementSchema, TimeType
from anabranch.errors import StateError
from anabranch.model.notation import parse
from anabranch.operators.normalise_kernel import NormaliseState, step
from anabranch.operators.state_codec import write_tables
from anabranch.operators.unary_codec import StateFormat


def written() -> bytes:
    state = NormaliseState(SCHEMA)
    step(state, batch_of(parse("insert a 1..5; insert b 2..9; insert a 5..7; stable 3")))
    return state.to_bytes()


def test_a_state_comes_back_as_it_was():
    state = NormaliseState.from_bytes(written(), SCHEMA)
    assert state.frontier == 3
    again = NormaliseState.from_bytes(state.to_bytes(), SCHEMA)
    # Whoever saves in parts must write all of them after this.
    assert again.mark > state.mark
    again.mark = state.mark = 0
    assert again.to_bytes() == state.to_bytes()


@pytest.mark.parametrize(
    "other",
    [
        StateFormat.of("cleanse", NormaliseState.FORMAT.columns),
        replace(NormaliseState.FORMAT, kind=replace(NormaliseState.FORMAT.kind, reads=(1, 7))),
    ],
    ids=["operator", "version"],
)
def test_another_kind_of_state_is_refused(other):
    state = NormaliseState(SCHEMA)
    with pytest.raises(StateError, match="the state is 'anabranch normalise' version 2, this"):
        other.read(written(), SCHEMA, state.live)


def test_another_payload_is_refused():
    other = ElementSchema(TimeType.BIGINT, pa.schema({"q": pa.int64()}))
    with pytest.raises(StateError, match=r"payload \(p string\), the input has .* \(q int64\)"):
        NormaliseState.from_bytes(written(), other)


def test_other_times_are_refused():
    other = ElementSchema(TimeType.TIMESTAMP, SCHEMA.payload)
    with pytest.raises(StateError, match="the state has bigint times"):
        NormaliseState.from_bytes(written(), other)


@pytest.mark.parametrize("data", [b"", b"not a state"])
def test_damaged_bytes_are_refused(data):
    with pytest.raises(StateError, match="normalise: the bytes are not a state"):
        NormaliseState.from_bytes(data, SCHEMA)


def test_a_table_that_is_no_state_is_refused():
    data = write_tables(pa.table({"x": [1]}))
    with pytest.raises(StateError, match="the state is 'unknown' version unknown"):
        NormaliseState.from_bytes(data, SCHEMA)
