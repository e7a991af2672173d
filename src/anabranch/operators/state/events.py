"""The table of live events: one row of numbers each, found by name in constant time.

A row has a number, by which it is saved and by which other structures refer to it, and the
columns

    START, HIGH, LOW    the name: start and 128-bit hash of the payload; see `batch.index`
    ROW                 where its payload is in the store, which holds it once
    FLAGS               LIVE, and the flags of the operator
    OWN and beyond      the operator's own columns; ABSENT in a new row

Numbers of removed rows are reused in FIFO order, which keeps events of similar age in one
block.  A BLOCK of numbers remembers when a row of it was last changed and when one last got a
payload (both are marks), so that a save writes only what changed since; see `state.blocks`.

No call costs more than the rows it is asked for, but for two amortised costs: arrays double
when they are full, and payloads are compacted when less than half of them is live.

Papers: LMerge IV-D, in2t (Figure 1, left); the space is O(w(p + s)) of Table IV.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from anabranch.batch.batch import NEVER_UNITS, Ints
from anabranch.batch.columns import Column
from anabranch.batch.equality import equal_columns
from anabranch.batch.index import NOBODY, Index, Lookup
from anabranch.batch.kernel import frozen, frozen_rows, kernel
from anabranch.batch.store import Store, columns_of, copied, grown, write_table
from anabranch.operators.state.blocks import BLOCK, BLOCK_BITS, Blocks

ROW: Final = 3
FLAGS: Final = 4
OWN: Final = 5
"""The first column of the operator."""

LIVE: Final = 1
"""A flag: the row is in use.  The other bits belong to the operator."""

ABSENT: Final = int(NEVER_UNITS)
"""No time: what an operator's column has before something is written there."""

# Tables smaller than this are not compacted.
_SMALL: Final = 1_024
# Payloads per live one: with more than that, memory is released instead of reused.
_MUCH: Final = 8


