"""The output of a step: the net change between its beginning and its end.

Each event is there at most once: an insert, an adjust, or both where only a removal and a new
insert may lengthen it (`shrink_only`, L14).  Payloads are copied once, when the batch is made,
so rows must stay until then.

`final_events` are the events that the step's stable froze, as inserts: what
`operators.report_final` would release, without a second copy of what is alive.

Papers: erratum D21 for the net change.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from anabranch.batch.batch import ADJUST, FOREVER_UNITS, INSERT, STABLE, Batch, Ints
from anabranch.batch.events import inserts, nothing, with_stable
from anabranch.batch.index import START
from anabranch.batch.kernel import frozen, frozen_rows, kernel, part
from anabranch.batch.schema import ElementSchema
from anabranch.batch.values import to_payloads
from anabranch.operators.contract import GAPS_SHOWN, Gap
from anabranch.operators.merge.bag_reconcile import EXTRA, LACK, Scratch, compare, scratch_for
from anabranch.operators.merge.bags import (
    OUT_BLOCK,
    SHOWN_BLOCK,
    Bags,
    Nodes,
    count_at,
    end_at,
    size,
    total,
)
from anabranch.operators.merge.layout import CREDITED, OUT, RANK, SHOWN
from anabranch.operators.state.events import ABSENT, FLAGS, ROW

KIND: Final = 0
NODE: Final = 1
OLD_END: Final = 2
END: Final = 3
"""The columns of the net change of bags."""


class Output:
    """Pieces of output, in order; `frontier` is that before the step.

    With `splits` an event that is still free is not lengthened, but removed and inserted.
    """

    def __init__(self, frontier: int, *, splits: bool) -> None:
        self.adjusts = 0
        self.inserts = 0
        self._frontier = frontier
        self._splits = splits
        # Of each piece: the kind, and the columns start, end, old_end and payload row.
        self._pieces: list[tuple[int, Ints]] = []

    def add_adjusts(self, nodes: Nodes, ids: Ints) -> None:
        """The new ends of those of these rows that readers know with another one, by rank."""
        rows = nodes.rows[ids]
        differs = (rows[:, SHOWN] != rows[:, OUT]) & (rows[:, SHOWN] != ABSENT)
        ids, rows = ids[differs], rows[differs]
        if not len(ids):
            return
        _, first = np.unique(rows[:, RANK], return_index=True)
        ids, rows = ids[first], rows[first]
        start, shown, out = rows[:, START], rows[:, SHOWN], rows[:, OUT]
        ends = out == ABSENT
        if self._splits:
            splits = (out > shown) & (start >= self._frontier)
            ends |= splits
        self._add(ADJUST, np.stack((start, np.where(ends, start, out), shown, rows[:, ROW])))
        if self._splits:
            again = np.stack((start, out, np.zeros_like(out), rows[:, ROW]))
            self._add(INSERT, again[:, splits])
        nodes.rows[ids, SHOWN] = out
        nodes.rows[ids, FLAGS] = rows[:, FLAGS] & ~CREDITED

    def add_new(self, nodes: Nodes, ids: Ints) -> None:
        """The events among these rows that came to the output and are still there."""
        columns = np.empty((4, len(ids)), np.int64)
        count = int(show_new(nodes.rows, frozen(ids), columns))
        self._add(INSERT, columns[:, :count])

    def add_net(self, nodes: Nodes, net: Ints) -> None:
        """The net change of bags."""
        rows = nodes.rows[net[:, NODE]]
        columns = np.stack((rows[:, START], net[:, END], net[:, OLD_END], rows[:, ROW]))
        for kind in (ADJUST, INSERT):
            self._add(kind, columns[:, net[:, KIND] == kind])

    def add_stable(self, time: int) -> None:
        """The output's frontier is here now."""
        self._pieces.append((STABLE, np.array([[time], [0], [0], [-1]], np.int64)))

    def batch(self, nodes: Nodes, schema: ElementSchema) -> Batch:
        """Everything, in order."""
        if not self._pieces:
            return nothing(schema)
        sizes = [piece.shape[1] for _, piece in self._pieces]
        kinds = np.array([kind for kind, _ in self._pieces], np.int8)
        columns = np.concatenate([piece for _, piece in self._pieces], axis=1)
        start, end, old_end, payload_row = columns
        data = payload_row[payload_row >= 0]
        # Many steps emit a stable alone.
        payload = nodes.take(data) if len(data) else schema.payload.empty_table()
        payload = with_stable(payload, schema, len(payload_row) - len(data))
        return Batch(schema, np.repeat(kinds, sizes), start, end, old_end, payload)

    def _add(self, kind: int, columns: Ints) -> None:
        if columns.shape[1]:
            self._pieces.append((kind, columns))
            self.adjusts += columns.shape[1] if kind == ADJUST else 0
            self.inserts += columns.shape[1] if kind == INSERT else 0


@kernel
def show_new(rows: Ints, ids: Ints, columns: Ints) -> int:
    """Those of these rows that are on the output, as inserts; returns how many they are."""
    count = 0
    for k in range(ids.size):
        node = ids[k]
        out = rows[node, OUT]
        # Brought and taken back within the step: readers never see it.
        if out != ABSENT:
            columns[0, count], columns[1, count] = rows[node, START], out
            columns[2, count], columns[3, count] = 0, rows[node, ROW]
            rows[node, SHOWN] = out
            count += 1
    return count


def net_of_bags(nodes: Nodes, ids: Ints, frontier: int, *, shrink_only: bool) -> Ints:
    """The net change of these bags: KIND, NODE, OLD_END, END."""
    ids, counts = frozen_rows(ids), np.zeros(2, np.int64)
    count_events(ids, nodes.rows, nodes.bags, counts)
    net = np.empty((int(counts[0]), 4), np.int64)
    scratch = scratch_for(int(counts[1]))
    found = net_all(ids, nodes.rows, nodes.bags, frontier, shrink_only, scratch, net)
    return net[: int(found)]


