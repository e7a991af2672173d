"""End points of groups, with the accumulated slots behind each: the kernels of the aggregate.

A row is an end point of a group's events:

    GROUP, TIME     where it is
    STARTS, ENDS    how many events of the input start, and end, here (erratum C4)
    SLOTS ...       the sum of the slots of the events that are alive up to the next point

So the output's event from a point to the next one has its value in the point's own row.  A step
is a list of *moves*: what changes at a point (references, and slots of what begins to be alive
there).  `apply` walks along the rows from the first to the last move of a stretch and adds the
moves so far; `compare` lists the output events that may be others before and after.
"""

from typing import Final

import numpy as np

from anabranch.batch.batch import ADJUST, FOREVER_UNITS, NEVER_UNITS, Batch, Ints, Mask
from anabranch.batch.kernel import kernel, part

GROUP: Final = 0
TIME: Final = 1
STARTS: Final = 2
ENDS: Final = 3
SLOTS: Final = 4
ALIVE: Final = SLOTS
"""The first slot counts rows."""

NONE: Final = -1


def moves(batch: Batch, group: Ints, slots: Ints) -> tuple[Ints, Ints]:
    """The moves of a batch of inserts and adjusts, sorted by point, and their touches.

    The touches count the elements whose range begins (+1) or ends (-1) at a point: where their
    sum is 0, nothing changes.
    """
    is_adjust = batch.kind == ADJUST
    is_removal = is_adjust & (batch.end == batch.start)
    # An insert is alive from its start on; an adjust changes what is between the two ends.
    first = np.where(is_adjust, batch.old_end, batch.start)
    count, width = len(batch), SLOTS + slots.shape[1]
    found = np.zeros((2 * count, width), np.int64)
    found[:count, GROUP] = found[count:, GROUP] = group
    found[:count, TIME], found[count:, TIME] = first, batch.end
    found[:count, STARTS] = ~is_adjust
    found[:count, ENDS] = -is_adjust.astype(np.int64)
    found[count:, STARTS] = -is_removal.astype(np.int64)
    found[count:, ENDS] = ~is_removal
    found[:count, SLOTS:], found[count:, SLOTS:] = slots, -slots
    touch = np.ones(2 * count, np.int64)
    touch[:count][batch.end < first] = -1
    touch[count:][batch.end >= first] = -1
    order = np.lexsort((found[:, TIME], found[:, GROUP]))
    summed = int(add_up(found, order, touch))
    return found[order[:summed]], touch[order[:summed]]


@kernel
def add_up(rows: Ints, order: Ints, touch: Ints) -> int:
    """Adds moves of one point to the first of them; `order` then has the first ones only."""
    last = -1
    for k in range(order.size):
        row = order[k]
        # Moves of one point become one: the walk in `apply` meets each point once.
        if last >= 0:
            into = order[last]
            if rows[into, GROUP] == rows[row, GROUP] and rows[into, TIME] == rows[row, TIME]:
                for column in range(STARTS, rows.shape[1]):
                    rows[into, column] += rows[row, column]
                touch[into] += touch[row]
                continue
        last += 1
        order[last] = row
    return last + 1


@part
def put(
    new: Ints,
    at: int,
    group: int,
    time: int,
    refs: tuple[np.int64, np.int64],
    slots: Ints,
    total: Ints,
) -> None:
    """Write a point: the slots of a row, and what was added so far."""
    new[at, GROUP], new[at, TIME] = group, time
    new[at, STARTS], new[at, ENDS] = refs
    for k in range(total.size):
        new[at, SLOTS + k] = slots[k] + total[k]


@part
def next_of(
    old: Ints, i: int, last_i: int, some: Ints, j: int, last_j: int
) -> tuple[bool, bool]:
    """Whether the next end point is that of the next row, of the next move, or of both."""
    if i == last_i or j == last_j:
        return i < last_i, j < last_j
    if old[i, GROUP] != some[j, GROUP]:
        is_old = old[i, GROUP] < some[j, GROUP]
        return is_old, not is_old
    return old[i, TIME] <= some[j, TIME], some[j, TIME] <= old[i, TIME]


