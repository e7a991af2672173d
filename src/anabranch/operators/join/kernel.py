"""The kernels of join: what an element of one side changes, against the other side's trees.

An element changes the end of one event from `old` to `new` (an insert: from its start; a
removal: to its start).  So it matters to partners that overlap `[min(old, new), max(old, new))`
and to no other.  Every change of the output is a row of `out`:

    left payload, right payload (NONE: no partner), start, end, and how often more or less

Rows of one step add up, whatever the order of elements; `net` turns them into elements.

The trees of a key are those of the left events, of the right events, and, where it matters
whether there is a partner at all, of the runs: the maximal stretches in which one is alive.

A kernel stops where there is no room for what it finds, and goes on from there when it is
called again with more.
"""

from typing import Final, NamedTuple

from anabranch.batch.batch import FOREVER_UNITS, INSERT, NEVER_UNITS, Codes, Ints
from anabranch.batch.kernel import kernel, part
from anabranch.operators.state.events import OWN
from anabranch.operators.state.interval_kernels import (
    COUNT,
    END,
    MADE,
    NODES,
    NONE,
    OWNER,
    START,
    Trees,
    after,
    collect,
    drop,
    find,
    put,
    reach,
    until,
)

LEFT_EVENTS: Final = 0
RIGHT_EVENTS: Final = 1
RUNS: Final = 2
TREES: Final = 3
"""The trees of a key: tree number `key * TREES + which`."""

REFS: Final = OWN
"""The column of a payload: how many nodes have it."""

# What an operator emits beside pairs: nothing, the runs of each left event, or the gaps.
PAIRS: Final = 1
WITH_RUNS: Final = 2
WITH_GAPS: Final = 4

# What `progress` has, by position.
AT: Final = 0
OUT: Final = 1
APPLIED: Final = 2
NEED: Final = 3
EVENTS: Final = 4
UNUSED: Final = 5
TOUCHED: Final = 6
"""The payloads without a node, of those without names; and what was read ahead."""

# Why a kernel stopped.
DONE: Final = 0
NO_OUT: Final = 1
NO_FOUND: Final = 2
NO_STRETCHES: Final = 3
NO_NODES: Final = 4
LOST: Final = 5


class Elements(NamedTuple):
    """The elements of one side: `payload` is the number of each payload, `key` of each key."""

    kind: Codes
    start: Ints
    end: Ints
    old_end: Ints
    payload: Ints
    key: Ints


class Room(NamedTuple):
    """What a kernel fills: rows of the output, nodes found, stretches before and after."""

    out: Ints
    found: Ints
    before: Ints
    afterwards: Ints
    progress: Ints


@part
def emit(room: Room, left: int, right: int, start: int, end: int, times: int) -> None:
    """One row, if there is room; it is counted in any case."""
    at = room.progress[OUT]
    room.progress[OUT] = at + 1
    if at < room.out.shape[0]:
        room.out[at, 0], room.out[at, 1] = left, right
        room.out[at, 2], room.out[at, 3], room.out[at, 4] = start, end, times


@part
def emit_change(
    room: Room,
    pair: tuple[int, int],
    event: tuple[int, int, int],
    other: tuple[int, int],
    times: int,
) -> None:
    """What is shared with `other` when the end of an event (start, old end, end) changes."""
    # What two events share begins with the later one, whatever their ends.
    begin = max(event[0], other[0])
    old, new = min(event[1], other[1]), min(event[2], other[1])
    if old == new:
        return
    if old > begin:
        emit(room, pair[0], pair[1], begin, old, -times)
    if new > begin:
        emit(room, pair[0], pair[1], begin, new, times)


@part
def is_over(end: int, passed: int) -> bool:
    """Whether a frontier has passed this end; at the end of time it has passed all."""
    return bool(end < passed or passed == FOREVER_UNITS)


