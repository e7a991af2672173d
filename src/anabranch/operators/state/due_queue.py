"""A queue of due times: a stable finds the events that are due without a scan.

`pop_before(t)` gives the ids that were pushed with a time before t, each as often as it was
pushed, in no order that is promised; everything else stays.  The queue knows nothing of what
an id means: whoever pops must ask whether the id is still there and still due (entries are not
taken back, and an id that was given away again may come twice), and may `rebuild` the queue
from what is true when too many entries are stale.

Entries are in buckets by the highest bit in which their time differs from the time of the last
pop.  A pop takes whole buckets, and looks at the entries of one more: each of these is taken,
or moves to a lower bucket.  So an entry moves at most as often as there are bits between its
time and the step of time from pop to pop, and it moves among neighbours, where a heap jumps.

`operations` counts pushes, pops and moves: what a step costs, whatever the machine.

Papers: none; a radix heap (Ahuja, Mehlhorn, Orlin, Tarjan 1990) that gives many at once.

>>> due = DueQueue()
>>> due.push(np.array([7, 3, 5]), np.array([0, 1, 2]))
>>> due.pop_before(7).tolist(), len(due)
([1, 2], 1)
"""

from typing import Final, NamedTuple

import numpy as np

from anabranch.batch.batch import NEVER_UNITS, Ints
from anabranch.batch.kernel import frozen_rows, kernel, part
from anabranch.batch.murmur import U64
from anabranch.batch.store import grown

# Bucket 0 has what is due at the time of the last pop or before, bucket k what differs from it
# in bit k - 1 and in none above.
_BUCKETS: Final = 65
# Entries of a block; a bucket is a chain of blocks, of which only the first is not full.
_BLOCK: Final = 64
_NONE: Final = -1

# What `numbers` has, by position.
_BASE: Final = 0
_FREE: Final = 1
_UNUSED: Final = 2
_MOVES: Final = 3


class _Blocks(NamedTuple):
    """Blocks of entries, and the block that follows each in its chain."""

    times: Ints
    ids: Ints
    after: Ints
    heads: Ints
    counts: Ints
    numbers: Ints


class DueQueue:
    """Ids by the time at which they are due."""

    def __init__(self) -> None:
        self.operations = 0
        self._clear(int(NEVER_UNITS))

    def _clear(self, base: int) -> None:
        none = np.empty((0, _BLOCK), np.int64)
        heads, counts = np.full(_BUCKETS, _NONE), np.zeros(_BUCKETS, np.int64)
        numbers = np.array([base, _NONE, 0, 0], np.int64)
        self._blocks = _Blocks(none, none, none[:, 0], heads, counts, numbers)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __repr__(self) -> str:
        return f"DueQueue({self._count} entries)"

    @property
    def nbytes(self) -> int:
        """What the arrays take."""
        return sum(array.nbytes for array in self._blocks)

    @property
    def entries(self) -> tuple[Ints, Ints]:
        """The times and the ids of all entries, in no order."""
        times, ids = np.empty((2, self._count), np.int64)
        if self._count:
            list_all(self._blocks, times, ids)
        return times, ids

    def push(self, times: Ints, ids: Ints) -> None:
        """Add these ids, each with its time."""
        if len(ids):
            self._make_room(len(ids))
            push_all(self._blocks, frozen_rows(times), frozen_rows(ids))
            self._count += len(ids)
            self.operations += len(ids)

    def pop_before(self, time: int) -> Ints:
        """Take out every entry with a time before this one."""
        numbers = self._blocks.numbers
        base = int(numbers[_BASE])
        last = _bucket(time, base)
        most = int(self._blocks.counts[: last + 1].sum())
        if not most:
            numbers[_BASE] = max(base, time)
            return np.empty(0, np.int64)
        self._make_room(0)
        popped = np.empty(most, np.int64)
        moves = int(numbers[_MOVES])
        count = int(pop_all(self._blocks, last, np.int64(time), popped))
        self._count -= count
        self.operations += count + int(numbers[_MOVES]) - moves
        return popped[:count]

    def rebuild(self, times: Ints, ids: Ints) -> None:
        """Only these entries, each once."""
        operations = self.operations
        self._clear(int(self._blocks.numbers[_BASE]))
        if not len(ids):
            return
        order = np.lexsort((ids, times))
        times, ids = times[order], ids[order]
        first = np.ones(len(ids), np.bool_)
        first[1:] = (times[1:] != times[:-1]) | (ids[1:] != ids[:-1])
        self.push(times[first], ids[first])
        self.operations = operations

    def check(self) -> None:
        """Assert what must always hold: every entry is in the bucket of its time."""
        total = self._blocks.counts.sum()
        assert total == self._count, f"entries in buckets {total} != count {self._count}"
        times, _ = self.entries
        base = int(self._blocks.numbers[_BASE])
        places = [_bucket(time, base) for time in times.tolist()]
        counts = np.bincount(np.array(places, np.int64), minlength=_BUCKETS)
        assert (counts == self._blocks.counts).all(), (
            f"entries by bucket {self._blocks.counts} != by their times {counts}"
        )

    def _make_room(self, more: int) -> None:
        """For this many entries, whatever bucket they go to, and a block for each bucket."""
        need = int(self._blocks.numbers[_UNUSED]) + more // _BLOCK + 2 * _BUCKETS
        times, ids, after, *rest = self._blocks
        if len(after) < need:
            self._blocks = _Blocks(
                grown(times, need), grown(ids, need), grown(after, need), *rest
            )


