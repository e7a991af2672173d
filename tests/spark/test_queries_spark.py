"""Queries on Spark: batch and streams, cut into triggers, with restarts, have one history."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import anabranch as ab
from anabranch.errors import SchemaError, UsageError
from anabranch.spark.query.query import Query

pytestmark = pytest.mark.spark

COLUMNS = "kind string, start bigint, end bigint, old_end bigint, k string, v double"
ROWS = [
    ("insert", 1, 10, None, "a", 1.0),
    ("insert", 2, 8, None, "b", 2.0),
    ("insert", 3, 12, None, "a", -3.0),
    ("adjust", 3, 15, 12, "a", -3.0),
    ("stable", 3, None, None, None, None),
    ("insert", 5, 9, None, "b", 4.0),
    ("adjust", 5, 5, 9, "b", 4.0),
    ("insert", 6, 9, None, "b", 4.0),
    ("insert", 7, None, None, "c", 4.0),
    ("stable", 9, None, None, None, None),
    ("adjust", 7, 11, None, "c", 4.0),
    ("insert", 12, 20, None, "b", 1.0),
    ("stable", None, None, None, None, None),
]


def frame(spark: SparkSession) -> DataFrame:
    numbered = [(*row, at) for at, row in enumerate(ROWS)]
    return spark.createDataFrame(numbered, f"{COLUMNS}, seq bigint")


@pytest.fixture
def triggers(spark: SparkSession, tmp_path: Path) -> Callable[[int], Iterator[DataFrame]]:
    """The rows as a stream that is read file by file; each step makes one more file."""

    def begin(pieces: int) -> Iterator[DataFrame]:
        folder = tmp_path / "in"
        folder.mkdir()
        stream = spark.readStream.schema(f"{COLUMNS}, seq bigint").parquet(str(folder))
        rows = frame(spark).orderBy("seq").collect()
        size = -(-len(rows) // pieces)
        for first in range(0, len(rows), size):
            some = spark.createDataFrame(rows[first : first + size], f"{COLUMNS}, seq bigint")
            some.coalesce(1).write.mode("append").parquet(str(folder))
            yield stream

    return begin


def events_of(rows: list) -> list[tuple]:
    """The history of change rows: events with their payloads, each as often as it is there."""
    found: dict[tuple, int] = {}
    for row in rows:
        values = row.asDict(recursive=True)
        key = tuple(
            sorted(
                (name, str(value))
                for name, value in values.items()
                if name not in ("_change_type", "_commit_version", "seq")
            )
        )
        gain = 1 if values["_change_type"] in ("insert", "update_postimage") else -1
        found[key] = found.get(key, 0) + gain
    assert all(number >= 0 for number in found.values())
    return sorted(key for key, number in found.items() for _ in range(number))


def in_every_way(stream: ab.Stream) -> Query:
    """One aggregate in each way to emit, side by side: their histories are the same."""
    made = [
        stream.group_by("k").aggregate(
            n=ab.count(), most=ab.max("v"), emit=way, cut_every=5, id=way
        )
        for way in ("at_once", "ordered", "passed")
    ]
    return made[0].union(*made[1:])


QUERIES: dict[str, Callable[[ab.Stream], Query]] = {
    "where": lambda s: s.where(f.col("v") > 0),
    "select": lambda s: s.select("k", "v * 2 as w"),
    "counted": lambda s: s.group_by("k").aggregate(n=ab.count(), total=ab.sum("v")),
    "three stages": lambda s: (
        s.where("v > -10").group_by("k").aggregate(n=ab.count()).select("n").normalise()
    ),
    "windows": lambda s: (
        s.window(4, 2).group_by("k").aggregate(n=ab.count(), total=ab.sum("v"))
    ),
    "all ways to emit": in_every_way,
    "ordered": lambda s: s.window(3).group_by().aggregate(n=ab.count(), emit="ordered"),
    "windows passed": lambda s: (
        s.window(4, 2).group_by("k").aggregate(total=ab.sum("v"), emit="passed")
    ),
    "sliding": lambda s: s.window(3).group_by("k").aggregate(n=ab.count()),
    "shifted": lambda s: s.alter_lifetime(shift=2, at_most=5).select("k").distinct(),
    "read twice": lambda s: s.select("k").union(s.where("v > 0").select("k")).normalise(),
}


IN_CI = {
    "three stages", "windows", "all ways to emit", "read twice", "anti, counted",
    "of an aggregate",
}  # fmt: skip
"""The others take the same paths through Spark; tests of the operators judge their results."""


def cases(names: Iterable[str]) -> list[Any]:
    deep = pytest.mark.deep
    return [pytest.param(one, marks=() if one in IN_CI else deep) for one in names]


@pytest.mark.parametrize("name", cases(QUERIES))
def test_a_stream_in_triggers_with_restarts_has_the_history_of_the_batch(
    name: str,
    spark: SparkSession,
    tmp_path: Path,
    triggers: Callable[[int], Iterator[DataFrame]],
) -> None:
    build = QUERIES[name]
    batch = events_of(build(ab.elements(frame(spark))).changes().collect())
    final = build(ab.elements(frame(spark))).final().collect()
    assert len(final) == len(batch) > 0
    for stream in triggers(3):
        query = build(ab.elements(stream)).start(
            tmp_path / "ck", changes=tmp_path / "changes", final=tmp_path / "final", once=True
        )
        assert query.wait(120)
        assert query.totals.adds_up
    changes = spark.read.parquet(str(tmp_path / "changes")).orderBy("seq").collect()
    assert events_of(changes) == batch
    assert sorted(map(str, spark.read.parquet(str(tmp_path / "final")).collect())) == sorted(
        map(str, final)
    )


def test_every_way_to_emit_has_one_history(spark: SparkSession) -> None:
    """In a union of the three ways each event is there three times."""
    both = events_of(in_every_way(ab.elements(frame(spark))).changes().collect())
    one = (
        ab.elements(frame(spark))
        .group_by("k")
        .aggregate(n=ab.count(), most=ab.max("v"), cut_every=5)
    )
    assert both == sorted(events_of(one.changes().collect()) * 3)


JOINS: dict[str, Callable[[ab.Stream, ab.Stream], Query]] = {
    "inner": lambda a, b: a.join(b, on={"k": "name"}),
    "left": lambda a, b: a.join(b, on={"k": "name"}, how="left"),
    "anti, counted": lambda a, b: (
        a.join(b, on={"k": "name"}, how="anti").group_by("k").aggregate(n=ab.count())
    ),
    "filtered": lambda a, b: a.join(b, on={"k": "name"}, where="v > rate"),
    "difference": lambda a, b: a.select("k").difference(b.select("name as k")),
    "of an aggregate": lambda a, b: (
        a.group_by("k").aggregate(n=ab.count()).join(b.where("rate > 0"), on={"k": "name"})
    ),
}


@pytest.mark.filterwarnings("ignore:query. these streams have no stables")
@pytest.mark.parametrize("name", cases(JOINS))
def test_two_sources_have_the_history_of_the_batch(
    name: str,
    spark: SparkSession,
    tmp_path: Path,
    triggers: Callable[[int], Iterator[DataFrame]],
) -> None:
    build = JOINS[name]
    rates = spark.createDataFrame(
        [("a", 2, 6, 0.5), ("b", 4, 30, 3.0), ("b", 1, 3, 1.5)],
        "name string, s bigint, e bigint, rate double",
    )
    right = ab.events(rates, start="s", end="e")
    batch = events_of(build(ab.elements(frame(spark)), right).changes().collect())
    assert batch
    (tmp_path / "rates").mkdir()
    for at, stream in enumerate(triggers(3)):
        if at == 1:
            rates.coalesce(1).write.mode("append").parquet(str(tmp_path / "rates"))
        beside = spark.readStream.schema(rates.schema).parquet(str(tmp_path / "rates"))
        query = build(ab.elements(stream), ab.events(beside, start="s", end="e")).start(
            tmp_path / "ck", changes=tmp_path / "changes", once=True
        )
        assert query.wait(120)
        assert query.totals.adds_up
    changes = spark.read.parquet(str(tmp_path / "changes")).orderBy("seq").collect()
    assert events_of(changes) == batch


def test_a_window_is_final_when_the_frontier_reaches_its_end(
    spark: SparkSession, tmp_path: Path
) -> None:
    """As in Spark's append mode: not one window later."""
    folder = tmp_path / "in"
    folder.mkdir()
    columns = "kind string, start bigint, end bigint, k string, seq bigint"
    stream = spark.readStream.schema(columns).parquet(str(folder))
    seen: list[int] = []
    triggers = [
        [("insert", 1, 2, "a", 0), ("insert", 5, 6, "a", 1), ("stable", 3, None, None, 2)],
        [("stable", 4, None, None, 3)],
        [("stable", 7, None, None, 4)],
        [("stable", 8, None, None, 5)],
    ]
    for rows in triggers:
        some = spark.createDataFrame(rows, columns).coalesce(1)
        some.write.mode("append").parquet(str(folder))
        windows = ab.elements(stream).window(4, 4).group_by("k").aggregate(n=ab.count())
        windows.start(tmp_path / "ck", final=tmp_path / "final", once=True).wait(120)
        files = list((tmp_path / "final").glob("*.parquet"))
        seen.append(spark.read.parquet(*map(str, files)).count() if files else 0)
    assert "a sum per key and pane" in windows.explanation
    assert seen == [0, 1, 1, 2]
    first = spark.read.parquet(str(tmp_path / "final")).orderBy("start").first()
    assert (first.start, first.end, first.k, first.n) == (0, 4, "a", 1)
    assert (first.window.start, first.window.end) == (0, 4)


