"""The events of one input that may still matter, as columns, in groups found by payload.

A group is the events of one payload or, with `by_start`, of one identity.  A step asks for the
rows of the groups that it touches and writes them anew; nothing else is looked at.  What is
overwritten stays as waste until `is_wasteful`; then `keep` copies what is needed.  A copy is
paid for by as many rows that were written since the last one, so a row costs no more than a
constant, and at most about half of what is stored is waste.

Groups are found by hash and decided by value (`anabranch.batch.intern`); `keep` forgets the
payloads of groups without rows.
"""

from typing import Final

import numpy as np
import pyarrow as pa

from anabranch.batch.batch import Batch, Ints
from anabranch.batch.buffers import take
from anabranch.batch.intern import Interner
from anabranch.batch.store import grown
from anabranch.operators.unary_numbers import Numbers

_ROOM: Final = 1024
"""So much waste is never worth a copy."""


class LiveEvents:
    """Rows of `width` numbers, the first two of which are start and end of an event."""

    def __init__(self, payload: pa.Schema, *, by_start: bool, width: int) -> None:
        self._schema = payload
        self._by_start = by_start
        self._width = width
        self._interner = Interner(payload)
        self._offset: Ints = np.zeros(0, np.int64)
        self._size: Ints = np.zeros(0, np.int64)
        self._rows: Ints = np.zeros((0, width), np.int64)
        self._used = 0
        self._kept = (0, 0)
        self.numbers = Numbers()

    def __len__(self) -> int:
        """How many events there are."""
        return int(self._size[: len(self._interner)].sum())

    def __repr__(self) -> str:
        groups = len(self._interner)
        return f"LiveEvents({len(self)} events in {self._used} rows and {groups} groups)"

    @property
    def stored(self) -> int:
        """How many rows there are, waste included."""
        return self._used

    @property
    def is_wasteful(self) -> bool:
        """Whether as much was written since the last `keep` as it kept."""
        rows, groups = self._kept
        return self._used > 2 * rows + _ROOM or len(self._interner) > 2 * groups + _ROOM

    def find(self, start: Ints, payload: pa.Table) -> Ints:
        """The group of each of these events; one not seen before is empty."""
        known = len(self._interner)
        keys = start if self._by_start else np.zeros(len(start), np.int64)
        groups = self._interner.intern(keys, payload)
        count = len(self._interner)
        self._offset, self._size = grown(self._offset, count), grown(self._size, count)
        self._offset[known:count] = self._size[known:count] = 0
        return groups

    def rows(self, groups: Ints) -> tuple[Ints, Ints]:
        """The group and the numbers of every event of these groups, group by group."""
        size = self._size[groups]
        # The position within the group, then moved to where the group is.
        at = np.arange(int(size.sum())) - np.repeat(np.cumsum(size) - size, size)
        at += np.repeat(self._offset[groups], size)
        return np.repeat(groups, size), self._rows[at]

    def all(self) -> tuple[Ints, Ints]:
        """The group and the numbers of every event, group by group."""
        return self.rows(np.flatnonzero(self._size[: len(self._interner)]))

    def write(self, groups: Ints, group: Ints, rows: Ints, mark: int) -> None:
        """Let these groups have these events only; both are sorted by group."""
        was = self._size[groups] > 0
        self._put(groups, group, rows)
        self.numbers.note(groups, was, self._size[groups] > 0, mark)

    def _put(self, groups: Ints, group: Ints, rows: Ints) -> None:
        begin, end = self._used, self._used + len(rows)
        self._rows = grown(self._rows, end)
        self._rows[begin:end] = rows
        first = np.searchsorted(group, groups)
        self._offset[groups] = begin + first
        self._size[groups] = np.searchsorted(group, groups, side="right") - first
        self._used = end

    def in_block(self, block: int) -> tuple[Ints, Ints]:
        """The numbers of a block that groups with events have, rising, and those groups."""
        return self.numbers.of_block(block, self._size)

    def restore(self, count: Ints, rows: Ints, payload: pa.Table) -> None:
        """Fill what is empty with groups of so many events each; they have no numbers yet."""
        first = np.cumsum(count) - count
        groups = self.find(rows[first, 0], payload)
        self._put(groups, np.repeat(groups, count), rows)

    def payload(self, groups: Ints) -> pa.Table:
        """The payloads of these groups, in the form first seen."""
        return self._interner.take(groups)

    def keep(self, group: Ints, rows: Ints, mark: int) -> None:
        """Forget all but these events, which are sorted by group; groups keep their numbers."""
        first = np.flatnonzero(np.diff(group, prepend=-1))
        size, old = np.diff(first, append=len(group)), group[first]
        self._note_kept(old, size, mark)
        start, payload = rows[first, 0], self.payload(old)
        self._interner, self._used = Interner(self._schema), 0
        self._rows = self._rows[:0].copy()
        kept = self.find(start, payload)
        self._put(kept, np.repeat(kept, size), rows)
        self.numbers.move(old, kept)
        self._kept = (len(rows), len(kept))

    def _note_kept(self, groups: Ints, size: Ints, mark: int) -> None:
        """Which groups lose events."""
        left = np.zeros(len(self._interner), np.int64)
        left[groups] = size
        fewer = np.flatnonzero(left < self._size[: len(left)])
        self.numbers.note(fewer, np.ones(len(fewer), np.bool_), left[fewer] > 0, mark)

    def check(self) -> None:
        """Assert what must always hold."""
        self._interner.check()
        group, rows = self.all()
        assert len(rows) <= self._used, f"groups overlap: {self!r}"
        self.numbers.check(self._size[: len(self._interner)])
        assert (rows[:, 0] < rows[:, 1]).all(), f"an empty event: {self!r}"
        if self._by_start:
            assert (self._interner.start[group] == rows[:, 0]).all(), f"a lost start: {self!r}"


def data_payload(batch: Batch, data: Ints) -> pa.Table:
    """The payloads of the inserts and adjusts at these rows; no copy if there are no others."""
    return batch.payload if len(data) == len(batch) else take(batch.payload, data)
