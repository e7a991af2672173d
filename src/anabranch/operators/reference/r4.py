"""Merge for case R4, one element at a time: the reference that the kernel is raced against.

For replicas of any stream: several events may have the same start and payload (one identity),
with the same end or with different ones.  An insert goes to the output when its replica has
then more events of its identity than the output; ends are corrected only when a stable would
freeze a wrong one:

    the output's frontier is the greatest frontier of the joined replicas;
    on a stable that moves it, the replica that sent it decides: every identity that starts
    before the stable is made to agree with it on the output, as far as that could not be done
    later (`r4_agree`).

Where replicas may have gaps (`gaps`), the frontier waits for all joined replicas, and the one
with the most open events of an identity decides on it; but one that removed all of them
decides first.  Of an identity that is half frozen, events that one side lacks are no
contradiction.

Errata applied: L4 (what is half frozen on the output stays, and is never cut below its
frontier), L8 (entries belong to an attachment, and leave with it), L9 (a joining replica's
stables wait until the output reaches its guarantee), L10 (a removal only decrements; a replica
without events has no greatest end; an adjust of an end that its replica does not have is a
violation), L11 (the order and the partners of corrections), L14 (`shrink_only`), L15
(stable(FOREVER) frees everything).  A replica that removed all its events of an identity keeps
an empty bag, which distinguishes "the deciding replica removed it" from "it never had it": the
second is a gap, named in `missing`.

Papers: LMerge IV-E, Algorithm R4 (MaxStable is `frontier`, in3t is `nodes`); V-B, V-C.

>>> from anabranch.model.element import Insert, Stable
>>> merge = MergeR4()
>>> merge.push("east", Insert("a", 3, 9)).output
(Insert(payload='a', start=3, end=9),)
>>> merge.push("east", Insert("a", 3, 9)).output
(Insert(payload='a', start=3, end=9),)
>>> merge.push("west", Insert("a", 3, 7)).output
()
>>> merge.push("west", Stable(8)).output  # doctest: +NORMALIZE_WHITESPACE
(Adjust(payload='a', start=3, old_end=9, end=7),
 Adjust(payload='a', start=3, old_end=9, end=3), Stable(time=8))
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from anabranch.model.element import Adjust, Element, Identity, Insert, Stable
from anabranch.model.time import FOREVER, NEVER, Time
from anabranch.operators.contract import Outcome, Reason
from anabranch.operators.reference.membership import Attachment, ReferenceMerge, Replica
from anabranch.operators.reference.r4_agree import Change, heeded, is_denied, owed, spared


@dataclass(slots=True)
class Node:
    """The events of one identity: their ends on the output, and what each replica has."""

    output: Counter[Time] = field(default_factory=Counter)
    ends: dict[Attachment, Counter[Time]] = field(default_factory=dict)
    in_conflict: bool = False


class MergeR4(ReferenceMerge):
    """The state of the reference merge; `push` is the only step."""

    def __init__(
        self,
        *,
        shrink_only: bool = False,
        stable_lag: int = 0,
        promote: bool = False,
        gaps: bool = False,
        wait: Time | None = None,
    ) -> None:
        super().__init__()
        self.shrink_only = shrink_only
        self.stable_lag = stable_lag
        self.promotes = promote
        self.gaps = gaps
        self.wait = wait
        self.nodes: dict[Identity, Node] = {}

    def attach(
        self, replica: str, *, guarantee: Time | None = None, attachment: int = 1
    ) -> tuple[Element, ...]:
        """Let a replica take part, or replace its old attachment by a new one.

        Who is promoted then may have a stable that waited: what it brings out is returned.
        """
        left = self.replicas.get(replica)
        self.members.attach(replica, guarantee=guarantee, attachment=attachment)
        return self._regroup(left)

    def detach(self, replica: str) -> tuple[Element, ...]:
        """Drop what this replica has; what it brought to the output stays."""
        return self._regroup(self.replicas.pop(replica, None))

    def pass_over(self, replica: str) -> tuple[Element, ...]:
        """Do not wait for this replica until it has caught up."""
        self.members.pass_over(replica)
        return self._regroup(None)

    def _regroup(self, left: Replica | None) -> tuple[Element, ...]:
        """After replicas came or left: who leads now, and what follows from that."""
        if left is not None:
            for node in self.nodes.values():
                node.ends.pop(left.key, None)
        if self.promotes:
            self.members.succeed(self.frontier)
        return tuple(self._advance())

    def push(self, replica: str, element: Element, *, seq: int | None = None) -> Outcome:
        """Take a replica's next element; an unknown replica is complete from the beginning."""
        if replica not in self.replicas:
            # A complete replica: nobody is promoted, and nothing can come out.
            self.attach(replica)
        source = self.replicas[replica]
        if not source.consumes(seq):
            return Outcome(Reason.REDELIVERY)
        if isinstance(element, Insert):
            return self._insert(element, source)
        if isinstance(element, Adjust):
            return self._adjust(element, source)
        return self._stable(element, source)

    def _insert(self, e: Insert, source: Replica) -> Outcome:
        if refused := source.refuses(e):
            return Outcome(refused)
        identity, is_free = Identity(e.start, e.payload), e.start >= self.frontier
        if identity not in self.nodes and not is_free:
            return Outcome(self._too_late(identity))
        node = self.nodes.setdefault(identity, Node())
        ends = node.ends.setdefault(source.key, Counter())
        ends[e.end] += 1
        if ends.total() <= node.output.total():
            return Outcome(Reason.KNOWN)
        if not is_free:
            return Outcome(Reason.LATE)
        node.output[e.end] += 1
        return Outcome(Reason.FIRST, (e,))

    def _adjust(self, e: Adjust, source: Replica) -> Outcome:
        if refused := source.refuses(e):
            return Outcome(refused)
        identity = Identity(e.start, e.payload)
        node = self.nodes.get(identity)
        if node is None and e.start < self.frontier:
            return Outcome(self._too_late(identity))
        if node is None or e.old_end not in node.ends.get(source.key, ()):
            return Outcome(Reason.NO_SUCH_EVENT)
        _move(node.ends[source.key], Change(e.old_end, e.end if e.end > e.start else None))
        return Outcome(Reason.NOTED)

    def _stable(self, e: Stable, source: Replica) -> Outcome:
        if e.time <= source.frontier:
            return Outcome(Reason.FOLLOWS)
        source.frontier = e.time
        reason = Reason.FOLLOWS if source.is_joined(self.frontier) else Reason.JOINING
        output = tuple(self._advance())
        return Outcome(Reason.LEADS if output else reason, output)

    def _advance(self) -> Iterator[Element]:
        """Move the output's frontier as far as the joined replicas allow."""
        # One stable may let a joining replica join, whose pending stable then counts as well.
        while leader := self.members.leader(self.frontier):
            time = leader.frontier
            if self.gaps:
                time = self.members.reach(self.frontier, wait=self.wait)
            time -= self.stable_lag
            if time <= self.frontier:
                break
            yield from self._reconcile(leader, time)
            self.frontier = time
            yield Stable(self.frontier)
        self._forget_settled()

    def _reconcile(self, leader: Replica, time: Time) -> Iterator[Element]:
        """The elements owed before the output's frontier moves to `time`."""
        for identity, node in [n for n in self.nodes.items() if n[0].start < time]:
            decider = self._decider(identity, node, leader) if self.gaps else leader
            theirs = node.ends.get(decider.key)
            yield from self._agree(identity, node, decider, time)
            if self.gaps and identity.start >= self.frontier and node.output:
                events = {key: ends.total() for key, ends in node.ends.items()}
                self._count_gaps(identity, events)
            end = max(node.output, default=identity.start)
            if end < time or time == FOREVER:
                del self.nodes[identity]
                if node.output or theirs is not None:
                    self.settled[identity] = end

    def _decider(self, identity: Identity, node: Node, leader: Replica) -> Replica:
        """Who decides on an identity where replicas may have gaps.

        What ended before the frontier in a replica was decided on when the frontier passed it.
        """
        start, frontier = identity.start, self.frontier
        removing: list[tuple[Time, Replica]] = []
        having: list[tuple[int, Time, Replica]] = []
        for one in self.members.joined(frontier):
            since = NEVER if start >= frontier else min(frontier, one.complete_from)
            ends = node.ends.get(one.key)
            if ends and max(ends) >= since:
                is_open = sum(count for end, count in ends.items() if end >= frontier)
                having.append((is_open, one.frontier, one))
            elif ends is not None and not ends and start >= since:
                removing.append((one.frontier, one))
        if removing:
            return max(removing, key=lambda found: found[0])[1]
        return max(having, key=lambda found: found[:2], default=(0, NEVER, leader))[2]

    def _agree(
        self, identity: Identity, node: Node, leader: Replica, time: Time
    ) -> Iterator[Element]:
        theirs, times = node.ends.get(leader.key), {"frontier": self.frontier, "time": time}
        have, want = node.output, theirs or Counter()
        guarantee = leader.complete_from
        is_free = identity.start >= self.frontier
        is_unsure = max(identity.start, self.frontier) < guarantee
        if not is_free:
            have, want = heeded(have, want, frontier=self.frontier, guarantee=guarantee)
        if is_unsure and not (is_free and theirs is not None and not want):
            # It need not know what ends before its guarantee, and denies what ends later.
            for end in spared(have, want):
                until = min(end, guarantee)
                want = want + Counter([until])
                if until < end:
                    have = have - Counter([end]) + Counter([until])
                    yield _apply(identity, node, Change(end, until))
        if not is_free and self.gaps and (theirs is None or theirs):
            have, want = have - Counter(spared(have, want)), want - Counter(spared(want, have))
        if not is_free and not node.in_conflict:
            node.in_conflict = is_denied(have, want, frontier=self.frontier)
            self.conflicts += node.in_conflict
        is_due = is_free or max(node.output, default=time) < time
        if theirs is None and is_due and not (self.gaps or is_unsure):
            self.missing.append((leader.name, identity))
        for change in owed(have, want, free=is_free, **times, shrink_only=self.shrink_only):
            yield _apply(identity, node, change)


def _apply(identity: Identity, node: Node, change: Change) -> Element:
    """Change an event of the output; the element for that."""
    _move(node.output, change)
    start, payload = identity
    end = start if change.end is None else change.end
    if change.old_end is None:
        return Insert(payload, start, end)
    return Adjust(payload, start, change.old_end, end)


def _move(bag: Counter[Time], change: Change) -> None:
    """Apply one change to a bag of ends."""
    if change.old_end is not None:
        bag[change.old_end] -= 1
        if not bag[change.old_end]:
            del bag[change.old_end]
    if change.end is not None:
        bag[change.end] += 1
