"""Merge for the cases R0, R1 and R2, one element at a time: the reference of the kernel.

For replicas that only insert, in the order of their starts.  The output is ordered too: it has
a *current start*, the greatest start on it, and nothing is inserted behind that.  Each case has
its own rule for what is at the current start (`_take`); all else is common.

* What breaks a promise of its own replica is a violation and changes nothing: an adjust, an
  insert behind the replica's own stable, or one that starts before an earlier one.
* An insert behind the output's frontier is never emitted (erratum L5).
* A joining replica's inserts are held back and decided when it joins, in their order; its
  stables wait.  What starts before the frontier or the current start can no longer be emitted,
  whatever happens, and is decided as soon as that is so (erratum L9).
* What is behind the current start is `late`, for nothing is remembered of it.

* With `stable_lag` the output's frontier stays so far behind the replicas'.  With `promote`, if
  all that are joined have left, the joining one with the smallest guarantee is believed: events
  that ended before it may then be missing (`stretches`), and nothing else can be wrong, since
  what is on the output never changes.

A gap cannot be seen: a replica without an event looks like one that has none.  What another
replica brings is on the output if it comes before a greater start does (LMerge V-C).

Papers: LMerge IV-A to IV-C, V-B, V-C (MaxStable is `frontier`, MaxVs is `current`).
"""

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator
from typing import Any

from anabranch.model.element import Adjust, Element, Insert, Stable
from anabranch.model.time import FOREVER, NEVER, Time
from anabranch.operators.contract import Outcome, Reason, Released
from anabranch.operators.merge.policy import Policy
from anabranch.operators.reference.membership import Change, ReferenceMerge, Replica


class OrderedMerge(ReferenceMerge, ABC):
    """The state of the reference merge; `push` is the only step.

    `emitted` is what the output has of the current start.
    """

    starts_increase = False
    """Whether two inserts of one replica with one start are a violation."""

    def __init__(self, *, stable_lag: int = 0, promote: bool = False) -> None:
        super().__init__()
        self.stable_lag = stable_lag
        self.promotes = promote
        self.current: Time = NEVER
        self.emitted: dict[Hashable, Any] = {}
        self.released: list[Released] = []

    @abstractmethod
    def _take(self, e: Insert, source: Replica) -> Reason:
        """The case's own rule for an insert at the current start; FIRST: it is emitted."""

    def attach(
        self, replica: str, *, guarantee: Time | None = None, attachment: int = 1
    ) -> Change:
        """Let a replica take part, or replace its old attachment by a new one."""
        left = self.replicas.get(replica)
        self.members.attach(replica, guarantee=guarantee, attachment=attachment)
        self._regroup(left)
        return Change(tuple(self._advance()), self._resolved())

    def detach(self, replica: str) -> Change:
        """Forget what this replica brought; what of it is on the output stays."""
        self._regroup(self.replicas.pop(replica, None))
        return Change(tuple(self._advance()), self._resolved())

    def change(self, policy: Policy) -> Change:
        """Let another policy decide from now on."""
        self.stable_lag, self.promotes = policy.stable_lag, policy.promote
        self.members.note_joined(self.frontier)
        self._regroup(None)
        return Change(tuple(self._advance()), self._resolved())

    def promote(self, replica: str) -> None:
        """Believe a joining replica from now on; what is before its guarantee may be missing.

        What it has waiting comes out with the next element of any replica.
        """
        self.members.promote(replica, self.frontier)

    def _regroup(self, left: Replica | None = None) -> None:
        """After replicas came or left."""
        if left is not None:
            self.released += [Released(left.name, e, Reason.ABANDONED) for e in left.held]
        if self.promotes:
            self.members.succeed(self.frontier)

    def _resolved(self) -> tuple[Released, ...]:
        """What was pending and no longer is, since the last time."""
        resolved, self.released = tuple(self.released), []
        return resolved

    def push(self, replica: str, element: Element, *, seq: int | None = None) -> Outcome:
        """Take a replica's next element; an unknown replica is complete from the beginning."""
        if replica not in self.replicas:
            self.members.attach(replica, guarantee=None, attachment=1)
            self._regroup()
        output = self._advance()
        reason = self._judge(element, self.replicas[replica], seq)
        if reason is Reason.FIRST:
            output.append(element)
        output += self._advance()
        return Outcome(reason, tuple(output), self._resolved())

    def _judge(self, element: Element, source: Replica, seq: int | None) -> Reason:
        if not source.consumes(seq):
            return Reason.REDELIVERY
        if isinstance(element, Insert):
            return self._insert(element, source)
        if isinstance(element, Adjust):
            return Reason.NOT_INSERT_ONLY
        return self._stable(element, source)

    def _insert(self, e: Insert, source: Replica) -> Reason:
        if refused := source.refuses(e):
            return refused
        if e.start < source.highest_start:
            return Reason.OUT_OF_ORDER
        if e.start == source.highest_start and self.starts_increase:
            return Reason.SAME_START
        source.highest_start = e.start
        if source.is_joined(self.frontier) or e.start < max(self.frontier, self.current):
            return self._decide(e, source)
        source.held.append(e)
        return Reason.HELD

    def _stable(self, e: Stable, source: Replica) -> Reason:
        if e.time <= source.frontier:
            return Reason.FOLLOWS
        source.frontier = e.time
        if not source.is_joined(self.frontier):
            return Reason.JOINING
        return Reason.LEADS if e.time - self.stable_lag > self.frontier else Reason.FOLLOWS

    def _advance(self) -> list[Element]:
        """Move the frontier as far as the joined replicas allow, and decide what was held.

        A stable may let a replica join, whose inserts and whose stable then count as well.
        """
        output: list[Element] = []
        while True:
            for source in self.replicas.values():
                until = FOREVER if source.is_joined(self.frontier) else self.frontier
                output.extend(self._release(source, until))
            joined = self.members.joined(self.frontier)
            time = max((one.frontier for one in joined), default=NEVER) - self.stable_lag
            if time <= self.frontier:
                return output
            self.frontier = time
            output.append(Stable(time))

    def _release(self, source: Replica, until: Time) -> Iterator[Element]:
        while source.held and source.held[0].start < until:
            e = source.held.popleft()
            reason = self._decide(e, source)
            self.released.append(Released(source.name, e, reason))
            if reason is Reason.FIRST:
                yield e

    def _decide(self, e: Insert, source: Replica) -> Reason:
        if e.start < self.current:
            return Reason.PASSED
        if e.start > self.current:
            if e.start < self.frontier:
                return Reason.LATE
            self._open(e.start)
        reason = self._take(e, source)
        self.conflicts += reason is Reason.OTHER_EVENT
        return reason

    def _open(self, start: Time) -> None:
        """A new current start, of which nobody has brought anything."""
        self.current = start
        self.emitted.clear()
        for source in self.replicas.values():
            source.brought.clear()


