"""Merge R3-, one element at a time: one index per replica, and one for the output.

A baseline of the paper's comparison, kept to show what R3's shared index is worth; use `r3`.
It says the same elements for the same reasons as R3 with its default policy, but every replica
has an index of its own with the payloads in it, so memory grows with the number of replicas,
and a stable looks every event up twice.

`r3_separate_kernel` is the same over batches, for measurements.

Papers: LMerge VI-B, LMR3-; the algorithm is that of IV-D, with the errata that `r3` names.

>>> from anabranch.model.element import Insert, Stable
>>> merge = MergeR3Separate()
>>> [merge.push(name, Insert("a", 3, end)).output for name, end in (("east", 9), ("west", 7))]
[(Insert(payload='a', start=3, end=9),), ()]
>>> merge.push("west", Stable(8)).output
(Adjust(payload='a', start=3, old_end=9, end=7), Stable(time=8))
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from anabranch.model.element import Adjust, Element, Identity, Insert, Stable
from anabranch.model.time import FOREVER, NEVER, Time
from anabranch.operators.merge.contract import Outcome, Reason
from anabranch.operators.merge.r3_membership import Membership, Replica

Index: TypeAlias = dict[Identity, Time]
"""The end of each event; the start itself if it was removed."""


@dataclass(slots=True)
class MergeR3Separate:
    """The state: who is attached, what each of them said, what the output says."""

    members: Membership = field(default_factory=Membership)
    inputs: dict[str, Index] = field(default_factory=dict)
    output: Index = field(default_factory=dict)
    settled: Index = field(default_factory=dict)
    in_conflict: set[Identity] = field(default_factory=set)
    frontier: Time = NEVER
    conflicts: int = 0

    def attach(
        self, replica: str, *, guarantee: Time | None = None, attachment: int = 1
    ) -> None:
        """Let a replica take part, or replace its old attachment by a new one (L8)."""
        self.members.attach(replica, guarantee=guarantee, attachment=attachment)
        self.inputs[replica] = {}

    def detach(self, replica: str) -> None:
        """Forget what this replica said; what it brought to the output stays."""
        self.members.replicas.pop(replica, None)
        self.inputs.pop(replica, None)
        self._forget_settled()

    def push(self, replica: str, element: Element, *, seq: int | None = None) -> Outcome:
        """Take a replica's next element; an unknown replica is complete from the beginning."""
        if replica not in self.inputs:
            self.attach(replica)
        source = self.members.replicas[replica]
        if seq is not None:
            if source.last_seq is not None and seq <= source.last_seq:
                return Outcome(Reason.REDELIVERY)
            source.last_seq = seq
        if isinstance(element, Stable):
            return self._stable(element, source)
        if element.end < element.start:
            return Outcome(Reason.BACKWARDS)
        if element.changes_nothing:
            return Outcome(Reason.NO_CHANGE)
        if isinstance(element, Insert):
            return self._insert(element, source)
        return Outcome(self._adjust(element, source))

    def _insert(self, e: Insert, source: Replica) -> Outcome:
        if e.start < source.frontier:
            return Outcome(Reason.BEHIND_STABLE)
        identity, own = Identity(e.start, e.payload), self.inputs[source.key[0]]
        if identity not in self.output:
            if e.start < self.frontier:
                return Outcome(self._too_late(identity))
            self.output[identity] = own[identity] = e.end
            return Outcome(Reason.FIRST, (e,))
        if own.get(identity, e.start) > e.start:
            return Outcome(Reason.SECOND_INSERT)
        own[identity] = e.end
        return Outcome(Reason.KNOWN)

    def _adjust(self, e: Adjust, source: Replica) -> Reason:
        if min(e.old_end, e.end) < source.frontier:
            return Reason.BEHIND_STABLE
        identity, own = Identity(e.start, e.payload), self.inputs[source.key[0]]
        if identity not in self.output and e.start < self.frontier:
            return self._too_late(identity)
        if e.old_end <= e.start or own.get(identity) != e.old_end:
            return Reason.NO_SUCH_EVENT
        own[identity] = e.end
        return Reason.NOTED

    def _too_late(self, identity: Identity) -> Reason:
        return Reason.SETTLED if identity in self.settled else Reason.LATE

    def _stable(self, e: Stable, source: Replica) -> Outcome:
        if e.time <= source.frontier:
            return Outcome(Reason.FOLLOWS)
        source.frontier = e.time
        reason = Reason.FOLLOWS if source.is_joined(self.frontier) else Reason.JOINING
        output: list[Element] = []
        # One stable may let a joining replica join, whose pending stable then counts as well.
        while (leader := self._leader()) is not None:
            reason = Reason.LEADS
            output.extend(self._reconcile(leader))
            self.frontier = leader.frontier
            output.append(Stable(self.frontier))
        self._forget_settled()
        return Outcome(reason, tuple(output))

    def _leader(self) -> Replica | None:
        leader = self.members.leader(self.frontier)
        return leader if leader is not None and leader.frontier > self.frontier else None

    def _reconcile(self, leader: Replica) -> Iterator[Element]:
        """The adjusts owed before the leader's frontier is passed on."""
        time, said = leader.frontier, self.inputs[leader.key[0]]
        for identity in [one for one in self.output if one.start < time]:
            told, old_end = identity in said, self.output[identity]
            end = self._agreed_end(identity, said.get(identity, identity.start), time)
            if end != old_end:
                yield Adjust(identity.payload, identity.start, old_end, end)
                self.output[identity] = end
            if end < time or time == FOREVER:
                self._settle(identity, end, known=told or end > identity.start)

    def _agreed_end(self, identity: Identity, said: Time, time: Time) -> Time:
        shown = self.output[identity]
        if said > identity.start:
            end = max(said, self.frontier)
            self._note_conflict(identity, real=end > said)
            return shown if min(end, shown) >= time else end
        if identity.start >= self.frontier:
            return identity.start
        self._note_conflict(identity, real=True)
        return shown

    def _note_conflict(self, identity: Identity, *, real: bool) -> None:
        if real and identity not in self.in_conflict:
            self.in_conflict.add(identity)
            self.conflicts += 1

    def _settle(self, identity: Identity, end: Time, *, known: bool) -> None:
        """An event is final: out of every index."""
        for index in (self.output, *self.inputs.values()):
            index.pop(identity, None)
        self.in_conflict.discard(identity)
        if known:
            self.settled[identity] = end

    def _forget_settled(self) -> None:
        """Drop what no attached replica may still mention, if it keeps its promises."""
        slowest = self.members.slowest
        self.settled = {
            identity: end
            for identity, end in self.settled.items()
            if end >= slowest and slowest != FOREVER
        }
