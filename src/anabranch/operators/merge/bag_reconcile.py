"""Reconcile for bags: corrections of identities that have several events.

For each bag that a move of the frontier concerns, `visit_bags` does in columns what
`reference.r4_agree` states for multisets.  What both sides have is left alone; of the rest

    a wanted end before the stable takes the smallest end that is too many,
    then an end before the stable that is too many takes the smallest that is wanted,
    then, if the identity is still free, removals and inserts make the counts equal.

What the output has promised stays (L4), and what the deciding replica need not know counts on
neither side (`heed`, L9).  Then the bag is frozen and leaves, or `schedule_bags` notes when to
look at it again: at the smallest open end of any replica, and for every replica that
contradicts it.

The kernels stop when there is no room for the next bag, and can be resumed there.

Papers: LMerge IV-E, Algorithm R4, lines 16 to 30, with errata L4, L9, L11, L14 and L15; D5.
"""

from typing import Final, NamedTuple

import numpy as np

from anabranch.batch.batch import FOREVER_UNITS, Ints
from anabranch.batch.index import START
from anabranch.batch.kernel import kernel, part
from anabranch.operators.merge.bags import (
    CREDIT,
    CREDITED_BY,
    CREDITED_END,
    OUT_BLOCK,
    SHOWN_BLOCK,
    Bags,
    change_output,
    count_at,
    end_at,
    has_end,
    has_room,
    last_end,
    size,
    total,
)
from anabranch.operators.merge.layout import BAG, CONFLICT, DONE, ENDS, OUT
from anabranch.operators.merge.reconcile import (
    GAPS,
    Deciding,
    Found,
    Scope,
    count_gaps,
    is_gap,
    is_unsure,
    note_conflict,
    pass_by,
    put,
)
from anabranch.operators.state.blocks import BLOCK_BITS
from anabranch.operators.state.events import ABSENT, FLAGS

EXTRA: Final = 0
LACK: Final = 1
"""The rows of `bags` and the places of `counts`: ends that are too many, and that lack."""


class Scratch(NamedTuple):
    """What one visit writes down: the ends that are too many and those that lack, ascending."""

    bags: Ints
    counts: Ints


def scratch_for(events: int) -> Scratch:
    """Buffers for identities with `events` events."""
    return Scratch(np.empty((2, max(64, events)), np.int64), np.zeros(2, np.int64))


@part
def is_room(bags: Bags, scratch: Scratch, events: int) -> bool:
    """Whether an identity with `events` events can be visited."""
    return has_room(bags, 2 * events) and events <= scratch.bags.shape[1]


@kernel
def visit_bags(
    nodes: Ints,
    begin: int,
    scope: Scope,
    deciding: Deciding,
    rows: Ints,
    changed: Ints,
    missing: Ints,
    bags: Bags,
    scratch: Scratch,
    found: Found,
) -> int:
    """Visit the bags from `begin` on; returns where it had to stop, or how many."""
    for k in range(begin, nodes.size):
        node, record = nodes[k], rows[nodes[k], OUT]
        start, flags = rows[node, START], rows[node, FLAGS]
        if flags & DONE:
            continue
        who = fullest(bags, rows, node, deciding, scope)
        guarantee = deciding.guarantee[who]
        have, want = bags.records[record, OUT_BLOCK], rows[node, ENDS + deciding.replica[who]]
        # Nothing of this bag has changed yet, so it can be visited again from the start.
        if not is_room(bags, scratch, total(bags, have) + total(bags, want)):
            return k
        is_free = start >= scope.frontier
        find_differences(bags, record, start, want, guarantee, scope, scratch)
        # A promise that the deciding replica cannot have given: counted, and kept.
        if not is_free and not flags & CONFLICT and is_denied(scratch, scope.frontier):
            flags = note_conflict(rows, node, flags, missing, found)
            changed[node >> BLOCK_BITS] = scope.mark
        last = last_end(bags, bags.records[record, OUT_BLOCK])
        if want == ABSENT and is_gap(rows, bags, node, last, guarantee, scope):
            put(found, GAPS, node)
        # From now on no end may grow, so all ends become those of the deciding replica (L14).
        if is_free and scope.shrink_only:
            make_equal(bags, record, scratch)
        else:
            agree(bags, record, is_free, scope, scratch)
        if bags.records[record, OUT_BLOCK] != bags.records[record, SHOWN_BLOCK]:
            changed[node >> BLOCK_BITS] = scope.mark
        last, removed = last_end(bags, bags.records[record, OUT_BLOCK]), want != ABSENT
        if scope.gaps and is_free and last != ABSENT:
            count_gaps(rows, bags, node, deciding, found)
        flags = pass_by(rows, node, flags, last, removed, scope, missing, found)
        rows[node, FLAGS] = flags
    return nodes.size


