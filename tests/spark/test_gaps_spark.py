"""Copies with gaps on Spark: batches of plain rows, an inbox, and a copy that falls behind."""

import json
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import sleep
from typing import Any

import pytest
from click.testing import CliRunner

import anabranch as ab
from anabranch.cli.main import cli

pytestmark = pytest.mark.spark

FIRST = datetime(2026, 1, 1, tzinfo=UTC)
ORDERS = [(FIRST + timedelta(seconds=i), f"order {i}") for i in range(400)]


def sides(rows: list[Any]) -> list[list[Any]]:
    """Two copies of these rows; each lacks a tenth of them."""
    rng = random.Random(1)
    return [[row for row in rows if rng.random() > 0.1] for _ in range(2)]


def test_plain_rows_of_two_copies_with_gaps_are_all_there(spark: Any) -> None:
    copies = sides(ORDERS)
    union = {row for copy in copies for row in copy}
    named = [
        ab.events(
            spark.createDataFrame(copy, "ts timestamp, id string"),
            start="ts",
            lifetime="1 minute",
            name=name,
        )
        for name, copy in zip(("east", "west"), copies, strict=True)
    ]
    merged = ab.merge(*named)
    assert "copies may have gaps" in merged.explanation
    assert sorted(row.id for row in merged.final().collect()) == sorted(id_ for _, id_ in union)
    assert merged.late().count() == 0
    leader_alone = ab.merge(*named, gaps=False)
    assert leader_alone.final().count() < len(union)


def write(folder: Path, number: int, lines: list[dict[str, Any]]) -> None:
    """One more file of a copy; it appears whole."""
    folder.mkdir(parents=True, exist_ok=True)
    beside = folder / f".{number}.jsonl"
    beside.write_text("".join(json.dumps(line) + "\n" for line in lines))
    beside.rename(folder / f"{number:06d}.jsonl")


def insert(start: int) -> dict[str, Any]:
    return {"kind": "insert", "start": start, "end": start + 5, "id": f"order {start}"}


def stable(at: int | None) -> dict[str, Any]:
    return {"kind": "stable", "start": at}


def test_the_command_counts_what_each_copy_lacks(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANABRANCH_MASTER", "local[2]")
    monkeypatch.setenv("ANABRANCH_DRIVER_MEMORY", "1g")
    copies = sides(list(range(200)))
    for name, copy in zip(("east", "west"), copies, strict=True):
        write(tmp_path / "in" / name, 0, [*map(insert, copy), stable(None)])
    words = ["merge", "in", "--once", "--output", "out", "--checkpoint", "ck"]
    monkeypatch.chdir(tmp_path)
    ran = CliRunner().invoke(cli, [*words, "--gaps", "--json"])
    assert ran.exit_code == 0, ran.output
    report = json.loads(ran.stdout.splitlines()[-1])
    east, west = (set(copy) for copy in copies)
    assert report["policy"] == "gaps=true"
    assert report["adds_up"] is True
    assert report["output"]["late"] == 0
    rows = ab.read_output(spark, tmp_path / "out", what="current")
    assert rows.count() == len(east | west)
    found = {name: (one["lacks"], one["alone"]) for name, one in report["replicas"].items()}
    only = len(east - west), len(west - east)
    assert found == {"east": (only[1], only[0]), "west": only}
    again = CliRunner().invoke(cli, words)
    assert f"east lacks {only[1]} events that other copies have" in again.output


def waited_for(condition: Callable[[], bool]) -> None:
    for _ in range(600):
        if condition():
            return
        sleep(0.2)


def test_a_copy_that_holds_the_output_back_is_passed_over(spark: Any, tmp_path: Path) -> None:
    inbox = tmp_path / "in"
    write(inbox / "east", 0, [insert(1), insert(20), stable(10)])
    write(inbox / "west", 0, [insert(2), stable(3)])
    merged = ab.merge(ab.inbox(inbox), gaps=True, wait_wall="2 seconds", lanes=1)
    query = merged.start(tmp_path / "ck", output=tmp_path / "out", interval="0.2 seconds")
    try:
        waited_for(lambda: query.totals.frontier == 10)
        assert query.totals.frontier == 10
        assert query.totals.replicas["west"].standing == "passed over"
        write(inbox / "west", 1, [insert(4), stable(12)])
        waited_for(lambda: query.totals.replicas["west"].rows == 4)
        assert query.totals.replicas["west"].buckets["late"] == 1
        assert query.totals.replicas["west"].standing in ("joined", "leader")
    finally:
        query.stop()
    assert query.totals.adds_up
