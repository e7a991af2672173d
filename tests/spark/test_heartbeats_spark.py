"""Plain rows become final on Spark: heartbeats through triggers, restarts and repetitions."""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import sleep
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from test_running_query import forget_commit

import anabranch as ab
from anabranch.errors import SchemaError, UsageError
from anabranch.spark.checkpoint import run_record as runs

pytestmark = pytest.mark.spark

FIRST = datetime(2026, 1, 1, tzinfo=UTC)
COLUMNS = "ts timestamp, id string, sensor string"


def put(folder: Path, number: int, rows: list[tuple[int, str]]) -> None:
    """One more file of a copy: seconds and names."""
    folder.mkdir(parents=True, exist_ok=True)
    times = pa.array([FIRST + timedelta(seconds=s) for s, _ in rows], pa.timestamp("us", "UTC"))
    names = [name for _, name in rows]
    table = pa.table({"ts": times, "id": names, "sensor": [name[0] for name in names]})
    file = folder / f"{number:03d}.parquet"
    pq.write_table(table, file)
    os.utime(file, (1_700_000_000 + number,) * 2)  # Spark takes files by their time


def copies(
    spark: Any, root: Path, names: tuple[str, ...] = ("east", "west"), **heartbeats: Any
) -> list[Any]:
    made = []
    for name in names:
        reader = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1)
        df = reader.parquet(str(root / name))
        events = ab.events(df, start="ts", lifetime="1 second", name=name)
        made.append(events.heartbeats(**heartbeats))
    return made


def test_plain_rows_become_final(spark: Any, tmp_path: Path) -> None:
    """Two triggers; the second is repeated, then the run goes on with another bound."""
    ck, out = tmp_path / "ck", tmp_path / "final"
    for name in ("east", "west"):
        put(tmp_path / name, 0, [(0, "a"), (30, "b"), (25, "c")])
        put(tmp_path / name, 1, [(60, "d"), (55, f"only {name}")])

    def start(**heartbeats: Any) -> Any:
        merged = ab.merge(*copies(spark, tmp_path, **heartbeats), lanes=2)
        query = merged.start(ck, final=out, once=True)
        query.wait()
        return query

    usual = {"disorder": "10 seconds", "idle_after": "1 hour"}
    query = start(**usual)
    assert query.totals.adds_up
    assert query.totals.frontier == int((FIRST.timestamp() + 50) * 1_000_000)
    assert query.totals.live < 6

    assert final(spark, out) == ["a", "b", "c"]
    forget_commit(ck)
    again = start(**usual)
    assert again.totals.frontier == query.totals.frontier
    assert final(spark, out) == ["a", "b", "c"]
    put(tmp_path / "east", 2, [(100, "e"), (10, "late")])
    put(tmp_path / "west", 2, [(100, "e")])
    query = start(disorder="40 seconds", idle_after="1 hour")
    assert query.totals.frontier == int((FIRST.timestamp() + 60) * 1_000_000)
    assert final(spark, out) == ["a", "b", "c", "only east", "only west"]
    assert query.totals.bucket("late") == 1
    assert query.totals.bucket("violation") == 0
    found = runs.read(ck)
    assert found is not None
    assert [words for _, words in found.clocks] == [
        "east, west: disorder 10 seconds, idle after 1 hour",
        "east, west: disorder 40 seconds, idle after 1 hour",
    ]
    assert [trigger for trigger, _ in found.clocks] == [0, 2]


def wait_until(query: Any, happened: Any, seconds: float = 60) -> None:
    for _ in range(int(seconds / 0.2)):
        if happened(query.totals):
            return
        if not query.isActive:
            query.wait(1)  # raises why
        sleep(0.2)
    raise AssertionError(query.totals.to_dict() | {"clock": query.totals.clock})


