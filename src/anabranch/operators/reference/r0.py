"""Merge for case R0, one element at a time: the reference that the kernel is raced against.

For replicas that only insert, with starts that increase: a start names at most one event.  What
is remembered is the last event of the output and nothing else.

The paper's rule is `start > current`.  Added: an insert behind the output's own frontier is
dropped (erratum L5; it needs a gap), and a copy of the last event is told from another event
with the same start, which means that the replicas do not agree.

Detected: adjusts, starts of one replica that do not increase, inserts behind its own stable,
another event at the current start.  Not detected: gaps, and disagreement behind the current
start.

Papers: LMerge IV-A, Algorithm R0 (MaxVs is `current`).

>>> from anabranch.model.element import Stable
>>> merge = MergeR0()
>>> merge.push("east", Insert("a", 3, 9)).output
(Insert(payload='a', start=3, end=9),)
>>> merge.push("west", Insert("a", 3, 9)).reason
<Reason.KNOWN: (2, <Bucket.ABSORBED: 1>, 'the output has this event already')>
>>> merge.push("west", Stable(8)).output
(Stable(time=8),)
"""

from anabranch.model.element import Event, Insert
from anabranch.operators.contract import Reason
from anabranch.operators.reference.ordered import OrderedMerge, Source


class MergeR0(OrderedMerge):
    """The reference merge of case R0."""

    starts_increase = True

    def __init__(self, *, stable_lag: int = 0, promote: bool = False) -> None:
        super().__init__(stable_lag=stable_lag, promote=promote)
        self.last: Event | None = None

    def _take(self, e: Insert, source: Source) -> Reason:  # noqa: ARG002 - R0 asks nobody
        if e.start < self.current:
            return Reason.PASSED
        if e.start == self.current:
            return Reason.KNOWN if e.event == self.last else Reason.OTHER_EVENT
        if e.start < self.frontier:
            return Reason.LATE
        self._open(e.start)
        self.last = e.event
        return Reason.FIRST
