"""From file names to parcels: what crosses the shuffle.

Spark's file source hands us the *names* of new files, each once (its log is in the
checkpoint). `pack` reads each file where Spark runs it, and turns it into one parcel per lane
and piece of the file: data goes to the one lane of its identity, stables go to every lane, so
that every lane knows the same frontier.  Every lane hears of every file, if only by an empty
parcel: lanes also agree on which replicas exist.

Row i of `rows` is the row of the file that element i of the parcel came from, so that
whatever is quarantined later can be named.  `note` is JSON for lane 0 alone: what the file
was, and which of its rows are no elements.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlparse

import numpy as np
import pyarrow as pa

from anabranch.batch.batch import FOREVER_UNITS
from anabranch.batch.codec import Decoded, decode
from anabranch.batch.parcel import pack as pack_batch
from anabranch.batch.schema import ElementSchema
from anabranch.errors import ViolationError
from anabranch.operators.merge.route import route
from anabranch.sources.elements import Chunk, read_file
from anabranch.sources.notes import ReplicaNote, read_note

NAMES: Final = "path string, modificationTime timestamp, length bigint, content binary"
"""What Spark's `binaryFile` source has; only the first three are asked for: no byte is read."""

PARCELS: Final = pa.schema(
    [
        ("lane", pa.int32()),
        ("replica", pa.string()),
        ("file", pa.string()),
        ("part", pa.int32()),
        ("guarantee", pa.string()),  # a number as text: pandas would make it a float
        ("attachment", pa.int32()),
        ("parcel", pa.binary()),
        ("rows", pa.binary()),
        ("note", pa.string()),
    ]
)

PARCEL_ROWS: Final = 1 << 16
"""The most rows of a parcel: a value that crosses Spark must stay far below two gigabytes."""

Row = dict[str, Any]
Packer = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


@dataclass(frozen=True)
class InboxSpec:
    """What a packer must know of an inbox; it travels to the workers.

    `raw` are the columns to read, `founders` the replicas that were there when the run began.
    """

    root: str
    schema: ElementSchema
    raw: pa.Schema
    lanes: int
    founders: tuple[str, ...]
    assume_complete: bool = False
    strict: bool = False


def pack(spec: InboxSpec) -> Packer:
    """The function that Spark maps over the names of new files."""

    def parcels(names: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in names:
            for name in batch.to_pylist():
                for rows in pack_file(spec, name):
                    yield pa.RecordBatch.from_pylist(rows, schema=PARCELS)

    return parcels


def pack_file(spec: InboxSpec, name: Row) -> Iterator[list[Row]]:
    """The parcels of one file, piece by piece, one per lane; the last ones carry its facts."""
    path = Path(unquote(urlparse(name["path"]).path))
    replica, file = path.parent.name, str(path.relative_to(spec.root))
    note = read_note(path.parent)
    promised = guarantee(spec, replica, note)
    base: Row = {
        "replica": replica,
        "file": file,
        "guarantee": None if promised is None else str(promised),
        "attachment": max(1, note.attachment) if note else 1,
    }
    total, part = 0, 0
    refused: list[Row] = []
    for chunk in read_file(path, spec.raw, replica=replica, rows=PARCEL_ROWS):
        decoded = decode(chunk.table, spec.schema)
        refused += _refused(chunk, decoded, replica, file)
        if refused and spec.strict:
            message = (
                f"{file}: row {refused[0]['row']}: {refused[0]['reason']} (--strict stops here)"
            )
            raise ViolationError(message)
        total += chunk.table.num_rows + len(chunk.refused)
        yield _pieces(spec, base, part, decoded, chunk)
        part += 1
    facts = {
        "file": file,
        "replica": replica,
        "rows": total,
        "length": name["length"],
        "modified": round(name["modificationTime"].timestamp() * 1000),
        "refused": refused,
    }
    yield [
        {**base, "lane": lane, "part": part, "note": json.dumps(facts) if lane == 0 else None}
        for lane in range(spec.lanes)
    ]


def guarantee(spec: InboxSpec, replica: str, note: ReplicaNote | None) -> int | None:
    """From when on a replica is complete: None is always, the end of time is not known yet."""
    if note is not None:
        return note.guarantee
    return None if spec.assume_complete or replica in spec.founders else int(FOREVER_UNITS)


def _pieces(spec: InboxSpec, base: Row, part: int, decoded: Decoded, chunk: Chunk) -> list[Row]:
    batch = decoded.batch
    lanes, data = route(batch, spec.lanes), batch.is_data
    pieces = []
    for lane in range(spec.lanes):
        mine = np.flatnonzero(~data | (lanes == lane))
        rows = chunk.rows[decoded.rows[mine]].astype(np.int64)
        parcel = pack_batch(batch.take(mine))
        pieces.append(
            {**base, "lane": lane, "part": part, "parcel": parcel, "rows": rows.tobytes()}
        )
    return pieces


def _refused(chunk: Chunk, decoded: Decoded, replica: str, file: str) -> list[Row]:
    """The rows of a piece that are no elements, each with the reason and the row itself."""
    found = [(line.row, line.reason, line.raw) for line in chunk.refused]
    raw = chunk.table.take(pa.array(decoded.refused.rows)).to_pylist()
    numbers = chunk.rows[decoded.refused.rows].tolist()
    texts = [json.dumps(row, default=str) for row in raw]
    found += list(zip(numbers, decoded.refused.reasons, texts, strict=True))
    return [
        {"replica": replica, "file": file, "row": row, "reason": reason, "raw": text}
        for row, reason, text in sorted(found)
    ]
