"""kill -9 of merges of plain rows with clocks: nothing lost or doubled, no clock goes back.

Two copies of one stream, each without some rows, in files of plain rows that three sensors
sent.  One sensor falls silent early and returns late; between kills all of them are idle for a
while.  Which rows come too late depends on when a merge was killed; each of them is kept.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from faulty import PATIENCE, MakeScene, Scene
from sessions import Session
from standalone import Cluster

from anabranch.sources.commits import committed
from anabranch.spark.write.records import read_records, record_files

pytestmark = [pytest.mark.spark, pytest.mark.deep]

KILLS = 8
EVENTS = 400
FILES = 10
DISORDER = 15
IDLE = 4.0
LIVES = 4
TOO_BUSY = "Python worker failed to connect back"


class PlainScene(Scene):
    """A merge of plain rows whose stables are inferred."""

    def fill(self, seed: int) -> str:  # noqa: ARG002
        """Rows of three sensors; c is silent between a third and the last tenth of them."""
        rng, rows = self.rng, []
        for n in range(EVENTS):
            time = 10 * n - rng.randrange(DISORDER)
            silent = EVENTS // 3 < n < EVENTS - EVENTS // 10
            rows.append(
                {"at": time, "id": f"{n}", "sensor": rng.choice("ab" if silent else "abc")}
            )
        self.sent: set[str] = set()
        for name in ("east", "west"):
            folder = self.place.inbox / name
            folder.mkdir(parents=True)
            mine = [row for row in rows if rng.random() < 0.9]
            self.sent |= {row["id"] for row in mine}
            each = -(-len(mine) // FILES)
            for number in range(FILES):
                some = pa.Table.from_pylist(mine[number * each : (number + 1) * each])
                pq.write_table(some, folder / f"part-{number:05d}.parquet")
        beats = ["--disorder", DISORDER, "--idle-after", f"{IDLE:g} seconds"]
        self.options = ["--time", "at", "--lifetime", 5, "--source", "sensor", *beats]
        return f"{EVENTS} plain rows"

    def require_prefix(self) -> None:
        """What is committed has no event twice, and no clock went back."""
        inserted = self.inserted()
        assert all(count == 1 for count in inserted.values()), inserted.most_common(3)
        self.require_rising()

    def inserted(self) -> Counter[str]:
        return self._ids("elements", insert=True)

    def _ids(self, name: str, *, insert: bool = False) -> Counter[str]:
        folder, found = self.place.output / name, Counter[str]()
        for file in committed(folder) if folder.exists() else ():
            rows = pq.read_table(file).to_pylist()
            found.update(row["id"] for row in rows if not insert or row["kind"] == "insert")
        return found

    def records(self) -> Iterator[tuple[int, Any]]:
        """What each committed trigger reports of its clocks, and of the frontier."""
        last = self.last("commits")
        for trigger, file in record_files(self.place.output / "progress").items():
            if trigger <= last:
                for record in read_records(file):
                    yield trigger, record

    def require_rising(self) -> None:
        """Neither heartbeats nor stables nor the output ever went back."""
        reached: dict[Any, float] = {}
        for trigger, record in self.records():
            shown = {("frontier", record.lane): record.frontier}
            if record.clock is not None:
                shown["time"] = record.clock.time
                for one in record.clock.sources:
                    shown[one["clock"], one["name"]] = one["heartbeat"]
            for what, now in shown.items():
                value = float("inf") if now == "forever" else now
                before = reached.get(what)
                assert before is None or (value is not None and value >= before), (
                    trigger, what, before, value,
                )  # fmt: skip
                if value is not None:
                    reached[what] = value

    def idled(self, since: int = -1) -> int:
        """The greatest number of sources that were idle at once, after some trigger."""
        clocks = [one.clock for trigger, one in self.records() if trigger > since and one.clock]
        return max((one.states["idle"] for one in clocks), default=0)

    def judge(self, report: dict[str, Any]) -> None:
        inserted, late = self.inserted(), self._ids("late")
        rows = sum(pq.read_metadata(file).num_rows for file in self.files)
        self.counts.lost = len(self.sent - {*inserted, *late}) + max(0, rows - report["rows"])
        twice = sum(count - 1 for count in inserted.values())
        self.counts.doubled = twice + max(0, report["rows"] - rows)
        print(f"judged: {self.counts}, {late.total()} late, {self.idled()} idle at once")
        assert (self.counts.lost, self.counts.doubled) == (0, 0)
        assert report["adds_up"], report
        assert report["quarantined"] == 0, report
        assert late.total() == report["output"]["late"]
        assert self.idled() >= 3, "all sensors of a replica were idle at once"
        assert {*inserted} <= self.sent
        self.require_rising()


def idle(here: Scene, session: Session) -> None:
    """Let no file come until all sources of a replica are idle, in a query that runs.

    Where triggers take longer than `IDLE`, nobody looks often enough: then silence is none.
    """
    assert isinstance(here, PlainScene)
    began, before = time.monotonic(), here.last("commits")
    while here.idled(since=before) < 3:
        assert time.monotonic() - began < PATIENCE, session.tail()
        here.live(session, 0.5)


def whole(here: Scene, life: Callable[[], object]) -> None:
    """A life that ends as it should; again if the machine was too busy for Spark's workers."""
    for _ in range(LIVES):
        try:
            life()
        except AssertionError:
            if TOO_BUSY not in here.sessions[-1].tail():
                raise
            print("Spark's Python was too slow to start: once more")
        else:
            return
    raise AssertionError(here.sessions[-1].tail())


@pytest.mark.parametrize("number", range(600, 602))
def test_kills_of_drivers_and_workers_with_clocks(scene: MakeScene, number: int) -> None:
    here = scene(number, kind=PlainScene)
    for left in range(KILLS, 0, -1):
        files = here.waiting // left
        killed = partial(here.run_and_kill, files=files)
        whole(here, killed if left % 3 else partial(kill_workers, here, files))
    whole(here, here.finish)


def kill_workers(here: Scene, files: int) -> None:
    """One life, ended by a kill of its Python workers while a trigger runs."""
    session, before = here.watch(), here.last("commits")
    here.give(files)
    here.until_trigger(session, before + 1, done=True)
    idle(here, session)
    begun = here.last("offsets")
    here.give()
    here.until_trigger(session, begun + 1)
    time.sleep(here.rng.uniform(0, 0.5))
    workers = session.kill_workers()  # the trigger fails, and with it the query
    print(f"killed {workers} workers of Python")
    assert workers > 0
    here.kill(session)


def test_kills_of_machines_with_clocks(scene: MakeScene, cluster: Cluster) -> None:
    here = scene(610, master=cluster.url, kind=PlainScene)
    here.env |= cluster.env
    session = here.watch()
    here.until_trigger(session, 0)
    for left in range(4, 0, -1):
        here.live(session, here.rng.uniform(0, 5), files=here.waiting // left)
        here.kill(cluster.workers.pop(here.rng.randrange(len(cluster.workers))))
        cluster.add_worker()
        idle(here, session)
    assert session.interrupt() == 130
    whole(here, here.finish)
