"""Reconcile: new events at the end of a step, and corrections before the frontier moves.

The first replica to have an event brings it (`publish_all`: the paper's Algorithm R3, lines 3
to 9); where a policy holds events back, `govern` decides instead.  Then the output has to agree
with the replica that moves its frontier.

When a deciding replica goes from `frontier` to `time`, an event that starts before `time`

* is alive until `end` in the deciding replica: it ends at max(end, frontier) on the output, if
  that or its end on the output is before `time` (else there is no hurry);
* is removed or unknown there, and starts before `frontier`: stays, for it was promised (L4);
* is removed or unknown there, and does not: leaves the output.

Where replicas may have gaps, all joined replicas decide (`Deciding`): a removal by any of them
counts before an event, else the furthest replica that has the event decides, and a replica that
never mentioned it does not count.

With `shrink_only` an event that becomes half frozen gets the deciding replica's end at once,
while it can still be removed and inserted again (L14).  A policy that never removes events
(`keeps`) treats each as promised.  A deciding replica that was promoted need not know what ends
before its guarantee, and denies what ends later (D5).

Events whose end on the output is then before `time` are frozen and leave the state; under
stable(FOREVER) all do (L15).  Only the events that the agenda names are visited;
`bag_reconcile` visits those with several events of one identity.

The reference is `reference.r4.MergeR4._reconcile` and `_agree`.

Papers: LMerge IV-D, Algorithm R3, lines 15 to 29, with errata L3, L4, L14 and L15; D5.
"""

from typing import Final, NamedTuple

import numpy as np

from anabranch.batch.batch import FOREVER_UNITS, Codes, Ints, Mask
from anabranch.batch.index import LOW, NOBODY, START
from anabranch.batch.kernel import kernel, part
from anabranch.operators.merge import codes
from anabranch.operators.merge.bags import Bags, total
from anabranch.operators.merge.judge import Elements
from anabranch.operators.merge.layout import (
    BAG,
    CONFLICT,
    DONE,
    ENDS,
    HALF_FROZEN,
    OUT,
    RANK,
    REMOVED,
    SHOWN,
)
from anabranch.operators.state.blocks import BLOCK_BITS
from anabranch.operators.state.events import ABSENT, FLAGS, LIVE

CHANGED: Final = 0
ENDED: Final = 1
STAYS: Final = 2
PASSES: Final = 3
GAPS: Final = 4
BAGS: Final = 5
LISTS: Final = 6
"""The lists that a visit appends to, and how many there are."""

PENDS: Final = 6
CONFLICTS: Final = 7
VISITS: Final = 8
COUNTS: Final = 9
"""The further places of `counts`."""


class Scope(NamedTuple):
    """One move of the frontier: from where to where, and by which rules.

    `gaps`: replicas may lack what others have; then an event that becomes half frozen needs as
    many replicas as `needed`.  `queued`: the number of visited events that came from the
    list of due events.
    """

    frontier: int
    time: int
    mark: int
    shrink_only: bool
    keeps: bool
    gaps: bool
    needed: int
    queued: int = 0


class Deciding(NamedTuple):
    """On whose behalf the frontier moves: its leader, or where there are gaps all who joined.

    The most advanced replica comes first.  `guarantee`: it may omit, or have wrongly, what ends
    before (ABSENT: it is complete, L9); a guarantee beyond the frontier is that of a replica
    that was promoted.  `reached`: its frontier.  `decides` has a place for every replica.
    """

    replica: Ints
    guarantee: Ints
    reached: Ints
    decides: Mask


LACKS: Final = 0
ALONE: Final = 1
"""The rows of `Found.gaps`: events that each replica lacks, and those that it alone has."""


class Found(NamedTuple):
    """What the visits of one move write down: lists of events, and pends; see `agenda.pend`."""

    lists: Ints
    pends: Ints
    counts: Ints
    gaps: Ints

    def listed(self, what: int) -> Ints:
        """One of the lists."""
        return self.lists[what, : self.counts[what]]


def nothing_found(events: int, replicas: int) -> Found:
    """Buffers for the visits of `events` events."""
    lists, counts = np.empty((LISTS, events), np.int64), np.zeros(COUNTS, np.int64)
    pends, gaps = np.empty((3, events * replicas), np.int64), np.zeros((2, replicas), np.int64)
    return Found(lists, pends, counts, gaps)


