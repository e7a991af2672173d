"""Groups of identities by their starts, of which the first that is open blocks the others.

Groups that start before the frontier stand in a line, by start.  A look begins in front and
ends at the first group that has an event which is not frozen; the rest is not looked at.
Entries of groups that are gone are skipped when they are reached.
"""

from typing import Final

import numpy as np

from anabranch.batch.batch import FOREVER_UNITS, NEVER_UNITS, Ints
from anabranch.batch.index import START
from anabranch.operators.state.events import FLAGS, LIVE
from anabranch.operators.state.groups import Groups

_END: Final = 1
_LOOK: Final = 256
"""Groups of the line that are looked at first; twice as many each further time."""


class Line:
    """Groups by identity whose events have start and end in front; each is due at its start."""

    def __init__(self, groups: Groups) -> None:
        self.groups = groups
        self._entries: Ints = np.empty((0, 2), np.int64)

    def __repr__(self) -> str:
        return f"Line({len(self)} entries)"

    def __len__(self) -> int:
        return len(self._entries)

    def due(self, groups: Ints, frontier: int) -> Ints:
        """When each of these is due, for `Groups.write`; what is in the line already is not."""
        start = self.groups.table.rows[groups, START]
        due: Ints = np.where(start >= frontier, start, FOREVER_UNITS)
        return due

    def advance(self, frontier: int) -> int:
        """Let what the frontier has passed stand in the line; how many these are."""
        due = self.groups.pop_due(frontier)
        if frontier == FOREVER_UNITS:
            self._entries = self._entries[:0]
        start = self.groups.table.rows[due, START]
        order = np.argsort(start, kind="stable")
        # It starts behind all that is in the line: that had passed an earlier frontier.
        more = np.stack([start[order], due[order]], axis=1)
        self._entries = np.concatenate([self._entries, more])
        return len(due)

    def take_ready(self, frontier: int) -> tuple[Ints, int]:
        """The groups before the first open one, which leave, and its start or the frontier."""
        if frontier == FOREVER_UNITS:
            every, self._entries = self._entries[:, 1], self._entries[:0]
            return every, FOREVER_UNITS
        looked, size = 0, _LOOK
        while looked < len(self._entries):
            some = self._entries[looked : looked + size]
            is_open = self._ends(some) >= frontier
            if is_open.any():
                bound = int(some[np.argmax(is_open), 0])
                break
            looked, size = looked + len(some), 2 * size
        else:
            bound = frontier
        count = int(np.searchsorted(self._entries[:, 0], bound))
        ready, self._entries = self._entries[:count], self._entries[count:]
        groups: Ints = ready[self._ends(ready) > NEVER_UNITS, 1]
        return groups, bound

    def _ends(self, entries: Ints) -> Ints:
        """The last end of each of these groups, NEVER_UNITS if it is not there any more."""
        rows, ids = self.groups.table.rows, entries[:, 1]
        there = (rows[ids, FLAGS] & LIVE != 0) & (rows[ids, START] == entries[:, 0])
        ends = np.full(len(entries), NEVER_UNITS, np.int64)
        group, events = self.groups.read(ids[there])
        first = np.flatnonzero(np.diff(group, prepend=-1))
        if len(first):
            ends[there] = np.maximum.reduceat(events[:, _END], first)
        return ends

    def restore(self, frontier: int) -> None:
        """As it follows from groups that were restored; the others are due at their start."""
        ids = self.groups.table.living()
        start = self.groups.table.rows[ids, START]
        passed = start < frontier
        line = np.stack([start, ids], axis=1)[passed]
        self._entries = line[np.argsort(line[:, 0], kind="stable")]
        self.groups.schedule(ids[~passed], start[~passed])

    def check(self, frontier: int) -> None:
        """Assert every invariant."""
        line = self._entries[:, 0]
        assert (np.diff(line) >= 0).all(), f"starts of the line are not sorted: {line}"
        start = self.groups.table.rows[self.groups.table.living(), START]
        passed = start[start < frontier]
        assert np.isin(passed, line).all(), f"starts {passed} are not all in the line {line}"
