"""Clocks in the lanes, without Spark: stables that are inferred, the same in every lane."""

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from clocked_lanes import GAPS, SCHEMA, ClockedLanes, Row
from hypothesis import given
from hypothesis import strategies as st

from anabranch.clocks import Alike, Bounds, Clock, Learning, Pair, delay, disorder, slack
from anabranch.model.properties import MergeCase
from anabranch.operators.merge.merge import MergeOperator
from anabranch.spark.pack.sources import Groups, coded, sources_of

SECOND = 1_000_000


def test_disorder_makes_events_final() -> None:
    lanes = ClockedLanes(Clock(disorder(10)))
    lanes.trigger({"east": [Row(100), Row(95, "b")], "west": [Row(100)]}, 0)
    assert lanes.frontier == 90
    lanes.trigger({"east": [Row(120, "c")], "west": []}, 0)
    assert lanes.frontier == 90  # west holds it back
    lanes.trigger({"west": [Row(120, "c")]}, 0)
    assert lanes.frontier == 110
    assert [(one.start, one.payload) for one in lanes.final] == [(95, "b"), (100, "a")]
    assert lanes.bucket("emitted") == 3
    assert lanes.bucket("absorbed") == 2


def test_a_row_behind_its_heartbeat_is_merged_where_the_output_is_not_final() -> None:
    lanes = ClockedLanes(Clock(disorder(10)))
    lanes.trigger({"east": [Row(100)], "west": [Row(50)]}, 0)
    assert lanes.frontier == 40
    lanes.trigger({"east": [Row(60, "behind its own 89")]}, 0)
    assert (lanes.bucket("emitted"), lanes.bucket("late")) == (3, 0)
    lanes.trigger({"east": [Row(39, "behind the output")], "west": [Row(100)]}, 0)
    assert (lanes.bucket("late"), lanes.bucket("violation")) == (1, 0)
    assert lanes.bucket("absorbed") == 1


def test_a_copy_of_what_is_final_is_absorbed_while_it_is_known() -> None:
    lanes = ClockedLanes(Clock(disorder(0)), lifetime=100)
    lanes.trigger({"east": [Row(50), Row(60, "b")], "west": [Row(60, "b")]}, 0)
    assert lanes.frontier == 60
    lanes.trigger({"west": [Row(50)]}, 0)
    assert (lanes.bucket("late"), lanes.bucket("absorbed")) == (0, 2)


def test_an_idle_replica_does_not_stall_and_counts_again_when_it_returns() -> None:
    lanes = ClockedLanes(Clock(disorder(0), idle_after=60 * SECOND))
    t = 1_000 * SECOND
    lanes.trigger({"east": [Row(100)], "west": [Row(100)]}, t)
    for n in range(1, 9):
        lanes.trigger({"east": [Row(100 + n)]}, t + n * 10 * SECOND)
    assert lanes.frontier == 108  # west was idle after 60 seconds, as the trigger before shows
    west = lanes.runtime.totals.replicas["west"]
    assert west.standing == "passed over"
    lanes.trigger({"west": [Row(105, "alone")]}, t + 90 * SECOND)
    lanes.trigger({"east": [Row(130)]}, t + 100 * SECOND)
    assert lanes.frontier == 108  # the output waits for it again, and never goes back
    assert lanes.bucket("late") == 1
    lanes.trigger({"west": [Row(120)]}, t + 110 * SECOND)
    assert lanes.frontier == 120


def test_all_replicas_are_idle() -> None:
    lanes = ClockedLanes(Clock(disorder(10), idle_after=60 * SECOND), replicas=("a", "b", "c"))
    t = 1_000 * SECOND
    lanes.trigger({"a": [Row(100)], "b": [Row(120)], "c": [Row(90)]}, t)
    assert lanes.frontier == 80
    for seconds in (30, 59, 61):
        lanes.tick(t + seconds * SECOND)
    assert lanes.frontier == 80  # the clock shows the time of the trigger before
    lanes.tick(t + 62 * SECOND)
    assert lanes.frontier == 121  # all have reached the greatest time
    assert [one.start for one in lanes.final] == [90, 100]
    lanes.trigger({"a": [Row(121, "next"), Row(119, "late")]}, t + 70 * SECOND)
    assert (lanes.bucket("emitted"), lanes.bucket("late")) == (4, 1)
    (row,) = [row for row in lanes.runtime.rows if row.channel == "late"]
    assert row.origin is not None
    assert row.origin.column("reason").to_pylist() == [
        "behind the output's frontier, and not known to the final output; source a, "
        "2 behind the frontier 121, bound: given: less than 11 behind"
    ]


