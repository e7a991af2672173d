"""What the output owes before a stable is passed on, for the nodes that the stable is due at.

`visit_some` does for each node in columns what `r4_agree` says for bags, and then what the
stable brings: a node whose ends are all before it is frozen and leaves the state (under
stable(FOREVER) every node does, L15); of another is noted when to look at it again, and for
which replicas that want an end before the frontier.  `publish_some` puts the credited events of
a step on the output, with ends of the replica that has most of them (or that will decide): that
of the first insert that was credited, if it is still there, then the smallest that lack.

Both stop when there is no room for the next node, and can go on from there.

Papers: LMerge IV-E, Algorithm R4, lines 16 to 30, with errata L4, L11, L14 and L15.
"""

from typing import Any, Final, NamedTuple

import numpy as np

from anabranch.batch.batch import ADJUST, FOREVER_UNITS, INSERT, Ints
from anabranch.batch.kernel import kernel, part
from anabranch.operators.merge.r4_lists import (
    ABSENT,
    OUTPUT,
    add_end,
    count_at,
    end_at,
    find,
    has_room,
    remove_end,
    size,
    total,
    was_told,
)
from anabranch.operators.merge.r4_loop import LOGGED, WAITING, push, put, wait
from anabranch.operators.merge.r4_nodes import DEAD, DUE, IN_CONFLICT, STATUS, TOLD
from anabranch.operators.merge.slots import START

EXTRA: Final = 0
LACK: Final = 1
"""The rows of `bags` and `counts`."""

CONFLICTS: Final = 2
MISSING: Final = 3
ENDED: Final = 4
"""The further places of `counts`."""

_GONE: Final = ABSENT
"""Instead of an end: the event is removed."""


class Stable(NamedTuple):
    """The stable that is to be passed on: who sends it, the frontier before, its time.

    If its sender was promoted, it need not know what ends before `guarantee`, else ABSENT.
    """

    column: int
    frontier: int
    time: int
    shrink_only: bool
    guarantee: int


class Scratch(NamedTuple):
    """What one visit writes down: ends that are too many and that lack; then what came of all.

    `ended` are nodes that leave, `missing` nodes that the decider never mentioned.
    """

    bags: Ints
    counts: Ints
    ended: Ints
    missing: Ints


@kernel
def visit_some(nodes: Any, first: Any, stable: Any, work: Any, scratch: Any) -> Any:
    """Visit the nodes from `first` on; returns where it had to stop, or how many."""
    for k in range(first, nodes.size):
        node = nodes[k]
        start = work.facts[node, START]
        have = total(work.lists, node, OUTPUT, start)
        want = total(work.lists, node, stable.column, start)
        if not _is_room(work, scratch, have + want):
            return k
        compare(work.lists, node, stable.column, start, scratch)
        is_unsure = max(start, stable.frontier) < stable.guarantee
        if is_unsure:
            have -= spare(work, node, start, stable, scratch)
        if start >= stable.frontier or _is_due(work.lists, node, stable, scratch):
            told = was_told(work.lists, node, stable.column)
            news = _is_news(work.facts, node, have - want, stable, scratch)
            if news and not told and not is_unsure and _is_anywhere(work.lists, node, start):
                scratch.missing[scratch.counts[MISSING]] = node
                scratch.counts[MISSING] += 1
            if start >= stable.frontier and stable.shrink_only:
                make_equal(work, node, start, scratch)
            else:
                agree(work, node, start, stable, scratch)
        _look_ahead(work, node, start, stable, scratch)
    return nodes.size


@part
def _is_room(work: Any, scratch: Any, events: Any) -> Any:
    columns = work.lists.single.shape[1]
    return (
        has_room(work.lists, events)
        and events <= scratch.bags.shape[1]
        and work.control[LOGGED] + events <= work.log.shape[0]
        and columns + work.control[WAITING] <= work.waiting.shape[0]
    )


@part
def _is_anywhere(lists: Any, node: Any, start: Any) -> Any:
    """Whether the output or a replica has an event of this identity."""
    events = np.int64(0)
    for column in range(lists.single.shape[1]):
        events += total(lists, node, column, start)
    return events > 0


@kernel
def compare(lists: Any, node: Any, column: Any, start: Any, scratch: Any) -> None:
    """Write down the ends of the output that are too many, and those that it lacks."""
    bags, counts = scratch.bags, scratch.counts
    counts[EXTRA] = counts[LACK] = 0
    have, want = size(lists, node, OUTPUT, start), size(lists, node, column, start)
    i, j = np.int64(0), np.int64(0)
    while i < have or j < want:
        has_ours = j == want or (
            i < have and end_at(lists, node, OUTPUT, i) <= end_at(lists, node, column, j)
        )
        has_theirs = i == have or (
            j < want and end_at(lists, node, column, j) <= end_at(lists, node, OUTPUT, i)
        )
        end, more = np.int64(0), np.int64(0)
        if has_ours:
            end, more = end_at(lists, node, OUTPUT, i), count_at(lists, node, OUTPUT, i)
            i += 1
        if has_theirs:
            end = end_at(lists, node, column, j)
            more -= count_at(lists, node, column, j)
            j += 1
        which = EXTRA if more > 0 else LACK
        for _ in range(abs(more)):
            bags[which, counts[which]] = end
            counts[which] += 1


