"""Payload columns as plain buffers: the form in which they are hashed, compared and stored.

Any Arrow type but maps and unions becomes a sequence of `Column`s of three layouts:

* FIXED: `width` bytes per row (numbers, decimals, dates, times, booleans as bytes);
* VARIED: bytes between two offsets (text, binary);
* LISTED: rows of the `items` columns between two offsets (lists of every kind).

A struct is a FIXED column of width 0 that only marks where it is null, followed by its fields,
which are null where it is.  The null type is such a column, null everywhere.  Text and binary,
large or not, dictionaries, views and run-ends come out alike, so that equal values are equal
bytes; only floats need care (`is_float`: every NaN is one value, and -0.0 is 0.0).

Buffers of Arrow are viewed, not copied, where that is possible; slices are honoured.
"""

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
from numpy.typing import NDArray

from anabranch.batch.batch import Ints, Mask
from anabranch.batch.buffers import chunk_numbers, chunk_valid, pack_bits, to_arrow, unpack_bits
from anabranch.batch.kernel import frozen
from anabranch.batch.schema import plain_type
from anabranch.errors import SchemaError

FIXED: Final = 0
VARIED: Final = 1
LISTED: Final = 2

Bytes = NDArray[np.uint8]

_INT32: Final = np.dtype(np.int32)
_INT64: Final = np.dtype(np.int64)
_NO_BYTES: Final[Bytes] = frozen(np.zeros(0, np.uint8))
_NO_OFFSETS: Final[Ints] = frozen(np.zeros(1, np.int64))
_ALL_VALID: Final[Mask] = frozen(np.ones(0, np.bool_))
_GREATEST_INT32: Final = np.iinfo(np.int32).max


@dataclass(frozen=True)
class Layout:
    """How the rows of a column lie in its buffers."""

    kind: int
    width: int = 0
    is_float: bool = False
    items: tuple["Layout", ...] = ()


@dataclass(frozen=True, eq=False)
class Column:
    """`count` rows as read-only buffers; `valid` has length 0 where nothing is null."""

    layout: Layout
    count: int
    valid: Mask = field(default_factory=lambda: _ALL_VALID)
    data: Bytes = field(default_factory=lambda: _NO_BYTES)
    offsets: Ints = field(default_factory=lambda: _NO_OFFSETS)
    items: tuple["Column", ...] = ()


