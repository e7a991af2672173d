"""`anabranch generate` as people call it."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from anabranch.cli.generate import command
from anabranch.errors import UsageError


def run(*arguments: object) -> str:
    result = CliRunner().invoke(command, [str(a) for a in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_table_shows_what_was_written(tmp_path: Path) -> None:
    text = run(tmp_path / "in", "--events", 100, "--names", "east,west,north")
    for word in ("east", "west", "north", "elements", "stables", "bytes", "100 events"):
        assert word in text
    assert "cheapest merge case: r3" in text
    assert (tmp_path / "in" / "east" / "part-00000.parquet").exists()


@pytest.mark.parametrize("case", ["r0", "r1", "r2", "r3", "r4"])
def test_json_has_the_same_for_machines(tmp_path: Path, case: str) -> None:
    out, truth = tmp_path / "in", tmp_path / "truth"
    options = ("--case", case, "--events", 300, "--file-rows", 100, "--seed", 5)
    report = json.loads(run(out, *options, "--reference", truth, "--json"))
    assert report["case"] == case
    assert report["seed"] == 5
    assert report["interrupted"] is False
    assert [replica["name"] for replica in report["replicas"]] == ["r0", "r1", "r2"]
    for replica in report["replicas"]:
        files = sorted((out / replica["name"]).glob("part-*"))
        assert len(files) == replica["files"]
        assert sum(pq.read_metadata(file).num_rows for file in files) == replica["elements"]
    assert pq.read_table(truth).num_rows == 300


def test_times_may_be_timestamps_and_durations_text(tmp_path: Path) -> None:
    options = ("--time", "timestamp", "--duration", "10 minutes", "--max-gap", "1 second")
    run(tmp_path / "in", "--case", "r0", *options, "--reference", tmp_path / "truth")
    first = pq.read_table(tmp_path / "truth").slice(0, 1).to_pylist()[0]
    assert first["start"].isoformat() == "2026-01-01T00:00:00+00:00"
    assert (first["end"] - first["start"]).total_seconds() == 600


def test_open_streams_do_not_end(tmp_path: Path) -> None:
    run(tmp_path / "a", "--events", 50, "--open")
    run(tmp_path / "b", "--events", 50)
    kinds = {}
    for name in ("a", "b"):
        table = pq.read_table(tmp_path / name / "r0" / "part-00000.parquet")
        ends = [
            row for row in table.to_pylist() if row["kind"] == "stable" and row["start"] is None
        ]
        kinds[name] = len(ends)
    assert kinds == {"a": 0, "b": 1}


def test_json_lines(tmp_path: Path) -> None:
    run(tmp_path / "in", "--events", 20, "--format", "jsonl")
    lines = (tmp_path / "in" / "r1" / "part-00000.jsonl").read_text().splitlines()
    assert json.loads(lines[-1])["kind"] == "stable"


def test_live_shows_on_stderr_what_appears(tmp_path: Path) -> None:
    options = ("--events", 50, "--rate", 100_000, "--file-rows", 30)
    disturbed = ("--lag", 0.01, "--burst", 0.1, "--silence", "r1:0.2:0.5")
    result = CliRunner().invoke(
        command, [str(tmp_path / "in"), *map(str, options), *map(str, disturbed), "--json"]
    )
    assert result.exit_code == 0
    report = json.loads(result.stdout)
    assert result.stderr.count("elements") == sum(line["files"] for line in report["replicas"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--case", "r0", "--disorder", "0.2"), "--case r0 and --disorder 0.2"),
        (("--case", "r0", "--revisions", "0.2"), "--case r0 and --revisions 0.2"),
        (("--lag", "1"), "--lag is for the live mode; give --rate"),
        (("--silence", "r0:0:1"), "--silence is for the live mode"),
        (("--rate", "9", "--silence", "r0"), "expected NAME:FROM:TO"),
        (("--rate", "9", "--silence", "r0:a:b"), "expected NAME:FROM:TO"),
        (("--rate", "9", "--silence", "r9:0:1"), "no replica 'r9'; there are r0, r1, r2"),
        (("--rate", "nan"), "--rate is nan"),
        (("--max-gap", "20 seconds"), "--max-gap '20 seconds': for bigint times"),
        (("--time", "timestamp", "--duration", "1 month"), "--duration '1 month'"),
        (("--names", "a,b"), "--names has 2 names"),
    ],
)
def test_bad_use_names_the_options_and_writes_nothing(
    tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    with pytest.raises(UsageError) as caught:
        CliRunner().invoke(command, [str(tmp_path / "in"), *arguments], catch_exceptions=False)
    assert message in str(caught.value)
    assert caught.value.exit_code == 2
    assert not (tmp_path / "in").exists()


def test_an_interrupt_ends_cleanly(tmp_path: Path) -> None:
    # A shell starts background jobs with interrupts ignored, and children inherit that.
    listen = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    program = listen + "from anabranch.cli.main import main; main()"
    arguments = ["generate", str(tmp_path / "in"), "--rate", "200", "--json"]
    process = subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        text=True,
    )
    assert process.stderr is not None
    assert "part-00000" in process.stderr.readline()  # the first file is there: interrupt now
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    stdout, _ = process.communicate(timeout=30)
    assert process.returncode == 130
    report = json.loads(stdout)
    assert report["interrupted"] is True
    files = list((tmp_path / "in").rglob("part-*"))
    assert len(files) == sum(line["files"] for line in report["replicas"]) > 0
    assert not list((tmp_path / "in").rglob(".*"))


def test_help_needs_no_arrays() -> None:
    program = (
        "import sys; from anabranch.cli.generate import command; "
        "sys.exit(bool({'numpy', 'pyarrow', 'pyspark', 'rich'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "generate.md"
INTERNALS = Path(__file__).parents[2] / "docs" / "internals" / "generator.md"


def test_the_python_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (block,) = re.findall(r"```python\n(.*?)```", INTERNALS.read_text(), re.DOTALL)
    names: dict[str, object] = {}
    exec(block, names)  # the guide is ours, and this is what a reader would do with it
    assert names["truth"].num_rows == 1_000  # type: ignore[attr-defined]
    assert (tmp_path / "from-python" / "b" / "part-00000.parquet").exists()


def test_the_guide_names_every_option() -> None:
    named = set(re.findall(r"--[a-z][a-z-]*", GUIDE.read_text()))
    options = {name for parameter in command.params for name in parameter.opts}
    assert {name for name in options if name.startswith("--")} == named
