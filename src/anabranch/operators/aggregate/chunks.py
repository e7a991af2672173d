"""Sorted rows in chunks: a step reads and rewrites only the chunks that it touches.

Rows of int64 numbers are sorted by their first columns (the key, no two equal) and lie in
chunks of at most CHUNK rows.  `runs` finds the chunks for some keys and ranges of keys, as runs
of neighbouring chunks; `read` copies their rows; `write` replaces them by other rows for the
same places.  So a step costs what it touches, and a look at one number per chunk.

Four chunks are a block, in which rows are saved; see `operators.state.blocks`.  After a restart
every row is in the chunk where it was, so unchanged blocks stay as they were saved.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from anabranch.batch.batch import Ints, Mask
from anabranch.batch.kernel import frozen, kernel, part
from anabranch.batch.store import grown
from anabranch.operators.state.blocks import BLOCK, Blocks
from anabranch.operators.state.codec import column_of, to_table

CHUNK: Final = 256
_PER_BLOCK: Final = BLOCK // CHUNK
_FILL: Final = CHUNK * 3 // 4
# With more than this many places per row, everything is laid out again.
_SPARSE: Final = 16
_SMALL: Final = 64


@dataclass(frozen=True, eq=False)
class Runs:
    """Runs of neighbouring chunks: places in the order of chunks, and rows per run.

    `first` and `last` are the first and last place of each run, `offsets` where its rows begin
    in what `read` returns.
    """

    first: Ints
    last: Ints
    offsets: Ints

    def __len__(self) -> int:
        return len(self.first)


class Chunks:
    """The rows of one lane; the first `keys` of `width` columns are the key.

    `least` has the least numbers of some columns in each chunk.
    """

    def __init__(self, keys: int, width: int, *, least: tuple[int, ...] = ()) -> None:
        self.keys, self.width = keys, width
        self._columns = list(least)
        self.least: Ints = np.zeros((0, len(least)), np.int64)
        self.rows: Ints = np.empty((0, width), np.int64)
        self.size: Ints = np.zeros(0, np.int64)
        self.order: Ints = np.zeros(0, np.int64)
        self.changed: Ints = np.zeros(0, np.int64)
        self.count = 0

    def __len__(self) -> int:
        return self.count

    def __repr__(self) -> str:
        return f"Chunks({self.count} rows in {len(self.order)} chunks)"

    def heads(self) -> Ints:
        """The first row of each chunk, in order."""
        return self.rows[self.order * CHUNK]

    def places(self, keys: Ints) -> Ints:
        """The place of the chunk for each key: the last that does not begin behind it."""
        found = np.empty(len(keys), np.int64)
        find_chunks(frozen(self.heads()), self.keys, frozen(keys), found)
        return found

    def runs(self, wanted: Mask) -> Runs:
        """The runs of these places; one run without chunks if there are no chunks at all."""
        if not len(self.order):
            return Runs(np.zeros(1, np.int64), np.full(1, -1), np.zeros(2, np.int64))
        edges = np.diff(wanted.astype(np.int8), prepend=0, append=0)
        first, last = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1) - 1
        sizes = np.cumsum(np.concatenate([[0], self.size[self.order]]))
        rows = sizes[last + 1] - sizes[first]
        return Runs(first, last, np.concatenate([[0], np.cumsum(rows)]))

    def read(self, runs: Runs) -> Ints:
        """Copies of the rows of these runs."""
        places = _ranges(runs.first, runs.last - runs.first + 1)
        chunks = self.order[places]
        out: Ints = self.rows[_ranges(chunks * CHUNK, self.size[chunks])]
        return out

    def after(self, runs: Runs) -> Ints:
        """The row behind each run; one with group -1 where there is none."""
        found = np.full((len(runs), self.width), -1, np.int64)
        has = runs.last + 1 < len(self.order)
        found[has] = self.rows[self.order[runs.last[has] + 1] * CHUNK]
        return found

    def all(self) -> Ints:
        """All rows, sorted."""
        out: Ints = self.rows[_ranges(self.order * CHUNK, self.size[self.order])]
        return out

    def write(self, runs: Runs, rows: Ints, offsets: Ints, mark: int) -> None:
        """Let each run have these rows instead: those from its offset on."""
        need, had = np.diff(offsets), runs.last - runs.first + 1
        fits = (need <= had * CHUNK) & (need * 4 >= had * CHUNK) & (need > 0)
        wanted = np.where(fits, had, -(-need // _FILL))
        places = _ranges(runs.first, had)
        gone = self.order[places]
        self.count += len(rows) - int(self.size[gone].sum())
        self._touch(gone, mark)
        chunks = self._allot(gone, int(wanted.sum()))
        self._touch(chunks, mark)
        self.size[gone] = 0
        sizes = _shares(need, wanted)
        self.size[chunks] = sizes
        self.rows[_ranges(chunks * CHUNK, sizes)] = rows
        self._note_least(chunks)
        if (wanted == had).all():
            self.order[places] = chunks
        else:
            kept = np.ones(len(self.order), np.bool_)
            kept[places] = False
            at = np.repeat(runs.first, wanted) + 0.5
            before = np.concatenate([np.flatnonzero(kept).astype(np.float64), at])
            both = np.concatenate([self.order[kept], chunks])
            self.order = both[np.argsort(before, kind="stable")]
        if len(self.order) > _SMALL and len(self.order) * CHUNK > _SPARSE * self.count:
            self._lay_out(self.all(), mark)

    def insert_all(self, rows: Ints, mark: int) -> None:
        """Fill empty chunks with these sorted rows."""
        assert self.count == 0, f"empty chunks required, they have {self.count} rows"
        self._lay_out(rows, mark)

    def clear(self, mark: int) -> None:
        """No rows."""
        self._lay_out(self.rows[:0], mark)

    def widen(self, rows: Ints, mark: int) -> None:
        """The rows of `all` with other columns behind the key; every block changes."""
        order, sizes = self.order, self.size[self.order]
        self.width = rows.shape[1]
        self.rows = np.empty((len(self.rows), self.width), np.int64)
        self.rows[_ranges(order * CHUNK, sizes)] = rows
        self._touch(order, mark)

    def _lay_out(self, rows: Ints, mark: int) -> None:
        """Write all rows into fresh chunks."""
        self._touch(self.order, mark)
        wanted = -(-len(rows) // _FILL)
        self.size[self.order] = 0
        self.order = self._allot(np.empty(0, np.int64), wanted)
        self.size[self.order] = _shares(np.array([len(rows)]), np.array([wanted]))
        self.rows[_ranges(self.order * CHUNK, self.size[self.order])] = rows
        self.count = len(rows)
        self._touch(self.order, mark)
        self._note_least(self.order)

    def _note_least(self, chunks: Ints) -> None:
        """The least numbers of these chunks, none of which is empty."""
        if not self._columns or not len(chunks):
            return
        self.least = grown(self.least, len(self.size))
        self.least[chunks] = self._least_of(chunks)

    def _least_of(self, chunks: Ints) -> Ints:
        sizes = self.size[chunks]
        rows = self.rows[_ranges(chunks * CHUNK, sizes)][:, self._columns]
        found: Ints = np.minimum.reduceat(rows, np.cumsum(sizes) - sizes, axis=0)
        return found

    def _allot(self, gone: Ints, wanted: int) -> Ints:
        """Numbers for chunks: those that became free, other free ones, then new ones."""
        if wanted <= len(gone):
            return gone[:wanted]
        free = np.setdiff1d(np.flatnonzero(self.size == 0), gone, assume_unique=True)
        free = free[: wanted - len(gone)]
        missing = wanted - len(gone) - len(free)
        last = len(self.size)
        if missing:
            blocks = -(-(last + missing) // _PER_BLOCK)
            self.size = np.append(
                self.size, np.zeros(max(blocks * _PER_BLOCK, last * 5 // 4) - last, np.int64)
            )
            self.rows = grown(self.rows, len(self.size) * CHUNK)
            blocks = -(-len(self.size) // _PER_BLOCK)
            self.changed = np.append(
                self.changed, np.zeros(blocks - len(self.changed), np.int64)
            )
        return np.concatenate([gone, free, np.arange(last, last + missing)])

    def _touch(self, chunks: Ints, mark: int) -> None:
        self.changed[chunks // _PER_BLOCK] = mark

    def blocks(self) -> Blocks:
        """The blocks, for a save."""
        held = np.zeros(len(self.changed) * _PER_BLOCK, np.int64)
        held[: len(self.size)] = self.size
        held = held.reshape(-1, _PER_BLOCK).sum(axis=1)
        return Blocks(np.arange(len(held)), self.changed, self.changed, held)

    def table(self, block: int) -> pa.Table:
        """The rows of a block, with their places as `node`."""
        chunks = np.arange(block * _PER_BLOCK, min((block + 1) * _PER_BLOCK, len(self.size)))
        at = _ranges(chunks * CHUNK, self.size[chunks])
        rows = self.rows[at]
        columns = {f"c{i}": rows[:, i].copy() for i in range(self.width)}
        return to_table({"node": at} | columns)

    def restore(self, tables: list[pa.Table], blocks: Blocks) -> None:
        """Fill empty chunks with the tables of these blocks."""
        if not tables:
            return
        table = pa.concat_tables(tables)
        at = column_of(table, "node")
        count = -(-(int(at.max(initial=-1)) + 1) // BLOCK)
        self.size = np.bincount(at // CHUNK, minlength=count * _PER_BLOCK)
        self.rows = np.empty((count * BLOCK, self.width), np.int64)
        for i in range(self.width):
            self.rows[at, i] = column_of(table, f"c{i}")
        self.count = len(at)
        self.changed = np.zeros(count, np.int64)
        self.changed[blocks.number] = blocks.changed
        used = np.flatnonzero(self.size)
        heads = self.rows[used * CHUNK, : self.keys]
        self.order = used[np.lexsort(heads.T[::-1])]
        self._note_least(self.order)

    def check(self) -> None:
        """Assert every invariant."""
        rows, used = self.all(), np.flatnonzero(self.size)
        assert len(rows) == self.count, f"{len(rows)} rows, counted {self.count}"
        assert (np.sort(self.order) == used).all(), f"chunks {self.order} != used {used}"
        assert self.size.max(initial=0) <= CHUNK, f"a chunk has {self.size.max()} rows"
        keys = rows[:, : self.keys]
        order = np.lexsort(keys.T[::-1])
        assert (order == np.arange(len(keys))).all(), f"keys are not sorted: {keys}"
        twins = (keys[1:] == keys[:-1]).all(axis=1)
        assert not twins.any(), f"keys come twice: {keys[1:][twins]}"
        if self._columns and len(used):
            found, noted = self._least_of(self.order), self.least[self.order]
            assert (found == noted).all(), f"least numbers {found}, noted {noted}"


def _ranges(first: Ints, size: Ints) -> Ints:
    """All numbers of some ranges, one range after the other."""
    at = np.arange(int(size.sum())) - np.repeat(np.cumsum(size) - size, size)
    found: Ints = at + np.repeat(first, size)
    return found


def _shares(rows: Ints, chunks: Ints) -> Ints:
    """How many rows each chunk of each run gets."""
    run = np.repeat(np.arange(len(rows)), chunks)
    at = _ranges(np.zeros_like(chunks), chunks)
    share: Ints = rows[run] // chunks[run] + (at < rows[run] % chunks[run])
    return share


@part
def is_less(one: Ints, other: Ints, keys: int) -> bool:
    """Whether a key comes before another one."""
    for k in range(keys):
        if one[k] != other[k]:
            return bool(one[k] < other[k])
    return False


@kernel
def find_chunks(heads: Ints, keys: int, asked: Ints, found: Ints) -> None:
    """The last head that is not behind each key; 0 if all are."""
    for i in range(found.size):
        low, high = 0, heads.shape[0]
        while high - low > 1:
            middle = (low + high) // 2
            if is_less(asked[i], heads[middle], keys):
                high = middle
            else:
                low = middle
        found[i] = low
