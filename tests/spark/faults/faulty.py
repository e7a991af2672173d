"""A merge that is fed while it runs, killed at random moments, started again, and judged.

All chance comes from one seed. What must hold after every kill: the committed output is a
valid prefix of the truth. What must hold at the end: it *is* the truth, each row of the inbox
was read once and is in one bucket, each committed element has a `seq` of its own.
"""

import json
import random
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from merge_place import Place
from sessions import Session

from anabranch.sources.commits import committed
from anabranch.spark.checkpoint import run_record as runs

QUICK_JAVA: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""A JVM that is killed in its first minute never profits from the second compiler."""

PATIENCE: Final = 900.0
"""Seconds after which something that makes no progress has failed: machines may be busy."""

SHAPES: Final[dict[str, dict[str, Any]]] = {
    "r0": {},
    "r2": {},
    "r3": {"disorder": 0.3, "revisions": 0.3, "stable_freq": 0.02},
}


@dataclass
class Counts:
    """What was done to a merge, and what it did wrong."""

    kills: int = 0
    in_a_trigger: int = 0
    interrupts: int = 0
    lost_entries: int = 0
    upgrades: int = 0
    lost: int = 0
    doubled: int = 0


class Scene:
    """One merge and its tormentor."""

    def __init__(self, root: Path, seed: int, *, master: str = "local[2]") -> None:
        self.place = Place(root)
        self.rng = random.Random(seed)
        self.master = master
        self.roll = "1 minute"
        self.lanes: int | None = 2
        self.env = {"JDK_JAVA_OPTIONS": QUICK_JAVA, "ANABRANCH_DRIVER_MEMORY": "700m"}
        self.counts = Counts()
        self.sessions: list[Session] = []
        self.held: dict[str, deque[tuple[Path, Path]]] = {}
        self.ready = 10.0  # seconds until the first trigger begins; measured as we go
        self.options: list[object] = []
        print(f"seed {seed}: {self.fill(seed)}, master {master}")
        self.files = sorted(self.place.inbox.glob("*/part-*"))
        self._hold_back()

    def fill(self, seed: int) -> str:
        """Write the inbox, and the truth; what they are."""
        case = self.rng.choice(sorted(SHAPES))
        self.place.generate(case, events=400, file_rows=40, seed=seed, **SHAPES[case])
        return f"case {case}"

    def _hold_back(self) -> None:
        """All files but each replica's first are to come later."""
        for replica in sorted(self.place.inbox.iterdir()):
            files = sorted(replica.glob("part-*"))[1:]
            aside = self.place.root / "held" / replica.name
            aside.mkdir(parents=True)
            self.held[replica.name] = deque((aside / file.name, file) for file in files)
            for now, file in self.held[replica.name]:
                file.rename(now)

    @property
    def waiting(self) -> int:
        """Files that have not been given yet."""
        return sum(len(files) for files in self.held.values())

    def give(self, number: int = 1) -> None:
        """Let the next files of random replicas appear in the inbox."""
        for _ in range(min(number, self.waiting)):
            replica = self.rng.choice([name for name, files in self.held.items() if files])
            now, file = self.held[replica].popleft()
            now.rename(file)

    def start(self, *words: object) -> Session:
        """`anabranch merge` as a process."""
        place = self.place
        folders = [place.inbox, "--output", place.output, "--checkpoint", place.checkpoint]
        command = [sys.executable, "-m", "anabranch", "merge", *folders, *words]
        lanes = [] if self.lanes is None else ["--lanes", self.lanes]
        return self._session([*command, *self.options, "--master", self.master, *lanes])

    def upgrade(self, lanes: int) -> Session:
        """`anabranch upgrade` as a process; who starts the merge then names no lanes."""
        self.lanes = None
        return self.change("--lanes", lanes)

    def change(self, *words: object) -> Session:
        """`anabranch upgrade` as a process, with any changes."""
        command = [sys.executable, "-m", "anabranch", "upgrade", self.place.checkpoint]
        return self._session([*command, *words, "--master", self.master])

    def _session(self, command: list[object]) -> Session:
        log = self.place.root / f"driver-{len(self.sessions)}.log"
        self.sessions.append(Session(command, log=log, env=self.env))
        return self.sessions[-1]

    def watch(self) -> Session:
        return self.start("--watch", "--interval", "200 milliseconds", "--roll", self.roll)

    def live(self, session: Session, seconds: float, *, files: int = 0) -> None:
        """Let time pass in which files arrive; what is started must live through it."""
        began = time.monotonic()
        moments = deque(sorted(self.rng.uniform(0, seconds) for _ in range(files)))
        while (passed := time.monotonic() - began) < seconds:
            while moments and moments[0] <= passed:
                moments.popleft()
                self.give()
            assert session.process.poll() is None, session.tail()
            time.sleep(0.02)

    def until_trigger(self, session: Session, number: int, *, done: bool = False) -> None:
        """Wait until a trigger has begun (or is committed)."""
        began = time.monotonic()
        while self.last("commits" if done else "offsets") < number:
            assert session.process.poll() is None, session.tail()
            assert time.monotonic() - began < PATIENCE, session.tail()
            time.sleep(0.02)

    def last(self, log: str) -> int:
        """The last entry of one of Spark's two logs; -1 if there is none."""
        return max((int(file.name) for file in self.entries(log)), default=-1)

    def entries(self, log: str) -> list[Path]:
        checkpoint = self.place.checkpoint
        run = runs.read(checkpoint)
        home = checkpoint if run is None else runs.home(checkpoint, run)
        files = home.glob(f"{log}/[0-9]*")
        return sorted((f for f in files if f.name.isdecimal()), key=lambda f: int(f.name))

    def kill(self, session: Session, only: str | None = None) -> None:
        """kill -9, and what must hold at that moment."""
        session.kill(only)
        self.counts.kills += 1
        in_trigger = self.last("offsets") > self.last("commits")
        self.counts.in_a_trigger += in_trigger
        where = "in" if in_trigger else "outside"
        print(f"kill {self.counts.kills} ({only or 'all'}): {where} trigger {self.at()}")
        self.require_prefix()

    def at(self) -> str:
        return f"{self.last('offsets')}, committed {self.last('commits')}"

    def run_and_kill(self, *, files: int) -> None:
        """One life, ended in its start, in its first trigger, or in a later one."""
        session = self.watch()
        before = self.last("commits")
        chance = self.rng.random()
        if self.counts.kills == 0:
            began = time.monotonic()
            self.until_trigger(session, 0)
            self.ready = time.monotonic() - began
        if chance < 0.3:
            self.live(session, self.rng.uniform(0.5, self.ready), files=files)
        elif chance < 0.65:
            self.live(session, self.rng.uniform(0.8, 1.8) * self.ready, files=files)
        else:
            self.give()
            self.until_trigger(session, before + 1, done=True)
            self.live(session, self.rng.uniform(0, 4), files=files)
        self.kill(session, self.rng.choice([None, None, None, "java", "python"]))

    def lose_entry(self, *logs: str) -> None:
        """What a crash can take: the last entry of a log of Spark."""
        number = self.last("commits")
        if number < 0 or number < self.last("offsets"):
            return  # the last trigger had not ended: its entry was not written yet
        for log in logs:
            folder = self.place.checkpoint / log
            (folder / str(number)).unlink(missing_ok=True)
            (folder / f".{number}.crc").unlink(missing_ok=True)
        self.counts.lost_entries += 1
        print(f"lost the entries of trigger {number} in {' and '.join(logs)}")

    def require_prefix(self) -> None:
        """What is committed is valid, and true below its frontier."""
        elements = self.place.output / "elements"
        if elements.exists() and committed(elements):
            verdict = self.place.check(until_frontier=True)
            assert verdict.ok, verdict

    def finish(self) -> dict[str, Any]:
        """Give all, run to the end undisturbed, and judge."""
        self.give(self.waiting)
        session = self.start("--once", "--json")
        code = session.wait(PATIENCE)
        assert code == 0, session.tail()
        lines = session.log.read_text().splitlines()
        report: dict[str, Any] = json.loads([li for li in lines if li.startswith("{")][-1])
        self.judge(report)
        return report

    def judge(self, report: dict[str, Any]) -> None:
        place = self.place
        verdict = place.check()
        rows = sum(pq.read_metadata(file).num_rows for file in self.files)
        seqs = column(place.output / "elements", "seq")
        against = verdict.comparisons[0]
        self.counts.lost = against.only_in_b + max(0, rows - report["rows"])
        again = len(seqs) - len(pc.unique(seqs)) + max(0, report["rows"] - rows)
        self.counts.doubled = against.only_in_a + again
        print(f"judged: {self.counts}")
        assert (self.counts.lost, self.counts.doubled) == (0, 0), verdict
        assert verdict.ok, verdict
        assert report["adds_up"], report
        assert report["quarantined"] == 0, report
        assert len(seqs) == report["output"]["elements"]
        late = place.output / "late"
        kept = len(column(late, "row")) if late.exists() else 0
        assert kept == report["output"]["late"]

    def close(self) -> None:
        for session in self.sessions:
            session.close()


MakeScene = Callable[..., Scene]
"""The fixture `scene`: from the number of a test to its scene."""


def column(folder: Path, name: str) -> pa.ChunkedArray:
    """A column of all committed rows of an output's folder."""
    tables = [pq.read_table(file, columns=[name]) for file in committed(folder)]
    return pa.concat_tables(tables)[name]
