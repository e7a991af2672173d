"""Rows in order and in pieces, with their place; one chunk per replica."""

import json
import pickle
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anabranch.errors import FileError, SchemaError
from anabranch.sources.elements import element_schema, read_file, scan
from anabranch.sources.files import look


def write(file: Path, starts: list[int], **more: list) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    count = len(starts)
    rows = {
        "kind": ["insert"] * count,
        "start": starts,
        "end": [None] * count,
        "a": ["x"] * count,
    }
    types = {"end": pa.int64()}
    columns = {name: pa.array(v, types.get(name)) for name, v in (rows | more).items()}
    pq.write_table(pa.table(columns), file)
    return file


def starts(chunks) -> list[list[int]]:
    return [chunk.table.column("start").to_pylist() for chunk in chunks]


def test_scan_goes_replica_by_replica_and_file_by_file(tmp_path):
    write(tmp_path / "west" / "a.parquet", [5])
    write(tmp_path / "east" / "b.parquet", [3, 4])
    write(tmp_path / "east" / "a.parquet", [1, 2])
    found = [*scan(look(tmp_path))]
    assert [(c.replica, c.file.name, c.first_row) for c in found] == [
        ("east", "a.parquet", 1),
        ("east", "b.parquet", 1),
        ("west", "a.parquet", 1),
    ]
    assert starts(found) == [[1, 2], [3, 4], [5]]
    assert starts(scan(look(tmp_path), replica="west")) == [[5]]


def test_a_file_is_read_in_pieces_that_know_their_rows(tmp_path):
    file = write(tmp_path / "a.parquet", [*range(10)])
    pieces = [*read_file(file, look(file).schema, rows=4)]
    assert [piece.rows.tolist() for piece in pieces] == [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10]]
    assert starts(pieces) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def test_json_lines_are_cut_into_pieces_too(tmp_path):
    file = tmp_path / "a.jsonl"
    file.write_text("{\n" + "".join(f'{{"kind": "insert", "start": {i}}}\n' for i in range(3)))
    pieces = [*read_file(file, look(file).schema, rows=2)]
    assert [piece.rows.tolist() for piece in pieces] == [[2, 3], [4]]
    assert [[line.row for line in piece.refused] for piece in pieces] == [[1], []]


def test_what_a_worker_needs_can_be_sent_to_it(tmp_path):
    file = write(tmp_path / "a.parquet", [1])
    arguments = pickle.loads(pickle.dumps((str(file), look(file).schema)))
    assert starts(read_file(*arguments)) == [[1]]


def test_a_replica_column_distinguishes_the_copies(tmp_path):
    write(tmp_path / "a.parquet", [1, 2, 3, 4], replica=["w", "e", None, "w"])
    found = [*scan(look(tmp_path))]
    named = {chunk.replica: chunk for chunk in found if len(chunk.rows)}
    assert {name: chunk.rows.tolist() for name, chunk in named.items()} == {
        "w": [1, 4],
        "e": [2],
    }
    refused = [line for chunk in found for line in chunk.refused]
    assert [(line.row, "'replica' is null" in line.reason) for line in refused] == [(3, True)]
    assert starts(scan(look(tmp_path), replica="e")) == [[2]]


def test_the_folder_of_an_inbox_names_the_replica_whatever_a_column_has(tmp_path):
    write(tmp_path / "east" / "a.parquet", [1], replica=["other"])
    assert [chunk.replica for chunk in scan(look(tmp_path))] == ["east"]


def test_all_files_have_the_columns_of_the_one_schema(tmp_path):
    write(tmp_path / "a.parquet", [1])
    write(tmp_path / "b.parquet", [2], old_end=[7])
    tables = [chunk.table for chunk in scan(look(tmp_path))]
    assert tables[0].schema == tables[1].schema
    assert tables[0].column("old_end").to_pylist() == [None]
    assert element_schema(look(tmp_path)).payload.names == ["a"]


def test_damage_behind_the_footer_names_the_file(tmp_path):
    file = write(tmp_path / "a.parquet", [*range(1000)])
    schema = look(file).schema
    whole = bytearray(file.read_bytes())
    whole[4:200] = b"\xff" * 196
    file.write_bytes(bytes(whole))
    with pytest.raises(FileError, match=r"a\.parquet: cannot be read to its end"):
        [*read_file(file, schema)]


def test_a_file_that_changed_after_the_look_is_an_error(tmp_path):
    file = write(tmp_path / "a.parquet", [1])
    schema = look(file).schema
    write(file, ["soon"])
    with pytest.raises(FileError, match=r"a\.parquet: column 'start'"):
        [*read_file(file, schema)]


@pytest.mark.parametrize("columns", [{"b": ["y"]}, {"b": ["y"], "a": ["x"]}])
def test_a_file_that_came_later_must_have_the_same_columns(tmp_path, columns):
    schema = look(write(tmp_path / "a.parquet", [1])).schema
    rows = {"kind": ["insert"], "start": [1], "end": [2], **columns}
    pq.write_table(pa.table(rows), tmp_path / "b.parquet")
    with pytest.raises(SchemaError, match=r"b\.parquet: (no|a) column '[ab]'"):
        [*read_file(tmp_path / "b.parquet", schema)]


def test_a_key_that_is_not_in_the_schema_is_never_dropped_silently(tmp_path):
    file = tmp_path / "a.jsonl"
    file.write_text('{"kind": "insert", "start": 1, "s": {"x": 1}}\n')
    schema = look(file).schema
    more = ['{"kind": "insert", "b": 1}', '{"kind": "insert", "s": {"y": 1}}']
    file.write_text(file.read_text() + "\n".join([*more, ""]))
    (chunk,) = read_file(file, schema)
    assert [(line.row, line.reason.split(" is ")[0]) for line in chunk.refused] == [
        (2, "column 'b'"),
        (3, "a field of a struct"),
    ]


def test_files_may_have_or_lack_the_columns_that_a_run_added_and_dropped(tmp_path):
    """`price` was added, `note` was dropped; any other column is still refused."""
    schema = pa.schema({"start": pa.int64(), "name": pa.string(), "price": pa.float64()})
    loose = ("price", "note")
    rows = [
        {"start": 1, "name": "a", "note": "x"},
        {"start": 2, "name": "b", "price": 2.5},
        {"start": 3, "name": "c", "note": 7},
    ]
    wanted = [{"start": r["start"], "name": r["name"], "price": r.get("price")} for r in rows]
    lines = tmp_path / "a.jsonl"
    lines.write_text("".join(f"{json.dumps(row)}\n" for row in [*rows, {"start": 4, "q": 1}]))
    chunks = [*read_file(lines, schema, loose=loose)]
    found = [row for chunk in chunks for row in chunk.table.to_pylist()]
    assert sorted(found, key=lambda row: row["start"]) == wanted
    (refused,) = [line for chunk in chunks for line in chunk.refused]
    assert refused.row == 4
    assert "column 'q' is not in the schema" in refused.reason
    parquet = tmp_path / "a.parquet"
    pq.write_table(pa.table({"start": [1], "name": ["a"], "note": ["x"]}), parquet)
    (chunk,) = read_file(parquet, schema, loose=loose)
    assert chunk.table.to_pylist() == wanted[:1]
    with pytest.raises(SchemaError, match="no column 'price'"):
        [*read_file(parquet, schema, loose=("note",))]
