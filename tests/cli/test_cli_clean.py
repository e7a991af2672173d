"""Cleaning lists first, removes only when told, and keeps what a running process uses."""

import json
import os
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner

from anabranch.cli import clean
from anabranch.sinks.folder import stage
from anabranch.sinks.published import Ledger, missing
from anabranch.spark.query.prepare import Folders
from anabranch.spark.query.run_record import Run, write

GONE = 2**22 + 1  # above the largest process id of Linux and macOS


@pytest.fixture
def littered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    cache, temporary = tmp_path / "cache", tmp_path / "tmp"
    paths = {
        "home": cache / "java" / "17-abc" / "bin" / "java",
        "log": cache / "logs" / f"spark-20260101-000000-{GONE}.log",
        "own log": cache / "logs" / f"spark-20260101-000000-{os.getpid()}.log",
        "temporary": temporary / f"anabranch-demo-{GONE}-ab12" / "file",
        "own temporary": temporary / f"anabranch-demo-{os.getpid()}-cd34" / "file",
        "young": temporary / "anabranch-demo-x1y2" / "file",
        "foreign": temporary / "somebody" / "file",
    }
    for path in paths.values():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("12345")
    monkeypatch.setenv("ANABRANCH_CACHE_DIR", str(cache))
    monkeypatch.setattr(clean.tempfile, "gettempdir", lambda: str(temporary))
    return paths


def invoke(*arguments: str) -> str:
    return CliRunner().invoke(clean.command, list(arguments), catch_exceptions=False).stdout


def test_nothing_goes_without_yes(littered: dict[str, Path]) -> None:
    shown = invoke()
    assert "nothing was removed" in shown
    assert "17-abc" in shown
    assert all(path.exists() for path in littered.values())


def test_yes_removes_exactly_what_was_listed(littered: dict[str, Path]) -> None:
    told = json.loads(invoke("--json"))
    assert told["removed"] is False
    assert [(row["kind"], row["bytes"]) for row in told["leftovers"]] == [
        ("java home", 5),
        ("spark log", 5),
        ("temporary", 5),
    ]
    assert json.loads(invoke("--yes", "--json")) == {**told, "removed": True}
    left = {name for name, path in littered.items() if path.exists()}
    assert left == {"own log", "own temporary", "young", "foreign"}
    assert "nothing was left behind" in invoke()


def test_what_does_not_say_whose_it_is_goes_when_it_is_old(littered: dict[str, Path]) -> None:
    young = littered["young"].parent
    assert str(young) not in invoke()
    os.utime(young, (0, 0))
    assert str(young) in invoke("--yes")
    assert not young.exists()


def test_a_link_is_removed_and_not_followed(littered: dict[str, Path], tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("x")
    link = littered["home"].parents[2] / "link"
    link.symlink_to(outside)
    invoke("--yes")
    assert not link.is_symlink()
    assert (outside / "precious").exists()


def test_old_files_of_an_output_go_by_command_alone(tmp_path: Path) -> None:
    output, checkpoint = tmp_path / "out", tmp_path / "ck"
    run = Run("abcdefgh", 2, "r3", "bigint", ("n: int64",), ("east",), has_output=True)
    for folder in (output, checkpoint):
        write(run, folder)
    sink = Folders(run.run[:8], checkpoint, 0.0).sink(
        str(output / "elements"), "output-elements"
    )
    for trigger in (0, 1):
        sink.write(trigger, None, {stage(sink.folder, [pa.table({"n": [trigger]})]): 0})
        sink.commit(trigger)
        sink.committed(trigger)
    first, second = sorted(sink.place.iterdir())
    os.utime(first, (1, 1))
    asked = ("--output", str(output), "--checkpoint", str(checkpoint), "--older", "7 days")
    told = json.loads(invoke(*asked, "--json"))
    assert [row["path"] for row in told["leftovers"]] == [str(first)]
    assert first.exists()
    invoke(*asked, "--archive", str(tmp_path / "old"), "--yes")
    assert sorted(sink.place.iterdir()) == [second]
    assert [file.name for file in (tmp_path / "old" / "elements").iterdir()] == [first.name]
    ledger = Ledger.read(Path(str(sink.ledger)))
    assert ledger is not None
    assert missing(sink.place, ledger, 1) == []
    refused = CliRunner().invoke(clean.command, ["--output", str(output)])
    assert "needs --checkpoint" in refused.output
