"""Pieces of a file: each row in exactly one of them, none larger than need be."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.sources.elements import read_file
from anabranch.sources.pieces import FilePiece, pieces_of

SCHEMA = pa.schema(
    {"kind": pa.string(), "start": pa.int64(), "end": pa.int64(), "name": pa.string()}
)


def rows_of(count: int) -> list[dict[str, object]]:
    return [
        {"kind": "insert", "start": at, "end": at + 5, "name": "x" * (at % 7)}
        for at in range(count)
    ]


def write(file: Path, rows: list[dict[str, object]], group: int) -> None:
    if file.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), file, row_group_size=group)
    else:
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))


@given(
    suffix=st.sampled_from([".parquet", ".jsonl"]),
    count=st.integers(0, 60),
    group=st.integers(1, 20),
    limit=st.integers(1, 3000),
)
def test_pieces_are_the_file(suffix: str, count: int, group: int, limit: int) -> None:
    with TemporaryDirectory() as name:
        file, rows = Path(name, f"part{suffix}"), rows_of(count)
        write(file, rows, group)
        pieces = pieces_of(file, limit)
        read, numbers = [], []
        for piece in pieces:
            for chunk in read_file(file, SCHEMA, replica="x", only=piece):
                read += chunk.table.to_pylist()
                numbers += chunk.rows.tolist()
        assert read == rows
        assert numbers == list(range(1, count + 1))
        untils = [piece.until for piece in pieces]
        assert untils == sorted(untils, key=lambda until: -1 if until is None else until)
        assert not rows or untils[-1] == count - 1
        for piece in pieces:
            is_alone = piece.stop - piece.begin == 1 or suffix == ".jsonl"
            assert piece.size <= limit or is_alone


def test_a_line_is_never_cut(tmp_path: Path) -> None:
    file = tmp_path / "part.jsonl"
    write(file, rows_of(3), 1)
    size = file.stat().st_size
    assert pieces_of(file, 1) != pieces_of(file, size)
    assert len(pieces_of(file, 1)) == 3
    assert pieces_of(file, size) == (FilePiece(0, size, 1, size, 2),)


def test_times_of_pieces_are_units(tmp_path: Path) -> None:
    file = tmp_path / "part.jsonl"
    file.write_text('{"kind": "insert", "start": "1970-01-01T00:00:01Z"}\n{"kind": "stable"}\n')
    assert pieces_of(file, 1000)[0].until == 1_000_000
    times = pa.table({"start": pa.array([3, 9], pa.timestamp("us", tz="UTC"))})
    pq.write_table(times, tmp_path / "part.parquet")
    assert pieces_of(tmp_path / "part.parquet", 1000)[0].until == 9


@pytest.mark.parametrize("name", ["broken.parquet", "gone.parquet"])
def test_a_file_that_cannot_be_read_is_one_piece(tmp_path: Path, name: str) -> None:
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 this is no Parquet file")
    assert pieces_of(tmp_path / name, 10) == (FilePiece(0, -1, 1, 0),)