@part
def find_differences(
    bags: Bags,
    record: int,
    start: int,
    want: int,
    guarantee: int,
    scope: Scope,
    scratch: Scratch,
) -> None:
    """Write down what the output has too many of, and what it lacks, as far as it counts."""
    have, is_free = bags.records[record, OUT_BLOCK], start >= scope.frontier
    since, skipped, removed = ABSENT, 0, want != ABSENT and total(bags, want) == 0
    # Half frozen: what is frozen, or may be wrong, is no reason to change anything.
    if not is_free:
        since, skipped = heed(bags, have, want, guarantee, scope)
    compare_from(bags, have, want, since, skipped, scratch)
    # A promoted replica may simply not know some of ours; its removal it does know.
    if is_unsure(start, guarantee, scope) and not (is_free and removed):
        spare(bags, record, guarantee, scratch)
    # A removal before its guarantee a deciding replica may have wrongly (L9).
    if scope.gaps and not is_free and not (removed and start >= since):
        forgive(scratch, EXTRA, LACK)
        forgive(scratch, LACK, EXTRA)


@part
def fullest(bags: Bags, rows: Ints, node: int, deciding: Deciding, scope: Scope) -> int:
    """Who decides on an identity: the most open events, but who removed all goes first.

    The reference is `reference.r4.MergeR4._deciding`.
    """
    start, best, most = rows[node, START], 0, -1
    for k in range(deciding.replica.size):
        at = rows[node, ENDS + deciding.replica[k]]
        since = min(int(scope.frontier), int(deciding.guarantee[k]))
        if at == ABSENT:
            continue
        last = last_end(bags, at)
        # An empty block is a removal of all, if it may be believed here.
        if last == ABSENT:
            if start >= since:
                return k
            continue
        # All that it has is over, or may be wrong: no opinion.
        if start < scope.frontier and last < since:
            continue
        is_open = 0
        for j in range(size(bags, at)):
            if end_at(bags, at, j) >= scope.frontier:
                is_open += count_at(bags, at, j)
        # The first of equals: replicas come most advanced first.
        if is_open > most:
            best, most = k, is_open
    return best


@kernel
def heed(bags: Bags, have: int, want: int, guarantee: int, scope: Scope) -> tuple[int, int]:
    """The part of a half-frozen bag that need not agree with the deciding replica (L9, D5).

    Ends before the first number returned count on neither side; of the deciding replica's
    others, the second is how many are left out, the smallest first: the output has no event for
    them, and they end before the deciding replica's guarantee.
    """
    since = min(int(scope.frontier), int(guarantee))
    # A guarantee that the frontier has reached excuses nothing that is still open.
    if guarantee <= scope.frontier:
        return since, 0
    ours, theirs, unsure = 0, 0, 0
    for k in range(size(bags, have)):
        if end_at(bags, have, k) >= since:
            ours += count_at(bags, have, k)
    for k in range(size(bags, want)):
        end, count = end_at(bags, want, k), count_at(bags, want, k)
        if end >= since:
            theirs += count
            if end < guarantee:
                unsure += count
    return since, min(unsure, max(theirs - ours, 0))


@kernel
def compare_from(
    bags: Bags, have: int, want: int, since: int, skipped: int, scratch: Scratch
) -> None:
    """Write down the ends that are too many in `have`, and those that it lacks.

    Ends before `since` do not count, nor do the smallest `skipped` of `want`.
    """
    counts = scratch.counts
    counts[EXTRA] = counts[LACK] = 0
    ours, theirs = size(bags, have), size(bags, want)
    i, j = 0, 0
    # Two sorted lists side by side, from the first end that counts.
    while i < ours and end_at(bags, have, i) < since:
        i += 1
    while j < theirs and end_at(bags, want, j) < since:
        j += 1
    while i < ours or j < theirs:
        is_ours = j == theirs or (i < ours and end_at(bags, have, i) <= end_at(bags, want, j))
        is_theirs = i == ours or (j < theirs and end_at(bags, want, j) <= end_at(bags, have, i))
        end, more = 0, 0
        if is_ours:
            end, more = end_at(bags, have, i), count_at(bags, have, i)
            i += 1
        if is_theirs:
            end, wanted = end_at(bags, want, j), count_at(bags, want, j)
            # The smallest ends that need not be there are no lack.
            left_out = min(skipped, wanted)
            skipped -= left_out
            more -= wanted - left_out
            j += 1
        which = EXTRA if more > 0 else LACK
        for _ in range(abs(more)):
            scratch.bags[which, counts[which]] = end
            counts[which] += 1