def test_an_idle_source_does_not_stall_a_query_and_then_nothing_happens(
    spark: Any, tmp_path: Path
) -> None:
    """No row comes after the first trigger: time passes by entries of the control log."""
    at = int(FIRST.timestamp()) * 1_000_000
    put(tmp_path / "east", 0, [(0, "a"), (30, "b")])
    put(tmp_path / "west", 0, [(0, "a")])
    merged = ab.merge(
        *copies(
            spark, tmp_path, disorder="10 seconds", idle_after="3 seconds", source="sensor"
        ),
        lanes=2,
    )
    query = merged.start(tmp_path / "ck", final=tmp_path / "final")
    try:
        wait_until(query, lambda totals: totals.frontier == at + 30_000_001)
        clock = query.totals.clock
        assert clock.states == {"active": 0, "idle": 3, "paused": 0, "blocked": 0}
        assert {one["name"] for one in clock.sources} == {"a", "b"}
        assert clock.due is None
        triggers = query.totals.triggers
        sleep(3)
        assert query.totals.triggers == triggers  # nothing is due: no trigger, no file
        put(tmp_path / "east", 1, [(60, "c"), (70, "d")])
        query.pause("west")
        wait_until(query, lambda totals: totals.rows == 5)
        wait_until(query, lambda totals: totals.clock.states["paused"] == 1)
        assert query.totals.frontier >= at + 50_000_000
        with pytest.raises(UsageError, match="no clock infers the stables of 'north'"):
            query.pause("north")
    finally:
        query.stop()
    assert query.totals.adds_up
    found = spark.read.parquet(str(tmp_path / "final"))
    assert {row.id for row in found.collect()} >= {"a", "b"}


def final(spark: Any, folder: Path) -> list[str]:
    read = spark.read.schema(COLUMNS).parquet(str(folder))
    return sorted(row.id for row in read.collect())


def wait_for(spark: Any, query: Any, out: Path, expected: list[str]) -> None:
    for _ in range(200):
        if out.exists() and final(spark, out) == expected:
            return
        assert query.isActive, query.exception()
        sleep(0.3)
    raise AssertionError(final(spark, out), query.lastProgress)


def test_time_passes_also_where_spark_writes_the_view(spark: Any, tmp_path: Path) -> None:
    """A view by Spark's own writer: ticks while something is due, then no trigger, no file."""
    put(tmp_path / "east", 0, [(0, "a"), (30, "b")])
    put(tmp_path / "west", 0, [(0, "a")])
    out, ck = tmp_path / "out", tmp_path / "ck"

    def started(**trigger: Any) -> Any:
        beats = {"disorder": "10 seconds", "idle_after": "4 seconds"}
        merged = ab.merge(
            *copies(spark, tmp_path, **beats), lanes=2, quarantine=tmp_path / "not-merged"
        )
        writer = merged.final().writeStream.format("parquet").option("path", str(out))
        writer = writer.option("checkpointLocation", str(ck))
        return (writer.trigger(**trigger) if trigger else writer).start()

    query = started()
    try:
        wait_for(spark, query, out, ["a", "b"])  # west, then both, are idle
        sleep(2)
        batch, files = query.lastProgress["batchId"], len(list(out.glob("*.parquet")))
        sleep(4)
        assert query.lastProgress["batchId"] == batch, "nothing is due"
        assert len(list(out.glob("*.parquet"))) == files
        put(tmp_path / "east", 1, [(60, "c")])
        wait_for(spark, query, out, ["a", "b", "c"])
    finally:
        query.stop()
    put(tmp_path / "west", 1, [(90, "d")])
    started(availableNow=True).awaitTermination()
    assert final(spark, out) == ["a", "b", "c"], "it waits for no clock"
    query = started()  # with its ticks, from the same checkpoint
    try:
        wait_for(spark, query, out, ["a", "b", "c", "d"])
    finally:
        query.stop()


