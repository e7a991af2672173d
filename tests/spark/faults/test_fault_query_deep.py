"""kill -9 of a query of three stages: nothing lost, nothing doubled.

Files of random elements appear while the query runs; it is killed at random moments and started
again.  At the end its output has the history that the model gives for all elements.
"""

import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from faulty import PATIENCE, QUICK_JAVA, Counts
from query_run import build
from sessions import Session

import anabranch as ab
from anabranch.spark.write.read_output import read_output

pytestmark = [pytest.mark.spark, pytest.mark.deep]

KILLS = 6
FILES = 36
ROWS = 40
SCHEMA = pa.schema(
    [("kind", pa.string()), ("start", pa.int64()), ("end", pa.int64()), ("old_end", pa.int64()),
     ("k", pa.string()), ("v", pa.int64()), ("seq", pa.int64())]
)  # fmt: skip
RUN = Path(__file__).with_name("query_run.py")


def elements(rng: random.Random) -> list[dict[str, Any]]:
    """Inserts, adjusts that lengthen, shorten and remove, and stables; the last is FOREVER."""
    rows: list[dict[str, Any]] = []
    live: list[dict[str, Any]] = []
    for at in range(FILES * ROWS - 1):
        now = at // 4
        row: dict[str, Any] = dict.fromkeys(SCHEMA.names) | {"seq": at}
        chance = rng.random()
        live = [one for one in live if one["end"] > now - 20]
        if chance < 0.05:
            rows.append(row | {"kind": "stable", "start": now - 20})
        elif chance < 0.3 and live:
            one = live.pop(rng.randrange(len(live)))
            end = max(one["start"], now - 20) + rng.randrange(12)
            is_gone = one["start"] >= now - 20 and rng.random() < 0.3
            end = one["start"] if is_gone else max(end, one["start"] + 1)
            rows.append(row | one | {"kind": "adjust", "end": end, "old_end": one["end"]})
            if not is_gone:
                live.append({**one, "end": end})
        else:
            start = now - rng.randrange(20)
            one = {"start": start, "end": start + 1 + rng.randrange(30),
                   "k": rng.choice("abcd"), "v": rng.randrange(-2, 6)}  # fmt: skip
            live.append(one)
            rows.append(row | one | {"kind": "insert"})
    return [*rows, dict.fromkeys(SCHEMA.names) | {"kind": "stable", "seq": FILES * ROWS}]


class Killed:
    """The query as a process, the files that it is given, and what was done to it."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.rng, self.counts = folder, random.Random(seed), Counts()
        self.rows = elements(self.rng)
        self.waiting = [self.rows[at : at + ROWS] for at in range(0, len(self.rows), ROWS)]
        self.sessions: list[Session] = []
        (folder / "in").mkdir()

    def give(self, count: int) -> None:
        for _ in range(min(count, len(self.waiting))):
            some = pa.Table.from_pylist(self.waiting.pop(0), schema=SCHEMA)
            name = f"part-{FILES - len(self.waiting):04d}.parquet"
            pq.write_table(some, self.folder / name)
            (self.folder / name).rename(self.folder / "in" / name)
            time.sleep(0.02)  # Spark reads files by their times

    def start(self, *words: str) -> Session:
        log = self.folder / f"driver-{len(self.sessions)}.log"
        command = [sys.executable, RUN, self.folder, *words]
        self.sessions.append(Session(command, log=log, env={"JDK_JAVA_OPTIONS": QUICK_JAVA}))
        return self.sessions[-1]

    def last(self, log: str) -> int:
        files = self.folder.glob(f"ck/**/{log}/[0-9]*")
        return max((int(file.name) for file in files if file.name.isdecimal()), default=-1)

    def live_and_die(self, files: int) -> None:
        """One life, ended in a trigger or after one."""
        session, before, began = self.start(), self.last("commits"), time.monotonic()
        self.give(files)
        log = self.rng.choice(["offsets", "commits", "commits"])
        while self.last(log) <= before:
            assert session.process.poll() is None, session.tail()
            assert time.monotonic() - began < PATIENCE, session.tail()
            time.sleep(0.02)
        self.give(1)
        time.sleep(self.rng.uniform(0, 3))
        session.kill()
        self.counts.kills += 1
        self.counts.in_a_trigger += self.last("offsets") > self.last("commits")
        at = f"{self.last('offsets')}, committed {self.last('commits')}"
        print(f"kill {self.counts.kills}: trigger {at}")

    def finish(self) -> None:
        """Give all, and run to the end undisturbed."""
        self.give(len(self.waiting))
        session = self.start("once")
        assert session.wait(PATIENCE) == 0, session.tail()
        assert "adds up: True" in session.log.read_text(), session.tail()


@pytest.mark.parametrize("number", range(700, 703))
def test_a_killed_query_of_three_stages_has_the_history_of_the_batch(
    spark: Any,
    tmp_path: Path,
    number: int,
    request: pytest.FixtureRequest,
    record_property: Callable[[str, object], None],
) -> None:
    seed = int(request.config.getoption("hypothesis_seed", None) or 0) * 1000 + number
    here = Killed(tmp_path, seed)
    record_property("faults", (seed, vars(here.counts)))
    try:
        for left in range(KILLS, 0, -1):
            here.live_and_die(max(1, len(here.waiting) // (left + 1)))
        here.finish()
    finally:
        for one in here.sessions:
            one.close()
    rows = spark.createDataFrame(pa.Table.from_pylist(here.rows, schema=SCHEMA))
    truth = sorted(map(str, build(ab.elements(rows)).final().collect()))
    found = sorted(map(str, read_output(spark, tmp_path / "out", what="current").collect()))
    here.counts.lost = len(set(truth) - set(found))
    here.counts.doubled = max(0, len(found) - len(truth))
    print(f"seed {seed}: {here.counts}, {len(truth)} events")
    assert len(truth) > 50
    assert found == truth
    seqs = read_output(spark, tmp_path / "out").select("seq").toArrow()["seq"].to_pylist()
    assert len(seqs) == len(set(seqs))
