"""The net change of a join: rows that add up, as the fewest elements, in order.

A row is (left payload, right payload or NONE, start, end, times).  `times` is the number of
events that come, negative for those that go.  Rows of one identity cancel each other; what is
left of them is paired by ends: the smallest end that goes with the smallest that comes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from anabranch.batch.batch import Ints, Mask
from anabranch.batch.kernel import frozen, kernel
from anabranch.batch.stable_order import stable_order

_LEFT: Final = 0
_RIGHT: Final = 1
_START: Final = 2
_END: Final = 3
_TIMES: Final = 4

# As many rows of one time are sorted one by one.
_FEW: Final = 32


@dataclass(frozen=True, eq=False)
class Net:
    """Adjusts (left, right, start, old end, end), and inserts (left, right, start, end)."""

    adjusts: Ints
    inserts: Ints


def net_of(rows: Ints, left_size: int, right_size: int) -> Net:
    """What these rows add up to; payload numbers are below the sizes."""
    negative = rows[:, _TIMES] < 0
    if not negative.any():
        return Net(np.empty((0, 5), np.int64), _repeated(rows))
    some = _may_cancel(rows, negative, left_size, right_size)
    plain = _repeated(rows[~some])
    rows = rows[some]
    order = np.lexsort((rows[:, _END], rows[:, _START], rows[:, _RIGHT], rows[:, _LEFT]))
    rows = rows[order]
    most = int(np.abs(rows[:, _TIMES]).sum())
    adjusts, inserts = np.empty((most, 5), np.int64), np.empty((most, 4), np.int64)
    scratch = np.empty((2, most), np.int64)
    adjusted, inserted = add_up(frozen(rows), adjusts, inserts, scratch)
    return Net(adjusts[: int(adjusted)], np.concatenate([plain, inserts[: int(inserted)]]))


def _repeated(rows: Ints) -> Ints:
    """Rows that only add, as inserts."""
    times = rows[:, _TIMES]
    if len(rows) and int(times.max()) > 1:
        rows = np.repeat(rows, times, axis=0)
    return rows[:, :_TIMES]


def _may_cancel(rows: Ints, negative: Mask, left_size: int, right_size: int) -> Mask:
    """The rows whose two payloads are both in rows that take away: few, in most steps."""
    # A row without right payload has number -1: the last place.
    left, right = np.zeros(left_size, np.bool_), np.zeros(right_size + 1, np.bool_)
    left[rows[negative, _LEFT]] = True
    right[rows[negative, _RIGHT]] = True
    some: Mask = left[rows[:, _LEFT]] & right[rows[:, _RIGHT]]
    return some


@kernel
def add_up(rows: Ints, adjusts: Ints, inserts: Ints, scratch: Ints) -> tuple[int, int]:
    """Fills adjusts and inserts from rows sorted by identity and end; how many of each."""
    adjusted, inserted, i = 0, 0, 0
    while i < rows.shape[0]:
        first, extra, lack = i, 0, 0
        while (
            i < rows.shape[0]
            and rows[i, _LEFT] == rows[first, _LEFT]
            and rows[i, _RIGHT] == rows[first, _RIGHT]
            and rows[i, _START] == rows[first, _START]
        ):
            end, times = rows[i, _END], 0
            while (
                i < rows.shape[0]
                and rows[i, _LEFT] == rows[first, _LEFT]
                and rows[i, _RIGHT] == rows[first, _RIGHT]
                and rows[i, _START] == rows[first, _START]
                and rows[i, _END] == end
            ):
                times += rows[i, _TIMES]
                i += 1
            # Each end as often as events lost it, or gained it.
            for _ in range(-times):
                scratch[0, extra] = end
                extra += 1
            for _ in range(times):
                scratch[1, lack] = end
                lack += 1
        # Pair them: an event that is gone becomes one that is new; without a partner it is
        # removed.
        for k in range(extra):
            for column in range(3):
                adjusts[adjusted, column] = rows[first, column]
            adjusts[adjusted, 3] = scratch[0, k]
            adjusts[adjusted, 4] = scratch[1, k] if k < lack else rows[first, _START]
            adjusted += 1
        for k in range(extra, lack):
            for column in range(3):
                inserts[inserted, column] = rows[first, column]
            inserts[inserted, 3] = scratch[1, k]
            inserted += 1
    return adjusted, inserted


def in_order(time: Ints, names: Callable[[Ints], Ints]) -> Ints:
    """The rows by time; of equal times by the names of rows, so that numbers do not decide."""
    order = stable_order(time)
    tied = np.diff(time[order]) == 0
    at = np.flatnonzero(np.append(tied, False) | np.append(False, tied))
    if len(at):
        some = order[at]
        times, words = time[some], names(some)
        if not sort_ties(frozen(times), words, some):
            some = some[np.lexsort((words, times))]
        order[at] = some
    return order


@kernel
def sort_ties(times: Ints, words: Ints, rows: Ints) -> bool:
    """Sort rows of equal times by their words, in place; false if too many are of one time.

    Most ties are of a few rows, which are in order after a few steps.
    """
    first = 0
    for k in range(1, times.size):
        if times[k] != times[first]:
            first = k
        elif k - first >= _FEW:
            return False
    first = 0
    for k in range(1, times.size):
        if times[k] != times[first]:
            first = k
            continue
        word, row, at = words[k], rows[k], k
        while at > first and words[at - 1] > word:
            words[at], rows[at] = words[at - 1], rows[at - 1]
            at -= 1
        words[at], rows[at] = word, row
    return True
