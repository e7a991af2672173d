"""Merge for case R3, one element at a time: the reference that the kernel is raced against.

For replicas of one stream in which (start, payload) names at most one event at any time;
inserts, adjusts and stables in any order that keeps the replica's own promises.  The first
replica to bring an event puts it on the output; its end is corrected only when a stable would
freeze a wrong one:

    the output's frontier is the greatest frontier of the joined replicas;
    on a stable that moves it, the replica that sent it decides: every event that starts before
    the stable is made to agree with it on the output, if that could not be done later.

Errata applied: L3 (the output's entry changes only when an adjust is sent), L4 (what is half
frozen on the output stays, and is never cut below its frontier), L8 (entries belong to an
attachment, and leave with it), L9 (a joining replica's stables wait until the output reaches
its guarantee), L15 (stable(FOREVER) frees everything).  A removal leaves a tombstone (an entry
whose end is its start, as in the paper), which tells "the deciding replica removed it" from
"the deciding replica never had it".

Papers: LMerge IV-D, Algorithm R3 (MaxStable is `frontier`, in2t is `nodes`); V-B, V-C.

>>> from anabranch.model.element import Insert, Stable
>>> merge = MergeR3()
>>> merge.push("east", Insert("a", 3, 9)).output
(Insert(payload='a', start=3, end=9),)
>>> merge.push("west", Insert("a", 3, 7)).output
()
>>> merge.push("west", Stable(8)).output
(Adjust(payload='a', start=3, old_end=9, end=7), Stable(time=8))
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from anabranch.errors import UsageError
from anabranch.model.element import Adjust, Element, Identity, Insert, Stable
from anabranch.model.time import FOREVER, NEVER, Time
from anabranch.operators.merge.contract import Outcome, Reason

Attachment: TypeAlias = tuple[str, int]
"""A replica's name and the number of this attachment of it (erratum L8)."""


@dataclass(slots=True)
class Node:
    """One event that may still change: its end on the output, and what each replica says."""

    output_end: Time
    ends: dict[Attachment, Time] = field(default_factory=dict)
    in_conflict: bool = False


@dataclass(slots=True)
class Replica:
    """One attachment, as we know it.  While it joins, `frontier` is its pending stable."""

    key: Attachment
    guarantee: Time | None
    frontier: Time = NEVER
    last_seq: int | None = None


