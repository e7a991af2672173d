"""Sessions on Spark: those of its own session_window, in triggers, final one by one."""

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import anabranch as ab
from anabranch.errors import SchemaError, StateError, UsageError
from anabranch.model.element import Adjust, Insert, Stable
from anabranch.model.history import replay
from anabranch.spark.query.query import Query

pytestmark = pytest.mark.spark


def clicks(spark: SparkSession) -> DataFrame:
    """Rows at, before and beyond the gap of ten seconds, and rows without a user."""
    seconds = {"a": [0, 10, 21, 31, 50], "b": [5, 14, 14, 25], "c": [-7, 3], None: [3, 4]}
    rows = [(user, at, float(at)) for user, times in seconds.items() for at in times]
    df = spark.createDataFrame(rows, "user string, at bigint, v double")
    return df.withColumn("ts", f.timestamp_seconds("at")).drop("at")


def test_closed_sessions_are_those_of_spark(spark: SparkSession) -> None:
    rows = clicks(spark)
    sessions = ab.events(rows, start="ts", lifetime="1 second").session("10 seconds", "user")
    ours = sessions.group_by("user").aggregate(
        n=ab.count(), total=ab.sum("v"), most=ab.max("v"), all=ab.collect("v")
    )
    found = ours.final().selectExpr("user", "start", "end", "n", "total", "most", "all")
    theirs = (
        rows.groupBy("user", f.session_window("ts", "10 seconds").alias("w"))
        .agg(
            f.count("*").alias("n"),
            f.sum("v").alias("total"),
            f.max("v").alias("most"),
            f.sort_array(f.collect_list("v")).alias("all"),
        )
        .selectExpr("user", "w.start", "w.end", "n", "total", "most", "all")
    )
    expected = sorted(map(str, theirs.collect()))
    assert sorted(map(str, found.collect())) == expected
    assert len(expected) == 7


@pytest.mark.deep
def test_a_filter_may_read_how_long_a_session_is(spark: SparkSession) -> None:
    """Rows with their sessions cross a stage; the aggregate behind it groups by session."""
    rows = clicks(spark)
    sessions = ab.events(rows, start="ts", lifetime="1 second").session("10 seconds", "user")
    assert sessions.final().count() == rows.count()
    some = sessions.where("window.end - window.start = interval 19 seconds")
    counted = some.group_by("user").aggregate(n=ab.count())
    assert [(r.user, r.n) for r in counted.final().collect()] == [("b", 3)]


COLUMNS = "kind string, start bigint, end bigint, user string, seq bigint"
TRIGGERS = [
    [("insert", 0, 1, "bot", 0), ("insert", 1, 2, "a", 1), ("insert", 9, 10, "a", 2),
     ("insert", 4, 5, "bot", 3), ("stable", 2, None, None, 4)],
    # A late row joins the sessions of a.
    [("insert", 5, 6, "a", 5), ("insert", 8, 9, "bot", 6), ("insert", 3, 4, "b", 7)],
    # It closes b, and not a, which ends at 14.
    [("insert", 13, 14, "bot", 8), ("stable", 9, None, None, 9)],
    [("insert", 17, 18, "bot", 10), ("stable", 15, None, None, 11)],
    [("insert", 30, 31, "c", 12), ("stable", 40, None, None, 13)],
]  # fmt: skip


def counted(stream: DataFrame) -> Query:
    sessions = ab.elements(stream).session(5, by="user")
    return sessions.group_by("user").aggregate(n=ab.count())


def test_a_session_is_final_when_it_is_closed_whatever_is_open(
    spark: SparkSession, tmp_path: Path
) -> None:
    """In triggers with restarts; the stable waits for the oldest open session."""
    folder = tmp_path / "in"
    folder.mkdir()
    stream = spark.readStream.schema(COLUMNS).parquet(str(folder))
    sinks = {name: tmp_path / name for name in ("elements", "final")}
    seen, frontiers = [], []
    for rows in TRIGGERS:
        some = spark.createDataFrame(rows, COLUMNS).coalesce(1)
        some.write.mode("append").parquet(str(folder))
        query = counted(stream).start(tmp_path / "ck", **sinks, once=True)
        assert query.wait(120)
        assert query.totals.adds_up
        frontiers.append(query.totals.last.frontier)
        files = [str(one) for one in sinks["final"].glob("*.parquet")]
        final = spark.read.parquet(*files).collect() if files else []
        seen.append(sorted((r.user, r.start, r.end, r.n) for r in final))
    b, a, bot, c = ("b", 3, 8, 1), ("a", 1, 14, 3), ("bot", 0, 22, 5), ("c", 30, 35, 1)
    assert seen == [[], [], [b], [a, b], [a, b, bot, c]]
    assert frontiers == [0, 0, 0, 0, 40]
    emitted = spark.read.parquet(str(sinks["elements"])).orderBy("seq").collect()
    output = replay([element(row) for row in emitted])
    assert output.violations == ()
    assert output.frontier == 40
    assert sorted((*e.payload, e.start, e.end) for e in output.history) == [
        ("a", 3, 1, 14), ("b", 1, 3, 8), ("bot", 5, 0, 22), ("c", 1, 30, 35),
    ]  # fmt: skip
    with pytest.raises(StateError, match=r"gap of 5.*gap of 6"):
        ab.elements(stream).session(6, by="user").group_by("user").aggregate(
            n=ab.count()
        ).start(tmp_path / "ck", **sinks, once=True)


def element(row):  # type: ignore[no-untyped-def]
    if row.kind == "stable":
        return Stable(row.start)
    payload = row.user, row.n
    if row.kind == "insert":
        return Insert(payload, row.start, row.end)
    return Adjust(payload, row.start, row.old_end, row.end)


def test_sessions_that_are_not_possible_are_rejected_at_the_call(spark: SparkSession) -> None:
    stream = ab.events(clicks(spark), start="ts", lifetime="1 second")
    with pytest.raises(UsageError, match="session: by names no column, and sessions are those"):
        stream.session("10 seconds")
    with pytest.raises(UsageError, match="session: gap is '0 seconds'; it must be greater"):
        stream.session("0 seconds", by="user")
    with pytest.raises(UsageError, match="session: gap is '-1 minute'; it must be greater"):
        stream.session("-1 minute", by="user")
    with pytest.raises(UsageError, match="session: gap 'ten': for timestamps a duration is"):
        stream.session("ten", by="user")
    with pytest.raises(SchemaError, match="session: there is no column 'nope' for by"):
        stream.session("1 minute", by=["user", "nope"])
    sessions = stream.session("1 minute", by="user")
    with pytest.raises(SchemaError, match="has a column 'window' already"):
        sessions.session("1 minute", by="user")
    with pytest.raises(UsageError, match=r"sessions are those of user, .* lack user"):
        sessions.group_by("v").aggregate(n=ab.count())
    words = sessions.group_by("user").aggregate(n=ab.count()).explanation
    assert "n = count(*) by user, window, in sessions by user with a gap of 1 minute" in words
    assert "remembers the rows of open sessions" in words
