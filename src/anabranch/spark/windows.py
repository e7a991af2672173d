"""`ab.windows_run`: a window aggregate on Spark with another engine's scope, report and tick.

Its results are those of `windows.predict` on the same rows: a law in the tests.  It takes batch
and streaming DataFrames; on a stream, all that it remembers is in Spark's state store.

* A trigger is a batch.  A batch DataFrame is one trigger, unless a `batch` column cuts it.
* Within a trigger, engines of the paper get the rows by time, and `order` decides between rows
  of one time; engines that keep every window get them by `order`, or else by time.
* Each group is a stream of its own: its time is that of its own rows.
* Rows that are not taken are never lost: see `WindowRun.late`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal
from uuid import uuid4

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import functions as f
from pyspark.sql import types as st

from anabranch.batch.batch import FOREVER_UNITS, INSERT, Batch
from anabranch.batch.buffers import numbers
from anabranch.batch.schema import ElementSchema, TimeType
from anabranch.batch.times import to_units
from anabranch.errors import SchemaError, UsageError
from anabranch.operators.pipeline import PipelineStep
from anabranch.operators.windows import OUT, WindowsOperator
from anabranch.sources.channels import ROWS
from anabranch.spark.columns import spark_schema
from anabranch.spark.frames import quoted, require_frame
from anabranch.spark.lane.receive import Order
from anabranch.spark.lane.rows import table_rows
from anabranch.spark.lane.spec import LaneSpec
from anabranch.spark.lane.stage import in_lanes, in_lanes_once
from anabranch.spark.pack.parcels import PARCEL_ROWS, PARCELS, Parcel, pieces, to_rows
from anabranch.spark.worker_gc import settle
from anabranch.windows.aggregate import aggregate
from anabranch.windows.engine import Engine
from anabranch.windows.machine.machine import Machine
from anabranch.windows.profiles.known import engine
from anabranch.windows.trace import Query

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_WHOLE: Final = (st.ByteType, st.ShortType, st.IntegerType, st.LongType)
_REAL: Final = (st.FloatType, st.DoubleType)
_PLAIN: Final = {
    **dict.fromkeys(_WHOLE, pa.int64()),
    **dict.fromkeys(_REAL, pa.float64()),
    st.StringType: pa.string(),
    st.BooleanType: pa.bool_(),
}
"""Types of groups, values and orders, in the form in which they reach Python."""
_CASTS: Final = {
    pa.int64(): "long",
    pa.float64(): "double",
    pa.string(): "string",
    pa.bool_(): "boolean",
}
_NOTHING: Final = {pa.int64(): 0, pa.float64(): 0.0, pa.string(): "", pa.bool_(): False}
_NUMBERS: Final = {pa.int64(), pa.float64()}
_RESULT: Final = ("start", "end", "instant", "value", "count", "late", "step", "seq")
_LATE: Final = ("time", "given", "reason", "start", "end", "step", "seq")
_TIMES: Final = ("start", "end", "instant", "time")


@dataclass(frozen=True, eq=False)
class WindowRun:
    """A window query on a DataFrame: what it shows, and what it did not take.

    Each view that is started by itself is a streaming query of its own; `rows` has both, for
    one query with several sinks.
    """

    group: tuple[str, ...]
    _rows: "DataFrame"

    def results(self) -> "DataFrame":
        """What the engine shows, for `[start, end)`; `seq` is the order within a group."""
        return self._rows.where("reported").select(*_columns(self.group, _RESULT))

    def late(self) -> "DataFrame":
        """Rows that were not taken (or not into the window `[start, end)`), and why."""
        chosen = self._rows.where("NOT reported").select(*_columns(self.group, _LATE))
        return chosen.withColumnRenamed("given", "value")

    def rows(self) -> "DataFrame":
        """Results and late rows in one DataFrame; the column `reported` is true for results."""
        return self._rows


def run(
    df: "DataFrame",
    *,
    like: str | Engine,
    time: str,
    size: int | str,
    slide: int | str,
    value: str | None = None,
    agg: str = "count",
    group_by: str | Sequence[str] | None = None,
    order: str | None = None,
    batch: str | None = None,
    until: int | datetime | None = None,
    late: Literal["keep", "raise"] = "keep",
    lanes: int | None = None,
) -> WindowRun:
    """A window aggregate over a DataFrame, streaming or batch, as the engine `like` returns it.

    `time` is a column of whole numbers or timestamps; sizes are whole numbers, or texts such
    as "5 minutes" for timestamps.  `order` orders rows of one time, `batch` cuts a batch
    DataFrame into batches, and `until` is the time reached at its end.  `lanes` are the
    parallel parts of the state, as many as Spark's shuffle partitions unless given; they are
    fixed at the first start of a stream.
    """
    require_frame(df, "ab.windows_run")
    group = _group(df, group_by)
    clock = _clock(df, time)
    query = Query(_units(size, clock, "size"), _units(slide, clock, "slide"), agg)
    system = engine(like)
    Machine(system, query)  # refuses what the engine cannot do, before Spark starts
    if late not in {"keep", "raise"}:
        message = f"late is {late!r}; expected keep or raise"
        raise UsageError(message)
    if df.isStreaming and (until is not None or batch is not None):
        message = (
            "until and batch are for batch DataFrames: a stream has no end, and its batches "
            "are its triggers"
        )
        raise UsageError(message)
    kind = _value_type(df, value, agg)
    operator = WindowsOperator(
        engine=system,
        query=query,
        columns=_payload(df, group, kind, order),
        made=_out_schema(df, group, kind, agg),
        keys=len(group),
        ordered=order is not None,
        late=late,
        until=None if until is None else _instant(until, clock),
    )
    ready = _ready(df, group, time, clock, value, kind, agg, order, batch)
    made = _in_lanes(ready, operator, _lanes(df, lanes, group))
    return WindowRun(group, _named(made, group, clock))


def _lanes(df: "DataFrame", lanes: int | None, group: tuple[str, ...]) -> int:
    if lanes is not None and lanes < 1:
        message = f"lanes={lanes}: a window query has at least one lane"
        raise UsageError(message)
    if not group:
        return 1
    return lanes or int(df.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1)


def _in_lanes(ready: "DataFrame", operator: WindowsOperator, lanes: int) -> "DataFrame":
    """The rows of the operator: packed by group, through its lanes, unpacked."""
    steps = (PipelineStep(operator.name, operator),)
    spec = LaneSpec(uuid4().hex, lanes, steps, Order(operator.schema))
    parcels = ready.mapInArrow(partial(_pack, spec), spark_schema(PARCELS))
    if ready.isStreaming:
        rows = in_lanes(parcels, spec, observe=False)
    else:
        rows = in_lanes_once(parcels, spec)
    made = rows.where(f"channel = '{ROWS}'")
    return made.mapInArrow(table_rows, spark_schema(operator.made))


def _pack(spec: LaneSpec, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What Spark maps over the rows: each is an insert at its time."""
    context = TaskContext.get()
    partition = f"{context.partitionId() if context else 0:08d}"
    tables = (pa.Table.from_batches([batch]) for batch in batches)
    for part, table in enumerate(_gathered(tables)):
        base = Parcel(lane=0, input="rows", attachment=1, file=partition, part=part)
        batch, places = _elements(table, spec.order.schema), pa.table({})
        made = pieces(base, batch, places, spec.lanes, spec.routing)
        # A lane without rows has nothing to do: no stable goes through every group.
        yield to_rows(
            [one for one in made if one.batch is not None and len(one.batch)], spec.lanes
        )
    settle()


