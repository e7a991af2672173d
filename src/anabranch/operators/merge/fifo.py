"""Numbers that wait in line: added behind, taken in front, each moved at most once on the way.

>>> line = Fifo()
>>> line.append(np.array([4, 5, 6]))
>>> line.drop(1)
>>> line.front(2).tolist(), len(line)
([5, 6], 2)
"""

import numpy as np

from anabranch.batch.batch import Ints
from anabranch.batch.store import grown


class Fifo:
    """A line of numbers."""

    def __init__(self) -> None:
        self._items: Ints = np.empty(0, np.int64)
        self._head = 0
        self._tail = 0

    def __len__(self) -> int:
        return self._tail - self._head

    @property
    def nbytes(self) -> int:
        """What the array takes."""
        return self._items.nbytes

    def front(self, count: int) -> Ints:
        """The first ones, as many as there are; a view."""
        return self._items[self._head : min(self._head + count, self._tail)]

    def append(self, numbers: Ints) -> None:
        """Add these behind the last one."""
        tail = self._tail + len(numbers)
        if tail > len(self._items) and self._head > len(self):
            # Taken ones make room: more of them than of those that move.
            waiting = self.front(len(self)).copy()
            self._items[: len(waiting)] = waiting
            self._head, self._tail = 0, len(waiting)
            tail = self._tail + len(numbers)
        self._items = grown(self._items, tail)
        self._items[self._tail : tail] = numbers
        self._tail = tail

    def drop(self, count: int) -> None:
        """Take the first ones out."""
        self._head += count
