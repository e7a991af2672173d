"""What heartbeats cost on Spark: their share of a trigger, and the CPU of a query that is idle.

    python benchmarks/heartbeats_spark.py              about twelve minutes
    python benchmarks/heartbeats_spark.py --idle 30    the idle queries for 30 seconds each

**A trigger.**  Two copies of one stream, ten sources in each, 100,000 rows in a trigger.  Two
merges in one session get the same rows in the same order and take turns, a trigger each:

    stables      `ab.elements`: files with a column `kind`, and a stable as their last row
    heartbeats   `ab.events(...).heartbeats(disorder=, idle_after=, source=)`: without both

Both come to the same frontier in each trigger, so both keep and free the same events.  The
figure is the median of the ratios heartbeats / stables over all pairs, with quartiles; the
times are those that Spark reports (`triggerExecution`).  `phases` are the medians of its parts,
to see where a difference lies.

**An idle hour.**  After its rows a query gets nothing more: with heartbeats (`idle_after="10
seconds"`; measured from when all sources are idle), by Spark's own writer (its source of ticks
is looked at), and the merge with stables, for comparison.  CPU seconds of all processes, scaled
to an hour; and the triggers meanwhile.
"""

import argparse
import os
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from merging.clock import machine, report

import anabranch as ab

NAMES = ("east", "west")
ROWS = 50_000
"""Rows of each copy in a trigger."""
SOURCES = 10
WARM, MEASURED = 8, 16
SECOND = 1_000_000
FIRST = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp()) * SECOND
STEP = 1_000
"""Microseconds between two rows."""
DISORDER = 100
"""The greatest distance of a row behind the greatest time before it, in rows."""
PATIENCE = 300
WHOLE = "triggerExecution"
_TICKS = os.sysconf("SC_CLK_TCK")


