"""What a user states of heartbeats, as clocks and packers get it, without Spark."""

from types import SimpleNamespace
from typing import Any

import pytest

import anabranch as ab
from anabranch.batch.schema import TimeType
from anabranch.clocks import Bounds, Clock, Learning, Pair, disorder
from anabranch.errors import UsageError
from anabranch.spark.pack.beats import SOURCE, Beating
from anabranch.spark.pack.heartbeats import Asked, of_inbox
from anabranch.spark.query.clocked import lane_clocks

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


def streams(**beating: Beating) -> Any:
    words = tuple((name, "given") for name in beating)
    return SimpleNamespace(beating=tuple(beating.items()), heartbeat_words=words)


NAMED = Bounds.of({("a", "a"): [Pair(0, 1)], ("b", "b"): [Pair(0, 1)]})


@pytest.mark.parametrize("by", [(SOURCE,), ("topic", "partition")])
def test_one_clock_of_several_streams_has_the_streams_as_sources(by: tuple[str, ...]) -> None:
    made = Clock(NAMED)
    (one,) = lane_clocks(streams(a=Beating(made), b=Beating(made)), None, ())
    assert (one.replicas, one.key("a"), one.key("b")) == (("a", "b"), "a", "a")
    with pytest.raises(UsageError, match=r"'a', 'b' have one clock .*: heartbeats\(bounds"):
        lane_clocks(streams(a=Beating(made, by), b=Beating(made, by)), None, ())
    with pytest.raises(UsageError, match="bounds between sources of two streams"):
        lane_clocks(streams(a=Beating(made), b=Beating(made, by)), None, ())
    alone = lane_clocks(streams(a=Beating(made, by), b=Beating(Clock(NAMED), by)), None, ())
    assert [spec.replicas for spec in alone] == [("a",), ("b",)]


@pytest.mark.parametrize("bounds", [disorder(3), Learning()])
def test_bounds_of_each_source_by_itself_may_be_shared(bounds: Any) -> None:
    how = Beating(Clock(bounds), (SOURCE,))
    (one,) = lane_clocks(streams(a=how, b=how), None, ())
    assert [one.key(name) for name in "ab"] == ["a", "b"]
