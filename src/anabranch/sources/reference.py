"""A reference history read piece by piece: one row per event, unordered, no `kind`.

A row with a null start, an end before its start, or an empty lifetime is no event of a history
and is refused with its file and row.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from anabranch.batch.batch import INSERT, Batch, Ints
from anabranch.batch.codec import decode
from anabranch.batch.schema import KIND, ElementSchema
from anabranch.sources.elements import read_file
from anabranch.sources.files import Folder
from anabranch.sources.jsonl import RefusedLine


@dataclass(frozen=True, eq=False)
class EventRows:
    """Events as inserts, each with its row in the file; what is no event stands beside."""

    file: Path
    events: Batch
    rows: Ints
    refused: tuple[RefusedLine, ...]


def scan_reference(folder: Folder) -> Iterator[EventRows]:
    """All events of a reference history."""
    kind = pa.field(KIND, pa.string())
    schema = ElementSchema.of(folder.schema.append(kind), where=str(folder.path))
    for file in folder.files:
        for chunk in read_file(file, folder.schema, replica=""):
            count = len(chunk.rows)
            words = pa.repeat(pa.scalar("insert"), count)
            found = decode(chunk.table.append_column(kind, words), schema)
            batch = found.batch
            assert bool((batch.kind == INSERT).all())
            empty = batch.end == batch.start
            bad = dict(zip(found.refused.rows.tolist(), found.refused.reasons, strict=True))
            bad.update({row: _EMPTY for row in found.rows[empty].tolist()})
            refused = _refused(chunk.table, chunk.rows, bad)
            full = np.flatnonzero(~empty)
            everything = (*chunk.refused, *refused)
            yield EventRows(file, batch.take(full), chunk.rows[found.rows[full]], everything)


_EMPTY = "its end is its start: an event with an empty lifetime is none"


def _refused(table: pa.Table, rows: Ints, bad: dict[int, str]) -> list[RefusedLine]:
    return [
        RefusedLine(int(rows[at]), bad[at], str(table.slice(at, 1).to_pylist()[0]))
        for at in sorted(bad)
    ]