@kernel
def publish_all(
    rows: Ints, new: Ints, credit: Ints, replica: Ints, first: int, brought: Ints, pends: Ints
) -> tuple[int, int]:
    """Put each new event that has credit on the output, with that replica's end.

    If that replica has taken it back meanwhile, the first replica that has it gives the end.
    The events are ranked from `first` on.  Returns how many came, and how many cells are
    earlier than the output's end.
    """
    came, pended = 0, 0
    for k in range(new.size):
        node = new[k]
        # Taken back by all within the step, or a bag, which has its own credit.
        if credit[k] == NOBODY or rows[node, FLAGS] & BAG:
            continue
        # The end of the bringer as it is now: what it corrected within the step never shows.
        start = rows[node, START]
        end = rows[node, ENDS + replica[credit[k]]]
        column = ENDS
        while end <= start:
            end = rows[node, column]
            column += 1
        rows[node, OUT], rows[node, RANK] = end, first + came
        brought[came] = node
        came += 1
        pended = pend_row(rows, node, ABSENT, end, pends, pended)
    return came, pended


@kernel
def pend_all(rows: Ints, elements: Elements, reasons: Codes, pends: Ints) -> int:
    """The cells that these elements made earlier than the end that readers have."""
    pended = 0
    for i in range(reasons.size):
        if reasons[i] not in (codes.KNOWN, codes.NOTED):
            continue
        node = elements.node[i]
        # New events are listed by `publish_all`, bags by `schedule_bags`.
        if rows[node, SHOWN] == ABSENT or rows[node, FLAGS] & BAG:
            continue
        end = rows[node, ENDS + elements.replica[i]]
        # An earlier end is due before the output's own: a stable of this replica must look.
        if end < rows[node, OUT]:
            pends[0, pended], pends[1, pended] = elements.replica[i], end
            pends[2, pended] = node
            pended += 1
    return pended


@kernel
def visit_all(
    ids: Ints,
    scope: Scope,
    deciding: Deciding,
    rows: Ints,
    changed: Ints,
    missing: Ints,
    bags: Bags,
    found: Found,
) -> None:
    """Visit these rows; bags are listed, and left to `bag_reconcile`.

    Of each row: who decides and with which end (`opinion`), what the output makes of that
    (`agreed`), which conflict or gap it shows, which replicas have an earlier end than the
    output (pends), and whether the row is frozen and leaves or passes the frontier (`pass_by`).
    """
    counts, time = found.counts, scope.time
    for k in range(ids.size):
        node = ids[k]
        counts[VISITS] += 1
        flags, start, out = rows[node, FLAGS], rows[node, START], rows[node, OUT]
        # Entries go stale and are not removed: a visit checks again.
        if flags & (LIVE | DONE) != LIVE or start >= time:
            continue
        if flags & BAG:
            put(found, BAGS, node)
            continue
        who, end = opinion(rows, node, deciding, scope)
        chosen, guarantee = deciding.replica[who], deciding.guarantee[who]
        # Decide first, then count: conflicts and gaps are about the end before the change.
        after = agreed(start, end, out, guarantee, scope)
        if out != ABSENT and not flags & CONFLICT and denies(start, end, guarantee, scope):
            flags = note_conflict(rows, node, flags, missing, found)
        # An event may be on the list of what is due twice.
        if scope.gaps and after != ABSENT and not flags & HALF_FROZEN:
            count_gaps(rows, bags, node, deciding, found)
        is_new = rows[node, ENDS + chosen] == ABSENT
        if is_new and is_gap(rows, bags, node, out, guarantee, scope):
            put(found, GAPS, node)
        if after != out:
            put(found, CHANGED, node)
            if out == ABSENT:
                rows[node, RANK] = chosen
            if after > out:
                counts[PENDS] = pend_row(rows, node, out, after, found.pends, counts[PENDS])
        removed = after == ABSENT and end == start
        flags = pass_by(rows, node, flags, after, removed, scope, missing, found)
        if scope.gaps:
            pend_again(rows, node, flags, min(out, after), deciding, scope, found)
        # Its entry was taken from the list; until it is frozen it needs another.
        if k < scope.queued and not flags & DONE:
            put(found, STAYS, node)
        if after != out or (flags ^ rows[node, FLAGS]) & CONFLICT:
            changed[node >> BLOCK_BITS] = scope.mark
        rows[node, OUT], rows[node, FLAGS] = after, flags