def test_an_event_whose_end_is_known_is_final_at_its_start() -> None:
    fixed = MergeOperator(SCHEMA, MergeCase.R4, GAPS, final_at_start=True)
    lanes = ClockedLanes(Clock(disorder(0)), lifetime=1000, operator=fixed)
    lanes.trigger({"east": [Row(1), Row(1), Row(2, "b")], "west": [Row(1), Row(2, "b")]}, 0)
    assert [one.payload for one in lanes.final] == ["a", "a"]
    assert lanes.final[0].end == 1001
    lanes.trigger({"east": [Row(9)], "west": [Row(1), Row(9)]}, 0)
    assert [one.payload for one in lanes.final] == ["a", "a", "b"]  # each once
    assert lanes.bucket("late") == 0  # its copies are known until its end


def test_bounds_change_at_a_restart_and_no_heartbeat_goes_back() -> None:
    lanes = ClockedLanes(Clock(disorder(0)), replicas=("east",))
    lanes.trigger({"east": [Row(100)]}, 0)
    assert lanes.frontier == 100
    lanes.restart(Clock(disorder(30)))
    lanes.trigger({"east": [Row(110)]}, 0)
    assert lanes.frontier == 100
    lanes.trigger({"east": [Row(140)]}, 0)
    assert lanes.frontier == 110


@pytest.mark.parametrize("warm", [True, False])
def test_a_trigger_that_is_run_again_leaves_the_same_bytes(warm: bool) -> None:
    clock = Clock(disorder(3), idle_after=60 * SECOND)
    lanes = ClockedLanes(clock, by=("__source",), lanes=1)
    rows = {"east": [Row(5, "a", "s1"), Row(9, "b", "s2")], "west": [Row(7, "c", "s1")]}
    lanes.trigger(rows, 50 * SECOND)
    parcels = lanes.packed(rows, 60 * SECOND, tasks=2)
    runtime, found = lanes.runtime, []
    for _ in range(2):
        if not warm:
            lanes.restart()
        parts, _ = runtime.attempt(0, parcels)
        found.append({k: v for k, v in parts.items() if k != ("header",)})
    assert found[0] == found[1]


def test_another_column_names_the_sources_from_a_restart_on() -> None:
    """First the replica, then a column, then another one: nothing waits for those before."""
    clock = Clock(disorder(0))
    lanes = ClockedLanes(clock, replicas=("east",))
    lanes.trigger({"east": [Row(100, "a")]}, 0)
    lanes.by = ("__source",)
    for at, (column, name) in enumerate([("sensor", "s1"), ("sensor", "s1"), ("region", "r1")]):
        lanes.restart(replace(clock, source=column))
        lanes.trigger({"east": [Row(110 + at, "a", name)]}, at)
        assert lanes.frontier == 110 + at


def test_each_source_of_a_replica_has_its_own_heartbeat() -> None:
    clock = Clock(disorder(0), idle_after=60 * SECOND)
    lanes = ClockedLanes(clock, by=("__source",), replicas=("east",))
    t = 1_000 * SECOND
    lanes.trigger({"east": [Row(100, "a", "s1"), Row(40, "b", "s2")]}, t)
    assert lanes.frontier == 40
    lanes.trigger({"east": [Row(110, "c", "s1"), Row(45, "d", "s2")]}, t + 40 * SECOND)
    assert lanes.frontier == 45
    for n in (80, 100, 120):  # s2 is silent since 40
        lanes.trigger({"east": [Row(100 + n, "e", "s1")]}, t + n * SECOND)
    assert lanes.frontier == 220
    clock_record = lanes.runtime.totals.clock
    assert clock_record is not None
    assert clock_record.states == {"active": 1, "idle": 1, "paused": 0, "blocked": 0}
    assert all(one["bound"] == [{"wait": 0, "distance": 1}] for one in clock_record.sources)
    lanes.redistribute(3)
    lanes.trigger({"east": [Row(300, "f", "s1"), Row(200, "late", "s2")]}, t + 121 * SECOND)
    assert lanes.frontier == 220  # s2 counts again
    assert lanes.bucket("late") == 1
    late = [row.origin for row in lanes.runtime.rows if row.channel == "late"]
    assert late[0] is not None
    assert "source s2, 20 behind the frontier 220" in late[0].column("reason")[0].as_py()


