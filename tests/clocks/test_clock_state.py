"""States of sources, guards, blocked sources, and the state of a clock in parts."""

from collections import Counter

import numpy as np
import pytest
from clock_driver import rows
from hypothesis import given
from hypothesis import strategies as st

from anabranch.clocks import (
    Bounds,
    Clock,
    Heartbeats,
    Look,
    Pair,
    Summaries,
    decide,
    delay,
    disorder,
    fold,
    summarise,
    summarise_trigger,
)
from anabranch.clocks.saved import write_state
from anabranch.clocks.states import decide_all
from anabranch.errors import StateError, UsageError

NONE = Summaries.none()


@given(
    st.integers(0, 50), st.integers(0, 50), st.booleans(), st.booleans(),
    st.none() | st.integers(1, 30),
)  # fmt: skip
def test_states_of_many_sources_are_those_of_each(since, silence, paused, blocked, idle_after):
    look = Look(since, since + silence, paused=paused, blocked=blocked)
    one, reason = decide(look, idle_after=idle_after)
    many = decide_all(
        np.array([since]),
        since + silence,
        paused=np.array([paused]),
        blocked=np.array([blocked]),
        idle_after=idle_after,
    )
    assert many.tolist() == [one]
    assert reason


def test_an_idle_source_is_left_out_and_comes_back():
    state = Clock(disorder(5), idle_after=60).empty()
    assert state.step(rows(("a", 100, 0), ("b", 100, 0)), 0).stable == 95
    beat = state.step(rows(("a", 150, 59)), 59)
    assert beat.stable == 95
    assert str(beat.holder) == "b (active): its rows move its heartbeat"
    beat = state.step(rows(("a", 160, 60)), 60)
    assert beat.stable == 155
    assert beat.counts == {"active": 1, "idle": 1, "paused": 0, "blocked": 0}
    reports = {one.name: one for one in beat.worst()}
    assert reports["b"].reason == "sent nothing for 60, and idle_after is 60"
    assert reports["b"].heartbeat == 94
    back = state.step(rows(("b", 120, 61)), 61)
    assert (back.stable, back.moved) == (155, False), "never back"
    assert back.holder.name == "b"
    assert state.step(rows(("b", 170, 62), ("a", 171, 62)), 62).stable == 165


def test_without_idle_after_nothing_is_assumed():
    state = Clock(disorder(5)).empty()
    state.step(rows(("a", 100, 0), ("b", 100, 0)), 0)
    assert state.step(rows(("a", 900, 10**9)), 10**9).stable == 95


def test_all_idle_gives_the_greatest_time():
    state = Clock(disorder(5), idle_after=60).empty()
    state.step(rows(("a", 100, 0), ("b", 130, 0)), 0)
    state.step(NONE, 30)
    beat = state.step(NONE, 60)
    assert (beat.stable, beat.holder) == (131, None)


def test_down_time_is_no_silence():
    clock = Clock(disorder(5), idle_after=60)
    state = clock.empty()
    state.step(rows(("a", 100, 0), ("b", 100, 0)), 0)
    restarted = clock.from_parts(write_state(state).written)
    beat = restarted.step(rows(("a", 500, 7200)), 7200)
    assert beat.stable == 95, "nobody looked for two hours"
    assert restarted.step(rows(("a", 501, 7259)), 7259).stable == 95
    assert restarted.step(rows(("a", 502, 7260)), 7260).stable == 497


def test_a_paused_source_is_left_out_until_it_is_not():
    state = Clock(disorder(5)).empty()
    state.step(rows(("a", 100, 0), ("b", 50, 0)), 0)
    beat = state.step(NONE, 1, paused=["b"])
    assert beat.stable == 95
    assert beat.worst()[1].reason == "declared paused"
    assert state.step(NONE, 2).holder.name == "b"
    assert state.step(NONE, 3, paused=["a", "b"]).stable == 101, "all paused: as all idle"


def test_a_blocked_source_stands_still_whatever_others_promise():
    others = Bounds.of(
        {("a", "a"): [Pair(0, 1)], ("a", "b"): [Pair(0, 3)], ("b", "b"): [Pair(0, 1)]}
    )
    state = Clock(others, idle_after=10).empty()
    state.step(rows(("a", 100, 0)), 0)
    beat = state.step(rows(("a", 200, 100)), 100, blocked=["b"])
    assert beat.heartbeats == {"a": 199, "b": 97}
    assert str(beat.holder) == "b (blocked): rows of it wait that were not read"
    beat = state.step(NONE, 500, blocked=["b"], paused=["b"])
    assert beat.heartbeats["b"] == 97
    reason = "rows of it wait that were not read, although it is declared paused"
    assert str(beat.holder) == f"b (blocked): {reason}"
    assert state.step(NONE, 501).heartbeats["b"] == 197, "what was due meanwhile"


