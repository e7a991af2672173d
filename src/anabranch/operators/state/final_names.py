"""The names (hashes) of final events, which identify the copies of slow replicas.

When an event is frozen on the output its payload is freed.  What stays is its name (the 128-bit
hash of the payload and its start) and its final end (its start, if the deciding replica removed
it).  It is forgotten when every attached replica's own frontier is beyond that end: from then
on a replica that keeps its promises cannot mention it.  So the cost is 32 bytes and two slots
for each event between the slowest and the fastest replica, and a silent replica holds it until
it is detached.

What a stable makes final ends between the old frontier and the new one, so later ones end
later: a queue by end, and forgetting takes from its front.  Entries are numbered for ever
(`first` is the number of the oldest); every BLOCK of numbers remembers when it last got an
entry, so that `name_parts` writes only what is new.

In R4 names are identities, not events: `END` is the last end of all its events, and a further
copy of an identity that is final counts as absorbed.

Two payloads with the same start and the same 128 bits would be taken for one here, and only
here; the price of that accident is an element counted as absorbed instead of late.

In parts `names/K` has the names with the numbers of block K.  A block that is full is never
written again.  A part may hold names that were dropped since; the control part has the
first that counts, and which number comes next.

Papers: none; LMerge V-C only states that a missing element is not on the output.
"""

from collections.abc import Mapping
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from anabranch.batch.batch import FOREVER_UNITS, NEVER_UNITS, Ints
from anabranch.batch.index import HIGH, LOW, START, Index, Lookup
from anabranch.batch.store import grown
from anabranch.operators.state.blocks import part_of, with_mark
from anabranch.operators.state.codec import StateKind, column_of, header_of, to_table

END: Final = 3
_COLUMNS: Final = 4

BLOCK_BITS: Final = 12
BLOCK: Final = 1 << BLOCK_BITS

UNKNOWN: Final = int(NEVER_UNITS)
"""The end of what is not settled."""


