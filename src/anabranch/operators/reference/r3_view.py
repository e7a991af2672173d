"""How a policy looks at one event: who may bring it to the output, and with which end.

A `View` is all that these answers need beside the event itself.  While it stays the same, only
an event that a replica mentions can have a new answer; when it changes, all may.

Papers: LMerge V-A, locations 1 and 2.
"""

from typing import NamedTuple

from anabranch.model.element import Adjust, Identity
from anabranch.model.frozen import may_adjust
from anabranch.model.time import NEVER, Time
from anabranch.operators.merge.policy import Adjusts, Follow, Inserts, Policy, Quorum
from anabranch.operators.reference.membership import Attachment, Replica, first_of
from anabranch.operators.reference.r3_output import Node, Output


class View(NamedTuple):
    """Whom the policy asks at the moment; parts that it does not need stay as they are here.

    `followed`: whose ends the output takes on.  `chosen`: who brings events.  `sure`: where
    that one's promises reach.  `voters`: who counts for a quorum.  `frontier`: the output's, as
    far as following depends on it.
    """

    followed: Attachment | None = None
    chosen: Attachment | None = None
    sure: Time = NEVER
    voters: tuple[Attachment, ...] = ()
    frontier: Time = NEVER


class Governed(Output):
    """An output whose events come, and whose ends change, as a policy decides."""

    def __init__(self, policy: Policy) -> None:
        super().__init__(policy)
        self._view = View()

    def _look(
        self,
        identity: Identity | None = None,
        source: Replica | None = None,
        e: Adjust | None = None,
    ) -> None:
        """Ask the policy about an event that is mentioned; if its view changed, about all."""
        view = self._now()
        if view != self._view:
            self._view = view
            for other, node in self.nodes.items():
                if other != identity:
                    self._look_at(other, node, None, None)
        if identity is not None:
            self._look_at(identity, self.nodes[identity], source, e)

    def _look_at(
        self, identity: Identity, node: Node, source: Replica | None, e: Adjust | None
    ) -> None:
        if node.output_end is None:
            self._bring(identity, node, None if source is None else source.key)
        elif self._view.followed is not None:
            followed = self.replicas[self._view.followed[0]]
            end = node.ends.get(followed.key, node.output_end)
            self._follow(identity, node, end, followed, e)
        elif (
            self.policy.adjusts is Adjusts.ALWAYS
            and (source is not None and e is not None)
            and may_adjust(e.old_end, e.end, frontier=self.frontier)
        ):
            self._follow(identity, node, e.end, source, e)

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
            free = ((n.ends.get(one.key, s), s) for (s, _), n in self.nodes.items())
            return sum(end > start >= self.frontier for end, start in free)
        return one.frontier

    def _bring(self, identity: Identity, node: Node, by: Attachment | None) -> None:
        """Bring an event to the output, if the policy lets somebody; else it must wait.

        `by` is the replica that has just mentioned it.
        """
        start, followed = identity.start, self._view.followed
        if followed is not None and node.ends.get(followed) == start:
            return
        order = [one.key for one in self.replicas.values()]
        having = [key for key in order if node.ends.get(key, start) > start]
        mentioning = by if by in having else None
        if node.withdrawn and mentioning is None:
            return
        one = self._first_allowed(start, having, mentioning)
        if one is None:
            return
        # An event that cannot be removed again must not be shown too short for shrink_only:
        # only the one in which it is half frozen knows that its end will not be longer.
        lasting = self.policy.shrink_only and self.policy.inserts is Inserts.HALF_FROZEN
        giver = followed if followed in having and not lasting else one
        assert giver is not None, f"nobody gives the end of {identity}"
        self._show(identity, node, node.ends[giver], credit=by if by in node.held else one)

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
