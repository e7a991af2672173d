"""How a policy looks at one event: who may bring it to the output, and with which end.

A `View` is all that these answers need beside the event itself.  While it stays the same, only
an event that a replica mentions can have a new answer; when it changes, all may.

Papers: LMerge V-A, locations 1 and 2.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from anabranch.model.element import Identity, Insert
from anabranch.model.time import NEVER, Time
from anabranch.operators.merge.policy import Adjusts, Follow, Inserts, Policy, Quorum
from anabranch.operators.reference.membership import Attachment, Membership, Replica, first_of


@dataclass(slots=True)
class Node:
    """One event that may still change: its end on the output, and what each replica has.

    `output_end` None: it is not on the output, and may still come there.  `held` are the
    inserts that are pending because of that.  `withdrawn`: it was on the output, and an adjust
    took it away; the next replica that mentions it, and has it, brings it back.
    """

    output_end: Time | None = None
    ends: dict[Attachment, Time] = field(default_factory=dict)
    in_conflict: bool = False
    withdrawn: bool = False
    held: dict[Attachment, Insert] = field(default_factory=dict)


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


class Bringer(NamedTuple):
    """Who brings an event to the output, and the end that it gets there."""

    attachment: Attachment
    end: Time


def look(
    policy: Policy,
    members: Membership,
    nodes: Mapping[Identity, Node],
    *,
    frontier: Time,
    before: View,
) -> View:
    """The view of this policy, now."""
    inserts = policy.inserts
    followed = _followed(policy, members, frontier, before.followed)
    view = View(followed, frontier=NEVER if followed is None else frontier)
    if inserts is Inserts.FIRST:
        return view
    joined = members.joined(frontier)
    if isinstance(inserts, Quorum):
        return view._replace(voters=tuple(one.key for one in joined))
    chosen = _chosen(policy, joined, nodes, frontier, before.chosen)
    if chosen is None:
        return view
    sure = chosen.frontier if inserts is Inserts.HALF_FROZEN else NEVER
    return view._replace(chosen=chosen.key, sure=sure)


def _followed(
    policy: Policy, members: Membership, frontier: Time, before: Attachment | None
) -> Attachment | None:
    if policy.adjusts is Adjusts.FOLLOW_LEADER:
        leader = members.leader(frontier, before=before)
        return None if leader is None else leader.key
    if isinstance(policy.adjusts, Follow):
        one = members.replicas.get(policy.adjusts.replica)
        return one.key if one is not None and one.is_joined(frontier) else None
    return None


def _chosen(
    policy: Policy,
    joined: list[Replica],
    nodes: Mapping[Identity, Node],
    frontier: Time,
    before: Attachment | None,
) -> Replica | None:
    if policy.inserts in (Inserts.LEADER, Inserts.HALF_FROZEN):
        return first_of(joined, lambda one: one.frontier, before)
    if policy.inserts is Inserts.HIGHEST_START:
        return first_of(joined, lambda one: one.highest_start, before)
    assert policy.inserts is Inserts.MOST_FREE
    free = [(start, node) for (start, _), node in nodes.items() if start >= frontier]
    return first_of(
        joined,
        lambda one: sum(node.ends.get(one.key, start) > start for start, node in free),
        before,
    )


def bringer(
    policy: Policy,
    view: View,
    start: Time,
    node: Node,
    *,
    order: Iterable[Attachment],
    by: Attachment | None,
) -> Bringer | None:
    """Who may bring an event that is not on the output, or None while it must wait.

    `by` is the replica that has just mentioned it; `order` is that of attaching.
    """
    if view.followed is not None and node.ends.get(view.followed) == start:
        return None
    having = [key for key in order if node.ends.get(key, start) > start]
    if by not in having:
        by = None
    if node.withdrawn and by is None:
        return None
    one = _first_allowed(policy, view, start, having, by)
    if one is None:
        return None
    # An event that cannot be removed again must not be shown too short for shrink_only: only
    # the one in which it is half frozen knows that its end will not be longer.
    lasting = policy.shrink_only and policy.inserts is Inserts.HALF_FROZEN
    followed = None if lasting else view.followed
    giver = one if followed is None or followed not in having else followed
    return Bringer(one, node.ends[giver])


def _first_allowed(
    policy: Policy,
    view: View,
    start: Time,
    having: list[Attachment],
    by: Attachment | None,
) -> Attachment | None:
    inserts = policy.inserts
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
