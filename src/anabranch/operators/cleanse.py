"""Cleanse: only final events, in one order that replicas share, over batches.

    find       the identity of each element, and what waits under those identities
    judge      replay the elements after what waits; broken promises change nothing
    release    if the frontier moved: all whole groups of one start that are frozen, in order

The order is (start, payload, end), where payloads are ordered column by column as Arrow orders
values (nulls last, NaN before them), and then by their 128-bit hash, which decides for columns
that Arrow cannot order (lists, half floats).  It is a function of the values, so all replicas
have the same, unless someone forges two lists of one hash.

Events that start before the frontier stand in a line, by start; only the first of them that is
not frozen blocks the others.  So a step costs a sort of the batch and of what it touches, of
what passes the frontier, and of what is released; what stays blocked is not looked at.

Papers: LMerge VI-D, erratum L13; the reference is `anabranch.operators.reference.cleanse`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from anabranch.batch.batch import FOREVER_UNITS, NEVER_UNITS, Batch, Ints
from anabranch.batch.buffers import numbers, take, to_arrow
from anabranch.batch.events import inserts
from anabranch.batch.hashing import hash_payload
from anabranch.batch.schema import ElementSchema
from anabranch.model.properties import StreamProperties, shared
from anabranch.operators.contract import Route
from anabranch.operators.state.codec import StateKind
from anabranch.operators.state.groups import distinct
from anabranch.operators.state.line import Line
from anabranch.operators.unary import END, START, Changed, UnaryState
from anabranch.operators.unary_judge import Judged


def after_cleanse(
    properties: StreamProperties, *, ties_by_value: bool = True
) -> StreamProperties:
    """What holds of the output, for each replica, if this holds of the input.

    R1 whatever the input, since the values of a whole group decide about its order, and not
    where the stables are (`ties_by_value`); R2 too if identities are unique, R0 if starts are.
    An event waits for every event that starts before it (erratum L13).  What is frozen is part
    of the history, so it is keyed if that is.

    >>> from anabranch.model.properties import cheapest
    >>> cheapest(after_cleanse(StreamProperties()))
    MergeCase.R1
    """
    return StreamProperties(
        insert_only=True,
        ordered=True,
        strictly_increasing=properties.strictly_increasing,
        ties_in_same_order=ties_by_value,
        keyed=properties.keyed,
    )


@dataclass(frozen=True)
class CleanseOperator:
    """Release final events in one order.

    In several lanes each has an order and a frontier of its own: run it in one.
    """

    schema: ElementSchema
    name: str = "cleanse"
    route: Route = Route.IDENTITY
    route_columns: Sequence[str] = ()

    @property
    def output(self) -> ElementSchema:
        """Elements with the columns of the input."""
        return replace(self.schema, has_seq=False, has_replica=False)

    def properties(self, *inputs: StreamProperties) -> StreamProperties:
        """In order, without adjusts, the values decide about ties."""
        return after_cleanse(shared(inputs))

    def empty(self) -> "CleanseState":
        """Nothing has happened."""
        return CleanseState(self.schema)

    def from_parts(self, parts: Mapping[str, bytes]) -> "CleanseState":
        """The state that was saved; StateError if of another kind, version or schema."""
        return CleanseState.from_parts(parts, self.schema)


class CleanseState(UnaryState):
    """What cleanse remembers for one lane.

    `line` are the identities that start before the input's frontier, by start.
    """

    KIND = StateKind("anabranch cleanse", version=1)
    NUMBERS = ("received", "released")

    def __init__(self, schema: ElementSchema) -> None:
        super().__init__(schema)
        self.released = int(NEVER_UNITS)
        self.line = Line(self.groups)

    @property
    def frontier(self) -> int:
        """How far the output is final: all before it is released."""
        return self.released

    def take(self, batch: Batch) -> tuple[Judged, Changed]:
        """Note what came, and release what became final, in order."""
        groups, touched = self.find(batch)
        judged = self.judge(batch, groups, self.groups.read(touched))
        rows = np.stack([judged.start, judged.end], axis=1)
        due = self.line.due(touched, self.received)
        self.groups.write(touched, judged.group, rows, due, self.mark)
        if judged.frontier == self.received:
            return judged, Changed(self._write(touched[:0], self.released))
        self.received = judged.frontier
        passed = self.line.advance(self.received)
        gone, bound = self.line.take_ready(self.received)
        output = self._write(gone, bound)
        return judged, Changed(output, counts={"visits": passed + len(gone)})

    def _write(self, gone: Ints, bound: int) -> Batch:
        """The inserts of these groups, which leave the state, in order, and the stable."""
        gone = distinct(gone)
        group, rows = self.groups.read(gone)
        payload = self.groups.payload(group)
        order = release_order(rows[:, START], payload, rows[:, END])
        never = np.full(len(gone), FOREVER_UNITS)
        self.groups.write(gone, group[:0], rows[:0], never, self.mark)
        stable = bound if bound > self.released else None
        self.released = bound
        times = rows[order, START], rows[order, END]
        return inserts(self.schema, *times, take(payload, order), stable)

    def restored(self) -> None:
        """What starts before the frontier stands in the line, the rest is due at its start."""
        self.line.restore(self.received)

    def check(self) -> None:
        """Assert every invariant."""
        super().check()
        _, rows = self.groups.all()
        first = rows[:, START].min(initial=FOREVER_UNITS)
        assert first >= self.released, f"held start {first} < released {self.released}"
        is_open = (rows[:, END] >= self.received) & (self.received < FOREVER_UNITS)
        bound = int(rows[:, START].min(initial=self.received, where=is_open))
        assert self.released == bound, (
            f"released {self.released} != smallest open start {bound}"
        )
        self.line.check(self.received)


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
