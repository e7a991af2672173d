"""The output of a step: elements by node, written down as they are decided, made one batch.

Payloads are copied once, when the batch is made, so nodes must stay until then.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.batch.batch import ADJUST, INSERT, STABLE, Batch, Codes, Ints
from anabranch.batch.buffers import to_arrow
from anabranch.batch.kernel import frozen, kernel
from anabranch.batch.values import to_payloads
from anabranch.operators.merge.contract import GAPS_SHOWN, Gap, Reason
from anabranch.operators.merge.r3_loop import Elements
from anabranch.operators.merge.r3_nodes import (
    ABSENT,
    BORN,
    CREDITED,
    FLAGS,
    OUT,
    ROW,
    SHOWN,
    Nodes,
)
from anabranch.operators.merge.r3_state import R3State
from anabranch.operators.merge.slots import START


class Output:
    """Pieces of output, in order."""

    def __init__(self) -> None:
        self.adjusts = 0
        # Of each piece: the kind, and the columns start, end, old_end and payload row.
        self._pieces: list[tuple[int, Ints]] = []

    def add_adjusts(self, nodes: Nodes, ids: Ints) -> None:
        """The new ends of those of these nodes that readers know with another one, by rank."""
        rows = nodes.rows[ids]
        differs = (rows[:, SHOWN] != rows[:, OUT]) & (rows[:, SHOWN] != ABSENT)
        ids, rows = ids[differs], rows[differs]
        _, first = np.unique(rows[:, BORN], return_index=True)
        ids, rows = ids[first], rows[first]
        end = np.where(rows[:, OUT] == ABSENT, rows[:, START], rows[:, OUT])
        self._add(ADJUST, np.stack((rows[:, START], end, rows[:, SHOWN], rows[:, ROW])))
        self.adjusts += len(rows)
        nodes.rows[ids, SHOWN] = rows[:, OUT]
        nodes.rows[ids, FLAGS] = rows[:, FLAGS] & ~CREDITED

    def add_new(self, nodes: Nodes, ids: Ints) -> None:
        """The events among these nodes that came to the output and are still there."""
        columns = np.empty((4, len(ids)), np.int64)
        count = int(show_new(nodes.rows, frozen(ids), columns))
        self._add(INSERT, columns[:, :count])

    def add_inserts(
        self, nodes: Nodes, elements: Elements, reasons: Codes, begin: int, end: int
    ) -> None:
        """The elements of this range that brought an event, as they came."""
        rows = begin + np.flatnonzero(reasons[begin:end] == Reason.FIRST.code)
        nothing = np.zeros(len(rows), np.int64)
        payload = nodes.rows[elements.node[rows], ROW]
        columns = (elements.start[rows], elements.end[rows], nothing, payload)
        self._add(INSERT, np.stack(columns))

    def add_stable(self, time: int) -> None:
        """The output's frontier is here now."""
        self._pieces.append((STABLE, np.array([[time], [0], [0], [-1]], np.int64)))

    def batch(self, state: R3State) -> Batch:
        """Everything, in order."""
        sizes = [piece.shape[1] for _, piece in self._pieces]
        kinds = np.array([kind for kind, _ in self._pieces], np.int8)
        empty = np.empty((4, 0), np.int64)
        columns = np.concatenate([empty, *(piece for _, piece in self._pieces)], axis=1)
        start, end, old_end, payload_row = columns
        payload = payload_of(state.nodes, payload_row)
        return Batch(state.schema, np.repeat(kinds, sizes), start, end, old_end, payload)

    def _add(self, kind: int, columns: Ints) -> None:
        if columns.shape[1]:
            self._pieces.append((kind, columns))


@kernel
def show_new(rows: Any, ids: Any, columns: Any) -> Any:
    """Those of these nodes that are on the output, as inserts; returns how many they are."""
    count = 0
    for k in range(ids.size):
        node = ids[k]
        out = rows[node, OUT]
        if out != ABSENT:
            columns[0, count], columns[1, count] = rows[node, START], out
            columns[2, count], columns[3, count] = 0, rows[node, ROW]
            rows[node, SHOWN] = out
            count += 1
    return count


def payload_of(nodes: Nodes, rows: Ints) -> pa.Table:
    """The payloads of these rows; null for a stable."""
    schema, stables = nodes.schema, np.flatnonzero(rows < 0)
    if not len(schema):
        return schema.empty_table()
    data = nodes.take(rows[rows >= 0])
    if len(stables) and stables[0] < len(rows) - 1:
        position = np.cumsum(rows >= 0) - 1
        return data.take(to_arrow(position, pa.int64(), mask=rows >= 0))
    return pa.concat_tables([data, *([_null(schema)] * len(stables))])


def _null(schema: pa.Schema) -> pa.Table:
    return pa.Table.from_arrays([pa.nulls(1, one.type) for one in schema], schema=schema)


def name_gaps(state: R3State, gaps: Sequence[tuple[int, Ints]]) -> tuple[Gap, ...]:
    """The first of the events that a decider never mentioned, for people to look at."""
    if not any(len(nodes) for _, nodes in gaps):
        return ()
    names = [state.members.names[leader] for leader, nodes in gaps for _ in nodes[:GAPS_SHOWN]]
    shown = np.concatenate([nodes[:GAPS_SHOWN] for _, nodes in gaps])[:GAPS_SHOWN]
    start, rows = state.nodes.rows[shown, START], state.nodes.rows[shown, ROW]
    payloads = to_payloads(state.nodes.take(rows), len(shown))
    return tuple(map(Gap, names, start.tolist(), payloads))
