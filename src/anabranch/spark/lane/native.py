"""Changes that Spark makes between two stages: `where` and `select` on the rows of a stream.

The lanes of a stage send such a stream unrouted, one parcel each.  Between the stages the
parcels are opened into rows, Spark filters and projects them, and they are packed again, routed
for the next stage.  Everything else that the lanes send passes unchanged.

Rows of one lane stay in one partition from the lane to the packer, since no step between them
shuffles: so each packer has all rows of the lanes that it packs, and a lane of the next stage
gets one parcel of each lane, also if no row is left, with the frontier.

Where a change calls Python functions each stream passes alone, and the DataFrame has nothing
but its rows (`apart`): Spark calls such a function on every row that there is.

Columns that a user's expression must not see have names that begin with `__ab_`.
"""

import json
import uuid
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import compress
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.batch.batch import Batch
from anabranch.batch.buffers import numbers, take, to_arrow
from anabranch.batch.schema import START, ElementSchema
from anabranch.operators.route import Routing
from anabranch.spark.columns import spark_schema
from anabranch.spark.frames import plainly_named, quoted
from anabranch.spark.lane.apart import keep, kept
from anabranch.spark.lane.rows import NATIVE, STAGE_ARROW, STAGE_ROWS, parcel_rows
from anabranch.spark.pack.parcels import Parcel, from_row, in_every_lane, pieces
from anabranch.spark.pack.spill import Depot, spilling

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

HIDDEN: Final = "__ab_"
"""How the names of columns begin that are not the user's."""
_STREAM: Final = f"{HIDDEN}stream"
_PLACE: Final = f"{HIDDEN}place"
_ROW: Final = pa.schema(
    [
        (_STREAM, pa.int32()),
        (_PLACE, pa.int64()),
        (f"{HIDDEN}kind", pa.int8()),
        (f"{HIDDEN}end", pa.int64()),
        (f"{HIDDEN}old_end", pa.int64()),
        (f"{HIDDEN}units", pa.int64()),
    ]
)
"""What a row has beside the user's columns: its stream, its place there, kind and times."""
_WIRE: Final = pa.schema([pa.field(f"{HIDDEN}{one.name}_", one.type) for one in STAGE_ARROW])


Change = Callable[["DataFrame", str], "DataFrame"]
"""What Spark does with the rows of a stream; the text is true for rows of other streams."""


@dataclass(frozen=True)
class NativeStream:
    """One stream that Spark changes: its columns before and after, and where it goes.

    `calls_python`: the change calls Python functions of the user's.
    """

    name: str
    before: ElementSchema
    after: ElementSchema
    routing: Routing
    is_ntz: bool = False
    change: Change = field(compare=False, default=lambda df, _: df)
    calls_python: bool = False

    def columns(self, schema: ElementSchema) -> pa.Schema:
        """The user's columns of the stream: its start, and its payload."""
        time = pa.timestamp("us") if self.is_ntz else schema.time.arrow
        return pa.schema([pa.field(START, time), *schema.payload])