class Events:
    """The rows, their names and payloads; `width` is the number of columns.

    Unless `is_named`, rows have numbers and payloads, but no names: they cannot be found.
    """

    def __init__(self, payload: pa.Schema, *, width: int, is_named: bool = True) -> None:
        self.schema = payload
        self.is_named = is_named
        self.rows: Ints = np.empty((0, width), np.int64)
        self.index = Index()
        self.live = 0
        self.used = 0
        self.changed: Ints = np.zeros(0, np.int64)
        self.filled: Ints = np.zeros(0, np.int64)
        self.held: Ints = np.zeros(0, np.int64)
        self._store = Store.of(payload)
        self._stored = 0
        self._free = _Fifo()

    def __len__(self) -> int:
        return self.live

    def __repr__(self) -> str:
        return f"Events({self.live} of {self.used} live, {self._stored} payloads)"

    @property
    def stored(self) -> int:
        """How many payloads are held, those of removed rows included."""
        return self._stored

    @property
    def nbytes(self) -> int:
        """Bytes of rows, names and free numbers; payloads not counted."""
        return self.rows.nbytes + self.index.nbytes + self._free.nbytes

    def living(self) -> Ints:
        """The numbers of all live rows, ascending; costs a look at each."""
        return np.flatnonzero(self.rows[: self.used, FLAGS] & LIVE)

    def ids_in(self, block: int) -> Ints:
        """The numbers of the live rows of a block, ascending."""
        first = block << BLOCK_BITS
        flags = self.rows[first : min(first + BLOCK, self.used), FLAGS]
        return first + np.flatnonzero(flags & LIVE)

    def blocks(self) -> Blocks:
        """Which blocks there are; views."""
        return Blocks(np.arange(len(self.held)), self.changed, self.filled, self.held)

    def columns(self) -> list[Column]:
        """The payloads by ROW."""
        return self._store.columns()

    def take(self, payload_rows: Ints, names: Sequence[str] | None = None) -> pa.Table:
        """Copies of these payloads, in this order; of columns with these names, or of all."""
        schema, columns = self.schema, self._store.columns()
        if names is not None:
            schema = pa.schema([schema.field(name) for name in names])
            columns = columns_of(self.schema, columns, names)
        if not len(schema):
            return pa.table({})
        some = copied(columns, frozen_rows(payload_rows))
        return write_table(schema, some, len(payload_rows))

    def payload(self, ids: Ints, names: Sequence[str] | None = None) -> pa.Table:
        """Copies of the payloads of these rows, in this order; see `take`."""
        return self.take(self.rows[ids, ROW], names)

    def candidates(self, count: int) -> Ints:
        """The next numbers that would be given, with room for their rows and names."""
        again = self._free.front(count)
        last = self.used + count - len(again)
        self.rows = grown(self.rows, last)
        blocks = (len(self.rows) >> BLOCK_BITS) + 1
        if blocks > len(self.changed):
            missing = np.zeros(blocks - len(self.changed), np.int64)
            self.changed = np.append(self.changed, missing)
            self.filled = np.append(self.filled, missing)
            self.held = np.append(self.held, missing)
        if self.is_named:
            self.index.make_room(count, self.rows)
        if last == self.used:
            return again
        return np.concatenate([again, np.arange(self.used, last)])

    def find(self, lookup: Lookup, rows: Ints, columns: Sequence[Column], mark: int) -> Ints:
        """Find these rows of `lookup`, whose payloads `columns` has; returns the new numbers.

        A hit is compared by value with the stored payload; if it differs, the search goes on
        behind it (a true collision of 128 bits, or a forged one).  Where nothing is found, a
        row that may be added gets the next candidate, and its payload is stored at once.
        """
        created = [np.empty(0, np.int64)]
        while len(rows):
            added, hits = self.index.search(lookup, rows, self.rows)
            created.append(lookup.id[added])
            self.create(created[-1], columns, added, mark)
            hits, held = frozen_rows(hits), np.empty(len(hits), np.int64)
            payload_rows(self.rows, lookup.id, hits, held)
            same = equal_columns(columns, hits, self.columns(), frozen(held))
            rows = hits[np.flatnonzero(~same)]
        return np.concatenate(created)

    def create(
        self, ids: Ints, columns: Sequence[Column], rows: Ints | None, mark: int
    ) -> None:
        """Give the first candidates these payloads; the operator's columns are ABSENT.

        The payloads are those of `rows`, or all in order.
        """
        again = min(len(ids), len(self._free))
        self._free.drop(again)
        self.used += len(ids) - again
        self.live += len(ids)
        if rows is None:
            self._store.extend(columns)
        else:
            self._store.append(columns, frozen_rows(rows))
        blocks = (self.changed, self.filled, self.held)
        create_all(self.rows, frozen_rows(ids), self._stored, mark, blocks)
        self._stored += len(ids)

    def remove(self, ids: Ints, mark: int, *, ascending: bool = True) -> None:
        """Remove these rows; their payloads are compacted away later.

        Their numbers are given away again in `ascending` order, or as they come.
        """
        if not len(ids):
            return
        if self.is_named:
            self.index.remove(ids, self.rows)
        remove_all(self.rows, frozen_rows(ids), mark, self.changed, self.held)
        self._free.append(np.sort(ids) if ascending else ids)
        self.live -= len(ids)
        if self._stored > 2 * self.live + _SMALL:
            self._compact()

    def add_column(self) -> None:
        """One more column of the operator, ABSENT everywhere."""
        absent = np.full((len(self.rows), 1), ABSENT, np.int64)
        self.rows = np.concatenate([self.rows, absent], axis=1)

    def remove_column(self, column: int) -> None:
        """Drop a column of the operator."""
        self.rows = np.delete(self.rows, column, axis=1)

    def restore(self, ids: Ints, rows: Ints, payload: Sequence[Column], mark: int) -> None:
        """Fill an empty table with these rows, which have all columns but ROW."""
        assert self.used == 0, f"empty table required, {self.used} rows used"
        size = int(ids.max(initial=-1)) + 1
        self.rows = grown(self.rows, size)
        self.rows[:size, FLAGS] = 0
        self.rows[ids] = rows
        self.rows[ids, ROW] = np.arange(len(ids))
        self._store.append(payload, frozen_rows(np.arange(len(ids))))
        self._stored = self.live = len(ids)
        self.used = size
        self._free.append(np.flatnonzero(self.rows[:size, FLAGS] == 0))
        blocks = (len(self.rows) >> BLOCK_BITS) + 1
        self.changed = np.full(blocks, mark, np.int64)
        self.filled = self.changed.copy()
        self.held = np.bincount(ids >> BLOCK_BITS, minlength=blocks)
        if self.is_named:
            self.index.put(ids, self.rows)

    def date(self, blocks: Blocks) -> None:
        """Give restored rows the marks of the blocks that they were saved in."""
        self.changed[blocks.number] = blocks.changed
        self.filled[blocks.number] = blocks.filled

    def _compact(self) -> None:
        owner, kept = np.full(self._stored, NOBODY, np.int64), np.empty(self.live, np.int64)
        renumber(self.rows, self.used, owner, kept)
        rows = frozen_rows(kept)
        if self._stored <= _MUCH * self.live + _SMALL:
            self._store.keep(rows)
        else:
            # The peak is over: give its memory back.
            store = Store.of(self.schema)
            store.append(self._store.columns(), rows)
            self._store = store
        self._stored = len(kept)

    def check(self) -> None:
        """Assert every invariant."""
        ids = self.living()
        counted = (len(ids), self.live, len(self.index) if self.is_named else self.live)
        assert len(set(counted)) == 1, (
            f"numbers of flagged, counted and indexed events differ: {counted}"
        )
        free = self._free.front(len(self._free))
        assert len(np.union1d(ids, free)) == self.used == self.live + len(free), (
            f"live {ids} and free {free} are not a partition of {self.used} numbers"
        )
        held = np.bincount(ids >> BLOCK_BITS, minlength=len(self.held))
        assert (held == self.held).all(), f"blocks hold {held}, counted {self.held}"
        stored = self.rows[ids, ROW]
        unique = len(np.unique(stored))
        assert unique == self.live, f"{unique} distinct payloads != {self.live} live rows"
        last = stored.max(initial=-1)
        assert last < self._stored, f"payload {last} >= {self._stored} stored payloads"
        assert all(column.count == self._stored for column in self.columns()), (
            f"columns of payloads have other lengths than {self._stored}"
        )
        self.index.check(self.rows)


