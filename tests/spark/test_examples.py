"""The examples run and print what they promise."""

import runpy
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.spark

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_merge_dataframes(spark: Any, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLES / "merge_dataframes.py"), run_name="__main__")
    printed = capsys.readouterr().out
    assert "|insert|3    |7  " in printed
    assert "|3    |7  |7     |" in printed
    assert "adjusts an event that its replica does not have" in printed


def test_first_merge(spark: Any, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLES / "first_merge.py"), run_name="__main__")
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in capsys.readouterr().out.splitlines()
        if line.startswith("|")
    ]
    assert rows == [
        ["kind", "start", "end", "old_end", "sensor", "state"],
        ["insert", "3", "9", "NULL", "7", "hot"],
        ["stable", "5", "NULL", "NULL", "NULL", "NULL"],
        ["adjust", "3", "7", "9", "7", "hot"],
        ["stable", "8", "NULL", "NULL", "NULL", "NULL"],
    ]


def test_windows_like_streambase(spark: Any, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLES / "windows_like_streambase.py"), run_name="__main__")
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in capsys.readouterr().out.splitlines()
        if line.startswith("|")
    ]
    assert [float(row[2]) for row in rows[1:8]] == [10, 15, 15, 15, 15, 20, 30]
    assert rows[8:] == [
        ["time", "given", "reason"],
        ["29", "99.0", "earlier than what was there"],
    ]