@part
def pass_by(
    rows: Ints,
    node: int,
    flags: int,
    last: int,
    removed: bool,  # noqa: FBT001
    scope: Scope,
    missing: Ints,
    found: Found,
) -> int:
    """The flags of a row behind the frontier: it is frozen and leaves, or is half frozen.

    `last` is its last end on the output; `removed`: it leaves with the deciding replica's
    consent.
    """
    # Frozen, or no end is left to come: nobody can change it any more.
    if last < scope.time or scope.time == FOREVER_UNITS:
        if flags & HALF_FROZEN and not flags & CONFLICT:
            count_missing(rows, node, missing, -1)
        put(found, ENDED, node)
        return flags | DONE | (REMOVED if removed else 0)
    # It may still end otherwise, so who never mentioned it is watched from now on.
    if not flags & HALF_FROZEN:
        flags |= HALF_FROZEN
        put(found, PASSES, node)
        if not flags & CONFLICT:
            count_missing(rows, node, missing, 1)
    return flags


@part
def opinion(rows: Ints, node: int, deciding: Deciding, scope: Scope) -> tuple[int, int]:
    """Who decides on an event, and with which end; ABSENT: nobody has it, or too few.

    The reference is `reference.r4.MergeR4._deciding`.
    """
    start, votes, first, end = rows[node, START], 0, 0, ABSENT
    frontier = scope.frontier
    if not scope.gaps:
        # The one deciding replica needs no vote: this is the path of every merge without gaps.
        cell = rows[node, ENDS + deciding.replica[0]]
        return 0, heeded(start, cell, deciding.guarantee[0], scope)
    for k in range(deciding.replica.size):
        cell = rows[node, ENDS + deciding.replica[k]]
        theirs = heeded(start, cell, deciding.guarantee[k], scope)
        # A removal is knowledge, an absence is not: it decides against any number of votes.
        if theirs == start:
            return k, theirs
        if theirs != ABSENT:
            votes += 1
            # What ended before the frontier was decided on when the frontier passed it.
            if votes == 1 or end < frontier <= theirs:
                first, end = k, theirs
    # Too few, and not promised yet: nothing comes to the output.
    if votes < scope.needed and start >= frontier:
        return 0, ABSENT
    return first, end


@part
def is_unsure(start: int, guarantee: int, scope: Scope) -> bool:
    """Whether a promoted deciding replica need not know this event."""
    return max(start, scope.frontier) < guarantee


@part
def heeded(start: int, cell: int, guarantee: int, scope: Scope) -> int:
    """The deciding replica's end; ABSENT where it may be wrong about a half-frozen event."""
    is_open = start >= scope.frontier or cell >= min(scope.frontier, guarantee)
    return cell if is_open else ABSENT


@part
def agreed(start: int, end: int, out: int, guarantee: int, scope: Scope) -> int:
    """The end of an event on the output after a deciding replica that has `end`."""
    is_free = start >= scope.frontier and not scope.keeps
    # The deciding replica has the event: change only what could not be corrected after the
    # stable. Under `shrink_only` a free event takes its end at once: later it could not be
    # lengthened (L14).
    if end > start:
        wanted = max(end, scope.frontier)
        is_due = wanted < scope.time or out < scope.time
        return wanted if is_due or (scope.shrink_only and is_free) else out
    # The deciding replica lacks it: what is promised stays, what is free goes.
    if out == ABSENT:
        return out
    if is_unsure(start, guarantee, scope) and (end == ABSENT or not is_free):
        # It need not know what ends before its guarantee, and denies what ends later.
        return min(out, guarantee)
    return ABSENT if is_free else out


@part
def denies(start: int, end: int, guarantee: int, scope: Scope) -> bool:
    """Whether the deciding replica contradicts the output, which cannot follow it."""
    if end > start:
        return end < scope.frontier
    if end == ABSENT and scope.gaps:
        return False
    is_free = start >= scope.frontier and not scope.keeps
    return not is_free and not is_unsure(start, guarantee, scope)


@part
def events_of(rows: Ints, bags: Bags, node: int, replica: int) -> int:
    """How many events of an identity a replica has."""
    cell = rows[node, ENDS + replica]
    return total(bags, cell) if rows[node, FLAGS] & BAG else int(cell > rows[node, START])


@part
def is_gap(rows: Ints, bags: Bags, node: int, last: int, guarantee: int, scope: Scope) -> bool:
    """Whether the one deciding replica lacks this identity and should have it by now.

    `last` is its last end on the output, ABSENT if it is not there.
    """
    if scope.gaps or is_unsure(rows[node, START], guarantee, scope):
        return False
    # Passed before: a gap only if the end that the output has is frozen now.
    if rows[node, FLAGS] & HALF_FROZEN:
        return last != ABSENT and last < scope.time
    # Free and on the output, or alive in some replica: the deciding one lacks it.
    if last != ABSENT:
        return True
    for replica in range(rows.shape[1] - ENDS):
        if events_of(rows, bags, node, replica) > 0:
            return True
    return False