def _gathered(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Tables put together: a parcel has a cost of its own."""
    kept: list[pa.Table] = []
    for table in tables:
        kept.append(table)
        if sum(one.num_rows for one in kept) >= PARCEL_ROWS:
            yield pa.concat_tables(kept)
            kept = []
    if kept:
        yield pa.concat_tables(kept)


def _elements(table: pa.Table, schema: ElementSchema) -> Batch:
    count = table.num_rows
    start = np.array(numbers(table.column("time"), np.dtype(np.int64)))
    end, none = np.full(count, FOREVER_UNITS), np.zeros(count, np.int64)
    payload = table.select(schema.payload.names).cast(schema.payload)
    return Batch(schema, np.full(count, INSERT, np.int8), start, end, none, payload)


def _payload(
    df: "DataFrame", group: tuple[str, ...], kind: pa.DataType, order: str | None
) -> pa.Schema:
    """The columns of a row other than its time."""
    keys = [_plain(df, name, "group_by") for name in group] or [pa.int64()]
    return pa.schema(
        [
            *((f"key_{number}", one) for number, one in enumerate(keys)),
            ("value", kind),
            ("absent", pa.bool_()),
            ("order", _plain(df, order, "order")),
            ("batch", pa.int64()),
            ("flaw", pa.string()),
        ]
    )


def _ready(
    df: "DataFrame",
    group: tuple[str, ...],
    time: str,
    clock: TimeType,
    value: str | None,
    kind: pa.DataType,
    agg: str,
    order: str | None,
    batch: str | None,
) -> "DataFrame":
    """The columns that a step reads, without nulls; `flaw` is what was wrong with a row."""
    units = _quoted(time)
    units = f.unix_micros(units) if clock is TimeType.TIMESTAMP else units.cast("long")
    given = f.lit(0) if value is None else _quoted(value)
    places = [
        (f.lit(0) if name is None else _quoted(name), _plain(df, name, what))
        for name, what in ((order, "order"), (batch, "batch"))
    ]
    flaw = f.when(units.isNull(), "no time")
    if agg != "count":
        flaw = flaw.when(given.isNull(), "no value")
        if kind == pa.float64():
            flaw = flaw.when(f.isnan(given), "NaN as value")
            if agg in {"sum", "avg"}:
                flaw = flaw.when(f.abs(given) == float("inf"), "a value that is not finite")
    for (column, _), what in zip(places, ("order", "batch"), strict=True):
        flaw = flaw.when(column.isNull(), f"no {what}")
    (first, first_type), (second, second_type) = places
    keys = [_quoted(name).cast(_CASTS[_plain(df, name, "group_by")]) for name in group]
    return df.select(
        *(key.alias(f"key_{n}") for n, key in enumerate(keys or [f.lit(0)])),
        f.coalesce(units, f.lit(0)).alias("time"),
        _filled(given, kind).alias("value"),
        given.isNull().alias("absent"),
        _filled(first, first_type).alias("order"),
        _filled(second, second_type).alias("batch"),
        f.coalesce(flaw, f.lit("")).alias("flaw"),
    )


def _named(made: "DataFrame", group: tuple[str, ...], clock: TimeType) -> "DataFrame":
    """The user's names for the groups, and times of the type that they came in."""
    back = f.timestamp_micros if clock is TimeType.TIMESTAMP else f.col
    return made.select(
        *(f.col(f"key_{number}").alias(name) for number, name in enumerate(group)),
        *(back(name).alias(name) if name in _TIMES else f.col(name) for name in OUT),
    )


def _out_schema(
    df: "DataFrame", group: tuple[str, ...], kind: pa.DataType, agg: str
) -> pa.Schema:
    value = {"count": pa.int64(), "avg": pa.float64(), "collect": pa.list_(kind)}.get(agg, kind)
    types = {
        "reported": pa.bool_(), "late": pa.bool_(), "value": value, "given": kind,
        "reason": pa.string(),
    }  # fmt: skip
    return pa.schema(
        [
            *((f"key_{n}", _plain(df, name, "group_by")) for n, name in enumerate(group)),
            *((name, types.get(name, pa.int64())) for name in OUT),
        ]
    )


def _group(df: "DataFrame", group_by: str | Sequence[str] | None) -> tuple[str, ...]:
    group = (group_by,) if isinstance(group_by, str) else tuple(group_by or ())
    for name in group:
        _plain(df, name, "group_by")
        if name in {*OUT, *_TIMES}:
            message = f"group_by={name!r}: the result has a column of that name; rename yours"
            raise UsageError(message)
    return group


def _field(df: "DataFrame", name: str, what: str) -> st.DataType:
    types = {field.name: field.dataType for field in df.schema.fields}
    if name not in types:
        near = get_close_matches(name, types, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        message = (
            f"{what}={name!r}: there is no such column; {hint}there are {', '.join(types)}"
        )
        raise SchemaError(message)
    return types[name]


def _plain(df: "DataFrame", name: str | None, what: str) -> pa.DataType:
    if name is None:
        return pa.int64()
    kind = _field(df, name, what)
    if type(kind) not in _PLAIN or (what == "batch" and not isinstance(kind, _WHOLE)):
        wanted = "a whole number" if what == "batch" else "a number, a text or a boolean"
        message = (
            f"{what}={name!r} has the type {kind.simpleString()}, it must be {wanted}; cast it"
        )
        raise SchemaError(message)
    return _PLAIN[type(kind)]


def _value_type(df: "DataFrame", value: str | None, agg: str) -> pa.DataType:
    aggregate(agg)
    if value is None and agg != "count":
        message = f"agg={agg!r} needs value=, the column to aggregate"
        raise UsageError(message)
    kind = _plain(df, value, "value")
    if agg not in {"count", "collect"} and kind not in _NUMBERS:
        message = f"value={value!r} has the type {kind}, {agg} needs numbers; cast it"
        raise SchemaError(message)
    return kind


def _clock(df: "DataFrame", time: str) -> TimeType:
    kind = _field(df, time, "time")
    if isinstance(kind, _WHOLE):
        return TimeType.BIGINT
    if isinstance(kind, st.TimestampType):
        return TimeType.TIMESTAMP
    message = (
        f"time={time!r} has the type {kind.simpleString()}, it must be a whole number or a "
        "timestamp; cast it"
    )
    raise SchemaError(message)


def _units(length: int | str, clock: TimeType, what: str) -> int:
    if isinstance(length, str) or clock is TimeType.TIMESTAMP:
        return to_units(str(length), clock, option=what)
    return length


def _instant(until: int | datetime, clock: TimeType) -> int:
    if clock is TimeType.BIGINT and isinstance(until, int):
        return until
    if clock is TimeType.TIMESTAMP and isinstance(until, datetime):
        zoned = until if until.tzinfo else until.replace(tzinfo=UTC)
        return (zoned - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    message = f"until={until!r}: give what the time column holds, a whole number or a datetime"
    raise UsageError(message)


def _quoted(name: str) -> "Column":
    return f.col(quoted(name))


def _filled(column: "Column", kind: pa.DataType) -> "Column":
    """Without nulls, so that rows can be sorted and compared."""
    return f.coalesce(column.cast(_CASTS[kind]), f.lit(_NOTHING[kind]).cast(_CASTS[kind]))


def _columns(group: tuple[str, ...], names: tuple[str, ...]) -> list[Any]:
    return [*(_quoted(name) for name in group), *names]
