"""Reads all elements of a path into columns, one set per stream; each payload is stored once.

Reading is piece by piece; what stays of an element is its identity id and its times, what
stays of a payload is one copy in the interner.  Ten million elements of 100 bytes fit into a
few gigabytes.  Rows that are not elements are counted, and the first of them kept to be shown.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from anabranch.batch.batch import INSERT, KINDS, Batch, Codes, Ints
from anabranch.batch.buffers import take
from anabranch.batch.codec import decode
from anabranch.batch.history import NO_IDENTITY
from anabranch.batch.intern import Interner
from anabranch.batch.schema import KIND, ElementSchema
from anabranch.checker.verdict import RefusedRow
from anabranch.errors import ViolationError
from anabranch.sources.elements import Chunk, element_schema, read_file, scan
from anabranch.sources.files import Folder, Layout

Progress: TypeAlias = Callable[[int], None]
"""Called with the number of further rows that were read."""


@dataclass(frozen=True, eq=False)
class Gathered:
    """One physical stream as columns, in file order; `place` finds the file of a position."""

    replica: str | None
    ids: Ints
    kind: Codes
    start: Ints
    end: Ints
    old_end: Ints
    seq: Ints | None
    row: Ints
    _files: tuple[Path, ...]
    _begins: Ints

    def place(self, position: int) -> tuple[Path, int]:
        """The file and the row (from 1) of an element."""
        piece = int(np.searchsorted(self._begins, position, side="right")) - 1
        return self._files[piece], int(self.row[position])


@dataclass
class _Growing:
    """The pieces of a stream while it is read."""

    columns: dict[str, list[NDArray[Any]]] = field(default_factory=dict)
    files: list[Path] = field(default_factory=list)
    begins: list[int] = field(default_factory=list)
    length: int = 0

    def add(self, file: Path, ids: Ints, batch: Batch, rows: Ints) -> None:
        times = {"start": batch.start, "end": batch.end, "old_end": batch.old_end}
        pieces: dict[str, NDArray[Any]] = {"ids": ids, **times, "kind": batch.kind, "row": rows}
        if batch.seq is not None:
            pieces["seq"] = batch.seq
        for name, piece in pieces.items():
            self.columns.setdefault(name, []).append(piece)
        self.files.append(file)
        self.begins.append(self.length)
        self.length += len(batch)

    def finish(self, replica: str | None) -> Gathered:
        # Column by column, each freed as soon as it is whole: the peak is one column above.
        whole = {name: self._take(name) for name in [*self.columns]}
        nothing = np.empty(0, np.int64)
        return Gathered(
            replica,
            whole.get("ids", nothing),
            whole.get("kind", nothing.astype(np.int8)),
            whole.get("start", nothing),
            whole.get("end", nothing),
            whole.get("old_end", nothing),
            whole.get("seq"),
            whole.get("row", nothing),
            tuple(self.files),
            np.array(self.begins, np.int64),
        )

    def _take(self, name: str) -> NDArray[Any]:
        return np.concatenate(self.columns.pop(name))


@dataclass
class Refusals:
    """The rows that are not elements: how many, and the first of them."""

    limit: int
    strict: bool
    count: int = 0
    first: list[RefusedRow] = field(default_factory=list)

    def add(self, row: RefusedRow) -> None:
        """Count a row; the first one stops a strict check."""
        if self.strict:
            message = f"{row.file}, row {row.row}: {row.reason} (--strict stops here)"
            raise ViolationError(message)
        self.count += 1
        if len(self.first) < self.limit:
            self.first.append(row)


def gather(
    folder: Folder, interner: Interner, refusals: Refusals, *, on_progress: Progress
) -> Iterator[Gathered]:
    """The physical streams of a folder; an empty replica is an empty stream."""
    # An inbox is read replica by replica, so that only one is in memory at a time.
    parts = [replica.name for replica in folder.replicas]
    for part in parts:
        growing: dict[str | None, _Growing] = {}
        for chunk in _chunks(folder, part):
            found = _add(chunk, folder, interner, refusals)
            if found is not None:
                batch, ids, rows = found
                growing.setdefault(chunk.replica, _Growing()).add(chunk.file, ids, batch, rows)
            on_progress(len(chunk.rows))
        if not growing:
            growing[part] = _Growing()
        for name in [*growing]:
            yield growing.pop(name).finish(name)


def _chunks(folder: Folder, replica: str | None) -> Iterator[Chunk]:
    if folder.layout is Layout.REFERENCE:
        return scan_reference(folder)
    return scan(folder, replica=replica)


def _add(
    chunk: Chunk, folder: Folder, interner: Interner, refusals: Refusals
) -> tuple[Batch, Ints, Ints] | None:
    """The elements of a chunk with their ids and rows; what is none is refused."""
    is_reference = folder.layout is Layout.REFERENCE
    schema = reference_schema(folder) if is_reference else element_schema(folder)
    found = decode(chunk.table, schema)
    bad = [(line.row, line.reason) for line in chunk.refused]
    rows = chunk.rows[found.refused.rows].tolist()
    bad += zip(rows, found.refused.reasons, strict=True)
    for row, reason in sorted(bad):
        refusals.add(RefusedRow(str(chunk.file), row, reason, chunk.replica))
    if not len(found.batch):
        return None
    return found.batch, _intern(found.batch, interner), chunk.rows[found.rows]


def _intern(batch: Batch, interner: Interner) -> Ints:
    """The identity ids of a batch; a stable has none."""
    data = np.flatnonzero(batch.is_data)
    if len(data) == len(batch):
        return interner.intern(batch.start, batch.payload)
    ids = np.full(len(batch), NO_IDENTITY, np.int64)
    payload: pa.Table = batch.payload
    if payload.num_columns:
        payload = take(payload, data)
    ids[data] = interner.intern(batch.start[data], payload)
    return ids


_KIND = pa.field(KIND, pa.string())


def reference_schema(folder: Folder) -> ElementSchema:
    """The schema of the inserts that a reference history is read as."""
    found = ElementSchema.of(folder.schema.append(_KIND), where=str(folder.path))
    return replace(found, has_seq=False, has_replica=False)


def scan_reference(folder: Folder) -> Iterator[Chunk]:
    """All events of a reference history, as inserts."""
    for file in folder.files:
        # A name, so that a stray column `replica` does not split the history.
        for chunk in read_file(file, folder.schema, replica="reference"):
            words = pa.repeat(pa.scalar(KINDS[INSERT]), len(chunk.rows))
            table = chunk.table.append_column(_KIND, words)
            yield replace(chunk, replica=None, table=table)
