"""When the driver lets clocks be read without rows, and what it declares of replicas."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from clocked_lanes import ClockedLanes, Row

from anabranch.clocks import Clock, delay, disorder
from anabranch.spark.checkpoint.control_log import ControlLog, read_entries
from anabranch.spark.lane.heartbeats import LaneClock
from anabranch.spark.progress import Totals
from anabranch.spark.run.ticks import Ticker, declared, is_due, pause
from anabranch.spark.run.unread import Readers

SECOND = 1_000_000
NOTHING = ControlLog(None)


def ticker(log: ControlLog, unread: dict[str, tuple[str, ...]]) -> Ticker:
    clock = Clock(disorder(10), idle_after=60 * SECOND)
    return Ticker(log, (LaneClock(clock, ("east", "west")),), lambda: unread)


def entries(folder: Path) -> list[tuple[str, str | None]]:
    return [(one.replica, one.settings) for one in read_entries(folder)]


def test_an_entry_is_written_when_something_is_due_and_not_before(tmp_path: Path) -> None:
    log = ControlLog(tmp_path / "control", implied=True)
    lanes = ClockedLanes(Clock(disorder(10), idle_after=60 * SECOND))
    lanes.trigger({"east": [Row(100)], "west": [Row(90)]}, 1000 * SECOND)
    totals, ticks = lanes.runtime.totals, ticker(log, {})
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
    while is_due(seconds, lanes.runtime.totals, NOTHING):
        lanes.tick(seconds * SECOND)
        assert lanes.runtime.totals.clock is not None
        due = lanes.runtime.totals.clock.due or 0
        seconds = max(seconds + 1, due // SECOND)
    assert seconds < 1070
    assert lanes.frontier == 101
    assert not is_due(5000, lanes.runtime.totals, NOTHING)


def test_a_delay_passes_while_events_wait() -> None:
    lanes = ClockedLanes(Clock(delay(10), resolution=SECOND))
    lanes.trigger({"east": [Row(5)]}, 1000 * SECOND)
    totals = lanes.runtime.totals
    assert totals.clock is not None
    assert totals.live == 1
    assert not is_due(1000.5, totals, NOTHING)
    assert is_due(1001, totals, NOTHING)
    lanes.tick(1001 * SECOND)
    assert lanes.frontier == 1000 * SECOND - 10 + 1
    assert totals.live == 0
    assert not is_due(2000, totals, NOTHING)
    assert not is_due(2000, Totals(), NOTHING)


@pytest.mark.parametrize("end", [None, 3])
def test_events_without_an_end_need_no_ticks_for_ever(end: int | None) -> None:
    """They stay open; time passes until all others have ended, and not after that."""
    lanes = ClockedLanes(Clock(delay(10 * SECOND), resolution=SECOND), replicas=("east",))
    lanes.lifetime = None if end is None else end * SECOND
    lanes.trigger({"east": [Row(1000 * SECOND)]}, 1001 * SECOND)
    totals, seconds = lanes.runtime.totals, 1001
    while is_due(seconds := seconds + 1, totals, NOTHING):
        lanes.tick(seconds * SECOND)
        assert seconds < 1100
    assert seconds in range(1010 + (end or 0), 1016 + (end or 0))
    assert totals.live == (end is None)
    lanes.restart()
    lanes.trigger({"east": [Row(2000 * SECOND, "b")]}, 2001 * SECOND)
    assert is_due(2003, totals, NOTHING)


def test_rows_that_wait_block_a_replica(tmp_path: Path) -> None:
    log, lanes = (
        ControlLog(tmp_path / "control", implied=True),
        ClockedLanes(Clock(disorder(1))),
    )
    lanes.trigger({"east": [Row(100)], "west": [Row(90)]}, 1000 * SECOND)
    unread = {"east": ("*",)}
    ticks, totals = ticker(log, unread), lanes.runtime.totals
    ticks.look(0, totals)
    ticks.look(1, totals)
    assert entries(tmp_path / "control") == [("east", '{"blocked": ["*"]}')]
    unread.clear()
    ticks.look(2, totals)
    assert entries(tmp_path / "control")[1:] == [("east", "{}")]


def test_an_idle_query_seldom_asks_spark_what_waits(tmp_path: Path) -> None:
    """After each trigger it asks at every look, for as long as a report may take."""
    log, asked = ControlLog(tmp_path / "control", implied=True), []
    clock = LaneClock(Clock(disorder(1), idle_after=60 * SECOND), ("east", "west"))
    ticks = Ticker(log, (clock,), lambda: asked.append(1) or {})
    for trigger in range(2):
        totals = Totals(next_trigger=trigger)
        for second in range(100):
            ticks.look(1000 * trigger + second, totals)
        assert len(asked) in range(18, 21)
        asked.clear()


def test_at_a_start_nobody_knows_what_waits(tmp_path: Path) -> None:
    """What arrived while nobody read is not late by a delay: it is blocked at first."""
    log, found = ControlLog(tmp_path / "control", implied=True), [None, {}]
    clock = LaneClock(Clock(delay(60 * SECOND)), ("east", "west"))
    ticks = Ticker(log, (clock,), lambda: found[0])
    ticks.begin(["east", "other"])
    assert entries(tmp_path / "control") == [("east", '{"blocked": ["*"]}')]
    lanes = ClockedLanes(Clock(disorder(1)))
    lanes.trigger({"east": [Row(100)]}, 1000 * SECOND)
    ticks.look(0, lanes.runtime.totals)
    assert len(entries(tmp_path / "control")) == 1
    del found[0]
    ticks.look(0, lanes.runtime.totals)
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


def test_a_source_that_was_paused_by_a_wrong_name_holds_nothing_back() -> None:
    lanes = ClockedLanes(Clock(disorder(0)), replicas=("east",), by=("__source",))
    lanes.trigger({"east": [Row(100, "x", "s1")]}, 1000 * SECOND)
    lanes.declare("east", '{"paused": ["typo"]}', 1001 * SECOND)
    lanes.declare("east", "{}", 1002 * SECOND)
    lanes.trigger({"east": [Row(130, "x", "s1")]}, 1003 * SECOND)
    assert lanes.frontier == 130
    lanes.declare("east", '{"paused": ["s2"]}', 1004 * SECOND)
    lanes.trigger({"east": [Row(110, "x", "s2"), Row(140, "x", "s1")]}, 1005 * SECOND)
    assert lanes.frontier == 140, "paused from its first row on"


def source(latest: object, end: object) -> SimpleNamespace:
    texts = [None if one is None else json.dumps(one) for one in (latest, end)]
    return SimpleNamespace(latestOffset=texts[0], endOffset=texts[1])


def test_rows_that_wait_are_known_by_replica_and_partition() -> None:
    both = Readers(("east", "west"), ("east", "west"), ("east",))
    log = source(None, {"logOffset": 3})
    full, read = {"t": {"0": 9, "1": 7}}, {"t": {"0": 9, "1": 5}}
    assert both.unread([source(full, read), source(full, full), log]) == {"east": ("t-1",)}
    assert both.unread([source(full, full), source(full, read), log]) == {"west": ("*",)}
    assert both.unread([source(full, None), log]) == {"east": ("t-0", "t-1")}
    assert both.unread([source({"n": 3}, {"n": 1}), source(None, None), log]) == {
        "east": ("*",)
    }
    # A DataFrame of two sources: rows of any of them may be those of every replica.
    every = both.unread([source(full, full), source(full, read), source(full, full), log])
    assert every == {"east": ("t-1",), "west": ("*",)}
    column = Readers((), ("a", "b"))
    assert column.unread([source(full, read), log]) == {"a": ("*",), "b": ("*",)}
    assert column.unread([]) == {}


def test_a_partition_whose_rows_wait_is_not_idle() -> None:
    """Of two partitions one is behind a limit, the other is silent: only that one is idle."""
    lanes = ClockedLanes(
        Clock(disorder(0), idle_after=60 * SECOND), replicas=("east",), by=("__source",)
    )
    lanes.trigger({"east": [Row(100, "x", "t-0"), Row(50, "x", "t-1")]}, 1000 * SECOND)
    lanes.declare("east", '{"blocked": ["t-1", "u-0"]}', 1001 * SECOND)
    for seconds in range(1030, 1200, 30):
        lanes.tick(seconds * SECOND)
    clock = lanes.runtime.totals.clock
    assert clock is not None
    assert clock.states == {"active": 0, "idle": 1, "paused": 0, "blocked": 1}
    assert {one["name"] for one in clock.sources} == {"t-0", "t-1"}  # u-0 is of another replica
    assert lanes.frontier == 50
    lanes.declare("east", "{}", 1200 * SECOND)
    for seconds in range(1230, 1350, 30):
        lanes.tick(seconds * SECOND)
    assert lanes.frontier == 101