def test_a_blocked_source_is_moved_by_the_rows_that_are_read_of_it():
    """A backlog under a disorder: the stable follows what is read, as in Spark and Flink."""
    state = Clock(disorder(5)).empty()
    beats = [state.step(rows(("a", 100 * n, n)), n, blocked=["a"]).stable for n in range(1, 4)]
    assert beats == [95, 195, 295]
    slow = Clock(delay(10)).empty()
    assert slow.step(rows(("a", 5, 50)), 50, blocked=["a"]).stable is None
    assert slow.step(NONE, 51).stable == 42


def test_no_timeout_while_rows_wait():
    bounds = Bounds.of({("a", "a"): [Pair(0, 5)], ("b", "b"): [Pair(0, 5)]}, timeout=10)
    state = Clock(bounds).empty()
    state.step(rows(("a", 100, 0), ("b", 90, 0)), 0)
    assert state.step(NONE, 20, blocked=["b"]).stable == 86
    assert state.step(NONE, 30).stable == 101


def test_a_timestamp_of_the_future_moves_nothing():
    lines = summarise(["a", "a", "b"], [1000, 90, 95], [100, 100, 100], guard=50)
    state = Clock(disorder(5), idle_after=60).empty()
    beat = state.step(lines, 100)
    assert beat.stable == 85
    assert beat.ahead.sum() == 1
    assert beat.worst()[0].greatest == 90
    alone = summarise(["b"], [1000], [130], guard=50)
    assert state.step(fold([alone, rows(("a", 130, 130))]), 130).stable == 90
    beat = state.step(fold([alone, rows(("a", 170, 165))]), 165)
    assert beat.stable == 165, "b sends only what is not believed: idle"
    assert "only rows too far ahead" in beat.report(1).reason


def test_a_jump_of_numbers_moves_nothing():
    clock = Clock(disorder(0), jump=100)
    assert clock.needs_histogram
    state = clock.empty()
    lines = lambda times: summarise(  # noqa: E731
        ["a"] * len(times), times, [0] * len(times), histogram=True
    )
    assert state.step(lines([10]), 0).stable == 10
    beat = state.step(lines([50, 60, 10**9]), 1)
    assert (beat.stable, beat.ahead.sum()) == (60, 1)
    beat = state.step(lines([10**9]), 2)
    assert (beat.stable, beat.ahead.sum()) == (60, 1)
    with pytest.raises(UsageError, match="histogram=True"):
        state.step(rows(("a", 10**9, 3)), 3)


def test_rows_of_which_only_the_trigger_is_known_count_with_care():
    """H6: rows that may have arrived before the row that promises do not count."""
    bounds = Bounds.of({("a", "a"): [Pair(1, 0, rows=True)]}, latency=5)
    state = Clock(bounds).empty()
    state.step(summarise_trigger(["a"], [9], after=0, upto=10), 10)
    assert state.step(summarise_trigger(["a"], [12], after=10, upto=20), 20).stable is None
    assert state.step(summarise_trigger(["a"], [13], after=20, upto=40), 44).stable is None
    assert state.step(NONE, 45).stable == 10


def test_time_that_goes_back_is_rejected():
    state = Clock(disorder(1)).empty()
    state.step(NONE, 5)
    with pytest.raises(UsageError, match="the wall clock shows 4, after 5"):
        state.step(NONE, 4)


def test_a_new_source_holds_the_stable_and_does_not_lower_it():
    state = Clock(disorder(1)).empty()
    assert state.step(rows(("a", 100, 0)), 0).stable == 99
    beat = state.step(rows(("a", 110, 1)), 1, present=["z"])
    assert beat.stable == 99
    assert str(beat.holder) == "z (active): promises nothing yet"


def test_other_bounds_after_a_restart_keep_heartbeats_and_drop_promises():
    slow = Clock(Bounds.of({("a", "a"): [Pair(0, 5), Pair(10, 0)]}))
    state = slow.empty()
    state.step(rows(("a", 100, 0)), 0)
    parts = write_state(state).written
    wider = Clock(Bounds.of({("a", "a"): [Pair(0, 50)]})).from_parts(parts)
    assert (wider.stable, wider.pending) == (96, 0)
    assert wider.step(rows(("a", 110, 11)), 11).stable == 96
    assert slow.from_parts(parts).step(NONE, 10).stable == 101


