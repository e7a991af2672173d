"""Merge for case R1, one element at a time: the reference that the kernel is raced against.

For replicas that only insert, with starts that never decrease.  Of the current start it keeps
how often each event is on the output, and how often each replica brought it:

    an insert goes to the output when its replica has the event more often than the output.

The paper compares positions instead (the k-th insert of a start is taken to be the same in all
replicas), which doubles and loses events if a replica has a gap among equal starts (erratum
L6), leaves (L7) or joins (L9).  By counting events it needs no order among equal starts: this
is also R2 without keys, the relaxation that the paper leaves out.  What was emitted is counted
apart from what replicas said, and a replica begins with nothing at every attachment (L7).

Detected: adjusts, starts of one replica that decrease, inserts behind its own stable.  Not
detected: gaps, and replicas that disagree.  A replica that leaves out one of two equal events
and brings the other is taken to have brought the first.

Papers: LMerge IV-B, Algorithm R1 (MaxVs is `current`, SameVsCount is `said` and `emitted`).

>>> merge = MergeR1()
>>> for replica, payload in [("east", "b"), ("west", "a"), ("west", "b"), ("west", "b")]:
...     print(merge.push(replica, Insert(payload, 1, 2)).output)
(Insert(payload='b', start=1, end=2),)
(Insert(payload='a', start=1, end=2),)
()
(Insert(payload='b', start=1, end=2),)
"""

from collections import Counter

from anabranch.model.element import Event, Insert
from anabranch.operators.contract import Reason
from anabranch.operators.reference.ordered import OrderedMerge, Source


class MergeR1(OrderedMerge):
    """The reference merge of case R1."""

    def __init__(self, *, stable_lag: int = 0, promote: bool = False) -> None:
        super().__init__(stable_lag=stable_lag, promote=promote)
        self.emitted: Counter[Event] = Counter()

    def _take(self, e: Insert, source: Source) -> Reason:
        if e.start < self.current:
            return Reason.PASSED
        if e.start > self.current:
            if e.start < self.frontier:
                return Reason.LATE
            self._open(e.start)
            self.emitted.clear()
        is_new = source.said[e.event] >= self.emitted[e.event]
        if is_new and e.start < self.frontier:
            return Reason.LATE
        source.said[e.event] += 1
        if is_new:
            self.emitted[e.event] += 1
            return Reason.FIRST
        return Reason.KNOWN
