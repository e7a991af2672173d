"""The smallest example of each erratum of the heartbeats paper that concerns a fixed bound."""

import math

import pytest
from clock_driver import by_columns, by_reference

from anabranch.clocks import (
    Alike,
    Bounds,
    Clock,
    Heartbeats,
    Pair,
    Sensor,
    Summaries,
    Token,
    closure,
    duplicates,
    global_counter,
    is_idempotent,
    k_ordered,
    sensors,
    summarise,
)
from anabranch.clocks.pairs import expanded, weakest
from anabranch.errors import UsageError
from anabranch.model.time import NEVER
from anabranch.testing.clocks import SentRow, breaches


def row(source, time, emitted, arrived=None, number=0):
    return SentRow(source, time, emitted, emitted if arrived is None else arrived, number)


@pytest.mark.parametrize("meaning", ["observed", "clock"])
def test_erratum_h1_indirect_guarantees_do_not_follow_from_observed_rows(meaning):
    pairs = {("1", "2"): [Pair(1, 1)], ("1", "3"): [Pair(1, 3)], ("2", "3"): [Pair(1, 1)]}
    bounds = Bounds.of(pairs, meaning=meaning)
    legal = [row("1", 10, 0), row("3", 8, 3, number=1)]
    clock = Heartbeats(bounds)
    clock.arrive("1", 10, at=0)
    clock.advance(2)
    if meaning == "observed":
        assert breaches(legal, bounds) == []
        assert clock.heartbeats["3"] == 7, "8 is above it: nothing is broken"
    else:
        assert breaches(legal, bounds) != []
        assert clock.heartbeats["3"] == 8


def test_erratum_h1_nothing_follows_over_a_source_that_is_not_there():
    alike = Alike(own=(Pair(0, 100),), others=(Pair(0, 2),), meaning="clock")
    state = Clock(alike).empty()
    assert state.step(summarise(["1"], [500], [1]), 1).heartbeats == {"1": 400}
    both = state.step(summarise(["1", "2"], [501, 501], [2, 2]), 2)
    assert both.heartbeats == {"1": 499, "2": 499}


def test_erratum_h2_a_later_promise_does_not_lower_the_heartbeat():
    clock = Heartbeats(Bounds.of({("1", "1"): [Pair(5, 0), Pair(0, 8)]}))
    clock.arrive("1", 10, at=0)
    clock.arrive("1", 30, at=1)
    assert [clock.advance(now) for now in (1, 5, 6)] == [22, 22, 30]


def test_erratum_h3_an_older_row_does_not_lower_the_heartbeat():
    clock = Heartbeats(Bounds.of({("1", "1"): [Pair(0, 3)]}))
    clock.arrive("1", 10, at=1)
    assert clock.advance(1) == 7
    clock.arrive("1", 8, at=2)
    assert clock.advance(2) == 7


def test_erratum_h4_a_promise_for_later_is_not_read_now():
    clock = Heartbeats(Bounds.of({("1", "1"): [Pair(1, 0)]}))
    clock.arrive("1", 7, at=0)
    assert [clock.advance(0), clock.advance(1)] == [NEVER, 7]


def test_erratum_h5_all_arrivals_of_an_instant_come_before_its_heartbeats():
    bounds = Bounds.of({("1", "1"): [Pair(0, 0)]})
    rows = [row("1", 5, 0), row("1", 3, 0, number=1)]
    assert breaches(rows, bounds) == []
    clock = Heartbeats(bounds)
    clock.arrive("1", 5, at=0)
    assert clock.overall == NEVER
    clock.arrive("1", 3, at=0)
    assert clock.advance(0) == 5
    assert dict(by_columns(bounds, rows))[0] == {"1": 5}


def test_erratum_h5_on_a_real_clock_what_is_due_fires_before_an_arrival():
    clock = Heartbeats(Bounds.of({("1", "1"): [Pair(1, 0)]}))
    clock.arrive("1", 5, at=0)
    clock.arrive("1", 9, at=math.nextafter(1, 2))
    assert clock.overall == 5
    other = Heartbeats(Bounds.of({("1", "1"): [Pair(1, 0)]}))
    other.arrive("1", 5, at=0)
    other.arrive("1", 4, at=1)
    assert other.overall == NEVER, "4 is emitted at 1, not after 0 + 1: it is legal"


