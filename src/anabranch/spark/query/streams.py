"""DataFrames as streams of elements: `events` and `elements`.

Both validate the schema only, and raise `SchemaError` for a missing column, a time column of
another type than bigint or timestamp, times of two types, a payload column with a reserved name
or an unsupported type.  Rows are validated when they are read: a null start or an unknown kind
sends a row to quarantine, with the reason.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal

import pyarrow as pa

from anabranch.batch.schema import (
    END,
    KIND,
    OLD_END,
    REPLICA,
    RESERVED,
    SEQ,
    START,
    TIME_COLUMNS,
    ElementSchema,
    TimeType,
)
from anabranch.batch.times import to_units
from anabranch.errors import SchemaError, UsageError
from anabranch.model.properties import StreamProperties
from anabranch.operators.by_key.replaced_by import ReplacedByOperator
from anabranch.plan.node import Step
from anabranch.spark.columns import arrow_schema
from anabranch.spark.frames import quoted, require_frame, with_columns
from anabranch.spark.pack.event_key import event_key, key_columns, keyed
from anabranch.spark.pack.ordering import COPY, copies_of, ordering_of, with_order
from anabranch.spark.pack.row_stream import RowStream
from anabranch.spark.query.fluent import Fluent
from anabranch.spark.query.levels import aligned

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from anabranch.plan.node import Node
    from anabranch.spark.query.query import Query

FROM_START: Final = "from start"
"""How the words for the lifetime of events end that all last equally long."""

_LAST: Final = 2**63 - 1

_TIMES: Final = ("tinyint", "smallint", "int", "bigint", "timestamp", "timestamp_ntz")
"""Types of columns that hold times, as Spark names them."""


@dataclass(frozen=True, eq=False)
class Stream(RowStream, Fluent):
    """A DataFrame in the element format; the result of `ab.events` and `ab.elements`.

    An input of `ab.merge` and `ab.union`, and of queries: `stream.window(...)`.
    """

    _hidden = (
        "order ordering has_stables is_ntz copies key is_plain lifetime replaced_by heartbeat "
        "beating heartbeat_words is_timed needs_time schema_in_lanes has_positions ordered_by"
    )

    def align(
        self,
        *,
        wait: str | int | None = None,
        wait_wall: str | None = None,
        release: "Literal['ordered', 'final']" = "ordered",
        id: str | None = None,  # noqa: A002
    ) -> "Query":
        """Hold events back until a stable passes them, as `Query.align`."""
        return aligned(self, wait=wait, wait_wall=wait_wall, release=release, id=id)

    @cached_property
    def _node(self) -> "Node":
        from anabranch.spark.query.merge import alone

        source = alone(self)
        if not self.replaced_by:
            return source
        operator = ReplacedByOperator(source.schema, self.replaced_by)
        words = f"until replaced by {', '.join(self.replaced_by)}"
        return Step("replaced_by", operator, (("input", source),), words)


def elements(
    df: "DataFrame",
    *,
    replica: str | None = None,
    seq: str | None = None,
    order: str | Sequence[str] = (),
    rename: Mapping[str, str] | None = None,
    name: str | None = None,
    properties: StreamProperties | None = None,
) -> Stream:
    """A DataFrame whose rows are in the element format, as an input of `ab.merge`.

    The rows have the columns `kind` (insert, adjust or stable), `start`, `end`, `old_end`, and
    payload columns; docs/guide/elements.md has the format.

    Args:
        df: A batch or streaming DataFrame.
        replica: The column that names the replica of each row, if `df` holds several replicas.
            Without it, and without a column called `replica`, `df` is one replica.
        seq: The column that numbers the rows of a replica, strictly increasing.  A number that
            was read before is a redelivery and is absorbed.  Default: the column `seq`, if
            there is one.
        order: What orders the rows of a replica that have no seq: one column or several,
            "kafka" (topic, partition, offset) or "file" (file path, row index).  Without both,
            rows are read in the order in which Spark delivers them.
        rename: New column names by old ones: names of the element format for columns that are
            called otherwise, or another name for a payload column that clashes with one.
        name: The name of the replica, if `df` is one.  Default: its position in `ab.merge`.
        properties: What is guaranteed about the replica, such as
            `ab.model.StreamProperties(ordered=True)`; a cheaper merge case may be chosen.
    """
    where = "ab.elements"
    require_frame(df, where)
    ordering = ordering_of(order)
    df = with_order(df, ordering, where, [replica, seq, *(rename or {})])
    names = dict(rename or {})
    names |= {old: new for old, new in ((replica, REPLICA), (seq, SEQ)) if old is not None}
    names = _in_lower_case(df, names) | names
    df = _renamed(df, names, where=where)
    return _stream(df, ordering, where, name=name, properties=properties)


def events(
    df: "DataFrame",
    *,
    start: str,
    end: str | None = None,
    lifetime: str | int | None = None,
    replaced_by: str | Sequence[str] | None = None,
    replica: str | None = None,
    seq: str | None = None,
    order: str | Sequence[str] = (),
    rename: Mapping[str, str] | None = None,
    name: str | None = None,
    properties: StreamProperties | None = None,
    key: str | Sequence[str] | None = None,
    duplicates: Literal["violation", "drop"] | None = None,
) -> Stream:
    """A DataFrame of plain rows, each an event with a lifetime, as an input of `ab.merge`.

    Give exactly one of `end`, `lifetime` and `replaced_by`.  The columns `start` and `end`
    become those of the element format; all other columns are payload.

    A batch DataFrame is complete: each of its replicas ends with stable(FOREVER), so all its
    events become final.  A streaming DataFrame of plain rows has no stables: no event becomes
    final, and the state grows, unless `heartbeats` gives it progress.

    Args:
        df: A batch or streaming DataFrame.
        start: The column with the time at which an event starts, bigint or timestamp.
        end: The column with the time at which it ends; null: open (FOREVER).
        lifetime: How long every event lasts: "10 minutes", or a number for bigint times.
        replaced_by: An event ends when the next row with the same values in these columns
            starts (of the same replica).  A stream with it is read by queries, not by a merge:
            the end of a row is corrected when the next one arrives.
        replica: The column that names the replica of each row, if `df` holds several replicas.
            Without it `df` is one replica.
        seq: The column that numbers the rows of a replica, strictly increasing.  A number that
            was read before is a redelivery and is absorbed.
        order: What orders the rows of a replica that have no seq: one column or several,
            "kafka" (topic, partition, offset) or "file" (file path, row index).  Without both,
            rows are read in the order in which Spark delivers them, which is correct for
            plain rows unless `duplicates` or `replaced_by` depend on the order.
        rename: New names for payload columns, by their old names; needed where a payload
            column has a name that the element format reserves.
        name: The name of the replica, if `df` is one.  Default: its position in `ab.merge`.
        properties: What is guaranteed about the replica, such as
            `ab.model.StreamProperties(ordered=True)`; a cheaper merge case may be chosen.
        key: The columns that identify one event within a replica; `start` may be one of them.
            A second row with the same key is a violation: it is not merged, but kept with the
            reason.  Without a key each row is an event.
        duplicates: With `key`: "drop" drops and counts a second row instead.
    """
    from pyspark.sql import functions as F  # noqa: N812

    where = "ab.events"
    require_frame(df, where)
    if [end, lifetime, replaced_by].count(None) != 2:
        message = (
            f"{where}: give one of end=COLUMN, lifetime=DURATION and replaced_by=COLUMNS, so "
            "that events have an end"
        )
        raise UsageError(message)
    ordering = ordering_of(order)
    keys, key = key_columns(replaced_by), None if key is None else key_columns(key)
    names = dict(rename or {})
    names |= {old: new for old, new in ((replica, REPLICA), (seq, SEQ)) if old is not None}
    apart = {end: "its end", replica: "the name of its replica", seq: "its seq"}
    named = event_key(df, key, duplicates, start=start, apart=apart, names=names)
    keep = [start, end, replica, seq, *keys, *(key or ()), *(rename or {})]
    df = with_order(df, ordering, where, keep)
    _require(df, [start, *([end] if end else []), *names], where)
    for column in df.columns:
        if column.lower() in RESERVED and column not in (start, end, *names):
            raise _clash(where, column)
    _require_times(df, {"start": start, "end": end}, where)
    if end is not None:
        finish: Column = F.col(quoted(end))
    elif lifetime is not None:
        finish = F.col(quoted(start)) + _length(df, start, lifetime, where)
    else:
        finish = _next_start(df, start, keys, replica, seq)
    columns = _event_columns(df, start, end, finish, names)
    if named is not None:
        properties = keyed(properties)
    stream = _stream(df.select(columns), ordering, where, name=name, properties=properties)
    stream = replace(stream, has_stables=not stream.is_streaming, key=named, is_plain=True)
    stream = replace(stream, lifetime=_lifetime(stream, end, lifetime, keys))
    if not stream.is_streaming:
        return _ended(stream)
    return replace(stream, replaced_by=tuple(names.get(one, one) for one in keys))


def _event_columns(
    df: "DataFrame", start: str, end: str | None, finish: "Column", names: Mapping[str, str]
) -> "list[Column]":
    from pyspark.sql import functions as F  # noqa: N812

    begin = F.col(quoted(start))
    fixed = [F.lit("insert").alias(KIND), begin.alias(START), finish.alias(END)]
    rest = [
        F.col(quoted(c)).alias(names.get(c, c)) for c in df.columns if c not in (start, end)
    ]
    return [*fixed, *rest]


def _next_start(
    df: "DataFrame", start: str, keys: Sequence[str], replica: str | None, seq: str | None
) -> "Column":
    """Where the next row of the same key begins; null, which is never, after the last.

    Of rows that begin together the last in the replica's order counts, the others get an empty
    lifetime.  Without an order it is the greatest, so that copies agree which one it is.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812

    where = "ab.events: replaced_by"
    _require(df, keys, where)
    if df.isStreaming:  # a step of the query finds it
        return F.lit(None).cast(df.schema[start].dataType)
    order = [seq] if seq else [c for c in df.columns if c.startswith(COPY)]
    others = sorted(set(df.columns) - {start, replica, *keys})
    same = [F.col(quoted(c)) for c in (replica, *keys) if c]
    by = [F.col(quoted(c)) for c in (start, *(order or others))]
    # One key for all is what was asked for; Connect would warn of a window without any.
    return F.lead(by[0]).over(Window.partitionBy(*(same or [F.lit(0)])).orderBy(*by))