def test_plain_files_of_an_inbox_and_a_dataframe_are_one_merge(
    spark: Any, tmp_path: Path
) -> None:
    """Each has its clock; a replica of the inbox, then the DataFrame, falls silent."""
    at = int(FIRST.timestamp()) * 1_000_000
    put(tmp_path / "east", 0, [(0, "a"), (30, "b")])
    put(tmp_path / "in" / "west", 0, [(0, "a"), (20, "c")])
    put(tmp_path / "in" / "north", 0, [(0, "a")])
    beats = {"disorder": "5 seconds", "idle_after": "3 seconds"}
    (frame,) = copies(spark, tmp_path, ("east",), **beats)
    inbox = ab.inbox(tmp_path / "in", start="ts", lifetime="1 second")
    merged = ab.merge(frame, inbox.heartbeats(**beats, source="sensor"), lanes=2)
    words = "disorder 5 seconds, idle after 3 seconds"
    assert f"east: {words}; replicas of inboxes: {words}, a source is" in merged.explanation
    query = merged.start(tmp_path / "ck", final=tmp_path / "final")
    try:
        wait_until(query, lambda totals: totals.frontier == at + 30_000_001)
        assert query.totals.clock.states["idle"] == 4  # east, and three sources of the inbox
        triggers = query.totals.triggers
        sleep(3)
        assert query.totals.triggers == triggers  # nothing is due
        put(tmp_path / "in" / "west", 1, [(60, "a")])
        wait_until(query, lambda totals: totals.rows == 6)  # else it is late behind east
        put(tmp_path / "east", 1, [(70, "a")])
        wait_until(query, lambda totals: totals.frontier == at + 70_000_001)
    finally:
        query.stop()
    merged.start(tmp_path / "ck", final=tmp_path / "final", once=True).wait()
    assert query.totals.adds_up
    assert query.totals.bucket("late") == query.totals.bucket("violation") == 0
    # `stop` may come before Spark has committed the last trigger: the next start repeats it.
    assert final(spark, tmp_path / "final") == ["a", "a", "a", "b", "c"]


def test_a_batch_is_unaffected(spark: Any) -> None:
    rows = [(FIRST + timedelta(seconds=s), name, name) for s, name in [(5, "a"), (1, "b")]]
    df = spark.createDataFrame(rows, COLUMNS)
    plain = ab.events(df, start="ts", lifetime="1 second")
    made = ab.merge(plain.heartbeats(disorder="1 second"))
    assert sorted(row.id for row in made.final().collect()) == ["a", "b"]
    assert "inferred" not in made.explanation


def test_what_is_wrong_is_named(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    df = spark.readStream.schema(COLUMNS).parquet(str(tmp_path / "in"))
    plain = ab.events(df, start="ts", lifetime="1 second")
    with pytest.warns(UserWarning, match=r"\.heartbeats\(disorder="):
        ab.merge(plain)
    with pytest.warns(UserWarning, match="are not final until its next row"):
        made = ab.merge(plain.heartbeats(disorder="1 second"))
    assert "stables are inferred: 0: disorder 1 second" in made.explanation
    assert "copies may have gaps" in made.explanation
    for wrong, message in [
        ({}, "give disorder="),
        ({"disorder": "1 second", "bounds": "adaptive"}, "one of these ways"),
        ({"disorder": "1"}, "heartbeats: disorder '1'"),
        ({"disorder": "1 second", "target_loss": 0.1}, "target_loss is for 'adaptive'"),
    ]:
        with pytest.raises(UsageError, match=message):
            plain.heartbeats(**wrong)
    with pytest.raises(SchemaError, match="source: there is no column 'sensors'"):
        plain.heartbeats(disorder="1 second", idle_after="1 minute", source="sensors")
    with pytest.raises(SchemaError, match="arrival='id' is a column of type string"):
        plain.heartbeats(disorder="1 second", idle_after="1 minute", arrival="id")
    elements = spark.readStream.schema("kind string, start bigint, end bigint, name string")
    with pytest.raises(UsageError, match="stables of their own"):
        ab.elements(elements.parquet(str(tmp_path / "in"))).heartbeats(disorder=1)
