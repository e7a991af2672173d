"""Append-only columns for payloads; amortised, each row is copied once.

A row keeps the form in which it came (-0.0 stays -0.0).  `columns()` are views: rows that are
there do not change, so a view stays true while the store grows.  `truncate` takes back rows
of which no view was given out; after `keep` every view is void.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from anabranch.batch.batch import Bytes, Ints, Mask
from anabranch.batch.columns import (
    FIXED,
    LISTED,
    Column,
    Layout,
    cut,
    fits,
    layouts,
    read,
    write,
)
from anabranch.batch.kernel import frozen, frozen_rows, kernel
from anabranch.batch.murmur import U64

_FIRST_CAPACITY = 1024
_NO_NULLS = frozen(np.ones(0, np.bool_))


class ColumnStore:
    """One column that grows."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.count = 0
        self._data = np.zeros(0, np.uint8)
        self._valid = np.zeros(0, np.bool_)
        self._has_nulls = False
        self._offsets = np.zeros(1, np.int64)
        self._items = Store(layout.items)

    def append(self, column: Column, rows: Ints) -> None:
        """Adds these rows of a column of the same layout; rows as `frozen_rows` makes them."""
        begin, end = self.count, self.count + len(rows)
        self._append_valid(column, rows, end)
        if self.layout.kind == FIXED:
            width = self.layout.width
            self._data = grown(self._data, end * width)
            copy_fixed(column.data, rows, width, self._data, begin * width)
        else:
            self._offsets = grown(self._offsets, end + 1)
            ends = self._offsets[begin : end + 1]
            measure(column.offsets, rows, column.valid, ends)
            if self.layout.kind == LISTED:
                items = np.empty(ends[-1] - ends[0], np.int64)
                take_items(column.offsets, rows, frozen(ends), items)
                self._items.append(column.items, frozen_rows(items))
            else:
                self._data = grown(self._data, int(ends[-1]))
                copy_varied(column.data, column.offsets, rows, frozen(ends), self._data)
        self.count = end

    def extend(self, column: Column) -> None:
        """Adds all rows of a column of the same layout."""
        kind, width = self.layout.kind, self.layout.width
        if kind != FIXED:
            self.append(column, frozen_rows(np.arange(column.count)))
            return
        begin, end = self.count, self.count + column.count
        self._append_valid(column, slice(None), end)
        self._data = grown(self._data, end * width)
        self._data[begin * width : end * width] = column.data[: column.count * width]
        self.count = end

    def truncate(self, count: int) -> None:
        """Forgets the rows from `count` on."""
        self.count = count
        if self.layout.kind == LISTED:
            self._items.truncate(int(self._offsets[count]))

    def keep(self, rows: Ints) -> None:
        """Only these rows, which ascend; in place, since fresh memory is dear."""
        if len(self._valid):
            self._valid[: len(rows)] = self._valid[rows]
        data = frozen(self._data)
        if self.layout.kind == FIXED:
            copy_fixed(data, rows, self.layout.width, self._data, 0)
        else:
            ends = np.zeros(len(rows) + 1, np.int64)
            measure(frozen(self._offsets), rows, _NO_NULLS, ends)
            if self.layout.kind == LISTED:
                items = np.empty(ends[-1], np.int64)
                take_items(frozen(self._offsets), rows, frozen(ends), items)
                self._items.keep(frozen_rows(items))
            else:
                copy_varied(data, frozen(self._offsets), rows, frozen(ends), self._data)
            self._offsets[: len(ends)] = ends
        self.count = len(rows)

    def column(self) -> Column:
        """All rows, as views."""
        varies = self.layout.kind != FIXED
        used = int(self._offsets[self.count]) if varies else self.count * self.layout.width
        return Column(
            self.layout,
            self.count,
            frozen(self._valid[: self.count if self._has_nulls else 0]),
            frozen(self._data[:used]),
            frozen(self._offsets[: self.count + 1 if varies else 1]),
            tuple(self._items.columns()),
        )

    def _append_valid(self, column: Column, rows: Ints | slice, end: int) -> None:
        if len(column.valid) == 0 and not self._has_nulls:
            return
        self._valid = grown(self._valid, end)
        if not self._has_nulls:
            self._valid[: self.count] = True
            self._has_nulls = True
        self._valid[self.count : end] = column.valid[rows] if len(column.valid) else True


class Store:
    """Several columns that grow together."""

    def __init__(self, some: Iterable[Layout]) -> None:
        self._stores = [ColumnStore(layout) for layout in some]

    @classmethod
    def of(cls, schema: pa.Schema) -> "Store":
        """An empty store for rows of this schema."""
        return cls(layout for field in schema for layout in layouts(field.type))

    def append(self, columns: Sequence[Column], rows: Ints) -> None:
        """Adds these rows; rows as `frozen_rows` makes them."""
        for store, column in zip(self._stores, columns, strict=True):
            store.append(column, rows)

    def extend(self, columns: Sequence[Column]) -> None:
        """Adds all rows of these columns."""
        for store, column in zip(self._stores, columns, strict=True):
            store.extend(column)

    def truncate(self, count: int) -> None:
        """Forgets the rows from `count` on."""
        for store in self._stores:
            store.truncate(count)

    def keep(self, rows: Ints) -> None:
        """Only these rows, which ascend; rows as `frozen_rows` makes them."""
        for store in self._stores:
            store.keep(rows)

    def columns(self) -> list[Column]:
        """All rows, as views."""
        return [store.column() for store in self._stores]