@kernel
def take_left(
    what: int, some: Elements, passed: int, refs: Ints, trees: Trees, room: Room
) -> int:
    """Apply elements of the left side from `progress[AT]` on.

    Events that end before `passed` are forgotten, and are taken as they are adjusted.
    """
    progress = room.progress
    for i in range(progress[AT], some.kind.size):
        progress[AT] = i
        begun, start, key = progress[OUT], some.start[i], some.key[i]
        old = start if some.kind[i] == INSERT else some.old_end[i]
        event = (start, old, some.end[i])
        if event[1] == event[2]:
            continue
        if not has_room(trees, 1):
            progress[NEED] = 1
            return NO_NODES
        if key == NONE:
            if what & WITH_GAPS:
                emit_change(
                    room, (some.payload[i], NONE), event, (NEVER_UNITS, FOREVER_UNITS), 1
                )
        else:
            status = against_right(what, key, some.payload[i], event, trees, room)
            # Tried again with more room: what was emitted of this element is taken back.
            if status != DONE:
                progress[OUT] = begun
                return status
        if progress[OUT] > room.out.shape[0]:
            progress[NEED], progress[OUT] = progress[OUT], begun
            return NO_OUT
        tree = key * TREES + LEFT_EVENTS
        if key != NONE and not replace_event(
            trees, tree, some.payload[i], event, passed, refs, progress
        ):
            return LOST
    progress[AT] = some.kind.size
    return DONE


@kernel
def against_right(
    what: int,
    key: int,
    payload: int,
    event: tuple[int, int, int],
    trees: Trees,
    room: Room,
) -> int:
    """What a left event shares with right events, with their runs, or with the gaps."""
    nodes, found = trees.nodes, room.found
    low, high = min(event[1], event[2]), max(event[1], event[2])
    if what & PAIRS:
        count = collect(trees, key * TREES + RIGHT_EVENTS, low, high, found)
        if count > found.size:
            room.progress[NEED] = count
            return NO_FOUND
        for k in range(count):
            node = found[k]
            partner = (nodes[node, START], nodes[node, END])
            emit_change(room, (payload, nodes[node, OWNER]), event, partner, nodes[node, COUNT])
    if not what & (WITH_RUNS | WITH_GAPS):
        return DONE
    tree = key * TREES + RUNS
    count = collect(trees, tree, low, high, found)
    if count > found.size:
        room.progress[NEED] = count
        return NO_FOUND
    if what & WITH_RUNS:
        for k in range(count):
            run = (nodes[found[k], START], nodes[found[k], END])
            emit_change(room, (payload, NONE), event, run, 1)
        return DONE
    last = until(trees, tree, low)
    begin = NEVER_UNITS if last == NONE else nodes[last, END]
    for k in range(count):
        node = found[k]
        if nodes[node, START] > low:
            emit_change(room, (payload, NONE), event, (begin, nodes[node, START]), 1)
            begin = nodes[node, END]
    emit_change(room, (payload, NONE), event, (begin, after(trees, tree, high - 1)), 1)
    return DONE


@kernel
def replace_event(
    trees: Trees,
    tree: int,
    payload: int,
    event: tuple[int, int, int],
    passed: int,
    refs: Ints,
    progress: Ints,
) -> bool:
    """Let an event (start, old end, end) of a tree have its new end; false if it is lost.

    What ends before `passed` is not kept.
    """
    start, old, new = event
    if old > start:
        node = find(trees, tree, start, payload, old)
        if node == NONE:
            if not is_over(old, passed):
                return False
        else:
            if drop(trees, node, 1):
                refs[payload, REFS] -= 1
            progress[EVENTS] -= 1
    if new > start and not is_over(new, passed):
        if put(trees, tree, start, payload, new, 1):
            refs[payload, REFS] += 1
        progress[EVENTS] += 1
    return True


