"""`ab.windows_run` shows what predict shows: on batches, on streams, through a restart."""

import json
import os
import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import anabranch as ab
from anabranch import windows
from anabranch.errors import SchemaError, UsageError
from anabranch.spark.windows import WindowRun
from anabranch.windows import Arrival, Engine, Stable, predict, split_batches
from anabranch.windows.machine.machine import Machine

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

Tuple = tuple[int, float]
Triggers = list[list[Tuple]]
SCHEMA = "case string, batch long, at long, number double, place long"

ENGINES = [
    windows.engine("stream"),
    windows.engine("coral8"),
    windows.engine("streambase"),
    windows.engine("spark-append", delay=3),
    windows.engine("spark-update", delay=3),
    windows.engine("spark-complete"),
    windows.engine("flink", delay=1, lateness=4),
    windows.engine("kafka-streams", delay=2),
    windows.engine("kafka-streams-suppress", delay=2),
    windows.engine("beam", lateness=3),
    windows.engine("beam-discarding", lateness=3),
]


def cases(seed: int, count: int, longest: int = 5) -> dict[str, Triggers]:
    """Triggers with gaps, simultaneous and late tuples."""
    chance = random.Random(seed)
    made = {}
    for number in range(count):
        now, triggers = chance.randrange(-5, 20), []
        for _ in range(chance.randint(1, longest)):
            rows = []
            for _ in range(chance.randint(1, 6)):
                now += chance.choice([0, 0, 1, 1, 2, 3, 8])
                back = chance.choice([0, 0, 0, 0, 1, 4, 9])
                rows.append((now - back, chance.choice([1.5, 0.1, 7.0, -2.0, 1e16])))
            triggers.append(rows)
        made[f"case {number}"] = triggers
    return made


def expected(
    system: Engine, size: int, slide: int, agg: str, triggers: Triggers, until: int | None
) -> list[tuple[Any, ...]]:
    """What predict returns for the tuples that the engine takes, in the order it gets them."""
    tuples: list[Any] = []
    reached = None
    for number, rows in enumerate(triggers):
        ordered = rows if system.windows == "every" else sorted(rows, key=lambda row: row[0])
        for time, value in ordered:
            if system.windows == "every" or reached is None or time >= reached:
                tuples.append(Arrival(time, value, batch=number))
                reached = time if reached is None else max(time, reached)
    if system.windows == "active":
        tuples = split_batches(tuples)
    if until is not None:
        tuples.append(Stable(until))
    return [
        (one.start, one.end, one.instant, one.value, len(one.content), one.late, one.step)
        for one in predict(system, size, slide, tuples, agg).results
    ]


def collected(results: "DataFrame") -> dict[str, list[tuple[Any, ...]]]:
    found: dict[str, list[tuple[Any, ...]]] = {}
    for row in sorted(results.collect(), key=lambda row: row.seq):
        value = tuple(row.value) if isinstance(row.value, list) else row.value
        record = (row.start, row.end, row.instant, value, row["count"], row.late, row.step)
        found.setdefault(row.case, []).append(record)
    return found


def table(spark: "SparkSession", made: dict[str, Triggers]) -> "DataFrame":
    rows = [
        (case, batch, time, value, place)
        for case, triggers in made.items()
        for batch, tuples in enumerate(triggers)
        for place, (time, value) in enumerate(tuples)
    ]
    random.Random(0).shuffle(rows)
    return spark.createDataFrame(rows, SCHEMA).repartition(2)


def sizes(system: Engine, chance: random.Random) -> tuple[int, int]:
    size = chance.randint(1, 7)
    return size, chance.randint(1, size if not system.gaps else 9)


def check_batch(spark: "SparkSession", system: Engine, seed: int, count: int) -> None:
    chance = random.Random(seed)
    size, slide = sizes(system, chance)
    agg = chance.choice(["count", "sum", "avg", "min", "max", "collect"])
    made = cases(seed, count)
    # A stable comes after all rows, however far chance has gone (seed 1018: 98).
    until = max(90, *(row[0] for some in made.values() for rows in some for row in rows))
    ran = ab.windows_run(
        table(spark, made),
        like=system,
        time="at",
        value="number",
        size=size,
        slide=slide,
        agg=agg,
        group_by="case",
        order="place",
        batch="batch",
        until=until,
    )
    found = collected(ran.results())
    for case, triggers in made.items():
        want = expected(system, size, slide, agg, triggers, until)
        assert found.get(case, []) == want, f"{system.name}, {size} by {slide}: {triggers}"
    assert len(found) > count // 2


@pytest.mark.parametrize("system", ENGINES, ids=lambda one: one.name)
def test_a_batch_shows_what_predict_shows(spark: "SparkSession", system: Engine) -> None:
    check_batch(spark, system, seed=len(system.name), count=60)


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(20))
def test_many_batches_show_what_predict_shows(spark: "SparkSession", seed: int) -> None:
    for system in ENGINES:
        check_batch(spark, system, seed=1000 + seed, count=200)


