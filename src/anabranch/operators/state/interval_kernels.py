"""The kernels of interval trees: nodes that are found, put in, taken out, and listed.

What nodes and trees are is in `state.interval_trees`.  Steps that most elements need are parts,
since a call with all the arrays costs more than a step in a small tree.
"""

from typing import Final, NamedTuple

import numpy as np

from anabranch.batch.batch import FOREVER_UNITS, NEVER_UNITS, Ints
from anabranch.batch.kernel import kernel, part
from anabranch.batch.murmur import U64
from anabranch.operators.state.blocks import BLOCK_BITS

START: Final = 0
END: Final = 1
OWNER: Final = 2
COUNT: Final = 3
LEFT: Final = 4
RIGHT: Final = 5
MAX: Final = 6
TREE: Final = 7
WIDTH: Final = 8

NONE: Final = -1
"""No node."""

# What `numbers` has, by position.
FREE: Final = 0
USED: Final = 1
NODES: Final = 2
MADE: Final = 3
VISITS: Final = 4
MARK: Final = 5
NUMBERS: Final = 6


class Trees(NamedTuple):
    """The arrays that kernels read and write.

    `made` lists the nodes that were made since it was last emptied; some are gone again.
    """

    nodes: Ints
    roots: Ints
    numbers: Ints
    stack: Ints
    changed: Ints
    held: Ints
    made: Ints


@part
def priority(node: int) -> np.uint64:
    """A well-mixed word of the number."""
    word = U64(node + 1) * U64(0x9E3779B97F4A7C15)
    word = (word ^ (word >> U64(32))) * U64(0xBF58476D1CE4E5B9)
    return word ^ (word >> U64(29))


@part
def is_before(nodes: Ints, at: int, start: int, owner: int, end: int) -> bool:
    """Whether a node comes before this name."""
    if nodes[at, START] != start:
        return bool(nodes[at, START] < start)
    if nodes[at, OWNER] != owner:
        return bool(nodes[at, OWNER] < owner)
    return bool(nodes[at, END] < end)


@part
def refresh(nodes: Ints, at: int) -> None:
    """Let a node have the greatest end below it."""
    most, left, right = nodes[at, END], nodes[at, LEFT], nodes[at, RIGHT]
    if left != NONE:
        most = max(most, nodes[left, MAX])
    if right != NONE:
        most = max(most, nodes[right, MAX])
    nodes[at, MAX] = most


@part
def hang(trees: Trees, tree: int, parent: int, side: int, node: int) -> None:
    """Put a node, or NONE, below a parent; without one it is the root."""
    if parent == NONE:
        trees.roots[tree] = node
    else:
        trees.nodes[parent, side] = node


@part
def find(trees: Trees, tree: int, start: int, owner: int, end: int) -> int:
    """The node of this name, NONE if there is none."""
    nodes = trees.nodes
    at = trees.roots[tree]
    while at != NONE:
        trees.numbers[VISITS] += 1
        if is_before(nodes, at, start, owner, end):
            at = nodes[at, RIGHT]
        elif nodes[at, START] == start and nodes[at, OWNER] == owner and nodes[at, END] == end:
            break
        else:
            at = nodes[at, LEFT]
    found: int = at
    return found


@part
def put(trees: Trees, tree: int, start: int, owner: int, end: int, count: int) -> bool:
    """An interval, `count` times more; true if its node is new.  There is room."""
    node = find(trees, tree, start, owner, end)
    if node != NONE:
        trees.nodes[node, COUNT] += count
        trees.changed[node >> BLOCK_BITS] = trees.numbers[MARK]
        return False
    add(trees, tree, start, owner, end, count)
    return True


