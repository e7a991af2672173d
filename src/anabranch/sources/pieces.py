"""A file of elements in pieces, so that no trigger reads more bytes than its limit.

A piece of a Parquet file is a range of its row groups, one of a file of lines a range of bytes
that ends with a line.  Sizes are those of the rows when they are read, before Parquet's
compression.  A row group that is larger than the limit is a piece by itself.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from anabranch.batch.schema import START
from anabranch.batch.times import instant_units
from anabranch.sources.files import Format, file_format


@dataclass(frozen=True)
class FilePiece:
    """Rows of a file from number `row` on: row groups or bytes `begin` to before `stop`.

    `until` is the greatest start in it, or one of its last; None: not known without reading.
    """

    begin: int
    stop: int
    row: int
    size: int
    until: int | None = None


def pieces_of(file: Path, limit: int, start: str = START) -> tuple[FilePiece, ...]:
    """The pieces of a file, of at most `limit` bytes where that can be.

    `start` is the column with the starts.
    A file that cannot be read is one piece: whoever reads it reports why.
    """
    try:
        if file_format(file) is Format.PARQUET:
            return tuple(_of_parquet(file, limit, start))
        return tuple(_of_lines(file, limit, start))
    except (pa.ArrowException, OSError):
        return (FilePiece(0, -1, 1, 0),)


def _of_parquet(file: Path, limit: int, start: str) -> Iterator[FilePiece]:
    metadata = pq.read_metadata(file)
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    begin, row, size, rows = 0, 1, 0, 0
    untils: list[int] = []
    for number, group in enumerate(groups):
        if number > begin and size + group.total_byte_size > limit:
            yield FilePiece(begin, number, row, size, max(untils, default=None))
            begin, row, size, rows, untils = number, row + rows, 0, 0, []
        size, rows = size + group.total_byte_size, rows + group.num_rows
        untils += [until for until in [_greatest(group, start)] if until is not None]
    yield FilePiece(begin, len(groups), row, size, max(untils, default=None))


def _greatest(group: Any, start: str) -> int | None:
    for number in range(group.num_columns):
        column = group.column(number)
        if column.path_in_schema == start and column.statistics is not None:
            return _units(column.statistics.max)
    return None


def _of_lines(file: Path, limit: int, start: str) -> Iterator[FilePiece]:
    begin, row = 0, 1
    with file.open("rb") as lines:
        while data := lines.read(limit):
            data += lines.readline()  # to the end of a line
            stop = begin + len(data)
            yield FilePiece(begin, stop, row, len(data), _last_start(data, start))
            begin, row = stop, row + data.count(b"\n")


def _last_start(data: bytes, start: str) -> int | None:
    """The start in the last line that has one; stables and broken lines may have none."""
    for line in reversed(data.rsplit(b"\n", 5)[-5:]):
        try:
            found = json.loads(line)[start]
            return _units(datetime.fromisoformat(found) if isinstance(found, str) else found)
        except (ValueError, TypeError, KeyError):
            continue
    return None


def _units(value: Any) -> int | None:
    if isinstance(value, datetime):
        return instant_units(value)
    return value if isinstance(value, int) else None