def _lifetime(stream: Stream, end: str | None, lifetime: Any, keys: Sequence[str]) -> str:
    """When events end, in words: equal for equal meanings."""
    if end is not None:
        return f"to column {end}"
    if lifetime is None:
        return f"until replaced by {', '.join(keys)}"
    time = stream.schema.time
    unit = " microseconds" if time is TimeType.TIMESTAMP else ""
    return f"{to_units(str(lifetime), time, option='ab.events: lifetime')}{unit} {FROM_START}"


def _length(df: "DataFrame", start: str, lifetime: Any, where: str) -> "Column":
    from pyspark.sql import functions as F  # noqa: N812

    kind = df.schema[start].dataType.typeName()
    time = TimeType.TIMESTAMP if kind.startswith("timestamp") else TimeType.BIGINT
    units = to_units(str(lifetime), time, option=f"{where}: lifetime")
    if units < 0:
        message = f"{where}: lifetime {lifetime!r} ends an event before it starts"
        raise UsageError(message)
    if time is TimeType.BIGINT:
        return F.lit(units).cast("bigint")
    seconds, micros = divmod(units, 1_000_000)
    return F.expr(f"make_dt_interval(0, 0, 0, {seconds}.{micros:06d})")


def _ended(stream: Stream) -> Stream:
    """A batch of events with what its end means: nothing more will come."""
    from pyspark.sql import functions as F  # noqa: N812

    df = stream.df
    given = {KIND: F.lit("stable"), SEQ: F.lit(_LAST), REPLICA: F.col(REPLICA)}
    whose = df.select(REPLICA).distinct() if REPLICA in df.columns else _one_row(df)
    columns = [
        given.get(field.name, F.lit(None).cast(field.dataType)).alias(field.name)
        for field in df.schema
    ]
    return replace(stream, df=df.unionByName(whose.select(columns)))


