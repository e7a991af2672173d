"""Levels of consistency on Spark: in triggers, through restarts, with what is late."""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from time import sleep
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import anabranch as ab
from anabranch.errors import UsageError
from anabranch.spark.query.query import Query

pytestmark = pytest.mark.spark

COLUMNS = "kind string, start bigint, end bigint, old_end bigint, k string, v bigint"
TRADES = [
    [("insert", 1, 10, None, "a", 1), ("insert", 8, 12, None, "b", 2)],
    [("insert", 3, 9, None, "a", 3), ("adjust", 8, 20, 12, "b", 2), ("stable", 7, *[None] * 4)],
    [("insert", 9, 15, None, "a", 4), ("stable", *[None] * 5)],
]
RATES = [
    [("insert", 0, 30, None, "a", 1)],
    [("insert", 2, 30, None, "b", 1), ("stable", 5, *[None] * 4)],
    [("stable", *[None] * 5)],
]
Triggers = Callable[[str, Sequence[Sequence[tuple]]], Iterator[DataFrame]]


@pytest.fixture
def triggers(spark: SparkSession, tmp_path: Path) -> Triggers:
    """Rows as a stream that is read file by file; each step makes one more file."""

    def begin(name: str, files: Sequence[Sequence[tuple]]) -> Iterator[DataFrame]:
        folder = tmp_path / name
        folder.mkdir()
        stream = spark.readStream.schema(f"{COLUMNS}, seq bigint").parquet(str(folder))
        seq = 0
        for rows in files:
            numbered = [(*row, seq + at) for at, row in enumerate(rows)]
            seq += len(rows)
            some = spark.createDataFrame(numbered, f"{COLUMNS}, seq bigint")
            some.coalesce(1).write.mode("append").parquet(str(folder))
            yield stream

    return begin


def frame(spark: SparkSession, files: Sequence[Sequence[tuple]]) -> DataFrame:
    rows = [row for file in files for row in file]
    numbered = [(*row, at) for at, row in enumerate(rows)]
    return spark.createDataFrame(numbered, f"{COLUMNS}, seq bigint")


def counted(trades: DataFrame, rates: DataFrame) -> Query:
    """Trades with their rates, counted: two inputs, and a filter of Spark's below."""
    left = ab.elements(trades, name="trades").where("v > 0").select("k", "v")
    right = ab.elements(rates, name="rates").select("k as name")
    return left.join(right, on={"k": "name"}).group_by("k").aggregate(n=ab.count())


def events(rows: Sequence[Any]) -> list[tuple]:
    """The history of change rows."""
    found: dict[tuple, int] = {}
    for row in rows:
        key = (row.k, row.n, row.start, row.end)
        gain = 1 if row._change_type in ("insert", "update_postimage") else -1
        found[key] = found.get(key, 0) + gain
    assert set(found.values()) <= {0, 1}
    return sorted(key for key, number in found.items() if number)


def rows_of(spark: SparkSession, folder: Path) -> list[Any]:
    """The rows of a sink so far; it has no folder before the first ones."""
    return spark.read.parquet(str(folder)).collect() if folder.exists() else []


CI = ("strong", "middle")


@pytest.mark.parametrize(
    "level",
    [
        pytest.param(name, marks=() if name in CI else pytest.mark.deep)
        for name in ("strong", "ultra", "middle")
    ],
)
def test_levels_that_forget_nothing_have_the_history_of_the_batch(
    level: Any, spark: SparkSession, tmp_path: Path, triggers: Triggers
) -> None:
    batch = counted(frame(spark, TRADES), frame(spark, RATES))
    truth = events(batch.changes().collect())
    assert events(batch.consistency(level).changes().collect()) == truth
    both = zip(triggers("trades", TRADES), triggers("rates", RATES), strict=True)
    shown = []
    for trades, rates in both:
        query = counted(trades, rates).consistency(level)
        assert f"finalize, level {level} (reads " in query.explanation
        assert f"align, level {level} (reads " in query.explanation
        running = query.start(tmp_path / "ck", changes=tmp_path / "changes", once=True)
        assert running.wait(120)
        assert running.totals.adds_up
        changes = rows_of(spark, tmp_path / "changes")
        shown.append(len(changes))
    assert events(changes) == truth
    if level == "middle":
        assert shown[0] > 0, "answers at once"
    else:
        assert shown[0] == 0, "waits for a stable"
        assert {row._change_type for row in changes} == {"insert"}, "nothing is corrected"


def test_weak_keeps_late_rows_with_their_step_and_distance(
    spark: SparkSession, tmp_path: Path, triggers: Triggers
) -> None:
    files = [
        [("insert", 1, 10, None, "a", 1), ("insert", 8, 12, None, "b", 2)],
        [("insert", 3, 9, None, "a", 3), ("insert", 9, 20, None, "b", 4)],
        [("insert", 12, 15, None, "a", 5), ("adjust", 3, 8, 9, "a", 3)],
    ]
    for stream in triggers("in", files):
        query = ab.elements(stream).select("k", "v * 2 as w").group_by("k")
        running = (
            query.aggregate(n=ab.count())
            .consistency("weak")
            .start(
                tmp_path / "ck",
                changes=tmp_path / "changes",
                late=tmp_path / "late",
                once=True,
            )
        )
        assert running.wait(120)
        assert running.totals.adds_up
    late = spark.read.parquet(str(tmp_path / "late")).collect()
    found = sorted((row.kind, row.start, row.k, row.v, row.raw, row.reason) for row in late)
    (adjust, *_), (insert, *_) = found
    assert (adjust, insert) == ("adjust", "insert")
    assert [row[1:3] for row in found] == [(3, "a"), (3, "a")]
    assert [json.loads(row[4]) for row in found] == [{"k": "a", "w": 6}] * 2
    assert "step 'finalize'; 1 behind its stable 9" in found[0][5]
    assert "step 'finalize'; 5 behind its stable 8" in found[1][5]
    changes = rows_of(spark, tmp_path / "changes")
    kept = [(1, 10), (12, 15)]
    assert [row[2:] for row in events(changes) if row[0] == "a"] == kept