def layouts(kind: pa.DataType) -> tuple[Layout, ...]:
    """The layouts of the columns of a plain type, in the order of `read`."""
    if pt.is_null(kind):
        return (Layout(FIXED),)
    if pt.is_struct(kind):
        fields = (layout for child in kind for layout in layouts(child.type))
        return (Layout(FIXED), *fields)
    if _is_varied(kind):
        return (Layout(VARIED),)
    if _is_listed(kind):
        return (Layout(LISTED, items=layouts(kind.value_type)),)
    if pt.is_boolean(kind):
        return (Layout(FIXED, 1),)
    if kind.num_fields or pt.is_union(kind):
        message = f"a payload of type {kind} cannot be compared by value; drop or change it"
        raise SchemaError(message)
    return (Layout(FIXED, kind.bit_width // 8, bool(pt.is_floating(kind))),)


def read(array: pa.Array) -> tuple[Column, ...]:
    """The columns of an array of any type; views where possible."""
    return _read(array, None)


def write(kind: pa.DataType, columns: "list[Column]") -> pa.Array:
    """The array of a plain type that `read` would read as these columns, which are used up.

    Text, binary and lists with 32-bit offsets must fit; see `fits`.
    """
    column = columns.pop(0)
    valid = None if len(column.valid) == 0 or column.valid.all() else pack_bits(column.valid)
    count = column.count
    if pt.is_null(kind):
        return pa.nulls(count)
    if pt.is_struct(kind):
        children = [write(child.type, columns) for child in kind]
        return pa.Array.from_buffers(kind, count, [valid], children=children)
    if pt.is_fixed_size_list(kind):
        return _write_fixed_lists(kind, column, valid)
    if column.layout.kind == FIXED:
        data = pack_bits(column.data.view(np.bool_)) if pt.is_boolean(kind) else column.data
        return pa.Array.from_buffers(kind, count, [valid, pa.py_buffer(data)])
    offsets = column.offsets - column.offsets[0]
    begin, end = int(column.offsets[0]), int(column.offsets[-1])
    narrow = offsets if _is_large(kind) else offsets.astype(np.int32)
    if column.layout.kind == VARIED:
        data = pa.py_buffer(column.data[begin:end])
        return pa.Array.from_buffers(kind, count, [valid, pa.py_buffer(narrow), data])
    items = write(kind.value_type, [cut(item, begin, end) for item in column.items])
    buffers = [valid, pa.py_buffer(narrow)]
    return pa.Array.from_buffers(kind, count, buffers, children=[items])


def cut(column: Column, begin: int, end: int) -> Column:
    """The rows from `begin` to `end`, as views."""
    width = column.layout.width
    varies = column.layout.kind != FIXED
    return Column(
        column.layout,
        end - begin,
        column.valid[begin:end],
        column.data if varies else column.data[begin * width : end * width],
        column.offsets[begin : end + 1] if varies else column.offsets,
        column.items,
    )


def fits(column: Column) -> bool:
    """Whether 32-bit offsets are enough for these rows."""
    if column.layout.kind == FIXED:
        return True
    begin, end = int(column.offsets[0]), int(column.offsets[-1])
    return end - begin <= _GREATEST_INT32 and all(
        fits(cut(item, begin, end)) for item in column.items
    )


def conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The columns of the schema, which are all there, in its plain types."""
    if not len(schema):
        return table.select([])
    columns = [conform_column(table.column(each.name), each.type) for each in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def conform_column(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """The same values in another type that holds them; Arrow's error if one does not fit."""
    if column.type == kind:
        return column
    # Not by a cast alone: Arrow has none for run-ends, one that fails for views of lists, and
    # one that reads beside the items of lists that were sliced.
    plain = plain_type(column.type)
    chunks = [write(plain, list(read(chunk))) for chunk in column.chunks]
    laid = pa.chunked_array(chunks, plain)
    return laid if plain == kind else laid.cast(kind)


def _read(array: pa.Array, within: Mask | None) -> tuple[Column, ...]:
    """`within`: where the structs around are not null."""
    array = _decoded(array)
    kind, count = array.type, len(array)
    valid = _both(chunk_valid(array), within)
    mask = _ALL_VALID if valid is None else frozen(valid)
    if pt.is_null(kind):
        return (Column(Layout(FIXED), count, frozen(np.zeros(count, np.bool_))),)
    if pt.is_struct(kind):
        parts = [_read(array.field(i), valid) for i in range(kind.num_fields)]
        return (Column(Layout(FIXED), count, mask), *(c for part in parts for c in part))
    if pt.is_list_view(kind) or pt.is_large_list_view(kind):
        return (_read_list_view(array, mask),)
    (layout,) = layouts(kind)
    if layout.kind == FIXED:
        return (Column(layout, count, mask, _fixed_data(array, layout.width)),)
    offsets = _offsets(array)
    if layout.kind == VARIED:
        buffer = array.buffers()[2]
        data = _NO_BYTES if buffer is None else frozen(np.frombuffer(buffer, np.uint8))
        return (Column(layout, count, mask, data, frozen(offsets)),)
    # Only the items of these rows: a slice must not pay for the whole.
    begin, end = int(offsets[0]), int(offsets[-1])
    items = read(array.values.slice(begin, end - begin))
    return (Column(layout, count, mask, offsets=frozen(offsets - begin), items=items),)


def _decoded(array: pa.Array) -> pa.Array:
    """The values, however they are stored (but not those inside of lists and structs)."""
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return _decoded(array.storage)
    if pt.is_dictionary(kind):
        return _decoded(array.dictionary_decode())
    if pt.is_run_end_encoded(kind):
        return _decoded(pc.run_end_decode(array))
    if pt.is_string_view(kind):
        return array.cast(pa.large_string())
    if pt.is_binary_view(kind):
        return array.cast(pa.large_binary())
    return array


def _read_list_view(array: pa.Array, mask: Mask) -> Column:
    """Views of lists share and skip items: lay the items of each row one after the other."""
    dtype = _INT64 if pt.is_large_list_view(array.type) else _INT32
    sizes = chunk_numbers(array.sizes, dtype).astype(np.int64)
    if len(mask):
        sizes = np.where(mask, sizes, 0)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    first = chunk_numbers(array.offsets, dtype) - offsets[:-1]
    rows = np.arange(offsets[-1]) + np.repeat(first, sizes)
    items = read(array.values.take(to_arrow(rows, pa.int64())))
    layout = Layout(LISTED, items=tuple(item.layout for item in items))
    return Column(layout, len(array), mask, offsets=frozen(offsets), items=items)


def _fixed_data(array: pa.Array, width: int) -> Bytes:
    count = len(array)
    if pt.is_boolean(array.type):
        bits = unpack_bits(array.buffers()[1], array.offset, count) if count else _ALL_VALID
        return frozen(bits.view(np.uint8))
    if count == 0 or width == 0:
        return _NO_BYTES
    view = np.frombuffer(array.buffers()[1], np.uint8, count * width, array.offset * width)
    return frozen(view)


def _offsets(array: pa.Array) -> Ints:
    """The offsets of the rows, one more than there are; never of a type narrower than int64."""
    kind, count = array.type, len(array)
    if pt.is_fixed_size_list(kind):
        rows: Ints = np.arange(array.offset, array.offset + count + 1)
        rows *= kind.list_size
        return rows
    buffer = array.buffers()[1]
    if count == 0 or buffer is None:
        return np.zeros(count + 1, np.int64)
    dtype = _INT64 if _is_large(kind) else _INT32
    offsets: NDArray[Any] = np.frombuffer(
        buffer, dtype, count + 1, array.offset * dtype.itemsize
    )
    return offsets.astype(np.int64, copy=False)


def _write_fixed_lists(kind: pa.DataType, column: Column, valid: pa.Buffer | None) -> pa.Array:
    """Fixed-size lists need items under nulls too: take any for them, they are never read."""
    missing = np.diff(column.offsets).repeat(kind.list_size) == 0
    rows = (column.offsets[:-1, None] + np.arange(kind.list_size)).ravel()
    items = write(kind.value_type, list(column.items))
    index = to_arrow(np.where(missing, 0, rows), pa.int64(), mask=~missing)
    return pa.Array.from_buffers(kind, column.count, [valid], children=[items.take(index)])


def _both(left: Mask | None, right: Mask | None) -> Mask | None:
    if left is None or right is None:
        return right if left is None else left
    return left & right


def _is_varied(kind: pa.DataType) -> bool:
    return bool(
        pt.is_string(kind)
        or pt.is_large_string(kind)
        or pt.is_binary(kind)
        or pt.is_large_binary(kind)
    )


def _is_listed(kind: pa.DataType) -> bool:
    return bool(pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind))


def _is_large(kind: pa.DataType) -> bool:
    return bool(pt.is_large_string(kind) or pt.is_large_binary(kind) or pt.is_large_list(kind))
