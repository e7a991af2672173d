"""Merge for case R2, one element at a time: the reference that the kernel is raced against.

For replicas that only insert, with starts that never decrease, in which (start, payload) names
at most one event; the order among equal starts is free.  Of the current start it keeps the
payloads on the output with their ends, and which of them each replica brought.

The paper's rule is `payload not in hash`.  Added: an insert behind the output's own frontier is
dropped (erratum L5), and a payload that the output has with another end is `late`: the output
keeps its promise that identities are unique, and without adjusts it cannot follow.

Detected: adjusts, starts of one replica that decrease, inserts behind its own stable, and, at
the current start, a second insert of an event by one replica and ends that disagree.  Not
detected: gaps, and all this behind the current start.

Papers: LMerge IV-C, Algorithm R2 (MaxVs is `current`, hash is `emitted`).

>>> merge = MergeR2()
>>> for replica, payload in [("east", "b"), ("west", "a"), ("west", "b"), ("west", "b")]:
...     print(merge.push(replica, Insert(payload, 1, 2)).reason.name)
FIRST
FIRST
KNOWN
SECOND_INSERT
"""

from collections.abc import Hashable

from anabranch.model.element import Insert
from anabranch.model.time import Time
from anabranch.operators.contract import Reason
from anabranch.operators.reference.ordered import OrderedMerge, Source


class MergeR2(OrderedMerge):
    """The reference merge of case R2."""

    def __init__(self, *, stable_lag: int = 0, promote: bool = False) -> None:
        super().__init__(stable_lag=stable_lag, promote=promote)
        self.emitted: dict[Hashable, Time] = {}

    def _take(self, e: Insert, source: Source) -> Reason:
        if e.start < self.current:
            return Reason.PASSED
        if e.start > self.current:
            if e.start < self.frontier:
                return Reason.LATE
            self._open(e.start)
            self.emitted.clear()
        if source.said[e.payload]:
            return Reason.SECOND_INSERT
        is_new = e.payload not in self.emitted
        if is_new and e.start < self.frontier:
            return Reason.LATE
        source.said[e.payload] += 1
        if is_new:
            self.emitted[e.payload] = e.end
            return Reason.FIRST
        return Reason.KNOWN if e.end == self.emitted[e.payload] else Reason.OTHER_EVENT
