"""From rows of any DataFrame to parcels.

The rows have the columns of the element format and the columns that order them; those of a
DataFrame that holds several replicas have `replica` too.  A row that is not an element (an
unknown kind, a null start, no replica) travels as text, to be kept with its reason; the others
are packed, replica by replica.

Spark writes each value that goes to Python one by one, and texts cost most.  So the kind and
the replica, where it has a DataFrame of its own, cross as one number; a word only if it is no
kind.  Where a clock needs the time of the trigger, all other rows have it in place of the word:
a column of its own would cost each row more.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.batch.batch import FOREVER_UNITS, KINDS, Ints
from anabranch.batch.buffers import numbers, take, to_arrow
from anabranch.batch.codec import Decoded, decode
from anabranch.batch.schema import KIND, REPLICA, ElementSchema
from anabranch.operators.route import BY_IDENTITY, Routing
from anabranch.spark.columns import spark_schema
from anabranch.spark.frames import plainly_named, with_columns
from anabranch.spark.pack.beats import ARRIVAL, Beating, Tally, trigger_mark
from anabranch.spark.pack.facts import announced, refuse, require_none
from anabranch.spark.pack.parcels import (
    NOTE,
    PARCEL_ROWS,
    PARCELS,
    Parcel,
    Refused,
    pieces,
    to_rows,
)
from anabranch.spark.pack.positions import Places, Span, without_consumed
from anabranch.spark.pack.prefetch import prefetch
from anabranch.spark.pack.row_stream import RowStream
from anabranch.spark.pack.spill import Depot, spilling
from anabranch.spark.session.host import slots
from anabranch.spark.worker_gc import settle

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

ROW_BYTES = 100
"""A row counts for at least this number of bytes: a narrow one needs more than its values."""
NO_REPLICA = "replica is null, expected the name of a replica"
_UNNAMED = "(none)"
_GATHERED_BYTES = 1 << 22
_KIND_BITS = 2
"""Bits of a code that are the kind; the highest value is no kind."""


@dataclass(frozen=True)
class Resumed:
    """What a run that goes on knows of its DataFrames.

    `consumed` is how far Kafka's partitions were read before this checkpoint; None: nobody
    needs positions.  `attachments` are the numbers of replicas that left and returned.
    """

    consumed: Places | None = None
    attachments: Mapping[str, int] = field(default_factory=dict)


NOTHING = Resumed()


@dataclass(frozen=True)
class RowsSpec:
    """What a packer must know of a DataFrame; `order` are the columns that order its rows.

    `names` are the replicas whose numbers the codes have; without, each row has a name.  `word`
    is the column with words that are no kind.  `columns` are the names of all columns, which
    Spark may have numbered.  `beating` has the clocks by replica; None: of all replicas.
    """

    schema: ElementSchema
    order: tuple[str, ...]
    lanes: int
    routing: Routing = BY_IDENTITY
    names: tuple[str, ...] = ()
    word: str = "__kind_0"
    strict: bool = False
    depot: Depot | None = None
    columns: tuple[str, ...] = ()
    resumed: Resumed = NOTHING
    beating: tuple[tuple[str | None, Beating], ...] = ()


def packed(
    stream: RowStream,
    lanes: int,
    routing: Routing,
    *,
    strict: bool = False,
    depot: Depot | None = None,
    resumed: Resumed = NOTHING,
) -> "DataFrame":
    """The parcels of a stream."""
    names = tuple(name for name, _ in stream.copies)
    df, schema = stream.df, stream.schema_in_lanes
    spec = RowsSpec(schema, stream.order, lanes, routing, names, _unused(df), strict, depot)
    copies = [one for _, one in stream.copies] or [df]
    # Spark takes the time once for a trigger, after all sources were polled, and records it.
    mark = trigger_mark() if stream.needs_time else None
    coded = [_coded(one, number, spec.word, mark) for number, one in enumerate(copies)]
    df = reduce(_union, coded)
    spec = replace(spec, beating=stream.beating)
    # Each task has a price.  On a cluster Spark decides: what comes before would be bound too.
    tasks = slots(df.sparkSession) if stream.is_streaming else None
    df = df if tasks is None else df.coalesce(tasks)
    spec = replace(spec, columns=tuple(df.columns))
    spec = replace(spec, resumed=resumed)
    if not stream.has_positions:
        spec = replace(spec, resumed=replace(resumed, consumed=None))
    return plainly_named(df).mapInArrow(partial(pack_rows, spec), spark_schema(PARCELS))


def _union(df: "DataFrame", other: "DataFrame") -> "DataFrame":
    """The rows of both; by name only if need be, which is one more step to plan."""
    return df.union(other) if df.columns == other.columns else df.unionByName(other)


def _unused(df: "DataFrame") -> str:
    """The name of a column that no payload has."""
    taken = {name.lower() for name in df.columns}  # Spark ignores letter case
    return next(name for n in range(len(taken) + 1) if (name := f"__kind_{n}") not in taken)


def _coded(df: "DataFrame", replica: int, word: str, mark: "Column | None") -> "DataFrame":
    """Kind and replica as one code, and beside it the words that are no kind, or the mark."""
    from pyspark.sql import functions as F  # noqa: N812

    kind, first = F.col(KIND), replica << _KIND_BITS
    known = F.lit(None) if mark is None else mark
    # One case for each, the usual kind first: they are looked at in turn, for every row.
    code = F.when(kind == KINDS[0], F.lit(first))
    words = F.when(kind == KINDS[0], known)
    for number, name in enumerate(KINDS[1:], 1):
        code = code.when(kind == name, F.lit(first + number))
        words = words.when(kind == name, known)
    code = code.otherwise(F.lit(first + len(KINDS)))
    return with_columns(df, {KIND: code, word: words.otherwise(kind)})


def _decoded_codes(table: pa.Table, spec: RowsSpec) -> pa.Table:
    """The table with kinds, null where it is no kind, and with the replicas' numbers."""
    codes = numbers(table.column(KIND), np.dtype(np.int32))
    kind = (codes & (1 << _KIND_BITS) - 1).astype(np.int8)
    known = kind < len(KINDS)
    kinds = to_arrow(kind, pa.int8(), mask=None if known.all() else known)
    table = table.set_column(table.schema.get_field_index(KIND), KIND, kinds)
    if not spec.names:
        return table
    return table.append_column(REPLICA, to_arrow(codes >> _KIND_BITS, pa.int32()))


