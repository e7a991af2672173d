"""Merge for case R3, one element at a time: the reference of the kernel.

For replicas of one stream in which (start, payload) names at most one event at any time;
inserts, adjusts and stables in any order that keeps the replica's own promises.  The first
replica to bring an event puts it on the output; its end is corrected only when a stable would
freeze a wrong one:

    the output's frontier is the greatest frontier of the joined replicas;
    on a stable that moves it, the replica that sent it decides: every event that starts before
    the stable is made to agree with it on the output, if that could not be done later.

All of that is `r4` for identities with one event.  Added here: a second insert of an event that
its replica has is a violation; and a `Policy` may hold events back and follow ends earlier.

A `View` is all that a policy needs beside an event to decide who may bring it to the output,
and with which end.  While the view stays the same, only an event that a replica mentions can
have a new answer; when it changes, all may.  Whatever the policy, what `r4` owes before the
frontier moves is emitted by then.

Errata applied: those of `r4`, and D8 (an adjust is followed only if both its ends are open).
A removal leaves an empty entry (the paper's tombstone): a deciding replica that removed an
event differs from one that never had it, which is a gap, named in `missing`.

Papers: LMerge IV-D, Algorithm R3 (MaxStable is `frontier`, in2t is `nodes`); V-A, locations
1 and 2; V-B, V-C.

>>> from anabranch.model.element import Insert, Stable
>>> merge = MergeR3()
>>> merge.push("east", Insert("a", 3, 9)).output
(Insert(payload='a', start=3, end=9),)
>>> merge.push("west", Insert("a", 3, 7)).output
()
>>> merge.push("west", Stable(8)).output
(Adjust(payload='a', start=3, old_end=9, end=7), Stable(time=8))
"""

from collections import Counter
from typing import NamedTuple

from anabranch.model.element import Adjust, Identity, Insert
from anabranch.model.frozen import may_adjust
from anabranch.model.time import NEVER, Time
from anabranch.operators.contract import Reason
from anabranch.operators.merge.policy import DEFAULT, Adjusts, Follow, Inserts, Policy, Quorum
from anabranch.operators.reference.membership import Attachment, Replica, first_of
from anabranch.operators.reference.r4 import MergeR4, Node
from anabranch.operators.reference.r4_agree import NewEnd


class View(NamedTuple):
    """The replicas that the policy follows now; fields that it does not use keep the defaults.

    `followed`: whose ends the output takes on.  `chosen`: who brings events.  `sure`: where
    that one's promises reach.  `voters`: who counts for a quorum.  `frontier`: the output's, as
    far as following depends on it.
    """

    followed: Attachment | None = None
    chosen: Attachment | None = None
    sure: Time = NEVER
    voters: tuple[Attachment, ...] = ()
    frontier: Time = NEVER


