"""Silence: which sources a clock goes on without, whenever it is looked at."""

import pytest
from clock_driver import rows
from hypothesis import given
from hypothesis import strategies as st

from anabranch.clocks import Clock, Learning, Summaries, disorder, k_ordered, slack, summarise
from anabranch.clocks.saved import write_state

NONE = Summaries.none()


@pytest.mark.parametrize("apart", [30, 59, 60, 61, 300])
def test_a_silent_source_is_idle_however_far_apart_looks_are(apart):
    state = Clock(disorder(5), idle_after=60).empty()
    state.step(rows(("a", 100, 0), ("b", 100, 0)), 0)
    for now in range(apart, 20 * apart, apart):
        beat = state.step(rows(("a", 100 + now, now)), now)
    assert beat.stable == 95 + now
    assert beat.counts["idle"] == 1


@given(
    st.lists(st.sampled_from([1, 20, 61, 300, 2000]), min_size=2, max_size=12),
    st.data(),
)
def test_a_source_that_a_long_pause_and_then_a_whole_silence_show_empty_is_idle(pauses, data):
    """One pause between looks is excused; what was looked at after it counts, with restarts."""
    clock = Clock(disorder(5), idle_after=60)
    state = clock.empty()
    state.step(rows(("a", 100, 0), ("b", 100, 0)), 0)
    now, silent = 0, 0
    for pause in pauses:
        excused = pause > 60 and not silent
        now += pause
        beat = state.step(rows(("a", 100 + now, now)), now)
        silent = now if excused else silent
        assert beat.counts["idle"] == (now - silent >= 60)
        if data.draw(st.booleans()):
            state = clock.from_parts(write_state(state).written)
    assert state.step(rows(("a", 200 + now, now + 60)), now + 60).counts["idle"] == 1


def test_one_down_time_in_each_silence_is_excused():
    state = Clock(disorder(5), idle_after=60).empty()
    state.step(rows(("a", 100, 0), ("b", 100, 0)), 0)
    assert state.step(NONE, 7200).counts["idle"] == 0, "nobody looked for two hours"
    assert state.step(rows(("b", 200, 7201)), 7201).counts["idle"] == 0
    assert state.step(NONE, 9999).counts["idle"] == 1, "a has been empty twice; b only once"


def test_a_source_that_was_never_seen_is_not_made_by_a_pause():
    state = Clock(disorder(0)).empty()
    state.step(rows(("a", 100, 1)), 1, paused=["typo"])
    beat = state.step(rows(("a", 110, 2)), 2)
    assert (beat.stable, list(beat.names)) == (110, ["a"])
    assert state.step(rows(("b", 5, 3)), 3, paused=["b"]).counts["paused"] == 1
    assert state.step(NONE, 4, paused=["b"]).counts["paused"] == 1


@pytest.mark.parametrize(
    "bounds", [disorder(5), slack(20), k_ordered(3), Learning(warm_up=0, across=True)]
)
def test_a_source_that_is_gone_is_forgotten(bounds, monkeypatch):
    """With what was pending for it; the stable, and that of others, stay as they are."""
    monkeypatch.setattr("anabranch.clocks.forget.LONG", 50)
    clock = Clock(bounds, idle_after=10)
    state, forgetful = Clock(bounds).empty(), clock.empty()
    for one in (state, forgetful):
        one.step(rows(*[(f"s{n}", 100 + n, 1) for n in range(8)]), 1)
        one.step(rows(*[(f"s{n}", 120 + n, 5) for n in range(8)]), 5)
    parts, mark = {}, None
    for now in range(10, 1000, 7):
        lines = rows(("s6", 200 + now, now), ("s7", 200 + now, now))
        beat, other = forgetful.step(lines, now), state.step(lines, now)
        forgetful.check()
        assert all(beat.heartbeats[name] == other.heartbeats[name] for name in ("s6", "s7"))
        if now % 5 == 0:
            saved = write_state(forgetful, since=mark)
            parts, mark = parts | dict(saved.written), saved.mark
            forgetful = clock.from_parts(parts)
    assert beat.stable > 1000
    assert forgetful.names == ["s6", "s7"]
    assert len(state.names) == 8
    back = forgetful.step(rows(("s1", 9, now + 1)), now + 1)
    assert back.stable == beat.stable, "never back"
    assert back.counts["active"] == 3, "it counts at once"


def test_parts_of_the_state_go_with_the_sources():
    state = Clock(disorder(5), idle_after=1).empty()
    names = [f"s{n}" for n in range(3000)]
    state.step(summarise(names, [9] * 3000, [1] * 3000), 1)
    assert len(write_state(state).written) == 5
    for now in range(2, 4000, 400):
        state.step(rows(("s0", 10 * now, now)), now)
        state.step(rows(("s0", 10 * now, now + 1)), now + 1)
    saved = write_state(state, since=1)
    assert (len(state), saved.deleted) == (1, ("units/1", "units/2"))
    assert state.clock.from_parts(saved.written).stable == state.stable


def test_sources_that_another_column_names_replace_those_of_before():
    clock = Clock(disorder(0), source="sensor")
    state = clock.empty()
    state.step(rows(("s1", 110, 1), ("s2", 100, 1)), 1)
    again = Clock(disorder(0), source="region").from_parts(write_state(state).written)
    assert again.stable == 100
    assert again.step(rows(("r1", 90, 2)), 2).stable == 100, "never back"
    assert again.step(rows(("r1", 130, 3)), 3).stable == 130
    assert again.names == ["r1"]
    assert clock.from_parts(write_state(state).written).names == ["s1", "s2"]


def test_learned_bounds_of_other_sources_are_forgotten():
    spec = Learning(warm_up=0, across=True)
    state = Clock(spec, source="sensor").empty()
    state.step(rows(("s1", 110, 1), ("s2", 100, 1)), 1)
    state.step(rows(("s1", 120, 2), ("s2", 130, 2)), 2)
    again = Clock(spec, source="region").from_parts(write_state(state).written)
    for now in (3, 4):
        beat = again.step(rows(("r1", 100 * now, now)), now)
    assert list(beat.names) == ["r1"]