class _Fifo:
    """A line of numbers: added behind, taken in front, each moved at most once on the way."""

    def __init__(self) -> None:
        self._items: Ints = np.empty(0, np.int64)
        self._head = 0
        self._tail = 0

    def __len__(self) -> int:
        return self._tail - self._head

    @property
    def nbytes(self) -> int:
        return self._items.nbytes

    def front(self, count: int) -> Ints:
        """The first ones, as many as there are; a view."""
        return self._items[self._head : min(self._head + count, self._tail)]

    def append(self, numbers: Ints) -> None:
        tail = self._tail + len(numbers)
        if tail > len(self._items) and self._head > len(self):
            # Taken ones make room: more of them than of those that move.
            waiting = self.front(len(self)).copy()
            self._items[: len(waiting)] = waiting
            self._head, self._tail = 0, len(waiting)
            tail = self._tail + len(numbers)
        self._items = grown(self._items, tail)
        self._items[self._tail : tail] = numbers
        self._tail = tail

    def drop(self, count: int) -> None:
        self._head += count


@kernel
def renumber(rows: Ints, used: int, owner: Ints, kept: Ints) -> None:
    """List the payloads that a live row has, ascending, and renumber them in this order."""
    for node in range(used):
        if rows[node, FLAGS] & LIVE:
            owner[rows[node, ROW]] = node
    # Ascending by the old row: payloads keep their order, so the copy reads memory forwards.
    count = 0
    for row in range(owner.size):
        if owner[row] != NOBODY:
            kept[count] = row
            rows[owner[row], ROW] = count
            count += 1


@kernel
def remove_all(rows: Ints, ids: Ints, mark: int, changed: Ints, held: Ints) -> None:
    """Clear the flags of these rows."""
    for k in range(ids.size):
        rows[ids[k], FLAGS] = 0
        changed[ids[k] >> BLOCK_BITS] = mark
        held[ids[k] >> BLOCK_BITS] -= 1


@kernel
def payload_rows(rows: Ints, ids: Ints, some: Ints, found: Ints) -> None:
    """Where the payloads of these rows are: of `ids` those at the places `some`."""
    for k in range(some.size):
        found[k] = rows[ids[some[k]], ROW]


@kernel
def create_all(
    rows: Ints, ids: Ints, first: int, mark: int, blocks: tuple[Ints, Ints, Ints]
) -> None:
    """New rows, whose payloads are stored one after the other from `first` on."""
    changed, filled, held = blocks
    for k in range(ids.size):
        node = ids[k]
        rows[node, ROW] = first + k
        rows[node, FLAGS] = LIVE
        for column in range(OWN, rows.shape[1]):
            rows[node, column] = ABSENT
        changed[node >> BLOCK_BITS] = mark
        filled[node >> BLOCK_BITS] = mark
        held[node >> BLOCK_BITS] += 1
