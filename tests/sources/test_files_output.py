"""Only files of committed triggers of an output count."""

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


def test_a_trigger_counts_once_it_is_committed(tmp_path):
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
    with pytest.raises(FileError, match="committed trigger"):
        look(tmp_path / "out")


def test_a_folder_of_sparks_own_sink_is_refused_by_name(tmp_path):
    write(tmp_path / "orphan.parquet")
    (tmp_path / "_spark_metadata").mkdir()
    with pytest.raises(FileError, match=r"Spark's file sink.*_spark_metadata"):
        look(tmp_path)
