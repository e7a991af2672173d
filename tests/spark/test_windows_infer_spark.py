"""infer on real Spark: its three output modes are found by probing alone.

Each mode is recognised among all settings of the space, with its watermark delay; what cannot
be distinguished is as the model predicts.  The larger runs are deep.
"""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from window_runs import spark_run

from anabranch.windows import Arrival, Inference, Space, engine, infer, predict

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

# The seed that asks least, by the model, and each probe once; the deep runs ask more.
FEW = {"confirm": 1, "search": 64, "seed": 0, "repeats": 1}


def values(found: Inference, name: str) -> tuple[object, ...]:
    return found.parameter(name).values


@pytest.mark.deep
def test_append_mode_is_found(quick: "SparkSession", tmp_path: Path) -> None:
    found = infer(spark_run(quick, tmp_path, "append", delay=2), **FEW)
    assert found.like == ("spark-append",)
    assert values(found, "report.window_close") == (True,)
    assert values(found, "progress.delay") == (2,)
    assert values(found, "start.offset") == (0,)


@pytest.mark.deep
def test_update_mode_is_found(quick: "SparkSession", tmp_path: Path) -> None:
    found = infer(spark_run(quick, tmp_path, "update"), **FEW)
    assert found.like == ("spark-update",)
    assert values(found, "report.content_change") == (True,)
    assert values(found, "tick") == ("batch",)


@pytest.mark.deep
def test_complete_mode_is_found(quick: "SparkSession", tmp_path: Path) -> None:
    found = infer(spark_run(quick, tmp_path, "complete"), **FEW)
    assert found.like == ("spark-complete",)
    # Nothing is late and nothing is released: the delay means nothing.
    assert set(values(found, "progress.delay")) == {0, 2, 5}


def test_spark_takes_what_was_before_1970_for_late(
    quick: "SparkSession", tmp_path: Path
) -> None:
    times = [[0, -5, 1, -1], [-4], [4], [2], [11]]
    tuples = [
        Arrival(time, 10 * batch + place, batch=batch)
        for batch, some in enumerate(times, start=1)
        for place, time in enumerate(some)
    ]
    shown = list(spark_run(quick, tmp_path, "append", delay=2)(tuples, 2, 1) or ())
    wanted = predict(engine("spark-append", delay=2), 2, 1, tuples, "sum")
    assert sorted((one["step"] + 1, one["start"], one["value"]) for one in shown) == sorted(
        (one.step, one.start, one.value) for one in wanted.results
    )
    assert all(one["end"] > 0 for one in shown)


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("idle", [True, False])
@pytest.mark.parametrize("mode", ["append", "update", "complete"])
def test_modes_are_found_whatever_is_asked(
    quick: "SparkSession", tmp_path: Path, mode: str, seed: int, *, idle: bool
) -> None:
    quick.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", str(idle).lower())
    try:
        run = spark_run(quick, tmp_path, mode, delay=3)
        found = infer(run, space=Space(delays=(0, 1, 3, 6)), seed=seed, confirm=12)
    finally:
        quick.conf.unset("spark.sql.streaming.noDataMicroBatches.enabled")
    assert f"spark-{mode}" in found.like
    if mode == "append":
        assert values(found, "progress.idle_batches") == (idle,)
        assert values(found, "progress.delay") == (3,)
