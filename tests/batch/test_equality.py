import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from payload_tables import ODD_NAN, Drawn, drawn_tables

from anabranch.batch.equality import equal_rows
from anabranch.batch.hashing import hash_payload


@given(drawn_tables(), st.integers(0, 20))
def test_rows_are_equal_exactly_when_spark_groups_them(drawn: Drawn, cut: int) -> None:
    """Every row against every row; the right side is cut elsewhere."""
    keys, table = drawn.keys(), drawn.table
    cut = min(cut, len(keys))
    left, right = (grid.ravel() for grid in np.indices((len(keys), len(keys))))
    other = pa.concat_tables([table.slice(0, cut), table.slice(cut)])
    same = equal_rows(table, left, other, right)
    assert same.tolist() == [keys[i] == keys[j] for i, j in zip(left, right, strict=True)]


def test_special_values() -> None:
    floats = pa.table({"a": [math.nan, ODD_NAN, 0.0, -0.0, None, math.inf]})
    group = [0, 0, 1, 1, 2, 3]
    left, right = (grid.ravel() for grid in np.indices((6, 6)))
    expected = [group[i] == group[j] for i, j in zip(left, right, strict=True)]
    assert equal_rows(floats, left, floats, right).tolist() == expected
    halves = pa.table({"a": floats["a"].cast(pa.float16())})
    assert equal_rows(halves, left, halves, right).tolist() == expected


def test_a_null_struct_is_not_a_struct_of_nulls() -> None:
    kind = pa.struct({"x": pa.int8(), "y": pa.struct({"z": pa.int8()})})
    rows = [None, {"x": None, "y": None}, {"x": None, "y": {"z": None}}]
    table = pa.table({"a": pa.array(rows, kind)})
    assert equal_rows(
        table, np.array([0, 1, 0, 2]), table, np.array([1, 2, 2, 2])
    ).tolist() == [
        False,
        False,
        False,
        True,
    ]


def test_what_lies_under_a_null_does_not_count() -> None:
    inner = pa.StructArray.from_arrays([pa.array([1, 2, 1]), pa.array(["x", "y", "x"])], "ab")
    outer = pa.StructArray.from_arrays([inner], "a", mask=pa.array([True, True, False]))
    lists = pa.array([[1], [2], [1]])
    hidden = pa.Array.from_buffers(
        lists.type, 3, [pa.py_buffer(b"\4"), lists.buffers()[1]], children=[lists.values]
    )
    for array in (outer, hidden):
        table = pa.table({"a": array})
        assert equal_rows(table, np.array([0, 0]), table, np.array([1, 2])).tolist() == [
            True,
            False,
        ]
        low, _ = hash_payload(table)
        assert low[0] == low[1] != low[2]


def test_every_byte_counts() -> None:
    text = bytes(range(40))
    changed = [text[:i] + b"\xff" + text[i + 1 :] for i in range(40)]
    left, right = pa.table({"a": [text] * 41}), pa.table({"a": [*changed, text]})
    rows = np.arange(41)
    assert equal_rows(left, rows, right, rows).tolist() == [False] * 40 + [True]


def test_lists_of_other_sizes_differ() -> None:
    table = pa.table({"a": [[1], [1, 2], [], None, [1]]})
    left, right = np.array([0, 0, 0, 2, 0]), np.array([1, 2, 3, 3, 4])
    assert equal_rows(table, left, table, right).tolist() == [False] * 4 + [True]
    mixed = pa.table({"a": [["x"], ["y"], None], "b": ["same", "other", "other"]})
    rows = np.array([0, 1, 2])
    swapped = pa.table({"a": mixed["a"], "b": ["other", "same", "other"]})
    assert equal_rows(mixed, rows, swapped, rows).tolist() == [False, False, True]


def test_what_cannot_be_compared_is_refused() -> None:
    one, two = pa.table({"a": [1]}), pa.table({"a": [1], "b": [2]})
    row = np.zeros(1, np.int64)
    with pytest.raises(ValueError, match="1 of 1 columns with 1 of 2 columns"):
        equal_rows(one, row, two, row)
    with pytest.raises(ValueError, match="1 of 1 columns with 0 of 1"):
        equal_rows(one, row, one, row[:0])
    with pytest.raises(ValueError, match="different types"):
        equal_rows(one, row, pa.table({"a": ["1"]}), row)


def test_any_integers_may_name_rows() -> None:
    table = pa.table({"a": [1, 2]})
    rows = np.array([1, 9, 0], np.int32)[::2]
    assert equal_rows(table, rows, table, np.array([1, 1])).tolist() == [True, False]
