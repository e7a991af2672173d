"""Nodes from plain columns: how a state is read from bytes, or carried over from R3.

Given the names, the ends and the payloads of all nodes, finds out the rest: where each node is
found, when it is due, and which replicas it waits for.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.batch.batch import FOREVER_UNITS, Ints
from anabranch.batch.kernel import frozen_rows, kernel
from anabranch.batch.store import read_table
from anabranch.operators.merge.r4_lists import OUTPUT, read_ends, with_cells
from anabranch.operators.merge.r4_nodes import BORN, DUE, STATUS, Nodes
from anabranch.operators.merge.r4_reconcile import first_end, wants_before
from anabranch.operators.merge.r4_state import R4State
from anabranch.operators.merge.slots import LOW, START
from anabranch.operators.state_parts import Blocks


@dataclass(frozen=True, eq=False)
class Written:
    """Nodes as columns: their numbers, names (START, HIGH, LOW) and order of first arrival.

    `ends` are rows as `R4State.ends` gives them; `in_conflict` is 0 or 1 for each node.
    """

    ids: Ints
    names: Ints
    born: Ints
    in_conflict: Ints
    ends: Ints
    payload: pa.Table


def restore(state: R4State, some: Written, blocks: Blocks) -> None:
    """Give an empty state these nodes; its frontier and members are there already."""
    nodes, ids = Nodes(state.schema.payload), some.ids
    for _ in range(len(state.members)):
        nodes.add_column()
    nodes.restore(ids)
    nodes.begin(ids, nodes.payloads.append(read_table(some.payload), np.arange(len(ids))))
    nodes.facts[ids, : LOW + 1] = some.names
    nodes.facts[ids, BORN] = some.born
    nodes.facts[ids, STATUS] = some.in_conflict
    nodes.next_born = int(some.born.max(initial=-1)) + 1
    nodes.blocks = blocks
    nodes.slots.put(ids, nodes.facts)
    # A block of n ends has room for at most 2 n, and one cell for itself.
    nodes.lists = with_cells(nodes.lists, 4 * len(some.ends) + 8)
    read_ends(nodes.lists, frozen_rows(ids), np.ascontiguousarray(some.ends))
    waiting = np.zeros((len(ids), nodes.columns), np.bool_)
    find_due(nodes.facts, nodes.lists, frozen_rows(ids), state.frontier, waiting)
    nodes.waits[ids] = waiting
    due = nodes.facts[ids, DUE]
    is_due = due < FOREVER_UNITS
    nodes.due.push(due[is_due], ids[is_due])
    row, column = np.nonzero(waiting)
    nodes.wait(np.stack([ids[row], nodes.facts[ids[row], BORN], column], axis=1))
    state.nodes = nodes


@kernel
def find_due(facts: Any, lists: Any, ids: Any, frontier: Any, waiting: Any) -> None:
    """When each node is due, and for which replicas it waits."""
    for k in range(ids.size):
        node = ids[k]
        start = facts[node, START]
        due = start
        if start < frontier:
            due = np.int64(FOREVER_UNITS)
            for column in range(lists.single.shape[1]):
                due = min(due, first_end(lists, node, column, start, frontier))
                waiting[k, column] = column != OUTPUT and wants_before(
                    lists, node, column, start, frontier
                )
        facts[node, DUE] = due
