"""Merges of two topics of a real broker, as a program: Spark needs the connector's jars early.

Arguments: the jars, the broker's address, a folder to work in, then actions that
are done one after the other.  Each prints a line of JSON.

    produce:FIRST:LAST   messages with these numbers to both topics, in three partitions
    once:LANES           a merge of what is there; 0: the lanes of the run
    latest:FIRST:LAST    a merge whose readers begin at the end, and messages after that
    watch                a merge that runs until it is killed
    upgrade:LANES
    limited:ROWS         a merge with clocks: of east this many rows of each partition wait
                         behind a limit of the reader, west has one of each and is silent
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import anabranch as ab
from anabranch.errors import AnabranchError

TOPICS = ("east", "west")
VALUE = "ts bigint, name string"


def session(jars: str) -> Any:
    java = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    config = {"spark.jars": jars, "spark.driver.extraJavaOptions": java}
    return ab.session(master="local[2]", config={**config, "spark.driver.memory": "700m"})


class Actions:
    """What the program does."""

    def __init__(self, spark: Any, address: str, root: Path) -> None:
        self.spark = spark
        self.address = address
        self.checkpoint = root / "ck"
        self.output = root / "out"

    def produce(self, first: str, last: str) -> dict[str, Any]:
        for topic in TOPICS:
            rows = [
                (json.dumps({"ts": n, "name": str(n)}), n % 3)
                for n in range(int(first), int(last))
            ]
            made = self.spark.createDataFrame(rows, "value string, partition int").coalesce(1)
            writer = made.write.format("kafka").option("topic", topic)
            writer.option("kafka.bootstrap.servers", self.address).save()
        return {"produced": [int(first), int(last)]}

    def merged(self, lanes: int | None, begin: str | None) -> Any:
        from pyspark.sql import functions as F  # noqa: N812

        feeds = []
        for topic in TOPICS:
            reader = self.spark.readStream.format("kafka").option("subscribe", topic)
            reader = reader.option("kafka.bootstrap.servers", self.address)
            offsets = begin or ab.starting_offsets(self.checkpoint, topic)
            reader = reader.option("startingOffsets", offsets)
            reader = reader.option("maxOffsetsPerTrigger", 30)
            value = F.from_json(F.col("value").cast("string"), VALUE).alias("value")
            df = reader.load().select(value, "topic", "partition", "offset")
            df = df.select("value.*", "topic", "partition", "offset")
            feeds.append(ab.events(df, start="ts", lifetime=5, order="kafka", name=topic))
        return ab.merge(*feeds, lanes=lanes)

    def once(self, lanes: str = "0") -> dict[str, Any]:
        merged = self.merged(int(lanes) or None, None)
        try:
            query = merged.start(self.checkpoint, output=self.output, once=True)
            query.wait()
        except AnabranchError as error:
            return {"refused": f"{type(error).__name__}: {error}"}
        totals = query.totals
        counts = {"rows": totals.rows, "adds_up": totals.adds_up, "triggers": totals.triggers}
        return {**counts, "violations": totals.bucket("violation")}

    def latest(self, first: str, last: str) -> dict[str, Any]:
        merged = self.merged(None, "latest")
        query = merged.start(self.checkpoint, output=self.output, interval="1 second")
        try:
            while query.query.lastProgress is None:
                query.wait(1)
            self.produce(first, last)
            query.wait(300)
            query.stop()
        except AnabranchError as error:
            return {"refused": f"{type(error).__name__}: {error}"}
        return {"refused": "no"}

    def watch(self) -> dict[str, Any]:
        query = self.merged(None, None).start(
            self.checkpoint, output=self.output, interval="200 milliseconds"
        )
        print(json.dumps({"watching": True}), flush=True)
        query.wait()
        return {}

    def limited(self, rows: str) -> dict[str, Any]:
        """The states of the sources while rows wait and some are idle; what is late at last."""
        for topic, count in zip(TOPICS, (int(rows), 1), strict=True):
            self._produce_now(topic, count)
        feeds = [self._clocked(topic) for topic in TOPICS]
        seen: dict[str, Any] = {"blocked": 0, "idle": 0, "names": set(), "held_by": set()}

        def look(totals: Any) -> None:
            clock = totals.clock
            if clock is None or not clock.states["blocked"] or not clock.states["idle"]:
                return  # at the start all are blocked: Spark has reported nothing
            for word in ("blocked", "idle"):
                seen[word] = max(seen[word], clock.states[word])
            shown = [one for one in clock.sources if one["state"] == "blocked"]
            seen["names"] |= {one["name"] for one in shown}
            seen["held_by"] |= set(clock.held_by.values())

        query = ab.merge(*feeds, lanes=2).start(
            self.checkpoint, output=self.output, on_trigger=look
        )
        expected, began = 3 * (int(rows) + 1), time.monotonic()
        while query.totals.rows < expected or query.totals.live:
            assert time.monotonic() - began < 300, query.totals.to_dict()
            query.wait(1)
        query.stop()
        totals = query.totals
        found = {name: sorted(v) if isinstance(v, set) else v for name, v in seen.items()}
        counts = {"rows": totals.rows, "late": totals.bucket("late")}
        return {**found, **counts, "seconds": round(time.monotonic() - began)}

    def _produce_now(self, topic: str, count: int) -> None:
        from pyspark.sql import functions as F  # noqa: N812

        rows = self.spark.range(3 * count).select(
            F.to_json(
                F.struct(F.current_timestamp().alias("ts"), F.col("id").cast("string"))
            ).alias("value"),
            (F.col("id") % 3).cast("int").alias("partition"),
        )
        writer = rows.coalesce(1).write.format("kafka").option("topic", topic)
        writer.option("kafka.bootstrap.servers", self.address).save()

    def _clocked(self, topic: str) -> Any:
        from pyspark.sql import functions as F  # noqa: N812

        reader = self.spark.readStream.format("kafka").option("subscribe", topic)
        reader = reader.option("kafka.bootstrap.servers", self.address)
        reader = reader.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 3)
        value = F.from_json(F.col("value").cast("string"), "ts timestamp, id string")
        df = reader.load().select(value.alias("value"), "topic", "partition", "offset")
        df = df.select("value.*", "topic", "partition", "offset")
        events = ab.events(df, start="ts", lifetime="1 second", order="kafka", name=topic)
        return events.heartbeats(delay="12 seconds", idle_after="4 seconds")

    def upgrade(self, lanes: str) -> dict[str, Any]:
        try:
            done = ab.upgrade(self.checkpoint, lanes=int(lanes), spark=self.spark)
        except AnabranchError as error:
            return {"refused": f"{type(error).__name__}: {error}"}
        begins = [json.loads(ab.starting_offsets(self.checkpoint, name)) for name in TOPICS]
        return {"was": done.was, "lanes": done.lanes, "begins": begins}


def main(jars: str, address: str, root: Path, actions: list[str]) -> None:
    spark = session(jars)
    does = Actions(spark, address, root)
    for action in actions:
        name, *words = action.split(":")
        print(json.dumps(getattr(does, name)(*words)), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4:])