@kernel
def take_right(
    what: int, some: Elements, passed: int, refs: Ints, trees: Trees, room: Room
) -> int:
    """Apply elements of the right side from `progress[AT]` on; see `take_left`."""
    progress = room.progress
    for i in range(progress[AT], some.kind.size):
        progress[AT] = i
        begun, start, key = progress[OUT], some.start[i], some.key[i]
        old = start if some.kind[i] == INSERT else some.old_end[i]
        event = (start, old, some.end[i])
        if key == NONE or event[1] == event[2]:
            continue
        # Applied once, however often the rest is tried: runs are computed with it in place.
        if not progress[APPLIED]:
            if not has_room(trees, 1):
                progress[NEED] = 1
                return NO_NODES
            tree = key * TREES + RIGHT_EVENTS
            if not replace_event(trees, tree, some.payload[i], event, passed, refs, progress):
                return LOST
            progress[APPLIED] = 1
        status = DONE
        if what & PAIRS:
            status = against_left(key, some.payload[i], event, trees, room)
        if status == DONE and what & (WITH_RUNS | WITH_GAPS):
            status = change_runs(what, key, event, trees, room)
        if status == DONE and progress[OUT] > room.out.shape[0]:
            progress[NEED] = progress[OUT]
            status = NO_OUT
        if status != DONE:
            progress[OUT] = begun
            return status
        progress[APPLIED] = 0
    progress[AT] = some.kind.size
    return DONE


@kernel
def against_left(
    key: int, payload: int, event: tuple[int, int, int], trees: Trees, room: Room
) -> int:
    """What a right event shares with left events."""
    nodes, found = trees.nodes, room.found
    low, high = min(event[1], event[2]), max(event[1], event[2])
    count = collect(trees, key * TREES + LEFT_EVENTS, low, high, found)
    if count > found.size:
        room.progress[NEED] = count
        return NO_FOUND
    for k in range(count):
        node = found[k]
        partner = (nodes[node, START], nodes[node, END])
        emit_change(room, (nodes[node, OWNER], payload), event, partner, nodes[node, COUNT])
    return DONE


@kernel
def change_runs(
    what: int, key: int, event: tuple[int, int, int], trees: Trees, room: Room
) -> int:
    """The runs of a key, and what they or the gaps between them share with left events.

    Where a right event is gained the runs that it touches become one.  Where one is lost, the
    times that no other event covers are cut out of the run that it was in.
    """
    progress, nodes, tree = room.progress, trees.nodes, key * TREES + RUNS
    low, high = min(event[1], event[2]), max(event[1], event[2])
    # Runs that only touch the change count too: they may grow together.
    end = high if high == FOREVER_UNITS else high + 1
    touched = collect(trees, tree, low - 1, end, room.found)
    if touched > min(room.found.size, room.before.shape[0]):
        progress[NEED] = touched
        return NO_FOUND if touched > room.found.size else NO_STRETCHES
    for k in range(touched):
        room.before[k, 0] = nodes[room.found[k], START]
        room.before[k, 1] = nodes[room.found[k], END]
    if event[2] > event[1]:
        new = gained(low, high, touched, room)
    else:
        new = lost(trees, key * TREES + RIGHT_EVENTS, low, high, room)
    if new == NONE:
        return DONE  # the runs are what they were
    if new > room.afterwards.shape[0]:
        progress[NEED] = new
        return NO_STRETCHES
    if not has_room(trees, new):
        progress[NEED] = new
        return NO_NODES
    status = emit_runs(what, key, (low, high), (touched, new), trees, room)
    if status != DONE:
        return status
    for k in range(touched):
        drop(trees, find(trees, tree, room.before[k, 0], NONE, room.before[k, 1]), 1)
    for k in range(new):
        put(trees, tree, room.afterwards[k, 0], NONE, room.afterwards[k, 1], 1)
    return DONE


@part
def has_room(trees: Trees, more: int) -> bool:
    """Whether this number of nodes can be made."""
    free = trees.nodes.shape[0] - trees.numbers[NODES]
    return bool(free >= more and trees.made.size - trees.numbers[MADE] >= more)