@part
def add(trees: Trees, tree: int, start: int, owner: int, end: int, count: int) -> None:
    """A new node, whose name no other node has.  There is room."""
    numbers = trees.numbers
    # Free nodes are a list by their LEFT; numbers stay, since saved blocks name them.
    node = numbers[FREE]
    if node == NONE:
        node = numbers[USED]
        numbers[USED] = node + 1
    else:
        numbers[FREE] = trees.nodes[node, LEFT]
    nodes = trees.nodes
    nodes[node, START], nodes[node, END], nodes[node, OWNER] = start, end, owner
    nodes[node, COUNT], nodes[node, TREE] = count, tree
    numbers[NODES] += 1
    trees.made[numbers[MADE]] = node
    numbers[MADE] += 1
    trees.changed[node >> BLOCK_BITS] = numbers[MARK]
    trees.held[node >> BLOCK_BITS] += 1
    link(trees, node)


@part
def link(trees: Trees, node: int) -> None:
    """Put a node into its tree: where its priority is next, what was there goes below it."""
    nodes, stack = trees.nodes, trees.stack
    tree, start, owner, end = (
        nodes[node, TREE], nodes[node, START], nodes[node, OWNER], nodes[node, END],
    )  # fmt: skip
    at = trees.roots[tree]
    # Most trees of a join have one node.
    if at == NONE:
        nodes[node, LEFT] = nodes[node, RIGHT] = NONE
        nodes[node, MAX], trees.roots[tree] = end, node
        return
    mine, parent, side = priority(node), NONE, LEFT
    # Down to its depth: nodes above have a higher priority, and get its end as their MAX.
    while at != NONE and priority(at) >= mine:
        trees.numbers[VISITS] += 1
        nodes[at, MAX] = max(nodes[at, MAX], end)
        parent = at
        side = RIGHT if is_before(nodes, at, start, owner, end) else LEFT
        at = nodes[at, side]
    hang(trees, tree, parent, side, node)
    depth, low, high, low_side, high_side = 0, node, node, LEFT, RIGHT
    # What was below is split at its name into what comes before and what behind.
    while at != NONE:
        trees.numbers[VISITS] += 1
        stack[depth] = at
        depth += 1
        if is_before(nodes, at, start, owner, end):
            nodes[low, low_side] = at
            low, low_side = at, RIGHT
            at = nodes[at, RIGHT]
        else:
            nodes[high, high_side] = at
            high, high_side = at, LEFT
            at = nodes[at, LEFT]
    nodes[low, low_side] = NONE
    nodes[high, high_side] = NONE
    # From below: each MAX needs those of its children.
    while depth > 0:
        depth -= 1
        refresh(nodes, stack[depth])
    refresh(nodes, node)


@part
def drop(trees: Trees, node: int, count: int) -> bool:
    """An interval `count` times less; true if its node is gone."""
    trees.changed[node >> BLOCK_BITS] = trees.numbers[MARK]
    trees.nodes[node, COUNT] -= count
    if trees.nodes[node, COUNT] > 0:
        return False
    unlink(trees, node)
    trees.nodes[node, LEFT] = trees.numbers[FREE]
    trees.numbers[FREE] = node
    trees.numbers[NODES] -= 1
    trees.held[node >> BLOCK_BITS] -= 1
    return True


@part
def unlink(trees: Trees, node: int) -> None:
    """Take a node out of its tree: its place goes to the two trees below it, as one."""
    nodes, stack = trees.nodes, trees.stack
    tree, start, owner, end = (
        nodes[node, TREE], nodes[node, START], nodes[node, OWNER], nodes[node, END],
    )  # fmt: skip
    depth, parent, side = 0, NONE, LEFT
    at = trees.roots[tree]
    if at == node and nodes[node, LEFT] == NONE and nodes[node, RIGHT] == NONE:
        trees.roots[tree] = NONE
        return
    while at != node:
        trees.numbers[VISITS] += 1
        stack[depth] = at
        depth += 1
        parent = at
        side = RIGHT if is_before(nodes, at, start, owner, end) else LEFT
        at = nodes[at, side]
    low, high = nodes[node, LEFT], nodes[node, RIGHT]
    # Two trees become one: of their roots the higher priority goes on top.
    while NONE not in (low, high):
        trees.numbers[VISITS] += 1
        is_low = priority(low) >= priority(high)
        chosen = low if is_low else high
        hang(trees, tree, parent, side, chosen)
        stack[depth] = chosen
        depth += 1
        parent = chosen
        if is_low:
            side, low = RIGHT, nodes[low, RIGHT]
        else:
            side, high = LEFT, nodes[high, LEFT]
    hang(trees, tree, parent, side, low if high == NONE else high)
    while depth > 0:
        depth -= 1
        refresh(nodes, stack[depth])