def test_erratum_h6a_the_bound_counts_emissions_not_arrivals():
    bounds = Bounds.of({("1", "1"): [Pair(1, 0, rows=True)]}, latency=1)
    rows = [row("1", 9, 0, 0), row("1", 5, 1, 2, number=1), row("1", 12, 1, 1, number=2)]
    assert breaches(rows, bounds) == []
    for history in (by_reference(bounds, rows), by_columns(bounds, rows)):
        beats = {now: heartbeats["1"] for now, heartbeats in history}
        assert beats[1] == NEVER, "12 arrives at 1, not later than 0 + L"
        assert beats[2] == NEVER
        assert beats[3] == 9, "5 came at 2 and counts; L later all before it has arrived"


def test_erratum_h6a_in_order_every_later_arrival_counts_at_once():
    bounds = Bounds.of({("1", "1"): [Pair(1, 0, rows=True)]}, latency=1, fifo=True)
    clock = Heartbeats(bounds)
    clock.arrive("1", 9, at=0)
    clock.arrive("1", 12, at=0)
    assert clock.advance(0) == 9


def test_erratum_h6b_counts_are_left_out_of_the_closure():
    bounds = Bounds.of(
        {("1", "2"): [Pair(1, 0, rows=True)], ("2", "3"): [Pair(2, 1)]}, sources="123"
    )
    closed = closure(bounds.pairs)
    assert closed[0][1] == (Pair(1, 0, rows=True),)
    assert closed[0][2] == ()


def test_erratum_h6d_a_lost_row_delays_a_count_and_breaks_nothing():
    clock = Heartbeats(k_ordered(2, strict=True).named(["1"]))
    clock.arrive("1", 9, at=0)
    clock.arrive("1", 10, at=1)
    assert clock.advance(1000) == NEVER
    assert clock.pending == 2


def test_erratum_h7_at_most_m_rows_of_a_time_is_m_less_one():
    assert duplicates(3).own == (Pair(0, 1), Pair(2, 0, rows=True))
    bounds = duplicates(3).named(["1"])
    three = [row("1", 5, at, number=at) for at in range(3)]
    assert breaches(three, bounds) == []
    assert breaches([*three, row("1", 5, 3, number=3)], bounds) != []


def test_erratum_h8_a_count_of_rows_does_not_replace_a_timeout():
    bounds = Bounds.of({("1", "1"): [Pair(1, 0, rows=True)]})
    assert bounds.needs_timeout()
    clock = Heartbeats(bounds)
    clock.arrive("1", 5, at=0)
    assert clock.advance(10**6) == NEVER


def test_erratum_h9_observed_bounds_alone_miss_inferences():
    """The law is test_heartbeats_of_closed_bounds_are_maximal; here the literal reading."""
    pairs = {("1", "2"): [Pair(0, 0)], ("2", "3"): [Pair(0, 0)]}
    literal, clocks = Bounds.of(pairs), Bounds.of(pairs, meaning="clock")
    for bounds, expected in ((literal, NEVER), (clocks, 7)):
        clock = Heartbeats(bounds)
        clock.arrive("1", 7, at=0)
        clock.advance(0)
        assert clock.heartbeats["3"] == expected


@pytest.mark.parametrize("fifo", [False, True])
def test_erratum_h10_after_the_instant_or_after_the_row(fifo):
    bounds = Bounds.of({("1", "1"): [Pair(0, 0)]}, latency=4, fifo=fifo)
    twice = [row("1", 5, 0), row("1", 5, 0, number=1)]
    assert bool(breaches(twice, bounds)) == fifo
    clock = Heartbeats(bounds)
    clock.arrive("1", 0, at=0)
    clock.arrive("1", 1, at=0)
    assert clock.overall == (1 if fifo else NEVER)
    clock.advance(4)
    assert clock.overall == 1


def test_erratum_h11_sensors_may_show_the_same_time_and_fall_back():
    still = sensors({"1": Sensor(0), "2": Sensor(0)})
    assert breaches([row("1", 5, 0), row("2", 5, 1, number=1)], still) == []
    reset = sensors({"1": Sensor(2)}, resets=False)
    assert breaches([row("1", 7, 0), row("1", 5, 1, number=1)], reset) == []
    printed = Bounds.of({("1", "1"): [Pair(0, 2)]})
    assert breaches([row("1", 7, 0), row("1", 5, 1, number=1)], printed) != []