def test_a_column_of_arrivals_decides_what_waits_are_over() -> None:
    clock = Clock(slack(5 * SECOND), resolution=SECOND)
    lanes = ClockedLanes(clock, replicas=("east",), has_arrival=True)
    t = 1_000 * SECOND
    lanes.trigger({"east": [Row(100, arrival=t - 9 * SECOND), Row(200, "b", None, t)]}, t)
    assert lanes.frontier is None
    lanes.tick(t + SECOND)
    assert lanes.frontier == 100  # the first row arrived nine seconds before the trigger
    lanes.tick(t + 5 * SECOND)
    lanes.tick(t + 6 * SECOND)
    assert lanes.frontier == 200


def test_rows_that_arrived_long_before_are_a_backlog() -> None:
    """After two hours without the query, five minutes of rows in each trigger."""
    clock = Clock(delay(60 * SECOND), resolution=SECOND)
    lanes = ClockedLanes(clock, replicas=("east",), has_arrival=True)
    t, down, minute = 1_000 * SECOND, 7_200 * SECOND, 60 * SECOND
    sent = [t + n * minute for n in range(140)]
    lanes.trigger({"east": [Row(sent[0] - 50 * SECOND, "0", arrival=sent[0])]}, t)
    for number in range(1, 28):
        some = sent[5 * number - 4 : 5 * number + 1]
        rows = [Row(at - 50 * SECOND, str(at), arrival=at) for at in some]
        lanes.trigger({"east": rows}, t + down + number * SECOND)
        record = lanes.runtime.totals.clock
        assert record is not None
        is_far = number > 2 and some[-1] < t + down - minute
        assert record.states["blocked"] == is_far
        if is_far:
            assert record.held_by["east"].startswith("east (blocked): rows of it wait")
        assert lanes.frontier is None or lanes.frontier <= some[-1] - minute
    assert lanes.bucket("late") == 0
    lanes.tick(t + 2 * down)
    lanes.tick(t + 2 * down + 1)
    assert lanes.frontier == t + 2 * down - minute + 1, "nothing waits any more"


def test_silence_in_a_backlog_counts_by_arrivals() -> None:
    clock = Clock(disorder(0), idle_after=600 * SECOND, resolution=SECOND)
    lanes = ClockedLanes(clock, by=("__source",), replicas=("east",), has_arrival=True)
    t, down, minute = 1_000 * SECOND, 7_200 * SECOND, 60 * SECOND
    lanes.trigger({"east": [Row(5, "a", s, arrival=t) for s in ("s1", "s2")]}, t)
    for number in range(1, 40):
        rows = [Row(5 + number, "a", "s1", arrival=t + number * minute)]
        lanes.trigger({"east": rows}, t + down + number * SECOND)
        is_idle = number >= 11  # a row speaks of what arrived before its second
        assert lanes.frontier == (5 + number if is_idle else 5)


@pytest.mark.parametrize("bounds", [slack(5 * SECOND), Learning(warm_up=1)])
def test_an_arrival_of_the_future_is_that_of_its_trigger(bounds: Alike | Learning) -> None:
    lanes = ClockedLanes(Clock(bounds, resolution=SECOND), replicas=("east",), has_arrival=True)
    t = 1_000 * SECOND
    for n in range(30):
        wrong = t * t if n == 3 else t + n * SECOND
        lanes.trigger({"east": [Row(100 + n, str(n), arrival=wrong)]}, t + n * SECOND)
    assert isinstance(lanes.frontier, int)
    assert lanes.frontier > 120
    lines = lanes.packed({"east": [Row(5, arrival=t * t)]}, t)[-1].lines
    assert lines is not None
    assert lines.column("upto").to_pylist() == [t]


