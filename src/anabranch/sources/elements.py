"""The rows of element files, piece by piece, in order: file by file, row by row.

A `Chunk` is part of one physical stream: at most `ROWS` rows, all columns of the one schema of
the folder, each row with its number in its file (from 1; in JSON lines the line number).  What
cannot be read as a row is refused beside it.  Whether a row is an element is
`anabranch.batch.codec.decode`'s business.

In an inbox the folder names the replica; else a column `replica` does, and rows without a name
are refused.  `read_file` needs nothing but what it is given, so that a worker of a cluster can
call it.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from anabranch.batch.batch import Ints
from anabranch.batch.buffers import numbers, take, valid
from anabranch.batch.schema import OLD_END, REPLICA, RESERVED, ElementSchema
from anabranch.errors import FileError, SchemaError
from anabranch.sources import jsonl
from anabranch.sources.files import Folder, Format, file_format
from anabranch.sources.jsonl import RefusedLine
from anabranch.sources.pieces import FilePiece
from anabranch.sources.unify import conform

ROWS: Final = 1 << 17
"""The most rows of a chunk; a quarter of a gigabyte if a payload has 2000 bytes."""


@dataclass(frozen=True, eq=False)
class Chunk:
    """Rows of one file and one replica, in order: row i of `table` is row `rows[i]` of it."""

    replica: str | None
    file: Path
    table: pa.Table
    rows: Ints
    refused: tuple[RefusedLine, ...] = ()

    @property
    def first_row(self) -> int:
        """The number of its first row in the file, from 1."""
        return int(self.rows[0]) if len(self.rows) else 1


def element_schema(folder: Folder) -> ElementSchema:
    """The one schema of the elements of a folder."""
    return folder.elements


def scan(folder: Folder, *, replica: str | None = None) -> Iterator[Chunk]:
    """All rows of a folder in order, or those of one replica."""
    for stream in folder.replicas:
        if stream.name is not None and replica not in (None, stream.name):
            continue
        for file in stream.files:
            for chunk in read_file(file, folder.schema, replica=stream.name, loose=None):
                if replica in (None, chunk.replica):
                    yield chunk


WHOLE: Final = FilePiece(0, -1, 1, 0)
"""All of a file."""


def read_file(
    file: Path | str,
    schema: pa.Schema,
    *,
    replica: str | None = None,
    rows: int = ROWS,
    only: FilePiece = WHOLE,
    loose: Collection[str] | None = (),
) -> Iterator[Chunk]:
    """The rows of one file in these columns; `replica` is the name that its folder gives it.

    A file may lack the columns `loose`, or have them though they are not asked for; None: any.
    """
    path = Path(file)
    try:
        if file_format(path) is Format.PARQUET:
            found = _parquet(path, schema, rows, only, loose)
        else:
            found = _lines(path, schema, rows, only, loose)
        for piece in found:
            if replica is not None or REPLICA not in schema.names:
                yield Chunk(replica, path, piece.table, piece.rows, piece.refused)
            else:
                yield from _by_replica(piece, path)
    except (pa.ArrowException, OSError) as error:
        message = (
            f"{path}: cannot be read to its end: {error}; the file is damaged or was changed "
            "after it was looked at; restore it, or remove it"
        )
        raise FileError(message) from error


def _parquet(
    path: Path,
    schema: pa.Schema,
    rows: int,
    only: FilePiece,
    loose: Collection[str] | None,
) -> Iterator[jsonl.Lines]:
    with pq.ParquetFile(path) as file:
        there = _columns(path, file.schema_arrow.names, schema, loose)
        at, stop = only.row, only.stop if only.stop >= 0 else file.num_row_groups
        groups = list(range(only.begin, stop))
        for batch in file.iter_batches(batch_size=rows, columns=there, row_groups=groups):
            table = conform(pa.Table.from_batches([batch]), schema, where=str(path))
            yield jsonl.Lines(table, np.arange(at, at + len(batch)), ())
            at += len(batch)


def _columns(
    path: Path, names: list[str], schema: pa.Schema, loose: Collection[str] | None
) -> list[str]:
    """The columns to read; one that came or went since the schema was found is an error."""
    there = [name for name in schema.names if name in names]
    if loose is None:
        return there
    missing = [n for n in schema.names if n not in names and n not in (OLD_END, *loose)]
    extra = [n for n in names if n not in schema.names and n not in (*RESERVED, *loose)]
    for name, what in [(n, "no column") for n in missing] + [(n, "a column") for n in extra]:
        message = (
            f"{path}: {what} '{name}', but the other files of the stream have the columns "
            f"{schema.names}; write all files of a stream with the same columns"
        )
        raise SchemaError(message)
    return there


def _lines(
    path: Path, schema: pa.Schema, rows: int, only: FilePiece, loose: Collection[str] | None
) -> Iterator[jsonl.Lines]:
    ignored = [name for name in loose or () if name not in schema.names]
    for found in jsonl.read(
        path, schema, begin=only.begin, stop=only.stop, row=only.row, ignored=ignored
    ):
        refused = found.refused
        for at in range(0, max(len(found.rows), 1), rows):
            table = found.table.slice(at, rows)
            yield jsonl.Lines(table, found.rows[at : at + rows], refused)
            refused = ()


def _by_replica(piece: jsonl.Lines, path: Path) -> Iterator[Chunk]:
    """One chunk for each name, by first appearance; a row without a name is refused."""
    names = pc.cast(piece.table.column(REPLICA), pa.string()).combine_chunks()
    nameless = np.flatnonzero(~valid(names))
    refused = [*piece.refused]
    for at, row in zip(nameless, take(piece.table, nameless).to_pylist(), strict=True):
        reason = f"column '{REPLICA}' is null, expected the name of a copy"
        refused.append(RefusedLine(int(piece.rows[at]), reason, str(row)))
    if refused:
        refused.sort(key=lambda line: line.row)
        yield Chunk(None, path, piece.table.slice(0, 0), piece.rows[:0], tuple(refused))
    encoded = names.drop_null().dictionary_encode()
    which = np.flatnonzero(valid(names))
    codes = numbers(encoded.indices, np.dtype(np.int32))
    for code, name in enumerate(encoded.dictionary.to_pylist()):
        rows = which[codes == code]
        yield Chunk(name, path, take(piece.table, rows), piece.rows[rows])