def test_another_level_while_it_runs(
    spark: SparkSession, tmp_path: Path, triggers: Triggers
) -> None:
    """From the next trigger on, also after a restart; the history is that of the batch."""

    def build(stream: DataFrame) -> Query:
        counts = ab.elements(stream).group_by("k").aggregate(n=ab.count())
        return counts.consistency("strong")

    def changes() -> list[Any]:
        return rows_of(spark, tmp_path / "changes")

    files = triggers("trades", TRADES)
    running = build(next(files)).start(tmp_path / "ck", changes=tmp_path / "changes")
    running.query.processAllAvailable()
    assert changes() == []
    with pytest.raises(UsageError, match="'ultra' releases final events only"):
        running.set_consistency("ultra")
    with pytest.raises(UsageError, match="wait_wall= needs the time of each trigger"):
        running.set_consistency(wait_wall="5 seconds")
    running.set_consistency(wait=1)
    running.query.processAllAvailable()
    assert [(row.k, row.start, row.end) for row in changes()] == []
    next(files)
    running.query.processAllAvailable()
    for _ in range(200):  # on Connect a trigger is published when it is seen to have ended
        if changes():
            break
        sleep(0.3)
    assert {(row.k, row.start, row.end) for row in changes()} == {("a", 1, 3)}
    step = next(one for one in running.totals.last.steps if one.operator == "align")
    assert step.level == {"wait": 1}
    running.stop()
    running = build(next(files)).start(tmp_path / "ck", changes=tmp_path / "changes", once=True)
    assert running.wait(120)
    step = next(one for one in running.totals.last.steps if one.operator == "align")
    assert step.level == {"wait": 1}
    batch = ab.elements(frame(spark, TRADES)).group_by("k").aggregate(n=ab.count())
    assert events(changes()) == events(batch.changes().collect())


def test_a_query_without_a_level_has_none_to_set(
    spark: SparkSession, tmp_path: Path, triggers: Triggers
) -> None:
    stream = next(triggers("trades", TRADES))
    counts = ab.elements(stream).group_by("k").aggregate(n=ab.count())
    running = counts.start(tmp_path / "ck", changes=tmp_path / "changes", once=True)
    with pytest.raises(UsageError, match="was started without a level"):
        running.set_consistency("middle")
    assert running.wait(120)


def test_steps_that_are_placed_by_hand(spark: SparkSession, tmp_path: Path) -> None:
    stream = ab.elements(frame(spark, TRADES))
    by_hand = stream.align(wait=2, wait_wall="5 seconds").finalize(4)
    made = by_hand.group_by("k").aggregate(n=ab.count())
    text = made.explanation
    assert "align: hold events until a stable passes them or for 2 or for 5 seconds" in text
    assert "finalize: remember 4" in text
    plain = stream.group_by("k").aggregate(n=ab.count())
    assert events(made.changes().collect()) == events(plain.changes().collect())
    merge = ab.merge(ab.elements(frame(spark, TRADES)), ab.elements(frame(spark, TRADES)))
    held = merge.align(release="final").group_by("k").aggregate(n=ab.count())
    assert events(held.changes().collect()) == events(plain.changes().collect())


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"name": "weekly"}, "'weekly' is no level; it must be one of strong, ultra, middle"),
        ({"name": "weak", "wait": 3}, "got the name 'weak' and wait="),
        ({"wait": 5, "remember": 3}, "wait=5 is greater than remember=3"),
        ({"wait": -1}, "consistency: wait is -1; it must be 0 or greater"),
        ({"remember": "an hour"}, "consistency: remember 'an hour'"),
    ],
)
def test_levels_that_are_none_are_rejected(
    spark: SparkSession, given: dict[str, Any], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        ab.elements(frame(spark, TRADES)).consistency(**given)


def test_what_does_not_go_together_is_rejected(spark: SparkSession) -> None:
    stream = ab.elements(frame(spark, TRADES)).group_by("k")
    strong = stream.aggregate(n=ab.count()).consistency("strong")
    with pytest.raises(UsageError, match="two levels, 'strong' and 'wait 0, remember 5'"):
        strong.consistency(remember=5)
    at_once = stream.aggregate(n=ab.count(), emit="at_once").consistency("strong")
    with pytest.raises(UsageError, match="has emit='at_once', which answers before a stable"):
        at_once.explain()
    with pytest.raises(UsageError, match="align: release='sorted' is unknown"):
        strong.align(release="sorted")  # type: ignore[arg-type]
    rows = spark.readStream.format("rate").load()
    plain = ab.events(rows, start="timestamp", lifetime="1 minute", name="rows")
    waits = plain.group_by("value").aggregate(n=ab.count()).consistency("ultra")
    with pytest.raises(UsageError, match=r"'rows' has none; add heartbeats \(ab.events"):
        waits.explain()
    assert "ultra" in (
        plain.heartbeats(disorder="1 second", idle_after="1 minute")
        .group_by("value")
        .aggregate(n=ab.count())
        .consistency("ultra")
        .explanation
    )
