"""Packs entries of a control log: the files of inboxes, and changes of membership.

The log (`anabranch.spark.checkpoint.control_log`) has the order in which files were found and
replicas came and went.  `pack_files` reads each file where Spark runs it.  A file is read under
the attachment that the log gave it, whatever its folder holds by then: an entry that is packed
twice means the same.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from anabranch.batch.batch import NEVER_UNITS
from anabranch.batch.buffers import take, to_arrow
from anabranch.batch.codec import Decoded, decode, from_elements
from anabranch.batch.schema import ElementSchema
from anabranch.model.element import Stable
from anabranch.model.time import FOREVER
from anabranch.operators.route import BY_IDENTITY, Routing
from anabranch.sources.elements import Chunk, read_file
from anabranch.sources.pieces import FilePiece
from anabranch.sources.plain import PlainRows
from anabranch.spark.pack.beats import ARRIVAL, TIMELESS, Beating, Tally, trigger_time
from anabranch.spark.pack.facts import announced, refuse, require_none
from anabranch.spark.pack.parcels import (
    CLOCK,
    COMPLETE,
    DATA,
    PARCEL_ROWS,
    Parcel,
    Refused,
    in_every_lane,
    pieces,
    to_rows,
)
from anabranch.spark.pack.placement import lane_keys
from anabranch.spark.pack.prefetch import mapped
from anabranch.spark.pack.spill import Depot, spilling
from anabranch.spark.worker_gc import settle

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


@dataclass(frozen=True)
class Files:
    """The folder of an inbox, and the columns to read there.

    Those that the run added or dropped since it began are `loose`: a file may have them.
    `plain` are the times of plain rows; None: the columns are those of elements.  `beating`:
    how the rows of a replica are summarised for a clock.
    """

    root: str
    columns: pa.Schema
    loose: tuple[str, ...] = ()
    plain: PlainRows | None = None
    beating: Beating | None = None

    def marks(self, rows: pa.Table) -> pa.Table:
        """What a clock needs of rows beside their payload: arrivals, if a column has them."""
        arrival = None if self.plain is None else self.plain.arrival
        return pa.table({} if arrival is None else {ARRIVAL: rows.column(arrival)})


@dataclass(frozen=True)
class FilesSpec:
    """What a packer must know of the inboxes of a query; it travels to the workers."""

    inboxes: tuple[Files, ...]
    schema: ElementSchema
    lanes: int
    routing: Routing = BY_IDENTITY
    strict: bool = False
    depot: Depot | None = None
    threads: int = 1


def pack_files(spec: FilesSpec, entries: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What Spark maps over entries of the log."""
    with spilling(spec.depot) as spill:
        for parcels in _packed(spec, list(_entries(entries))):
            yield to_rows(parcels, spec.lanes, spill)
    settle()


def _packed(spec: FilesSpec, entries: Sequence[Mapping[str, Any]]) -> Iterator[list[Parcel]]:
    """The parcels of some entries; files are read by several threads, one file in each."""
    data = [entry for entry in entries if entry["entry"] == DATA]
    ended = [entry for entry in entries if entry["entry"] == COMPLETE]
    others = [entry for entry in entries if entry["entry"] not in (DATA, COMPLETE)]
    yield from (in_every_lane(_base(entry), spec.lanes) for entry in others)
    yield from (_end(spec, entry) for entry in ended)
    if len(data) < 2 or spec.threads < 2:
        for entry in data:
            yield from pack_file(spec, entry)
        return
    for parcels in mapped(lambda entry: list(pack_file(spec, entry)), data, spec.threads):
        yield from parcels


def pack_control(entries: "DataFrame", lanes: int, *, is_timed: bool = False) -> "DataFrame":
    """Entries of a log that names no files, as they cross Spark; with the trigger's time.

    By Spark's own expressions: a trigger without entries has nothing of them in its plan.
    """
    from pyspark.sql import functions as F  # noqa: N812

    keys = lane_keys(lanes)
    each = [F.struct(F.lit(keys[n]).alias("key"), F.lit(n).alias("lane")) for n in range(lanes)]
    each_lane = entries.select(F.explode(F.array(*each)).alias("to"), "*")
    same = ["attachment", "log", "file", "entry", "guarantee", "settings"]
    head = F.struct(F.col("to.lane"), F.col("replica").alias("input"), *same, *_at(is_timed))
    nothing = F.lit(None).cast("binary")
    return each_lane.select(
        F.col("to.key").alias("key"),
        F.to_json(head).alias("head"),
        nothing.alias("parcel"),
        nothing.alias("places"),
    )


