"""Rows that break an inferred promise: one bucket each, whatever the cut."""

from random import Random

import pytest
from clock_driver import feed, matrices
from hypothesis import given
from hypothesis import strategies as st

from anabranch.clocks import Clock, Timeliness, sort_out
from anabranch.errors import UsageError
from anabranch.testing.clocks import cuts, simulate

SEEDS = st.integers(0, 2**32).map(Random)


def run(bounds, rows, cutter):
    """Each row with its bucket, and the stables in order."""
    state = Clock(bounds).empty()
    found, stables, before = [], [], {}
    for now, some in cuts(rows, cutter):
        names, times = [row.source for row in some], [row.time for row in some]
        sorted_ = sort_out(names, times, heartbeats=before, stable=state.stable)
        assert sum(sorted_.counts.values()) == len(some)
        found += zip(some, sorted_.codes.tolist(), strict=True)
        beat = feed(state, some, now)
        before = beat.heartbeats
        stables.append((now, beat.stable))
    return found, stables


@given(matrices(rows=True), SEEDS, SEEDS)
def test_while_bounds_hold_no_row_is_late_or_behind(bounds, chance, cutter):
    found, _ = run(bounds, simulate(bounds, chance, rows=30), cutter)
    assert {code for _, code in found} <= {Timeliness.IN_TIME}


@given(matrices(rows=True), SEEDS, SEEDS)
def test_where_bounds_are_broken_stables_are_true_of_what_is_not_late(bounds, chance, cutter):
    rows = simulate(bounds, chance, rows=30, broken=0.3)
    found, stables = run(bounds, rows, cutter)
    assert len(found) == len(rows)
    values = [stable for _, stable in stables if stable is not None]
    assert values == sorted(values)
    for row, code in found:
        earlier = [s for now, s in stables if now < row.arrived and s is not None]
        assert (code == Timeliness.LATE) == (row.time < max(earlier, default=-(2**62)))


def test_reasons_and_wrong_calls():
    found = sort_out(["a", "z"], [9, 3], heartbeats={"a": None}, stable=None)
    assert found.reason(0) == "a: time 9 is in time"
    assert found.counts == {"in_time": 2, "behind": 0, "late": 0}
    with pytest.raises(UsageError, match="different lengths: 1, 2"):
        sort_out(["a"], [1, 2], heartbeats={}, stable=None)