@pytest.mark.parametrize(
    "make",
    [
        lambda: Bounds.of({("1", "1"): [Pair(0, 1)]}, latency=5, timeout=2),
        lambda: Alike(own=(Pair(2, 1),), latency=3, timeout=4),
    ],
)
def test_erratum_h18a_a_timeout_below_the_latency_is_rejected(make):
    with pytest.raises(UsageError, match="give a timeout of at least 5"):
        make()


def test_erratum_h18b_an_idle_source_alone_is_left_out():
    bounds = Bounds.of({("1", "1"): [Pair(0, 1)], ("2", "2"): [Pair(0, 1)]}, timeout=10)
    state = Clock(bounds, idle_after=10).empty()
    waiting = Clock(bounds).empty()
    for now in range(30):
        lines = summarise(["1"], [100 + now], [now])
        stable, held = state.step(lines, now).stable, waiting.step(lines, now)
    assert stable == 129
    assert held.stable is None
    assert str(held.holder) == "2 (active): promises nothing yet"


def test_erratum_h18c_an_older_promise_does_not_undo_the_timeout():
    bounds = Bounds.of({("1", "1"): [Pair(10, 50)]}, timeout=10)
    clock = Heartbeats(bounds)
    clock.arrive("1", 70, at=0)
    assert [clock.advance(10), clock.advance(20)] == [70, 70]


def test_d8_a_late_row_shows_that_the_stream_is_alive():
    bounds = Bounds.of({("1", "1"): [Pair(0, 1)]}, timeout=10)
    clock = Heartbeats(bounds)
    clock.arrive("1", 70, at=0)
    clock.arrive("1", 3, at=9)
    assert [clock.advance(10), clock.advance(19)] == [69, 70]


def test_erratum_h19_an_arrival_is_rounded_once_and_up():
    """Exactly it is due at 1 + 1 + 1; waits that are rounded too would make it due at 30."""
    bounds = Bounds.of({("1", "1"): [Pair(1, 0)]}, latency=1)
    state = Clock(bounds, resolution=10).empty()
    lines = summarise(["1"], [70], [1], resolution=10)
    assert state.step(lines, 11).stable is None, "rounded down it would be due at 2, too early"
    assert state.step(Summaries.none(), 12).stable == 71


def test_erratum_h21_idempotence_is_tested_on_reduced_sets():
    assert is_idempotent((((Pair(0, 0), Pair(1, 0)),),))


def test_erratum_h22_the_last_step_of_a_group_counts():
    """Times 0 to t_max are t_max + 1 steps: with t_max of them the group has (0, 5) alone."""
    one, other = [Pair(0, 5), Pair(4, 0)], [Pair(0, 3), Pair(4, 1)]
    assert weakest([one, other]) == (Pair(0, 5), Pair(4, 1))
    assert len(expanded(weakest([one, other]), range(4 + 1))) == 5


@pytest.mark.parametrize("strict", [True, False])
def test_erratum_h23_k_ordered_rows_may_have_the_same_time(strict):
    """Not smaller is (k, 1); (k, 0) is greater, which two rows of one time break."""
    rows = [row("s", 5, at, number=at) for at in range(2)]
    bounds = k_ordered(0, strict=strict).named(["s"])
    assert bool(breaches(rows, bounds)) == strict
    assert next(by_reference(bounds, rows))[1] == {"s": 5 if strict else 4}


def test_erratum_h26_the_time_of_a_token_starts_with_its_issue():
    """phi_0 requests at 0, gets token 2 at 5 and emits at 5; phi_1 gets 1 at 4, emits at 10."""
    rows = [row("0", 2, 5), row("1", 1, 10, number=1)]
    from_request = global_counter({"0": Token(5, 5), "1": Token(6, 6)})
    from_issue = global_counter({"0": Token(0, 5), "1": Token(0, 6)})
    assert breaches(rows, from_request) != []
    assert breaches(rows, from_issue) == []


def test_d4_before_anything_is_promised_there_is_no_heartbeat():
    state = Clock(Bounds.of({("1", "1"): [Pair(0, 0)]})).empty()
    assert state.step(Summaries.none(), 0).stable is None
    lowest = -(2**60)
    assert state.step(summarise(["1"], [lowest], [1]), 1).stable == lowest + 1
