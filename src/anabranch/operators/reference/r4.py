"""Merge for case R4, one element at a time: the reference of the kernel.

For replicas of any stream: several events may have the same start and payload (one identity),
with the same end or with different ones.  An insert goes to the output when its replica has
then more events of its identity than the output; ends are corrected only when a stable would
freeze a wrong one:

    the output's frontier is the greatest frontier of the joined replicas;
    on a stable that moves it, the replica that sent it decides: every identity that starts
    before the stable is made to agree with it on the output, as far as that could not be done
    later (`r4_agree`).

Where replicas may have gaps (`policy.gaps`), the frontier waits for all joined replicas, and
the one with the most open events of an identity decides on it; but one that removed all of them
decides first, and one without it does not count.  Of an identity that is half frozen, events
that one side lacks are no contradiction.

Replicas attach and detach at any time (`membership`).  Case R3 is this merge of replicas in
which an identity has one event at most; `r3` adds the policies that need that.

Errata applied: L3 (the output's entry changes only when an adjust is sent), L4 (what is half
frozen on the output stays, and is never cut below its frontier), L8 (entries belong to an
attachment, and leave with it), L9 (a joining replica's stables wait until the output reaches
its guarantee), L10 (a removal only decrements; a replica without events has no greatest end; an
adjust of an end that its replica does not have is a violation), L11 (the order and the partners
of corrections), L14 (`shrink_only`), L15 (stable(FOREVER) frees everything).  A replica that
removed all its events of an identity keeps an empty bag, which distinguishes "the deciding
replica removed it" from "it never had it": the second is a gap, named in `missing`.

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
from dataclasses import dataclass, field

from anabranch.errors import ViolationError
from anabranch.model.element import Adjust, Element, Identity, Insert, Stable
from anabranch.model.notation import show_element
from anabranch.model.time import FOREVER, NEVER, Time
from anabranch.operators.contract import Bucket, Outcome, Reason, Released
from anabranch.operators.merge.policy import DEFAULT, Inserts, Policy, Quorum, Violations
from anabranch.operators.reference.membership import (
    Attachment,
    Change,
    ReferenceMerge,
    Replica,
)
from anabranch.operators.reference.r4_agree import NewEnd, heeded, is_denied, owed, spared


@dataclass(slots=True)
class Node:
    """The events of one identity: their ends on the output, and what each replica has.

    `held` are the inserts that are pending because nothing is on the output yet.  `withdrawn`:
    an adjust took it off the output; the next replica that mentions it, and has it, brings it
    back.
    """

    identity: Identity
    output: Counter[Time] = field(default_factory=Counter)
    ends: dict[Attachment, Counter[Time]] = field(default_factory=dict)
    in_conflict: bool = False
    withdrawn: bool = False
    held: dict[Attachment, Insert] = field(default_factory=dict)

    @property
    def output_end(self) -> Time | None:
        """Its last end on the output; None: it is not there, and may still come."""
        return max(self.output, default=None)


class MergeR4(ReferenceMerge):
    """The state of the reference merge: replicas attach and detach, and push elements."""

    def __init__(self, *, policy: Policy = DEFAULT) -> None:
        super().__init__()
        self.policy = policy
        self.nodes: dict[Identity, Node] = {}
        self._emitted: list[Element] = []
        self._resolved: list[Released] = []

    def attach(
        self, replica: str, *, guarantee: Time | None = None, attachment: int = 1
    ) -> Change:
        """Let a replica take part, or replace its old attachment by a new one.

        Who is promoted then may have a stable that waited: what it brings out is returned.
        """
        left = self.replicas.get(replica)
        self.members.attach(replica, guarantee=guarantee, attachment=attachment)
        self._regroup(left)
        return Change(*self._flush())

    def detach(self, replica: str) -> Change:
        """Drop what this replica has; what it brought to the output stays."""
        self._regroup(self.replicas.pop(replica, None))
        return Change(*self._flush())

    def pass_over(self, replica: str) -> Change:
        """Do not wait for this replica until it has caught up."""
        self.members.pass_over(replica)
        self._regroup()
        return Change(*self._flush())

    def await_again(self, replica: str) -> Change:
        """Wait for a replica again that was passed over."""
        self.members.await_again(replica)
        self._regroup()
        return Change(*self._flush())

    def change(self, policy: Policy) -> Change:
        """Let another policy decide from now on, about every event."""
        before, self.policy = self.policy, policy
        self.members.note_joined(self.frontier)
        self._follow_policy(before)
        self._regroup()
        return Change(*self._flush())

    def _follow_policy(self, before: Policy) -> None:
        """Make what is remembered fit the policy; of R4 nothing depends on it."""

    def push(
        self,
        replica: str,
        element: Element,
        *,
        seq: int | None = None,
        inferred: bool = False,
    ) -> Outcome:
        """Take a replica's next element; an unknown replica is complete from the beginning.

        `inferred`: its stables are no promise of it; see `contract.Arrival`.
        """
        reason = self._take(replica, element, seq, inferred=inferred)
        return Outcome(reason, *self._flush())

    def check(self) -> None:
        """Verify what must hold between any two calls."""
        attached = {one.key for one in self.replicas.values()}
        for (start, _), node in self.nodes.items():
            if node.output_end is None:
                assert start >= self.frontier, f"an event was passed by: {node!r}"
            else:
                assert node.output_end >= self.frontier, f"a final event was kept: {node!r}"
                assert not node.held, f"held, and on the output: {node!r}"
            assert attached >= node.ends.keys(), f"entries outlived a replica: {node!r}"
            assert all(node.ends[key] for key in node.held), f"held nothing: {node!r}"

    def _regroup(self, left: Replica | None = None) -> None:
        """After replicas came or left: who leads now, and what follows from that."""
        if left is not None:
            self._forget(left)
        if self.policy.promote:
            self.members.succeed(self.frontier)
        self._advance()
        self._look()

    def _forget(self, left: Replica) -> None:
        """Drop what an attachment has, and events that no other one mentions."""
        for identity, node in list(self.nodes.items()):
            self._release(node, left.key, Reason.ABANDONED)
            node.ends.pop(left.key, None)
            if not node.output and not node.ends:
                del self.nodes[identity]

    def _take(
        self, replica: str, element: Element, seq: int | None, *, inferred: bool
    ) -> Reason:
        if replica in self.members.expelled:
            return Reason.EXPELLED
        if replica not in self.replicas:
            self.members.attach(replica, guarantee=None, attachment=1)
            self._regroup()
        source = self.replicas[replica]
        last_seq = source.last_seq
        if not source.consumes(seq):
            return Reason.REDELIVERY
        reason = self._judge(element, source, inferred=inferred)
        if reason.bucket is Bucket.VIOLATION:
            if self.policy.violations is Violations.RAISE:
                source.last_seq = last_seq
                raise ViolationError(accuse(replica, element, reason))
            if self.policy.violations is Violations.DETACH:
                self.members.expel(replica)
                self._regroup(self.replicas.pop(replica))
        return reason

    def _judge(self, element: Element, source: Replica, *, inferred: bool) -> Reason:
        if isinstance(element, Stable):
            return self._stable(element, source)
        if refused := source.refuses(element, inferred=inferred):
            return refused
        identity = Identity(element.start, element.payload)
        node = self.nodes.get(identity)
        if isinstance(element, Adjust):
            return self._adjust(element, source, identity, node)
        return self._insert(element, source, identity, node)

    def _insert(
        self, e: Insert, source: Replica, identity: Identity, node: Node | None
    ) -> Reason:
        if node is None:
            if e.start < self.frontier:
                return self._too_late(identity)
            node = self.nodes[identity] = Node(identity)
        ends = node.ends.setdefault(source.key, Counter())
        ends[e.end] += 1
        if ends.total() <= node.output.total():
            return Reason.KNOWN
        if e.start < self.frontier:
            return Reason.LATE
        self._apply(node, NewEnd(None, e.end))
        return Reason.FIRST

    def _adjust(
        self, e: Adjust, source: Replica, identity: Identity, node: Node | None
    ) -> Reason:
        if node is None and e.start < self.frontier:
            return self._too_late(identity)
        if node is None or e.old_end not in node.ends.get(source.key, ()):
            return Reason.NO_SUCH_EVENT
        _move(node.ends[source.key], NewEnd(e.old_end, None if e.is_removal else e.end))
        return self._note(e, source, node)

    def _note(self, e: Adjust, source: Replica, node: Node) -> Reason:
        """Its replica has the new end; what the output makes of it."""
        del e, source, node
        return Reason.NOTED

    def _stable(self, e: Stable, source: Replica) -> Reason:
        if e.time <= source.frontier:
            return Reason.FOLLOWS
        source.frontier = e.time
        joined, before = source.is_joined(self.frontier), self.frontier
        self._advance()
        self._look()
        if self.frontier > before:
            return Reason.LEADS
        return Reason.FOLLOWS if joined else Reason.JOINING

    def _look(self) -> None:
        """Ask a policy about events, now that the frontier or the replicas are others."""

    def _advance(self) -> None:
        """Move the output's frontier as far as the joined replicas allow."""
        # One stable may let a joining replica join, whose pending stable then counts as well.
        while leader := self.members.leader(self.frontier):
            time = leader.frontier
            if self.policy.gaps:
                time = self.members.reach(self.frontier, wait=self.policy.wait)
            time -= self.policy.stable_lag
            if time <= self.frontier:
                break
            self._reconcile(leader, time)
            self.frontier = time
            self._emitted.append(Stable(time))
        self._forget_settled(remember=self.policy.remember)

    def _reconcile(self, leader: Replica, time: Time) -> None:
        """Emit what is owed before the output's frontier moves to `time`."""
        for node in [one for one in self.nodes.values() if one.identity.start < time]:
            identity, start = node.identity, node.identity.start
            deciding, theirs = leader, node.ends.get(leader.key)
            if self.policy.gaps:
                deciding, theirs = self._deciding(node, leader)
            elif theirs is None and self._is_gap(node, leader, time):
                self.missing.append((leader.name, identity))
            self._agree(node, deciding, theirs, time)
            if self.policy.gaps and start >= self.frontier and node.output:
                events = {key: ends.total() for key, ends in node.ends.items()}
                self._count_gaps(identity, events)
            end = max(node.output, default=start)
            if end < time or time == FOREVER:
                reason = Reason.MISSED if theirs is None else Reason.SUPERSEDED
                for key in list(node.held):
                    self._release(node, key, reason)
                del self.nodes[identity]
                if node.output or theirs is not None:
                    self.settled[identity] = end

    def _deciding(self, node: Node, leader: Replica) -> tuple[Replica, Counter[Time] | None]:
        """Who decides on an identity where replicas may have gaps, and with which ends.

        None: nobody has it, or too few for a quorum, which only counts while it is free.  What
        ended before the frontier in a replica was decided on when the frontier passed it; what
        ends before its guarantee a replica may have wrongly (L9).
        """
        start, frontier = node.identity.start, self.frontier
        joined, inserts, needed = self.members.joined(frontier), self.policy.inserts, 1
        removing: list[Replica] = []
        having: list[tuple[int, Time, Replica]] = []
        for one in joined:
            since = NEVER if start >= frontier else min(frontier, one.complete_from)
            ends = node.ends.get(one.key)
            if ends and max(ends) >= since:
                is_open = sum(count for end, count in ends.items() if end >= frontier)
                having.append((is_open, one.frontier, one))
            elif ends is not None and not ends and start >= since:
                removing.append(one)
        if removing:
            return max(removing, key=lambda one: one.frontier), Counter()
        if isinstance(inserts, Quorum) and start >= frontier:
            needed = inserts.needed(len(joined))
        if len(having) < needed:
            return leader, None
        deciding = max(having, key=lambda found: found[:2])[2]
        return deciding, node.ends[deciding.key]

    def _is_gap(self, node: Node, leader: Replica, time: Time) -> bool:
        """Whether the leader should know this identity, and the output cannot wait for it."""
        start = node.identity.start
        if max(start, self.frontier) < leader.complete_from:
            return False
        if start < self.frontier:
            return max(node.output, default=time) < time
        return bool(node.output) or any(node.ends.values())

    def _agree(
        self, node: Node, deciding: Replica, theirs: Counter[Time] | None, time: Time
    ) -> None:
        """Make the output agree with the deciding replica, where it cannot be done later."""
        start, frontier, guarantee = node.identity.start, self.frontier, deciding.complete_from
        have, want, gaps = node.output, theirs or Counter(), self.policy.gaps
        is_free = self._may_remove(start) or (start >= frontier and not have)
        is_unsure = max(start, frontier) < guarantee
        if not is_free:
            have, want = heeded(have, want, frontier=frontier, guarantee=guarantee)
        if is_unsure and not (is_free and theirs is not None and not want):
            # It need not know what ends before its guarantee, and denies what ends later.
            for end in spared(have, want):
                until = min(end, guarantee)
                want = want + Counter([until])
                if until < end:
                    have = have - Counter([end]) + Counter([until])
                    self._apply(node, NewEnd(end, until))
        if not is_free and gaps and (theirs is None or theirs):
            have, want = have - Counter(spared(have, want)), want - Counter(spared(want, have))
        if not is_free and not node.in_conflict:
            node.in_conflict = is_denied(have, want, frontier=frontier)
            self.conflicts += node.in_conflict
        rules = {"free": is_free, "shrink_only": self.policy.shrink_only}
        for change in owed(have, want, frontier=frontier, time=time, **rules):
            self._apply(node, change, deciding.key)

    def _may_remove(self, start: Time) -> bool:
        """Whether an event that starts then may leave the output."""
        return start >= self.frontier and self.policy.inserts is not Inserts.HALF_FROZEN

    def _apply(self, node: Node, change: NewEnd, credit: Attachment | None = None) -> None:
        """Change an event of the output, and emit that.

        Of the held inserts of a new event one is emitted (that of `credit`, if it has one), and
        the others are known.
        """
        (start, payload), (old_end, end) = node.identity, change
        until = start if end is None else end
        _move(node.output, change)
        if old_end is not None:
            self._emitted.append(Adjust(payload, start, old_end, until))
            return
        self._emitted.append(Insert(payload, start, until))
        node.withdrawn = False
        if credit not in node.held:
            credit = next(iter(node.held), None)
        for key in list(node.held):
            self._release(node, key, Reason.FIRST if key == credit else Reason.KNOWN)

    def _release(self, node: Node, key: Attachment, reason: Reason) -> None:
        """An insert of this replica, if it was held, is no longer."""
        if key in node.held:
            self._resolved.append(Released(key[0], node.held.pop(key), reason))

    def _flush(self) -> tuple[tuple[Element, ...], tuple[Released, ...]]:
        """What was emitted, and which elements are no longer pending, since the last time."""
        emitted, resolved = tuple(self._emitted), tuple(self._resolved)
        self._emitted, self._resolved = [], []
        return emitted, resolved


def _move(bag: Counter[Time], change: NewEnd) -> None:
    """Apply one change to a bag of ends."""
    if change.old_end is not None:
        bag[change.old_end] -= 1
        if not bag[change.old_end]:
            del bag[change.old_end]
    if change.end is not None:
        bag[change.end] += 1


def accuse(replica: str, element: Element, reason: Reason) -> str:
    """The message of a violation that stops a merge."""
    return (
        f"merge: replica '{replica}' sent '{show_element(element)}', which is wrong: "
        f"{reason.text}; repair the replica, or let the merge go on with violations=ignore "
        "or violations=detach"
    )