class MergeR0(OrderedMerge):
    """Case R0: replicas with starts that increase, so a start names at most one event.

    What is remembered is the last event of the output and nothing else.  The paper's rule is
    `start > current`.  Added: an insert behind the output's own frontier is dropped (erratum
    L5; it needs a gap), and a copy of the last event is distinguished from another event with
    the same start, which means that the replicas do not agree.

    Detected: adjusts, starts of one replica that do not increase, inserts behind its own
    stable, another event at the current start.  Not detected: gaps, and disagreement behind the
    current start.

    Papers: LMerge IV-A, Algorithm R0 (MaxVs is `current`).

    >>> merge = MergeR0()
    >>> merge.push("east", Insert("a", 3, 9)).output
    (Insert(payload='a', start=3, end=9),)
    >>> merge.push("west", Insert("a", 3, 9)).reason
    <Reason.KNOWN: (2, <Bucket.ABSORBED: 1>, 'the output has this event already')>
    >>> merge.push("west", Stable(8)).output
    (Stable(time=8),)
    """

    starts_increase = True

    def _take(self, e: Insert, source: Replica) -> Reason:  # noqa: ARG002 - R0 asks nobody
        if self.emitted:
            return Reason.KNOWN if e.event in self.emitted else Reason.OTHER_EVENT
        self.emitted[e.event] = 1
        return Reason.FIRST


class MergeR1(OrderedMerge):
    """Case R1: replicas with starts that never decrease.

    Of the current start it keeps how often each event is on the output, and how often each
    replica brought it:

        an insert is emitted when its replica has the event more often than the output.

    The paper compares positions instead (the k-th insert of a start is taken to be the same in
    all replicas), which doubles and loses events if a replica has a gap among equal starts
    (erratum L6), leaves (L7) or joins (L9).  By counting events it needs no order among equal
    starts: this is also R2 without keys, the relaxation that the paper leaves out.  What was
    emitted is counted apart from what replicas brought, and a replica begins with nothing at
    every attachment (L7).

    Detected: adjusts, starts of one replica that decrease, inserts behind its own stable.  Not
    detected: gaps, and replicas that disagree.  A replica that leaves out one of two equal
    events and brings the other is taken to have brought the first.

    Papers: LMerge IV-B, Algorithm R1 (SameVsCount is `brought` and `emitted`).

    >>> merge = MergeR1()
    >>> for replica, payload in [("east", "b"), ("west", "a"), ("west", "b"), ("west", "b")]:
    ...     print(merge.push(replica, Insert(payload, 1, 2)).output)
    (Insert(payload='b', start=1, end=2),)
    (Insert(payload='a', start=1, end=2),)
    ()
    (Insert(payload='b', start=1, end=2),)
    """

    def _take(self, e: Insert, source: Replica) -> Reason:
        emitted = self.emitted.get(e.event, 0)
        is_new = source.brought[e.event] >= emitted
        if is_new and e.start < self.frontier:
            return Reason.LATE
        source.brought[e.event] += 1
        self.emitted[e.event] = emitted + is_new
        return Reason.FIRST if is_new else Reason.KNOWN


class MergeR2(OrderedMerge):
    """Case R2: starts never decrease, and (start, payload) names at most one event.

    The order among equal starts is free.  Of the current start it keeps the payloads on the
    output with their ends, and which of them each replica brought.

    The paper's rule is `payload not in hash`.  Added: an insert behind the output's own
    frontier is dropped (erratum L5), and a payload that the output has with another end is
    `late`: the output keeps its promise that identities are unique, and without adjusts it
    cannot follow.

    Detected: adjusts, starts of one replica that decrease, inserts behind its own stable, and,
    at the current start, a second insert of an event by one replica and ends that disagree.
    Not detected: gaps, and all this behind the current start.

    Papers: LMerge IV-C, Algorithm R2 (hash is `emitted`).

    >>> merge = MergeR2()
    >>> for replica, payload in [("east", "b"), ("west", "a"), ("west", "b"), ("west", "b")]:
    ...     print(merge.push(replica, Insert(payload, 1, 2)).reason.name)
    FIRST
    FIRST
    KNOWN
    SECOND_INSERT
    """

    def _take(self, e: Insert, source: Replica) -> Reason:
        if source.brought[e.payload]:
            return Reason.SECOND_INSERT
        is_new = e.payload not in self.emitted
        if is_new and e.start < self.frontier:
            return Reason.LATE
        source.brought[e.payload] += 1
        if is_new:
            self.emitted[e.payload] = e.end
            return Reason.FIRST
        return Reason.KNOWN if e.end == self.emitted[e.payload] else Reason.OTHER_EVENT