def _one_row(df: "DataFrame") -> "DataFrame":
    return df.sparkSession.range(1)


def _stream(df: "DataFrame", ordering: tuple[str, ...], where: str, **rest: Any) -> Stream:
    from pyspark.sql import functions as F  # noqa: N812

    order = copies_of(ordering)
    fields = {field.name: field.dataType for field in df.schema}
    plain = arrow_schema(df.drop(*order).schema, where=where)
    schema = ElementSchema.of(plain, where=where)
    for field in schema.payload:
        if pa.types.is_null(field.type):
            message = f"{where}: column '{field.name}' is void; cast it to a type, or drop it"
            raise SchemaError(message)
    zoned = {fields[n].typeName() for n in TIME_COLUMNS if n in fields} - {"void"}
    if zoned == {"timestamp", "timestamp_ntz"}:
        message = (
            f"{where}: of the time columns some are timestamp and some timestamp_ntz; "
            "all of them must be one or the other; cast them"
        )
        raise SchemaError(message)
    kind = "timestamp" if zoned & {"timestamp", "timestamp_ntz"} else "bigint"
    kind = "timestamp_ntz" if "timestamp_ntz" in zoned else kind
    cast = {
        column: (F.col(column) if column in fields else F.lit(None)).cast(kind)
        for column in TIME_COLUMNS
        if column not in fields or fields[column].simpleString() != kind
    }
    df = with_columns(df, cast) if cast else df
    reserved = [c for c in (KIND, START, END, OLD_END, SEQ, REPLICA) if c in df.columns]
    wanted = [*reserved, *schema.payload.names, *order]
    if df.columns != wanted:  # each step is planned again in every trigger
        df = df.select(*(quoted(c) for c in wanted))
    return Stream(df, schema, order, ordering, is_ntz="timestamp_ntz" in zoned, **rest)


