"""Evaluates policies at the end of a step: who may add an event, and which end it has.

A policy is applied once per step, after the frontier has moved, to the events that the step's
elements mention.  If the replicas that it follows have changed (another leader, a vote, a
frontier), it is also applied to the events that wait, or to all if it follows a replica.  It is
applied in the order of the elements, so that the last adjust of a step is the last that
`always` shows.

    bring     may a replica bring an event that is not on the output, and with which end
    follow    the end that a replica gives an event that is there

What a stable forces has been done before (`reconcile`): a policy only decides what nothing
forces yet.  The reference, which asks after every element, is `reference.r3.MergeR3._look`;
with steps of one element the two agree.

Inserts that a policy holds back wait until the step in which their fate is known.  Of each
event and replica at most one insert is held: its number in the order of arrival and the end
that it had.  It is `pending` while it is held; when a step ends it is

    emitted     if its event comes to the output and it is the one insert that brings it
    absorbed    if another one does, or its replica takes it back
    late        if the deciding replica passes its event by, or its own replica leaves

An insert of this step gets its reason directly, one of an earlier step is `resolved`; the
reference is `reference.r4.MergeR4`, `_apply` and `_release`.

Papers: LMerge V-A, locations 1 and 2; errata D8, L14.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from anabranch.batch.batch import ADJUST, NEVER_UNITS, Codes, Ints, Mask
from anabranch.batch.events import inserts
from anabranch.batch.index import NOBODY, START
from anabranch.batch.kernel import kernel, part
from anabranch.batch.schema import ElementSchema
from anabranch.operators.contract import Resolved
from anabranch.operators.merge import codes
from anabranch.operators.merge.bags import Nodes
from anabranch.operators.merge.judge import Elements
from anabranch.operators.merge.layout import (
    CREDITED,
    DONE,
    ENDS,
    OUT,
    RANK,
    REMOVED,
    SHOWN,
    TOUCHED,
    WITHDRAWN,
)
from anabranch.operators.merge.members import Members
from anabranch.operators.merge.policy import DEFAULT, Adjusts, Follow, Inserts, Policy, Quorum
from anabranch.operators.merge.reconcile import CHANGED, PENDS, VISITS, Found, pend_row, put
from anabranch.operators.state.events import ABSENT, FLAGS, LIVE, ROW

FIRST: Final = 0
CHOSEN: Final = 1
SURE: Final = 2
QUORUM: Final = 3
"""Who may bring an event: any replica; the chosen one; the chosen one, once the event is half
frozen in it; any of those that vote, if enough do."""


BRINGER_BITS: Final = 32
"""Of the RANK of an event that a step brings: these bits are the replica that may bring it."""


NUMBER: Final = 0
END: Final = 1
PER_REPLICA: Final = 2
"""The columns of `held`, for each replica."""

_REPLICA: Final = 0
_NUMBER: Final = 1
_END: Final = 2
_NODE: Final = 3
_REASON: Final = 4
_RELEASED: Final = 5


class View(NamedTuple):
    """The replicas that the policy follows now; fields that it does not use keep the defaults.

    `followed`: whose ends the output takes on.  `chosen`: who brings events.  `sure`: how far
    that one's frontier is.  `voters`: who counts for a quorum.  `frontier`: the output's, as
    far as following depends on it.  Replicas are named by their serial numbers.
    """

    followed: int = NOBODY
    chosen: int = NOBODY
    sure: int = int(NEVER_UNITS)
    voters: tuple[int, ...] = ()
    frontier: int = int(NEVER_UNITS)


class Rules(NamedTuple):
    """The policy and its view as kernels take them; replicas are columns.

    `frontier` is the output's, `reached` those of the replicas.  `votes` are the replicas that
    may vote, `needed` how many of them it takes.
    """

    inserts: int
    always: bool
    shrink_only: bool
    keeps: bool
    frontier: int
    followed: int
    chosen: int
    sure: int
    needed: int
    votes: Mask
    reached: Ints


def is_governed(policy: Policy) -> bool:
    """Whether a policy asks for more than `publish` and `reconcile` do by themselves."""
    return policy.inserts != DEFAULT.inserts or policy.adjusts != DEFAULT.adjusts


def keeps(policy: Policy) -> bool:
    """Whether an event that is on the output is never removed."""
    return policy.inserts is Inserts.HALF_FROZEN


def look(
    policy: Policy,
    members: Members,
    nodes: Nodes,
    highest: Ints,
    *,
    frontier: int,
    before: View,
) -> View:
    """The view of this policy, now."""
    joined = members.joined(frontier)
    view = View()
    if policy.adjusts is Adjusts.FOLLOW_LEADER:
        view = view._replace(followed=_best(members, joined, members.frontier, before.followed))
    elif isinstance(policy.adjusts, Follow):
        row = members.find(policy.adjusts.replica)
        if row is not None and joined[row]:
            view = view._replace(followed=int(members.serial[row]))
    if view.followed != NOBODY:
        view = view._replace(frontier=frontier)
    if policy.inserts is Inserts.FIRST:
        return view
    if isinstance(policy.inserts, Quorum):
        return view._replace(voters=tuple(members.serial[joined].tolist()))
    scores = _scores(policy, members, nodes, highest, frontier)
    chosen = _best(members, joined, scores, before.chosen)
    if chosen != NOBODY and keeps(policy):
        row = int(np.flatnonzero(members.serial == chosen)[0])
        view = view._replace(sure=int(members.frontier[row]))
    return view._replace(chosen=chosen)


def _scores(
    policy: Policy, members: Members, nodes: Nodes, highest: Ints, frontier: int
) -> Ints:
    """By what the chosen replica is the greatest."""
    if policy.inserts is Inserts.HIGHEST_START:
        return highest
    if policy.inserts is Inserts.MOST_FREE:
        counts = np.zeros(len(members), np.int64)
        count_free(nodes.rows, nodes.used, frontier, counts)
        return counts
    return members.frontier


def _best(members: Members, joined: Mask, scores: Ints, before: int) -> int:
    """The serial of the joined replica with the greatest score; of equals the one before."""
    rows = np.flatnonzero(joined)
    if not len(rows):
        return NOBODY
    best = rows[scores[rows].argmax()]
    held = rows[members.serial[rows] == before]
    if len(held) and scores[held[0]] >= scores[best]:
        best = held[0]
    return int(members.serial[best])


def rules_of(policy: Policy, view: View, members: Members, frontier: int) -> Rules:
    """The policy and its view, for kernels."""
    inserts, serials = policy.inserts, members.serial
    kinds = {Inserts.FIRST: FIRST, Inserts.HALF_FROZEN: SURE}
    votes = np.isin(serials, np.array(view.voters, np.int64))
    return Rules(
        QUORUM if isinstance(inserts, Quorum) else kinds.get(inserts, CHOSEN),
        policy.adjusts is Adjusts.ALWAYS,
        policy.shrink_only,
        keeps(policy),
        frontier,
        _column(serials, view.followed),
        _column(serials, view.chosen),
        view.sure,
        inserts.needed(len(view.voters)) if isinstance(inserts, Quorum) else 0,
        votes,
        members.frontier,
    )


def _column(serials: Ints, serial: int) -> int:
    found = np.flatnonzero(serials == serial)
    return int(found[0]) if len(found) else NOBODY


@kernel
def count_free(rows: Ints, used: int, frontier: int, counts: Ints) -> None:
    """How many events that may still start each replica has."""
    for node in range(used):
        start = rows[node, START]
        if rows[node, FLAGS] & (LIVE | DONE) == LIVE and start >= frontier:
            for replica in range(counts.size):
                counts[replica] += rows[node, ENDS + replica] > start


@kernel
def mark_touched(elements: Elements, reasons: Codes, rows: Ints) -> None:
    """Flag the events of which an element was believed."""
    for i in range(reasons.size):
        if reasons[i] == codes.KNOWN or reasons[i] == codes.NOTED:
            rows[elements.node[i], FLAGS] |= TOUCHED


@kernel
def govern_rest(rows: Ints, used: int, rules: Rules, found: Found) -> None:
    """Ask about the events that wait, or about all if a replica is followed.

    Those that elements of this step mention are left to `govern_touched`.
    """
    for node in range(used):
        if rows[node, FLAGS] & (LIVE | DONE | TOUCHED) != LIVE:
            continue
        if rows[node, OUT] == ABSENT or rules.followed != NOBODY:
            found.counts[VISITS] += 1
            before = rows[node, OUT]
            govern_event(rows, node, NOBODY, 0, 0, rules)
            note_change(rows, node, before, found)


@kernel
def govern_touched(
    elements: Elements, reasons: Codes, rows: Ints, rules: Rules, found: Found
) -> None:
    """Ask about the event of each element that was believed, in their order."""
    for i in range(reasons.size):
        if reasons[i] != codes.KNOWN and reasons[i] != codes.NOTED:
            continue
        node = elements.node[i]
        # What a stable has settled in this step no policy can change.
        if rows[node, FLAGS] & DONE:
            continue
        before, old_end, end = rows[node, OUT], 0, 0
        if elements.kind[i] == ADJUST:
            old_end, end = elements.old_end[i], elements.end[i]
        govern_event(rows, node, elements.replica[i], old_end, end, rules)
        note_change(rows, node, before, found)


@part
def govern_event(
    rows: Ints, node: int, speaker: int, old_end: int, end: int, rules: Rules
) -> None:
    """Ask about one event; an adjust of it has two different ends, else they are 0."""
    followed = rules.followed
    if rows[node, OUT] == ABSENT:
        bring(rows, node, speaker, rules)
    elif followed != NOBODY:
        theirs = rows[node, ENDS + followed]
        if theirs != ABSENT:
            follow(rows, node, theirs, followed, end > old_end, rules)
    elif (
        rules.always
        and old_end != end
        and min(old_end, end) >= rules.frontier
        and rows[node, ENDS + speaker] == end
    ):
        # What its replica has revised again within the step is not shown.
        follow(rows, node, end, speaker, end > old_end, rules)


@part
def note_change(rows: Ints, node: int, before: int, found: Found) -> None:
    """List an event that had this end, if it has another one now."""
    after, counts = rows[node, OUT], found.counts
    if after != before:
        put(found, CHANGED, node)
        if after > before:
            counts[PENDS] = pend_row(rows, node, before, after, found.pends, counts[PENDS])


@part
def has(rows: Ints, node: int, replica: int) -> bool:
    """Whether this replica has the event."""
    return bool(rows[node, ENDS + replica] > rows[node, START])


@part
def bring(rows: Ints, node: int, speaker: int, rules: Rules) -> None:
    """Bring an event to the output, if the policy permits it.

    RANK is then the replica whose element brings it.
    """
    start, followed = rows[node, START], rules.followed
    # The followed replica has removed it: bringing it would contradict it at once.
    if followed != NOBODY and rows[node, ENDS + followed] == start:
        return
    if speaker != NOBODY and not has(rows, node, speaker):
        speaker = NOBODY
    # Only a new element brings it back, not a look at what is known anyway.
    if rows[node, FLAGS] & WITHDRAWN and speaker == NOBODY:
        return
    one = allowed(rows, node, speaker, rules)
    if one == NOBODY:
        return
    # An event that cannot be removed again must not be shown too short for shrink_only: only
    # the one in which it is half frozen knows that its end will not be longer.
    giver = one
    lasting = rules.shrink_only and rules.keeps
    if followed != NOBODY and not lasting and has(rows, node, followed):
        giver = followed
    rows[node, OUT] = rows[node, ENDS + giver]
    rows[node, RANK] = (int(speaker + 1) << BRINGER_BITS) | one
    rows[node, FLAGS] &= ~WITHDRAWN


@part
def allowed(rows: Ints, node: int, speaker: int, rules: Rules) -> int:
    """Who may bring an event that is not on the output; NOBODY while it must wait."""
    if rules.inserts == FIRST:
        if speaker != NOBODY:
            return speaker
        for replica in range(rules.reached.size):
            if has(rows, node, replica):
                return replica
        return NOBODY
    if rules.inserts == QUORUM:
        return elected(rows, node, speaker, rules)
    # Its own stable must have passed the start: then it cannot remove it any more.
    if rules.inserts == SURE and rows[node, START] >= rules.sure:
        return NOBODY
    chosen = rules.chosen
    return chosen if chosen != NOBODY and has(rows, node, chosen) else NOBODY


@part
def elected(rows: Ints, node: int, speaker: int, rules: Rules) -> int:
    """Who brings an event for which enough replicas vote; NOBODY if too few do."""
    votes, first = 0, NOBODY
    for replica in range(rules.votes.size):
        if rules.votes[replica] and has(rows, node, replica):
            votes += 1
            if first == NOBODY:
                first = replica
    if votes < rules.needed:
        return NOBODY
    return speaker if speaker != NOBODY and rules.votes[speaker] else first


@part
def follow(rows: Ints, node: int, end: int, source: int, lengthens: bool, rules: Rules) -> None:  # noqa: FBT001
    """Give an event the end that this replica has, if that is possible before reconcile."""
    start, out = rows[node, START], rows[node, OUT]
    is_free = start >= rules.frontier and not rules.keeps
    if end == start:
        if is_free:
            rows[node, OUT] = ABSENT
            if rules.always:
                rows[node, FLAGS] |= WITHDRAWN
        return
    # A shorter end that its replica can still take back would have to be lengthened again.
    lasting = rules.reached[source] > start and (end < out or lengthens)
    if end >= rules.frontier and (is_free or lasting or not rules.shrink_only):
        rows[node, OUT] = end


class Holding(NamedTuple):
    """The held inserts by row and replica, and what becomes of them in one step.

    `base` is the number of the step's first element.  `released` has the inserts of earlier
    steps that are held no longer, `taken` how many these are.
    """

    held: Ints
    base: int
    reasons: Codes
    released: Ints
    taken: Ints


def holding(held: Ints, base: int, reasons: Codes, room: int) -> Holding:
    """The state at the beginning of a step, with room for `room` released inserts."""
    released = np.empty((room, _RELEASED), np.int64)
    return Holding(held, base, reasons, released, np.zeros(1, np.int64))


@part
def release(holding: Holding, node: int, replica: int, reason: int) -> None:
    """An insert of this replica, if it was held, is held no longer."""
    at = PER_REPLICA * replica
    number = holding.held[node, at + NUMBER]
    if number == NOBODY:
        return
    holding.held[node, at + NUMBER] = NOBODY
    # An insert of this step gets its reason in place.
    if number >= holding.base:
        holding.reasons[number - holding.base] = reason
        return
    row, k = holding.released, holding.taken[0]
    row[k, _REPLICA], row[k, _NUMBER] = replica, number
    row[k, _END], row[k, _NODE] = holding.held[node, at + END], node
    row[k, _REASON] = reason
    holding.taken[0] = k + 1


@kernel
def hold_all(elements: Elements, holding: Holding) -> None:
    """Hold each insert that was believed, until its replica takes it back."""
    for i in range(holding.reasons.size):
        node, replica = elements.node[i], elements.replica[i]
        if holding.reasons[i] == codes.KNOWN:
            at = PER_REPLICA * replica
            holding.held[node, at + NUMBER] = holding.base + i
            holding.held[node, at + END] = elements.end[i]
        elif holding.reasons[i] == codes.NOTED and elements.end[i] == elements.start[i]:
            release(holding, node, replica, codes.SUPERSEDED)


@kernel
def abandon(rows: Ints, used: int, replica: int, holding: Holding) -> None:
    """A replica leaves, and what is held of it is not decided any more."""
    for node in range(used):
        if rows[node, FLAGS] & LIVE:
            release(holding, node, replica, codes.ABANDONED)


@kernel
def settle_held(nodes: Ints, rows: Ints, holding: Holding) -> None:
    """Decide what is held of these events, as far as the end of the step decides it."""
    replicas = holding.held.shape[1] // PER_REPLICA
    for k in range(nodes.size):
        node = nodes[k]
        flags = rows[node, FLAGS]
        if rows[node, OUT] == ABSENT:
            if flags & DONE:
                reason = codes.SUPERSEDED if flags & REMOVED else codes.MISSED
                for replica in range(replicas):
                    release(holding, node, replica, reason)
            continue
        # It came to the output in this step: one held insert has the credit.
        if rows[node, SHOWN] == ABSENT:
            credit = credited(rows, node, holding.held)
            if credit != NOBODY:
                release(holding, node, credit, codes.FIRST)
                rows[node, FLAGS] = flags | CREDITED
        for replica in range(replicas):
            release(holding, node, replica, codes.KNOWN)


@part
def credited(rows: Ints, node: int, held: Ints) -> int:
    """Whose held insert brings this event to the output; NOBODY if none is held."""
    # Whose element brought it, then whose end it has, then the oldest.
    asked = int(rows[node, RANK] >> BRINGER_BITS) - 1
    one = int(rows[node, RANK] & ((1 << BRINGER_BITS) - 1))
    if asked >= 0 and held[node, PER_REPLICA * asked] != NOBODY:
        return asked
    if held[node, PER_REPLICA * one] != NOBODY:
        return one
    first = NOBODY
    for replica in range(held.shape[1] // PER_REPLICA):
        number = held[node, PER_REPLICA * replica]
        if number != NOBODY and (first == NOBODY or number < held[node, PER_REPLICA * first]):
            first = replica
    return first


def resolved_of(
    schema: ElementSchema, nodes: Nodes, names: Sequence[str], holding: Holding
) -> tuple[Resolved, ...]:
    """What was pending before this step and is no longer, per replica in order of arrival."""
    rows = holding.released[: holding.taken[0]]
    rows = rows[np.argsort(rows[:, _NUMBER])]
    found = []
    for replica in np.unique(rows[:, _REPLICA]).tolist():
        mine = rows[rows[:, _REPLICA] == replica]
        facts = nodes.rows[mine[:, _NODE]]
        batch = inserts(schema, facts[:, START], mine[:, _END], nodes.take(facts[:, ROW]))
        found.append(Resolved(names[replica], batch, mine[:, _REASON].astype(np.int8)))
    return tuple(found)