def write(inbox: Path, number: int, made: dict[str, Triggers]) -> None:
    """All cases' rows of one trigger, as one file."""
    lines = [
        json.dumps({"case": case, "at": time, "number": value, "place": place})
        for case, triggers in made.items()
        if number < len(triggers)
        for place, (time, value) in enumerate(triggers[number])
    ]
    hidden = inbox / f".{number:03}.json"
    hidden.write_text("\n".join(lines))
    os.utime(hidden, (1_800_000_000 + number,) * 2)  # Spark takes files by their time
    hidden.rename(inbox / f"{number:03}.json")


def stream(
    spark: "SparkSession", inbox: Path, system: Engine, query: tuple[int, int, str], **more: Any
) -> WindowRun:
    rows = (
        spark.readStream.schema("case string, at long, number double, place long")
        .option("maxFilesPerTrigger", 1)
        .json(str(inbox))
    )
    size, slide, agg = query
    return ab.windows_run(
        rows, like=system, time="at", value="number", size=size, slide=slide, agg=agg,
        group_by="case", order="place", **more,
    )  # fmt: skip


def drain(ran: WindowRun, folder: Path) -> None:
    query = (
        ran.rows()
        .writeStream.format("parquet")
        .option("path", str(folder / "out"))
        .option("checkpointLocation", str(folder / "ck"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def check_stream(
    spark: "SparkSession", folder: Path, system: Engine, seed: int, stops: Sequence[int]
) -> None:
    """Several triggers, with a stop and a start from the checkpoint after some of them."""
    made = cases(seed, 25, longest=3)
    last = max(len(triggers) for triggers in made.values())
    size, slide = sizes(system, random.Random(seed))
    agg = random.Random(seed).choice(["count", "sum", "avg", "min", "max", "collect"])
    inbox = folder / "inbox"
    inbox.mkdir()
    for start, stop in pairwise([0, *stops, last]):
        for number in range(start, stop):
            write(inbox, number, made)
        drain(stream(spark, inbox, system, (size, slide, agg)), folder)
    rows = spark.read.parquet(str(folder / "out"))
    found = collected(rows.where("reported"))
    for case, triggers in made.items():
        want = expected(system, size, slide, agg, triggers, None)
        assert found.get(case, []) == want, f"{system.name}, {size} by {slide}: {triggers}"
    if system.windows == "active":
        taken = [row for row in rows.collect() if row.reason == "earlier than what was there"]
        assert sorted((row.case, row.time) for row in taken) == sorted(behind(made))


def behind(made: dict[str, Triggers]) -> list[tuple[str, int]]:
    """Tuples that are earlier than some tuple of an earlier trigger."""
    return [
        (case, time)
        for case, triggers in made.items()
        for number, rows in enumerate(triggers)
        for time, _ in rows
        if any(time < other for before in triggers[:number] for other, _ in before)
    ]


@pytest.mark.parametrize(
    ("system", "stops"),
    [(ENGINES[2], [2]), (ENGINES[1], []), (ENGINES[6], [])],
    ids=["streambase, restarted", "coral8", "flink"],
)
def test_a_stream_shows_what_predict_shows(
    quick: "SparkSession", tmp_path: Path, system: Engine, stops: list[int]
) -> None:
    check_stream(quick, tmp_path, system, 7, stops)


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("system", ENGINES, ids=lambda one: one.name)
def test_many_streams_show_what_predict_shows(
    quick: "SparkSession", tmp_path: Path, system: Engine, seed: int
) -> None:
    check_stream(quick, tmp_path, system, 2000 + seed, [1, 2][: seed % 3])


def test_another_query_on_the_same_checkpoint_is_refused(
    quick: "SparkSession", tmp_path: Path
) -> None:
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    write(inbox, 0, {"a": [[(1, 1.0)]]})
    drain(stream(quick, inbox, ENGINES[2], (5, 5, "sum")), tmp_path)
    write(inbox, 1, {"a": [[], [(9, 1.0)]]})
    with pytest.raises(Exception, match="sum over 5 by 5"):
        drain(stream(quick, inbox, ENGINES[2], (6, 5, "sum")), tmp_path)


def test_late_rows_stop_the_query_if_asked_to(quick: "SparkSession", tmp_path: Path) -> None:
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    write(inbox, 0, {"a": [[(8, 1.0)]]})
    write(inbox, 1, {"a": [[], [(2, 1.0)]]})
    with pytest.raises(Exception, match="a row of time 2, earlier than what was there"):
        drain(stream(quick, inbox, ENGINES[2], (5, 5, "sum"), late="raise"), tmp_path)


def test_timestamps_come_back_as_timestamps(spark: "SparkSession") -> None:
    noon = datetime(2026, 3, 1, 12, 0, 30, tzinfo=UTC)
    rows = [(noon, 1), (noon + timedelta(seconds=50), 2)]
    ran = ab.windows_run(
        spark.createDataFrame(rows, "at timestamp, n long"),
        like="streambase", time="at", value="n", size="1 minute", slide="1 minute", agg="sum",
        until=noon + timedelta(minutes=2),
    )  # fmt: skip
    found = ran.results().selectExpr("unix_seconds(start)", "unix_seconds(end)", "value")
    begin = int(noon.timestamp()) - 30
    assert sorted(map(tuple, found.collect())) == [
        (begin, begin + 60, 1),
        (begin + 60, begin + 120, 2),
    ]


def test_rows_without_a_time_or_with_a_useless_value_are_kept(spark: "SparkSession") -> None:
    rows = [
        ("a", None, 1.0), ("a", 1, None), ("a", 2, float("nan")), ("a", 3, float("inf")),
        (None, 4, 2.5),
    ]  # fmt: skip
    ran = ab.windows_run(
        spark.createDataFrame(rows, "g string, at int, v float"),
        like="streambase", time="at", value="v", size=5, slide=5, agg="sum", group_by="g",
        until=10,
    )  # fmt: skip
    assert [(row.g, row.value) for row in ran.results().collect()] == [(None, 2.5)]
    assert {(row.time, row.reason) for row in ran.late().collect()} == {
        (None, "no time"),
        (1, "no value"),
        (2, "NaN as value"),
        (3, "a value that is not finite"),
    }


def test_a_count_takes_rows_without_a_value_and_shows_them_so(spark: "SparkSession") -> None:
    rows = [(0, 9, 1), (0, 9, None), (1, 2, None), (1, 3, 0)]
    ran = ab.windows_run(
        spark.createDataFrame(rows, "part long, at long, v long"),
        like="coral8", time="at", value="v", size=5, slide=5, batch="part", until=30,
    )  # fmt: skip
    assert [row.value for row in ran.results().collect()] == [2]
    assert {(row.time, row.value) for row in ran.late().collect()} == {(2, None), (3, 0)}


def test_great_whole_numbers_stay_whole(spark: "SparkSession") -> None:
    rows = [(1, 2**60 + 1), (2, None), (3, 2**60)]
    ran = ab.windows_run(
        spark.createDataFrame(rows, "at long, v long"),
        like="streambase", time="at", value="v", size=5, slide=5, agg="sum", until=10,
    )  # fmt: skip
    assert [row.value for row in ran.results().collect()] == [2**61 + 1]


def test_what_cannot_be_meant_is_refused_before_spark_starts(spark: "SparkSession") -> None:
    df = spark.createDataFrame([(1, "x", 2.5)], "at long, word string, price double")
    good: dict[str, Any] = {"like": "flink", "time": "at", "size": 5, "slide": 5}
    with pytest.raises(SchemaError, match="did you mean 'price'"):
        ab.windows_run(df, **good, value="prize", agg="sum")
    with pytest.raises(SchemaError, match="sum needs numbers"):
        ab.windows_run(df, **good, value="word", agg="sum")
    with pytest.raises(SchemaError, match="whole number or a timestamp"):
        ab.windows_run(df, **{**good, "time": "price"})
    with pytest.raises(UsageError, match="needs value="):
        ab.windows_run(df, **good, agg="avg")
    with pytest.raises(UsageError, match="unknown engine"):
        ab.windows_run(df, **{**good, "like": "flunk"})
    with pytest.raises(UsageError, match="no slide above the size"):
        ab.windows_run(df, **{**good, "like": "spark-append", "slide": 6})
    with pytest.raises(UsageError, match="expected keep or raise"):
        ab.windows_run(df, **good, late="drop")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="column of that name"):
        ab.windows_run(df.withColumnRenamed("word", "start"), **good, group_by="start")
    endless = spark.readStream.format("rate").load()
    with pytest.raises(UsageError, match="a stream has no end"):
        ab.windows_run(endless, like="flink", time="value", size=5, slide=5, until=9)


def test_the_machine_is_what_runs(spark: "SparkSession") -> None:
    """The window of a machine fed by hand is the window that Spark returns."""
    machine = Machine(windows.engine("coral8"), windows.Query(4, 2, "max"))
    by_hand = machine.feed([Arrival(3, 9), Arrival(4, 8), Arrival(9, 1), Stable(12)]).shown
    df = spark.createDataFrame([(9, 1), (3, 9), (4, 8)], "at long, v long")
    ran = ab.windows_run(
        df, like="coral8", time="at", value="v", size=4, slide=2, agg="max", until=12
    )
    rows = sorted(ran.results().collect(), key=lambda row: row.seq)
    assert [(row.start, row.value) for row in rows] == [
        (one.start, one.value) for one in by_hand
    ]
