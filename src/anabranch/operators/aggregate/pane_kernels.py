"""The kernels of aggregates by panes: rows of panes, and sums over windows of them.

A row is a pane of a group, in the layout of `points`: GROUP, TIME (the start of the pane) and
the SLOTS of what starts in it; the two columns between them are 0.  All rows are sorted by
group and pane, windows by group and start.
"""

from dataclasses import dataclass

import numpy as np

from anabranch.batch.batch import Ints, Mask
from anabranch.batch.kernel import kernel
from anabranch.model.lifetimes import GridWindows
from anabranch.operators.aggregate.points import ALIVE, GROUP, SLOTS, TIME
from anabranch.operators.lifetimes import round_down


@dataclass(frozen=True)
class Grid:
    """The panes of some windows: a window begins or ends where one pane meets the next.

    So there are at most two panes per slide, also where the size is no multiple of it.
    """

    windows: GridWindows

    @property
    def most(self) -> int:
        """In how many windows a pane is, at most."""
        return -(-self.windows.size // self.windows.slide)

    def panes(self, start: Ints) -> tuple[Ints, Mask]:
        """The pane of each of these times, and whether a window contains it."""
        rule = self.windows
        last: Ints = round_down(start, rule.slide, rule.offset)
        into, rest = start - last, rule.size % rule.slide
        is_second = into >= rest if rest else np.zeros(len(start), np.bool_)
        return last + rest * is_second, into < rule.size

    def first_window(self, pane: Ints) -> Ints:
        """The first window that contains each of these panes."""
        rule = self.windows
        first: Ints = round_down(pane - rule.size, rule.slide, rule.offset) + rule.slide
        return first

    def last_window(self, pane: Ints) -> Ints:
        """The last window that contains each of these panes."""
        last: Ints = round_down(pane, self.windows.slide, self.windows.offset)
        return last

    def containing(self, rows: Ints, low: int, high: int) -> Ints:
        """The windows from `low` to before `high` that contain these panes, once each.

        Rows and windows are (group, start), sorted.
        """
        slide = self.windows.slide
        first = np.maximum(self.first_window(rows[:, TIME]), low)
        last = np.minimum(self.last_window(rows[:, TIME]), high - slide)
        found = np.empty((len(rows) * self.most, 2), np.int64)
        return found[: int(list_windows(rows, first, last, slide, found))]


@kernel
def list_windows(rows: Ints, first: Ints, last: Ints, slide: int, found: Ints) -> int:
    """The windows from the first to the last of each row, those of the row before left out."""
    count = 0
    for i in range(first.size):
        begin = first[i]
        # Panes that follow one another share windows: each is listed once.
        if count > 0 and found[count - 1, 0] == rows[i, GROUP]:
            begin = max(begin, found[count - 1, 1] + slide)
        while begin <= last[i]:
            found[count, 0], found[count, 1] = rows[i, GROUP], begin
            count += 1
            begin += slide
    return count


@kernel
def add_panes(group: Ints, pane: Ints, sign: Ints, slots: Ints, order: Ints, out: Ints) -> int:
    """One row per group and pane with the sum of its elements, if that is not 0; their number.

    `order` sorts the elements by group and pane.
    """
    count = -1
    for k in range(order.size):
        i = order[k]
        if count < 0 or out[count, GROUP] != group[i] or out[count, TIME] != pane[i]:
            count += 1
            # The pane before is complete: if it adds up to nothing, its row is used again.
            if count > 0:
                is_news = False
                for j in range(slots.shape[1]):
                    is_news = is_news or out[count - 1, SLOTS + j] != 0
                count -= 0 if is_news else 1
            for j in range(out.shape[1]):
                out[count, j] = 0
            out[count, GROUP], out[count, TIME] = group[i], pane[i]
        for j in range(slots.shape[1]):
            out[count, SLOTS + j] += sign[i] * slots[i, j]
    if count < 0:
        return 0
    for j in range(slots.shape[1]):
        if out[count, SLOTS + j] != 0:
            return count + 1
    return count


@kernel
def merge_panes(
    old: Ints, old_runs: Ints, some: Ints, some_runs: Ints, new: Ints, new_runs: Ints
) -> int:
    """Changes `some` added to rows, run by run; the first that takes too much, or -1.

    A pane of which nothing is left has no row.
    """
    written = 0
    for run in range(old_runs.size - 1):
        i, last_i = old_runs[run], old_runs[run + 1]
        j, last_j = some_runs[run], some_runs[run + 1]
        while i < last_i or j < last_j:
            is_old, is_change = i < last_i, j < last_j
            if is_old and is_change:
                apart = old[i, GROUP] - some[j, GROUP]
                if apart == 0:
                    apart = old[i, TIME] - some[j, TIME]
                is_old, is_change = apart <= 0, apart >= 0
            for k in range(new.shape[1]):
                new[written, k] = old[i, k] if is_old else some[j, k]
            if is_old and is_change:
                for k in range(SLOTS, new.shape[1]):
                    new[written, k] += some[j, k]
            # More rows taken away than were there: an adjust without its event.
            if new[written, ALIVE] < 0:
                return int(j)
            written += 1 if new[written, ALIVE] > 0 else 0
            i += 1 if is_old else 0
            j += 1 if is_change else 0
        new_runs[run + 1] = written
    return -1


@kernel
def sum_windows(rows: Ints, windows: Ints, size: int, total: Ints, out: Ints) -> None:
    """The sum of the panes of each window: what comes is added, what leaves subtracted.

    `total` is a row of slots that are 0.
    """
    low, high = 0, 0
    for i in range(windows.shape[0]):
        group, begin = windows[i, 0], windows[i, 1]
        # Both edges only rise, so each pane is added once and subtracted once. Slots are whole
        # numbers: subtracting loses nothing.
        while high < rows.shape[0] and (
            rows[high, GROUP] < group
            or (rows[high, GROUP] == group and rows[high, TIME] < begin + size)
        ):
            for k in range(total.size):
                total[k] += rows[high, SLOTS + k]
            high += 1
        while low < high and (
            rows[low, GROUP] < group or (rows[low, GROUP] == group and rows[low, TIME] < begin)
        ):
            for k in range(total.size):
                total[k] -= rows[low, SLOTS + k]
            low += 1
        for k in range(total.size):
            out[i, k] = total[k]


@kernel
def first_panes(
    rows: Ints, order: Ints, size: Ints, chunk: int, groups: Ints, places: Ints, found: Ints
) -> None:
    """The first pane of each group that has one; `places` are the chunks for (group, NEVER)."""
    for k in range(groups.size):
        place = places[k]
        low, high = 0, size[order[place]]
        while low < high:
            middle = (low + high) // 2
            if rows[order[place] * chunk + middle, GROUP] < groups[k]:
                low = middle + 1
            else:
                high = middle
        # The group begins in this chunk or at the beginning of the next one.
        if low == size[order[place]]:
            place, low = place + 1, 0
        if place < order.size:
            row = order[place] * chunk + low
            if rows[row, GROUP] == groups[k]:
                found[k] = rows[row, TIME]