def test_a_time_of_the_future_moves_nothing() -> None:
    t = 1_000 * SECOND
    lanes = ClockedLanes(Clock(disorder(0)), replicas=("east",), guard=3600 * SECOND)
    lanes.trigger({"east": [Row(t), Row(10 * t, "mistaken")]}, t)
    assert lanes.frontier == t
    assert lanes.bucket("emitted") == 2  # the row passes
    lanes.trigger({"east": [Row(t + 1), Row(20 * t, "mistaken")]}, t)
    clock = lanes.runtime.totals.clock
    assert clock is not None
    assert (clock.ahead, clock.ahead_of) == (2, {"east": 2}), "of both triggers"
    (trouble,) = clock.troubles
    assert "east sent times too far in the future" in trouble
    last = lanes.runtime.totals.last
    assert last is not None
    assert last.clock is not None
    assert last.clock.ahead == 1


def test_numbers_that_jump_stop_a_clock_until_its_guard_is_greater() -> None:
    lanes = ClockedLanes(Clock(disorder(0), jump=100), replicas=("east",))
    for n in range(1, 5):
        lanes.trigger({"east": [Row(n)]}, n)
    for n in range(5, 9):
        lanes.trigger({"east": [Row(1000 + n)]}, n)
    assert lanes.frontier == 4
    clock = lanes.runtime.totals.clock
    assert clock is not None
    assert clock.ahead_of == {"east": 4}
    assert "start again with a greater guard" in clock.troubles[0]
    lanes.restart(Clock(disorder(0), jump=2000))
    lanes.trigger({"east": [Row(1010)]}, 10)
    assert lanes.frontier == 1010


@pytest.mark.parametrize("loss", [None, 0.01])
def test_learned_bounds_make_progress_in_lanes(loss: float | None) -> None:
    learned = Clock(Learning(window=20, alpha=0.5, warm_up=5, target_loss=loss))
    lanes = ClockedLanes(learned, replicas=("east",))
    for n in range(1, 60):
        rows = [Row(10 * n), Row(10 * n - (4 if n % 3 else 34), "b")]
        lanes.trigger({"east": rows}, (1000 + n) * SECOND)
        clock = lanes.runtime.totals.clock
        assert clock is not None
        if n == 3:
            assert clock.held_by == {"east": "east (active): learns its bound: 2 of 5 rows that it needs first"}  # fmt: skip  # noqa: E501
    assert isinstance(lanes.frontier, int)
    assert 500 < lanes.frontier < 590
    assert lanes.bucket("late") <= 5
    (source,) = clock.sources
    (bound,) = source["bound"]
    assert source["heartbeat"] + bound["distance"] == source["greatest"] - 10, "a tick before"
    assert clock.changed == len(clock.changes) == 1
    assert clock.changes[0] | {"at": 0} == {
        "clock": "east", "source": "east", "other": "east", "wait": 0, "at": 0,
        "before": None, "after": bound["distance"],
        "cause": "exceeded" if loss is None else "quantile",
    }  # fmt: skip
    lanes.trigger({"east": [Row(300, "late")]}, 2000 * SECOND)
    late = [row.origin for row in lanes.runtime.rows if row.channel == "late" and row.origin]
    (reason,) = late[-1].column("reason").to_pylist()
    assert reason.endswith(f"bound: given: less than {bound['distance']} behind")


def test_one_clock_serves_several_streams() -> None:
    own = [Pair(0, 1)]
    bounds = Bounds.of(
        {("east", "east"): own, ("west", "west"): own, ("east", "west"): [Pair(0, 20)]}
    )
    lanes = ClockedLanes(Clock(bounds))
    lanes.trigger({"east": [Row(100)]}, 0)
    assert lanes.frontier == 81  # a row of east bounds west, which has sent nothing
    lanes.trigger({"west": [Row(90)]}, 0)
    assert lanes.frontier == 90


def test_partitions_of_kafka_are_sources() -> None:
    rows = pa.table({"topic": ["t", "t", "u"], "partition": [0, 1, None]})
    assert sources_of(rows).to_pylist() == ["t-0", "t-1", "(none)"]
    found = coded(rows, None)
    assert [found.names[at] for at in found.codes] == ["t-0", "t-1", "(none)"]


@given(st.lists(st.sampled_from([None, "a", "b", "c", "x", "y"])), st.booleans())
def test_rows_are_in_the_groups_of_their_sources(given_names: list[Any], grouped: bool) -> None:
    mapping = {"c": "y", "a": "x", "b": "x"}
    groups = Groups.of(mapping) if grouped else None
    column = pa.chunked_array([given_names[:3], given_names[3:]], pa.string())
    found = coded(pa.table({"sensor": column}), groups)
    assert list(found.names) == sorted(set(found.names))
    named = [name or "(none)" for name in given_names]
    wanted = [mapping.get(name, name) for name in named] if grouped else named
    assert [found.names[at] for at in found.codes] == wanted
    if groups is not None:
        assert [groups.group_of(name) for name in named] == wanted


