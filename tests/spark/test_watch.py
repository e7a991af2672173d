"""`anabranch merge --watch`: new files and new replicas while it runs, Ctrl-C, and going on."""

import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from merge_place import Place

from anabranch.cli import clean

pytestmark = pytest.mark.spark


def require_removable(spark: Any, place: Place, later: list[Path]) -> None:
    """Files of the first trigger may go; those of the last stay, and a restart misses none."""
    first = [file for file in place.inbox.glob("*/*.parquet") if file not in later]
    words = ["--inbox", place.inbox, "--checkpoint", place.checkpoint, "--yes"]
    CliRunner().invoke(clean.command, list(map(str, words)), catch_exceptions=False)
    assert first
    assert not any(file.exists() for file in first)
    assert all(file.exists() for file in later[len(later) // 2 :])
    place.merge(spark, lanes=None)
    assert place.check().ok


def test_watch_takes_new_files_and_stops_at_an_interrupt(
    spark: Any, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    place = Place(tmp_path)
    place.generate(events=400, file_rows=100)
    later = sorted(place.inbox.glob("*/part-0000[2-9]*"))
    for file in later:
        aside = place.root / "aside" / file.parent.name / file.name
        aside.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(file, aside)
    words = [place.inbox, "--watch", "--output", place.output, "--checkpoint", place.checkpoint]
    process = subprocess.Popen(
        [sys.executable, "-m", "anabranch", "merge", *map(str, words), "--master", "local[2]"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    request.addfinalizer(process.kill)
    assert process.stderr is not None
    assert process.stderr.readline().startswith("Spark ")
    assert process.stderr.readline().startswith("trigger 1: ")
    for file in later[: len(later) // 2]:
        shutil.move(place.root / "aside" / file.parent.name / file.name, file)
    assert process.stderr.readline().startswith("trigger 2: ")
    process.send_signal(signal.SIGINT)
    printed, _ = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "buckets add up" in printed
    assert place.check(until_frontier=True).ok
    for file in later[len(later) // 2 :]:
        shutil.move(place.root / "aside" / file.parent.name / file.name, file)
    totals = place.merge(spark, lanes=None)
    assert totals.adds_up
    assert place.check().ok
    # Spark has moved the entries of the first trigger away; the restart has compacted them.
    assert (place.checkpoint / "control.json").exists()
    require_removable(spark, place, later)