@kernel
def count_events(ids: Ints, rows: Ints, bags: Bags, counts: Ints) -> None:
    """How many events readers have and get of all these bags, and of the greatest one."""
    for k in range(ids.size):
        record = rows[ids[k], OUT]
        events = total(bags, bags.records[record, OUT_BLOCK])
        events += total(bags, bags.records[record, SHOWN_BLOCK])
        counts[0] += events
        counts[1] = max(counts[1], events)


@kernel
def net_all(
    ids: Ints,
    rows: Ints,
    bags: Bags,
    frontier: int,
    shrink_only: int,
    scratch: Scratch,
    net: Ints,
) -> int:
    """Pair the ends that are gone with those that are new, bag by bag; how many rows."""
    count = 0
    for k in range(ids.size):
        node, record = ids[k], rows[ids[k], OUT]
        shown, out = bags.records[record, SHOWN_BLOCK], bags.records[record, OUT_BLOCK]
        # One block: nothing has changed since readers saw it.
        if shown == out:
            continue
        compare(bags, shown, out, scratch)
        start = rows[node, START]
        # While it is free, lengthening is written as a removal and an insert (L14).
        if shrink_only and start >= frontier:
            count = pair_shrinking(node, start, scratch, net, count)
        else:
            count = pair_in_order(node, start, scratch, net, count)
    return count


@part
def pair_in_order(node: int, start: int, scratch: Scratch, net: Ints, count: int) -> int:
    """The k-th with the k-th; what is left over is removed or inserted."""
    gone, new = scratch.counts[EXTRA], scratch.counts[LACK]
    for i in range(max(gone, new)):
        old_end = scratch.bags[EXTRA, i] if i < gone else 0
        end = scratch.bags[LACK, i] if i < new else start
        write(net, count, ADJUST if i < gone else INSERT, node, old_end, end)
        count += 1
    return count


@part
def pair_shrinking(node: int, start: int, scratch: Scratch, net: Ints, count: int) -> int:
    """Each new end with the smallest gone one that is later; the rest is removed, inserted."""
    i, gone = 0, scratch.counts[EXTRA]
    for j in range(scratch.counts[LACK]):
        end = scratch.bags[LACK, j]
        # Too short for this end, and so for all that follow.
        while i < gone and scratch.bags[EXTRA, i] < end:
            write(net, count, ADJUST, node, scratch.bags[EXTRA, i], start)
            i, count = i + 1, count + 1
        if i < gone:
            write(net, count, ADJUST, node, scratch.bags[EXTRA, i], end)
            i += 1
        else:
            write(net, count, INSERT, node, 0, end)
        count += 1
    for k in range(i, gone):
        write(net, count, ADJUST, node, scratch.bags[EXTRA, k], start)
        count += 1
    return count


@part
def write(net: Ints, at: int, kind: int, node: int, old_end: int, end: int) -> None:
    """One row."""
    net[at, KIND], net[at, NODE] = kind, node
    net[at, OLD_END], net[at, END] = old_end, end


def final_events(
    nodes: Nodes, schema: ElementSchema, done: Ints, bags: Ints, span: tuple[int, int]
) -> Batch:
    """What a step that moved the frontier over `span` made final; `bags` are not in `done`."""
    if not len(done) and not len(bags):
        return nothing(schema)
    rows = nodes.rows[done]
    rows = rows[rows[:, OUT] != ABSENT]
    start, end, payload = rows[:, START], rows[:, OUT], rows[:, ROW]
    if len(bags):
        ids, none = frozen_rows(bags), np.empty((0, 2), np.int64)
        count = int(list_frozen(ids, nodes.rows, nodes.bags, *span, none))
        found = np.empty((count, 2), np.int64)
        list_frozen(ids, nodes.rows, nodes.bags, *span, found)
        more = nodes.rows[found[:, 0]]
        start = np.append(start, more[:, START])
        end = np.append(end, found[:, 1])
        payload = np.append(payload, more[:, ROW])
    return inserts(schema, start, end, nodes.take(payload))


@kernel
def list_frozen(ids: Ints, rows: Ints, bags: Bags, before: int, after: int, found: Ints) -> int:
    """The events (row, end) of bags that a move of the frontier froze; counts if no room."""
    count = 0
    for k in range(ids.size):
        at = bags.records[rows[ids[k], OUT], OUT_BLOCK]
        for j in range(size(bags, at)):
            end = end_at(bags, at, j)
            # Frozen before this move, or not frozen by it.
            if end < before or (end >= after and after != FOREVER_UNITS):
                continue
            for _ in range(count_at(bags, at, j)):
                if count < found.shape[0]:
                    found[count, 0], found[count, 1] = ids[k], end
                count += 1
    return count


def name_gaps(
    nodes: Nodes, names: Sequence[str], gaps: Sequence[tuple[int, Ints]]
) -> tuple[Gap, ...]:
    """The first events that a deciding replica never mentioned, for the report."""
    if not any(len(ids) for _, ids in gaps):
        return ()
    who = [names[chosen] for chosen, ids in gaps for _ in ids[:GAPS_SHOWN]]
    shown = np.concatenate([ids[:GAPS_SHOWN] for _, ids in gaps])[:GAPS_SHOWN]
    start, rows = nodes.rows[shown, START], nodes.rows[shown, ROW]
    payloads = to_payloads(nodes.take(rows), len(shown))
    return tuple(map(Gap, who, start.tolist(), payloads))