@kernel
def spare(work: Any, node: Any, start: Any, stable: Any, scratch: Any) -> Any:
    """Leave alone what a promoted replica need not know, but not beyond its guarantee.

    Returns how many events; they are not among the extra ones any more.
    """
    extra, extras = scratch.bags[EXTRA], scratch.counts[EXTRA]
    count = max(extras - scratch.counts[LACK], 0)
    took_back = was_told(work.lists, node, stable.column)
    took_back = took_back and size(work.lists, node, stable.column, start) == 0
    if count == 0 or (took_back and start >= stable.frontier):
        return np.int64(0)
    for k in range(count):
        if extra[k] > stable.guarantee:
            change(work, node, start, extra[k], stable.guarantee)
    for k in range(count, extras):
        extra[k - count] = extra[k]
    scratch.counts[EXTRA] = extras - count
    return count


@part
def _is_due(lists: Any, node: Any, stable: Any, scratch: Any) -> Any:
    if scratch.counts[LACK] > 0 and scratch.bags[LACK, 0] < stable.time:
        return True
    # What is half frozen has an end that is not frozen, or it would have left.
    k = np.int64(0)
    while end_at(lists, node, OUTPUT, k) < stable.frontier:
        k += 1
    return end_at(lists, node, OUTPUT, k) < stable.time


@part
def _is_news(facts: Any, node: Any, surplus: Any, stable: Any, scratch: Any) -> Any:
    """Whether a free node becomes half frozen, or the decider denies for the first time."""
    if facts[node, START] >= stable.frontier:
        return True
    bags, counts = scratch.bags, scratch.counts
    is_denied = (
        surplus != 0
        or (counts[EXTRA] > 0 and bags[EXTRA, 0] < stable.frontier)
        or (counts[LACK] > 0 and bags[LACK, 0] < stable.frontier)
    )
    if not is_denied or facts[node, STATUS] & IN_CONFLICT != 0:
        return False
    facts[node, STATUS] |= IN_CONFLICT
    counts[CONFLICTS] += 1
    return True


@kernel
def agree(work: Any, node: Any, start: Any, stable: Any, scratch: Any) -> None:
    """Correct what cannot be corrected after the stable (erratum L11)."""
    extra, lack = scratch.bags[EXTRA], scratch.bags[LACK]
    extras, lacks = scratch.counts[EXTRA], scratch.counts[LACK]
    e, w = np.int64(0), np.int64(0)
    is_free = start >= stable.frontier
    if not is_free:
        e, w = keep_promise(extra, extras, lack, lacks, stable.frontier)
    while w < lacks and lack[w] < stable.time:
        if e < extras:
            change(work, node, start, extra[e], lack[w])
            e += 1
        elif is_free:
            change(work, node, start, _GONE, lack[w])
        w += 1
    while e < extras and extra[e] < stable.time:
        if w < lacks:
            change(work, node, start, extra[e], lack[w])
            w += 1
        elif is_free:
            change(work, node, start, extra[e], _GONE)
        e += 1
    if is_free:
        surplus = (extras - e) - (lacks - w)
        for k in range(surplus):
            change(work, node, start, extra[e + k], _GONE)
        for k in range(-surplus):
            change(work, node, start, _GONE, lack[w + k])


@part
def keep_promise(extra: Any, extras: Any, lack: Any, lacks: Any, frontier: Any) -> Any:
    """Where the ends begin that may still change; wanted ones are not before the frontier."""
    e, w = np.int64(0), np.int64(0)
    while e < extras and extra[e] < frontier:
        e += 1
        w = min(w + 1, lacks)
    for k in range(w, lacks):
        lack[k] = max(lack[k], frontier)
    while e < extras and w < lacks and extra[e] == frontier and lack[w] == frontier:
        e += 1
        w += 1
    return e, w


