"""Queries beside Spark's own: the same files, trigger by trigger, in turns.

    python benchmarks/queries_spark.py [windows|join|skew] [--turns N] [--rows N]

    windows   count and avg by 10,000 keys and windows of 6 slides, 20 % disorder:
              Spark's `groupBy(window, key)` in update mode on RocksDB and on the heap store.
              Ours also corrects, and reports what is final.
    join      an interval join of two streams: Spark's stream-stream join with watermarks
    skew      ours on 4 lanes with half of all rows in one key, beside ours with even keys

All queries run in one session.  A turn gives one file to one query and waits until it is
committed; the time is that of Spark's progress (`triggerExecution`).  Ratios are Spark's time
to ours, turn by turn: above 1 ours is faster.  Results are compared: all closed windows are
equal, counts exactly and averages within one unit in the last place; all pairs are equal.
"""

import argparse
import json
import math
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from merging.clock import RESULTS, machine
from triggers.race import spread

import anabranch as ab

RESULT = RESULTS / "queries_spark.json"
PROVIDER = "spark.sql.streaming.stateStore.providerClass"
STORES = {
    "rocksdb": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    "heap": "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
}
KEYS = 10_000
SLIDE = 10
"""Seconds; a window is six of them long, and a turn covers one."""
ORIGIN = 1_700_000_000
SCHEMA = "at timestamp, k bigint, v double"


def rows_of(
    turn: int, rows: int, chance: np.random.Generator, *, skewed: bool = False
) -> pa.Table:
    """Rows of one slide; a fifth comes up to two slides late."""
    at = chance.uniform(turn * SLIDE, (turn + 1) * SLIDE, rows)
    late = chance.random(rows) < 0.2
    at = np.sort(at)
    at[late] -= chance.uniform(0, 2 * SLIDE, int(late.sum()))
    micros = ((ORIGIN + np.maximum(at, 0)) * 1e6).astype(np.int64)
    keys = chance.integers(0, KEYS, rows)
    if skewed:
        keys[chance.random(rows) < 0.5] = 0
    return pa.table(
        {
            "at": pa.array(micros, pa.timestamp("us", "UTC")),
            "k": pa.array(keys),
            "v": pa.array(chance.normal(size=rows)),
        }
    )


class Side:
    """A query over a folder that files are given to."""

    def __init__(self, name: str, folder: Path, *inputs: str) -> None:
        self.name, self.folder = name, folder / name
        self.inputs = inputs or ("in",)
        for one in self.inputs:
            (self.folder / one).mkdir(parents=True)
        self.query: Any = None
        self.last, self.ms = -1, list[float]()

    def source(self, spark: Any, schema: str, name: str = "in") -> Any:
        return spark.readStream.schema(schema).parquet(str(self.folder / name))

    def turn(self, files: dict[str, Path]) -> None:
        """Give files, and wait until all their rows are committed."""
        wanted = sum(pq.read_metadata(file).num_rows for file in files.values())
        for name, file in files.items():
            to = self.folder / name / file.name
            to.with_suffix(".tmp").write_bytes(file.read_bytes())
            to.with_suffix(".tmp").rename(to)
        seen, total, deadline = 0, 0.0, time.monotonic() + 300
        while seen < wanted:
            assert time.monotonic() < deadline, f"{self.name}: {seen} of {wanted} rows"
            if self.query.exception() is not None:
                raise self.query.exception()
            for one in self.query.recentProgress:
                if one.batchId > self.last and "addBatch" in one.durationMs:
                    self.last = one.batchId
                    seen += one.numInputRows
                    total += one.durationMs["triggerExecution"]
            time.sleep(0.05)
        self.ms.append(total)


def started(side: Side, query: Any) -> None:
    """Ours, with its own writer."""
    run = query.start(
        side.folder / "ck", changes=side.folder / "out", interval="100 milliseconds"
    )
    side.query = run.query


def native(spark: Any, side: Side, rows: Any, mode: str) -> None:
    """Spark's own; in update mode no file sink exists, so each batch is written."""

    def write(df: Any, batch: int) -> None:
        df.write.parquet(str(side.folder / "out" / f"{batch:06d}"))

    before = spark.conf.get(PROVIDER)
    spark.conf.set(PROVIDER, STORES[side.name])
    try:
        writer = rows.writeStream.outputMode(mode).option(
            "checkpointLocation", str(side.folder / "ck")
        )
        writer = writer.trigger(processingTime="100 milliseconds")
        side.query = writer.foreachBatch(write).start()
    finally:
        spark.conf.set(PROVIDER, before)


