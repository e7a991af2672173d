"""From entries of an inbox's log to parcels.

The log (`anabranch.spark.control`) says in which order files were found and replicas came and
went.  `pack` reads each file where Spark runs it.  A file is read under the attachment that the
log gave it, whatever its folder says by then: an entry that is worked on twice means the same.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from anabranch.batch.buffers import to_arrow
from anabranch.batch.codec import Decoded, decode
from anabranch.batch.schema import ElementSchema
from anabranch.errors import ViolationError
from anabranch.sources.elements import Chunk, read_file
from anabranch.spark.depot import Depot, leaving
from anabranch.spark.parcels import (
    DATA,
    PARCEL_ROWS,
    Row,
    in_every_lane,
    lane_keys,
    pieces,
    to_batch,
)
from anabranch.spark.worker import settle

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class InboxSpec:
    """What a packer must know of an inbox; it travels to the workers.

    `raw` are the columns to read.
    """

    root: str
    schema: ElementSchema
    raw: pa.Schema
    lanes: int
    by_start: bool = False
    strict: bool = False
    depot: Depot | None = None


def pack(spec: InboxSpec, entries: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What Spark maps over entries of the log."""
    with leaving(spec.depot) as leave:
        for entry in _entries(entries):
            if entry["entry"] == DATA:
                for rows in pack_file(spec, entry):
                    yield to_batch(leave(rows), spec.lanes)
            else:
                rows = in_every_lane({**_base(entry), "part": 0}, spec.lanes)
                yield to_batch(rows, spec.lanes)
    settle()


def pack_control(entries: "DataFrame", lanes: int) -> "DataFrame":
    """Entries of a log that names no files, as they cross Spark.

    By Spark's own expressions: a trigger without entries has nothing of them in its plan.
    """
    from pyspark.sql import functions as F  # noqa: N812

    keys = lane_keys(lanes)
    each = [F.struct(F.lit(keys[n]).alias("key"), F.lit(n).alias("lane")) for n in range(lanes)]
    told = entries.select(F.explode(F.array(*each)).alias("to"), "*")
    same = ["replica", "attachment", "log", "file", "entry"]
    guarantee = F.col("guarantee").cast("string").alias("guarantee")
    head = F.struct(F.col("to.lane"), *same, guarantee, F.lit(0).alias("part"))
    nothing = F.lit(None).cast("binary")
    return told.select(
        F.col("to.key").alias("key"),
        F.to_json(head).alias("head"),
        nothing.alias("parcel"),
        nothing.alias("places"),
    )


def _entries(batches: Iterator[pa.RecordBatch]) -> Iterator[Row]:
    return (entry for batch in batches for entry in batch.to_pylist())


def _base(entry: Row) -> Row:
    guarantee = entry["guarantee"]
    same = {name: entry[name] for name in ("replica", "attachment", "log", "file", "entry")}
    return same | {"guarantee": None if guarantee is None else str(guarantee)}


def pack_file(spec: InboxSpec, entry: Row) -> Iterator[list[Row]]:
    """The parcels of one file, piece by piece, one per lane; the last ones carry its facts."""
    base, path = _base(entry), Path(spec.root) / entry["file"]
    total, part = 0, 0
    refused: list[Row] = []
    for chunk in read_file(path, spec.raw, replica=entry["replica"], rows=PARCEL_ROWS):
        decoded = decode(chunk.table, spec.schema)
        refused += _refused(chunk, decoded, base)
        if refused and spec.strict:
            first = refused[0]
            message = (
                f"{first['file']}: row {first['row']}: {first['reason']} (--strict stops here)"
            )
            raise ViolationError(message)
        total += chunk.table.num_rows + len(chunk.refused)
        numbers = to_arrow(chunk.rows[decoded.rows].astype("int64"), pa.int64())
        places = pa.table({"row": numbers})
        yield pieces(
            {**base, "part": part}, decoded.batch, places, spec.lanes, by_start=spec.by_start
        )
        part += 1
    facts = {
        "file": entry["file"],
        "replica": entry["replica"],
        "rows": total,
        "refused": refused,
    }
    yield in_every_lane({**base, "part": part}, spec.lanes, facts)


def _refused(chunk: Chunk, decoded: Decoded, base: Row) -> list[Row]:
    """The rows of a piece that are no elements, each with the reason and the row itself."""
    found = [(line.row, line.reason, line.raw) for line in chunk.refused]
    raw = chunk.table.take(pa.array(decoded.refused.rows)).to_pylist()
    numbers = chunk.rows[decoded.refused.rows].tolist()
    texts = [json.dumps(row, default=str) for row in raw]
    found += list(zip(numbers, decoded.refused.reasons, texts, strict=True))
    where = {"replica": base["replica"], "file": base["file"]}
    return [
        {**where, "row": row, "reason": reason, "raw": text}
        for row, reason, text in sorted(found)
    ]
