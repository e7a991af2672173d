"""Promises and what was counted for them: which are complete, and where one is missing.

Promises are intervals that do not overlap, each with the number of elements that it counts.
Elements may come before the promise that counts them: they are counted by their sync time until
it comes.  Nothing is kept of a promise that is complete, if all before it are.

Cost: a search per element in the open promises, and a sort of the sync times of a step.

Papers: CEDR *operators*, 4.6, with errata C19 to C21 and C24.
"""

from typing import Final

import numpy as np
import pyarrow as pa

from anabranch.batch.batch import FOREVER_UNITS, NEVER_UNITS, Ints, Mask
from anabranch.batch.schema import ElementSchema, TimeType
from anabranch.operators.state.codec import column_of, matrix_of, to_table

PROMISES: Final = "promises"
"""The port of promises."""
COUNT: Final = "count"
"""The payload column of a promise."""


def promises_schema(time: TimeType) -> ElementSchema:
    """A promise is an insert: `start`, `end`, and the count as its payload."""
    return ElementSchema(time, pa.schema([(COUNT, pa.int64())]))


START, END, EXPECTED, RECEIVED = range(4)
_COLUMNS = ("start", "end", "expected", "received")


class PromiseBook:
    """Open promises by start, and counts of the sync times that no promise counts yet.

    `done` is how far promises are complete, NEVER_UNITS if none is; `exceeded` is how many
    elements came that promises, which came after them, do not count.
    """

    def __init__(self, origin: int) -> None:
        self.origin = origin
        self.done = int(NEVER_UNITS)
        self.exceeded = 0
        self.open: Ints = np.empty((0, 4), np.int64)
        self.early: Ints = np.empty((0, 2), np.int64)

    def __repr__(self) -> str:
        return f"PromiseBook(done {self.done}, {len(self.open)} open, {len(self.early)} early)"

    @property
    def first(self) -> int:
        """The start of the next promise: nothing before it may come."""
        return self.origin if self.done == NEVER_UNITS else self.done

    @property
    def hole(self) -> tuple[int, int] | None:
        """Where the next promise is missing, although later ones are there."""
        if not len(self.open) or int(self.open[0, START]) == self.first:
            return None
        return self.first, int(self.open[0, START])

    def promise(self, start: Ints, end: Ints, count: Ints) -> Mask:
        """Add promises, in their order; which of them are refused."""
        refused = (end <= start) | (count < 0) | (start < self.first)
        for at in np.flatnonzero(~refused):  # one row per interval of time, not per element
            refused[at] = not self._add(int(start[at]), int(end[at]), int(count[at]))
        return refused

    def _add(self, start: int, end: int, count: int) -> bool:
        at = int(np.searchsorted(self.open[:, START], start))
        if at and self.open[at - 1, END] > start:
            return False
        if at < len(self.open) and self.open[at, START] < end:
            return False
        mine = (self.early[:, 0] >= start) & (self.early[:, 0] < end)
        received = int(self.early[mine, 1].sum())
        self.exceeded += max(0, received - count)
        self.early = self.early[~mine]
        self.open = np.insert(self.open, at, (start, end, count, received), axis=0)
        return True

    def count(self, times: Ints) -> Mask:
        """Count elements by their sync times, in order of arrival; which are refused."""
        refused: Mask = times < self.first
        at = np.searchsorted(self.open[:, START], times, side="right") - 1
        inside = (at >= 0) & ~refused
        inside[inside] = times[inside] < self.open[at[inside], END]
        rows = np.flatnonzero(inside)
        if len(rows):
            refused[rows] = self._count_in(at[rows])
        self._note(times[~inside & ~refused])
        return refused

    def _count_in(self, promise: Ints) -> Mask:
        """Count an element for each of these promises; which are more than it counts."""
        order = np.argsort(promise, kind="stable")
        ordered = promise[order]
        begins = np.flatnonzero(np.diff(ordered, prepend=-1))
        sizes = np.diff(np.append(begins, len(ordered)))
        place = np.arange(len(ordered)) - np.repeat(begins, sizes)
        room = self.open[:, EXPECTED] - self.open[:, RECEIVED]
        refused = np.empty(len(promise), np.bool_)
        refused[order] = place >= room[ordered]
        taken = np.bincount(promise[~refused], minlength=len(self.open))
        self.open[:, RECEIVED] += taken
        return refused

    def _note(self, times: Ints) -> None:
        """Keep these until a promise counts them; no promise counts what changes nothing."""
        times = times[times < FOREVER_UNITS]
        if not len(times):
            return
        found, counts = np.unique(times, return_counts=True)
        every = np.concatenate([self.early, np.stack([found, counts], axis=1)])
        every = every[np.argsort(every[:, 0], kind="stable")]
        begins = np.flatnonzero(np.append(True, every[1:, 0] != every[:-1, 0]))
        sums = np.add.reduceat(every[:, 1], begins)
        self.early = np.stack([every[begins, 0], sums], axis=1)

    def advance(self) -> None:
        """Complete what is complete (C20: also a count of 0, and all that follow)."""
        ends = np.append(self.first, self.open[:, END])
        follows = self.open[:, START] == ends[:-1]
        complete = follows & (self.open[:, RECEIVED] >= self.open[:, EXPECTED])
        count = len(complete) if complete.all() else int(np.argmin(complete))
        if count:
            self.done = int(self.open[count - 1, END])
            self.open = self.open[count:]
            self.early = self.early[self.early[:, 0] >= self.done]

    def tables(self) -> tuple[pa.Table, pa.Table]:
        """As it is saved."""
        early = {"time": self.early[:, 0], "count": self.early[:, 1]}
        header = {"done": str(self.done), "exceeded": str(self.exceeded)}
        columns = {name: self.open[:, at] for at, name in enumerate(_COLUMNS)}
        return to_table(columns, header), to_table(early)

    def read(self, promises: pa.Table, early: pa.Table) -> None:
        """As it was saved."""
        header = {k.decode(): v.decode() for k, v in (promises.schema.metadata or {}).items()}
        self.done, self.exceeded = int(header["done"]), int(header["exceeded"])
        self.open = matrix_of(promises, _COLUMNS)
        self.early = np.stack([column_of(early, n) for n in ("time", "count")], axis=1)

    def check(self) -> None:
        """Assert every invariant."""
        starts, ends = self.open[:, START], self.open[:, END]
        assert (starts < ends).all(), f"a promise is empty: {self.open}"
        assert (starts[1:] >= ends[:-1]).all(), f"promises overlap: {self.open}"
        assert (starts >= self.first).all(), f"promises before {self.first}: {self.open}"
        times = self.early[:, 0]
        assert (times[1:] > times[:-1]).all(), f"times are not sorted: {self.early}"
        is_next = len(self.open) and int(starts[0]) == self.first
        complete = is_next and self.open[0, RECEIVED] >= self.open[0, EXPECTED]
        assert not complete, f"the next promise is complete: {self.open[0]}"
        assert self.done <= FOREVER_UNITS, f"done {self.done} is no time"
