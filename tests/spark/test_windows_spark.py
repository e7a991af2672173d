"""The Spark profiles against Spark itself: what is predicted for a trigger is what it shows.

Generated inputs with gaps, simultaneous tuples and late tuples, slides below the size and equal
to it, delays, and both ways in which triggers come: one by one, and as a backlog.  A long
input is worth many short ones: the watermark takes all its ways in it.
"""

import random
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from window_runs import spark_run

from anabranch.errors import UsageError
from anabranch.windows import Arrival, Stable, engine, predict

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def generated(seed: int, triggers: int, delay: int) -> list[Arrival]:
    """Tuples in batches: simultaneous, after gaps, a little late, and far too late.

    Spark's watermark starts at 0: some tuples are before it, some within the delay of it.
    """
    chance = random.Random(seed)
    now, tuples = chance.randint(-6, 9), []
    for batch in range(triggers):
        for place in range(chance.randint(1, 4)):
            now += chance.choice([0, 0, 1, 2, 3, 5, 17])
            late = chance.choice([0, 0, 0, 1, delay, delay + 3, delay + 11])
            time = now if batch == place == 0 else now - late
            # Each value is another power of two: a sum identifies the tuples in it.
            tuples.append(Arrival(time, 2 ** len(tuples), batch=batch))
    return tuples


def predicted(
    mode: str, shape: tuple[int, int, int], tuples: list[Arrival], *, backlog: bool
) -> list[Any]:
    """What each trigger shows, counted from 0 as Spark does, batches without data included."""
    size, slide, delay = shape
    system = engine("spark-complete")
    given: list[Arrival | Stable] = list(tuples)
    if mode != "complete":
        system = engine(f"spark-{mode}", delay=delay, idle_batches=not backlog)
    if backlog:  # one batch without data, when all is read
        given.append(Stable(max(0, *(one.time - delay for one in tuples))))
    results = predict(system, size, slide, given, "sum").results
    return sorted((one.step - 1, one.start, one.end, one.value) for one in results)


def check(
    spark: "SparkSession",
    folder: Path,
    mode: str,
    shape: tuple[int, int, int],
    tuples: list[Arrival],
    *,
    backlog: bool,
) -> list[Any]:
    size, slide, delay = shape
    shown = spark_run(spark, folder, mode, delay, backlog=backlog)(tuples, size, slide)
    assert shown is not None
    found = sorted((row["step"], row["start"], row["end"], row["value"]) for row in shown)
    assert found == predicted(mode, shape, tuples, backlog=backlog), f"{mode}: {tuples}"
    return found


@pytest.mark.parametrize(
    ("mode", "shape", "backlog"),
    [
        ("append", (7, 3, 0), False),
        ("append", (5, 1, 4), True),
        ("update", (6, 6, 2), True),
        ("complete", (5, 2, 3), False),
    ],
)
def test_each_trigger_shows_what_is_predicted(
    quick: "SparkSession",
    tmp_path: Path,
    mode: str,
    shape: tuple[int, int, int],
    *,
    backlog: bool,
) -> None:
    tuples = generated(shape[0], 8, shape[2])
    found = check(quick, tmp_path, mode, shape, tuples, backlog=backlog)
    assert len({step for step, *_ in found}) > 2


@pytest.mark.deep
@pytest.mark.parametrize("backlog", [False, True])
@pytest.mark.parametrize("mode", ["append", "update", "complete"])
@pytest.mark.parametrize("seed", range(12))
def test_each_trigger_shows_what_is_predicted_whatever_comes(
    quick: "SparkSession", tmp_path: Path, seed: int, mode: str, *, backlog: bool
) -> None:
    chance = random.Random(seed)
    size = chance.randint(1, 9)
    shape = (size, chance.randint(1, size), chance.choice([0, 1, 3, 8]))
    tuples = generated(100 + seed, 20, shape[2])
    check(quick, tmp_path, mode, shape, tuples, backlog=backlog)


def test_the_inputs_have_gaps_and_simultaneous_and_late_tuples() -> None:
    tuples = generated(7, 8, 1)
    times = [one.time for one in tuples]
    assert len(set(times)) < len(times)
    assert times != sorted(times)
    assert max(later - earlier for earlier, later in pairwise(sorted(times))) > 7
    inside = sum(len(one.content) for one in predict("spark-append", 7, 7, tuples).results)
    assert inside < len(tuples)


def test_a_slide_above_the_size_is_refused_by_spark_and_by_its_profiles(
    spark: "SparkSession",
) -> None:
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions as f

    rows = spark.range(3).select(f.timestamp_seconds("id").alias("at"))
    with pytest.raises(AnalysisException, match="slide_duration"):  # Connect asks when it must
        _ = rows.groupBy(f.window("at", "2 seconds", "3 seconds")).count().schema
    for mode in ("append", "update", "complete"):
        with pytest.raises(UsageError, match="no slide above the size"):
            predict(f"spark-{mode}", 2, 3, [(1, 1)])
