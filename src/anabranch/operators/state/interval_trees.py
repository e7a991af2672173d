"""Many ordered sets of intervals, one tree each, in one pool of nodes.

A node is an interval `[START, END)` of an OWNER, COUNT times.  The nodes of a tree are in the
order (START, OWNER, END), each of these once, and have the greatest end below them, so that

    put, drop       one interval more or less                          O(log n)
    collect         all that overlap a stretch of time, by start       O(log n + found)
    reach, after    the greatest end of all that begin until a time,
                    and the first that begins behind it                O(log n)

where n is the size of that tree alone: trees of other keys cost nothing, and a tree with very
many intervals costs no step a look at all of them.

The trees are treaps whose priority is a function of the number of the node, so that the shape
is a function of the nodes: a state that is restored has the trees that it had.  A node is one
cache line.  Numbers are in blocks, for saves; see `state.blocks`.
"""

from collections.abc import Mapping
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np

from anabranch.batch.batch import FOREVER_UNITS, NEVER_UNITS, Ints
from anabranch.batch.kernel import frozen_rows, kernel, part
from anabranch.batch.murmur import U64
from anabranch.batch.store import grown
from anabranch.operators.state.blocks import (
    BLOCK,
    BLOCK_BITS,
    EVERYTHING,
    Blocks,
    read_marked,
    with_mark,
)
from anabranch.operators.state.codec import StateKind, matrix_of, to_table

START: Final = 0
END: Final = 1
OWNER: Final = 2
COUNT: Final = 3
LEFT: Final = 4
RIGHT: Final = 5
MAX: Final = 6
TREE: Final = 7
_WIDTH: Final = 8

NONE: Final = -1
"""No node."""

# What `numbers` has, by position.
FREE: Final = 0
USED: Final = 1
NODES: Final = 2
MADE: Final = 3
VISITS: Final = 4
MARK: Final = 5
_NUMBERS: Final = 6

# Deeper than any tree gets: one of 2**40 nodes has an expected depth below 80.
_DEPTH: Final = 1_024
_SMALL: Final = 1_024
_SAVED: Final = ("node", "tree", "owner", "start", "end", "count")


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


