"""The two ways to make one stream of three replicas, as queries that run and wait for files.

Both read the same files with three sources, write Parquet, and run in one session with the same
settings.  `Native` is what a user would write: union, watermark, dropDuplicatesWithinWatermark
by the id that every event has (merge compares whole rows).  The watermark's delay is such that
as many keys are alive as merge remembers events.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

import anabranch as ab
from triggers.feed import NAMES, ORIGIN, UNIT, Feed, deliver

TICKS = (701, 809, 907, 1009)
"""Milliseconds between two looks for files; each side has its own, for Spark looks at multiples
of them: with one for all, every trigger would begin while all the others look."""

PROVIDERS = {
    "rocksdb": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    "hdfs": "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
}
_PROVIDER = "spark.sql.streaming.stateStore.providerClass"


def schema(feed: Feed) -> str:
    columns = "kind string, start bigint, end bigint, old_end bigint, seq bigint"
    data = ", data string" if feed.payload else ""
    return f"{columns}, id bigint, value bigint{data}"


def sources(spark: SparkSession, feed: Feed, inbox: Path) -> list[DataFrame]:
    for name in NAMES:
        (inbox / name).mkdir(parents=True)
    reader = spark.readStream.schema(schema(feed))
    return [reader.parquet(str(inbox / name)) for name in NAMES]


@dataclass(eq=False)
class Side:
    """A query, and what it has written."""

    name: str
    folder: Path
    feed: Feed
    made: Path
    tick: int
    query: Any = None
    last: int = -1
    rows: int = 0
    live: list[int] = field(default_factory=list)

    @property
    def interval(self) -> str:
        return f"{self.tick} milliseconds"

    @property
    def inbox(self) -> Path:
        return self.folder / "in"

    @property
    def out(self) -> Path:
        return self.folder / "out"

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"


class Merge(Side):
    """`ab.merge` of three DataFrames with its own writer; late rows and records are kept."""

    @property
    def elements(self) -> Path:
        return self.out

    @property
    def totals(self) -> Any:
        return self.started.totals

    def start(self, spark: SparkSession) -> None:
        streams = [
            ab.elements(df, name=name)
            for name, df in zip(NAMES, sources(spark, self.feed, self.inbox), strict=True)
        ]
        merged = ab.merge(*streams)
        self.started = merged.start(
            self.checkpoint,
            elements=self.out,
            interval=self.interval,
            on_trigger=lambda totals: self.live.append(totals.live),
        )
        self.query = self.started.query

    def check(self) -> None:
        """The history of what was written is the truth, and every element is in one bucket."""
        totals = self.totals
        assert totals.adds_up, f"{self.name}: rows do not add up: {totals.to_dict()}"
        kept = totals.bucket("late") + totals.bucket("violation") + totals.bucket("pending")
        assert kept == 0, f"{self.name}: {kept} rows were not merged: {totals.to_dict()}"
        # An earlier layout had a folder for each trigger.
        files = sorted(
            [*self.elements.glob("*.parquet"), *self.elements.glob("trigger-*/*.parquet")]
        )
        rows = pa.concat_tables([pq.read_table(file) for file in files]).sort_by("seq")
        kind = rows["kind"].combine_chunks()
        truth, inserts = self.feed.truth(), rows.filter(pc.equal(kind, "insert"))
        changed = rows.filter(pc.equal(kind, "adjust"))
        inserts = inserts.sort_by("start")
        names = [name for name in truth.column_names if name != "end"]
        _require_equal(inserts.select(names), truth.select(names), self.name)
        ends = inserts["end"].to_numpy().copy()
        # The start identifies the event; of several adjusts the last one counts.
        ends[(changed["start"].to_numpy() - ORIGIN) // UNIT] = changed["end"].to_numpy()
        assert (ends == truth["end"].to_numpy()).all(), f"{self.name}: other ends"


class Inbox(Merge):
    """The same folders as `anabranch merge INBOX --watch` reads them: workers read the files.

    It looks at the first files before it starts, so they are there by then.
    """

    @property
    def elements(self) -> Path:
        return self.out / "elements"

    def start(self, spark: SparkSession) -> None:  # noqa: ARG002
        deliver(self.made, self.inbox, 0)
        merged = ab.merge(ab.inbox(self.inbox), lanes=2)
        self.started = merged.start(
            self.checkpoint,
            output=self.out,
            interval=self.interval,
            on_trigger=lambda totals: self.live.append(totals.live),
        )
        self.query = self.started.query


@dataclass(eq=False)
class Native(Side):
    """Spark's own operator on one of its two state stores."""

    provider: str = "rocksdb"

    def start(self, spark: SparkSession) -> None:
        first, *others = sources(spark, self.feed, self.inbox)
        for other in others:
            first = first.unionByName(other)
        payload = [name for name in first.columns if name in ("value", "data")]
        # A key lives for twice the delay and until the next trigger sees the watermark.
        delay = (self.feed.live - self.feed.rows) // 2
        rows = (
            first.where("kind = 'insert'")
            .selectExpr("timestamp_micros(start) as at", "id", *payload)
            .withWatermark("at", f"{delay} milliseconds")
            .dropDuplicatesWithinWatermark(["id"])
        )
        before = spark.conf.get(_PROVIDER)
        spark.conf.set(_PROVIDER, PROVIDERS[self.provider])
        try:
            self.query = (
                rows.writeStream.format("parquet")
                .option("checkpointLocation", str(self.checkpoint))
                .trigger(processingTime=self.interval)
                .start(str(self.out))
            )
        finally:
            spark.conf.set(_PROVIDER, before)

    def check(self) -> None:
        """Every event once, and nothing else."""
        files = sorted(self.out.glob("*.parquet"))
        rows = pa.concat_tables([pq.read_table(file) for file in files]).sort_by("at")
        truth = self.feed.truth()
        names = [name for name in truth.column_names if name not in ("start", "end")]
        _require_equal(rows.select(names), truth.select(names), self.name)
        at = rows["at"].cast(pa.timestamp("us", rows["at"].type.tz)).cast(pa.int64())
        assert at.to_pylist() == truth["start"].to_pylist(), f"{self.name}: other times"


def _require_equal(found: pa.Table, truth: pa.Table, who: str) -> None:
    message = f"{who}: wrote {found.num_rows} rows that are not the {truth.num_rows} true ones"
    assert found.cast(truth.schema).combine_chunks() == truth.combine_chunks(), message
