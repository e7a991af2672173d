"""The kernels that forget: nodes of a join's trees that its frontiers have passed."""

from anabranch.batch.batch import Ints
from anabranch.batch.kernel import kernel
from anabranch.operators.join.kernel import (
    EVENTS,
    LEFT_EVENTS,
    REFS,
    RUNS,
    TREES,
    WITH_GAPS,
    is_over,
)
from anabranch.operators.state.interval_trees import (
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


@kernel
def expire(
    ids: Ints, frontier: int, what: int, tables: tuple[Ints, Ints], trees: Trees,
    progress: Ints,
) -> None:  # fmt: skip
    """Drop the nodes among these that the frontier has passed.

    Where gaps matter the last run stays while its key has left events: a gap that may still
    change its end begins there.
    """
    nodes = trees.nodes
    for k in range(ids.size):
        node = ids[k]
        if nodes[node, COUNT] == 0 or not is_over(nodes[node, END], frontier):
            continue
        key, which = nodes[node, TREE] // TREES, nodes[node, TREE] % TREES
        if which == RUNS:
            expire_runs(trees, key, nodes[node, START], what)
            continue
        refs = tables[0] if which == LEFT_EVENTS else tables[1]
        refs[nodes[node, OWNER], REFS] -= 1
        progress[EVENTS] -= nodes[node, COUNT]
        drop(trees, node, nodes[node, COUNT])
        if which == LEFT_EVENTS and trees.roots[key * TREES + LEFT_EVENTS] == NONE:
            last = until(trees, key * TREES + RUNS, frontier)
            if last != NONE:
                goes = nodes[last, END] < frontier
                drop_runs(trees, key, nodes[last, START] if goes else nodes[last, START] - 1)


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