@kernel
def collect(trees: Trees, tree: int, low: int, high: int, found: Ints) -> int:
    """How many nodes overlap `[low, high)`; as many as `found` has room for, by start."""
    nodes, stack = trees.nodes, trees.stack
    depth, count = 0, 0
    at = trees.roots[tree]
    while True:
        # Nothing below a node with a MAX of `low` or less overlaps.
        while at != NONE and nodes[at, MAX] > low:
            stack[depth] = at
            depth += 1
            at = nodes[at, LEFT]
        if depth == 0:
            break
        depth -= 1
        at = stack[depth]
        trees.numbers[VISITS] += 1
        # By start: all that follow begin even later.
        if nodes[at, START] >= high:
            break
        if nodes[at, END] > low:
            if count < found.size:
                found[count] = at
            count += 1
        at = nodes[at, RIGHT]
    return count


@kernel
def until(trees: Trees, tree: int, time: int) -> int:
    """The last node that begins at this time or before; NONE if there is none."""
    nodes = trees.nodes
    at, best = trees.roots[tree], NONE
    while at != NONE:
        trees.numbers[VISITS] += 1
        if nodes[at, START] <= time:
            best = at
            at = nodes[at, RIGHT]
        else:
            at = nodes[at, LEFT]
    return best


@kernel
def after(trees: Trees, tree: int, time: int) -> int:
    """When the first interval that begins behind this time does; FOREVER if there is none."""
    nodes = trees.nodes
    at, best = trees.roots[tree], FOREVER_UNITS
    while at != NONE:
        trees.numbers[VISITS] += 1
        if nodes[at, START] > time:
            best = nodes[at, START]
            at = nodes[at, LEFT]
        else:
            at = nodes[at, RIGHT]
    return best


@kernel
def reach(trees: Trees, tree: int, time: int) -> int:
    """The greatest end of all intervals that begin at this time or before; or NEVER."""
    nodes = trees.nodes
    at, best = trees.roots[tree], NEVER_UNITS
    while at != NONE:
        trees.numbers[VISITS] += 1
        if nodes[at, START] <= time:
            best = max(best, nodes[at, END])
            # All to the left begin before: their greatest end is known without a look.
            if nodes[at, LEFT] != NONE:
                best = max(best, nodes[nodes[at, LEFT], MAX])
            at = nodes[at, RIGHT]
        else:
            at = nodes[at, LEFT]
    return best


@kernel
def rebuild(trees: Trees, saved: Ints) -> None:
    """Put in saved nodes (number, tree, owner, start, end, count); others are free."""
    nodes, numbers = trees.nodes, trees.numbers
    for node in range(numbers[USED]):
        nodes[node, COUNT] = 0
    for k in range(saved.shape[0]):
        node = saved[k, 0]
        nodes[node, TREE], nodes[node, OWNER] = saved[k, 1], saved[k, 2]
        nodes[node, START], nodes[node, END] = saved[k, 3], saved[k, 4]
        nodes[node, COUNT] = saved[k, 5]
        trees.held[node >> BLOCK_BITS] += 1
        numbers[NODES] += 1
        link(trees, node)
    for node in range(numbers[USED] - 1, -1, -1):
        if nodes[node, COUNT] == 0:
            nodes[node, LEFT] = numbers[FREE]
            numbers[FREE] = node
