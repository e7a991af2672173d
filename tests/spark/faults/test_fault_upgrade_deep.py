"""kill -9 of upgrades and of the merges around them, by seed: nothing is lost or doubled.

Lanes change between one and four.  An upgrade is killed at a moment between its start and a
little after its end; then the merge goes on, in whichever lanes it has.
"""

import time

import pytest
from faulty import PATIENCE, MakeScene, Scene

from anabranch.spark.query import run_record as runs

pytestmark = [pytest.mark.spark, pytest.mark.deep]

ROUNDS = 5


def lanes_of(scene: Scene) -> int:
    run = runs.read(scene.place.checkpoint)
    assert run is not None
    return run.lanes


def upgrade(scene: Scene, seconds: float | None) -> float:
    """Another number of lanes, killed after some time or not; how long it took."""
    before = lanes_of(scene)
    wanted = scene.rng.choice([n for n in range(1, 5) if n != before])
    began, session = time.monotonic(), scene.upgrade(wanted)
    if seconds is None:
        assert session.wait(PATIENCE) == 0, session.tail()
        assert lanes_of(scene) == wanted
    else:
        while session.process.poll() is None and time.monotonic() - began < seconds:
            time.sleep(0.01)
        session.kill()
        scene.counts.kills += 1
    scene.counts.upgrades += lanes_of(scene) != before
    print(f"upgrade from {before} to {wanted}, {seconds}: {lanes_of(scene)} lanes")
    scene.require_prefix()
    return time.monotonic() - began


@pytest.mark.parametrize("number", range(400, 408))
def test_killed_upgrades_lose_nothing(scene: MakeScene, number: int) -> None:
    here = scene(number)
    # An upgrade needs a committed trigger.
    session = here.watch()
    here.until_trigger(session, 0, done=True)
    here.kill(session)
    took = upgrade(here, None)
    for left in range(ROUNDS, 0, -1):
        here.run_and_kill(files=here.waiting // left)
        # The second half of an upgrade is where the disk changes.
        upgrade(here, here.rng.uniform(0.4, 1.1) * took)
    here.finish()
