"""The output rows of a lane: their channels, and their one Arrow form.

A row holds a batch.  Where the lane writes files itself the batch becomes the table of a file
as it is; only what travels through Spark is packed first, and unpacked there.

Between two stages the same columns cross Spark, with the key of the lane that they go to; a
parcel is a row of the channel `parcel`, with its head as the record and its places as origin.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa

from anabranch.batch.batch import Batch
from anabranch.batch.parcel import pack, unpack
from anabranch.batch.schema import ElementSchema
from anabranch.spark.pack.parcels import (
    UNROUTED,
    Parcel,
    Spill,
    from_ipc,
    to_ipc,
    to_rows,
)

PARCEL: Final = "parcel"
"""The channel of rows that hold a parcel for the next stage."""

NATIVE: Final = "native"
"""The channel of rows with a parcel that Spark changes before the next stage gets it."""

LANE_ROWS: Final = (
    "channel string, lane int, step bigint, first bigint, parcel binary, origin binary, "
    "record string, files map<string, string>"
)
"""The columns as Spark names them."""

LANE_ARROW: Final = pa.schema(
    [
        ("channel", pa.string()),
        ("lane", pa.int32()),
        ("step", pa.int64()),
        ("first", pa.int64()),
        ("parcel", pa.binary()),
        ("origin", pa.binary()),
        ("record", pa.string()),
        ("files", pa.map_(pa.string(), pa.string())),
    ]
)
"""The same columns as Arrow names them."""

STAGE_ROWS: Final = f"key int, {LANE_ROWS}"
"""The columns between two stages, as Spark names them; Spark shuffles by `key`."""

STAGE_ARROW: Final = pa.schema([("key", pa.int32()), *LANE_ARROW])
"""The same columns as Arrow names them."""


ORIGIN: Final = pa.schema(
    [
        ("reason", pa.string()),
        ("replica", pa.string()),
        ("file", pa.string()),
        ("row", pa.int64()),
        ("raw", pa.string()),
    ]
)
"""The origin of a row that was not merged; `raw` is the row if it is not an element."""


@dataclass(frozen=True, slots=True, eq=False)
class LaneRow:
    """Some elements of a channel, or the progress record of a lane and trigger.

    `first` is the position of the first element in what the lane made in this step.  `origin`
    has a row for each element that was not taken, or is the rows of an operator whose output is
    not a stream of elements.  `record` is a `LaneRecord` as JSON, and
    `files` are the staged files that the lane wrote, by folder; both come once per trigger.
    """

    channel: str
    lane: int
    step: int
    first: int = 0
    batch: Batch | None = None
    origin: pa.Table | None = None
    record: str | None = None
    files: Mapping[str, str] | None = None

    def to_dict(self) -> dict[str, Any]:
        """As it crosses Spark: the batch is packed, without hashes, which no writer needs."""
        batch = None if self.batch is None else replace(self.batch, hashes=None)
        return {
            "channel": self.channel,
            "lane": self.lane,
            "step": self.step,
            "first": self.first,
            "parcel": None if batch is None else pack(batch),
            "origin": None if self.origin is None else to_ipc(self.origin),
            "record": self.record,
            "files": self.files,
        }


def parcel_rows(
    parcels: Sequence[Parcel], lanes: int, spill: Spill | None
) -> list[dict[str, Any]]:
    """Parcels for the next stage, as they cross Spark."""
    empty = LaneRow(PARCEL, 0, 0).to_dict()
    return [
        empty
        | {"key": row["key"], "lane": one.lane, "record": row["head"]}
        | ({"channel": NATIVE} if one.entry == UNROUTED else {})
        | {"parcel": row["parcel"], "origin": row["places"]}
        for one, row in zip(parcels, to_rows(parcels, lanes, spill).to_pylist(), strict=True)
    ]


def table_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of an operator whose output is not a stream of elements, as Spark maps them."""
    for batch in batches:
        for value in batch["origin"]:
            yield from from_ipc(value.as_buffer()).to_batches()


def read_rows(batch: pa.RecordBatch, schema: ElementSchema) -> Iterator[LaneRow]:
    """Rows that crossed Spark; payloads are views of what came."""
    plain = batch.select(["channel", "lane", "step", "first"]).to_pylist()
    parcels, origins = batch["parcel"], batch["origin"]
    for at, row in enumerate(plain):
        parcel, origin = parcels[at], origins[at]
        yield LaneRow(
            **row,
            batch=unpack(parcel.as_buffer(), schema) if parcel.is_valid else None,
            origin=from_ipc(origin.as_buffer()) if origin.is_valid else None,
        )