def test_sources_that_are_no_texts_are_named_by_their_values() -> None:
    numbers = pa.table({"sensor": pa.chunked_array([[7, 10], [None, 7]], pa.int32())})
    found = coded(numbers, None)
    assert [found.names[at] for at in found.codes] == ["7", "10", "(none)", "7"]


def test_a_column_of_the_payload_names_the_sources_of_rows() -> None:
    """Also those of rows that are late, and of a group that a mapping names."""
    groups = {"a": "left", "b": "left", "c": "right"}
    lanes = ClockedLanes(Clock(disorder(5)), replicas=("east",), by=("name",), groups=groups)
    lanes.trigger({"east": [Row(100, "a"), Row(80, "b"), Row(60, "c"), Row(70, "d")]}, 0)
    clock = lanes.runtime.totals.clock
    assert clock is not None
    assert {one["name"]: one["greatest"] for one in clock.sources} == {
        "left": 100, "right": 60, "d": 70,
    }  # fmt: skip
    assert lanes.frontier == 55
    lanes.trigger({"east": [Row(50, "a"), Row(51, "d")]}, 1)
    late = [row.origin for row in lanes.runtime.rows if row.channel == "late" and row.origin]
    reasons = [text for origin in late for text in origin.column("reason").to_pylist()]
    wanted = ["source a, 5 behind the frontier 55, 45 behind its heartbeat 94, ",
              "source d, 4 behind the frontier 55, 14 behind its heartbeat 64, "]  # fmt: skip
    assert all(any(text in reason for reason in reasons) for text in wanted), reasons


def test_a_replica_without_bounds_is_merged_and_does_not_stall_the_output() -> None:
    own = [Pair(0, 1)]
    bounds = Bounds.of({("east", "east"): own, ("west", "west"): own})
    lanes = ClockedLanes(Clock(bounds), replicas=("east", "north", "west"))
    lanes.trigger({"east": [Row(100)], "west": [Row(90)], "north": [Row(95, "n")]}, 0)
    assert lanes.frontier == 90
    lanes.trigger({"east": [Row(120)], "west": [Row(110)]}, 0)
    assert lanes.frontier == 110
    lanes.trigger({"north": [Row(115, "m"), Row(20, "o")]}, 0)
    assert lanes.bucket("late") == 1
    late = [one.origin for one in lanes.runtime.rows if one.channel == "late" and one.origin]
    (reason,) = late[0].column("reason").to_pylist()
    assert "source north, 90 behind the frontier 110, bound: none for this source" in reason
    lanes.trigger({"east": [Row(130)], "west": [Row(130)]}, 0)
    assert {one.payload for one in lanes.final if one.start in (95, 115)} == {"n", "m"}
    clock = lanes.runtime.totals.clock
    assert clock is not None
    assert clock.unknown == {"north": 3}
    assert clock.troubles[0].startswith("no bounds for north: rows of these sources are merged")


def test_a_source_without_bounds_in_a_replica_moves_no_clock() -> None:
    bounds = Bounds.of({("a", "a"): [Pair(0, 1)]})
    lanes = ClockedLanes(Clock(bounds), by=("__source",))
    for name in ("east", "west"):
        lanes.trigger({name: [Row(100, "x", "a"), Row(3, "y", "b"), Row(900, "z", "c")]}, 0)
    assert lanes.frontier == 100
    assert lanes.bucket("late") == 0
    assert lanes.runtime.totals.clock is not None
    assert lanes.runtime.totals.clock.unknown == {"b": 2, "c": 2}


def test_a_group_of_replicas_has_one_heartbeat() -> None:
    own, other = [Pair(0, 1)], [Pair(0, 30)]
    bounds = Bounds.of(
        {
            ("east", "east"): own,
            ("west", "west"): own,
            ("east", "west"): other,
            ("west", "east"): other,
        }
    )
    lanes = ClockedLanes(Clock(bounds, groups=(("east", "g"), ("west", "g"))))
    lanes.trigger({"east": [Row(100)]}, 0)
    assert lanes.frontier == 71
