"""The kernel of inner joins: the pairs that elements of one side make and change.

Both sides are alike, and nothing but pairs comes out, so that partners are met while their tree
is walked, and everything is in one loop: a call costs more than a step of a small tree.
"""

from typing import Final

from anabranch.batch.batch import INSERT, Ints
from anabranch.batch.kernel import kernel, part
from anabranch.batch.murmur import U64
from anabranch.operators.join.kernel import (
    APPLIED,
    AT,
    DONE,
    EVENTS,
    LOST,
    NEED,
    NO_OUT,
    OUT,
    REFS,
    TOUCHED,
    TREES,
    UNUSED,
    Elements,
    Room,
    emit_change,
    is_over,
)
from anabranch.operators.state.interval_kernels import (
    COUNT,
    END,
    LEFT,
    MAX,
    NONE,
    OWNER,
    RIGHT,
    START,
    VISITS,
    Trees,
    add,
    drop,
    find,
    put,
)

AHEAD: Final = 32
"""Elements whose trees are read ahead."""


@kernel
def take_pairs(
    side: int, is_named: int, some: Elements, passed: int, refs: Ints, trees: Trees, room: Room
) -> int:
    """Apply elements of a side (0: left, 1: right) from `progress[AT]` on.

    There is room for a node of each.  Events that end before `passed` are forgotten, and are
    taken as they are adjusted.  `is_named`: equal payloads have one number.
    """
    progress, roots, ahead = room.progress, trees.roots, 0
    for i in range(progress[AT], some.kind.size):
        progress[AT] = i
        if i >= ahead:
            ahead = min(i + AHEAD, some.kind.size)
            touch(some.key, i, ahead, trees, progress)
        start, new, key = some.start[i], some.end[i], some.key[i]
        old = start if some.kind[i] == INSERT else some.old_end[i]
        if key == NONE or old == new:
            if not is_named:
                refs[some.payload[i], REFS] = 0
                progress[UNUSED] += 1
            continue
        payload, begun, tree = some.payload[i], progress[OUT], key * TREES + side
        if roots[tree + 1 - 2 * side] != NONE:
            meet(trees, tree + 1 - 2 * side, side, payload, (start, old, new), room)
        # Tried again with more room: what was emitted of this element is taken back.
        if progress[OUT] > room.out.shape[0]:
            progress[NEED], progress[OUT] = progress[OUT], begun
            return NO_OUT
        event = (start, old, new)
        if not replace_own(trees, tree, is_named, payload, event, passed, refs, progress):
            return LOST
    progress[AT] = some.kind.size
    progress[APPLIED] = 0
    return DONE


@part
def touch(keys: Ints, first: int, last: int, trees: Trees, progress: Ints) -> None:
    """Read the trees of some keys, so that they are in the cache when they are needed.

    One after the other each would be waited for; here the processor waits for all at once.
    """
    word, roots, nodes = 0, trees.roots, trees.nodes
    if roots.size == 0:
        return  # no key was ever there
    for k in range(first, last):
        word ^= roots[max(keys[k], 0) * TREES]
    for k in range(first, last):
        tree = max(keys[k], 0) * TREES
        word ^= nodes[max(roots[tree], 0), MAX] ^ nodes[max(roots[tree + 1], 0), MAX]
    progress[TOUCHED] = word


@part
def replace_own(
    trees: Trees,
    tree: int,
    is_named: int,
    payload: int,
    event: tuple[int, int, int],
    passed: int,
    refs: Ints,
    progress: Ints,
) -> bool:
    """Let an event (start, old end, end) of its tree have its new end; false if it is lost."""
    start, old, new = event
    if old > start:
        node = find(trees, tree, start, payload, old)
        if node != NONE:
            if drop(trees, node, 1):
                refs[payload, REFS] -= 1
            progress[EVENTS] -= 1
        elif not is_over(old, passed):
            return False
    stays = new > start and not is_over(new, passed)
    progress[EVENTS] += 1 if stays else 0
    if not is_named:
        # A payload without a name is that of one event, and was made for it.
        if stays:
            add(trees, tree, start, payload, new, 1)
        else:
            refs[payload, REFS] = 0
            progress[UNUSED] += 1
    elif stays and put(trees, tree, start, payload, new, 1):
        refs[payload, REFS] += 1
    return True


@part
def meet(
    trees: Trees, tree: int, side: int, payload: int, event: tuple[int, int, int], room: Room
) -> None:
    """What an event (start, old end, end) shares with those of a tree, before and after."""
    nodes, stack = trees.nodes, trees.stack
    low, high = min(event[1], event[2]), max(event[1], event[2])
    depth, at, visits = 0, trees.roots[tree], 0
    while True:
        # Nothing below a node with a MAX of `low` or less overlaps.  Unsigned numbers, since
        # Python's negative ones would be looked for at every access.
        while at != NONE and nodes[U64(at), MAX] > low:
            stack[U64(depth)] = at
            depth += 1
            at = nodes[U64(at), LEFT]
        if depth == 0:
            break
        depth -= 1
        row = U64(stack[U64(depth)])
        visits += 1
        # By start: all that follow begin even later.
        if nodes[row, START] >= high:
            break
        if nodes[row, END] > low:
            owner = nodes[row, OWNER]
            pair = (payload, owner) if side == 0 else (owner, payload)
            other = (nodes[row, START], nodes[row, END])
            emit_change(room, pair, event, other, nodes[row, COUNT])
        at = nodes[row, RIGHT]
    trees.numbers[VISITS] += visits
