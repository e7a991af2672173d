"""A heap of due times: what a stable must look at is found without a look at anything else.

`pop_before(t)` gives the ids that were pushed with a time before t, each as often as it was
pushed, the earliest first; everything else stays.  The heap knows nothing of what an id means:
whoever pops must ask whether the id is still there and still due (entries are not taken back,
and an id that was given away again may come twice), and may `rebuild` the heap from what is
true when too many entries are stale.

`operations` counts pushes and pops: what a step costs, whatever the machine.

>>> due = Due()
>>> due.push(np.array([7, 3, 5]), np.array([0, 1, 2]))
>>> due.pop_before(7).tolist(), len(due)
([1, 2], 1)
"""

from typing import Any, Final

import numpy as np

from anabranch.batch.batch import Ints
from anabranch.batch.kernel import frozen_rows, kernel
from anabranch.batch.store import grown

# Children of a node: the times of four are in one cache line, and the heap half as deep.
_CHILDREN: Final = 4
_POPPED_AT_ONCE: Final = 4_096


class Due:
    """Ids by the time at which they are due."""

    def __init__(self) -> None:
        self._times = np.empty(0, np.int64)
        self._ids = np.empty(0, np.int64)
        self._count = 0
        self.operations = 0

    def __len__(self) -> int:
        return self._count

    def __repr__(self) -> str:
        return f"Due({self._count} entries)"

    @property
    def nbytes(self) -> int:
        """What the arrays take."""
        return self._times.nbytes + self._ids.nbytes

    @property
    def entries(self) -> tuple[Ints, Ints]:
        """The times and the ids of all entries, in no order; views."""
        return self._times[: self._count], self._ids[: self._count]

    def push(self, times: Ints, ids: Ints) -> None:
        """Add these ids, each with its time."""
        if not len(ids):
            return
        count = self._count + len(ids)
        self._times, self._ids = grown(self._times, count), grown(self._ids, count)
        push_all(self._times, self._ids, self._count, frozen_rows(times), frozen_rows(ids))
        self._count = count
        self.operations += len(ids)

    def pop_before(self, time: int) -> Ints:
        """Take out every entry with a time before this one."""
        popped: list[Ints] = []
        while self._count and self._times[0] < time:
            some = np.empty(min(self._count, _POPPED_AT_ONCE), np.int64)
            count = int(pop_some(self._times, self._ids, self._count, np.int64(time), some))
            self._count -= count
            popped.append(some[:count])
        ids = np.concatenate(popped) if popped else np.empty(0, np.int64)
        self.operations += len(ids)
        return ids

    def rebuild(self, times: Ints, ids: Ints) -> None:
        """Only these entries, each once."""
        order = np.lexsort((ids, times))
        times, ids = times[order], ids[order]
        first = np.ones(len(ids), np.bool_)
        first[1:] = (times[1:] != times[:-1]) | (ids[1:] != ids[:-1])
        # What is sorted is a heap.
        self._times, self._ids = times[first], ids[first]
        self._count = len(self._ids)

    def check(self) -> None:
        """Assert what must always hold: nothing is due before what is above it."""
        above = (np.arange(1, self._count) - 1) // _CHILDREN
        times = self._times[: self._count]
        assert (times[above] <= times[1:]).all(), f"not a heap: {self!r}"


@kernel
def push_all(times: Any, ids: Any, count: Any, new_times: Any, new_ids: Any) -> None:
    """Add entries to the first `count`; there is room."""
    for k in range(new_ids.size):
        time = new_times[k]
        at = count + k
        while at > 0:
            above = (at - 1) // _CHILDREN
            if times[above] <= time:
                break
            times[at], ids[at] = times[above], ids[above]
            at = above
        times[at], ids[at] = time, new_ids[k]


@kernel
def pop_some(times: Any, ids: Any, count: Any, before: Any, popped: Any) -> Any:
    """Take ids that are due out of the first `count`, as many as there is room for."""
    taken = 0
    while taken < popped.size and count > 0 and times[0] < before:
        popped[taken] = ids[0]
        taken += 1
        count -= 1
        time, last = times[count], ids[count]
        at = 0
        while True:
            child = _CHILDREN * at + 1
            if child >= count:
                break
            for other in range(child + 1, min(child + _CHILDREN, count)):
                if times[other] < times[child]:
                    child = other
            if times[child] >= time:
                break
            times[at], ids[at] = times[child], ids[child]
            at = child
        times[at], ids[at] = time, last
    return taken
