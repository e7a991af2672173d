"""The kernels of normalise: events to nested runs, and the difference of two bags of runs.

Everything is sorted by (group, start); a group is a payload.
"""

from dataclasses import dataclass

import numpy as np

from anabranch.batch.batch import Ints, Mask
from anabranch.batch.kernel import frozen, kernel, part
from anabranch.operators.unary_judge import order_by


@dataclass(frozen=True, eq=False)
class Runs:
    """Runs as columns, by group and start; of runs that start together the longest first."""

    group: Ints
    start: Ints
    end: Ints

    def __len__(self) -> int:
        return len(self.group)

    def take(self, rows: Ints | Mask | slice) -> "Runs":
        """Some of them, in their order."""
        return Runs(self.group[rows], self.start[rows], self.end[rows])


@dataclass(frozen=True, eq=False)
class Changes:
    """What turns one bag of runs into another: adjusts, then inserts."""

    adjusted: Runs
    old_end: Ints
    inserted: Runs


def runs(group: Ints, start: Ints, end: Ints) -> Runs:
    """For every group and level i one run per stretch in which at least i events are alive.

    The events are sorted by (group, start).
    """
    order = order_by(group, end)
    found = np.empty((4, len(start)), np.int64)
    ends = frozen(group[order]), frozen(end[order])
    count = nest(frozen(group), frozen(start), *ends, found)
    return Runs(*found[:3, : int(count)].copy())


def changes(before: Runs, after: Runs) -> Changes:
    """The fewest changes; where several events start together, smallest ends are paired."""
    adjusts = np.empty((4, len(before)), np.int64)
    inserts = np.empty((3, len(after)), np.int64)
    scratch = np.empty((2, max(len(before), len(after))), np.int64)
    old = frozen(before.group), frozen(before.start), frozen(before.end)
    new = frozen(after.group), frozen(after.start), frozen(after.end)
    adjusted, inserted = compare(*old, *new, adjusts, inserts, scratch)
    group, start, end, old_end = adjusts[:, : int(adjusted)]
    return Changes(Runs(group, start, end), old_end, Runs(*inserts[:, : int(inserted)]))


@kernel
def nest(group: Ints, start: Ints, end_group: Ints, end: Ints, found: Ints) -> int:
    """Pairs starts and ends like brackets; returns how many runs there are (row 3: scratch).

    What goes up and down at one time is no step at all, so fragments that touch are joined.
    """
    count, depth, i, j = 0, 0, 0, 0
    while j < end.size:
        own, now, step = end_group[j], end[j], 0
        # The next point of the group, be it a start or an end.
        if i < start.size and group[i] == own and start[i] < now:
            now = start[i]
        while i < start.size and group[i] == own and start[i] == now:
            step += 1
            i += 1
        while j < end.size and end_group[j] == own and end[j] == now:
            step -= 1
            j += 1
        # Each step up opens a run; the runs are a stack, so the last one opened ends first.
        for _ in range(step):
            found[0, count], found[1, count], found[3, depth] = own, now, count
            count += 1
            depth += 1
        for _ in range(-step):
            depth -= 1
            found[2, found[3, depth]] = now
    return count


@kernel
def compare(
    old_group: Ints,
    old_start: Ints,
    old_end: Ints,
    group: Ints,
    start: Ints,
    end: Ints,
    adjusts: Ints,
    inserts: Ints,
    scratch: Ints,
) -> tuple[int, int]:
    """Fills `adjusts` (group, start, end, old end) and `inserts`; returns how many of each."""
    adjusted, inserted, i, j = 0, 0, 0, 0
    while i < old_group.size or j < group.size:
        if j == group.size or (
            i < old_group.size
            and (
                old_group[i] < group[j]
                or (old_group[i] == group[j] and old_start[i] < start[j])
            )
        ):
            own, now = old_group[i], old_start[i]
        else:
            own, now = group[j], start[j]
        last_i, last_j = i, j
        while i < old_group.size and old_group[i] == own and old_start[i] == now:
            i += 1
        while j < group.size and group[j] == own and start[j] == now:
            j += 1
        # Runs of one group and start: what both have is unchanged, the rest is paired.
        extra, lack = differ(old_end, last_i, i, end, last_j, j, scratch)
        for k in range(extra):
            adjusts[0, adjusted], adjusts[1, adjusted] = own, now
            adjusts[2, adjusted] = scratch[1, k] if k < lack else now
            adjusts[3, adjusted] = scratch[0, k]
            adjusted += 1
        for k in range(extra, lack):
            inserts[0, inserted], inserts[1, inserted] = own, now
            inserts[2, inserted] = scratch[1, k]
            inserted += 1
    return adjusted, inserted


@part
def differ(
    old_end: Ints,
    old_from: int,
    old_to: int,
    end: Ints,
    new_from: int,
    new_to: int,
    scratch: Ints,
) -> tuple[int, int]:
    """The ends that only the old, and only the new events of an identity have, rising."""
    extra, lack = 0, 0
    i, j = old_to - 1, new_to - 1
    while i >= old_from or j >= new_from:
        if j < new_from or (i >= old_from and old_end[i] < end[j]):
            scratch[0, extra] = old_end[i]
            extra += 1
            i -= 1
        elif i < old_from or end[j] < old_end[i]:
            scratch[1, lack] = end[j]
            lack += 1
            j -= 1
        else:
            i -= 1
            j -= 1
    return extra, lack
