"""Laws of heartbeats: never broken while bounds hold, maximal, tight; both forms agree."""

from dataclasses import replace
from random import Random
from unittest import mock

import pytest
from clock_driver import NAMES, by_columns, by_reference, feed, matrices, shown
from hypothesis import assume, given
from hypothesis import strategies as st

from anabranch.clocks import Alike, Bounds, Clock, Heartbeats, Pair, fold, summarise, summary
from anabranch.clocks.saved import write_state
from anabranch.model.time import NEVER
from anabranch.testing.clocks import SentRow, breaches, cuts, simulate

SEEDS = st.integers(0, 2**32).map(Random)


def assert_kept(rows, history) -> None:
    """No row that arrives after an instant is at or below its source's heartbeat then."""
    for now, heartbeats in history:
        for row in rows:
            if row.arrived > now:
                assert row.time > heartbeats[row.source], (now, row, heartbeats)


@given(matrices(rows=True), SEEDS)
def test_simulated_rows_keep_their_bounds(bounds, chance):
    assert breaches(simulate(bounds, chance, rows=25), bounds) == []


@given(matrices(rows=True), SEEDS)
def test_no_heartbeat_is_broken_while_observed_bounds_hold(bounds, chance):
    rows = simulate(bounds, chance, rows=30)
    assert_kept(rows, by_reference(bounds, rows))
    assert_kept(rows, by_columns(bounds, rows))


@given(matrices(meaning="clock"), SEEDS)
def test_no_heartbeat_is_broken_while_bounds_of_clocks_hold(bounds, chance):
    rows = simulate(bounds, chance, rows=30)
    assert_kept(rows, by_reference(bounds, rows))


@given(matrices(), SEEDS)
def test_summaries_give_the_heartbeats_of_single_rows(bounds, chance):
    rows = simulate(bounds, chance, rows=30)
    assert list(by_columns(bounds, rows)) == list(by_reference(bounds, rows))


@given(matrices(rows=True), SEEDS)
def test_summaries_never_promise_more_than_single_rows(bounds, chance):
    rows = simulate(bounds, chance, rows=30)
    for (_, mine), (_, theirs) in zip(
        by_columns(bounds, rows), by_reference(bounds, rows), strict=True
    ):
        assert all(mine[name] <= theirs[name] for name in mine)


@given(matrices(rows=True), SEEDS)
def test_rows_that_are_counted_agree_where_no_order_is_kept(bounds, chance):
    free = Bounds.of(
        {
            (one, to): bounds.pairs[i][j]
            for i, one in enumerate(bounds.sources)
            for j, to in enumerate(bounds.sources)
        },
        latency=dict(zip(bounds.sources, bounds.latency, strict=True)),
    )
    rows = simulate(free, chance, rows=30)
    assert list(by_columns(free, rows)) == list(by_reference(free, rows))


@given(matrices(rows=True), SEEDS, SEEDS)
def test_any_cut_with_a_restart_after_each_step_ends_the_same(bounds, chance, cutter):
    rows = simulate(bounds, chance, rows=30)
    whole, parts = Clock(bounds).empty(), Clock(bounds).empty()
    feed(whole, rows, rows[-1].arrived)
    stored: dict[str, bytes] = {}
    mark = None
    for now, some in cuts(rows, cutter):
        beat = feed(parts, some, now)
        assert_kept([row for row in rows if row.arrived > now], [(now, shown(beat))])
        saved = write_state(parts, since=mark)
        stored |= saved.written
        mark = saved.mark
        parts = Clock(bounds).from_parts(stored)
    end = rows[-1].arrived + 60
    ended, other = feed(whole, [], end), feed(parts, [], end)
    if not any(bounds.fifo) and not any(p.rows for r in bounds.pairs for s in r for p in s):
        assert shown(ended) == shown(other)
        assert ended.stable == other.stable


@given(matrices(latency=0, meaning="clock"), SEEDS, st.integers(0, 40))
def test_heartbeats_of_closed_bounds_are_maximal(bounds, chance, until):
    """One more would be too much: a row of the next time may still come, legally (H9)."""
    rows = [row for row in simulate(bounds, chance, rows=15) if row.arrived <= until]
    assume(rows)
    clock = Heartbeats(bounds)
    for row in rows:
        clock.arrive(row.source, row.time, at=row.arrived)
    clock.advance(until)
    for name, heartbeat in clock.heartbeats.items():
        least = -1000 if heartbeat == NEVER else int(heartbeat) + 1
        more = SentRow(name, least, until + 1, until + 1, number=len(rows) + 1)
        assert breaches([*rows, more], bounds) == []