@part
def compare(bags: Bags, have: int, want: int, scratch: Scratch) -> None:
    """The same for all ends."""
    compare_from(bags, have, want, ABSENT, 0, scratch)


@kernel
def spare(bags: Bags, record: int, guarantee: int, scratch: Scratch) -> None:
    """Leave alone what a promoted replica need not know, but not beyond its guarantee.

    These events are not among the extra ones any more.
    """
    extra = scratch.bags[EXTRA]
    # Its surplus ends are ours alone; none of them may outlast what it would know.
    for k in range(max(scratch.counts[EXTRA] - scratch.counts[LACK], 0)):
        if extra[k] > guarantee:
            change_output(bags, record, extra[k], guarantee)
    forgive(scratch, EXTRA, LACK)


@part
def forgive(scratch: Scratch, more: int, fewer: int) -> None:
    """Leave out what one side has more of than the other, the smallest ends first."""
    ends, counts = scratch.bags[more], scratch.counts
    surplus = max(counts[more] - counts[fewer], 0)
    for k in range(surplus, counts[more]):
        ends[k - surplus] = ends[k]
    counts[more] -= surplus


@part
def is_denied(scratch: Scratch, frontier: int) -> bool:
    """Whether the deciding replica cannot have promised what an output at this frontier has."""
    extras, lacks = scratch.counts[EXTRA], scratch.counts[LACK]
    return bool(
        extras != lacks
        or (extras > 0 and scratch.bags[EXTRA, 0] < frontier)
        or (lacks > 0 and scratch.bags[LACK, 0] < frontier)
    )


@kernel
def agree(bags: Bags, record: int, is_free: bool, scope: Scope, scratch: Scratch) -> None:  # noqa: FBT001
    """Correct what cannot be corrected after the stable (erratum L11)."""
    extra, lack, time = scratch.bags[EXTRA], scratch.bags[LACK], scope.time
    extras, lacks = scratch.counts[EXTRA], scratch.counts[LACK]
    e, w = 0, 0
    # Pairs within the promise cost nothing: skip them on both sides.
    if not is_free:
        e, w = keep_promise(extra, extras, lack, lacks, scope.frontier)
    # A wanted end that freezes now must be there: take the smallest end that is too many.
    while w < lacks and lack[w] < time:
        if e < extras:
            change_output(bags, record, extra[e], lack[w])
            e += 1
        elif is_free:
            change_output(bags, record, ABSENT, lack[w])
        w += 1
    # An end that freezes now and is too many must go: to the smallest wanted one.
    while e < extras and extra[e] < time:
        if w < lacks:
            change_output(bags, record, extra[e], lack[w])
            w += 1
        elif is_free:
            change_output(bags, record, extra[e], ABSENT)
        e += 1
    if is_free:
        # While the start is free the number of events can still be made right.
        surplus = (extras - e) - (lacks - w)
        for k in range(surplus):
            change_output(bags, record, extra[e + k], ABSENT)
        for k in range(-surplus):
            change_output(bags, record, ABSENT, lack[w + k])


@part
def keep_promise(
    extra: Ints, extras: int, lack: Ints, lacks: int, frontier: int
) -> tuple[int, int]:
    """Where the ends begin that may still change; wanted ones are not before the frontier.

    A frozen end takes the place of a wanted one that is before the frontier too, or for which
    no event is left that may still change.
    """
    e, w = 0, 0
    while e < extras and extra[e] < frontier:
        e += 1
    while w < lacks and lack[w] < frontier:
        w += 1
    # As many wanted ends are answered for by frozen ones as have no other event left.
    w = min(e, max(w, lacks - (extras - e)))
    # What ends before the frontier can end no earlier than there (L4).
    for k in range(w, lacks):
        lack[k] = max(lack[k], frontier)
    while e < extras and w < lacks and extra[e] == frontier and lack[w] == frontier:
        e += 1
        w += 1
    return e, w


@kernel
def make_equal(bags: Bags, record: int, scratch: Scratch) -> None:
    """Shorten where that is possible; what is left is removed, then inserted (L14)."""
    extra, lack = scratch.bags[EXTRA], scratch.bags[LACK]
    e = 0
    for w in range(scratch.counts[LACK]):
        # Ends that are too short cannot be lengthened: they are removed.
        while e < scratch.counts[EXTRA] and extra[e] < lack[w]:
            change_output(bags, record, extra[e], ABSENT)
            e += 1
        if e < scratch.counts[EXTRA]:
            change_output(bags, record, extra[e], lack[w])
            e += 1
        else:
            change_output(bags, record, ABSENT, lack[w])
    for k in range(e, scratch.counts[EXTRA]):
        change_output(bags, record, extra[k], ABSENT)


