"""The kernels of emission: which pieces of the rows of end points an output shows.

A *piece* is a row's event, or a part of it between two neighbouring times of a grid: an index
of a row, a start and an end.  Pieces come in the order of rows.

`how` is AT_ONCE, ORDERED or PASSED.  `passed` is how far time has passed for the group of each
row, `until` how far an event without end is cut.  `every` is the distance of the grid, 0 for
none.  The meaning of all of them is in `anabranch.model.emission`.
"""

from typing import Final

import numpy as np

from anabranch.batch.batch import FOREVER_UNITS, NEVER_UNITS, Ints, Mask
from anabranch.batch.kernel import kernel, part
from anabranch.operators.aggregate.points import ALIVE, GROUP, STARTS, TIME, next_multiple

AT_ONCE: Final = 0
ORDERED: Final = 1
PASSED: Final = 2

_NO_MORE: Final = -1


@part
def piece_end(begin: np.int64, end: np.int64, until: np.int64, every: int) -> np.int64:
    """Where the piece that begins there ends: at the next time on the grid, or at the end."""
    if every > 0:
        grid = next_multiple(begin, every)
        if grid < end and (end < FOREVER_UNITS or grid <= until):
            return grid
    return end


@kernel
def list_pieces(
    rows: Ints,
    end: Ints,
    passed: Ints,
    until: Ints,
    how: int,
    every: int,
    most: int,
    found: Ints,
) -> int:
    """Lists pieces (row, start, end) if there is room; how many, or -1 for more than `most`."""
    count = 0
    for i in range(end.size):
        if rows[i, ALIVE] == 0 or end[i] == NEVER_UNITS:
            continue
        begin = rows[i, TIME]
        if how == ORDERED and begin > passed[i]:
            continue
        while begin < end[i]:
            stop = piece_end(begin, end[i], until[i], every)
            is_open = stop > passed[i] and how != AT_ONCE
            if is_open and how == PASSED:
                break
            if found.shape[0] > 0:
                found[count, 0], found[count, 1] = i, begin
                found[count, 2] = FOREVER_UNITS if is_open else stop
            count += 1
            if count > most:
                return _NO_MORE
            if is_open:
                break
            begin = stop
    return count


@kernel
def mark_same(
    old: Ints,
    old_limits: Ints,
    new: Ints,
    new_limits: Ints,
    touched: Ints,
    how: int,
    is_same: tuple[Mask, Mask],
) -> None:
    """Marks the rows of which the output shows the same before and after.

    `limits` are the end, `passed` and `until` of each row, in columns.
    """
    i, j = 0, 0
    is_same_old, is_same_new = is_same
    while i < old.shape[0] and j < new.shape[0]:
        if old[i, GROUP] != new[j, GROUP]:
            is_old, is_new = old[i, GROUP] < new[j, GROUP], old[i, GROUP] > new[j, GROUP]
        else:
            is_old = old[i, TIME] <= new[j, TIME]
            is_new = old[i, TIME] >= new[j, TIME]
        if is_old and is_new and touched[j] == 0 and old_limits[i, 0] == new_limits[j, 0]:
            end = old_limits[i, 0]
            same_time = old_limits[i, 1] == new_limits[j, 1]
            if end < FOREVER_UNITS:
                is_over = end <= old_limits[i, 1] and end <= new_limits[j, 1]
                same = how == AT_ONCE or same_time or is_over
            else:
                same = same_time and old_limits[i, 2] == new_limits[j, 2]
            is_same_old[i] = is_same_new[j] = same
        i += 1 if is_old else 0
        j += 1 if is_new else 0


@part
def is_next(rows: Ints, i: int, time: int) -> bool:
    """Whether the next row is the end point at this time of the same group."""
    if i + 1 >= rows.shape[0]:
        return False
    return bool(rows[i + 1, GROUP] == rows[i, GROUP] and rows[i + 1, TIME] == time)


@kernel
def advance(rows: Ints, end: Ints, frontier: int, every: int, stays: Mask) -> None:
    """Moves the first row of each group to the last time on the grid that is not later.

    A row whose event ends there leaves: it is final, for whatever is alive at a time on the
    grid is cut there.  So that the end point does not go with the events that have made it,
    the next row gets one reference more.
    """
    grid = (frontier // every) * every
    for i in range(end.size):
        if rows[i, ALIVE] == 0 or rows[i, TIME] >= grid or not stays[i]:
            continue
        if end[i] > grid:
            rows[i, TIME] = grid
        elif end[i] == grid == frontier and is_next(rows, i, grid):
            rows[i + 1, STARTS] += 1
            stays[i] = False