def race(sides: list[Side], made: list[dict[str, Path]]) -> None:
    for number, files in enumerate(made):
        at = number % len(sides)
        for side in [*sides[at:], *sides[:at]]:
            side.turn(files)


def windows(spark: Any, folder: Path, turns: int, rows: int) -> list[Side]:
    """Grouped hopping count and avg."""
    from pyspark.sql import functions as F  # noqa: N812

    chance, made = np.random.default_rng(7), list[dict[str, Path]]()
    for turn in range(turns):
        pq.write_table(rows_of(turn, rows, chance), folder / f"{turn:06d}.parquet")
        made.append({"in": folder / f"{turn:06d}.parquet"})
    size, slide = 6 * SLIDE, SLIDE
    ours = Side("ours", folder)
    started(ours, by_window(rows_in(spark, ours)))
    sides = [ours]
    for name in STORES:
        side = Side(name, folder)
        counted = (
            side.source(spark, SCHEMA)
            .withWatermark("at", f"{2 * SLIDE} seconds")
            .groupBy(F.window("at", f"{size} seconds", f"{slide} seconds"), "k")
            .agg(F.count("*").alias("n"), F.avg("v").alias("mean"))
        )
        native(spark, side, counted, "update")
        sides.append(side)
    race(sides, made)
    for side in sides:
        side.query.stop()
    _compare_windows(spark, sides, turns)
    return sides


def rows_in(spark: Any, side: Side) -> ab.Stream:
    """The rows of a folder as events whose stables follow from their times."""
    stream = ab.events(side.source(spark, SCHEMA), start="at", lifetime="1 second")
    return stream.heartbeats(disorder=f"{2 * SLIDE} seconds", idle_after="1 hour")


def by_window(stream: Any) -> Any:
    """Count and avg by key and window."""
    grid = stream.window(f"{6 * SLIDE} seconds", f"{SLIDE} seconds")
    return grid.group_by("k").aggregate(n=ab.count(), mean=ab.avg("v"))


def skew(spark: Any, folder: Path, turns: int, rows: int) -> list[Side]:
    """Even keys, and half of all rows in one of them."""
    sides = [Side("even", folder), Side("skewed", folder)]
    for side in sides:
        started(side, by_window(ab.union(rows_in(spark, side), lanes=4)))
    for number in range(turns):
        for side in sides if number % 2 else reversed(sides):
            chance = np.random.default_rng([9, number])
            made = rows_of(number, rows, chance, skewed=side.name == "skewed")
            (folder / side.name / "made").mkdir(exist_ok=True)
            path = folder / side.name / "made" / f"{number:06d}.parquet"
            pq.write_table(made, path)
            side.turn({"in": path})
    for side in sides:
        side.query.stop()
    return sides


def _compare_windows(spark: Any, sides: list[Side], turns: int) -> None:
    """Every window that is closed for all sides has the same count and average."""
    from pyspark.sql import functions as F  # noqa: N812

    closed = ORIGIN + (turns - 3) * SLIDE
    ours, theirs = sides[0], sides[1]
    changes = spark.read.parquet(str(ours.folder / "out"))
    gain = F.expr("if(_change_type in ('insert', 'update_postimage'), 1, -1)")
    held = changes.groupBy("start", "end", "k", "n", "mean").agg(F.sum(gain).alias("held"))
    mine = held.where("held > 0").selectExpr("unix_seconds(end) e", "k", "n", "mean")
    other = (
        spark.read.parquet(*map(str, sorted((theirs.folder / "out").iterdir())))
        .groupBy(F.unix_seconds("window.end").alias("e"), "k")
        .agg(F.max_by(F.struct("n", "mean"), "n").alias("last"))
        .selectExpr("e", "k", "last.n n", "last.mean mean")
    )
    found = {(r.e, r.k): (r.n, r.mean) for r in mine.where(f"e <= {closed}").collect()}
    truth = {(r.e, r.k): (r.n, r.mean) for r in other.where(f"e <= {closed}").collect()}
    assert found.keys() == truth.keys(), f"{len(found)} and {len(truth)} closed windows"
    off = 0
    for key, (count, mean) in found.items():
        their_count, their_mean = truth[key]
        assert count == their_count, f"{key}: {count} and {their_count} rows"
        off += not math.isclose(mean, their_mean, rel_tol=1e-12, abs_tol=1e-14)
    assert off == 0, f"{off} averages differ by more than rounding"
    print(f"{len(found)} closed windows are equal")


