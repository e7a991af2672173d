"""What is final on the output, by name only: so that a slow replica's copies are known.

When an event is frozen on the output its payload is freed.  What stays is 32 bytes: the 128-bit
hash of the payload, its start, and its final end (its start, if the deciding replica removed
it).  It is forgotten when every attached replica's own frontier is beyond that end: from then
on a replica that keeps its promises cannot mention it.  So the cost is 32 bytes for each event
between the slowest and the fastest replica, and a silent replica holds it until it is detached.

Two payloads with the same start and the same 128 bits would be taken for one here, and only
here; the price of that accident is an element counted as absorbed instead of late.

Papers: none; LMerge V-C only says that a missing element is not on the output.
"""

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from anabranch.batch.batch import FOREVER_UNITS, Ints, Mask


@dataclass(eq=False)
class Settled:
    """Columns sorted by `high`, the first half of the hash."""

    high: NDArray[np.uint64]
    low: NDArray[np.uint64]
    start: Ints
    end: Ints

    @classmethod
    def nothing(cls) -> "Settled":
        """Nothing is final yet."""
        hashes, times = np.empty(0, np.uint64), np.empty(0, np.int64)
        return cls(hashes, hashes, times, times)

    def __len__(self) -> int:
        return len(self.high)

    def remember(
        self, high: NDArray[np.uint64], low: NDArray[np.uint64], start: Ints, end: Ints
    ) -> None:
        """Add these identities."""
        order = np.argsort(high, kind="stable")
        at = np.searchsorted(self.high, high[order])
        self.high = np.insert(self.high, at, high[order])
        self.low = np.insert(self.low, at, low[order])
        self.start = np.insert(self.start, at, start[order])
        self.end = np.insert(self.end, at, end[order])

    def forget(self, slowest: int) -> None:
        """Drop what no replica may mention, if the slowest of them is at this frontier."""
        keep = (self.end >= slowest) & (slowest != FOREVER_UNITS)
        if not keep.all():
            self.high, self.low = self.high[keep], self.low[keep]
            self.start, self.end = self.start[keep], self.end[keep]

    def knows(self, high: NDArray[np.uint64], low: NDArray[np.uint64], start: Ints) -> Mask:
        """Which of these identities are among ours."""
        found = np.zeros(len(high), np.bool_)
        at = np.searchsorted(self.high, high)
        _scan((self.high, self.low, self.start), (high, low, start), at, found)
        return found

    def check(self) -> None:
        """Assert what must always hold."""
        assert len(self.high) == len(self.low) == len(self.start) == len(self.end), repr(self)
        assert (self.high[:-1] <= self.high[1:]).all(), f"not sorted: {self!r}"
        assert (self.end >= self.start).all(), f"an end before its start: {self!r}"


@njit(cache=True)
def _scan(ours, asked, at, found):  # type: ignore[no-untyped-def]
    """Compare each asked identity with the run of ours that has its first half."""
    high, low, start = ours
    asked_high, asked_low, asked_start = asked
    for i in range(len(at)):
        j = at[i]
        while j < len(high) and high[j] == asked_high[i] and not found[i]:
            found[i] = low[j] == asked_low[i] and start[j] == asked_start[i]
            j += 1
