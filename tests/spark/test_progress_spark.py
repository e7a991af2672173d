"""Progress of queries with a merge, as Spark tells it: our own start, and Spark's writers."""

import threading
from pathlib import Path
from typing import Any

import pytest
from test_dataframes_spark import EAST, WEST, stream_of

import anabranch as ab
from anabranch.errors import UsageError
from anabranch.spark.progress import BUCKETS

pytestmark = pytest.mark.spark


class Told(list[dict[str, Any]]):
    """What a listener heard; Spark tells it a little later."""

    def __init__(self) -> None:
        self._second = threading.Event()

    def hear(self, progress: dict[str, Any]) -> None:
        self.append(progress)
        if len(self) == 2:
            self._second.set()

    def wait(self) -> None:
        assert self._second.wait(30)


def require_whole(triggers: list[dict[str, Any]]) -> None:
    """Both files of both replicas, in two triggers: all counted, the end reached."""
    assert [one["trigger"] for one in triggers] == [0, 1]
    assert sum(one["rows"] for one in triggers) == len(EAST) + len(WEST)
    for one in triggers:
        assert set(one["replicas"]) == {"east", "west"}
        for counts in one["replicas"].values():
            assert sum(counts[bucket] for bucket in BUCKETS) == counts["rows"]
    first, last = triggers
    assert (first["frontier"], first["leader"]) == (2, "east")
    assert first["replicas"]["east"]["lag"] == 0
    assert first["replicas"]["west"]["lag"] is None
    assert first["live"] > 0
    assert first["state_bytes"] > 0
    assert (last["frontier"], last["live"]) == ("forever", 0)
    assert {one["standing"] for one in last["replicas"].values()} == {"ended"}


def test_a_started_merge_tells_every_trigger(spark: Any, tmp_path: Path) -> None:
    told = Told()
    listener = ab.listener(told.hear)
    spark.streams.addListener(listener)
    try:
        started = stream_of(spark, tmp_path).start(tmp_path / "ck", once=True)
        started.wait()
        told.wait()
    finally:
        spark.streams.removeListener(listener)
    require_whole(told)
    assert ab.progress(started) == ab.progress(started.query) == told[1:]
    assert ab.progress(started.query.lastProgress) == told[1:]
    assert started.totals.last["replicas"] == told[1]["replicas"]
    assert started.silent("0 seconds") == []  # all have ended


def test_a_view_that_spark_writes_itself_tells_it_too(spark: Any, tmp_path: Path) -> None:
    merged = stream_of(spark, tmp_path, quarantine=tmp_path / "apart")
    told = Told()

    def fail(progress: dict[str, Any]) -> None:
        raise ValueError(progress)

    listeners = [ab.listener(fail), ab.listener(told.hear)]
    for listener in listeners:
        spark.streams.addListener(listener)
    try:
        stream = merged.final().writeStream.option("checkpointLocation", str(tmp_path / "ck"))
        query = stream.trigger(availableNow=True).start(str(tmp_path / "final"))
        query.awaitTermination()
        told.wait()
    finally:
        for listener in listeners:
            spark.streams.removeListener(listener)
    require_whole(told)
    assert ab.progress(query) == told[1:]


def test_what_is_no_query_is_refused_and_a_query_without_a_merge_has_none(
    spark: Any, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="is a DataFrame; give a streaming query"):
        ab.progress(spark.range(1))
    rate = spark.readStream.format("rate").load().writeStream.format("noop")
    query = rate.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    query.awaitTermination()
    assert ab.progress(query) == []
