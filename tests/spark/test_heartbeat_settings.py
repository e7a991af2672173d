"""What a user states of heartbeats, as clocks and packers get it, without Spark."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import anabranch as ab
from anabranch.batch.schema import TimeType
from anabranch.clocks import Alike, Bounds, Clock, Learning, Pair, delay, disorder
from anabranch.errors import AnabranchError, FileError, InputError, UsageError
from anabranch.spark.pack.beats import Beating
from anabranch.spark.pack.bounds import Asked, require_times
from anabranch.spark.pack.heartbeats import of_inbox
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


@pytest.mark.parametrize("by", [("sensor",), ("topic", "partition")])
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
    how = Beating(Clock(bounds), ("sensor",))
    (one,) = lane_clocks(streams(a=how, b=how), None, ())
    assert [one.key(name) for name in "ab"] == ["a", "b"]


def clock_of(time: TimeType = STAMPS, **asked: Any) -> Clock:
    return of_inbox(Asked(**asked), time).how.clock


def test_a_timeout_is_added_to_given_bounds() -> None:
    for given in (disorder(5), NAMED):
        found = clock_of(bounds=given, timeout="2 minutes").bounds
        assert isinstance(found, Alike | Bounds)
        assert found.timeout == 120 * SECOND


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "bounds.toml"


def test_a_file_of_bounds_is_read_for_the_times_of_the_stream(file: Path) -> None:
    file.write_text("[alike]\ndisorder = 10\n")
    assert clock_of(NUMBERS, bounds=file).bounds == disorder(10)
    file.write_text('[alike]\ndisorder = "10 seconds"\n')
    assert clock_of(bounds=str(file)).bounds == disorder(10 * SECOND)
    file.write_text('time = "bigint"\n[alike]\ndisorder = 10\n')
    made = ab.clock(file)
    assert clock_of(NUMBERS, bounds=made).bounds == disorder(10)
    for given in (file, made):
        with pytest.raises(AnabranchError, match=r"bigint.* of the stream are .*timestamp"):
            clock_of(bounds=given)
    file.write_text('time = "timestamp"\n[alike]\ndisorder = "1 second"\n')
    for given in (file, ab.clock(file)):
        with pytest.raises(AnabranchError, match=r"timestamp.* of the stream are .*bigint"):
            clock_of(NUMBERS, bounds=given)


@pytest.mark.parametrize(
    ("asked", "error", "message"),
    [
        ({"bounds": Learning(), "timeout": "1 minute"}, UsageError, "beside learned bounds"),
        ({"bounds": "adaptive", "timeout": "1 minute"}, UsageError, "give idle_after="),
        ({"bounds": disorder(5, timeout=9), "timeout": "1 minute"}, UsageError, "give one"),
        ({"bounds": "adaptiv"}, FileError, "no such file; did you mean 'adaptive'"),
        ({"bounds": "b.toml"}, FileError, "'b.toml': there is no such file; give the path"),
        ({"bounds": "/"}, FileError, "bounds='/' cannot be read as text"),
        ({"bounds": 3}, UsageError, "bounds=3 is int; expected ab.clocks.Bounds"),
        ({"bounds": ab.clock(disorder(1)), "resolution": "1 minute"}, UsageError, "has its"),
        ({"disorder": "3000000000 days"}, UsageError, "expected at most 4611686018427387904"),
        ({"delay": "3000000000 days"}, UsageError, "the delay is .*; expected a whole number"),
        ({"disorder": "1 day", "idle_after": "3000000000 days"}, UsageError, "idle_after is"),
    ],
)
def test_what_cannot_be_meant_is_named(
    asked: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        clock_of(**asked)


def test_a_delay_needs_timestamps_however_it_is_given(file: Path) -> None:
    file.write_text('delay = "1 minute"\n[alike]\n')
    ways: list[Any] = [delay(5), NAMED.of({("a", "a"): [Pair(0, 1)]}, delay=5), file]
    for given in (*ways, ab.clock(delay(5)), ab.clock(file)):
        with pytest.raises(
            (UsageError, InputError), match=r"needs timestamps|for timestamp times"
        ):
            clock_of(NUMBERS, bounds=given)
    with pytest.raises(UsageError, match="these times are without a zone; cast"):
        require_times(delay(5), STAMPS, is_ntz=True)
    with pytest.raises(UsageError, match="delay needs timestamps"):
        clock_of(NUMBERS, delay="1 minute")
