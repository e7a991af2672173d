"""Silence: which sources a clock goes on without, whenever it is looked at."""

import pytest
from clock_driver import rows
from hypothesis import given
from hypothesis import strategies as st

from anabranch.clocks import Clock, Summaries, disorder
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
    st.lists(st.sampled_from([1, 20, 61, 300, 10**6]), min_size=2, max_size=12),
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
