"""A failure inside Spark comes back as what it was, or as a RunError that names Spark's log."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from anabranch.errors import FileError, RunError, SchemaError, ViolationError
from anabranch.spark.run import ending
from anabranch.spark.run.ending import explain, has_left

WORKER = """[STREAM_FAILED] Query [id = 1] terminated with exception: An exception was thrown
from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "/x/lanes.py", line 97, in pack_file
    raise ViolationError(message)
anabranch.errors.ViolationError: x/1.parquet: row 1: kind is 'upsert' (--strict stops here)

 SQLSTATE: XXKST"""


def test_an_error_of_ours_in_a_worker_is_itself_again() -> None:
    found = explain(RuntimeError(WORKER))
    assert isinstance(found, ViolationError)
    assert str(found) == "x/1.parquet: row 1: kind is 'upsert' (--strict stops here)"


def test_an_error_of_ours_is_left_alone() -> None:
    error = FileError("gone")
    assert explain(error) is error


def test_a_message_of_several_lines_becomes_one() -> None:
    text = "anabranch.errors.SchemaError: a\n  b c SQLSTATE: X"
    found = explain(ValueError(text))
    assert isinstance(found, SchemaError)
    assert str(found) == "a b c"


@pytest.mark.parametrize("text", ["boom\nmore", "anabranch.errors.NoSuchError: boom"])
def test_anything_else_is_a_run_error_that_names_the_log(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ending, "log_file", lambda: tmp_path / "spark.log")
    found = explain(ValueError(text))
    assert isinstance(found, RunError)
    assert "boom" in str(found)
    assert found.exit_code == 3


def test_the_log_is_named_if_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ending, "log_file", lambda: tmp_path / "spark.log")
    assert str(tmp_path / "spark.log") in str(explain(ValueError("boom")))
    monkeypatch.setattr(ending, "log_file", lambda: None)
    assert "log" not in str(explain(ValueError("boom")))


def test_a_python_that_a_worker_does_not_have_is_named_with_the_setting() -> None:
    text = 'Job aborted\njava.io.IOException: Cannot run program "/x/bin/python3.11": error=2'
    found = str(explain(ValueError(text)))
    assert "cannot run /x/bin/python3.11: set PYSPARK_PYTHON" in found


@pytest.mark.parametrize(
    ("latest", "left"),
    [(None, False), ("None", False), ("null", False), ('{"t": 5}', False), ('{"t": 6}', True)],
)
def test_a_source_that_reports_no_offset_has_left_nothing(
    latest: str | None, left: bool
) -> None:
    """PySpark writes an offset that is not there as text."""
    source = SimpleNamespace(latestOffset=latest, endOffset='{"t": 5}')
    query = SimpleNamespace(lastProgress=SimpleNamespace(sources=[source]))
    assert has_left(query) is left  # type: ignore[arg-type]