@dataclass(frozen=True)
class Boundary:
    """All that Spark changes between two stages."""

    streams: tuple[NativeStream, ...]
    lanes: int
    depot: Depot | None = None

    def apply(self, rows: "DataFrame") -> "DataFrame":
        """The rows of the lanes for the next stage."""
        if not any(one.calls_python for one in self.streams):
            return self._applied(rows)
        for one in self.streams:
            rows = replace(self, streams=(one,))._applied(rows, uuid.uuid4().hex)
        return rows

    def _applied(self, rows: "DataFrame", token: str | None = None) -> "DataFrame":
        """The rows, with those of these streams changed; by `token` the others wait apart."""
        opened = pa.schema([*_WIRE, *_ROW, *self._columns(0)])
        columns = _spark_wire(HIDDEN, "_")
        for each in spark_schema(pa.schema(list(opened)[len(_WIRE) :])):
            columns = columns.add(each)
        spec = tuple((one.name, one.before, one.is_ntz) for one in self.streams)
        df = rows.mapInArrow(partial(open_rows, spec, self.depot, opened, token), columns)
        for number, one in enumerate(self.streams):
            others = f"{_STREAM} is null or {_STREAM} <> {number}" if token is None else "false"
            df = self._changed(df, number, one, others)
        routed = tuple((one.name, one.after, one.routing) for one in self.streams)
        work = partial(pack_again, routed, tuple(df.columns), self.lanes, self.depot, token)
        return plainly_named(df).mapInArrow(work, _spark_wire())

    def _columns(self, changed: int) -> Iterator[pa.Field]:
        """The user's columns of all streams, of which the first ones were changed."""
        for number, one in enumerate(self.streams):
            schema = one.after if number < changed else one.before
            for each in one.columns(schema):
                yield pa.field(_own(number, each.name), each.type)

    def _changed(
        self, df: "DataFrame", number: int, one: NativeStream, others: str
    ) -> "DataFrame":
        """Let Spark change one stream, whose columns have their own names meanwhile."""
        from pyspark.sql import functions as F  # noqa: N812

        mine = {_own(number, name): name for name in one.columns(one.before).names}
        df = df.select(*(F.col(quoted(c)).alias(mine.get(c, c)) for c in df.columns))
        df = one.change(df, others)
        after = {name: _own(number, name) for name in one.columns(one.after).names}
        return df.select(*(F.col(quoted(c)).alias(after.get(c, c)) for c in df.columns))


def _spark_wire(before: str = "", after: str = "") -> "StructType":
    """The columns between two stages, as Spark names their types."""
    from pyspark.sql.types import StructField, StructType

    found = StructType.fromDDL(STAGE_ROWS)
    assert isinstance(found, StructType), f"{STAGE_ROWS} are not columns"
    return StructType([StructField(f"{before}{f.name}{after}", f.dataType) for f in found])


_OF_A_TRIGGER: Final = ("frontier", "greatest", "at", "settings")
"""What a head has of its trigger: it holds behind a change of Spark's too."""


def _own(number: int, name: str) -> str:
    return f"{HIDDEN}{number}_{name}"


