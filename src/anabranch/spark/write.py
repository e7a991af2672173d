"""From the lanes' parcels to the four folders of an output, each trigger exactly once.

    OUTPUT/elements/trigger-000000000007/part-*.parquet     the merged stream
    OUTPUT/late/...        rows that came too late, with replica, file, row and reason
    OUTPUT/violations/...  rows that broke a promise or are no elements, likewise
    OUTPUT/progress/...    one record per lane

Spark runs the last trigger again after a crash, with the same id and the same rows; the
folder of that id is then replaced as a whole.  A trigger's folder counts once Spark's
committer has put `_SUCCESS` into it, which is also how any other reader can tell:
`spark.read.parquet("OUTPUT/elements/*")`.

`seq` of the merged stream is `step * 2**32 + position`: unique, increasing over steps and
restarts, with the one stable of a step last.  All lanes take the same steps; nearly always a
trigger is one (`anabranch.spark.receive`).
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from anabranch.batch.batch import STABLE, Batch, Ints
from anabranch.batch.codec import encode
from anabranch.batch.parcel import unpack
from anabranch.batch.schema import SEQ, ElementSchema
from anabranch.spark.columns import spark_schema
from anabranch.spark.progress import Record

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ELEMENTS: Final = "elements"
LATE: Final = "late"
VIOLATIONS: Final = "violations"
FINAL: Final = "final"
PROGRESS: Final = "progress"

ROWS_PER_STEP: Final = 2**32

LANE_COLUMNS: Final = {
    "channel": "string",
    "lane": "int",
    "step": "bigint",
    "first": "bigint",
    "parcel": "binary",
    "origin": "binary",
    "note": "string",
}
"""What a lane hands to the writer: a parcel (or a note) for one of the four folders.

`first` is the position of the parcel's first element in what the lane made in this step.
"""

LANE_ROWS: Final = ", ".join(f"{name} {kind}" for name, kind in LANE_COLUMNS.items())
"""The same, as Spark reads it."""

ORIGIN: Final = pa.schema(
    [
        ("reason", pa.string()),
        ("replica", pa.string()),
        ("file", pa.string()),
        ("row", pa.int64()),
        ("raw", pa.string()),
    ]
)
"""Where a row that was not merged came from; `raw` is the row itself if it is no element."""


def trigger_folder(output: Path, channel: str, trigger: int) -> Path:
    """The folder of one trigger; its name sorts like its number."""
    return output / channel / f"trigger-{trigger:012d}"


def output_schema(schema: ElementSchema) -> ElementSchema:
    """The merged stream's schema: with `seq`, without `replica`."""
    return ElementSchema(schema.time, schema.payload, has_seq=True)


def quarantine_schema(schema: ElementSchema) -> pa.Schema:
    """The columns of late rows and violations: where from and why, then the element."""
    kept = ElementSchema(schema.time, schema.payload, has_seq=True).arrow
    return pa.schema([*ORIGIN, *(field.with_nullable(nullable=True) for field in kept)])


def write_trigger(
    df: "DataFrame", trigger: int, *, output: Path, schema: ElementSchema, lanes: int
) -> list[Record]:
    """Write what the lanes made in one trigger; returns their records."""
    df = df.persist()  # several folders are written from it; the lanes must work once
    try:
        notes = df.where("channel = 'progress'").select("note").collect()
        records: list[Record] = [json.loads(row["note"]) for row in notes]
        for channel in (LATE, VIOLATIONS, ELEMENTS):
            if sum(record["output"][channel] for record in records):
                _write_rows(df, channel, trigger, output=output, schema=schema, lanes=lanes)
        write_records(df, records, str(trigger_folder(output, PROGRESS, trigger)))
    finally:
        df.unpersist()
    return records


def _write_rows(
    df: "DataFrame",
    channel: str,
    trigger: int,
    *,
    output: Path,
    schema: ElementSchema,
    lanes: int,
) -> None:
    if channel == ELEMENTS:
        columns = output_schema(schema).arrow
        rows = unpack_elements(schema, lanes)
    else:
        columns, rows = quarantine_schema(schema), unpack_quarantined(schema)
    (
        df.where(f"channel = '{channel}'")
        .select("lane", "step", "first", "parcel", "origin")
        .mapInArrow(rows, spark_schema(columns))
        .write.mode("overwrite")
        .parquet(str(trigger_folder(output, channel, trigger)))
    )


def write_records(df: "DataFrame", records: list[Record], folder: str) -> None:
    """Write the records of a trigger."""
    rows = [(record["lane"], json.dumps(record)) for record in records]
    frame = df.sparkSession.createDataFrame(rows, "lane int, record string")
    frame.coalesce(1).write.mode("overwrite").parquet(folder)


Unpacker = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def unpack_elements(schema: ElementSchema, lanes: int) -> Unpacker:
    """Parcels of the merged stream become rows with `seq`."""

    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            turns = [batch[name].to_pylist() for name in ("lane", "step", "first")]
            for lane, step, first, parcel in zip(*turns, batch["parcel"], strict=True):
                elements = unpack(parcel.as_py(), output_schema(schema))
                position = (np.arange(len(elements), dtype=np.int64) + first) * lanes + lane
                yield from _numbered(elements, position, step).to_batches()

    return rows


def _numbered(elements: Batch, position: Ints, step: int) -> pa.Table:
    """Lanes take turns; no identity is in two of them, so any interleaving is valid."""
    position[elements.kind == STABLE] = ROWS_PER_STEP - 1
    table = encode(elements)
    index = table.schema.get_field_index(SEQ)
    seq = pa.array(step * ROWS_PER_STEP + position)
    return table.set_column(index, pa.field(SEQ, pa.int64()), seq)


def unpack_quarantined(schema: ElementSchema) -> Unpacker:
    """Parcels of late or broken rows become rows with their origin in front."""
    columns = quarantine_schema(schema)

    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for parcel, origin in zip(batch["parcel"], batch["origin"], strict=True):
                where = pa.ipc.open_stream(origin.as_buffer()).read_all()
                yield from _beside(where, parcel, schema, columns).to_batches()

    return rows


def _beside(
    where: pa.Table, parcel: pa.Scalar, schema: ElementSchema, columns: pa.Schema
) -> pa.Table:
    table = where
    if parcel.is_valid:
        elements = encode(unpack(parcel.as_py(), output_schema(schema)))
        for name in elements.schema.names:
            table = table.append_column(name, elements[name])
    for name in columns.names[len(table.schema) :]:
        table = table.append_column(name, pa.nulls(table.num_rows, columns.field(name).type))
    return pa.Table.from_arrays(table.columns, schema=columns)