@kernel
def apply(
    old: Ints,
    old_runs: Ints,
    some: Ints,
    touch: Ints,
    some_runs: Ints,
    scratch: tuple[Ints, Ints],
    new: Ints,
    touched: Ints,
    new_runs: Ints,
) -> int:
    """Moves `some` applied to rows, run by run; returns the first move that cannot be, or -1.

    `scratch` are two rows of slots.  `touched` is 1 for new rows from which on values may be
    others than before.
    """
    before, total = scratch
    written = 0
    for run in range(old_runs.size - 1):
        i, last_i = old_runs[run], old_runs[run + 1]
        j, last_j = some_runs[run], some_runs[run + 1]
        group, level = np.int64(NONE), np.int64(0)
        while i < last_i or j < last_j:
            is_old, is_move = next_of(old, i, last_i, some, j, last_j)
            own = old[i, GROUP] if is_old else some[j, GROUP]
            now = old[i, TIME] if is_old else some[j, TIME]
            # A group begins: nothing is alive before its first point.
            if own != group:
                group, level = own, np.int64(0)
                for k in range(total.size):
                    before[k] = total[k] = 0
            starts, ends = np.int64(0), np.int64(0)
            if is_old:
                starts, ends = old[i, STARTS], old[i, ENDS]
                for k in range(total.size):
                    before[k] = old[i, SLOTS + k]
                i += 1
            if is_move:
                starts += some[j, STARTS]
                ends += some[j, ENDS]
                level += touch[j]
                for k in range(total.size):
                    total[k] += some[j, SLOTS + k]
                # Something was taken away that was never there: an adjust without its event.
                if starts < 0 or ends < 0 or before[0] + total[0] < 0:
                    return int(j)
                j += 1
            # No event begins or ends here any more: the point goes, its neighbour lasts
            # longer.
            if starts + ends > 0:
                put(new, written, own, now, (starts, ends), before, total)
                touched[written] = 1 if level > 0 else 0
                written += 1
        new_runs[run + 1] = written
    return -1


@kernel
def compare(
    old: Ints, old_end: Ints, new: Ints, new_end: Ints, touched: Ints, found: Ints
) -> int:
    """Pairs of rows (old, new; NONE if there is none) whose events may differ; their number."""
    count, i, j = 0, 0, 0
    while i < old_end.size or j < new_end.size:
        is_old, is_new = i < old_end.size, j < new_end.size
        if (
            is_old
            and is_new
            and (old[i, GROUP] != new[j, GROUP] or old[i, TIME] != new[j, TIME])
        ):
            is_old = old[i, GROUP] < new[j, GROUP] or (
                old[i, GROUP] == new[j, GROUP] and old[i, TIME] < new[j, TIME]
            )
            is_new = not is_old
        # The same end, and no move since: the same event.
        if not (is_old and is_new and old_end[i] == new_end[j] and touched[j] == 0):
            found[count, 0] = i if is_old and old[i, ALIVE] > 0 else NONE
            found[count, 1] = j if is_new and new[j, ALIVE] > 0 else NONE
            # A stretch in which nothing is alive is no event, before or afterwards.
            if found[count, 0] != NONE or found[count, 1] != NONE:
                count += 1
        i += 1 if is_old else 0
        j += 1 if is_new else 0
    return count


@part
def next_multiple(time: np.int64, every: int) -> np.int64:
    """The next time on the grid; FOREVER_UNITS if there is none."""
    if time > FOREVER_UNITS - every:
        return np.int64(FOREVER_UNITS)
    return np.int64((time // every + 1) * every)


@kernel
def first_due(
    rows: Ints,
    order: Ints,
    size: Ints,
    chunk: int,
    groups: Ints,
    places: Ints,
    most: int,
    every: int,
    due: Ints,
) -> None:
    """When each group is due: NEVER_UNITS if it has no point.

    That is at its second point, or at its first one if nothing is alive there or `most` is 1;
    earlier if a multiple of `every` comes before it (0: there is no grid).  `places` are those
    of the chunks for (group, NEVER).
    """
    for k in range(groups.size):
        found, place, at, grid = 0, places[k], 0, np.int64(FOREVER_UNITS)
        due[k] = NEVER_UNITS
        while place < order.size and found < most:
            first = order[place] * chunk
            # The group begins in this chunk or at the beginning of the next one.
            low, high = at, size[order[place]]
            while found == 0 and low < high:
                middle = (low + high) // 2
                if rows[first + middle, GROUP] < groups[k]:
                    low = middle + 1
                else:
                    high = middle
            at = low
            if at == size[order[place]]:
                place, at = place + 1, 0
                continue
            row = first + at
            if rows[row, GROUP] != groups[k]:
                break
            due[k] = rows[row, TIME]
            found += 1
            at += 1
            # Nothing is alive from its first point on: that is over when the frontier is
            # there.
            if rows[row, ALIVE] == 0:
                break
            if every > 0 and found == 1:
                grid = next_multiple(rows[row, TIME], every)
        due[k] = min(due[k], grid)


@kernel
def follow(rows: Ints, offsets: Ints, after: Ints, end: Ints, is_fixed: Mask) -> None:
    """Of each row of some runs the end of its event, and whether an event ends there.

    `after` are the rows behind the runs; the end behind the last point of a group is
    NEVER_UNITS.
    """
    for run in range(offsets.size - 1):
        for row in range(offsets[run], offsets[run + 1]):
            if row + 1 < offsets[run + 1]:
                group, time, ends = (
                    rows[row + 1, GROUP],
                    rows[row + 1, TIME],
                    rows[row + 1, ENDS],
                )
            else:
                group, time, ends = after[run, GROUP], after[run, TIME], after[run, ENDS]
            # The point behind ends the event; behind the last point of a group nothing is
            # alive.
            same = group == rows[row, GROUP]
            end[row] = time if same else NEVER_UNITS
            is_fixed[row] = same and ends > 0
