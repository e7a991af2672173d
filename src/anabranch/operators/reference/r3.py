"""Merge for case R3, one element at a time: the reference that the kernel is raced against.

For replicas of one stream in which (start, payload) names at most one event at any time;
inserts, adjusts and stables in any order that keeps the replica's own promises.  The first
replica to bring an event puts it on the output; its end is corrected only when a stable would
freeze a wrong one:

    the output's frontier is the greatest frontier of the joined replicas;
    on a stable that moves it, the replica that sent it decides: every event that starts before
    the stable is made to agree with it on the output, if that could not be done later.

Where replicas may have gaps (`policy.gaps`), the frontier waits for all joined replicas, and
all of them decide together (`_opinion`): a removal by any of them counts before an event, the
end is that of the furthest replica that has the event, and a replica without it has no say.

That is the default; a `Policy` may hold events back, follow ends earlier, stay behind the
leader, or never lengthen (`policy`, `r3_view`).  Whatever it is, the above is what is owed
before the frontier moves.  Replicas attach and detach at any time (`membership`).

Errata applied: L3 (the output's entry changes only when an adjust is sent), L4 (what is half
frozen on the output stays, and is never cut below its frontier), L8 (entries belong to an
attachment, and leave with it), L9 (a joining replica's stables wait until the output reaches
its guarantee), L14 (shrink_only), L15 (stable(FOREVER) frees everything).  A removal leaves a
tombstone (an entry whose end is its start, as in the paper): a decider that removed an event
differs from one that never had it, which is a gap, named in `missing`.

Papers: LMerge IV-D, Algorithm R3 (MaxStable is `frontier`, in2t is `nodes`); V-A, V-B, V-C.

>>> from anabranch.model.element import Insert, Stable
>>> merge = MergeR3()
>>> merge.push("east", Insert("a", 3, 9)).output
(Insert(payload='a', start=3, end=9),)
>>> merge.push("west", Insert("a", 3, 7)).output
()
>>> merge.push("west", Stable(8)).output
(Adjust(payload='a', start=3, old_end=9, end=7), Stable(time=8))
"""

from typing import NamedTuple

from anabranch.errors import ViolationError
from anabranch.model.element import Adjust, Element, Identity, Insert, Stable
from anabranch.model.notation import show_element
from anabranch.model.time import FOREVER, Time
from anabranch.operators.contract import Bucket, Outcome, Reason, Released
from anabranch.operators.merge.policy import DEFAULT, Policy, Quorum, Violations
from anabranch.operators.reference.membership import Replica
from anabranch.operators.reference.r3_output import Node
from anabranch.operators.reference.r3_view import Governed


class Change(NamedTuple):
    """What attaching or detaching a replica did to the output, and to what was pending."""

    output: tuple[Element, ...]
    resolved: tuple[Released, ...]


