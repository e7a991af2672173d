"""kill -9 of upgrades and of the merges around them, by seed: nothing is lost or doubled.

Lanes change between one and four.  An upgrade is killed at a moment between its first change of
the disk and a little after its end; then the merge goes on, in whichever lanes it has.
"""

import time

import pytest
from faulty import PATIENCE, MakeScene, Scene
from sessions import Session

from anabranch.spark.checkpoint import run_record as runs

pytestmark = [pytest.mark.spark, pytest.mark.deep]

ROUNDS = 5


def run_of(scene: Scene) -> runs.Run:
    run = runs.read(scene.place.checkpoint)
    assert run is not None
    return run


def until_it_writes(scene: Scene, session: Session) -> None:
    """Wait until an upgrade has begun to build the next generation, again."""
    target = runs.generation_folder(scene.place.checkpoint, run_of(scene).generation + 1)
    before = target.stat().st_ctime_ns if target.exists() else 0
    began = time.monotonic()
    while not target.exists() or target.stat().st_ctime_ns == before:
        assert session.process.poll() is None, session.tail()
        assert time.monotonic() - began < PATIENCE, session.tail()
        time.sleep(0.005)


def upgrade(scene: Scene, seconds: float | None) -> float:
    """Another number of lanes, killed after some time or not; how long it wrote."""
    before = run_of(scene).lanes
    wanted = scene.rng.choice([n for n in range(1, 5) if n != before])
    session = scene.upgrade(wanted)
    until_it_writes(scene, session)
    began = time.monotonic()
    if seconds is None:
        while run_of(scene).lanes == before:
            assert session.process.poll() in (None, 0), session.tail()
            time.sleep(0.005)
        took = time.monotonic() - began
        assert session.wait(PATIENCE) == 0, session.tail()
    else:
        while session.process.poll() is None and time.monotonic() - began < seconds:
            time.sleep(0.005)
        took = time.monotonic() - began
        session.kill()
        scene.counts.kills += 1
    scene.counts.upgrades += run_of(scene).lanes != before
    print(f"upgrade from {before} to {wanted}, {seconds}: {run_of(scene).lanes} lanes")
    scene.require_prefix()
    return took


@pytest.mark.parametrize("number", range(400, 408))
def test_killed_upgrades_lose_nothing(scene: MakeScene, number: int) -> None:
    here = scene(number)
    # An upgrade needs a committed trigger.
    began, session = time.monotonic(), here.watch()
    here.until_trigger(session, 0, done=True)
    here.ready = time.monotonic() - began
    here.kill(session)
    took = upgrade(here, None)
    for left in range(ROUNDS, 0, -1):
        here.run_and_kill(files=here.waiting // left)
        upgrade(here, here.rng.uniform(0, 1.1) * took)
    here.finish()