def latest_emissions(rows, bounds, fixed=None):
    """When each row was emitted at the latest, if all bounds hold; None if they cannot.

    A row that is low after another one must have been emitted no later than that allows.
    """
    latest = {row.number: row for row in rows}
    while broken := breaches([*latest.values(), *([fixed] if fixed else [])], bounds):
        first, later, pair = broken[0]
        if fixed and later.number == fixed.number:
            return None
        moved = replace(later, emitted=first.emitted + pair.wait)
        if moved.emitted < later.arrived - bounds.latency[bounds.index(later.source)]:
            return None
        latest[later.number] = moved
    return list(latest.values())


@given(matrices(latency=4, meaning="clock"), SEEDS, st.integers(0, 40))
def test_heartbeats_of_closed_bounds_are_maximal_with_latency(bounds, chance, until):
    """A row of the next time may still arrive, for some legal times of emission (H9)."""
    sent = simulate(bounds, chance, rows=12)
    rows = [replace(row, emitted=row.arrived) for row in sent if row.arrived <= until]
    assume(rows)
    clock = Heartbeats(bounds)
    for row in rows:
        clock.arrive(row.source, row.time, at=row.arrived)
    clock.advance(until)
    seen = latest_emissions(rows, bounds)
    assert seen is not None, "the true times of emission are one solution"
    for name, heartbeat in clock.heartbeats.items():
        least = -1000 if heartbeat == NEVER else int(heartbeat) + 1
        latency = bounds.latency[bounds.index(name)]
        assert any(
            latest_emissions(seen, bounds, SentRow(name, least, emitted, until + 1, number=999))
            for emitted in range(until + 1 - latency, until + 2)
        )


@given(st.integers(0, 5), st.integers(0, 5), st.integers(0, 5))
def test_lemma_3_1_is_tight(wait, distance, latency):
    """A legal row arrives at c + t + L, and breaks a heartbeat that is given before."""
    bounds = Bounds.of({("a", "b"): [Pair(wait, distance)]}, latency={"b": latency})
    due = 10 + wait + latency
    first = SentRow("a", 50, 10, 10, number=0)
    last = SentRow("b", 50 - distance, 10 + wait, due, number=1)
    assert breaches([first, last], bounds) == []
    clock = Heartbeats(bounds)
    clock.arrive("a", 50, at=10)
    if due > 10:
        clock.advance(due - 1)
        assert clock.heartbeats["b"] == NEVER
    clock.arrive("b", last.time, at=due)
    clock.advance(due)
    assert clock.heartbeats["b"] == 50 - distance


@given(matrices(rows=True), SEEDS)
def test_heartbeats_never_go_back(bounds, chance):
    rows = simulate(bounds, chance, rows=30, broken=0.2)
    for history in (by_reference(bounds, rows), by_columns(bounds, rows)):
        before = dict.fromkeys(bounds.sources, NEVER)
        for _, heartbeats in history:
            assert all(heartbeats[name] >= before[name] for name in before)
            before = heartbeats


@given(matrices(meaning="clock"), SEEDS)
def test_theorem_3_3_every_row_passes_in_the_end_where_no_timeout_is_needed(bounds, chance):
    rows = simulate(bounds, chance, rows=12)
    clock = Heartbeats(bounds)
    for row in rows:
        clock.arrive(row.source, row.time, at=row.arrived)
    clock.advance(rows[-1].arrived + 1000)
    greatest = max(row.time for row in rows)
    if not bounds.needs_timeout():
        assert clock.overall == greatest


@given(matrices(meaning="clock"))
def test_theorem_3_3_where_a_timeout_is_needed_a_row_may_wait_for_ever(bounds):
    assume(bounds.needs_timeout())
    stuck = False
    for name in bounds.sources:
        clock = Heartbeats(bounds)
        clock.arrive(name, 50, at=0)
        stuck |= clock.advance(10_000) < 50
    assert stuck


@given(matrices(rows=True), SEEDS, SEEDS, st.integers(1, 4), st.booleans())
def test_tasks_and_their_order_do_not_change_a_summary(
    bounds, chance, order, resolution, histogram
):
    rows = simulate(bounds, chance, rows=30)

    def lines(some):
        return summarise(
            [row.source for row in some],
            [row.time for row in some],
            [row.arrived for row in some],
            resolution=resolution,
            histogram=histogram,
        )

    tasks = [[] for _ in range(3)]
    for row in order.sample(rows, len(rows)):
        order.choice(tasks).append(row)
    parts = [lines(task) for task in tasks]
    order.shuffle(parts)
    assert fold([fold(parts[:2]), parts[2]]) == lines(rows)


TIMES = st.integers(-50, 50) | st.integers(0, 10**6) | st.sampled_from([-(2**62), 2**62])