def open_rows(
    streams: Sequence[tuple[str, ElementSchema, bool]],
    depot: Depot | None,
    columns: pa.Schema,
    token: str | None,
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """What Spark maps over the rows of a stage: each parcel of these streams becomes rows.

    The parcel itself stays as a row without elements: its head has lane and frontier.  With a
    `token` it waits apart, and so does every other row.
    """
    fetch = None if depot is None else depot.fetching()
    schemas = {name: schema for name, schema, _ in streams}
    apart: list[dict[str, Any]] = []
    for batch in batches:
        rows = batch.to_pylist()
        mine = [_is_of(row, schemas) for row in rows]
        passed = [
            {**row, "parcel": None, "origin": None} if is_mine else row  # the head is enough
            for row, is_mine in zip(rows, mine, strict=True)
        ]
        if token is None:
            yield from _table([_wire(row) for row in passed], columns).to_batches()
        else:
            apart += passed
        for row in compress(rows, mine):
            parcel = from_row(_head(row), schemas.__getitem__, fetch)
            if parcel.batch is not None and len(parcel.batch):
                yield from _opened(parcel, streams, columns)
    if token is not None:
        keep(apart, token)


def _is_of(row: dict[str, Any], names: Container[str]) -> bool:
    """Whether a row is a parcel of one of these streams that Spark changes."""
    return row["channel"] == NATIVE and json.loads(row["record"])["input"] in names


def _head(row: dict[str, Any]) -> dict[str, Any]:
    return {"head": row["record"], "parcel": row["parcel"], "places": row["origin"]}


def _wire(row: dict[str, Any]) -> dict[str, Any]:
    """A row as it passes the boundary beside the rows of streams."""
    return {f"{HIDDEN}{name}_": value for name, value in row.items()}


def _table(rows: Sequence[dict[str, Any]], columns: pa.Schema) -> pa.Table:
    table = pa.Table.from_pylist(list(rows), schema=_WIRE)
    for one in list(columns)[len(_WIRE) :]:
        table = table.append_column(one, pa.nulls(len(rows), one.type))
    return table


def _opened(
    parcel: Parcel, streams: Sequence[tuple[str, ElementSchema, bool]], columns: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """The elements of a parcel as rows."""
    batch = parcel.batch
    assert batch is not None, f"parcel of {parcel.input} has no elements"
    names = [name for name, _, _ in streams]
    number, count = names.index(parcel.input), len(batch)
    starts = to_arrow(batch.start, pa.int64())
    made: dict[str, Any] = {
        f"{HIDDEN}lane_": pa.repeat(pa.scalar(parcel.part, pa.int32()), count),
        _STREAM: pa.repeat(pa.scalar(number, pa.int32()), count),
        _PLACE: pa.array(np.arange(count)),
        f"{HIDDEN}kind": to_arrow(batch.kind, pa.int8()),
        f"{HIDDEN}end": to_arrow(batch.end, pa.int64()),
        f"{HIDDEN}old_end": to_arrow(batch.old_end, pa.int64()),
        f"{HIDDEN}units": starts,
        _own(number, START): pc.cast(starts, columns.field(_own(number, START)).type),
    }
    for name in batch.payload.column_names:
        made[_own(number, name)] = batch.payload.column(name)
    arrays = [
        made[one.name] if one.name in made else pa.nulls(count, one.type) for one in columns
    ]
    yield from pa.table(arrays, schema=columns).to_batches()


def pack_again(
    streams: Sequence[tuple[str, ElementSchema, Routing]],
    names: Sequence[str],
    lanes: int,
    depot: Depot | None,
    token: str | None,
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """What Spark maps over the changed rows: parcels for the lanes of the next stage."""
    found = list(batches)
    table = pa.Table.from_batches(found).rename_columns(names) if found else None
    rows = [] if token is None else kept(token)
    if table is not None and token is None:
        is_wire = pc.is_null(table.column(_STREAM))
        wire = table.filter(is_wire).select(_WIRE.names).rename_columns(STAGE_ARROW.names)
        rows, table = wire.to_pylist(), table.filter(pc.invert(is_wire))
    if not rows:
        return
    known = [name for name, _, _ in streams]
    passed = [row for row in rows if not _is_of(row, known)]
    heads = [json.loads(row["record"]) for row in rows if _is_of(row, known)]
    with spilling(depot) as spill:
        for head in heads:
            made = _packed(head, table, streams, lanes)
            passed += parcel_rows(made, lanes, spill)
    yield from pa.Table.from_pylist(passed, schema=STAGE_ARROW).to_batches()


def _packed(
    head: dict[str, Any],
    data: pa.Table | None,
    streams: Sequence[tuple[str, ElementSchema, Routing]],
    lanes: int,
) -> list[Parcel]:
    """The rows of one lane and stream, in their order, routed."""
    number = [name for name, _, _ in streams].index(head["input"])
    name, schema, routing = streams[number]
    stays = {key: head[key] for key in _OF_A_TRIGGER if key in head}
    base = Parcel(lane=0, input=name, part=head["part"], **stays)
    if data is None:
        return in_every_lane(base, lanes)
    mine = pc.and_(
        pc.equal(data.column(_STREAM), number),
        pc.equal(data.column(f"{HIDDEN}lane_"), head["part"]),
    )
    rows = data.filter(mine)
    if not rows.num_rows:
        return in_every_lane(base, lanes)
    rows = take(rows, np.argsort(numbers(rows.column(_PLACE), np.dtype(np.int64))))
    payload = pa.table(
        [rows.column(_own(number, one.name)) for one in schema.payload], schema=schema.payload
    )

    def column(what: str, kind: Any = np.int64) -> Any:
        return numbers(rows.column(f"{HIDDEN}{what}"), np.dtype(kind)).copy()

    times = column("units"), column("end"), column("old_end")
    batch = Batch(schema, column("kind", np.int8), *times, payload)
    return pieces(base, batch, pa.table({}), lanes, routing)
