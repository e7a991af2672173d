"""Bounds of a recording: by definition, and their share of late rows."""

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.clocks import Alike, Clock, Pair, summarise
from anabranch.clocks.estimate import Distances, estimate
from anabranch.errors import UsageError
from anabranch.testing.clocks import simulate

SEEDS = st.integers(0, 2**32).map(Random)
ROWS = st.lists(
    st.tuples(st.integers(0, 50), st.sampled_from("ab"), st.integers(0, 30)), max_size=40
)


@given(ROWS)
def test_disorder_and_skew_are_as_defined(rows):
    found = estimate(*(list(column) for column in zip(*rows, strict=True))) if rows else None
    if found is None:
        return
    by_name = {one.name: one for one in found.by_source}
    for name, one in by_name.items():
        wanted = []
        for time, source, at in rows:
            if source == name:
                before = [t for t, s, a in rows if s == name and a < at]
                wanted.append(max(max(before, default=time) - time, 0))
        assert one.disorder.sorted.tolist() == sorted(wanted)
        delays = [max(at - time, 0) for time, source, at in rows if source == name]
        assert one.delay.sorted.tolist() == sorted(delays)
    for (i, j), skew in found.skew.items():
        wanted = [
            max(max([t for t, s, a in rows if s == i and a < at], default=time) - time, 0)
            for time, source, at in rows
            if source == j
        ]
        assert skew.sorted.tolist() == sorted(wanted)


@given(st.lists(st.integers(0, 100), min_size=1), st.floats(0, 0.99))
def test_needed_is_the_least_bound_that_loses_no_more(values, loss):
    distances = Distances.of(np.array(values))
    bound = distances.needed(loss)
    assert distances.share_late(bound) <= loss + 1e-9
    assert bound == 0 or distances.late(bound - 1) > loss * len(values) - 1e-6
    assert distances.share_late(distances.needed(0.0)) == 0


@given(SEEDS)
def test_bounds_of_a_recording_hold_on_it_and_are_never_broken(chance):
    truth = Alike(own=(Pair(0, 5),), others=(Pair(0, 7),), latency=3).named("ab")
    rows = simulate(truth, chance, rows=30)
    found = estimate(
        [row.time for row in rows],
        [row.source for row in rows],
        [row.arrived for row in rows],
    )
    state = Clock(found.bounds()).empty()
    for now in range(rows[-1].arrived):
        some = [row for row in rows if row.arrived == now]
        lines = summarise([r.source for r in some], [r.time for r in some], [now] * len(some))
        beats = state.step(lines, now).heartbeats
        for row in rows:
            known = beats.get(row.source)
            assert row.arrived <= now or known is None or row.time > known


def test_without_arrivals_the_order_of_the_rows_counts():
    found = estimate([10, 20, 15, 30, 12], ["a"] * 5)
    assert found.delay is None
    assert found.pause is None
    assert found.alike().own == (Pair(0, 19),)
    assert found.alike(0.2).own == (Pair(0, 6),)


def test_a_long_curve_keeps_its_end():
    times = list(range(0, 200_000, 2))
    for n in range(1000, len(times), 97):
        times[n] -= n
    curve = estimate(times, ["a"] * len(times)).disorder.curve()
    assert len(curve) < 300
    assert curve[-1][1] == 0
    assert [x for x, _ in curve] == sorted(x for x, _ in curve)
    assert Distances.of(np.empty(0, np.int64)).curve() == []


def test_many_sources_have_no_skew():
    names = [f"s{n}" for n in range(30)]
    assert estimate(range(30), names).skew == {}


def test_columns_of_different_lengths_are_rejected():
    with pytest.raises(UsageError, match="different lengths: 1, 2, 1"):
        estimate([1], ["a", "b"])