def pack_rows(spec: RowsSpec, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What Spark maps over the rows."""
    from pyspark import TaskContext

    context = TaskContext.get()
    partition = context.partitionId() if context is not None else 0
    tally = Tally(dict(spec.beating))
    with spilling(spec.depot) as spill:
        # Spark's side of a task blocks while its output is not read: prefetch the next rows.
        for part, rows in enumerate(prefetch(_gathered(batches))):
            table = rows.rename_columns(spec.columns) if spec.columns else rows
            parcels = pack_table(spec, table, f"{partition:08d}", part, tally)
            yield to_rows(parcels, spec.lanes, spill)
        beats = tally.parcels(_base(spec, "", f"{partition:08d}", 0), spec.lanes)
        if beats:
            yield to_rows(beats, spec.lanes, spill)
    settle()


def _gathered(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Batches put together: a parcel has a cost of its own."""
    kept: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        kept.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= PARCEL_ROWS or size >= _GATHERED_BYTES:
            yield pa.Table.from_batches(kept)
            kept, rows, size = [], 0, 0
    if rows:
        yield pa.Table.from_batches(kept)


def pack_table(
    spec: RowsSpec, table: pa.Table, partition: str, part: int, tally: Tally | None = None
) -> list[Parcel]:
    """The parcels of some rows of one partition; `tally` gets what clocks need of them."""
    lost: list[dict[str, Any]] = []
    tally = Tally({}) if tally is None else tally
    each = max(ROW_BYTES, table.nbytes // max(1, table.num_rows))
    table = _decoded_codes(table, spec)
    tally.note_time(table.column(KIND), table.column(spec.word))
    spans: dict[str | None, list[Span]] = {}
    if spec.resumed.consumed is not None:
        consumed = spec.resumed.consumed
        table, spans = without_consumed(table, spec.order, spec.names, consumed)
    if table.column(REPLICA).null_count:
        nameless = pc.is_null(table.column(REPLICA))
        lost = _with_words(table.filter(nameless), spec.word).to_pylist()
        table = table.filter(pc.invert(nameless))
    table, decoded = _decoded(table, spec)
    refused = _refused(spec, table, decoded) if len(decoded.refused) else []
    refused += [_as_refused(spec, row, NO_REPLICA) for row in lost]
    require_none(refused, strict=spec.strict)
    arrival = [ARRIVAL] if ARRIVAL in table.column_names else []
    places = table.select([*spec.order, *arrival])
    if len(decoded.refused):
        places = take(places, decoded.rows)
    parcels, counts, greatest = list[Parcel](), dict[str, int](), dict[str, int]()
    whose = table.column(REPLICA)
    if len(decoded.refused):
        whose = whose.take(pa.array(decoded.rows))
    for name, mine in _by_name(whose, spec.names):
        batch = decoded.batch if mine is None else decoded.batch.take(mine)
        where = places if mine is None else take(places, mine)
        greatest[name] = tally.add(name, batch, where)
        where = where.select(list(spec.order))
        base = _base(spec, name, partition, part)
        parcels += pieces(base, batch, where, spec.lanes, spec.routing)
        counts[name] = len(batch)
    for row in refused:
        counts[row.replica] = counts.get(row.replica, 0) + 1
    found = {name or _UNNAMED: some for name, some in spans.items()}
    counts = dict.fromkeys(found, 0) | counts
    facts = _facts(spec, counts, refused, (partition, part, each), found)
    time = tally.at or None
    return parcels + [replace(one, greatest=greatest.get(one.input), at=time) for one in facts]


def _decoded(table: pa.Table, spec: RowsSpec) -> tuple[pa.Table, Decoded]:
    """The elements, and the table; if a row is none, the table has kinds as words again."""
    if not table.column(KIND).null_count:
        decoded = decode(table, spec.schema)
        if not len(decoded.refused):
            return table, decoded
    table = _with_words(table, spec.word)
    return table, decode(table, spec.schema)


def _with_words(table: pa.Table, word: str) -> pa.Table:
    words = pc.take(pa.array(KINDS), table.column(KIND))
    kind = pc.coalesce(words, table.column(word))
    at = table.schema.get_field_index(KIND)
    return table.set_column(at, KIND, kind).drop_columns([word])


def _by_name(whose: pa.ChunkedArray, names: Sequence[str]) -> Iterator[tuple[str, Ints | None]]:
    """The rows of each replica; None: all of them, as nearly always in one partition."""
    codes = pc.dictionary_encode(whose).combine_chunks()
    found = codes.dictionary.to_pylist() if len(codes) else []
    numbers = np.asarray(codes.indices) if len(codes) else np.empty(0, np.int64)
    for code, name in enumerate(found):
        mine = None if len(found) == 1 else np.flatnonzero(numbers == code)
        yield names[name] if names else name, mine


def _facts(
    spec: RowsSpec,
    counts: dict[str, int],
    refused: list[Refused],
    place: tuple[str, int, int],
    spans: dict[str, list[Span]],
) -> list[Parcel]:
    """What was read; `place` is the partition, the part of it, and the bytes of a row."""
    parcels: list[Parcel] = []
    partition, part, each = place
    for name, count in counts.items():
        mine = [row for row in refused if row.replica == name]
        base = _base(spec, name, partition, part)
        if name == _UNNAMED:
            base = replace(base, entry=NOTE)
        size, own = count * each, spans.get(name, ())
        parcels += announced(base, spec.lanes, count, mine, size=size, spans=own)
    return parcels


def _base(spec: RowsSpec, name: str, partition: str, part: int) -> Parcel:
    least = spec.resumed.attachments.get(name)
    # After all entries of the control log in this trigger.
    last = int(FOREVER_UNITS)
    return Parcel(lane=0, input=name, log=last, file=partition, part=part, least=least)


def _refused(spec: RowsSpec, table: pa.Table, decoded: Decoded) -> list[Refused]:
    raw = table.take(pa.array(decoded.refused.rows)).to_pylist()
    pairs = zip(raw, decoded.refused.reasons, strict=True)
    return [_as_refused(spec, row, reason) for row, reason in pairs]


def _as_refused(spec: RowsSpec, row: dict[str, Any], reason: str) -> Refused:
    row.pop(ARRIVAL, None)
    order = [row.pop(name) for name in spec.order]
    number = order.pop() if order and isinstance(order[-1], int) else None
    if spec.names:
        row[REPLICA] = spec.names[row[REPLICA]]
    replica = _UNNAMED if row[REPLICA] is None else row[REPLICA]
    return refuse(replica, "/".join(map(str, order)) or None, number, reason, row)
