"""The numbers that were consumed, as ranges: in any order, with gaps.

A set of numbers that grow by one has one range, whatever the order in which they came.

>>> seen = SeqSet()
>>> seen.take(np.array([3, 1, 2, 2])).tolist(), seen.take(np.array([7, 2])).tolist()
([True, True, True, False], [True, False])
>>> seen.ranges.tolist()
[[1, 3], [7, 7]]
"""

import numpy as np

from anabranch.batch.batch import Ints, Mask


class SeqSet:
    """Numbers, as ranges from first to last, by first."""

    def __init__(self) -> None:
        self.ranges: Ints = np.empty((0, 2), np.int64)

    def __repr__(self) -> str:
        return f"SeqSet({len(self.ranges)} ranges)"

    def take(self, numbers: Ints) -> Mask:
        """Add these; which of them are new, the first of equal ones only."""
        order = np.argsort(numbers, kind="stable")
        ordered = numbers[order]
        is_first = np.ones(len(ordered), np.bool_)
        is_first[1:] = ordered[1:] != ordered[:-1]
        news = np.empty(len(numbers), np.bool_)
        news[order] = is_first & ~self._holds(ordered)
        self._add(ordered[news[order]])
        return news

    def _holds(self, numbers: Ints) -> Mask:
        if not len(self.ranges):
            return np.zeros(len(numbers), np.bool_)
        at = np.searchsorted(self.ranges[:, 0], numbers, side="right") - 1
        found: Mask = (at >= 0) & (numbers <= self.ranges[np.maximum(at, 0), 1])
        return found

    def _add(self, numbers: Ints) -> None:
        """Add numbers that are not there, ascending."""
        if not len(numbers):
            return
        every = np.concatenate([self.ranges, np.stack([numbers, numbers], axis=1)])
        every = every[np.argsort(every[:, 0], kind="stable")]
        begins = np.ones(len(every), np.bool_)
        begins[1:] = every[1:, 0] > every[:-1, 1] + 1
        first = np.flatnonzero(begins)
        last = np.append(first[1:], len(every)) - 1
        self.ranges = np.stack([every[first, 0], every[last, 1]], axis=1)
