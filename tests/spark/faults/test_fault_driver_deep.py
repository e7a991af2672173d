"""kill -9 of the driver at random moments, while files arrive: nothing is lost or doubled."""

import signal

import pytest
from faulty import MakeScene

pytestmark = [pytest.mark.spark, pytest.mark.deep]

KILLS = 6
INTERRUPTED = (130, -signal.SIGINT)
"""A shell calls both 130; the second is Python's, if it was interrupted while it started."""


@pytest.mark.parametrize("number", range(10))
def test_kills_at_any_moment(scene: MakeScene, number: int) -> None:
    here = scene(number)
    for left in range(KILLS, 0, -1):
        here.run_and_kill(files=here.waiting // left)
        if here.rng.random() < 0.4:
            here.lose_entry("commits")
    here.finish()


@pytest.mark.parametrize("number", range(100, 104))
def test_kills_before_anything_is_committed(scene: MakeScene, number: int) -> None:
    here = scene(number)
    for _ in range(4):
        session = here.watch()
        if here.rng.random() < 0.5:
            here.live(session, here.rng.uniform(0.5, here.ready), files=1)
        else:
            here.until_trigger(session, 0)
            here.live(session, here.rng.uniform(0, 1), files=1)
        here.kill(session)
    here.finish()


@pytest.mark.parametrize("number", range(200, 202))
def test_clean_stops_between_kills(scene: MakeScene, number: int) -> None:
    here = scene(number)
    for turn in range(4):
        session = here.watch()
        here.until_trigger(session, here.last("offsets") + (turn == 0))
        here.live(session, here.rng.uniform(2, 8), files=here.waiting // 4)
        if turn % 2:
            here.kill(session)
        else:
            assert session.interrupt() in INTERRUPTED
            here.counts.interrupts += 1
            assert here.last("offsets") >= here.last("commits")
            here.require_prefix()
    here.finish()
