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


def tables(printed: str) -> list[list[str]]:
    """The cells of the tables that a program printed, heads included."""
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in printed.splitlines()
        if line.startswith("|")
    ]


def test_cpu_per_process_corrects_averages_when_a_switch_comes_late(
    spark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    runpy.run_path(str(EXAMPLES / "cpu_per_process.py"), run_name="__main__")
    rows = tables(capsys.readouterr().out)
    head = rows.index(["start", "end", "process", "cpu"])
    changes = [[row[0], *row[2:]] for row in rows[1:head]]
    assert ["insert", "0", "40", "editor", "20.0"] in changes
    assert ["update_postimage", "0", "20", "editor", "20.0"] in changes
    assert ["delete", "60", "100", "editor", "60.0"] in changes
    assert rows[head + 1 :] == [
        ["0", "20", "editor", "20.0"],
        ["20", "40", "editor", "30.0"],
        ["40", "60", "editor", "40.0"],
        ["60", "80", "editor", "50.0"],
        ["80", "100", "editor", "60.0"],
        ["5", "65", "shell", "10.0"],
    ]


@pytest.mark.deep
def test_each_query_is_right_at_its_own_level_of_consistency(
    spark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    runpy.run_path(str(EXAMPLES / "levels_of_consistency.py"), run_name="__main__")
    found: dict[tuple[str, str], list[int]] = {}
    for line in capsys.readouterr().out.splitlines()[1:]:
        if not line.startswith("  "):
            title = line.split()[0]
            continue
        numbers = line[16:].replace(",", "").split()
        found[title, line[2:16].strip()] = [int(one) for one in numbers]
    answers, corrected, wrong, latency, late, state = range(6)
    strong, middle, weak = (found["machines", name] for name in ("strong", "middle", "weak"))
    assert (strong[answers], strong[corrected], strong[wrong]) == (2, 0, 0), "no false alarm"
    assert middle[corrected] > 0 == middle[wrong]
    assert strong[latency] > middle[latency]
    assert weak[wrong] > 0 < weak[late]
    middle, weak = (found["visits", name] for name in ("middle", "weak"))
    assert weak[state] < middle[state]
    assert (middle[late], middle[wrong]) == (0, 0)
    assert weak[late] > 0
    middle = found["trades", "middle-72h"]
    strong, weak = found["trades", "strong"], found["trades", "weak"]
    assert middle[corrected] > 0 == middle[wrong] == middle[late]
    assert strong[corrected] == strong[wrong] == 0
    assert strong[latency] > middle[latency] + 48
    assert weak[wrong] > 0


def test_heat_per_sensor_replaces_windows_until_they_are_final(
    spark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    runpy.run_path(str(EXAMPLES / "heat_per_sensor.py"), run_name="__main__")
    rows = tables(capsys.readouterr().out)
    final = rows.index(["start", "end", "sensor", "n", "heat"])
    late = rows.index(["start", "sensor", "heat", "bucket"])
    values = [(row[0], row[-1]) for row in rows[1:final] if "12:01:00" in row[2]]
    assert values == [("insert", "23.0"), ("delete", "23.0"), ("insert", "26.0")]
    assert [row[3:] for row in rows[final + 1 : late]] == [
        ["1", "20.0"],
        ["3", "26.0"],
        ["2", "29.0"],
        ["1", "24.0"],
    ]
    assert rows[late + 1 :] == [["2026-11-18 12:00:20", "roof", "99.0", "late"]]