def _at(is_timed: bool) -> "list[Column]":  # noqa: FBT001
    """The time that Spark records with the offsets of a trigger, if a clock needs it."""
    return [trigger_time().alias("at")] if is_timed else []


def timed(entries: "DataFrame", *, is_timed: bool) -> "DataFrame":
    """Entries of a log with the time of their trigger."""
    return entries.select("*", *_at(is_timed)) if is_timed else entries


def _entries(batches: Iterator[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    return (entry for batch in batches for entry in batch.to_pylist())


def _base(entry: Mapping[str, Any]) -> Parcel:
    names = ("attachment", "log", "file", "entry", "guarantee", "settings")
    times = {"at": entry.get("at"), "look": entry["arrived"]}
    fields = {name: entry[name] for name in names}
    given = times if entry["entry"] == CLOCK else {}
    return Parcel(lane=0, input=entry["replica"], **fields, **given)


def pack_file(spec: FilesSpec, entry: Mapping[str, Any]) -> Iterator[list[Parcel]]:
    """The parcels of a piece of a file, one per lane and chunk; the last ones carry facts."""
    inbox, base = spec.inboxes[entry["inbox"]], _base(entry)
    assert base.file is not None, f"a data entry without a file: {base}"
    path = Path(inbox.root) / base.file
    only = FilePiece(*(entry[name] for name in ("begin", "stop", "row", "size")))
    total, part, greatest = 0, 0, int(NEVER_UNITS)
    refused: list[Refused] = []
    beating = [] if inbox.beating is None else [(base.input, inbox.beating)]
    tally = Tally(dict(beating), at=entry["arrived"] or TIMELESS)
    for chunk in read_file(
        path,
        inbox.columns,
        replica=base.input,
        rows=PARCEL_ROWS,
        only=only,
        loose=inbox.loose,
    ):
        table = chunk.table if inbox.plain is None else inbox.plain.to_elements(chunk.table)
        decoded = decode(table, spec.schema)
        refused += _refused(chunk, decoded, base)
        require_none(refused, strict=spec.strict)
        total += chunk.table.num_rows + len(chunk.refused)
        numbers = to_arrow(chunk.rows[decoded.rows].astype("int64"), pa.int64())
        places = pa.table({"row": numbers})
        marks = inbox.marks(chunk.table)
        if marks.num_columns and len(decoded.refused):
            marks = take(marks, decoded.rows)
        # In a batch no clock runs.
        how = tally if entry["arrived"] is not None else Tally({})
        greatest = max(greatest, how.add(base.input, decoded.batch, marks))
        here = replace(base, part=part)
        yield pieces(here, decoded.batch, places, spec.lanes, spec.routing)
        part += 1
    here = replace(base, part=part, greatest=greatest, at=entry["arrived"])
    yield announced(here, spec.lanes, total, refused)
    beats = tally.parcels(Parcel(lane=0, input=base.input), spec.lanes)
    if beats:
        yield [replace(one, at=entry.get("at")) for one in beats]


def _end(spec: FilesSpec, entry: Mapping[str, Any]) -> list[Parcel]:
    """The last element of a replica, stable(FOREVER), which counts as a row of it."""
    base = replace(_base(entry), entry=DATA)
    batch = from_elements([Stable(FOREVER)], spec.schema)
    places = pa.table({"row": pa.nulls(1, pa.int64())})
    made = pieces(base, batch, places, spec.lanes, spec.routing)
    return made + announced(replace(base, part=1), spec.lanes, 1, ())


def _refused(chunk: Chunk, decoded: Decoded, base: Parcel) -> list[Refused]:
    """The rows of a piece that are not elements, each with the reason and the row itself."""
    found: list[tuple[int, str, str | dict[str, Any]]]
    found = [(line.row, line.reason, line.raw) for line in chunk.refused]
    raw = chunk.table.take(pa.array(decoded.refused.rows)).to_pylist()
    numbers = chunk.rows[decoded.refused.rows].tolist()
    found += list(zip(numbers, decoded.refused.reasons, raw, strict=True))
    found.sort(key=lambda one: one[0])
    return [refuse(base.input, base.file, *one) for one in found]
