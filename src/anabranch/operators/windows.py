"""A window aggregate as an operator: one `windows.Machine` per group, rows of its own schema.

Its input elements are rows: an insert at the row's time, whose payload has the columns of the
group (`key_0`, ...) and

    value, absent    the value to aggregate; whether it was null (a count takes those too)
    order, batch     what orders rows of one time; which batch a row belongs to
    flaw             why the row cannot be taken, or an empty text

A step is one batch of each group (or several, by `batch`).  A row that is not taken is
never lost: it comes out as a row that is not `reported`, with its reason.

The state is a machine per group, as the bytes that it saves itself; a step decodes those that
it touches.  Groups lie in blocks in the order in which they came, and a save writes the blocks
that changed.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import isnan
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.batch.batch import NEVER_UNITS, Batch, Ints, concat
from anabranch.batch.buffers import to_arrow
from anabranch.batch.events import nothing
from anabranch.batch.schema import ElementSchema, TimeType
from anabranch.errors import InputError, ViolationError
from anabranch.model import Stable
from anabranch.model.properties import StreamProperties
from anabranch.operators.contract import (
    BUCKET_OF,
    Inputs,
    Reason,
    Route,
    StepResult,
)
from anabranch.operators.state.blocks import CONTROL, Saved, part_of
from anabranch.operators.state.codec import StateKind, to_table, write_tables
from anabranch.operators.unary import OneInput
from anabranch.windows.engine import Engine
from anabranch.windows.machine.machine import Arrival, Fed, Machine
from anabranch.windows.trace import Query

_KIND: Final = StateKind("anabranch windows", version=1)

Key = tuple[Any, ...]
Row = tuple[Any, ...]

OUT: Final = (
    "reported", "start", "end", "instant", "value", "count", "late", "time", "given", "reason",
    "step", "seq",
)  # fmt: skip
"""What a step makes, after the columns of the group; `given` is the value of a late row."""

_MOST: Final = 2**63 - 1
_BLOCK: Final = 64
"""Groups of a block: small, since a save writes a block for each group that changed."""
_NAN: Final = float("nan")
"""The group of all rows without a number: two floats that are NaN are not equal."""


@dataclass(frozen=True)
class WindowsOperator:
    """A window query with an engine's scope, report and tick.

    `columns` are the types of the payload; `made` are the columns of the rows that come out.
    `until`: after the rows of a step, time has come so far (for input that ends).
    """

    engine: Engine
    query: Query
    columns: pa.Schema
    made: pa.Schema
    keys: int
    ordered: bool
    late: Literal["keep", "raise"]
    until: int | None = None

    @property
    def name(self) -> str:
        """The word for it in messages and records."""
        return "windows"

    @property
    def schema(self) -> ElementSchema:
        """Rows as elements; whole numbers of units are their times."""
        return ElementSchema(TimeType.BIGINT, self.columns)

    @property
    def output(self) -> pa.Schema:
        """Results and rows that were not taken; `reported` distinguishes them."""
        return self.made

    @property
    def route(self) -> Route:
        """By the columns of the group."""
        return Route.KEY

    @property
    def route_columns(self) -> Sequence[str]:
        """The columns of the group."""
        return tuple(self.columns.names[: max(1, self.keys)])

    def properties(self, *inputs: StreamProperties) -> StreamProperties:
        """None: its rows are no elements."""
        del inputs
        return StreamProperties()

    def empty(self) -> "WindowsState":
        """There is no group yet."""
        return WindowsState(self)

    def from_parts(self, parts: Mapping[str, bytes]) -> "WindowsState":
        """The groups that were saved."""
        state = WindowsState(self)
        state.read(parts)
        return state


@dataclass
class _Group:
    """A group as it is stored: its machine's bytes, and how many rows it has made."""

    machine: bytes
    seq: int