class IntervalTrees:
    """The pool of nodes of one lane."""

    def __init__(self) -> None:
        none = np.zeros(0, np.int64)
        numbers = np.zeros(_NUMBERS, np.int64)
        numbers[FREE] = NONE
        self.arrays = Trees(
            np.zeros((0, _WIDTH), np.int64), none, numbers, np.zeros(_DEPTH, np.int64), none,
            none, none,
        )  # fmt: skip

    def __len__(self) -> int:
        return int(self.arrays.numbers[NODES])

    def __repr__(self) -> str:
        return f"IntervalTrees({len(self)} nodes of {len(self.arrays.nodes)})"

    @property
    def nodes(self) -> Ints:
        """One row per number; COUNT is 0 where there is no node."""
        return self.arrays.nodes

    def living(self) -> Ints:
        """The numbers of all nodes; costs a look at each."""
        return np.flatnonzero(self.nodes[: int(self.arrays.numbers[USED]), COUNT])

    def make_room(self, nodes: int, trees: int) -> None:
        """For this number of nodes more, made in one step, and of trees in all."""
        old = self.arrays
        rows = grown(old.nodes, len(self) + nodes)
        rows[len(old.nodes) :, COUNT] = 0
        blocks = (len(rows) >> BLOCK_BITS) + 1
        more = np.zeros(max(0, blocks - len(old.changed)), np.int64)
        roots = old.roots
        if len(roots) < trees:
            roots = grown(roots, trees)
            roots[len(old.roots) :] = NONE
        self.arrays = old._replace(
            nodes=rows,
            roots=roots,
            changed=np.append(old.changed, more),
            held=np.append(old.held, more),
            made=grown(old.made, int(old.numbers[MADE]) + nodes),
        )

    def take_made(self) -> Ints:
        """The nodes that were made since the last call, and are there."""
        count = int(self.arrays.numbers[MADE])
        self.arrays.numbers[MADE] = 0
        made: Ints = self.arrays.made[:count].copy()
        there: Ints = made[self.nodes[made, COUNT] > 0]
        return there

    def take_visits(self) -> int:
        """How many nodes were visited since the last call."""
        visits = int(self.arrays.numbers[VISITS])
        self.arrays.numbers[VISITS] = 0
        return visits

    def clear(self, mark: int) -> None:
        """Nothing is there any more."""
        arrays = self.arrays
        arrays.changed[arrays.held > 0] = mark
        arrays.held[:] = 0
        arrays.nodes[:, COUNT] = 0
        arrays.roots[:] = NONE
        arrays.numbers[[FREE, USED, NODES, MADE]] = (NONE, 0, 0, 0)

    def blocks(self) -> Blocks:
        """Which blocks of numbers have nodes."""
        arrays, none = self.arrays, np.zeros(len(self.arrays.held), np.int64)
        return Blocks(np.arange(len(none)), arrays.changed, none, arrays.held)

    def parts(self, prefix: str, since: int | None) -> tuple[dict[str, bytes], list[str]]:
        """The parts of the blocks that changed after a mark, and the names of those gone."""
        changed, emptied = self.blocks().after(EVERYTHING if since is None else since)
        written = {}
        for block in changed:
            first = block.number << BLOCK_BITS
            rows = self.nodes[first : first + BLOCK]
            ids = first + np.flatnonzero(rows[:, COUNT])
            columns = [ids, *(self.nodes[ids, at] for at in (TREE, OWNER, START, END, COUNT))]
            table = to_table(dict(zip(_SAVED, columns, strict=True)))
            written[f"{prefix}{block.number}"] = with_mark(block.changed, table)
        return written, [f"{prefix}{number}" for number in emptied]

    def restore(
        self, prefix: str, blocks: Blocks, parts: Mapping[str, bytes], kind: StateKind
    ) -> None:
        """Fill an empty pool with the nodes that were saved."""
        tables = [
            matrix_of(read_marked(parts, f"{prefix}{b.number}", b.changed, kind)[0], _SAVED)
            for b in blocks.named()
        ]
        saved = np.concatenate([np.empty((0, len(_SAVED)), np.int64), *tables])
        last = int(saved[:, 0].max(initial=NONE)) + 1
        self.make_room(last, int(saved[:, 1].max(initial=NONE)) + 1)
        self.arrays.numbers[USED] = last
        rebuild(self.arrays, frozen_rows(saved))
        self.arrays.changed[blocks.number] = blocks.changed

    def check(self) -> None:
        """Assert every invariant; costs a look at each node."""
        arrays, nodes = self.arrays, self.nodes
        ids = self.living()
        assert len(ids) == len(self), f"{len(ids)} nodes in use, counted {len(self)}"
        held = np.bincount(ids >> BLOCK_BITS, minlength=len(arrays.held))
        assert (held == arrays.held).all(), f"blocks hold {held}, counted {arrays.held}"
        reached = [node for root in arrays.roots.tolist() for node in self.in_order(root)]
        assert sorted(reached) == ids.tolist(), f"nodes {ids} != nodes of trees {reached}"
        rows = nodes[reached]
        names = [tuple(row) for row in rows[:, [TREE, START, OWNER, END]].tolist()]
        assert all(one < two for one, two in pairwise(names)), (
            f"nodes are not in order: {names}"
        )
        assert (rows[:, START] < rows[:, END]).all(), f"start < end does not hold: {rows}"
        below = np.append(nodes[:, MAX], NEVER_UNITS)
        most = np.maximum(below[rows[:, LEFT]], below[rows[:, RIGHT]])
        most = np.maximum(most, rows[:, END])
        assert (rows[:, MAX] == most).all(), f"greatest ends {rows[:, MAX]} != {most}"

    def in_order(self, root: int) -> list[int]:
        """The nodes of one tree; one Python step per node."""
        found: list[int] = []
        stack: list[int] = []
        at = root
        while stack or at != NONE:
            while at != NONE:
                stack.append(at)
                at = int(self.nodes[at, LEFT])
            at = stack.pop()
            found.append(at)
            at = int(self.nodes[at, RIGHT])
        return found


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


@kernel
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


@kernel
def put(trees: Trees, tree: int, start: int, owner: int, end: int, count: int) -> bool:
    """An interval, `count` times more; true if its node is new.  There is room."""
    node = find(trees, tree, start, owner, end)
    if node != NONE:
        trees.nodes[node, COUNT] += count
        trees.changed[node >> BLOCK_BITS] = trees.numbers[MARK]
        return False
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
    return True


@kernel
def link(trees: Trees, node: int) -> None:
    """Put a node into its tree: where its priority is next, what was there goes below it."""
    nodes, stack = trees.nodes, trees.stack
    tree, start, owner, end = (
        nodes[node, TREE], nodes[node, START], nodes[node, OWNER], nodes[node, END],
    )  # fmt: skip
    mine, parent, side = priority(node), NONE, LEFT
    at = trees.roots[tree]
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


@kernel
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


@kernel
def unlink(trees: Trees, node: int) -> None:
    """Take a node out of its tree: its place goes to the two trees below it, as one."""
    nodes, stack = trees.nodes, trees.stack
    tree, start, owner, end = (
        nodes[node, TREE], nodes[node, START], nodes[node, OWNER], nodes[node, END],
    )  # fmt: skip
    depth, parent, side = 0, NONE, LEFT
    at = trees.roots[tree]
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
