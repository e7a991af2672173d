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
from typing import Final

import numpy as np

from anabranch.batch.batch import NEVER_UNITS, Ints
from anabranch.batch.kernel import frozen_rows
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
from anabranch.operators.state.interval_kernels import (
    COUNT,
    END,
    FREE,
    LEFT,
    MADE,
    MARK,
    MAX,
    NODES,
    NONE,
    NUMBERS,
    OWNER,
    RIGHT,
    START,
    TREE,
    USED,
    VISITS,
    WIDTH,
    Trees,
    rebuild,
)

# Deeper than any tree gets: one of 2**40 nodes has an expected depth below 80.
_DEPTH: Final = 1_024
_SAVED: Final = ("node", "tree", "owner", "start", "end", "count")


class IntervalTrees:
    """The pool of nodes of one lane."""

    def __init__(self) -> None:
        none = np.zeros(0, np.int64)
        numbers = np.zeros(NUMBERS, np.int64)
        numbers[FREE] = NONE
        self.arrays = Trees(
            np.zeros((0, WIDTH), np.int64), none, numbers, np.zeros(_DEPTH, np.int64), none,
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

    @property
    def made(self) -> int:
        """How many nodes were made since the last call of `take_made`."""
        return int(self.arrays.numbers[MADE])

    def take_made(self) -> Ints:
        """The nodes that were made since the last call; some may be gone again.  A view."""
        count = int(self.arrays.numbers[MADE])
        self.arrays.numbers[MADE] = 0
        made: Ints = self.arrays.made[:count]
        return made

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

    def give_owners(self, ids: Ints, owners: Ints) -> None:
        """Let these nodes have other owners; nodes that get one name are one from now on."""
        arrays = self.arrays
        arrays.nodes[ids, OWNER] = owners
        every = self.living()
        if not len(every):
            return
        columns = [self.nodes[every, at] for at in (TREE, OWNER, START, END, COUNT)]
        rows = np.column_stack([every, *columns])
        rows = rows[np.lexsort(rows[:, :5].T)]
        is_first = np.append(True, (np.diff(rows[:, 1:5], axis=0) != 0).any(axis=1))
        counts = np.add.reduceat(rows[:, 5], np.flatnonzero(is_first))
        rows = rows[is_first]
        rows[:, 5] = counts
        arrays.changed[arrays.held > 0] = arrays.numbers[MARK]
        arrays.held[:] = 0
        arrays.roots[:] = NONE
        arrays.numbers[[FREE, NODES]] = (NONE, 0)
        rebuild(arrays, frozen_rows(rows))

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
