"""Of an output count published files, and the committed triggers that wait beside them."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anabranch.errors import FileError
from anabranch.sinks.published import Piece, tail_of
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


def published(elements: Path, first: int, last: int) -> Path:
    return write(elements / Piece(first, last, 1, 1, "abc").name)


def trigger(elements: Path, number: int, *, committed: bool = True) -> Path:
    word = "committed" if committed else "trigger"
    return write(tail_of(elements) / f"{word}-{number:012d}" / "lane-0.parquet")


def test_a_trigger_counts_once_it_is_committed(tmp_path):
    elements = output(tmp_path / "out")
    files = [published(elements, 0, 4), published(elements, 5, 9)]
    trigger(elements, 9)  # it was rolled
    files.append(trigger(elements, 10))
    trigger(elements, 11, committed=False)
    found = look(tmp_path / "out")
    assert found.layout is Layout.OUTPUT
    assert list(found.files) == files
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
