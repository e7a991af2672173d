"""Progress of queries with a merge, as Spark reports it: our own start, and Spark's writers."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from test_dataframes_spark import EAST, WEST, stream_of

import anabranch as ab
from anabranch.errors import UsageError
from anabranch.spark.progress import BUCKETS

pytestmark = pytest.mark.spark


class Seen(list[dict[str, Any]]):
    """What a listener received; Spark calls it a little later."""

    def receive(self, progress: dict[str, Any]) -> None:
        self.append(progress)


@contextmanager
def listening(spark: Any, *listeners: Any) -> Iterator[None]:
    """With these listeners, until they have received the end of the query in the block.

    On Spark Connect the last one may not be removed before: Spark waits for ever for what is
    on its way to it (SPARK-59623).
    """
    from pyspark.sql.streaming.listener import StreamingQueryListener

    ended = threading.Event()

    class Ended(StreamingQueryListener):
        def onQueryStarted(self, event: Any) -> None: ...  # noqa: N802
        def onQueryProgress(self, event: Any) -> None: ...  # noqa: N802
        def onQueryIdle(self, event: Any) -> None: ...  # noqa: N802
        def onQueryTerminated(self, event: Any) -> None:  # noqa: N802, ARG002
            ended.set()

    added = [*listeners, Ended()]  # each is called after the one before it
    for one in added:
        spark.streams.addListener(one)
    try:
        yield
        assert ended.wait(30)
    finally:
        for one in reversed(added):
            spark.streams.removeListener(one)


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


def test_a_started_merge_reports_every_trigger(spark: Any, tmp_path: Path) -> None:
    seen = Seen()
    with listening(spark, ab.listener(seen.receive)):
        started = stream_of(spark, tmp_path).start(tmp_path / "ck", once=True)
        started.wait()
    require_whole(seen)
    assert ab.progress(started) == ab.progress(started.query) == seen[1:]
    assert ab.progress(started.query.lastProgress) == seen[1:]
    assert started.totals.last.to_dict()["replicas"] == seen[1]["replicas"]
    assert started.silent("0 seconds") == []  # all have ended


def test_a_view_that_spark_writes_itself_reports_it_too(spark: Any, tmp_path: Path) -> None:
    merged = stream_of(spark, tmp_path, quarantine=tmp_path / "apart")
    seen = Seen()

    def fail(progress: dict[str, Any]) -> None:
        raise ValueError(progress)

    with listening(spark, ab.listener(fail), ab.listener(seen.receive)):
        stream = merged.final().writeStream.option("checkpointLocation", str(tmp_path / "ck"))
        query = stream.trigger(availableNow=True).start(str(tmp_path / "final"))
        query.awaitTermination()
    require_whole(seen)
    assert ab.progress(query) == seen[1:]


def test_while_nothing_comes_it_is_the_last_trigger_that_had_rows(
    spark: Any, tmp_path: Path
) -> None:
    setting = "spark.sql.streaming.noDataProgressEventInterval"
    before = spark.conf.get(setting)
    spark.conf.set(setting, "50ms")
    started = stream_of(spark, tmp_path).start(tmp_path / "ck", interval="100 milliseconds")
    try:
        for _ in range(600):
            last = started.query.lastProgress
            if last is not None and started.totals.triggers > 1 and not ab.progress(last):
                break  # Spark reports a trigger that did nothing
            time.sleep(0.2)
        assert ab.progress(started.query.lastProgress) == []
        [last] = ab.progress(started)
        assert last["rows"] > 0
        assert last["replicas"] == started.totals.last.to_dict()["replicas"]
    finally:
        started.stop()
        spark.conf.set(setting, before)


def test_what_is_no_query_is_refused_and_a_query_without_a_merge_has_none(
    spark: Any, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="is a DataFrame; give a streaming query"):
        ab.progress(spark.range(1))
    rate = spark.readStream.format("rate").load().writeStream.format("noop")
    query = rate.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    query.awaitTermination()
    assert ab.progress(query) == []
