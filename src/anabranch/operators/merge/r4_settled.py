"""What is final on the output, by name only: so that a slow replica's copies are known.

When all events of an identity are frozen on the output its payload is freed.  What stays is its
name (the 128-bit hash of the payload and its start) and its last end (its start, if the
deciding replica removed all).  It is forgotten when every attached replica's own frontier is
beyond that end: from then on a replica that keeps its promises cannot mention it.  A silent
replica holds the names until it is detached.

What a stable makes final ends between the old frontier and the new one, so later ones end
later: the rows are sorted by end, and forgetting takes from their front.

Known by identity, not by event: a further copy of an identity that is final counts as absorbed.
Two payloads with the same start and the same 128 bits would be taken for one here, and only
here.

Papers: none; LMerge V-C only says that a missing element is not on the output.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from anabranch.batch.batch import FOREVER_UNITS, Ints
from anabranch.batch.store import grown
from anabranch.operators.merge.r4_lists import ABSENT
from anabranch.operators.merge.slots import LOW, START, Asked, Slots

END: Final = LOW + 1


class Settled:
    """Names and ends, sorted by end; ids count from the beginning and are never used again."""

    def __init__(self) -> None:
        self._slots = Slots()
        self._rows: Ints = np.empty((0, END + 1), np.int64)
        self._base = self._first = self._next = 0

    def __len__(self) -> int:
        return self._next - self._first

    def __repr__(self) -> str:
        return f"Settled({len(self)} names)"

    @property
    def rows(self) -> Ints:
        """START, HIGH, LOW and END of all; a view."""
        return self._rows[self._first - self._base : self._next - self._base]

    def remember(self, names: Ints, end: Ints) -> None:
        """Add these names (START, HIGH, LOW); none ends before what is here."""
        count, order = len(end), np.argsort(end, kind="stable")
        if self._first - self._base > len(self):
            # What was forgotten makes room: more of it than of what moves.
            self._rows = self.rows.copy()
            self._base = self._first
        used = self._next - self._base
        self._rows = grown(self._rows, used + count)
        self._rows[used : used + count, :END] = names[order]
        self._rows[used : used + count, END] = end[order]
        ids = np.arange(self._next, self._next + count)
        self._slots.make_room(count, self._rows, base=self._base)
        self._slots.put(ids, self._rows, base=self._base)
        self._next += count

    def forget(self, slowest: int) -> None:
        """Drop what no replica may mention, if the slowest of them is at this frontier."""
        ends = self.rows[:, END]
        gone = len(ends) if slowest == FOREVER_UNITS else int(np.searchsorted(ends, slowest))
        if gone:
            ids = np.arange(self._first, self._first + gone)
            self._slots.remove(ids, self._rows, base=self._base)
            self._first += gone

    def ends(self, start: Ints, hashes: NDArray[np.uint64]) -> Ints:
        """The end of each of these names, ABSENT if it is not among ours."""
        asked = Asked(start, hashes, np.zeros(len(start), np.bool_), np.empty(0, np.int64))
        _, found = self._slots.search(asked, np.arange(len(start)), self._rows, base=self._base)
        ends = np.full(len(start), ABSENT, np.int64)
        ends[found] = self._rows[asked.id[found] - self._base, END]
        return ends

    def check(self) -> None:
        """Assert what must always hold."""
        rows = self.rows
        assert len(rows) == len(self) == len(self._slots), repr(self)
        assert (rows[:-1, END] <= rows[1:, END]).all(), f"not sorted: {self!r}"
        assert (rows[:, END] >= rows[:, START]).all(), f"an end before its start: {self!r}"
        self._slots.check(self._rows, base=self._base)
