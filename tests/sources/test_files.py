"""What a path holds, and the error of a path that holds something else."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anabranch.batch.schema import TimeType
from anabranch.errors import FileError, InputError, SchemaError
from anabranch.sources.files import Format, Layout, look
from anabranch.sources.notes import ReplicaNote

ROWS = {"kind": ["insert"], "start": [1], "end": [5], "a": ["x"]}


def write(file: Path, rows: dict[str, list] | pa.Table = ROWS) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows if isinstance(rows, pa.Table) else pa.table(rows), file)
    return file


def test_a_folder_of_element_files_is_a_stream_in_name_order(tmp_path):
    for name in ("b.parquet", "a.parquet", "_skipped.parquet", ".hidden.parquet"):
        write(tmp_path / name)
    found = look(tmp_path)
    assert (found.layout, found.format, found.rows) == (Layout.STREAM, Format.PARQUET, 2)
    assert [file.name for file in found.files] == ["a.parquet", "b.parquet"]
    assert found.payload.names == ["a"]
    assert found.time is TimeType.BIGINT


def test_a_single_file_is_a_stream(tmp_path):
    file = write(tmp_path / "one.parquet")
    assert (look(file).layout, look(file).files) == (Layout.STREAM, (file,))


def test_files_without_kind_are_a_reference_history(tmp_path):
    write(tmp_path / "a.parquet", {"start": [1], "end": [None], "a": ["x"]})
    assert look(tmp_path).layout is Layout.REFERENCE


def test_timestamps_are_distinguished_from_numbers_in_a_reference_too(tmp_path):
    start = pa.array([1], pa.timestamp("ms"))
    write(tmp_path / "a.parquet", pa.table({"start": start, "end": start, "a": ["x"]}))
    assert look(tmp_path).time is TimeType.TIMESTAMP


def test_an_inbox_has_one_folder_per_replica_with_its_note(tmp_path):
    write(tmp_path / "west" / "a.parquet")
    write(tmp_path / "east" / "a.parquet")
    (tmp_path / "north").mkdir()
    (tmp_path / "_tmp").mkdir()
    note = {"guarantee": 7, "attachment": 2, "properties": {"ordered": True}}
    (tmp_path / "east" / "_replica.json").write_text(json.dumps(note))
    (tmp_path / "west" / "_detached").touch()
    found = look(tmp_path)
    assert found.layout is Layout.INBOX
    assert [replica.name for replica in found.replicas] == ["east", "north", "west"]
    assert found.replicas[0].note == ReplicaNote(7, 2, {"ordered": True}, TimeType.BIGINT)
    assert [replica.detached for replica in found.replicas] == [False, False, True]
    assert found.replicas[1].files == ()


def test_an_iso_guarantee_is_read_in_microseconds(tmp_path):
    start = pa.array([1], pa.timestamp("us", tz="UTC"))
    write(
        tmp_path / "r" / "a.parquet",
        pa.table({"kind": ["stable"], "start": start, "end": start}),
    )
    (tmp_path / "r" / "_replica.json").write_text('{"guarantee": "1970-01-01T00:00:01Z"}')
    note = look(tmp_path).replicas[0].note
    assert note == ReplicaNote(1_000_000, 0, {}, TimeType.TIMESTAMP)


@pytest.mark.parametrize(
    "note",
    [
        "{",
        "[]",
        '{"attachment": -1}',
        '{"attachment": true}',
        '{"properties": []}',
        '{"guarantee": "noon"}',
        '{"guarantee": "2024-01-01T00:00:00"}',
        '{"guarantee": 1.5}',
        '{"garantee": 1}',
        '{"guarantee": "2024-01-01T00:00:00Z"}',
    ],
)
def test_a_wrong_note_is_refused_by_name(tmp_path, note):
    write(tmp_path / "r" / "a.parquet")
    (tmp_path / "r" / "_replica.json").write_text(note)
    with pytest.raises(InputError, match=r"_replica\.json"):
        look(tmp_path)


def test_the_same_values_in_other_physical_types_are_one_schema(tmp_path):
    write(tmp_path / "a.parquet", {**ROWS, "n": pa.array([1], pa.int32())})
    other = {**ROWS, "a": pa.array(["x"]).dictionary_encode(), "n": pa.array([1], pa.int64())}
    write(tmp_path / "b.parquet", {**other, "old_end": pa.array([None], pa.int64())})
    schema = look(tmp_path).schema
    assert (schema.field("a").type, schema.field("n").type) == (pa.string(), pa.int64())
    assert "old_end" in schema.names


def missing_path(folder: Path) -> None:
    folder.rmdir()


def empty_folder(folder: Path) -> None:
    (folder / "_SUCCESS").touch()


def empty_inbox(folder: Path) -> None:
    (folder / "east").mkdir()


def half_written(folder: Path) -> None:
    whole = write(folder / "part-1.parquet").read_bytes()
    (folder / "part-1.parquet").write_bytes(whole[: len(whole) // 2])


def zero_bytes(folder: Path) -> None:
    (folder / "part-1.parquet").touch()


def foreign_file(folder: Path) -> None:
    write(folder / "part-1.parquet")
    (folder / "readme.txt").write_text("hello")


def foreign_columns(folder: Path) -> None:
    write(folder / "part-1.parquet", {"x": [1]})


def no_end(folder: Path) -> None:
    write(folder / "part-1.parquet", {"kind": ["insert"], "start": [1]})


def missing_column(folder: Path) -> None:
    write(folder / "part-0.parquet")
    write(folder / "part-1.parquet", {k: v for k, v in ROWS.items() if k != "a"})


def missing_kind(folder: Path) -> None:
    write(folder / "part-0.parquet")
    write(folder / "part-1.parquet", {k: v for k, v in ROWS.items() if k != "kind"})


def wrong_type(folder: Path) -> None:
    write(folder / "part-1.parquet", {**ROWS, "start": ["1"], "end": ["2"]})


def other_type(folder: Path) -> None:
    write(folder / "part-0.parquet")
    write(folder / "part-1.parquet", {**ROWS, "a": [1]})


def mixed_time_types(folder: Path) -> None:
    write(folder / "part-0.parquet")
    instant = pa.array([1], pa.timestamp("us", tz="UTC"))
    write(folder / "part-1.parquet", {**ROWS, "start": instant, "end": instant})


def mixed_time_types_in_a_file(folder: Path) -> None:
    write(folder / "part-1.parquet", {**ROWS, "end": pa.array([1], pa.timestamp("us"))})


def kind_as_number(folder: Path) -> None:
    write(folder / "part-1.parquet", {**ROWS, "kind": [1]})


def map_payload(folder: Path) -> None:
    column = pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64()))
    write(folder / "part-1.parquet", {**ROWS, "a": column})


def mixed_formats(folder: Path) -> None:
    write(folder / "part-0.parquet")
    (folder / "part-1.jsonl").write_text("{}\n")


def files_beside_folders(folder: Path) -> None:
    write(folder / "part-0.parquet")
    write(folder / "east" / "part-0.parquet")


def folders_in_a_replica(folder: Path) -> None:
    write(folder / "east" / "day=1" / "part-0.parquet")


BAD = [
    # what is wrong, error, what the message must name (file, column, expected, remedy)
    (missing_path, FileError, ["in", "no such file or folder", "check the path"]),
    (empty_folder, FileError, ["in", "no data", "expected element files", "check the path"]),
    (empty_inbox, FileError, ["in", "no data", "at least one replica with element files"]),
    (half_written, FileError, ["part-1.parquet", "footer", "half-written", "rename"]),
    (zero_bytes, FileError, ["part-1.parquet", "footer", "half-written", "remove"]),
    (foreign_file, FileError, ["readme.txt", "not an element file", ".parquet", "move it"]),
    (foreign_columns, SchemaError, ["part-1.parquet", "'kind'", "['x']", "rename"]),
    (no_end, SchemaError, ["part-1.parquet", "'end'", "rename or add"]),
    (missing_column, SchemaError, ["part-1.parquet", "'a'", "part-0.parquet", "add it"]),
    (missing_kind, SchemaError, ["part-1.parquet", "'kind'", "part-0.parquet", "add it"]),
    (
        wrong_type,
        SchemaError,
        ["part-1.parquet", "'start'", "string", "expected bigint or timestamp", "cast"],
    ),
    (other_type, SchemaError, ["part-1.parquet", "'a'", "int64", "expected string", "cast"]),
    (mixed_time_types, SchemaError, ["part-1.parquet", "'start'", "expected int64", "cast"]),
    (mixed_time_types_in_a_file, SchemaError, ["part-1.parquet", "'end'", "timestamp", "cast"]),
    (
        kind_as_number,
        SchemaError,
        ["part-1.parquet", "'kind'", "int64", "expected string", "cast"],
    ),
    (map_payload, SchemaError, ["part-1.parquet", "'a'", "map", "array of structs"]),
    (mixed_formats, FileError, ["part-1.jsonl", "jsonl", "parquet", "one format", "move"]),
    (files_beside_folders, FileError, ["part-0.parquet", "east", "sub-folder", "move"]),
    (folders_in_a_replica, FileError, ["day=1", "INBOX/REPLICA", "move"]),
]


@pytest.mark.parametrize(("spoil", "error", "words"), BAD, ids=[row[0].__name__ for row in BAD])
def test_bad_input_is_named_before_any_row_is_read(tmp_path, spoil, error, words):
    folder = tmp_path / "in"
    folder.mkdir()
    spoil(folder)
    with pytest.raises(error) as caught:
        look(folder)
    assert [word for word in words if word not in str(caught.value)] == [], str(caught.value)
    assert caught.value.exit_code == 2


def test_a_column_that_is_there_twice_is_refused(tmp_path):
    columns = [pa.array([value]) for value in ("insert", 1, 5, "x", "y")]
    table = pa.Table.from_arrays(columns, names=["kind", "start", "end", "a", "a"])
    write(tmp_path / "a.parquet", table)
    with pytest.raises(SchemaError, match=r"'a'.*name of its own"):
        look(tmp_path)


def test_twins_in_a_reference_are_refused_too(tmp_path):
    columns = [pa.array([value]) for value in (1, 5, "x", "y")]
    table = pa.Table.from_arrays(columns, names=["start", "end", "a", "a"])
    write(tmp_path / "a.parquet", table)
    with pytest.raises(SchemaError, match=r"'a'.*name of its own"):
        look(tmp_path)


def test_an_inbox_of_reference_histories_is_none(tmp_path):
    write(tmp_path / "r" / "a.parquet", {"start": [1], "end": [2], "a": ["x"]})
    with pytest.raises(SchemaError, match="neither elements nor a reference"):
        look(tmp_path)
