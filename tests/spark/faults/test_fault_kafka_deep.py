"""kill -9 of merges of a real Kafka and of their upgrades, by seed: nothing lost or doubled.

Each message has a number of its own; both topics have all of them.  The output must have each
number once, and each row of Kafka is counted once, however often it was read.
"""

import json
import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kafka_broker
import pyarrow.parquet as pq
import pytest
from faulty import PATIENCE, Counts
from sessions import Session

from anabranch.spark.checkpoint import run_record as runs

pytestmark = [
    pytest.mark.spark,
    pytest.mark.process,
    pytest.mark.deep,
    pytest.mark.skipif(not kafka_broker.has_maven(), reason="needs mvn and java for Kafka"),
]

PROGRAM = Path(__file__).with_name("kafka_run.py")
STEP = 40
ROUNDS = 3


class Scene:
    """Two topics, a merge of them, and the processes that drive it."""

    def __init__(self, jars: str, address: str, root: Path) -> None:
        self.words = [sys.executable, "-W", "ignore", PROGRAM, jars, address]
        self.root = root
        self.sessions: list[Session] = []
        self.produced = 0
        self.counts = Counts()

    def start(self, *actions: str) -> Session:
        log = self.root / f"driver-{len(self.sessions)}.log"
        env = {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        made = Session([*self.words, self.root, *actions], log=log, env=env)
        self.sessions.append(made)
        return made

    def act(self, *actions: str) -> list[dict[str, Any]]:
        """Do something to its end; what each action printed."""
        session = self.start(*actions)
        assert session.wait(PATIENCE) == 0, session.tail()
        return lines(session)

    def more(self) -> str:
        """The action that produces the next messages."""
        first, self.produced = self.produced, self.produced + STEP
        return f"produce:{first}:{self.produced}"

    def until(self, session: Session, printed: str) -> None:
        """Wait for a word in the log of a session."""
        began = time.monotonic()
        while printed not in session.log.read_text(errors="replace"):
            assert session.process.poll() is None, session.tail()
            assert time.monotonic() - began < PATIENCE, session.tail()
            time.sleep(0.01)

    def kill(self, session: Session) -> None:
        session.kill()
        self.counts.kills += 1

    def judge(self, last: dict[str, Any]) -> None:
        files = sorted((self.root / "out" / "elements").glob("*.parquet"))
        rows = [row for file in files for row in pq.read_table(file).to_pylist()]
        names = sorted(int(row["name"]) for row in rows if row["kind"] == "insert")
        self.counts.lost = len({*range(self.produced)} - {*names})
        self.counts.doubled = len(names) - len({*names})
        assert last["adds_up"], last
        assert last["rows"] == 2 * self.produced, last
        assert names == list(range(self.produced))
        assert len({row["seq"] for row in rows}) == len(rows)


def lines(session: Session) -> list[dict[str, Any]]:
    text = session.log.read_text(errors="replace")
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    jars = ",".join(map(str, kafka_broker.source_jars()))
    (tmp_path / "kafka").mkdir()
    with kafka_broker.broker(tmp_path / "kafka", partitions=3) as broker:
        made = Scene(jars, broker.address, tmp_path)
        yield made
        for session in made.sessions:
            session.close()


def test_a_merge_of_kafka_goes_on_in_other_lanes(scene: Scene) -> None:
    """Positions are exact; readers at the end of their topics are refused, then go on."""
    *_, once, done = scene.act(scene.more(), "once:2", "upgrade:3")
    assert once["rows"] == 2 * scene.produced
    assert (done["was"], done["lanes"]) == (2, 3)
    assert [sorted(one.values())[0].keys() for one in done["begins"]] == [{"0", "1", "2"}] * 2
    between, after = scene.more(), scene.more().replace("produce", "latest")
    found = scene.act(between, after)[-1]["refused"]
    print(found)
    assert "its reader begins at offset" in found
    assert "ab.starting_offsets(CHECKPOINT, 'east')" in found
    # Spark has committed a trigger without rows, and keeps where its readers began.
    assert "its reader begins" in scene.act("once", "upgrade:3")[0]["refused"]
    last = scene.act("once")[-1]
    print(last)
    scene.judge(last)


def test_partitions_behind_a_limit_are_blocked_and_not_idle(scene: Scene) -> None:
    """Rows that wait in Kafka are not late by `delay`, however long they wait; others idle."""
    (found,) = scene.act("limited:30")
    print(found)
    assert found["rows"] == 93
    assert found["seconds"] > 20, "the last rows came later than 12 seconds after their time"
    assert found["late"] == 0
    assert found["blocked"] == 3
    assert found["names"] == ["east-0", "east-1", "east-2"]
    assert found["idle"] == 3, "the partitions of west, at the same time"
    assert any("rows of it wait that were not read" in one for one in found["held_by"])


@pytest.mark.parametrize("seed", range(500, 504))
def test_killed_merges_and_upgrades_lose_nothing(
    scene: Scene, seed: int, record_property: Callable[[str, object], None]
) -> None:
    rng, counts = random.Random(seed), scene.counts
    record_property("faults", (seed, vars(counts)))
    scene.act(scene.more(), "once:2")
    for _ in range(ROUNDS):
        session = scene.start(scene.more(), "watch")
        scene.until(session, "watching")
        time.sleep(rng.uniform(0, 6))
        scene.kill(session)
        lanes = rng.choice([1, 3, 4])
        # A trigger that was begun is finished where it began: then the run can change.
        session = scene.start("once", f"upgrade:{lanes}")
        if rng.random() < 0.7:
            scene.until(session, "triggers")
            time.sleep(rng.uniform(0, 3))
            scene.kill(session)
        else:
            assert session.wait(PATIENCE) == 0, session.tail()
        run = runs.read(scene.root / "ck")
        assert run is not None
        counts.upgrades = run.generation
        print(f"seed {seed}: {counts}, {run.lanes} lanes")
    last = scene.act("once")[-1]
    print(f"seed {seed}: {counts}: {last}")
    scene.judge(last)