@part
def count_gaps(rows: Ints, bags: Bags, node: int, deciding: Deciding, found: Found) -> None:
    """Count who lacks events that the frontier passes, or alone has them.

    A replica that may still bring them, or need not know them, is no evidence.
    """
    start, count = rows[node, START], deciding.replica.size
    # How many events there are is what the fullest replica has.
    most, second, first = 0, 0, 0
    for k in range(count):
        events = events_of(rows, bags, node, deciding.replica[k])
        if events > most:
            most, second, first = events, most, k
        else:
            second = max(second, events)
    # Evidence is a replica that has passed the start and is not excused by its guarantee.
    sure, lacking = 0, 0
    for k in range(count):
        if deciding.guarantee[k] <= start < deciding.reached[k]:
            lacks = most - events_of(rows, bags, node, deciding.replica[k])
            found.gaps[LACKS, deciding.replica[k]] += lacks
            lacking += lacks
            sure += k != first
    if lacking > 0:
        put(found, GAPS, node)
    # Alone only if every other one is evidence against it.
    if count > 1 and sure == count - 1:
        found.gaps[ALONE, deciding.replica[first]] += most - second


@part
def pend_again(
    rows: Ints,
    node: int,
    flags: int,
    out: int,
    deciding: Deciding,
    scope: Scope,
    found: Found,
) -> None:
    """List the deciding replicas again that give the event an earlier end than the output has.

    Their entries have been taken from the lists, though another replica decided.
    """
    for replica in range(deciding.decides.size if not flags & DONE else 0):
        end = rows[node, ENDS + replica]
        if not deciding.decides[replica] or end == ABSENT or end >= min(out, scope.time):
            continue
        # A removal that the output could not follow is settled for good.
        if flags & CONFLICT and end == rows[node, START]:
            continue
        at = found.counts[PENDS]
        found.pends[0, at], found.pends[1, at], found.pends[2, at] = replica, end, node
        found.counts[PENDS] = at + 1


@part
def note_conflict(rows: Ints, node: int, flags: int, missing: Ints, found: Found) -> int:
    """The flags of an event that is in conflict from now on; it is missed no more."""
    if flags & HALF_FROZEN:
        count_missing(rows, node, missing, -1)
    found.counts[CONFLICTS] += 1
    return flags | CONFLICT


@part
def pend_row(rows: Ints, node: int, least: int, out: int, pends: Ints, pended: int) -> int:
    """Note the cells of a row from `least` on that are earlier than `out`."""
    for column in range(ENDS, rows.shape[1]):
        end = rows[node, column]
        if end != ABSENT and least <= end < out:
            pends[0, pended], pends[1, pended], pends[2, pended] = column - ENDS, end, node
            pended += 1
    return pended


@part
def put(found: Found, what: int, node: int) -> None:
    """Add an event to one of the lists."""
    found.lists[what, found.counts[what]] = node
    found.counts[what] += 1


@part
def count_missing(rows: Ints, node: int, missing: Ints, more: int) -> None:
    """Count this event, once more or less, for the replicas that never mentioned it."""
    for replica in range(missing.size):
        if rows[node, ENDS + replica] == ABSENT:
            missing[replica] += more


@kernel
def list_final(rows: Ints, done: Ints, slowest: int, names: Ints, ends: Ints) -> int:
    """The names and last ends of what left, if the output knew it and a replica may name it."""
    count = 0
    for k in range(done.size):
        node = done[k]
        out, removed = rows[node, OUT], rows[node, FLAGS] & REMOVED != 0
        # A name is worth its bytes only while a slower replica may still mention it.
        end = rows[node, START] if out == ABSENT else out
        if (out != ABSENT or removed) and end >= slowest and slowest != FOREVER_UNITS:
            for column in range(LOW + 1):
                names[count, column] = rows[node, column]
            ends[count] = end
            count += 1
    return count


@kernel
def list_unreferenced(rows: Ints, created: Ints, found: Ints) -> int:
    """The new rows that no replica mentions: an adjust of nothing made them."""
    count = 0
    for k in range(created.size):
        node = created[k]
        is_free = rows[node, SHOWN] == ABSENT and rows[node, FLAGS] & (DONE | BAG) == 0
        for column in range(ENDS, rows.shape[1]):
            is_free = is_free and rows[node, column] == ABSENT
        if is_free:
            found[count] = node
            count += 1
    return count
