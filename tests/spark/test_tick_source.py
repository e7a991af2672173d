"""The source of ticks, and the notes of lanes that it goes by; without Spark."""

import tempfile
from pathlib import Path
from unittest import mock

import pytest
from clocked_lanes import ClockedLanes, Row

from anabranch.batch.schema import TimeType
from anabranch.clocks import Alike, Clock, Learning, delay, disorder
from anabranch.spark.clock_record import ClockRecord
from anabranch.spark.lane.heartbeats import LaneClock
from anabranch.spark.pack import due
from anabranch.spark.pack.bounds import Asked
from anabranch.spark.pack.heartbeats import of_inbox
from anabranch.spark.pack.tick_source import TickReader, Ticks
from anabranch.spark.query.clocked import interval, warn_at_start, warn_of_interval

SECOND = 1_000_000
NUMBERS = TimeType.BIGINT


@pytest.fixture(autouse=True)
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def look(reader: TickReader, seconds: float) -> int:
    with mock.patch("time.time_ns", return_value=int(seconds * 1_000_000_000)):
        return reader.latestOffset()["tick"]


def test_ticks_come_at_their_interval() -> None:
    reader = TickReader(5 * SECOND, None)
    assert reader.initialOffset() == {"tick": 0}
    assert [look(reader, at) for at in (1000, 1004, 1005, 1012)] == [200, 200, 201, 202]
    assert look(reader, 900) == 202, "a clock that was set back stands still"
    assert reader.partitions({"tick": 202}, {"tick": 202}) == []
    (one,) = reader.partitions({"tick": 200}, {"tick": 202})
    assert list(reader.read(one)) == [(202,)]


def test_a_source_whose_clocks_need_no_time_never_ticks() -> None:
    made = Ticks({"every": "0"}).streamReader("")
    assert look(made, 1000) == look(made, 5000) == 0


def test_nothing_ticks_when_notes_show_that_nothing_is_due() -> None:
    reader = TickReader(SECOND, "q")
    assert look(reader, 1000) == 1000, "the first look ticks"
    assert look(reader, 1001) == 1001, "there is no note yet"
    clock = ClockRecord(time=1001 * SECOND, states={}, held_by={}, due=1010 * SECOND)
    due.leave("q", 0, 3, clock)
    due.leave("q", 1, 2, None)
    assert [look(reader, at) for at in (1005, 1009.9)] == [1001, 1001]
    assert look(reader, 1010) == 1010
    due.leave("q", 0, 3, ClockRecord(time=1010 * SECOND, states={}, held_by={}))
    assert look(reader, 9000) == 1010
    assert look(TickReader(SECOND, "other"), 9000) == 9000
    again = TickReader(SECOND, "q")
    assert [look(again, at) for at in (9001, 9002)] == [9001, 9001], "a restart looks once"


def test_a_delay_ticks_while_events_of_any_lane_wait() -> None:
    clock = ClockRecord(time=1000 * SECOND, states={}, held_by={}, every=SECOND)
    due.leave("q", 0, 0, clock)
    assert not due.is_due("q", 2000 * SECOND)
    due.leave("q", 1, 4, None)
    assert due.is_due("q", 2000 * SECOND)


def test_notes_of_others_and_damaged_ones_do_not_stop_ticks(notes: Path) -> None:
    due.leave("q", 0, 0, ClockRecord(time=5, states={}, held_by={}))
    assert not due.is_due("q", 2000 * SECOND)
    folder = due.folder_of("q")
    assert folder is not None
    (folder / "clock.json").write_text("{")
    assert due.is_due("q", 2000 * SECOND)
    folder.parent.chmod(0o777)
    assert due.folder_of("q") is None, "others could write there"
    assert due.is_due("q", 2000 * SECOND)


def test_old_notes_are_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    due.leave("q", 0, 0, None)
    due.tidy()
    folder = due.folder_of("q")
    assert folder is not None
    assert folder.exists()
    monkeypatch.setattr(due, "_OLD", -1)
    due.tidy()
    assert not folder.exists()


@pytest.mark.parametrize(
    ("clock", "expected"),
    [
        (Clock(disorder(5)), 0),
        (Clock(disorder(5), idle_after=60 * SECOND), 15 * SECOND),
        (Clock(delay(20 * SECOND), idle_after=60 * SECOND), 5 * SECOND),
        (Clock(disorder(5), idle_after=SECOND), SECOND),
        (Clock(Learning(adapts=True)), 10 * SECOND),
        (Clock(Alike(own=disorder(5).own, timeout=8 * SECOND)), 2 * SECOND),
    ],
)
def test_the_interval_is_a_part_of_the_least_span(clock: Clock, expected: int) -> None:
    assert interval([LaneClock(clock)], parts=4) == expected


def test_triggers_that_are_too_far_apart_for_a_silence_are_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clocks = [LaneClock(Clock(disorder(5), idle_after=60 * SECOND)), LaneClock(Clock(delay(5)))]
    warn_of_interval(clocks, "59 seconds")
    warn_of_interval(clocks[1:], "5 minutes")
    assert not caplog.records
    warn_of_interval(clocks, "1 minute")
    warn_at_start(
        clocks, of_inbox(Asked(disorder=3, idle_after="1 day"), NUMBERS), interval=None
    )
    (one,) = caplog.records
    assert "idle_after is 1 minute, and triggers are 1 minute apart" in one.getMessage()


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        (Asked(disorder=3), "the newest rows of a source (3) are not final until its next row"),
        (Asked(disorder=3), "give idle_after= (such as '1 minute') to go on without it, or"),
        (Asked("adaptive"), "nothing is final before 100 rows of each source came, and a"),
    ],
)
def test_what_an_inbox_waits_for_is_logged_at_its_start(
    asked: Asked, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    warn_at_start([], of_inbox(asked, NUMBERS), interval="1 second")
    (one,) = caplog.records
    assert text in one.getMessage()


def test_lanes_note_what_is_due() -> None:
    lanes = ClockedLanes(Clock(disorder(10), idle_after=60 * SECOND))
    lanes.trigger({"east": [Row(100)], "west": [Row(90)]}, 1000 * SECOND)
    for record in lanes.runtime.records:
        due.leave("q", record.lane, record.live, record.clock)
    assert not due.is_due("q", 1029 * SECOND)
    assert due.is_due("q", 1030 * SECOND)