def test_columns_that_a_filter_must_not_read_are_rejected(spark: SparkSession) -> None:
    stream = ab.elements(frame(spark))
    with pytest.raises(SchemaError, match="end cannot be read here"):
        stream.where("end > 3")
    with pytest.raises(SchemaError, match="nope"):
        stream.where("nope = 1")
    with pytest.raises(UsageError, match="random or nondeterministic"):
        stream.where(f.rand() > 0.5)
    with pytest.raises(UsageError, match="calls current_timestamp"):
        stream.select(f.current_timestamp().alias("t"))
    with pytest.raises(SchemaError, match="called 'end'"):
        stream.select(f.col("v").alias("end"))


def test_when_an_aggregate_emits_is_a_step_of_the_run(spark: SparkSession) -> None:
    grouped = ab.elements(frame(spark)).group_by("k")
    passed = grouped.aggregate(n=ab.count(), emit="passed")
    steps = passed.planned.steps
    assert any("n = count(*) by k, emit passed, reads" in step for step in steps)
    assert any(step.startswith("stage 1: stables") for step in steps), steps
    assert "cut_every='1 hour'" in passed.explanation
    assert passed.planned.keyed("k").key == ("k",)
    cut = grouped.aggregate(n=ab.count(), emit="passed", cut_every=10)
    assert any("emit passed, cut every 10, reads" in step for step in cut.planned.steps)
    assert "warning: aggregate holds" not in cut.explanation
    ordered = grouped.aggregate(n=ab.count(), emit="ordered")
    assert not any("stables" in step for step in ordered.planned.steps)


