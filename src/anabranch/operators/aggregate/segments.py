"""Events of the output before they are written: rows of end points with the next ones."""

from dataclasses import dataclass

import numpy as np

from anabranch.batch.batch import Ints, Mask
from anabranch.operators.aggregate.points import GROUP, SLOTS, TIME, follow


@dataclass(frozen=True, eq=False)
class Lifetimes:
    """The group, start and end of some events of the output."""

    group: Ints
    start: Ints
    end: Ints

    def take(self, at: Ints) -> "Lifetimes":
        """Some of them."""
        return Lifetimes(self.group[at], self.start[at], self.end[at])


@dataclass(frozen=True, eq=False)
class Segments:
    """Rows of end points with what follows each: the end of its event.

    `end` is NEVER_UNITS behind the last point of a group; `end_is_fixed` where an event of the
    input ends there.
    """

    rows: Ints
    end: Ints
    end_is_fixed: Mask

    @classmethod
    def of(cls, rows: Ints, offsets: Ints, after: Ints) -> "Segments":
        """The rows of some runs, with the row behind each run."""
        end, is_fixed = np.empty(len(rows), np.int64), np.empty(len(rows), np.bool_)
        follow(rows, offsets, after, end, is_fixed)
        return cls(rows, end, is_fixed)

    def take(self, at: Ints) -> "Segments":
        """Some of them."""
        return Segments(self.rows[at], self.end[at], self.end_is_fixed[at])

    def events(self, at: Ints) -> tuple[Lifetimes, Ints]:
        """The lifetimes of some of them, and their slots."""
        times = Lifetimes(self.rows[at, GROUP], self.rows[at, TIME], self.end[at])
        return times, self.rows[:, SLOTS:][at]