@kernel
def publish_bags(
    nodes: Ints,
    begin: int,
    scope: Scope,
    deciding: Deciding,
    rows: Ints,
    bags: Bags,
    scratch: Scratch,
) -> int:
    """Put credited events of bags on the output; returns where it had to stop, or how many.

    A bag gets as many events as the fullest replica has, with the ends that this replica gives
    them; the end of the first credited insert comes before the others.
    `scope` is the first move of this step, or has the time ABSENT.  Of what starts before it
    only events of the one deciding replica are published: the rest would be removed at once,
    unless the deciding replica was promoted and need not know it.
    """
    for k in range(begin, nodes.size):
        node, record = nodes[k], rows[nodes[k], OUT]
        # Credit is what an insert of this step has brought; without any, nothing is new.
        if bags.records[record, CREDIT] == 0:
            continue
        start = rows[node, START]
        best = rows[node, ENDS + bags.records[record, CREDITED_BY]]
        decides = start < scope.time and not scope.gaps
        if decides and not is_unsure(start, deciding.guarantee[0], scope):
            best = rows[node, ENDS + deciding.replica[0]]
        else:
            for column in range(ENDS, rows.shape[1]):
                if total(bags, rows[node, column]) > total(bags, best):
                    best = rows[node, column]
        have, most = total(bags, bags.records[record, OUT_BLOCK]), total(bags, best)
        if not is_room(bags, scratch, have + most):
            return k
        # The insert that had the first credit is seen with its own end, if that still holds.
        first_end = bags.records[record, CREDITED_END]
        if most > have and has_end(bags, best, first_end):
            change_output(bags, record, ABSENT, first_end)
            have += 1
        # Only as many as are missing: the rest is a matter for reconcile.
        if most > have:
            compare(bags, bags.records[record, OUT_BLOCK], best, scratch)
            for w in range(most - have):
                change_output(bags, record, ABSENT, scratch.bags[LACK, w])
    return nodes.size


@kernel
def schedule_bags(
    nodes: Ints, frontier: int, rows: Ints, bags: Bags, dues: Ints, pends: Ints
) -> tuple[int, int]:
    """When to visit half-frozen bags again, and for which replica; how many of both.

    Nothing happens to a bag before the smallest end, of any replica, that is not behind the
    frontier; except that a replica contradicts it already, which counts when it decides.
    """
    listed, pended = 0, 0
    for k in range(nodes.size):
        node = nodes[k]
        start = rows[node, START]
        # A free bag is due at its start, and has that entry since it is new.
        if rows[node, FLAGS] & (BAG | DONE) != BAG or start >= frontier:
            continue
        out = bags.records[rows[node, OUT], OUT_BLOCK]
        due = first_open(bags, out, frontier)
        for column in range(ENDS, rows.shape[1]):
            theirs = rows[node, column]
            due = min(due, first_open(bags, theirs, frontier))
            # It counts from its next stable on, so the time of the entry is as early as can
            # be.
            if theirs != ABSENT and contradicts(bags, out, theirs, frontier):
                pends[0, pended], pends[1, pended] = column - ENDS, start
                pends[2, pended] = node
                pended += 1
        if due < FOREVER_UNITS:
            dues[0, listed], dues[1, listed] = due, node
            listed += 1
    return listed, pended


@part
def first_open(bags: Bags, at: int, frontier: int) -> int:
    """The smallest end that is not before the frontier, or FOREVER."""
    for k in range(size(bags, at)):
        if end_at(bags, at, k) >= frontier:
            return end_at(bags, at, k)
    return int(FOREVER_UNITS)


@part
def contradicts(bags: Bags, out: int, theirs: int, frontier: int) -> bool:
    """Whether a replica has more or fewer events, or other ends behind the frontier."""
    if total(bags, out) != total(bags, theirs):
        return True
    for k in range(size(bags, out)):
        # All ends before agree; one that is still open is no contradiction yet.
        if end_at(bags, out, k) >= frontier:
            return k < size(bags, theirs) and end_at(bags, theirs, k) < frontier
        if k >= size(bags, theirs) or end_at(bags, theirs, k) != end_at(bags, out, k):
            return True
        if count_at(bags, theirs, k) != count_at(bags, out, k):
            return True
    return False