def test_windows_are_emitted_when_they_are_over(spark: SparkSession) -> None:
    windows = ab.elements(frame(spark)).window(4, 2)
    passed = windows.group_by("k").aggregate(n=ab.count(), emit="passed")
    assert "a sum per key and pane" in passed.explanation
    assert "at most 2 (2 windows, each emitted once), the cheapest" in passed.explanation
    assert not any("stables" in step for step in passed.planned.steps)
    greatest = windows.where("v > 0").group_by("k").aggregate(v=ab.max("v"), emit="passed")
    assert not any("stables" in step for step in greatest.planned.steps)
    with pytest.raises(UsageError, match="cut_every=5 would cut windows into pieces"):
        windows.group_by("k").aggregate(n=ab.count(), cut_every=5)
    ordered = windows.group_by("k").aggregate(n=ab.count(), emit="ordered")
    assert "a sum per key and pane" not in ordered.explanation


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"emit": "soon"}, r"aggregate: emit='soon' is not a way .* 'passed'"),
        ({"emit": ab.count()}, "a column of the result cannot be called emit"),
        ({"cut_every": ab.count()}, "a column of the result cannot be called cut_every"),
        ({"cut_every": 0}, "aggregate: cut_every is 0; it must be greater than 0"),
        ({"cut_every": "an hour"}, "cut_every"),
    ],
)
def test_wrong_ways_to_emit_are_rejected(
    spark: SparkSession, given: dict[str, Any], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        ab.elements(frame(spark)).group_by("k").aggregate(n=ab.count(), **given)


def test_a_changed_query_is_rejected_by_its_steps(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    frame(spark).coalesce(1).write.parquet(str(folder))
    stream = ab.elements(spark.readStream.schema(f"{COLUMNS}, seq bigint").parquet(str(folder)))
    first = stream.group_by("k").aggregate(n=ab.count())
    first.start(tmp_path / "ck", changes=tmp_path / "out", once=True).wait(120)
    second = stream.group_by("v").aggregate(n=ab.count())
    with pytest.raises(ab.errors.StateError, match=r"steps = .*by k.*by v"):
        second.start(tmp_path / "ck", changes=tmp_path / "out", once=True)