def _renamed(df: "DataFrame", names: Mapping[str, str], *, where: str) -> "DataFrame":
    from pyspark.sql import functions as F  # noqa: N812

    _require(df, list(names), where)
    columns = [F.col(quoted(c)).alias(names.get(c, c)) for c in df.columns]
    return df.select(columns) if names else df  # each step is planned again in every trigger


def _require(df: "DataFrame", names: Sequence[str], where: str) -> None:
    for name in names:
        if name not in df.columns:
            message = (
                f"{where}: there is no column '{name}'; the DataFrame has {df.columns}; "
                "check the name"
            )
            raise SchemaError(message)


def _in_lower_case(df: "DataFrame", names: Mapping[str, str]) -> dict[str, str]:
    """The format's own name for each column that has it in other letter case, as Spark reads.

    A column beside one with the very name, or with a new name already, keeps its own.
    """
    free = set(RESERVED) - {*df.columns, *names.values()}
    found = [c for c in df.columns if c.lower() in free and c not in names]
    return {c: c.lower() for c in found}


def _clash(where: str, column: str) -> SchemaError:
    cases = "" if column in RESERVED else ", which Spark reads in any letter case"
    return SchemaError(
        f"{where}: the payload column '{column}' has a name that the element format needs for "
        f"itself ({', '.join(RESERVED)}{cases}); give it another one with "
        f"rename={{'{column}': '{column}_of_row'}}"
    )


def _require_times(df: "DataFrame", columns: Mapping[str, str | None], where: str) -> None:
    """Reject a start or an end that holds no times, by the name that the user gave."""
    for what, column in columns.items():
        kind = "bigint" if column is None else df.schema[column].dataType.simpleString()
        if kind in _TIMES or (what == "end" and kind == "void"):
            continue
        to = "timestamp" if kind in ("date", "string") else "bigint"
        message = (
            f"{where}: {what}='{column}' is a column of type {kind}, expected bigint or "
            f"timestamp; cast it: df.withColumn('{column}', df['{column}'].cast('{to}'))"
        )
        raise SchemaError(message)