class MergeR3:
    """The state of the reference merge; `push` is the only step."""

    def __init__(self) -> None:
        self.frontier: Time = NEVER
        self.nodes: dict[Identity, Node] = {}
        self.replicas: dict[str, Replica] = {}
        self.settled: dict[Identity, Time] = {}
        self.conflicts = 0

    def attach(
        self, replica: str, *, guarantee: Time | None = None, attachment: int = 1
    ) -> None:
        """Let a replica take part, or replace its old attachment by a new one."""
        known = self.replicas.get(replica)
        if known is not None and attachment <= known.key[1]:
            message = (
                f"merge: replica '{replica}' attaches with number {attachment}, but number "
                f"{known.key[1]} was attached before; give each attachment a greater number"
            )
            raise UsageError(message)
        self.detach(replica)
        self.replicas[replica] = Replica((replica, attachment), guarantee)

    def detach(self, replica: str) -> None:
        """Forget what this replica said; what it brought to the output stays."""
        left = self.replicas.pop(replica, None)
        if left is not None:
            for node in self.nodes.values():
                node.ends.pop(left.key, None)
            self._forget_settled()

    def is_joined(self, replica: str) -> bool:
        """Whether this replica's stables count (erratum L9: from frontier >= guarantee on)."""
        guarantee = self.replicas[replica].guarantee
        return guarantee is None or guarantee <= self.frontier

    def push(self, replica: str, element: Element, *, seq: int | None = None) -> Outcome:
        """Take a replica's next element; an unknown replica is complete from the beginning."""
        if replica not in self.replicas:
            self.attach(replica)
        source = self.replicas[replica]
        if seq is not None:
            if source.last_seq is not None and seq <= source.last_seq:
                return Outcome(Reason.REDELIVERY)
            source.last_seq = seq
        if isinstance(element, Insert):
            return self._insert(element, source)
        if isinstance(element, Adjust):
            return self._adjust(element, source)
        return self._stable(element, source)

    def _insert(self, e: Insert, source: Replica) -> Outcome:
        if e.end <= e.start:
            return Outcome(Reason.BACKWARDS if e.end < e.start else Reason.NO_CHANGE)
        if e.start < source.frontier:
            return Outcome(Reason.BEHIND_STABLE)
        identity = Identity(e.start, e.payload)
        node = self.nodes.get(identity)
        if node is None:
            if e.start < self.frontier:
                return self._too_late(identity)
            self.nodes[identity] = Node(e.end, {source.key: e.end})
            return Outcome(Reason.FIRST, (e,))
        if node.ends.get(source.key, e.start) > e.start:
            return Outcome(Reason.SECOND_INSERT)
        node.ends[source.key] = e.end
        return Outcome(Reason.KNOWN)

    def _adjust(self, e: Adjust, source: Replica) -> Outcome:
        if e.end < e.start:
            return Outcome(Reason.BACKWARDS)
        if e.end == e.old_end:
            return Outcome(Reason.NO_CHANGE)
        if min(e.old_end, e.end) < source.frontier:
            return Outcome(Reason.BEHIND_STABLE)
        identity = Identity(e.start, e.payload)
        node = self.nodes.get(identity)
        if node is None and e.start < self.frontier:
            return self._too_late(identity)
        if node is None or e.old_end <= e.start or node.ends.get(source.key) != e.old_end:
            return Outcome(Reason.NO_SUCH_EVENT)
        node.ends[source.key] = e.end
        return Outcome(Reason.NOTED)

    def _too_late(self, identity: Identity) -> Outcome:
        return Outcome(Reason.SETTLED if identity in self.settled else Reason.LATE)

    def _stable(self, e: Stable, source: Replica) -> Outcome:
        if e.time <= source.frontier:
            return Outcome(Reason.FOLLOWS)
        source.frontier = e.time
        reason = Reason.FOLLOWS if self.is_joined(source.key[0]) else Reason.JOINING
        output: list[Element] = []
        # One stable may let a joining replica join, whose pending stable then counts as well.
        while (leader := self._leader()).frontier > self.frontier:
            reason = Reason.LEADS
            output.extend(self._reconcile(leader))
            self.frontier = leader.frontier
            output.append(Stable(self.frontier))
        self._forget_settled()
        return Outcome(reason, tuple(output))

    def _leader(self) -> Replica:
        joined = [source for name, source in self.replicas.items() if self.is_joined(name)]
        return max(joined, key=lambda source: source.frontier, default=Replica(("", 0), None))

    def _reconcile(self, leader: Replica) -> Iterator[Element]:
        """The adjusts owed before the leader's frontier is passed on."""
        time = leader.frontier
        for identity, node in [n for n in self.nodes.items() if n[0].start < time]:
            said = node.ends.get(leader.key)
            old_end, end = node.output_end, self._agreed_end(identity.start, node, said, time)
            if end != old_end:
                yield Adjust(identity.payload, identity.start, old_end, end)
                node.output_end = end
            if end < time or time == FOREVER:
                del self.nodes[identity]
                if end > identity.start or said is not None:
                    self.settled[identity] = end

    def _agreed_end(self, start: Time, node: Node, said: Time | None, time: Time) -> Time:
        if said is not None and said > start:
            end = max(said, self.frontier)
            self._note_conflict(node, real=end > said)
            return node.output_end if min(end, node.output_end) >= time else end
        if start >= self.frontier:
            return start
        self._note_conflict(node, real=True)
        return node.output_end

    def _note_conflict(self, node: Node, *, real: bool) -> None:
        if real and not node.in_conflict:
            node.in_conflict = True
            self.conflicts += 1

    def _forget_settled(self) -> None:
        """Drop what no attached replica may still mention, if it keeps its promises."""
        slowest = min((source.frontier for source in self.replicas.values()), default=FOREVER)
        self.settled = {
            identity: end
            for identity, end in self.settled.items()
            if end >= slowest and slowest != FOREVER
        }