def test_a_save_writes_only_the_units_that_changed():
    state = Clock(disorder(1)).empty()
    names = [f"s{n:05}" for n in range(3000)]
    state.step(summarise(names, range(3000), [0] * 3000), 0)
    first = write_state(state)
    assert sorted(first.written) == ["control", "promises", "units/0", "units/1", "units/2"]
    state.step(rows((names[1500], 9000, 1)), 1)
    second = write_state(state, since=first.mark)
    assert sorted(second.written) == ["control", "promises", "units/1"]
    read = state.clock.from_parts({**first.written, **second.written})
    assert read.stable == state.stable
    assert write_state(read).written == write_state(state).written
    with pytest.raises(StateError, match="part 'units/1' is of change 1"):
        state.clock.from_parts({**second.written, **first.written, "control": second.written["control"], "promises": second.written["promises"]})  # fmt: skip  # noqa: E501


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda parts: parts.pop("promises"), "no part 'promises'"),
        (lambda parts: parts.update(control=b"junk"), "is no part of a clock's state"),
        (lambda parts: parts.pop("control"), "no part 'control'"),
    ],
)
def test_a_state_that_is_not_whole_is_rejected(change, message):
    state = Clock(disorder(1)).empty()
    state.step(rows(("a", 1, 1)), 1)
    parts = dict(write_state(state).written)
    change(parts)
    with pytest.raises(StateError, match=message):
        state.clock.from_parts(parts)


def test_wrong_calls_are_rejected():
    with pytest.raises(UsageError, match="different lengths"):
        summarise(["a"], [1, 2], [1])
    with pytest.raises(UsageError, match="resolution"):
        summarise([], [], [], resolution=0)


BOUNDED = Bounds.of(
    {("a", "a"): [Pair(0, 3)], ("a", "b"): [Pair(2, 5)], ("b", "b"): [Pair(0, 1)]}
)


@pytest.mark.parametrize(
    "clock",
    [
        Clock(BOUNDED, idle_after=20),
        Clock(BOUNDED, groups=(("a", "x"), ("b", "x"))),
        Clock(BOUNDED, jump=10),
    ],
)
@given(st.lists(st.tuples(st.sampled_from("abyz"), st.integers(0, 60)), max_size=30))
def test_a_source_without_bounds_moves_nothing(clock, sent):
    """Steps with rows of unknown sources are those without them; the beat counts them."""
    mixed, plain = clock.empty(), clock.empty()
    for now, some in enumerate([sent[:10], sent[10:20], sent[20:]], 1):
        every, known = (
            summarise(
                [name for name, _ in some if name in names],
                [time for name, time in some if name in names],
                [now for name, _ in some if name in names],
                histogram=True,
            )
            for names in ("abyz", "ab")
        )
        beat = mixed.step(every, now, present=["y"], paused=["z"], blocked=["y"])
        other = plain.step(known, now)
        assert beat.heartbeats == other.heartbeats
        assert beat.stable == other.stable
        assert write_state(mixed).written == write_state(plain).written
        counts = Counter(name for name, _ in some if name in "yz")
        assert beat.unknown == {"y": counts["y"], "z": counts["z"]}
        assert not other.unknown


def test_a_source_whose_bounds_are_gone_holds_nothing_back():
    state = Clock(BOUNDED).empty()
    assert state.step(rows(("a", 100, 1), ("b", 10, 1)), 1).stable == 10
    fewer = Clock(Bounds.of({("a", "a"): [Pair(0, 3)]}))
    again = fewer.from_parts(dict(write_state(state).written))
    beat = again.step(rows(("a", 110, 2), ("b", 11, 2)), 2)
    assert beat.heartbeats == {"a": 107}
    assert beat.stable == 108
    assert beat.unknown == {"b": 1}


def test_a_state_of_another_version_is_rejected_by_both_names(monkeypatch):
    state = Clock(disorder(1)).empty()
    state.step(rows(("a", 1, 1)), 1)
    with monkeypatch.context() as other:
        other.setattr("anabranch.clocks.saved.VERSION", 9)
        parts = write_state(state).written
    with pytest.raises(StateError, match="version 9, this program reads 'anabranch clock'"):
        state.clock.from_parts(parts)


def test_the_row_by_row_form_rejects_time_that_goes_back():
    clock = Heartbeats(disorder(1).named(["a"]))
    clock.arrive("a", 1, at=5)
    with pytest.raises(UsageError, match="arrives at 4, after one at 5"):
        clock.arrive("a", 2, at=4)
    with pytest.raises(UsageError, match="the clock shows 3, after 5"):
        clock.advance(3)