class MergeR3(Governed):
    """The state of the reference merge: replicas attach and detach, and push elements."""

    def __init__(self, *, policy: Policy = DEFAULT) -> None:
        super().__init__(policy)

    def attach(
        self, replica: str, *, guarantee: Time | None = None, attachment: int = 1
    ) -> Change:
        """Let a replica take part, or replace its old attachment by a new one."""
        left = self.replicas.get(replica)
        self.members.attach(replica, guarantee=guarantee, attachment=attachment)
        self._forget(left)
        self._regroup()
        return Change(*self._flush())

    def detach(self, replica: str) -> Change:
        """Drop what this replica has; what it brought to the output stays."""
        left = self.replicas.pop(replica, None)
        if left is not None:
            self._forget(left)
            self._regroup()
        return Change(*self._flush())

    def pass_over(self, replica: str) -> Change:
        """Do not wait for this replica until it has caught up."""
        self.members.pass_over(replica)
        self._regroup()
        return Change(*self._flush())

    def check(self) -> None:
        """Verify what must hold between any two calls."""
        attached, held = {one.key for one in self.replicas.values()}, 0
        for (start, _), node in self.nodes.items():
            if node.output_end is None:
                assert start >= self.frontier, f"an event was passed by: {node!r}"
            else:
                assert node.output_end >= self.frontier, f"a final event was kept: {node!r}"
                assert not node.held, f"held, and on the output: {node!r}"
            assert attached >= node.ends.keys(), f"entries outlived a replica: {node!r}"
            assert all(node.ends[key] > start for key in node.held), f"held nothing: {node!r}"
            held += len(node.held)
        assert held == self.account.buckets()[Bucket.PENDING], f"{held} held: {self.account!r}"

    def push(self, replica: str, element: Element, *, seq: int | None = None) -> Outcome:
        """Take a replica's next element; an unknown replica is complete from the beginning."""
        reason = self._take_next(replica, element, seq)
        self.account.take(replica, element, reason)
        return Outcome(reason, *self._flush())

    def _take_next(self, replica: str, element: Element, seq: int | None) -> Reason:
        if replica in self.members.expelled:
            return Reason.EXPELLED
        if replica not in self.replicas:
            self.members.attach(replica, guarantee=None, attachment=1)
            self._regroup()
        source = self.replicas[replica]
        last_seq = source.last_seq
        if not source.consumes(seq):
            return Reason.REDELIVERY
        reason = self._take(element, source)
        if reason.bucket is Bucket.VIOLATION:
            if self.policy.violations is Violations.RAISE:
                source.last_seq = last_seq
                raise ViolationError(accuse(replica, element, reason))
            if self.policy.violations is Violations.DETACH:
                self.members.expel(replica)
                self._forget(self.replicas.pop(replica))
                self._regroup()
        return reason

    def _take(self, element: Element, source: Replica) -> Reason:
        if isinstance(element, Insert):
            return self._insert(element, source)
        if isinstance(element, Adjust):
            return self._adjust(element, source)
        return self._stable(element, source)

    def _insert(self, e: Insert, source: Replica) -> Reason:
        if refused := source.refuses(e):
            return refused
        identity = Identity(e.start, e.payload)
        node = self.nodes.get(identity)
        if node is not None and node.ends.get(source.key, e.start) > e.start:
            return Reason.SECOND_INSERT
        source.highest_start = max(source.highest_start, e.start)
        if node is None:
            if e.start < self.frontier:
                self._look()
                return self._too_late(identity)
            node = self.nodes[identity] = Node()
        node.ends[source.key] = e.end
        if node.output_end is not None:
            self._look(identity, source)
            return Reason.KNOWN
        node.held[source.key] = e
        self._look(identity, source)
        return Reason.HELD if source.key in node.held else self._recall(e)

    def _adjust(self, e: Adjust, source: Replica) -> Reason:
        if refused := source.refuses(e):
            return refused
        identity = Identity(e.start, e.payload)
        node = self.nodes.get(identity)
        if node is None and e.start < self.frontier:
            return self._too_late(identity)
        if node is None or e.old_end <= e.start or node.ends.get(source.key) != e.old_end:
            return Reason.NO_SUCH_EVENT
        return self._note(e, source, node)

    def _note(self, e: Adjust, source: Replica, node: Node) -> Reason:
        node.ends[source.key] = e.end
        if e.is_removal:
            self._release(node, source.key, Reason.SUPERSEDED)
        before, held = node.output_end, bool(node.held)
        self._look(Identity(e.start, e.payload), source, e)
        if before is not None:
            after = e.start if node.output_end is None else node.output_end
            return Reason.CORRECTED if after != before and after == e.end else Reason.NOTED
        if e.is_removal:
            return Reason.SUPERSEDED
        return Reason.NOTED if node.output_end is None or held else Reason.FIRST

    def _stable(self, e: Stable, source: Replica) -> Reason:
        if e.time <= source.frontier:
            return Reason.FOLLOWS
        source.frontier = e.time
        joined = source.is_joined(self.frontier)
        moved = self._advance()
        self._look()
        if moved:
            return Reason.LEADS
        return Reason.FOLLOWS if joined else Reason.JOINING

    def _advance(self) -> bool:
        """Move the output's frontier as far as the joined replicas allow; whether it moved."""
        before = self.frontier
        # One stable may let a joining replica join, whose pending stable then counts as well.
        while leader := self.members.leader(self.frontier):
            time = leader.frontier
            if self.policy.gaps:
                time = self.members.reach(self.frontier, wait=self.policy.wait)
            time -= self.policy.stable_lag
            if time <= self.frontier:
                break
            self._reconcile(leader, time)
            self._move_to(time, leader.key)
        self._forget_settled()
        return self.frontier > before

    def _reconcile(self, leader: Replica, time: Time) -> None:
        """Emit what is owed before the output's frontier moves to `time`."""
        for identity, node in [n for n in self.nodes.items() if n[0].start < time]:
            decider, theirs = leader, node.ends.get(leader.key)
            if self.policy.gaps:
                decider, theirs = self._opinion(identity.start, node, leader)
            elif theirs is None and self._is_gap(identity.start, node, leader, time):
                self.missing.append((leader.name, identity))
            end = self._agreed_end(identity.start, node, decider, theirs, time)
            if node.output_end is None and end > identity.start:
                self._show(identity, node, end, credit=decider.key)
            else:
                self._change(identity, node, end)
            if self.policy.gaps and identity.start >= self.frontier and end > identity.start:
                has_it = {key: int(one > identity.start) for key, one in node.ends.items()}
                self._count_gaps(identity, has_it)
            if end < time or time == FOREVER:
                is_removed = theirs is not None
                for key in list(node.held):
                    reason = Reason.SUPERSEDED if is_removed else Reason.MISSED
                    self._release(node, key, reason)
                del self.nodes[identity]
                if end > identity.start or is_removed:
                    self.settled[identity] = end

    def _opinion(self, start: Time, node: Node, leader: Replica) -> tuple[Replica, Time | None]:
        """Who decides on an event where replicas may have gaps, and with which end.

        None: nobody has it, or too few for a quorum, which only counts while it is free.
        """
        joined = self.members.joined(self.frontier)
        known = [(one, self._heeded(start, node.ends.get(one.key), one)) for one in joined]
        removing = [one for one, end in known if end == start]
        if removing:
            return max(removing, key=lambda one: one.frontier), start
        having = [(one, end) for one, end in known if end is not None and end > start]
        inserts, needed = self.policy.inserts, 1
        if isinstance(inserts, Quorum) and start >= self.frontier:
            needed = inserts.needed(len(joined))
        if len(having) < needed:
            return leader, None
        # What ended before the frontier was decided on when the frontier passed it.
        return max(having, key=lambda pair: (pair[1] >= self.frontier, pair[0].frontier))

    def _heeded(self, start: Time, theirs: Time | None, decider: Replica) -> Time | None:
        """The end of a replica; None where it may be wrong about a half-frozen event.

        What ends before its guarantee a replica may have wrongly (L9).
        """
        if theirs is None or start >= self.frontier:
            return theirs
        return None if theirs < min(self.frontier, decider.complete_from) else theirs

    def _agreed_end(
        self, start: Time, node: Node, decider: Replica, theirs: Time | None, time: Time
    ) -> Time:
        """The end on the output when its frontier is at `time`; the start: not there."""
        shown = node.output_end
        if shown is None:
            return start if theirs is None else theirs
        theirs = self._heeded(start, theirs, decider)
        if theirs is not None and theirs > start:
            end = max(theirs, self.frontier)
            self._note_conflict(node, real=end > theirs)
            if self.policy.shrink_only and self._may_remove(start):
                return end
            return shown if min(end, shown) >= time else end
        is_unsure = max(start, self.frontier) < decider.complete_from
        if is_unsure and (theirs is None or not self._may_remove(start)):
            # It need not know what ends before its guarantee, and denies what ends later.
            return min(shown, decider.complete_from)
        if self._may_remove(start):
            return start
        # Where replicas may have gaps, one that lacks an event does not deny it.
        self._note_conflict(node, real=theirs is not None or not self.policy.gaps)
        return shown

    def _is_gap(self, start: Time, node: Node, leader: Replica, time: Time) -> bool:
        """Whether the leader should know this event, and the output cannot wait for it."""
        frontier, shown = self.frontier, node.output_end
        if max(start, frontier) < leader.complete_from:
            return False
        if start < frontier:
            return shown is not None and shown < time
        return shown is not None or any(end > start for end in node.ends.values())

    def _note_conflict(self, node: Node, *, real: bool) -> None:
        if real and not node.in_conflict:
            node.in_conflict = True
            self.conflicts += 1

    def _regroup(self) -> None:
        """After replicas came or left: who leads now, and what follows from that."""
        if self.policy.promote:
            self.members.succeed(self.frontier)
        self._advance()
        self._look()

    def _forget(self, left: Replica | None) -> None:
        """Drop what an attachment has, and events that no other one mentions."""
        if left is None:
            return
        for identity, node in list(self.nodes.items()):
            self._release(node, left.key, Reason.ABANDONED)
            node.ends.pop(left.key, None)
            if node.output_end is None and not node.ends:
                del self.nodes[identity]


def accuse(replica: str, element: Element, reason: Reason) -> str:
    """The message of a violation that stops a merge."""
    return (
        f"merge: replica '{replica}' sent '{show_element(element)}', which is wrong: "
        f"{reason.text}; repair the replica, or let the merge go on with violations=ignore "
        "or violations=detach"
    )
