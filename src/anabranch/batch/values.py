"""Payload columns as hashable Python values, and back: for tests and small tables.

A payload is the value itself where there is one payload column, and a tuple otherwise.  A
struct is a tuple of its fields, a list a tuple of its items.  Values follow the equality of
payloads: every NaN is the one object `math.nan`, -0.0 is 0.0 (as Python has it anyway).
Instants and durations finer than Python's are whole numbers of their unit.

>>> table = pa.table({"a": [1], "b": [[1.5, None]]})
>>> to_payloads(table, 1)
[(1, (1.5, None))]
"""

import math
from collections.abc import Hashable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from anabranch.batch.batch import Mask
from anabranch.batch.columns import read, write


def to_payloads(table: pa.Table, count: int) -> list[Hashable]:
    """One value per row."""
    columns = [to_values(column) for column in table.columns]
    if not columns:
        return [()] * count
    if len(columns) == 1:
        return columns[0]
    return list(zip(*columns, strict=True))


def from_payloads(payloads: Sequence[Hashable], absent: Mask, schema: pa.Schema) -> pa.Table:
    """The columns of these payloads; null in all of them where `absent`."""
    width = len(schema)
    rows: list[Any] = [(payload,) for payload in payloads] if width == 1 else list(payloads)
    nothing = (None,) * width
    filled = [nothing if gone else row for row, gone in zip(rows, absent.tolist(), strict=True)]
    if any(len(row) != width for row in filled):
        message = f"a payload must have the {width} columns {schema.names}: {payloads!r}"
        raise ValueError(message)
    columns = [
        pa.array([_to_arrow(row[i], field.type) for row in filled], field.type)
        for i, field in enumerate(schema)
    ]
    if not columns:
        return pa.table({})
    return pa.Table.from_arrays(columns, schema=schema)


def to_values(column: pa.ChunkedArray) -> list[Hashable]:
    """One value per row of a column of a plain type."""
    if pt.is_string(column.type) or pt.is_integer(column.type):  # as Python has them
        plain: list[Hashable] = column.to_pylist()
        return plain
    kind = _coarse(column.type)
    rows = (
        row for chunk in column.chunks for row in write(kind, list(read(chunk))).to_pylist()
    )
    return [_to_python(value, kind) for value in rows]


def _coarse(kind: pa.DataType) -> pa.DataType:
    """The type in which values are read: the same bytes, but nanoseconds as whole numbers."""
    if getattr(kind, "unit", None) == "ns":
        return pa.int64()
    if pt.is_struct(kind):
        return pa.struct([field.with_type(_coarse(field.type)) for field in kind])
    if pt.is_fixed_size_list(kind):
        return pa.list_(_coarse(kind.value_type), kind.list_size)
    if pt.is_list(kind):
        return pa.list_(_coarse(kind.value_type))
    if pt.is_large_list(kind):
        return pa.large_list(_coarse(kind.value_type))
    return kind


def _to_python(value: Any, kind: pa.DataType) -> Hashable:
    if isinstance(value, float):
        return math.nan if math.isnan(value) else value
    if isinstance(value, dict):
        return tuple(
            _to_python(item, field.type)
            for item, field in zip(value.values(), kind, strict=True)
        )
    if isinstance(value, list):
        return tuple(_to_python(item, kind.value_type) for item in value)
    hashable: Hashable = value
    return hashable


def _to_arrow(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if pt.is_struct(kind):
        return {
            field.name: _to_arrow(item, field.type)
            for item, field in zip(value, kind, strict=True)
        }
    if pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind):
        return [_to_arrow(item, kind.value_type) for item in value]
    return value
