"""One running query: totals that are kept, repeated triggers, sinks, and what a run keeps."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from test_dataframes_spark import EAST, PLAIN, TRUTH, WEST, frames_of, history, stream_of

import anabranch as ab
from anabranch.errors import UsageError, ViolationError
from anabranch.spark.checkpoint import run_record as runs
from anabranch.spark.run.prepare import prepare

pytestmark = pytest.mark.spark


def noted_sink(place: Path) -> Any:
    """A sink of a user: notes every call on disk, since it may run beside a server.

    Its class is local, so that it is pickled by value: a server cannot import this module.
    """

    @dataclass(frozen=True)
    class NotedSink:
        place: str
        folder: None = None

        def note(self, what: str, trigger: object) -> None:
            with Path(self.place).open("a") as file:
                file.write(f"{what} {trigger}\n")

        def open(self, run: str) -> None:
            self.note("open", run)

        def write(self, trigger: int, rows: Any, files: Any) -> None:
            assert not files
            self.note("write", f"{trigger} {rows.count()}")

        def commit(self, trigger: int) -> None:
            self.note("commit", trigger)

        def committed(self, trigger: int) -> None:
            self.note("committed", trigger)

        @property
        def notes(self) -> list[str]:
            return Path(self.place).read_text().splitlines()

    return NotedSink(str(place))


def forget_commit(checkpoint: Path) -> int:
    """As after a crash between the writing of the last trigger and Spark's note of it."""
    last = max(int(file.name) for file in checkpoint.glob("commits/[0-9]*"))
    (checkpoint / "commits" / str(last)).unlink()
    (checkpoint / "commits" / f".{last}.crc").unlink(missing_ok=True)
    return last


def test_a_repeated_trigger_counts_once_and_a_sink_is_notified(
    spark: Any, tmp_path: Path
) -> None:
    merged, sink = stream_of(spark, tmp_path), noted_sink(tmp_path / "notes")
    seen: list[tuple[int, int]] = []

    def start() -> Any:
        run = merged.start(
            tmp_path / "ck",
            elements=tmp_path / "out",
            final=sink,
            once=True,
            on_trigger=lambda totals: seen.append((totals.triggers, totals.rows)),
        )
        run.wait()
        return run

    run = start()
    rows = len(EAST) + len(WEST)
    assert run.totals is run.totals  # kept, and not read from disk again
    assert [triggers for triggers, _ in seen] == [1, 2]
    assert seen[-1][1] == run.totals.rows == rows
    first = sink.notes
    assert [note.split()[:2] for note in first] == [
        ["open", run.run],
        ["commit", "0"],
        ["committed", "0"],
        ["write", "1"],
        ["commit", "1"],
        ["committed", "1"],
    ]
    assert forget_commit(tmp_path / "ck") == 1
    again = start()
    assert again.totals.to_dict() == run.totals.to_dict()
    assert seen[2:] == [(2, rows)]
    assert sink.notes[6:] == [first[0], "committed 0", "committed 0", *first[3:]]
    assert history(spark.read.parquet(f"{tmp_path}/out/*").collect()) == TRUTH


def test_what_a_restart_does_not_name_is_the_runs(spark: Any, tmp_path: Path) -> None:
    frames = list(frames_of(spark, tmp_path))
    first = ab.merge(*frames, lanes=1, case="r3", policy="stable_lag=1")
    first.start(tmp_path / "ck", once=True).wait()
    again = ab.merge(*frames)
    run = again.start(tmp_path / "ck", once=True)
    run.wait()
    found = runs.read(tmp_path / "ck")
    assert found is not None
    assert (found.run, found.lanes, found.policy) == (run.run, 1, "stable_lag=1")
    run = ab.merge(*frames, policy="default").start(tmp_path / "ck", once=True)
    run.wait()
    taken = run.totals.next_trigger - 1
    text = f"policy changes from stable_lag=1 to default at trigger {taken}"
    assert str(run.changed) == text


def test_each_new_run_has_an_id_of_its_own(spark: Any, tmp_path: Path) -> None:
    """One merge may be started in several checkpoints: their folders must not be mixed up."""
    merged = stream_of(spark, tmp_path)
    ids = {prepare(merged, str(tmp_path / name), {}).run.run for name in ("one", "two")}
    assert len(ids) == 2


def test_two_sinks_in_one_folder_are_rejected(spark: Any, tmp_path: Path) -> None:
    merged = stream_of(spark, tmp_path)
    with pytest.raises(UsageError, match="two sinks have one folder"):
        merged.start(tmp_path / "ck", elements=tmp_path / "a", final=tmp_path / "a")
    assert not (tmp_path / "ck").exists()


def test_strict_stops_at_a_row_of_a_frame(spark: Any) -> None:
    rows = [*EAST[:1], ("upsert", 1, 2, None, "x", 7)]
    for bad, words in (
        (rows, "kind is 'upsert'"),
        ([("adjust", 5, 6, 7, "nobody", 8)], "adjusts an event that its replica"),
    ):
        merged = ab.merge(spark.createDataFrame(bad, PLAIN), lanes=1, strict=True)
        with pytest.raises(Exception, match=ViolationError.__name__) as caught:
            merged.elements().collect()
        assert words in str(caught.value)


def test_a_running_query_has_the_names_of_pyspark(spark: Any, tmp_path: Path) -> None:
    running = stream_of(spark, tmp_path).start(tmp_path / "ck", interval="100 milliseconds")
    try:
        assert running.isActive
        assert running.awaitTermination(1) is False
        assert running.name == running.query.name == f"anabranch-{running.run[:8]}"
        assert set(running.status) == {"message", "isDataAvailable", "isTriggerActive"}
        for _ in range(600):
            if running.lastProgress is not None:
                break
            time.sleep(0.2)
    finally:
        running.stop()
    assert not running.isActive
    assert running.awaitTermination(1) is True
    assert running.awaitTermination() is None
    assert running.lastProgress == running.query.lastProgress
    assert [one["batchId"] for one in running.recentProgress][:1] == [0]