class FinalNames:
    """Names and ends, sorted by end; the first entry gets the number `first`."""

    def __init__(self, first: int = 0) -> None:
        self._index = Index()
        self._rows: Ints = np.empty((0, _COLUMNS), np.int64)
        self._base = self._first = self._next = first
        self._changed: dict[int, int] = {}
        self._emptied: dict[int, int] = {}

    def __len__(self) -> int:
        return self._next - self._first

    def __repr__(self) -> str:
        return f"FinalNames({len(self)} names, the first is number {self._first})"

    @property
    def first(self) -> int:
        """The number of the oldest entry."""
        return self._first

    @property
    def next(self) -> int:
        """The number that the next entry gets."""
        return self._next

    @property
    def probes(self) -> int:
        """How many slots were looked at."""
        return self._index.probes

    @property
    def nbytes(self) -> int:
        """What the arrays take."""
        return self._rows.nbytes + self._index.nbytes

    def rows(self, first: int, last: int) -> Ints:
        """The entries with these numbers (`last` excluded): START, HIGH, LOW, END; a view."""
        return self._rows[first - self._base : last - self._base]

    def all(self) -> Ints:
        """All entries, as `rows` has them."""
        return self.rows(self._first, self._next)

    def blocks(self, since: int) -> tuple[list[int], list[int]]:
        """Which blocks got an entry after this mark, and which are empty since then.

        Nothing is asked about earlier marks afterwards.
        """
        self._emptied = {block: at for block, at in self._emptied.items() if at > since}
        return [block for block, at in self._changed.items() if at > since], [*self._emptied]

    def remember(self, names: Ints, end: Ints, mark: int) -> None:
        """Add these names (START, HIGH, LOW); none ends before what is here."""
        if self._first - self._base > len(self):
            # What was forgotten makes room: more of it than of what moves.
            self._rows = self.all().copy()
            self._base = self._first
        count, order = len(end), np.argsort(end)
        if not count:
            return
        used = self._next - self._base
        self._rows = grown(self._rows, used + count)
        self._rows[used : used + count, : LOW + 1] = names[order]
        self._rows[used : used + count, END] = end[order]
        ids = np.arange(self._next, self._next + count)
        self._index.put(ids, self._rows, base=self._base)
        blocks = range(self._next >> BLOCK_BITS, (self._next + count - 1 >> BLOCK_BITS) + 1)
        self._changed |= dict.fromkeys(blocks, mark)
        self._next += count

    def reopen(self, mark: int) -> None:
        """The block of the next entry was saved, though all its names may be forgotten."""
        self._changed.setdefault(self._next >> BLOCK_BITS, mark)

    def forget(self, slowest: int, mark: int) -> None:
        """Drop what no replica may mention, if the slowest of them is at this frontier."""
        ends = self.all()[:, END]
        gone = len(ends) if slowest == FOREVER_UNITS else int(np.searchsorted(ends, slowest))
        if gone:
            ids = np.arange(self._first, self._first + gone)
            self._index.remove(ids, self._rows, base=self._base)
            last = self._first + gone
            for block in range(self._first >> BLOCK_BITS, last >> BLOCK_BITS):
                del self._changed[block]
                self._emptied[block] = mark
            self._first = last

    def ends(self, start: Ints, hashes: NDArray[np.uint64]) -> Ints:
        """The end of each of these names, UNKNOWN if it is not among ours."""
        asked = Lookup(start, hashes, np.zeros(len(start), np.bool_), np.empty(0, np.int64))
        rows = np.arange(len(start))
        _, found = self._index.search(asked, rows, self._rows, base=self._base)
        ends = np.full(len(start), UNKNOWN, np.int64)
        ends[found] = self._rows[asked.id[found] - self._base, END]
        return ends

    def check(self) -> None:
        """Assert what must always hold."""
        rows = self.all()
        counts = (len(rows), len(self), len(self._index))
        assert len(set(counts)) == 1, f"rows, length and index differ: {counts}"
        ends, starts = rows[:, END], rows[:, START]
        assert (ends[:-1] <= ends[1:]).all(), f"ends are not sorted: {ends}"
        assert (ends >= starts).all(), f"ends {ends} < starts {starts}"
        self._index.check(self._rows, base=self._base)


_NAMED: Final = {"start": START, "high": HIGH, "low": LOW, "end": END}


def name_table(rows: Ints) -> pa.Table:
    """These names."""
    return to_table({name: rows[:, column] for name, column in _NAMED.items()})


def read_names(table: pa.Table) -> Ints:
    """The rows of a table of names, by end."""
    rows = np.empty((table.num_rows, len(_NAMED)), np.int64)
    for name, column in _NAMED.items():
        rows[:, column] = column_of(table, name).view(np.int64)
    return rows


def name_parts(names: FinalNames, since: int) -> tuple[dict[str, bytes], list[str]]:
    """The parts that got a name after a mark, and those that have none any more."""
    new, emptied = names.blocks(since)
    written = {}
    for block in new:
        first = max(block << BLOCK_BITS, names.first)
        rows = names.rows(first, min((block + 1) << BLOCK_BITS, names.next))
        written[f"names/{block}"] = with_mark(first, name_table(rows))
    return written, [f"names/{block}" for block in emptied]


def read_name_parts(
    names: FinalNames, parts: Mapping[str, bytes], end: int, mark: int, kind: StateKind
) -> None:
    """Fill what is empty with the names up to the number `end`."""
    for block in range(names.first >> BLOCK_BITS, -(-end // BLOCK)):
        if names.next == end:
            break
        table = kind.open(part_of(parts, f"names/{block}", kind)).next()
        first = int(header_of(table)["mark"])
        rows = read_names(table)[names.next - first : end - first]
        names.remember(rows[:, : LOW + 1], rows[:, END], mark)
    if f"names/{end >> BLOCK_BITS}" in parts:
        names.reopen(mark)
