"""Which node each element of a step is about: found by hash, decided by value.

Inserts at or after the output's frontier make a node if there is none; what is not found is
behind the frontier, or an adjust of something that never was.
"""

from dataclasses import dataclass

import numpy as np

from anabranch.batch.batch import INSERT, STABLE, Batch, Ints
from anabranch.batch.columns import conform
from anabranch.batch.hashing import hash_columns
from anabranch.batch.store import read_table
from anabranch.operators.merge.r4_lists import ABSENT
from anabranch.operators.merge.r4_nodes import BORN, NOT_BORN, ROW, Nodes
from anabranch.operators.merge.r4_state import R4State
from anabranch.operators.merge.slots import NOBODY, Asked


@dataclass(frozen=True, eq=False)
class Located:
    """The node of each element, or NOBODY and the end by which the final output knows it."""

    node: Ints
    settled: Ints
    fresh: Ints

    def unborn(self, nodes: Nodes) -> Ints:
        """New nodes of which no insert was believed."""
        ids: Ints = self.fresh[nodes.facts[self.fresh, BORN] == NOT_BORN]
        return ids


def locate(state: R4State, batch: Batch) -> Located:
    """Find or make the node of each data element."""
    nodes = state.nodes
    columns = read_table(conform(batch.payload, nodes.payloads.schema))
    hashes = hash_columns(columns, len(batch))
    start = np.ascontiguousarray(batch.start)
    rows = np.flatnonzero(batch.kind != STABLE)
    may_add = (batch.kind == INSERT) & (batch.end > start) & (start >= state.frontier)
    more = int(may_add.sum())
    asked = Asked(start, hashes, may_add, nodes.reserve(more))
    nodes.slots.make_room(more, nodes.facts)
    fresh = [rows[:0]]
    while len(rows):
        added, found = nodes.slots.search(asked, rows, nodes.facts)
        fresh.append(asked.id[added])
        nodes.begin(fresh[-1], nodes.payloads.append(columns, added))
        ours = nodes.facts[asked.id[found], ROW]
        # What has the hash of another payload goes on to the next node of that name.
        rows = found[~nodes.payloads.equal(columns, found, ours)]
    nodes.give_back(asked.ids)
    settled = np.full(len(batch), ABSENT, np.int64)
    lost = np.flatnonzero((asked.id == NOBODY) & (batch.kind != STABLE))
    settled[lost] = state.settled.ends(start[lost], hashes[lost])
    return Located(asked.id, settled, np.concatenate(fresh))
