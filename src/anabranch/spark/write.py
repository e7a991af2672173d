"""From the lanes' parcels to the four folders of an output, each trigger exactly once.

    OUTPUT/elements/trigger-000000000007/part-*.parquet     the merged stream
    OUTPUT/late/...        rows that came too late, with replica, file, row and reason
    OUTPUT/violations/...  rows that broke a promise or are no elements, likewise
    OUTPUT/progress/...    one record per lane

The lanes write the files, the driver puts them into place (`anabranch.spark.direct`).  Spark
runs the last trigger again after a crash, with the same id and the same rows; the folder of
that id is then replaced as a whole.  A trigger's folder counts if `_SUCCESS` is in it, which is
also how any other reader can tell: `spark.read.parquet("OUTPUT/elements/*")`.

`seq` of the merged stream is `step * 2**32 + position`: unique, increasing over steps and
restarts, with the one stable of a step last.  All lanes take the same steps; nearly always a
trigger is one (`anabranch.spark.receive`).
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlparse

import numpy as np
import pyarrow as pa

from anabranch.batch.batch import STABLE, Batch, Ints
from anabranch.batch.codec import encode
from anabranch.batch.parcel import unpack
from anabranch.batch.schema import SEQ, ElementSchema
from anabranch.spark.direct import Shelf, Unpacker, publish, write_table
from anabranch.spark.progress import Record

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ELEMENTS: Final = "elements"
LATE: Final = "late"
VIOLATIONS: Final = "violations"
FINAL: Final = "final"
PROGRESS: Final = "progress"

ROWS_PER_STEP: Final = 2**32

STAGED_FILES: Final = "staged"
"""Where a record on its way to the driver names the files that its lane has written."""

RECORDS: Final = pa.schema({"lane": pa.int32(), "record": pa.string()})

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

_ARROW: Final = {
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "binary": pa.binary(),
}
LANE_ARROW: Final = pa.schema([(name, _ARROW[kind]) for name, kind in LANE_COLUMNS.items()])
"""The same, as Arrow reads it."""

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
    return output / channel / trigger_name(trigger)


def trigger_name(trigger: int) -> str:
    """What the folder of a trigger is called."""
    return f"trigger-{trigger:012d}"


def output_schema(schema: ElementSchema) -> ElementSchema:
    """The merged stream's schema: with `seq`, without `replica`."""
    return ElementSchema(schema.time, schema.payload, has_seq=True)


def quarantine_schema(schema: ElementSchema) -> pa.Schema:
    """The columns of late rows and violations: where from and why, then the element."""
    kept = ElementSchema(schema.time, schema.payload, has_seq=True).arrow
    return pa.schema([*ORIGIN, *(field.with_nullable(nullable=True) for field in kept)])


def shelves(output: Path, schema: ElementSchema, lanes: int) -> tuple[Shelf, ...]:
    """The folders of an output that the lanes write."""
    elements, apart = unpack_elements(schema, lanes), unpack_quarantined(schema)
    forms = {ELEMENTS: elements, LATE: apart, VIOLATIONS: apart}
    return tuple(
        Shelf(str(output / channel), (channel,), unpack) for channel, unpack in forms.items()
    )


def write_trigger(df: "DataFrame", trigger: int, *, output: Path) -> list[Record]:
    """Put what the lanes wrote in one trigger into its place; returns their records."""
    records = read_records(df)
    publish_all(records, trigger)
    write_records(df, records, str(trigger_folder(output, PROGRESS, trigger)))
    return records


def read_records(df: "DataFrame") -> list[Record]:
    """The records of the lanes, of a DataFrame that has no other rows: Spark works now."""
    return [json.loads(row["note"]) for row in df.collect()]


def publish_all(records: list[Record], trigger: int) -> None:
    """Move the files that the lanes say they wrote into the trigger's folders."""
    found: dict[str, dict[int, str]] = {}
    for record in records:
        for folder, name in record.pop(STAGED_FILES, {}).items():
            found.setdefault(folder, {})[record["lane"]] = name
    for folder, names in found.items():
        publish(Path(folder) / trigger_name(trigger), names)


def write_records(df: "DataFrame", records: list[Record], folder: str) -> None:
    """Write the records of a trigger; by Spark where only Spark can."""
    rows = [(record["lane"], json.dumps(record)) for record in records]
    place = local(folder)
    if place is not None:
        columns = [pa.array(column) for column in zip(*rows, strict=True)]
        write_table(pa.table(columns, RECORDS), place)
        return
    frame = df.sparkSession.createDataFrame(rows, "lane int, record string")
    frame.coalesce(1).write.mode("overwrite").parquet(folder)


def local(path: str) -> Path | None:
    """A path on this machine, or None if it is a place that only Spark reaches."""
    parts = urlparse(path)
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    return None if parts.scheme and "://" in path else Path(path).resolve()


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
