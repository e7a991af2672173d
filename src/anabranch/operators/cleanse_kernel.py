"""Cleanse over batches: what becomes final in a step, in order, in columns.

    find       the identity of each element, and what waits under those identities
    judge      replay the elements after what waits; broken promises change nothing
    release    if the frontier moved: all whole groups of one start that are frozen, in order

The order is (start, payload, end), where payloads are ordered column by column as Arrow orders
values (nulls last, NaN before them), and then by their 128-bit hash, which decides for columns
that Arrow cannot order (lists, half floats).  It is a function of the values, so all replicas
have the same, unless someone makes two lists of one hash.

Cost: a sort of the batch and of what it touches; and, for each step after which something else
blocks than before, one look at the times of all that waits, and a sort of what is released.

Papers: LMerge VI-D, erratum L13; see `anabranch.operators.cleanse`, which is the reference.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from anabranch.batch.batch import (
    ADJUST,
    FOREVER_UNITS,
    INSERT,
    NEVER_UNITS,
    STABLE,
    Batch,
    Ints,
)
from anabranch.batch.buffers import numbers, take, to_arrow
from anabranch.batch.hashing import hash_payload
from anabranch.batch.schema import ElementSchema
from anabranch.operators.unary import UnaryResult
from anabranch.operators.unary_codec import StateFormat
from anabranch.operators.unary_judge import judge
from anabranch.operators.unary_live import data_payload
from anabranch.operators.unary_state import UnaryState

_START, _END = range(2)


class CleanseState(UnaryState):
    """What cleanse remembers for one lane; `step` changes it in place."""

    FORMAT = StateFormat.of("cleanse", ("start", "end"))
    BY_START = True
    NUMBERS = ("frontier", "released", "mark")

    def __init__(self, schema: ElementSchema) -> None:
        super().__init__(schema)
        self.released = int(NEVER_UNITS)
        # The greatest end of what starts at `released`: until then nothing can be released.
        self.blocked_until = int(NEVER_UNITS)

    def __repr__(self) -> str:
        return f"CleanseState(frontier {self.frontier}, {self.released}, {self.live!r})"

    @property
    def waiting(self) -> int:
        """How many events wait."""
        return len(self.live)

    def check(self) -> None:
        """Assert what must always hold between steps."""
        self.live.check()
        _, rows = self.live.all()
        assert (rows[:, _START] >= self.released).all(), f"not released: {self!r}"
        assert self.released == _releasable(rows, self.frontier), f"waits too long: {self!r}"


def step(state: CleanseState, batch: Batch) -> UnaryResult:
    """Take a batch, change the state, and return what became final, and the stable."""
    state.mark += 1
    data = np.flatnonzero(batch.is_data)
    found = state.live.find(batch.start[data], data_payload(batch, data))
    touched = np.unique(found)
    group, rows = state.live.rows(touched)
    groups = np.full(len(batch), -1, np.int64)
    groups[data] = found
    judged = judge((group, rows[:, _START], rows[:, _END]), groups, batch, state.frontier)
    rows = np.stack([judged.start, judged.end], axis=1)
    state.live.write(touched, judged.group, rows, state.mark)
    if (batch.start[batch.kind == ADJUST] == state.released).any():
        state.blocked_until = int(NEVER_UNITS)
    moved = judged.frontier > max(state.frontier, state.blocked_until)
    state.frontier = judged.frontier
    output = _release(state, moved=moved or state.frontier == FOREVER_UNITS)
    if state.live.is_wasteful:
        state.live.keep(*state.live.all(), state.mark)
    return UnaryResult(output, judged.positions, judged.reasons)


def _release(state: CleanseState, *, moved: bool) -> Batch:
    """The inserts, in order, and the stable; nothing, if the frontier did not move."""
    group, rows = state.live.all() if moved else (np.empty(0, np.int64), np.empty((0, 2), int))
    bound = _releasable(rows, state.frontier) if moved else state.released
    if moved:
        at_bound = rows[:, _START] == bound
        state.blocked_until = int(rows[:, _END].max(initial=NEVER_UNITS, where=at_bound))
    ready = np.flatnonzero(rows[:, _START] < bound)
    if bound == FOREVER_UNITS:
        ready = np.arange(len(rows))
    group, rows = group[ready], rows[ready]
    payload = state.live.payload(group)
    order = release_order(rows[:, _START], payload, rows[:, _END])
    gone = np.unique(group)
    state.live.write(gone, group[:0], rows[:0], state.mark)
    stables = int(bound > state.released)
    state.released = bound
    nulls = [pa.nulls(stables, field.type) for field in state.schema.payload]
    if nulls:
        stable = pa.table(nulls, schema=payload.schema)
        payload = pa.concat_tables([take(payload, order), stable])
    none = np.zeros(stables, np.int64)
    return Batch(
        state.schema,
        np.repeat(np.array([INSERT, STABLE], np.int8), [len(rows), stables]),
        np.append(rows[order, _START], none + bound),
        np.append(rows[order, _END], none),
        np.zeros(len(rows) + stables, np.int64),
        payload,
    )


def _releasable(rows: Ints, frontier: int) -> int:
    """The smallest start that waits for an event to be frozen, or the input's frontier."""
    if frontier == FOREVER_UNITS:
        return frontier
    is_open = rows[:, _END] >= frontier
    return int(rows[:, _START].min(initial=frontier, where=is_open))


def release_order(start: Ints, payload: pa.Table, end: Ints) -> NDArray[np.intp]:
    """The rows by start, payload and end."""
    order = np.argsort(start, kind="stable")
    ordered = start[order]
    same = np.append(False, ordered[1:] == ordered[:-1])
    tied = np.flatnonzero(same | np.append(same[1:], False))
    if len(tied):
        rows = order[tied]
        order[tied] = rows[_order_ties(start[rows], take(payload, rows), end[rows])]
    return order


def _order_ties(start: Ints, payload: pa.Table, end: Ints) -> Ints:
    keys = {"start": to_arrow(start, pa.int64())}
    columns = [column for column in payload.columns if _is_ordered(column.type)]
    keys |= {f"column_{i}": column for i, column in enumerate(columns)}
    if payload.num_columns:
        low, high = hash_payload(payload)
        keys |= {"low": to_arrow(low, pa.uint64()), "high": to_arrow(high, pa.uint64())}
    keys["end"] = to_arrow(end, pa.int64())
    order = pc.sort_indices(pa.table(keys), sort_keys=[(name, "ascending") for name in keys])
    return numbers(order, np.dtype(np.uint64)).astype(np.int64)


def _is_ordered(kind: pa.DataType) -> bool:
    """Whether Arrow can sort a table by a column of this type."""
    # One key alone, or no rows, and Arrow does not look into structs.
    table = pa.table({"x": pa.nulls(2, pa.int8()), "y": pa.nulls(2, kind)})
    try:
        pc.sort_indices(table, sort_keys=[("x", "ascending"), ("y", "ascending")])
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError):
        return False
    return True