def write_files(folder: Path, turns: int, *, plain: bool) -> None:
    """A file of each copy for each turn: the same rows, each copy in another order."""
    for number, name in enumerate(NAMES):
        (folder / name).mkdir(parents=True)
        chance = np.random.default_rng(number)
        for turn in range(turns):
            row = np.arange(turn * ROWS, (turn + 1) * ROWS)
            shaken = np.argsort(np.arange(ROWS) + chance.integers(0, DISORDER // 2, ROWS))
            row[:-SOURCES] = row[shaken[shaken < ROWS - SOURCES]]  # all sources end a file
            start = FIRST + row * STEP
            stable = int(start.max()) - (DISORDER + SOURCES - 1) * STEP
            table = pa.table(
                {
                    "kind": ["insert"] * ROWS + ["stable"],
                    "start": pa.array([*start.tolist(), stable], pa.timestamp("us", "UTC")),
                    "id": [f"event {n:012d}" for n in row] + [None],
                    "sensor": [f"sensor {n % SOURCES}" for n in row] + [None],
                }
            )
            table = table.slice(0, ROWS).drop_columns(["kind"]) if plain else table
            pq.write_table(table, folder / name / f"{turn:05d}.parquet")


def frames(spark: Any, inbox: Path, *, plain: bool) -> Iterator[tuple[str, Any]]:
    columns = "start timestamp, id string, sensor string"
    columns = columns if plain else f"kind string, {columns}"
    for name in NAMES:
        (inbox / name).mkdir(parents=True)
        yield name, spark.readStream.schema(columns).parquet(str(inbox / name))


def by_stables(spark: Any, inbox: Path) -> Any:
    from pyspark.sql import functions as f

    end = (f.col("start") + f.expr("interval 1 second")).alias("end")
    nothing = f.lit(None).cast("timestamp").alias("old_end")
    streams = [
        ab.elements(df.select("kind", "start", end, nothing, "id", "sensor"), name=name)
        for name, df in frames(spark, inbox, plain=False)
    ]
    return ab.merge(*streams, gaps=True, case="r4")


def by_heartbeats(spark: Any, inbox: Path, idle_after: str = "1 hour") -> Any:
    streams = [
        ab.events(df, start="start", lifetime="1 second", name=name).heartbeats(
            disorder=f"{DISORDER * STEP // 1000} milliseconds",
            idle_after=idle_after,
            source="sensor",
        )
        for name, df in frames(spark, inbox, plain=True)
    ]
    kept = inbox.parent / "not-merged"
    return ab.merge(*streams, gaps=True, case="r4", quarantine=kept)


class Side:
    """One merge that takes its turns; `extra` are the rows of a file that are no events."""

    def __init__(self, root: Path, made: Path, merged: Any, extra: int) -> None:
        self.inbox, self.made, self.each = root / "in", made, ROWS + extra
        self.query = merged.start(root / "ck", final=root / "final", interval="1 second")
        self.last = -1

    def turn(self, number: int) -> dict[str, float]:
        """Milliseconds of the triggers that took the files of this turn, by phase."""
        time.sleep((1.5 - time.time() % 1) % 1)  # Spark looks for files at each full second
        deliver(self.made, self.inbox, number)
        query, until = self.query, time.monotonic() + PATIENCE
        wanted = (number + 1) * self.each * len(NAMES)
        while query.totals.rows < wanted or not self._reported(query.totals.next_trigger - 1):
            assert time.monotonic() < until, query.totals.to_dict()
            time.sleep(0.02)
        since, self.last = self.last, query.totals.next_trigger - 1
        taken: Counter[str] = Counter()
        for one in query.recentProgress:
            if one.batchId > since and "addBatch" in one.durationMs:
                taken.update(one.durationMs)
        return dict(taken)

    def _reported(self, trigger: int) -> bool:
        done = [one for one in self.query.recentProgress if "addBatch" in one.durationMs]
        return bool(done) and done[-1].batchId >= trigger


def deliver(made: Path, inbox: Path, number: int) -> None:
    """The files of a turn appear at once."""
    targets = [(name, inbox / name / f"{number:05d}.parquet") for name in NAMES]
    for name, target in targets:
        shutil.copy(made / name / target.name, target.with_name(f".{target.name}"))
    for _, target in targets:
        target.with_name(f".{target.name}").rename(target)


def spread(values: list[float]) -> dict[str, float]:
    low, _, high = quantiles(values, n=4)
    return {"q1": round(low, 3), "median": round(median(values), 3), "q3": round(high, 3)}


def share_of_a_trigger(spark: Any, root: Path, warm: int, measured: int) -> dict[str, Any]:
    ways = {"stables": by_stables, "heartbeats": by_heartbeats}
    sides = {}
    for name, way in ways.items():
        made, place, plain = root / f"made-{name}", root / name, name == "heartbeats"
        write_files(made, warm + measured, plain=plain)
        sides[name] = Side(place, made, way(spark, place / "in"), 0 if plain else 1)
    taken: dict[str, list[dict[str, float]]] = {name: [] for name in sides}
    for turn in range(warm + measured):
        for name in list(sides) if turn % 2 else reversed(sides):
            taken[name].append(sides[name].turn(turn))
        frontiers = {side.query.totals.frontier for side in sides.values()}
        assert len(frontiers) == 1, f"the merges are not equally far: {frontiers}"
    for side in sides.values():
        side.query.stop()
        assert side.query.totals.bucket("late") == 0, side.query.totals.to_dict()
    whole = {name: [one[WHOLE] for one in some[warm:]] for name, some in taken.items()}
    pairs = zip(whole["heartbeats"], whole["stables"], strict=True)
    return {
        "rows_per_trigger": ROWS * len(NAMES),
        "sources": SOURCES * len(NAMES),
        "pairs": measured,
        "ratio": spread([one / other for one, other in pairs]),
        "ms": {name: spread(some) for name, some in whole.items()},
        "phases": {name: phases(some[warm:]) for name, some in taken.items()},
    }


def phases(turns: list[dict[str, float]]) -> dict[str, float]:
    """The median of each phase of Spark's triggers."""
    return {name: median([one.get(name, 0) for one in turns]) for name in sorted(turns[0])}


def cpu_times() -> dict[int, float]:
    """The CPU seconds of this process and of each that came of it and lives, by its number."""
    parents, used = {}, {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # it ended while we looked
                continue
            parents[int(entry.name)] = int(fields[1])
            used[int(entry.name)] = (int(fields[11]) + int(fields[12])) / _TICKS
    mine = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in mine} - mine:
        mine |= more
    return {pid: used[pid] for pid in mine}


def cpu_seconds_of(seconds: float) -> float:
    """The CPU seconds of all processes in a stretch of time; what ends is seen until then."""
    total, before, until = 0.0, cpu_times(), time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(1)
        now = cpu_times()
        total += sum(used - before.get(pid, 0.0) for pid, used in now.items())
        before = now
    return total


def idle_hour(query: Any, seconds: int) -> dict[str, Any]:
    """The CPU seconds of an hour in which nothing comes, and the triggers that ran."""
    query = getattr(query, "query", query)
    begin, first = time.monotonic(), _triggers(query)
    used = cpu_seconds_of(seconds)
    passed = time.monotonic() - begin
    return {
        "measured_seconds": round(passed),
        "cpu_seconds_per_hour": round(used / passed * 3600),
        "triggers": _triggers(query) - first,
    }


def _triggers(query: Any) -> int:
    done = [one for one in query.recentProgress if "addBatch" in one.durationMs]
    return int(done[-1].batchId) + 1 if done else 0


def idle_queries(spark: Any, root: Path, seconds: int) -> dict[str, Any]:
    found = {}
    for kind in ("stables", "heartbeats", "heartbeats_by_spark_writer"):
        place, made = root / kind, root / f"made-{kind}"
        write_files(made, 1, plain=kind != "stables")
        inbox = place / "in"
        merged = (
            by_stables(spark, inbox)
            if kind == "stables"
            else by_heartbeats(spark, inbox, idle_after="10 seconds")
        )
        if kind == "heartbeats_by_spark_writer":
            stream = merged.final().writeStream.format("parquet")
            stream = stream.option("path", str(place / "out"))
            stream = stream.option("checkpointLocation", str(place / "ck"))
            query = stream.trigger(processingTime="1 second").start()
        else:
            query = merged.start(place / "ck", final=place / "final", interval="1 second")
        deliver(made, inbox, 0)
        time.sleep(60)  # all sources are idle, and the last trigger has ended
        found[kind] = idle_hour(query, seconds)
        query.stop()
    return found


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    words.add_argument("--idle", type=int, default=120, help="seconds of each idle query")
    words.add_argument(
        "--pairs", type=int, default=MEASURED, help="pairs of triggers that count"
    )
    words.add_argument("--warm", type=int, default=WARM, help="pairs before these")
    asked = words.parse_args()
    facts = machine()
    root = Path(tempfile.mkdtemp(prefix="heartbeats_spark_"))
    spark = ab.session(config={"spark.sql.shuffle.partitions": "2"})
    try:
        found = {
            "trigger": share_of_a_trigger(spark, root / "race", asked.warm, asked.pairs),
            "idle": idle_queries(spark, root / "idle", asked.idle),
        }
    finally:
        spark.stop()
        shutil.rmtree(root, ignore_errors=True)
    report("heartbeats_spark", {"machine": facts, **found})


if __name__ == "__main__":
    main()