class MergeR3(MergeR4):
    """The state of the reference merge: replicas attach and detach, and push elements."""

    def __init__(self, *, policy: Policy = DEFAULT) -> None:
        super().__init__(policy=policy)
        self._view = View()
        self._asks_all = False

    def _follow_policy(self, before: Policy) -> None:
        """Ask the new policy about every event, when the frontier has moved.

        One that never removes events may not have shown them too early: what is still free on
        the output, and not half frozen in the leader, leaves it.
        """
        inserts, nodes = self.policy.inserts, list(self.nodes.values())
        if inserts != before.inserts:
            for one in self.replicas.values():
                having = (node.identity.start for node in nodes if node.ends.get(one.key))
                one.highest_start = max(having, default=NEVER)
        self._view, self._asks_all = View(), True
        view, begins = self._now(), before.inserts is not Inserts.HALF_FROZEN
        for node in nodes:
            node.withdrawn = False
            start, shown = node.identity.start, node.output_end
            if inserts is not Inserts.HALF_FROZEN or not begins or shown is None:
                continue
            has_it = view.chosen is not None and node.ends.get(view.chosen)
            if start >= self.frontier and not (has_it and start < view.sure):
                self._apply(node, NewEnd(shown, None))

    def _insert(
        self, e: Insert, source: Replica, identity: Identity, node: Node | None
    ) -> Reason:
        if node is not None and node.ends.get(source.key):
            return Reason.SECOND_INSERT
        source.highest_start = max(source.highest_start, e.start)
        if node is None:
            if e.start < self.frontier:
                self._look()
                return self._too_late(identity)
            node = self.nodes[identity] = Node(identity)
        node.ends[source.key] = Counter([e.end])
        if node.output:
            self._look(node, source)
            return Reason.KNOWN
        node.held[source.key] = e
        self._look(node, source)
        return Reason.HELD if source.key in node.held else self._recall(e)

    def _recall(self, e: Insert) -> Reason:
        """The reason of an insert that was held for no longer than it took to look at it."""
        own = next(one for one in self._resolved if one.element is e)
        self._resolved.remove(own)
        return own.reason

    def _note(self, e: Adjust, source: Replica, node: Node) -> Reason:
        if e.is_removal:
            self._release(node, source.key, Reason.SUPERSEDED)
        before, held = node.output_end, bool(node.held)
        self._look(node, source, e)
        if before is not None:
            after = e.start if node.output_end is None else node.output_end
            return Reason.CORRECTED if after != before and after == e.end else Reason.NOTED
        if e.is_removal:
            return Reason.SUPERSEDED
        return Reason.NOTED if node.output_end is None or held else Reason.FIRST

    def _look(
        self, node: Node | None = None, source: Replica | None = None, e: Adjust | None = None
    ) -> None:
        """Ask the policy about an event that is mentioned; if its view changed, about all."""
        view = self._now()
        if self._asks_all or view != self._view:
            self._view, self._asks_all = view, False
            for other in self.nodes.values():
                if other is not node:
                    self._look_at(other, None, None)
        if node is not None:
            self._look_at(node, source, e)

    def _look_at(self, node: Node, source: Replica | None, e: Adjust | None) -> None:
        if not node.output:
            self._bring(node, None if source is None else source.key)
        elif self._view.followed is not None:
            followed = self.replicas[self._view.followed[0]]
            ends = node.ends.get(followed.key, node.output)
            self._follow(node, max(ends, default=node.identity.start), followed, e)
        elif (
            self.policy.adjusts is Adjusts.ALWAYS
            and (source is not None and e is not None)
            and may_adjust(e.old_end, e.end, frontier=self.frontier)
        ):
            self._follow(node, e.end, source, e)

    def _follow(self, node: Node, end: Time, source: Replica, e: Adjust | None) -> None:
        """Give an event the end that this replica has, if that is possible before reconcile.

        `e` is the element that asks for it, if one does.
        """
        start, shown = node.identity.start, node.output_end
        if shown is None or end == shown:
            return
        free = self._may_remove(start)
        if end == start:
            if free:
                self._apply(node, NewEnd(shown, None))
                node.withdrawn = self.policy.adjusts is Adjusts.ALWAYS
            return
        # A shorter end that its replica can still take back would have to be lengthened again.
        lengthens = e is not None and e.end > e.old_end
        lasting = source.frontier > start and (end < shown or lengthens)
        if end < self.frontier or not (free or lasting or not self.policy.shrink_only):
            return
        if self.policy.shrink_only and end > shown and free:
            self._apply(node, NewEnd(shown, None))
            self._apply(node, NewEnd(None, end))
        else:
            self._apply(node, NewEnd(shown, end))

    def _now(self) -> View:
        """The view of the policy, now."""
        inserts, joined = self.policy.inserts, self.members.joined(self.frontier)
        followed = self._followed()
        view = View(followed, frontier=NEVER if followed is None else self.frontier)
        if inserts is Inserts.FIRST:
            return view
        if isinstance(inserts, Quorum):
            return view._replace(voters=tuple(one.key for one in joined))
        chosen = first_of(joined, self._score, self._view.chosen)
        if chosen is None:
            return view
        sure = chosen.frontier if inserts is Inserts.HALF_FROZEN else NEVER
        return view._replace(chosen=chosen.key, sure=sure)

    def _followed(self) -> Attachment | None:
        one = None
        if self.policy.adjusts is Adjusts.FOLLOW_LEADER:
            one = self.members.leader(self.frontier, before=self._view.followed)
        elif isinstance(self.policy.adjusts, Follow):
            one = self.replicas.get(self.policy.adjusts.replica)
        return one.key if one is not None and one.is_joined(self.frontier) else None

    def _score(self, one: Replica) -> Time:
        """By what the replica that brings events is the greatest."""
        if self.policy.inserts is Inserts.HIGHEST_START:
            return one.highest_start
        if self.policy.inserts is Inserts.MOST_FREE:
            free = (node for (start, _), node in self.nodes.items() if start >= self.frontier)
            return sum(bool(node.ends.get(one.key)) for node in free)
        return one.frontier

    def _bring(self, node: Node, by: Attachment | None) -> None:
        """Bring an event to the output, if the policy permits it; else it must wait.

        `by` is the replica that has just mentioned it.
        """
        followed = self._view.followed
        if followed in node.ends and not node.ends[followed]:
            return
        having = [one.key for one in self.replicas.values() if node.ends.get(one.key)]
        mentioning = by if by in having else None
        if node.withdrawn and mentioning is None:
            return
        one = self._first_allowed(node.identity.start, having, mentioning)
        if one is None:
            return
        # An event that cannot be removed again must not be shown too short for shrink_only:
        # only the one in which it is half frozen knows that its end will not be longer.
        lasting = self.policy.shrink_only and self.policy.inserts is Inserts.HALF_FROZEN
        giver = followed if followed in having and not lasting else one
        assert giver is not None, f"nobody gives the end of {node!r}"
        credit = by if by in node.held else one
        self._apply(node, NewEnd(None, max(node.ends[giver])), credit)

    def _first_allowed(
        self, start: Time, having: list[Attachment], by: Attachment | None
    ) -> Attachment | None:
        inserts, view = self.policy.inserts, self._view
        if inserts is Inserts.FIRST:
            return by or next(iter(having), None)
        if isinstance(inserts, Quorum):
            votes = [key for key in having if key in view.voters]
            if len(votes) < inserts.needed(len(view.voters)):
                return None
            return by if by in votes else votes[0]
        if inserts is Inserts.HALF_FROZEN and start >= view.sure:
            return None
        return view.chosen if view.chosen in having else None