def _bucket(time: int, base: int) -> int:
    return ((time ^ base) & (1 << 64) - 1).bit_length() if time > base else 0


@part
def bucket(time: np.int64, base: np.int64) -> np.int64:
    """The number of bits up to the highest in which they differ; 0 for what is not later."""
    if time <= base:
        return np.int64(0)
    word, bits = U64(time ^ base), np.int64(1)
    for shift in (32, 16, 8, 4, 2, 1):
        if word >> U64(shift) != U64(0):
            word >>= U64(shift)
            bits += shift
    return bits


@part
def put(blocks: _Blocks, time: np.int64, identity: np.int64) -> None:
    """Add an entry to its bucket; there is room."""
    k = bucket(time, blocks.numbers[_BASE])
    fill = blocks.counts[k] % _BLOCK
    # The bucket's last block is full, or it has none: a new one goes on top.
    if fill == 0:
        block = blocks.numbers[_FREE]
        if block == _NONE:
            block = blocks.numbers[_UNUSED]
            blocks.numbers[_UNUSED] = block + 1
        else:
            blocks.numbers[_FREE] = blocks.after[block]
        blocks.after[block] = blocks.heads[k]
        blocks.heads[k] = block
    block = blocks.heads[k]
    blocks.times[block, fill], blocks.ids[block, fill] = time, identity
    blocks.counts[k] += 1


@kernel
def push_all(blocks: _Blocks, times: Ints, ids: Ints) -> None:
    """Add entries; there is room."""
    for k in range(ids.size):
        put(blocks, times[k], ids[k])


@kernel
def pop_all(blocks: _Blocks, last: int, time: np.int64, popped: Ints) -> int:
    """Empty the buckets up to `last`, which is that of `time`; what is not due moves."""
    taken, numbers = 0, blocks.numbers
    # Before any entry moves: buckets are counted from the new base, so what is not due goes to
    # a lower bucket and is never met again in this loop.
    numbers[_BASE] = max(numbers[_BASE], time)
    for k in range(last + 1):
        left, block = blocks.counts[k], blocks.heads[k]
        blocks.counts[k], blocks.heads[k] = 0, _NONE
        while left > 0:
            # Blocks are emptied from the top, the only one that may not be full.
            fill = (left - 1) % _BLOCK + 1
            for at in range(fill):
                if blocks.times[block, at] < time:
                    popped[taken] = blocks.ids[block, at]
                    taken += 1
                else:
                    numbers[_MOVES] += 1
                    put(blocks, blocks.times[block, at], blocks.ids[block, at])
            left -= fill
            after = blocks.after[block]
            blocks.after[block] = numbers[_FREE]
            numbers[_FREE] = block
            block = after
    return taken


@kernel
def list_all(blocks: _Blocks, times: Ints, ids: Ints) -> None:
    """Write down all entries."""
    listed = 0
    for k in range(_BUCKETS):
        left, block = blocks.counts[k], blocks.heads[k]
        while left > 0:
            fill = (left - 1) % _BLOCK + 1
            for at in range(fill):
                times[listed], ids[listed] = blocks.times[block, at], blocks.ids[block, at]
                listed += 1
            left -= fill
            block = blocks.after[block]
