"""The order of rows: as Spark orders them by some columns, up or down.

Nulls come first, NaN after every number, -0.0 and 0.0 are equal, text and binaries are ordered
by their bytes, structs and arrays by their items.  A column that goes down turns all of this
round.

>>> rows = pa.table({"x": [2.0, None, float("nan"), -1.0]})
>>> row_order(rows, 4).tolist()
[1, 3, 0, 2]
>>> ranks(rows, 4, [("x", False)]).tolist()
[1, 3, 0, 2]
"""

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from anabranch.batch.batch import NEVER_UNITS, Ints
from anabranch.batch.buffers import valid
from anabranch.batch.values import to_values
from anabranch.errors import SchemaError

By: TypeAlias = Sequence[tuple[str, bool]]
"""Columns, and whether they ascend."""


def check_order(payload: pa.Schema, by: By, *, where: str) -> None:
    """SchemaError if rows with these columns cannot be ranked so."""
    for name, _ in by:
        if name not in payload.names:
            message = f"{where}: there is no column '{name}'; there are {payload.names}"
            raise SchemaError(message)
        kind = payload.field(name).type
        if pt.is_nested(kind) or pt.is_interval(kind):
            message = (
                f"{where}: rows cannot be ranked by column '{name}', which is {kind}; rank by "
                "a number, a time or a text, such as a part of it in a column of its own"
            )
            raise SchemaError(message)


def ranks(rows: pa.Table, count: int, by: By) -> Ints:
    """The place of each of `count` rows: by these columns, then by all columns, ascending.

    Different rows never tie, so the order of a bag of rows depends on the bag alone; equal
    rows have different places, as they come.
    """
    places = {name: _places(rows.column(name)) for name in rows.column_names}
    # The complement turns an order round, and cannot overflow.
    asked = [places[name] if ascends else ~places[name] for name, ascends in by]
    found = np.zeros(count, np.int64)
    found[_sorted([*asked, *places.values()], count)] = np.arange(count)
    return found


def row_order(table: pa.Table, count: int) -> Ints:
    """The positions of the rows in their order; rows that are equal stay as they were."""
    return _sorted([_places(column) for column in table.columns], count)


def sort_key(value: Any) -> tuple[Any, ...]:
    """What orders single values, as `anabranch.batch.values` has them, in the same way.

    >>> sorted([(1, None), (1, 0), None], key=sort_key)
    [None, (1, None), (1, 0)]
    """
    if value is None:
        return (0,)
    if isinstance(value, tuple):
        return (1, tuple(map(sort_key, value)))
    is_nan = isinstance(value, float) and math.isnan(value)
    return (2,) if is_nan else (1, value)


def _sorted(places: Sequence[Ints], count: int) -> Ints:
    """The positions in the order of these numbers, the first of them first."""
    if not places:
        return np.arange(count)
    order: Ints = np.lexsort(places[::-1]).astype(np.int64)
    return order


def _places(column: pa.ChunkedArray) -> Ints:
    """A number for each row, in the order of the values."""
    kind = column.type
    if pt.is_null(kind):
        return np.zeros(len(column), np.int64)
    if pt.is_floating(kind):
        return _of_floats(column)
    if pt.is_nested(kind):
        return _of_values(column)
    if pt.is_boolean(kind):
        column = column.cast(pa.int8())
    places = pc.rank(column, sort_keys="ascending", tiebreaker="dense").to_numpy()
    return np.where(valid(column), places.astype(np.int64), NEVER_UNITS)


def _of_floats(column: pa.ChunkedArray) -> Ints:
    numbers = column.cast(pa.float64()).to_numpy() + 0.0
    bits = numbers.view(np.int64)
    bits = np.where(bits < 0, bits ^ np.iinfo(np.int64).max, bits)
    bits = np.where(np.isnan(numbers), np.iinfo(np.int64).max, bits)
    return np.where(valid(column), bits, NEVER_UNITS)


def _of_values(column: pa.ChunkedArray) -> Ints:
    """One Python step per value: for nested columns alone."""
    keys = [sort_key(value) for value in to_values(column)]
    rank = {key: number for number, key in enumerate(sorted(set(keys)))}
    return np.array([rank[key] for key in keys], np.int64)
