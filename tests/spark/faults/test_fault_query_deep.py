"""kill -9 of a query of three stages: nothing lost, nothing doubled.

Files of random elements appear while the query runs; it is killed at random moments and started
again.  At the end its output has the history that the model gives for all elements.
"""

import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from faulty import PATIENCE, QUICK_JAVA, Counts
from query_run import build
from sessions import Session
from standalone import Cluster

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

    def __init__(self, folder: Path, seed: int, cluster: Cluster | None = None) -> None:
        self.folder, self.rng, self.counts = folder, random.Random(seed), Counts()
        self.env = {"JDK_JAVA_OPTIONS": QUICK_JAVA} | (cluster.env if cluster else {})
        self.master = cluster.url if cluster else "local[2]"
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
        command = [sys.executable, RUN, self.folder, self.master, *words]
        self.sessions.append(Session(command, log=log, env=self.env))
        return self.sessions[-1]

    def last(self, log: str) -> int:
        # Folders of parcels go meanwhile: `glob` would fail, `walk` does not.
        folders = (one for one in os.walk(self.folder / "ck") if Path(one[0]).name == log)
        found = [int(name) for _, _, names in folders for name in names if name.isdecimal()]
        return max(found, default=-1)

    def live_and_die(self, files: int) -> None:
        """One life, ended in a trigger or after one."""
        session, before = self.start(), self.last("commits")
        self.give(files)
        self.until(session, self.rng.choice(["offsets", "commits", "commits"]), before + 1)
        self.give(1)
        time.sleep(self.rng.uniform(0, 3))
        self.kill(session)

    def until(self, session: Session, log: str, trigger: int) -> None:
        """Wait until a trigger has begun (`offsets`) or ended (`commits`)."""
        began = time.monotonic()
        while self.last(log) < trigger:
            assert session.process.poll() is None, session.tail()
            assert time.monotonic() - began < PATIENCE, session.tail()
            time.sleep(0.02)

    def kill(self, session: Session) -> None:
        """Of the driver, or of a worker of the cluster."""
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

    def judge(self, spark: Any) -> None:
        """The output has the history of a batch of all elements."""
        rows = spark.createDataFrame(pa.Table.from_pylist(self.rows, schema=SCHEMA))
        truth = sorted(map(str, build(ab.elements(rows)).final().collect()))
        out = self.folder / "out"
        found = sorted(map(str, read_output(spark, out, what="current").collect()))
        self.counts.lost = len(set(truth) - set(found))
        self.counts.doubled = max(0, len(found) - len(truth))
        print(f"{self.counts}, {len(truth)} events")
        assert len(truth) > 50
        assert found == truth
        seqs = read_output(spark, out).select("seq").toArrow()["seq"].to_pylist()
        assert len(seqs) == len(set(seqs))


MakeKilled = Callable[..., Killed]


@pytest.fixture
def killed(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> Iterator[MakeKilled]:
    """`killed(number)`: the seed is the number of the test and `make test-deep SEED=n`."""
    made: list[Killed] = []

    def make(number: int, cluster: Cluster | None = None) -> Killed:
        seed = int(request.config.getoption("hypothesis_seed", None) or 0) * 1000 + number
        made.append(Killed(tmp_path, seed, cluster))
        record_property("faults", (seed, vars(made[0].counts)))
        return made[0]

    yield make
    for session in [session for one in made for session in one.sessions]:
        session.close()


@pytest.mark.parametrize("number", range(700, 703))
def test_a_killed_query_of_three_stages_has_the_history_of_the_batch(
    killed: MakeKilled, spark: Any, number: int
) -> None:
    here = killed(number)
    for left in range(KILLS, 0, -1):
        here.live_and_die(max(1, len(here.waiting) // (left + 1)))
    here.finish()
    here.judge(spark)


@pytest.mark.parametrize("number", range(710, 712))
def test_workers_of_a_cluster_are_killed_below_a_query(
    killed: MakeKilled, cluster: Cluster, spark: Any, number: int
) -> None:
    here = killed(number, cluster)
    session = here.start()
    for left in range(KILLS, 0, -1):
        before = here.last("commits")
        here.give(max(1, len(here.waiting) // (left + 1)))
        here.until(session, "offsets", before + 1)
        time.sleep(here.rng.uniform(0, 2))
        here.kill(cluster.workers.pop(here.rng.randrange(len(cluster.workers))))
        cluster.add_worker()
        here.until(session, "commits", before + 1)
    here.kill(session)
    here.finish()
    here.judge(spark)
