"""Random payload tables in random physical forms, and which rows Spark's groupBy joins.

A `Drawn` has the rows as plain Python values, from which the model `key` decides which rows are
equal without asking Arrow; and a table with the same values in some physical form.
"""

import math
import struct
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.types as pt
from hypothesis import strategies as st

ODD_NAN = struct.unpack("<d", struct.pack("<Q", 0xFFF8000000000123))[0]
FLOATS = [0.0, -0.0, math.nan, ODD_NAN, math.inf, -math.inf, 1.5]

LEAVES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.null(): st.none(),
    pa.bool_(): st.booleans(),
    pa.int8(): st.integers(-128, 127),
    pa.uint16(): st.integers(0, 65535),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.uint64(): st.integers(0, 2**64 - 1),
    pa.float16(): st.sampled_from(FLOATS) | st.floats(width=16),
    pa.float32(): st.sampled_from(FLOATS) | st.floats(width=32),
    pa.float64(): st.sampled_from(FLOATS) | st.floats(),
    pa.string(): st.text(max_size=40),
    pa.large_string(): st.text(max_size=9),
    pa.binary(): st.binary(max_size=40),
    pa.large_binary(): st.binary(max_size=9),
    pa.binary(3): st.binary(min_size=3, max_size=3),
    pa.binary(19): st.binary(min_size=19, max_size=19),
    pa.decimal128(10, 2): st.integers(-(10**10) + 1, 10**10 - 1).map(
        lambda n: Decimal(n) / 100
    ),
    pa.decimal256(40, 0): st.integers(-(10**20), 10**20).map(Decimal),
    pa.date32(): st.integers(-100_000, 100_000),
    pa.date64(): st.integers(-1000, 1000).map(lambda day: day * 86_400_000),
    pa.time32("ms"): st.integers(0, 86_399_999),
    pa.time64("ns"): st.integers(0, 10**13),
    pa.timestamp("us", "Europe/Paris"): st.integers(-(2**50), 2**50),
    pa.timestamp("ns"): st.integers(-(2**60), 2**60),
    pa.duration("ns"): st.integers(-(2**60), 2**60),
    pa.month_day_nano_interval(): st.tuples(*[st.integers(-9, 9)] * 3).map(pa.MonthDayNano),
}


def types() -> st.SearchStrategy[pa.DataType]:
    """Plain types, nested in each other."""

    def nest(inner: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
        fields = st.lists(inner, max_size=3)
        return st.one_of(
            fields.map(lambda kinds: pa.struct([(f"f{i}", k) for i, k in enumerate(kinds)])),
            inner.map(pa.list_),
            inner.map(pa.large_list),
            st.tuples(inner, st.integers(0, 3)).map(lambda pair: pa.list_(*pair)),
        )

    return st.recursive(st.sampled_from(list(LEAVES)), nest, max_leaves=4)


def values(kind: pa.DataType) -> st.SearchStrategy[Any]:
    """Values of a type, in the form that `pa.array` takes; None among them."""
    if pt.is_struct(kind):
        inner = st.fixed_dictionaries({field.name: values(field.type) for field in kind})
    elif pt.is_fixed_size_list(kind):
        size = kind.list_size
        inner = st.lists(values(kind.value_type), min_size=size, max_size=size)
    elif pt.is_list(kind) or pt.is_large_list(kind):
        inner = st.lists(values(kind.value_type), max_size=3)
    else:
        inner = LEAVES[kind]
    return st.none() | inner


def key(value: Any) -> Any:
    """Equal exactly for values that Spark's groupBy puts into one group."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value
    if isinstance(value, dict):
        return ("struct", *(key(item) for item in value.values()))
    if isinstance(value, list):
        return ("list", *(key(item) for item in value))
    return value


@dataclass(frozen=True)
class Drawn:
    """Rows as Python values, column by column, and as a table."""

    columns: list[list[Any]]
    table: pa.Table

    def keys(self) -> list[Any]:
        """One per row: equal exactly for equal rows."""
        count = self.table.num_rows
        return [tuple(key(column[row]) for column in self.columns) for row in range(count)]


@st.composite
def drawn_tables(draw: st.DrawFn, *, max_rows: int = 12, min_columns: int = 1) -> Drawn:
    """A few rows of a random schema, many of them equal, in any physical form."""
    kinds = draw(st.lists(types(), min_size=min_columns, max_size=3))
    pools = [draw(st.lists(values(kind), min_size=1, max_size=3)) for kind in kinds]
    count = draw(st.integers(0, max_rows))
    columns = [
        draw(st.lists(st.sampled_from(pool), min_size=count, max_size=count)) for pool in pools
    ]
    arrays = [draw(forms(pa.array(v, k))) for v, k in zip(columns, kinds, strict=True)]
    names = [f"c{i}" for i in range(len(kinds))]
    return Drawn(columns, pa.table(dict(zip(names, arrays, strict=True))))


@st.composite
def forms(draw: st.DrawFn, array: pa.Array) -> pa.ChunkedArray:
    """The same values: sliced out of more, in chunks, encoded, with garbage under nulls."""
    array = pa.concat_arrays([array[:1], array, array[:1]])[min(1, len(array)) :][: len(array)]
    if draw(st.booleans()) and not pt.is_null(array.type):
        array = _with_garbage(array)
    if draw(st.booleans()):
        array = _encoded(array, draw(st.integers(0, 2)))
    cuts = sorted(draw(st.lists(st.integers(0, len(array)), max_size=2)))
    bounds = zip([0, *cuts], [*cuts, len(array)], strict=True)
    return pa.chunked_array([array[begin:end] for begin, end in bounds], array.type)


def _with_garbage(array: pa.Array) -> pa.Array:
    """Other values in the buffers under nulls: every value valid first, then the nulls."""
    known = array.drop_null()
    if not array.null_count or not len(known):
        return array
    filled = pa.concat_arrays(
        [
            array[i : i + 1] if array[i].is_valid else known[i % len(known) :][:1]
            for i in range(len(array))
        ]
    )
    bits = pa.array([value.is_valid for value in array]).buffers()[1]
    children = [filled.values] if hasattr(filled, "values") else None
    if pt.is_struct(array.type):
        children = [filled.field(i) for i in range(array.type.num_fields)]
    count = 1 if pt.is_struct(array.type) or pt.is_fixed_size_list(array.type) else 3
    buffers = [bits, *filled.buffers()[1 : 2 if children else count]]
    return pa.Array.from_buffers(array.type, len(array), buffers[:count], children=children)


def _encoded(array: pa.Array, how: int) -> pa.Array:
    """As a dictionary, as run-ends, or as a view, where Arrow can."""
    kind = array.type
    try:
        if how == 0:
            return array.dictionary_encode()
        if how == 1:
            return pa.compute.run_end_encode(array)
        if pt.is_list(kind):
            return array.cast(pa.list_view(kind.value_field))
        return array.cast(pa.string_view() if pt.is_string(kind) else pa.binary_view())
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid, TypeError):
        return array
