"""The kernels that forget: nodes of a join's trees that its frontiers have passed."""

from typing import Final

from anabranch.batch.batch import FOREVER_UNITS, Ints
from anabranch.batch.kernel import kernel, part
from anabranch.operators.join.kernel import (
    EVENTS,
    LEFT_EVENTS,
    PAIRS,
    REFS,
    RUNS,
    TOUCHED,
    TREES,
    WITH_GAPS,
    is_over,
)
from anabranch.operators.state.interval_kernels import (
    COUNT,
    END,
    NONE,
    OWNER,
    START,
    TREE,
    Trees,
    drop,
    until,
)

AHEAD: Final = 32
"""Nodes that are read ahead."""

FOUND: Final = NONE - 1
"""Instead of a root: the key of this tree is listed already."""


@kernel
def expire(
    ids: Ints, frontier: int, what: int, tables: tuple[Ints, Ints], trees: Trees,
    progress: Ints, gone: Ints,
) -> int:  # fmt: skip
    """Drop the nodes among these that the frontier has passed; their trees and owners.

    Where gaps matter the last run stays while its key has left events: a gap that may still
    change its end begins there.
    """
    nodes, count, ahead = trees.nodes, 0, 0
    for k in range(ids.size):
        if k >= ahead:
            ahead = min(k + AHEAD, ids.size)
            touch(ids, k, ahead, tables, trees, progress)
        node = ids[k]
        if nodes[node, COUNT] == 0 or not is_over(nodes[node, END], frontier):
            continue
        gone[count, 0], gone[count, 1] = nodes[node, TREE], nodes[node, OWNER]
        count += 1
        key, which = nodes[node, TREE] // TREES, nodes[node, TREE] % TREES
        if which == RUNS:
            expire_runs(trees, key, nodes[node, START], what)
            continue
        refs = tables[0] if which == LEFT_EVENTS else tables[1]
        refs[nodes[node, OWNER], REFS] -= 1
        progress[EVENTS] -= nodes[node, COUNT]
        drop(trees, node, nodes[node, COUNT])
        if what == PAIRS:
            continue  # there are no runs
        if which == LEFT_EVENTS and trees.roots[key * TREES + LEFT_EVENTS] == NONE:
            last = until(trees, key * TREES + RUNS, frontier)
            if last != NONE:
                goes = nodes[last, END] < frontier
                drop_runs(trees, key, nodes[last, START] if goes else nodes[last, START] - 1)
    return count


@part
def touch(
    ids: Ints, first: int, last: int, tables: tuple[Ints, Ints], trees: Trees, progress: Ints
) -> None:
    """Read what is needed of some nodes, so that the processor waits for all at once."""
    word, nodes = 0, trees.nodes
    for k in range(first, last):
        word ^= nodes[ids[k], TREE]
    for k in range(first, last):
        tree, owner = nodes[ids[k], TREE], max(nodes[ids[k], OWNER], 0)
        if nodes[ids[k], COUNT] == 0:
            continue  # its payload need not be there any more
        refs = tables[0] if tree % TREES == LEFT_EVENTS else tables[1]
        word ^= trees.roots[tree] ^ refs[owner, REFS]
    progress[TOUCHED] = word


@kernel
def expire_runs(trees: Trees, key: int, start: int, what: int) -> None:
    """Drop the runs of a key that begin before `start`; that one too, if nothing needs it."""
    stays = what & WITH_GAPS and trees.roots[key * TREES + LEFT_EVENTS] != NONE
    drop_runs(trees, key, start - 1 if stays else start)


@kernel
def drop_runs(trees: Trees, key: int, last: int) -> None:
    """Drop the runs of a key that begin at the time `last` or before."""
    node = until(trees, key * TREES + RUNS, last)
    while node != NONE:
        drop(trees, node, 1)
        node = until(trees, key * TREES + RUNS, last)


@kernel
def is_due(made: Ints, nodes: Ints, is_left: int, times: Ints, ids: Ints) -> int:
    """Of these nodes those with an end, of left events or of others, by number and end."""
    count = 0
    for k in range(made.size):
        node = made[k]
        ends = nodes[node, COUNT] > 0 and nodes[node, END] < FOREVER_UNITS
        if ends and (nodes[node, TREE] % TREES == LEFT_EVENTS) == (is_left == 1):
            times[count], ids[count] = nodes[node, END], node
            count += 1
    return count


@kernel
def without_nodes(payloads: Ints, refs: Ints, found: Ints) -> int:
    """Those of these payloads that no node has, each once."""
    count = 0
    for k in range(payloads.size):
        if refs[payloads[k], REFS] == 0:
            refs[payloads[k], REFS] = NONE
            found[count] = payloads[k]
            count += 1
    return count


@kernel
def without_trees(keys: Ints, roots: Ints, found: Ints) -> int:
    """Those of these keys whose trees are all empty, each once."""
    count = 0
    for k in range(keys.size):
        first, is_empty = keys[k] * TREES, True
        for tree in range(TREES):
            is_empty &= roots[first + tree] == NONE
        if is_empty:
            roots[first] = FOUND
            found[count] = keys[k]
            count += 1
    for k in range(count):
        roots[found[k] * TREES] = NONE
    return count
