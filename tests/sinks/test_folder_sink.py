"""A folder sink: nothing is visible before its commit, a repeated trigger replaces itself."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anabranch.errors import FileError
from anabranch.sinks.contract import Sink
from anabranch.sinks.folder import FolderSink, is_complete, stage, trigger_name
from anabranch.sinks.function import FunctionSink
from anabranch.sources.commits import committed


def table(*numbers: int) -> pa.Table:
    return pa.table({"kind": ["insert"] * len(numbers), "n": list(numbers)})


def rows(folder: Path) -> list[int]:
    tables = [pq.read_table(file) for file in committed(folder)] if folder.exists() else []
    return [n for one in tables for n in one["n"].to_pylist()]


def put(sink: FolderSink, trigger: int, *numbers: int) -> None:
    files = {stage(sink.folder, [table(n)]): lane for lane, n in enumerate(numbers)}
    sink.write(trigger, None, files)


def test_rows_are_visible_after_the_commit_and_each_trigger_once(tmp_path: Path) -> None:
    sink = FolderSink(str(tmp_path / "out"))
    sink.open("run")
    put(sink, 7, 1, 2)
    assert rows(tmp_path / "out") == []
    sink.commit(7)
    assert rows(tmp_path / "out") == [1, 2]
    put(sink, 7, 3)  # the trigger is repeated
    assert rows(tmp_path / "out") == [1, 2]
    sink.commit(7)
    sink.committed(7)
    assert rows(tmp_path / "out") == [3]


def test_a_trigger_without_rows_commits_nothing(tmp_path: Path) -> None:
    sink = FolderSink(str(tmp_path))
    sink.open("run")
    sink.commit(0)
    assert not is_complete(tmp_path / trigger_name(0))


def test_what_an_aborted_start_staged_is_never_read(tmp_path: Path) -> None:
    sink = FolderSink(str(tmp_path))
    put(sink, 3, 1)
    stage(sink.folder, [table(2)])
    sink.open("run")
    sink.commit(3)
    assert rows(tmp_path) == []
    assert [path.name for path in tmp_path.iterdir()] == []


def test_a_staged_file_that_the_driver_does_not_see_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="not on a disk that all machines share"):
        FolderSink(str(tmp_path)).write(1, None, {".elsewhere.parquet": 0})


def test_both_are_sinks_and_a_plain_function_is_none(tmp_path: Path) -> None:
    calls: list[tuple[object, int]] = []
    sink = FunctionSink(lambda rows, trigger: calls.append((rows, trigger)))
    assert isinstance(sink, Sink)
    assert isinstance(FolderSink(str(tmp_path)), Sink)
    assert not isinstance(calls.append, Sink)
    sink.write(4, "rows", {})
    sink.commit(4)
    assert calls == [("rows", 4)]
