"""What a user states of heartbeats, as clocks and packers get it, without Spark."""

import pytest

import anabranch as ab
from anabranch.batch.schema import TimeType
from anabranch.clocks import disorder
from anabranch.errors import UsageError
from anabranch.spark.pack.heartbeats import Asked, of_inbox

SECOND = 1_000_000
HOUR = 3600 * SECOND
STAMPS, NUMBERS = TimeType.TIMESTAMP, TimeType.BIGINT


def test_a_clock_guards_timestamps_like_other_bounds() -> None:
    made = ab.clock(disorder(10), idle_after="1 minute")
    for given in (Asked(made), Asked(disorder="10 seconds")):
        assert of_inbox(given, STAMPS).how.guard == HOUR
    assert of_inbox(Asked(made, guard="5 minutes"), STAMPS).how.guard == 300 * SECOND
    assert of_inbox(Asked(made, guard=None), STAMPS).how.guard is None


def test_the_guard_of_numbers_belongs_to_the_clock() -> None:
    assert of_inbox(Asked(disorder=10, guard=5), NUMBERS).how.clock.jump == 5
    assert of_inbox(Asked(ab.clock(disorder(10), jump=7)), NUMBERS).how.clock.jump == 7
    with pytest.raises(UsageError, match=r"give it to the clock: ab\.clock\(\.\.\., jump=5\)"):
        of_inbox(Asked(ab.clock(disorder(10)), guard=5), NUMBERS)
