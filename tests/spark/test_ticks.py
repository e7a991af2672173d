"""When the driver lets clocks be read without rows, and what it declares of replicas."""

from pathlib import Path

import pytest
from clocked_lanes import ClockedLanes, Row

from anabranch.clocks import Clock, delay, disorder
from anabranch.spark.lane.heartbeats import LaneClock
from anabranch.spark.progress import Totals
from anabranch.spark.query.control_log import ControlLog, read_entries
from anabranch.spark.query.ticks import Ticker, declared, pause

SECOND = 1_000_000


def ticker(log: ControlLog, unread: set[str]) -> Ticker:
    clock = Clock(disorder(10), idle_after=60 * SECOND)
    return Ticker(log, (LaneClock(clock, ("east", "west")),), lambda: unread)


def entries(folder: Path) -> list[tuple[str, str | None]]:
    return [(one.replica, one.settings) for one in read_entries(folder)]


def test_an_entry_is_written_when_something_is_due_and_not_before(tmp_path: Path) -> None:
    log = ControlLog(tmp_path / "control", implied=True)
    lanes = ClockedLanes(Clock(disorder(10), idle_after=60 * SECOND))
    lanes.trigger({"east": [Row(100)], "west": [Row(90)]}, 1000 * SECOND)
    totals, ticks = lanes.runtime.totals, ticker(log, set())
    assert totals.clock is not None
    assert totals.clock.due == 1030 * SECOND  # a look in between
    assert totals.clock.states["active"] == 2
    assert totals.clock.held_by["east"].startswith("west (active)")
    assert [one["name"] for one in totals.clock.sources] == ["west", "east"]
    ticks.look(1029, totals)
    assert entries(tmp_path / "control") == []
    ticks.look(1030, totals)
    ticks.look(1031, totals)  # the first entry still waits for its trigger
    assert entries(tmp_path / "control") == [("", None)]
    seconds = 1030
    while Ticker.is_due(seconds, lanes.runtime.totals):
        lanes.tick(seconds * SECOND)
        assert lanes.runtime.totals.clock is not None
        due = lanes.runtime.totals.clock.due or 0
        seconds = max(seconds + 1, due // SECOND)
    assert seconds < 1070
    assert lanes.frontier == 101
    assert not Ticker.is_due(5000, lanes.runtime.totals)


def test_a_delay_passes_while_events_wait() -> None:
    lanes = ClockedLanes(Clock(delay(10), resolution=SECOND))
    lanes.trigger({"east": [Row(5)]}, 1000 * SECOND)
    totals = lanes.runtime.totals
    assert totals.clock is not None
    assert totals.live == 1
    assert not Ticker.is_due(1000.5, totals)
    assert Ticker.is_due(1001, totals)
    lanes.tick(1001 * SECOND)
    assert lanes.frontier == 1000 * SECOND - 10 + 1
    assert totals.live == 0
    assert not Ticker.is_due(2000, totals)
    assert not Ticker.is_due(2000, Totals())


def test_rows_that_wait_block_a_replica_if_two_looks_agree(tmp_path: Path) -> None:
    log, lanes = (
        ControlLog(tmp_path / "control", implied=True),
        ClockedLanes(Clock(disorder(1))),
    )
    lanes.trigger({"east": [Row(100)], "west": [Row(90)]}, 1000 * SECOND)
    unread = {"east"}
    ticks, totals = ticker(log, unread), lanes.runtime.totals
    ticks.look(0, totals)
    assert entries(tmp_path / "control") == []
    ticks.look(1, totals)
    assert entries(tmp_path / "control") == [("east", '{"blocked": ["*"]}')]
    unread.clear()
    ticks.look(2, totals)
    assert entries(tmp_path / "control")[1:] == [("east", "{}")]


def test_what_was_declared_outlives_the_process(tmp_path: Path) -> None:
    log = ControlLog(tmp_path / "control", implied=True)
    assert pause(log, "east", None, paused=True)
    assert not pause(log, "east", None, paused=True)
    assert pause(log, "west", "s1", paused=True)
    again = ControlLog(tmp_path / "control", implied=True)
    assert declared(again, "east").paused == ("*",)
    assert pause(again, "west", "s1", paused=False)
    assert declared(again, "west").paused == ()


@pytest.mark.parametrize("word", ["paused", "blocked"])
def test_what_was_declared_counts_in_the_lanes(word: str) -> None:
    lanes = ClockedLanes(Clock(disorder(0), idle_after=60 * SECOND))
    lanes.trigger({"east": [Row(100)], "west": [Row(50)]}, 1000 * SECOND)
    lanes.declare("west", f'{{"{word}": ["*"]}}', 1001 * SECOND)
    lanes.trigger({"east": [Row(120)]}, 1002 * SECOND)
    totals = lanes.runtime.totals
    assert totals.clock is not None
    assert totals.clock.states[word] == 1
    assert lanes.frontier == (120 if word == "paused" else 50)
    for seconds in range(1010, 1100, 30):
        lanes.trigger({"east": [Row(seconds)]}, seconds * SECOND)
    assert lanes.frontier == (1070 if word == "paused" else 50)  # blocked is never idle
