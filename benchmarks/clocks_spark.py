"""One of two sources falls silent, on Spark: its watermark stalls or drops, heartbeats neither.

    python benchmarks/clocks_spark.py        about two minutes

Both sources send a row per second of application time, one file per ten seconds; west is a
minute behind.  After a while west is silent while east goes on; then west returns with current
times.  Three queries read the same files in the same order:

    least       withWatermark on both, union, count per window of ten seconds, append mode
    greatest    the same with `spark.sql.streaming.multipleWatermarkPolicy=max`
    heartbeats  ab.merge of both with `.heartbeats(disorder=, idle_after=)`, its final events

For each: the share of the rows sent by then whose result is out when the silence ends, and how
many rows were lost in the end: those in no window that Spark emitted, or late for the merge.
A last file far ahead closes all windows before.  Counts, not times.
"""

import os
import shutil
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from merging.clock import machine, report

import anabranch as ab

FIRST = datetime(2026, 1, 1, tzinfo=UTC)
ROWS = 10
DELAY = "10 seconds"
IDLE_SECONDS = 3
BOTH, SILENT, RETURNED = 12, 24, 6
"""Files of each phase: both send, only east sends, both send again."""
BEHIND = 6
"""West is this many files behind until it falls silent."""
FAR_AHEAD = 1_000
"""The file whose rows close every window before."""
POLICY = "spark.sql.streaming.multipleWatermarkPolicy"


def put(root: Path, name: str, number: int) -> None:
    """The file with the rows of one stretch of ten seconds."""
    seconds = range(number * ROWS, (number + 1) * ROWS)
    times = pa.array([FIRST + timedelta(seconds=s) for s in seconds], pa.timestamp("us", "UTC"))
    table = pa.table({"ts": times, "id": [f"{name} {s}" for s in seconds]})
    file = root / name / f"{number:03d}.parquet"
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, file)
    os.utime(file, (1_700_000_000 + number,) * 2)  # Spark takes files by their time


def frames(spark: Any, root: Path) -> dict[str, Any]:
    reader = spark.readStream.schema("ts timestamp, id string").option("maxFilesPerTrigger", 1)
    return {name: reader.parquet(str(root / name)) for name in ("east", "west")}


def by_watermark(spark: Any, root: Path, policy: str) -> tuple[Any, Callable[[], int]]:
    """Spark's own query, and how many rows are in the windows that it has emitted."""
    from pyspark.sql import functions as f

    spark.conf.set(POLICY, policy)
    east, west = (df.withWatermark("ts", DELAY) for df in frames(spark, root).values())
    windows = east.unionByName(west).groupBy(f.window("ts", "10 seconds")).count()
    name = f"watermark_{policy}"
    query = windows.writeStream.format("memory").queryName(name).outputMode("append").start()

    def emitted() -> int:
        return spark.table(name).agg(f.sum("count")).first()[0] or 0

    return query, emitted


def by_heartbeats(spark: Any, root: Path) -> tuple[Any, Callable[[], int]]:
    """The merge of both sources, and how many events are final."""
    copies = [
        ab.events(df, start="ts", lifetime="1 second", name=name).heartbeats(
            disorder=DELAY, idle_after=f"{IDLE_SECONDS} seconds"
        )
        for name, df in frames(spark, root).items()
    ]
    query = ab.merge(*copies).start(root / "ck", final=root / "final")
    return query, lambda: query.totals.output["final"]


def drive(query: Any, put_file: Callable[[str, int], None], emitted: Callable[[], int]) -> Any:
    """Deliver all files, phase by phase; how many rows came, and were out before the return."""
    sent = 0

    def deliver(numbers: range, *names: str, lag: int = 0) -> None:
        nonlocal sent
        for number in numbers:
            for name in names:
                put_file(name, number - (lag if name == "west" else 0))
                sent += ROWS
            getattr(query, "query", query).processAllAvailable()

    deliver(range(BOTH), "east", "west", lag=BEHIND)
    deliver(range(BOTH, BOTH + SILENT // 2), "east")
    time.sleep(2 * IDLE_SECONDS)
    deliver(range(BOTH + SILENT // 2, BOTH + SILENT), "east")
    out, before = emitted(), sent
    deliver(range(BOTH + SILENT, BOTH + SILENT + RETURNED), "east", "west")
    for name in ("east", "west"):
        put_file(name, FAR_AHEAD)
    getattr(query, "query", query).processAllAvailable()
    return {"sent": sent, "sent_before_the_return": before, "out_before_the_return": out}


def measure(spark: Any, kind: str) -> dict[str, Any]:
    root = Path(tempfile.mkdtemp(prefix="clocks_spark_"))
    for name in ("east", "west"):
        (root / name).mkdir()
    policy = {"least": "min", "greatest": "max"}.get(kind)
    try:
        query, emitted = (
            by_watermark(spark, root, policy) if policy else by_heartbeats(spark, root)
        )
        found = drive(query, lambda name, number: put(root, name, number), emitted)
        lost = found["sent"] - emitted() if policy else query.totals.bucket("late")
        query.stop()
    finally:
        shutil.rmtree(root, ignore_errors=True)
    share = found["out_before_the_return"] / found["sent_before_the_return"]
    return {**found, "share_out": round(share, 2), "lost": lost}


def main() -> None:
    facts = machine()
    spark = ab.session(config={"spark.sql.shuffle.partitions": "2"})
    kinds = ("least", "greatest", "heartbeats")
    found = {kind: measure(spark, kind) for kind in kinds}
    spark.stop()
    report("clocks_spark", {"machine": facts, **found})


if __name__ == "__main__":
    main()