@given(
    st.lists(st.tuples(st.sampled_from("abc"), TIMES, st.integers(0, 9)), max_size=400),
    st.integers(1, 7),
    st.none() | st.integers(-60, 60),
    st.booleans(),
)
def test_lines_are_the_same_tallied_or_sorted(rows, resolution, guard, histogram):
    names, times, arrivals = ([row[at] for row in rows] for at in range(3))
    settings = {"resolution": resolution, "guard": guard, "histogram": histogram}
    tallied = summarise(names, times, arrivals, **settings)
    with mock.patch.object(summary, "_tallied", return_value=None):
        assert summarise(names, times, arrivals, **settings) == tallied
    assert sum(line.count + line.ahead for line in tallied.lines()) == len(rows)


@given(SEEDS, st.integers(1, 4), st.integers(0, 40), st.booleans())
def test_histograms_of_many_rows_need_no_sort(chance, sources, scale, outlier):
    """With more rows than buckets, cells are finer; with and without a time far away."""
    times = [chance.randrange(1 + (1 << scale)) for _ in range(1500)]
    times += [2**61] * outlier
    names = [chance.choice("abcd"[:sources]) for _ in times]
    tallied = summarise(names, times, [0] * len(times), histogram=True)
    with mock.patch.object(summary, "_tallied", return_value=None):
        assert summarise(names, times, [0] * len(times), histogram=True) == tallied


@given(
    st.lists(st.integers(-(2**62), 2**62) | st.integers(0, 500), min_size=1, max_size=300),
    st.integers(1, 5),
    SEEDS,
)
def test_histograms_are_canonical_and_count_every_row(times, tasks, order):
    whole = summarise(["a"] * len(times), times, [0] * len(times), histogram=True)
    split = [[] for _ in range(tasks)]
    for time in order.sample(times, len(times)):
        order.choice(split).append(time)
    parts = [summarise(["a"] * len(p), p, [0] * len(p), histogram=True) for p in split]
    assert fold(parts) == whole
    first, last, number = whole.histograms.of(0)
    assert len(number) <= 64
    assert number.sum() == len(times)
    for low, high, count in zip(first.tolist(), last.tolist(), number.tolist(), strict=True):
        assert sum(low <= time <= high for time in times) == count


@given(SEEDS, st.integers(2, 9))
def test_a_coarse_unit_delays_a_heartbeat_by_less_than_the_unit(chance, unit):
    """H19: rounded up once; and never early."""
    bounds = Bounds.of({("a", "a"): [Pair(3, 2)]}, latency={"a": 2})
    rows = simulate(bounds, chance, rows=25)
    exact = dict(by_reference(bounds, rows))
    state = Clock(bounds, resolution=unit).empty()
    for now, wanted in exact.items():
        beat = feed(state, [row for row in rows if row.arrived == now], now)
        assert shown(beat)["a"] <= wanted["a"]
        if now - unit + 1 in exact:
            assert shown(beat)["a"] >= exact[now - unit + 1]["a"]


@given(matrices(), SEEDS)
def test_memory_is_in_proportion_to_pending_promises(bounds, chance):
    """At most one promise per source and instant up to the greatest wait and latency."""
    longest = 6 + 4 + 1
    rows = simulate(bounds, chance, rows=80, pause=1)
    state, clock = Clock(bounds).empty(), Heartbeats(bounds)
    for now, some in cuts(rows, chance):
        feed(state, some, now)
        for row in some:
            clock.arrive(row.source, row.time, at=row.arrived)
        clock.advance(now)
        assert state.pending <= clock.pending <= len(bounds.sources) * longest


@given(
    st.lists(st.builds(Pair, st.integers(0, 5), st.integers(0, 5)), max_size=2),
    st.lists(st.builds(Pair, st.integers(0, 5), st.integers(0, 5)), max_size=2),
    st.integers(0, 3),
    st.sampled_from(["observed", "clock"]),
    SEEDS,
)
def test_sources_alike_are_the_matrix_of_their_names(own, others, latency, meaning, chance):
    alike = Alike(tuple(own), tuple(others), latency, meaning=meaning)
    for names in (NAMES, NAMES[:1]):  # nothing follows over a source that is not there (H1)
        named = alike.named(names)
        rows = simulate(named, chance, rows=25)
        one, two = Clock(alike).empty(), Clock(named).empty()
        assert alike.needs_timeout(len(names)) == named.needs_timeout()
        for now, some in cuts(rows, chance):
            assert shown(feed(one, some, now, present=names)) == shown(feed(two, some, now))


@pytest.mark.parametrize("meaning", ["observed", "clock"])
def test_the_overall_heartbeat_is_the_least(meaning):
    bounds = Bounds.of({("a", "a"): [Pair(0, 1)], ("b", "b"): [Pair(0, 1)]}, meaning=meaning)
    clock = Heartbeats(bounds)
    clock.arrive("a", 9, at=0)
    assert clock.advance(0) == NEVER
    clock.arrive("b", 5, at=1)
    assert clock.advance(1) == 4