@dataclass(eq=False)
class WindowsState(OneInput):
    """What a window query remembers for one lane."""

    operator: WindowsOperator
    groups: dict[Key, _Group] = field(default_factory=dict)
    place: dict[Key, int] = field(default_factory=dict)
    changed: list[int] = field(default_factory=list)
    """Of each block the mark at which it changed last."""
    mark: int = 0

    @property
    def frontier(self) -> int:
        """There is none: each group has its own time."""
        return int(NEVER_UNITS)

    @property
    def live(self) -> int:
        """How many groups there are."""
        return len(self.groups)

    def step(self, inputs: Inputs) -> StepResult:
        """Take the rows of the one input, group by group."""
        self.mark += 1
        made: list[Row] = []
        # One batch of each group, in however many parcels its rows came.
        came = [one.batch for one in inputs.arrivals] or [nothing(self.operator.schema)]
        for key, rows in _by_group(concat(came), self.operator.keys):
            made += self._take(key, rows)
        columns = zip(*made, strict=True) if made else [() for _ in self.operator.made]
        arrays = [
            pa.array(column, type=kind)
            for column, kind in zip(columns, self.operator.made.types, strict=True)
        ]
        reasons = tuple(
            np.full(len(one.batch), Reason.NOTED.code, np.int8) for one in inputs.arrivals
        )
        return StepResult(
            nothing(self.operator.schema),
            tuple(BUCKET_OF[one] for one in reasons),
            reasons,
            self.frontier,
            rows=pa.table(arrays, schema=self.operator.made),
        )

    def _take(self, key: Key, rows: pa.Table) -> list[Row]:
        spec, kept = self.operator, self.groups.get(key)
        machine, seq = Machine(spec.engine, spec.query), 0
        if kept is not None:
            machine, seq = Machine.from_bytes(kept.machine, spec.engine, spec.query), kept.seq
        made = take(spec, machine, key, rows, seq)
        if spec.until is not None:
            made += _rows(spec, key, machine.feed([Stable(spec.until)]), seq + len(made))
        self._put(key, _Group(machine.to_bytes(), seq + len(made)))
        return made

    def _put(self, key: Key, group: _Group) -> None:
        self.groups[key] = group
        block = self.place.setdefault(key, len(self.place) // _BLOCK)
        self.changed += [0] * (block + 1 - len(self.changed))
        self.changed[block] = self.mark

    def parts(self, *, since: int | None = None) -> Saved:
        """The state in parts: all of them, or those that changed after a mark."""
        keys = list(self.place)
        written = {
            f"groups/{block}": self._block(keys[block * _BLOCK : (block + 1) * _BLOCK])
            for block, changed in enumerate(self.changed)
            if since is None or changed > since
        }
        header = _KIND.header(mark=self.mark, blocks=len(self.changed))
        written[CONTROL] = write_tables(to_table({}, header))
        return Saved(written, (), self.mark)

    def _block(self, keys: Sequence[Key]) -> bytes:
        lines = []
        for key in keys:
            group = self.groups[key]
            lines.append(json.dumps([key, group.seq]).encode() + b"\t" + group.machine)
        return b"\n".join(lines)

    def read(self, parts: Mapping[str, bytes]) -> None:
        """Take over the groups of saved parts; StateError if they are of another kind."""
        _, header = _KIND.open(part_of(parts, CONTROL, _KIND)).first()
        self.mark, blocks = int(header["mark"]), int(header["blocks"])
        for block in range(blocks):
            for line in part_of(parts, f"groups/{block}", _KIND).split(b"\n"):
                named, _, machine = line.partition(b"\t")
                values, seq = json.loads(named)
                key = _key(values)
                self.groups[key] = _Group(machine, seq)
                self.place[key] = block
        self.changed = [self.mark] * blocks

    def check(self) -> None:
        """Assert what must always hold between steps."""
        assert list(self.groups) == list(self.place), (
            f"groups {list(self.groups)} != places {list(self.place)}"
        )
        blocks = [number // _BLOCK for number in range(len(self.place))]
        assert list(self.place.values()) == blocks, f"blocks are not filled in order: {blocks}"


def _by_group(batch: Batch, keys: int) -> Iterator[tuple[Key, pa.Table]]:
    """The rows of each group, in the order in which they came."""
    table = batch.payload.append_column("time", to_arrow(batch.start, pa.int64()))
    names = [table.column(number).to_pylist() for number in range(keys)]
    if not keys:
        if len(batch):
            yield (), table
        return
    where: dict[Key, list[int]] = {}
    for row, values in enumerate(zip(*names, strict=True)):
        where.setdefault(_key(values), []).append(row)
    for key, rows in where.items():
        yield key, table.take(pa.array(rows, pa.int64()))


def _key(values: Sequence[Any]) -> Key:
    """A group by its columns: all NaN are one value, as in Spark's groupBy."""
    return tuple(_NAN if isinstance(one, float) and isnan(one) else one for one in values)


def take(
    spec: WindowsOperator, machine: Machine, key: Key, rows: pa.Table, seq: int
) -> list[Row]:
    """What these rows of one group bring, numbered on from `seq`."""
    made: list[Row] = []
    is_flawed = pc.not_equal(rows["flaw"], "")
    for flaw, time, value in _flawed(rows.filter(is_flawed)):
        what = f"a row with {flaw}" if time is None else f"a row of time {time} with {flaw}"
        _refuse(spec, key, what)
        made.append((*key, False, *[None] * 6, time, value, flaw, machine.steps, seq))
        seq += 1
    for batch in _batches(spec, rows.filter(pc.invert(is_flawed))):
        fed = machine.feed(_arrivals(spec, machine, batch))
        some = _rows(spec, key, fed, seq)
        made += some
        seq += len(some)
    return made


def _flawed(rows: pa.Table) -> Iterator[tuple[str, int | None, Any]]:
    columns = rows["flaw"].to_pylist(), rows["time"].to_pylist(), _values(rows)
    for flaw, time, value in zip(*columns, strict=True):
        yield flaw, None if flaw == "no time" else time, value


def _values(rows: pa.Table) -> list[Any]:
    """A null came as 0 or an empty text, and is marked."""
    pairs = zip(rows["value"].to_pylist(), rows["absent"].to_pylist(), strict=True)
    return [None if absent else value for value, absent in pairs]


def _batches(spec: WindowsOperator, rows: pa.Table) -> Iterator[pa.Table]:
    """The rows batch by batch, in the order in which the engine is to get them."""
    if not rows.num_rows:
        return
    by_time = spec.engine.windows == "active" or not spec.ordered
    names = ["batch", "time", "order"] if by_time else ["batch", "order"]
    # Stable: equal rows stay as they came.
    order = pc.sort_indices(rows, sort_keys=[(name, "ascending") for name in names])
    placed = rows.take(order)
    edges = np.flatnonzero(np.diff(np.array(placed["batch"].to_pylist(), np.int64))) + 1
    for start, stop in pairwise([0, *edges.tolist(), placed.num_rows]):
        yield placed.slice(start, stop - start)


def _arrivals(spec: WindowsOperator, machine: Machine, rows: pa.Table) -> Iterator[Arrival]:
    """Tuples of one batch; engines of the paper get one batch per time (erratum D17)."""
    times: Ints = np.array(rows["time"].to_pylist(), np.int64)
    batches = np.full(len(times), (machine.last_batch or 0) + 1)
    if spec.engine.windows == "active":
        batches[1:] += np.cumsum(np.diff(times) != 0)
    return map(_arrival, times.tolist(), _values(rows), batches.tolist())


def _arrival(time: int, value: object, batch: int) -> Arrival:
    return Arrival(time, value, batch=batch)


def _rows(spec: WindowsOperator, key: Key, fed: Fed, seq: int) -> list[Row]:
    rows: list[Row] = []
    for one in fed.shown:
        value = list(one.value) if isinstance(one.value, tuple) else one.value
        if isinstance(value, int) and abs(value) > _MOST:
            message = f"a sum is {value}, more than a bigint holds; cast the values to double"
            raise InputError(message)
        shown = (one.start, one.end, one.instant, value, one.count, one.late)
        rows.append((*key, True, *shown, None, None, None, one.step, seq + len(rows)))
    for lost in fed.late:
        _refuse(spec, key, f"a row of time {lost.time}, {lost.reason}")
        where = (lost.start, lost.end, *[None] * 4, lost.time, lost.value, lost.reason)
        rows.append((*key, False, *where, lost.step, seq + len(rows)))
    return rows


def _refuse(spec: WindowsOperator, key: Key, what: str) -> None:
    if spec.late == "raise":
        group = f" of group {key}" if spec.keys else ""
        message = (
            f"windows.run got {what}{group}; sort the input, or keep such rows: late='keep'"
        )
        raise ViolationError(message)