@part
def gained(low: int, high: int, touched: int, room: Room) -> int:
    """How many runs there are with `[low, high)` where `before` are touched; or NONE."""
    begin, end = low, high
    if touched > 0:
        begin, end = min(low, room.before[0, 0]), max(high, room.before[touched - 1, 1])
        if touched == 1 and begin == room.before[0, 0] and end == room.before[0, 1]:
            return NONE
    if room.afterwards.shape[0] > 0:
        room.afterwards[0, 0], room.afterwards[0, 1] = begin, end
    return 1


@kernel
def lost(trees: Trees, tree: int, low: int, high: int, room: Room) -> int:
    """How many runs are left without `[low, high)` of the one that has it; or NONE.

    From each time the events that began before it are asked how far they reach, so that those
    which end sooner are not looked at.
    """
    begin, end = room.before[0, 0], room.before[0, 1]
    count, time, is_cut = 0, low, False
    while time < high:
        covered = reach(trees, tree, time)
        # Another event still covers this time, and all up to its end.
        if covered > time:
            time = covered
            continue
        is_cut = True
        if begin < time:
            if count < room.afterwards.shape[0]:
                room.afterwards[count, 0], room.afterwards[count, 1] = begin, time
            count += 1
        time = min(after(trees, tree, time), high)
        begin = time
    if not is_cut:
        return NONE
    if begin < end:
        if count < room.afterwards.shape[0]:
            room.afterwards[count, 0], room.afterwards[count, 1] = begin, end
        count += 1
    return count


@kernel
def emit_runs(
    what: int,
    key: int,
    changed: tuple[int, int],
    counts: tuple[int, int],
    trees: Trees,
    room: Room,
) -> int:
    """What left events share with the runs, or the gaps, before and afterwards."""
    nodes, progress, tree = trees.nodes, room.progress, key * TREES + RUNS
    first, last = changed[0], changed[1]
    if counts[0] > 0:
        first, last = room.before[0, 0], room.before[counts[0] - 1, 0]
    previous = until(trees, tree, first - 1)
    begin = NEVER_UNITS if previous == NONE else nodes[previous, END]
    bounds = (begin, after(trees, tree, last))
    tree = key * TREES + LEFT_EVENTS
    found = collect(trees, tree, changed[0], changed[1], room.found)
    if found > room.found.size:
        progress[NEED] = found
        return NO_FOUND
    for k in range(found):
        node = room.found[k]
        emit_shared(what, nodes, node, bounds, room.before, counts[0], room, -1)
        emit_shared(what, nodes, node, bounds, room.afterwards, counts[1], room, 1)
    # Before the runs change: they must be as they were when this is tried again.
    if progress[OUT] > room.out.shape[0]:
        progress[NEED] = progress[OUT]
        return NO_OUT
    return DONE


@part
def stretch(
    what: int, runs: Ints, count: int, bounds: tuple[int, int], k: int
) -> tuple[int, int]:
    """The run number k, or the gap before it."""
    if not what & WITH_GAPS:
        return runs[k, 0], runs[k, 1]
    begin = bounds[0] if k == 0 else runs[k - 1, 1]
    return begin, bounds[1] if k == count else runs[k, 0]


@kernel
def emit_shared(
    what: int,
    nodes: Ints,
    node: int,
    bounds: tuple[int, int],
    runs: Ints,
    count: int,
    room: Room,
    sign: int,
) -> None:
    """What one left event shares with runs, or with the gaps beside them."""
    low, high = 0, count + 1 if what & WITH_GAPS else count
    end = high
    # The first stretch that ends behind the event's start.
    while low < high:
        middle = (low + high) // 2
        if stretch(what, runs, count, bounds, middle)[1] <= nodes[node, START]:
            low = middle + 1
        else:
            high = middle
    for k in range(low, end):
        one = stretch(what, runs, count, bounds, k)
        if one[0] >= nodes[node, END]:
            break
        begin, stop = max(one[0], nodes[node, START]), min(one[1], nodes[node, END])
        if begin < stop:
            times = sign * nodes[node, COUNT]
            emit(room, nodes[node, OWNER], NONE, begin, stop, times)