@kernel
def make_equal(work: Any, node: Any, start: Any, scratch: Any) -> None:
    """Shorten where that is possible; what is left is removed, then inserted (L14)."""
    extra, lack = scratch.bags[EXTRA], scratch.bags[LACK]
    e, removed, inserted = np.int64(0), np.int64(0), np.int64(0)
    for w in range(scratch.counts[LACK]):
        while e < scratch.counts[EXTRA] and extra[e] < lack[w]:
            extra[removed] = extra[e]
            removed += 1
            e += 1
        if e < scratch.counts[EXTRA]:
            change(work, node, start, extra[e], lack[w])
            e += 1
        else:
            lack[inserted] = lack[w]
            inserted += 1
    for k in range(removed):
        change(work, node, start, extra[k], _GONE)
    for k in range(e, scratch.counts[EXTRA]):
        change(work, node, start, extra[k], _GONE)
    for k in range(inserted):
        change(work, node, start, _GONE, lack[k])


@part
def change(work: Any, node: Any, start: Any, old_end: Any, end: Any) -> None:
    """One event of the output gets another end, is new, or is gone."""
    if old_end == _GONE:
        put(work, INSERT, node, 0, end)
    else:
        remove_end(work.lists, node, OUTPUT, start, old_end)
        put(work, ADJUST, node, old_end, start if end == _GONE else end)
    if end != _GONE:
        add_end(work.lists, node, OUTPUT, start, end)


@part
def _look_ahead(work: Any, node: Any, start: Any, stable: Any, scratch: Any) -> None:
    """Let a frozen node go; of another say when it is to be looked at again."""
    lists, ends = work.lists, size(work.lists, node, OUTPUT, start)
    last = end_at(lists, node, OUTPUT, ends - 1) if ends > 0 else start
    if last < stable.time or stable.time == FOREVER_UNITS:
        told = was_told(lists, node, stable.column)
        work.facts[node, DUE] = last if ends > 0 or told else ABSENT
        work.facts[node, STATUS] |= DEAD | TOLD if told else DEAD
        scratch.ended[scratch.counts[ENDED]] = node
        scratch.counts[ENDED] += 1
        return
    due = np.int64(FOREVER_UNITS)
    for column in range(lists.single.shape[1]):
        due = min(due, first_end(lists, node, column, start, stable.time))
        if column != OUTPUT and wants_before(lists, node, column, start, stable.time):
            wait(work, node, column)
    work.facts[node, DUE] = due
    if due < FOREVER_UNITS:
        push(work, node, due)


@part
def first_end(lists: Any, node: Any, column: Any, start: Any, time: Any) -> Any:
    """The smallest end that is not before this time, or FOREVER."""
    for k in range(size(lists, node, column, start)):
        if end_at(lists, node, column, k) >= time:
            return end_at(lists, node, column, k)
    return np.int64(FOREVER_UNITS)


@part
def wants_before(lists: Any, node: Any, column: Any, start: Any, time: Any) -> Any:
    """Whether a replica has an end before this time more often than the output."""
    i, have = np.int64(0), size(lists, node, OUTPUT, start)
    for k in range(size(lists, node, column, start)):
        end = end_at(lists, node, column, k)
        if end >= time:
            return False
        while i < have and end_at(lists, node, OUTPUT, i) < end:
            i += 1
        if i == have or end_at(lists, node, OUTPUT, i) > end:
            return True
        if count_at(lists, node, column, k) > count_at(lists, node, OUTPUT, i):
            return True
    return False


@part
def has_end(lists: Any, node: Any, column: Any, start: Any, end: Any) -> Any:
    """Whether there is an event with this end."""
    ends = size(lists, node, column, start)
    if lists.block[node, column] < 0:
        return ends > 0 and lists.single[node, column] == end
    k = find(lists.cells, np.int64(lists.block[node, column]), ends, end)
    return k < ends and end_at(lists, node, column, k) == end


@kernel
def publish_some(credited: Any, first: Any, stable: Any, work: Any, scratch: Any) -> Any:
    """Put credited events on the output; returns where it had to stop, or how many.

    `stable` is the one that will be passed on first in this step, or has the time ABSENT.  Of
    what starts before it only its sender's events are published: the rest would be removed,
    unless the sender was promoted and need not know it.
    """
    for k in range(first, credited.shape[0]):
        node, best = credited[k, 0], credited[k, 1]
        start = work.facts[node, START]
        decides = start < stable.time and max(start, stable.frontier) >= stable.guarantee
        if decides:
            best = np.int64(stable.column)
        have, most = (
            total(work.lists, node, OUTPUT, start),
            total(work.lists, node, best, start),
        )
        if not decides:
            for column in range(1, work.lists.single.shape[1]):
                if total(work.lists, node, column, start) > most:
                    best, most = np.int64(column), total(work.lists, node, column, start)
        if not _is_room(work, scratch, have + most):
            return k
        if most > have and has_end(work.lists, node, best, start, credited[k, 2]):
            change(work, node, start, _GONE, credited[k, 2])
            have += 1
        if most > have:
            compare(work.lists, node, best, start, scratch)
            for w in range(most - have):
                change(work, node, start, _GONE, scratch.bags[LACK, w])
    return credited.shape[0]