def join(spark: Any, folder: Path, turns: int, rows: int) -> list[Side]:
    """Pairs of equal keys whose intervals overlap: left lives 20 s, right 20 s."""
    from pyspark.sql import functions as F  # noqa: N812

    made, span = _both_sides(folder, turns, rows), 2 * SLIDE
    ours = Side("ours", folder, "left", "right")

    def events(name: str, value: str) -> Any:
        df = ours.source(spark, SCHEMA, name).withColumnRenamed("v", value)
        made = ab.events(df, start="at", lifetime=f"{span} seconds", name=name)
        return made.heartbeats(disorder=f"{span} seconds", idle_after="1 hour")

    started(ours, events("left", "v").join(events("right", "w"), on="k"))
    sides = [ours]
    for name in STORES:
        side = Side(name, folder, "left", "right")
        a = side.source(spark, SCHEMA, "left").withWatermark("at", f"{span} seconds")
        b = side.source(spark, SCHEMA, "right").selectExpr("at bt", "k bk", "v w")
        b = b.withWatermark("bt", f"{span} seconds")
        far = f"interval {span} seconds"
        near = f"k = bk and bt > at - {far} and bt < at + {far}"
        native(spark, side, a.join(b, F.expr(near)), "append")
        sides.append(side)
    race(sides, made)
    for side in sides:
        side.query.stop()
    _compare_pairs(spark, sides)
    return sides


def _both_sides(folder: Path, turns: int, rows: int) -> list[dict[str, Path]]:
    """The files of each turn."""
    chance, made = np.random.default_rng(8), list[dict[str, Path]]()
    for turn in range(turns):
        made.append({})
        for name in ("left", "right"):
            (folder / "made" / name).mkdir(parents=True, exist_ok=True)
            path = folder / "made" / name / f"{turn:06d}.parquet"
            pq.write_table(rows_of(turn, rows // 2, chance), path)
            made[-1][name] = path
    return made


def _compare_pairs(spark: Any, sides: list[Side]) -> None:
    """All sides have the same number of pairs, and ours never took one back."""
    changes = spark.read.parquet(str(sides[0].folder / "out"))
    words = sorted(row[0] for row in changes.select("_change_type").distinct().collect())
    assert words == ["insert"], words
    pairs = [changes.count()] + [
        spark.read.parquet(*map(str, sorted((side.folder / "out").iterdir()))).count()
        for side in sides[1:]
    ]
    print(f"pairs: {pairs}")
    assert len(set(pairs)) == 1, pairs


PARTS = {"windows": windows, "join": join, "skew": skew}


def main() -> None:
    reader = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    reader.add_argument("part", nargs="?", choices=PARTS)
    reader.add_argument("--turns", type=int, default=40)
    reader.add_argument("--warm", type=int, default=12)
    reader.add_argument("--rows", type=int, default=50_000)
    asked = reader.parse_args()
    known = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    for name in [asked.part] if asked.part else list(PARTS):
        spark = ab.session(config={"spark.sql.streaming.noDataMicroBatches.enabled": "false"})
        with tempfile.TemporaryDirectory(prefix="queries_spark_") as folder:
            sides = PARTS[name](spark, Path(folder), asked.turns, asked.rows)
        counted = {side.name: side.ms[asked.warm :] for side in sides}
        first, *others = counted
        part: dict[str, Any] = {"rows_per_turn": asked.rows, "turns": len(counted[first])}
        part["ms"] = {one: spread(times) for one, times in counted.items()}
        for one in others:
            pairs = zip(counted[one], counted[first], strict=True)
            part[f"{one}_to_{first}"] = spread([theirs / mine for theirs, mine in pairs])
        print(json.dumps({name: part}, indent=2))
        known[name] = part
        RESULT.write_text(json.dumps({"machine": machine(), **known}, indent=2) + "\n")
        spark.stop()


if __name__ == "__main__":
    main()
