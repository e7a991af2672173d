"""Only committed files of an output count: by trigger folder, or by the log of Spark's sink."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anabranch.errors import FileError
from anabranch.sources.files import Layout, look


def write(file: Path) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    rows = {"kind": ["insert"], "start": [1], "end": [5], "seq": [1], "a": ["x"]}
    pq.write_table(pa.table(rows), file)
    return file


def output(folder: Path) -> Path:
    for name in ("elements", "late", "violations", "progress"):
        (folder / name).mkdir(parents=True)
    (folder / "_run.json").write_text("{}")
    return folder / "elements"


def trigger(elements: Path, number: int, *, committed: bool = True) -> Path:
    folder = elements / f"trigger-{number:012d}"
    write(folder / "part-0.parquet")
    if committed:
        (folder / "_SUCCESS").touch()
    return folder


def test_a_trigger_counts_once_spark_has_committed_it(tmp_path):
    elements = output(tmp_path / "out")
    for number in (10, 2):
        trigger(elements, number)
    trigger(elements, 11, committed=False)
    found = look(tmp_path / "out")
    assert found.layout is Layout.OUTPUT
    assert [file.parent.name[-2:] for file in found.files] == ["02", "10"]
    assert look(elements).files == found.files


def test_an_output_without_a_committed_trigger_holds_no_data(tmp_path):
    trigger(output(tmp_path / "out"), 1, committed=False)
    with pytest.raises(FileError, match="trigger that Spark has committed"):
        look(tmp_path / "out")


def log(folder: Path, name: str, *entries: tuple[str, str]) -> None:
    rows = [
        {"path": f"file:///old%20place/{file}", "action": action} for file, action in entries
    ]
    lines = ["v1", *(json.dumps(row) for row in rows)]
    (folder / "_spark_metadata").mkdir(exist_ok=True)
    (folder / "_spark_metadata" / name).write_text("\n".join(lines))


def test_only_files_in_the_log_of_sparks_sink_count(tmp_path):
    for name in ("a", "b", "c", "d", "orphan"):
        write(tmp_path / f"{name}.parquet")
    log(tmp_path, "0", ("gone.parquet", "add"))
    log(tmp_path, "1.compact", ("b.parquet", "add"), ("a.parquet", "add"))
    log(tmp_path, "2", ("c.parquet", "add"), ("d.parquet", "add"))
    log(tmp_path, "10", ("c.parquet", "delete"))
    (tmp_path / "_spark_metadata" / ".2.crc").touch()
    found = look(tmp_path)
    assert found.layout is Layout.OUTPUT
    assert sorted(file.name for file in found.files) == ["a.parquet", "b.parquet", "d.parquet"]


def test_a_file_that_the_log_lists_must_be_there(tmp_path):
    log(tmp_path, "0", ("gone.parquet", "add"))
    with pytest.raises(FileError, match=r"gone\.parquet.*damaged"):
        look(tmp_path)


@pytest.mark.parametrize("text", ["", "v2\n", "v1\nno json", 'v1\n{"path": "x"}', "v1\n[]"])
def test_a_log_that_is_none_is_named(tmp_path, text):
    write(tmp_path / "a.parquet")
    (tmp_path / "_spark_metadata").mkdir()
    (tmp_path / "_spark_metadata" / "0").write_text(text)
    with pytest.raises(FileError, match=r"_spark_metadata/0: expected a sink log"):
        look(tmp_path)
