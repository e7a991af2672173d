"""kill -9 of merges that change their policy, and of upgrades that change their columns.

By seed: a policy is asked for at every start, so that a kill comes before, between and after
the entry of the control log, the record and the trigger.  Columns that no file has come and go;
the truth stays what it was.
"""

import random
import time

import pytest
from faulty import PATIENCE, MakeScene, Scene
from test_fault_upgrade_deep import run_of, until_it_writes

from anabranch.spark.checkpoint import run_record as runs

pytestmark = [pytest.mark.spark, pytest.mark.deep]

ROUNDS = 5
ANY_CASE = ["default", "stable_lag=3", "stable_lag=40", "promote=true"]
OF_R3 = [
    "inserts=quorum(1)",
    "inserts=half_frozen",
    "inserts=leader,adjusts=always",
    "adjusts=follow_leader,stable_lag=5",
    "gaps=true",
]


def policies(scene: Scene) -> list[str]:
    return ANY_CASE + (OF_R3 if run_of(scene).case == "r3" else [])


class Changing:
    """Starts of a scene with another policy each time."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.asked: list[str] = []
        self._start = scene.start
        scene.start = self.start  # type: ignore[method-assign]

    def start(self, *words: object):  # type: ignore[no-untyped-def]
        if not (self.scene.place.checkpoint / "_run.json").exists():
            return self._start(*words)
        policy = self.scene.rng.choice(policies(self.scene))
        self.asked.append(policy)
        gaps = "--gaps" if "gaps" in policy else "--no-gaps"
        return self._start("--policy", policy, gaps, *words)


@pytest.mark.parametrize("number", range(500, 506))
def test_killed_changes_of_the_policy_lose_nothing(scene: MakeScene, number: int) -> None:
    here = scene(number)
    changing = Changing(here)
    for left in range(ROUNDS, 0, -1):
        here.run_and_kill(files=here.waiting // left)
    here.finish()
    settings = run_of(here).settings
    print(f"policies asked for {changing.asked}, that counted {settings}")
    assert [at for at, _ in settings] == sorted(at for at, _ in settings)


def has_extra(scene: Scene) -> bool:
    """Whether the output may have the column that comes and goes."""
    known = runs.read(scene.place.output)
    return known is None or "extra" in (*known.added, *run_of(scene).added)


def upgrade(scene: Scene, seconds: float | None) -> float:
    """A column comes or goes, killed after some time or not; how long it wrote."""
    before = run_of(scene)
    words = ["--add-column", "extra:double"]
    if "extra" in before.added:
        words = ["--drop-column", "extra"]
    session = scene.change(*words)
    until_it_writes(scene, session)
    began = time.monotonic()
    while session.process.poll() is None:
        if seconds is not None and time.monotonic() - began >= seconds:
            break
        time.sleep(0.005)
    took = time.monotonic() - began
    if seconds is None:
        assert session.wait(PATIENCE) == 0, session.tail()
    else:
        session.kill()
        scene.counts.kills += 1
    scene.counts.upgrades += run_of(scene).columns != before.columns
    print(f"{words}, {seconds}: {run_of(scene).columns}")
    return took


@pytest.mark.parametrize("number", range(520, 526))
def test_killed_changes_of_columns_lose_nothing(scene: MakeScene, number: int) -> None:
    here = scene(number)
    judge = here.require_prefix
    # The truth has no such column: while the output has it, the two cannot be compared.
    here.require_prefix = lambda: None if has_extra(here) else judge()  # type: ignore[method-assign]
    began, session = time.monotonic(), here.watch()
    here.until_trigger(session, 0, done=True)
    here.ready = time.monotonic() - began
    here.kill(session)
    took = upgrade(here, None)
    upgrade(here, None)  # the truth has no such column: it must be gone in the end
    chance = random.Random(number)
    for left in range(ROUNDS, 0, -1):
        here.run_and_kill(files=here.waiting // left)
        upgrade(here, chance.uniform(0, 1.1) * took)
    if "extra" in run_of(here).added:
        upgrade(here, None)
    here.finish()