def columns_of(
    schema: pa.Schema, columns: Sequence[Column], names: Sequence[str]
) -> list[Column]:
    """Those of the columns of a table that make up these columns of its schema, in order."""
    known, first = {}, 0
    for each in schema:
        count = len(layouts(each.type))
        known[each.name] = columns[first : first + count]
        first += count
    return [column for name in names for column in known[name]]


def copied(columns: Sequence[Column], rows: Ints) -> list[Column]:
    """Copies of these rows, in this order, in memory of Arrow's, which it uses again.

    Rows as `frozen_rows` makes them.
    """
    return [_copied(column, rows) for column in columns]


def _copied(column: Column, rows: Ints) -> Column:
    valid = frozen(column.valid[rows]) if len(column.valid) else _NO_NULLS
    layout, count = column.layout, len(rows)
    if layout.kind == FIXED:
        data = _room(count * layout.width)
        copy_fixed(column.data, rows, layout.width, data, 0)
        return Column(layout, count, valid, frozen(data))
    ends = np.zeros(count + 1, np.int64)
    measure(column.offsets, rows, column.valid, ends)
    if layout.kind == LISTED:
        items = np.empty(ends[-1], np.int64)
        take_items(column.offsets, rows, frozen(ends), items)
        inner = tuple(copied(column.items, frozen_rows(items)))
        return Column(layout, count, valid, offsets=frozen(ends), items=inner)
    data = _room(int(ends[-1]))
    copy_varied(column.data, column.offsets, rows, frozen(ends), data)
    return Column(layout, count, valid, frozen(data), frozen(ends))


def _room(size: int) -> NDArray[np.uint8]:
    return np.frombuffer(pa.allocate_buffer(size), np.uint8)


def read_table(table: pa.Table) -> list[Column]:
    """The columns of a table; views where a column is in one piece."""
    return [column for each in table.columns for column in _read_chunks(each)]


def write_table(schema: pa.Schema, columns: Sequence[Column], count: int) -> pa.Table:
    """The table of these columns, in as many chunks as 32-bit offsets ask for."""
    if not len(schema):
        return pa.table({})
    pieces = [
        pa.Table.from_arrays(
            _write_arrays(schema, [cut(c, begin, end) for c in columns]), schema=schema
        )
        for begin, end in _pieces(columns, 0, count)
    ]
    return pa.concat_tables(pieces)


def _write_arrays(schema: pa.Schema, columns: list[Column]) -> list[pa.Array]:
    return [write(field.type, columns) for field in schema]


def _pieces(columns: Sequence[Column], begin: int, end: int) -> list[tuple[int, int]]:
    """Ranges of rows that fit; a single row that does not is left to Arrow to refuse."""
    if end - begin <= 1 or all(fits(cut(column, begin, end)) for column in columns):
        return [(begin, end)]
    middle = (begin + end) // 2
    return _pieces(columns, begin, middle) + _pieces(columns, middle, end)


def _read_chunks(column: pa.ChunkedArray) -> Sequence[Column]:
    if column.num_chunks == 1:
        return read(column.chunk(0))
    chunks = [read(chunk) for chunk in column.chunks] or [read(pa.nulls(0, column.type))]
    store = Store(part.layout for part in chunks[0])
    for parts in chunks:
        store.append(parts, frozen_rows(np.arange(parts[0].count)))
    return store.columns()


def grown(array: NDArray[Any], size: int) -> NDArray[Any]:
    """The array, or a copy at least twice as long if it is shorter than `size`."""
    if len(array) >= size:
        return array
    longer = np.empty(
        (max(size, 2 * len(array), _FIRST_CAPACITY), *array.shape[1:]), array.dtype
    )
    longer[: len(array)] = array
    return longer


@kernel
def measure(offsets: Ints, rows: Ints, valid: Mask, ends: Ints) -> None:
    """The offsets of some rows laid one after the other from `ends[0]` on; a null has none."""
    has_nulls = valid.size > 0
    for k in range(rows.size):
        row = rows[k]
        size = offsets[row + 1] - offsets[row]
        if has_nulls and not valid[row]:
            size = 0
        ends[k + 1] = ends[k] + size


@kernel
def copy_fixed(data: Bytes, rows: Ints, width: int, out: Bytes, at: int) -> None:
    """Copies values of `width` bytes to `out`, from `at` on."""
    if width == 8:
        # The compiler makes one load and one store of eight bytes.
        for k in range(rows.size):
            begin, to = U64(rows[k] * 8), U64(at + k * 8)
            for n in range(8):
                out[to + U64(n)] = data[begin + U64(n)]
        return
    for k in range(rows.size):
        begin, to = U64(rows[k] * width), U64(at + k * width)
        for n in range(width):
            out[to + U64(n)] = data[begin + U64(n)]


@kernel
def copy_varied(data: Bytes, offsets: Ints, rows: Ints, ends: Ints, out: Bytes) -> None:
    """Copies the bytes of some rows to the offsets in `ends`."""
    for k in range(rows.size):
        begin, to = U64(offsets[rows[k]]), U64(ends[k])
        for n in range(ends[k + 1] - ends[k]):
            out[to + U64(n)] = data[begin + U64(n)]


@kernel
def take_items(offsets: Ints, rows: Ints, ends: Ints, items: Ints) -> None:
    """The item rows of some lists."""
    at = 0
    for k in range(rows.size):
        for n in range(ends[k + 1] - ends[k]):
            items[at] = offsets[rows[k]] + n
            at += 1
