import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from payload_tables import Drawn, drawn_tables

from anabranch.batch.buffers import empty_array, numbers, one_array, valid
from anabranch.batch.columns import conform
from anabranch.batch.schema import plain_type
from anabranch.batch.values import from_payloads, to_payloads


@given(drawn_tables())
def test_payloads_are_equal_exactly_when_rows_are(drawn: Drawn) -> None:
    """As keys of a dict, which is how the model uses them; and back to the same columns."""
    schema = pa.schema([pa.field(f.name, plain_type(f.type)) for f in drawn.table.schema])
    table = conform(drawn.table, schema)
    payloads, keys = to_payloads(table, table.num_rows), drawn.keys()
    assert len(set(payloads)) == len(set(keys)) == len(set(zip(payloads, keys, strict=True)))
    again = from_payloads(payloads, np.zeros(len(payloads), np.bool_), schema)
    assert to_payloads(again, len(payloads)) == payloads


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"a": ["x", None]}, ["x", None]),
        ({"a": [1, 2], "b": [math.nan, -0.0]}, [(1, math.nan), (2, 0.0)]),
        ({"a": [{"x": 1, "y": [None]}, None]}, [(1, (None,)), None]),
        ({"a": pa.array([1001, None], pa.timestamp("ns"))}, [1001, None]),
        ({}, [(), ()]),
    ],
)
def test_one_column_is_the_value_several_are_a_tuple(
    columns: dict[str, Any], expected: list[Any]
) -> None:
    assert to_payloads(pa.table(columns), 2) == expected


def test_an_absent_payload_is_null_in_every_column() -> None:
    schema = pa.schema({"a": pa.int8(), "b": pa.string()})
    table = from_payloads([None, (1, "x")], np.array([True, False]), schema)
    assert table.to_pylist() == [{"a": None, "b": None}, {"a": 1, "b": "x"}]


def test_a_payload_of_another_width_is_refused() -> None:
    schema = pa.schema({"a": pa.int8(), "b": pa.string()})
    with pytest.raises(ValueError, match=r"the 2 columns \['a', 'b'\]"):
        from_payloads([(1, "x", 2)], np.array([False]), schema)


def test_columns_in_pieces_are_read_whole() -> None:
    column = pa.chunked_array([pa.array([1, None, 3])[1:], pa.array([], pa.int64()), [4]])
    assert numbers(column, np.dtype(np.int64))[1:].tolist() == [3, 4]
    assert valid(column).tolist() == [False, True, True]
    assert valid(pa.nulls(2)).tolist() == [False, False]
    nothing = pa.chunked_array([], pa.int64())
    assert numbers(nothing, np.dtype(np.int64)).tolist() == []
    assert one_array(nothing) == empty_array(pa.int64())
    assert one_array(column).to_pylist() == [None, 3, 4]
    assert one_array(one_array(column)).to_pylist() == [None, 3, 4]
    assert one_array(pa.chunked_array([[1]])).to_pylist() == [1]
