"""The worked cases of the heartbeats paper, by section."""

from random import Random

import pytest
from clock_driver import by_columns, by_reference
from hypothesis import given
from hypothesis import strategies as st

from anabranch.clocks import (
    Alike,
    Bounds,
    Clock,
    Heartbeats,
    Pair,
    Sensor,
    Token,
    closure,
    delay,
    disorder,
    duplicates,
    global_counter,
    group_alike,
    grouped,
    is_idempotent,
    k_ordered,
    sensors,
    slack,
    summarise,
)
from anabranch.clocks.bounds import product
from anabranch.clocks.groups import cost, group_rules, worst
from anabranch.clocks.pairs import expanded, weakest
from anabranch.errors import UsageError
from anabranch.model.time import NEVER
from anabranch.testing.clocks import (
    SentRow,
    breaches,
    simulate,
    simulate_counter,
    simulate_sensors,
)

SEEDS = st.integers(0, 2**32).map(Random)


def times(clock: Heartbeats, rows, *, until=None):
    """The overall heartbeat after each row (source, time, at)."""
    found = []
    for source, time, at in rows:
        clock.arrive(source, time, at=at)
        found.append(clock.advance(at))
    return found if until is None else [*found, clock.advance(until)]


def test_section_2_a_heartbeat_is_the_least_of_all_streams():
    clock = Heartbeats(disorder(0).named(["s1", "s2"]))
    assert times(clock, [("s1", 10, 0), ("s2", 7, 1), ("s1", 12, 2)]) == [NEVER, 6, 6]


def test_section_3_1_sorted_with_at_most_k_duplicates():
    """Both specifications are needed, else some heartbeats are delayed."""
    both = duplicates(3).named(["s"])
    assert both.pairs[0][0] == (Pair(0, 1), Pair(2, 0, rows=True))
    three = [("s", 7, 0), ("s", 7, 1), ("s", 7, 2)]
    assert times(Heartbeats(both), three) == [6, 6, 7], "all that can come of 7 has come"
    only_sorted = Bounds.of({("s", "s"): [Pair(0, 1)]}, fifo=True)
    assert times(Heartbeats(only_sorted), [*three, ("s", 8, 3)]) == [6, 6, 6, 7]
    only_count = Bounds.of({("s", "s"): [Pair(2, 0, rows=True)]}, fifo=True)
    assert times(Heartbeats(only_count), [("s", 7, 0), ("s", 8, 1)]) == [NEVER, NEVER]
    assert times(Heartbeats(both), [("s", 7, 0), ("s", 8, 1)]) == [6, 7]


MATRIX_3_2 = Bounds.of(
    {
        ("s1", "s2"): [Pair(1, 1)],
        ("s1", "s3"): [Pair(1, 3)],
        ("s2", "s3"): [Pair(1, 1)],
    }
)


def test_section_3_2_indirect_guarantees():
    closed = closure(MATRIX_3_2.pairs)
    assert closed[0][2] == (Pair(1, 3), Pair(2, 2))
    assert closed[0][1] == (Pair(1, 1),)
    assert not is_idempotent(MATRIX_3_2.pairs)
    assert is_idempotent(closed)
    assert product(closed, closed) == closed


def test_section_3_2_the_virtual_tuple_gives_a_heartbeat_of_clocks_only():
    clocks = Bounds.of(
        {("s1", "s2"): [Pair(1, 1)], ("s1", "s3"): [Pair(1, 3)], ("s2", "s3"): [Pair(1, 1)]},
        latency={"s3": 5},
        meaning="clock",
    )
    clock = Heartbeats(clocks)
    clock.arrive("s1", 10, at=0)
    clock.advance(6)
    assert clock.heartbeats["s3"] == 7, "10 - 3 at 0 + 1 + L"
    clock.advance(7)
    assert clock.heartbeats["s3"] == 8, "10 - 2 at 0 + 2 + L"


def test_section_3_4_streams_that_pause_leave_rows_behind():
    """With B* as in the section both streams stop, and (tau - 5, tau] waits."""
    bounds = Bounds.of(
        {("s1", "s1"): [Pair(0, 0)], ("s1", "s2"): [Pair(0, 5)], ("s2", "s2"): [Pair(0, 0)]}
    )
    assert bounds.needs_timeout()
    clock = Heartbeats(bounds)
    clock.arrive("s1", 100, at=0)
    clock.arrive("s2", 95, at=0)
    assert clock.advance(10_000) == 95
    assert clock.heartbeats == {"s1": 100, "s2": 95}


def test_section_3_4_a_timeout_gives_the_greatest_time_to_all():
    bounds = Bounds.of(
        {("s1", "s1"): [Pair(0, 0)], ("s1", "s2"): [Pair(0, 5)], ("s2", "s2"): [Pair(0, 0)]},
        timeout=60,
    )
    assert not bounds.needs_timeout()
    clock = Heartbeats(bounds)
    clock.arrive("s1", 100, at=0)
    assert [clock.advance(59), clock.advance(60)] == [95, 100]
    assert clock.heartbeats == {"s1": 100, "s2": 100}


COUNTER = {"s1": Token(1, 4), "s2": Token(2, 9, latency=3), "s3": Token(5, 6)}


def test_section_4_1_the_bounds_of_a_global_counter():
    bounds = global_counter(COUNTER)
    assert bounds.pairs[0][1] == (Pair(1, 0, rows=True), Pair(8, 0))
    assert bounds.pairs[2][0] == (Pair(0, 0), Pair(1, 0, rows=True))
    assert [bounds.pairs[i][i] for i in range(3)] == [(Pair(0, 0),)] * 3
    assert not bounds.needs_timeout()


@given(SEEDS)
def test_section_4_1_runs_of_a_global_counter_keep_them(chance):
    rows = simulate_counter(COUNTER, chance)
    assert breaches(rows, global_counter(COUNTER)) == []
    assert breaches(rows, global_counter(COUNTER, delayed=False)) == []


@given(SEEDS)
def test_section_4_1_all_numbers_pass_in_the_end_without_a_timeout(chance):
    rows = simulate_counter(COUNTER, chance)
    *_, (_, last) = by_reference(global_counter(COUNTER), rows)
    assert min(last.values()) == len(rows) - 1


def test_section_4_1_bounds_without_a_wait_delay_heartbeats_by_far():
    quick = {"s1": Token(1, 2), "s2": Token(1, 100)}
    without = global_counter(quick, delayed=False)
    assert without.pairs[0][1] == (Pair(0, 100),)
    assert without.needs_timeout()
    waits: dict[bool, list[int]] = {True: [], False: []}
    for delayed, found in waits.items():
        for seed in range(5):
            rows = simulate_counter(quick, Random(seed), rows=60)
            released = dict(by_reference(global_counter(quick, delayed=delayed), rows))
            for row in rows:
                when = next(
                    (n for n, h in released.items() if min(h.values()) >= row.time), None
                )
                found.append(10_000 if when is None else when - row.arrived)
    assert sum(waits[True]) * 10 < sum(waits[False])


SENSORS = {"s1": Sensor(2), "s2": Sensor(0, latency=2), "s3": Sensor(5)}


def test_section_4_2_the_bounds_of_sensors():
    bounds = sensors(SENSORS)
    assert bounds.pairs[0][2] == (Pair(0, 8),)
    assert bounds.pairs[0][0] == (Pair(0, 5),)
    assert sensors(SENSORS, resets=False).pairs[0][0] == (Pair(0, 3),)
    assert bounds.needs_timeout()
    moving = sensors(SENSORS, rate=0.5)
    assert moving.pairs[0][2] == (Pair(0, 8), Pair(16, 0))
    assert moving.pairs[1][1] == (Pair(0, 1), Pair(2, 0))
    assert not moving.needs_timeout()


@given(SEEDS, st.booleans())
def test_section_4_2_sensors_keep_them(chance, anywhere):
    rows = simulate_sensors(SENSORS, chance, anywhere=anywhere)
    assert breaches(rows, sensors(SENSORS, resets=anywhere)) == []


@given(SEEDS, st.sampled_from([1, 2, 5]))
def test_section_4_2_sensors_with_a_rate_keep_them(chance, rate):
    rows = simulate_sensors(SENSORS, chance, rate=rate)
    assert breaches(rows, sensors(SENSORS, rate=rate)) == []


def test_section_5_1_a_coarse_unit_is_rounded_up():
    lines = list(summarise(["s"] * 3, [1, 2, 3], [10, 11, 20], resolution=10).lines())
    assert [(line.after, line.upto, line.count) for line in lines] == [(0, 10, 1), (10, 20, 2)]


def test_section_5_2_s_plus():
    assert expanded([Pair(1, 2), Pair(3, 1)], range(4)) == (Pair(1, 2), Pair(2, 2), Pair(3, 1))
    assert expanded([], range(4)) == ()


def test_section_5_2_the_weaker_of_two_at_every_step():
    one, other = [Pair(0, 5), Pair(4, 0)], [Pair(1, 2), Pair(3, 1)]
    assert weakest([one, other]) == (Pair(1, 5), Pair(4, 1))
    assert weakest([one, []]) == (), "an empty entry empties the group"


@given(
    st.lists(
        st.lists(st.builds(Pair, st.integers(0, 6), st.integers(0, 6)), max_size=3), max_size=3
    )
)
def test_section_5_2_the_weakest_is_that_of_s_plus(sets):
    """The formula of the section, at each time 0 .. t_max (H22: t_max + 1 of them)."""
    waits = range(8)
    stairs = [{pair.wait: pair.distance for pair in expanded(one, waits)} for one in sets]
    wanted = {
        wait: max(one[wait] for one in stairs)
        for wait in waits
        if stairs and all(wait in one for one in stairs)
    }
    found = {pair.wait: pair.distance for pair in expanded(weakest(sets), waits)}
    assert found == wanted


def test_section_5_2_groups_of_named_sources():
    bounds = Bounds.of(
        {
            ("a", "a"): [Pair(0, 1)], ("a", "b"): [Pair(0, 4)], ("a", "c"): [Pair(2, 0)],
            ("b", "a"): [Pair(3, 0)], ("b", "b"): [Pair(0, 1)], ("b", "c"): [Pair(1, 0)],
            ("c", "c"): [Pair(0, 0)],
        },
        latency={"a": 1, "b": 5, "c": 0},
    )  # fmt: skip
    group_of = {"a": "g", "b": "g", "c": "h"}
    hat = grouped(bounds, group_of)
    assert hat.sources == ("g", "h")
    assert hat.pairs[0][0] == (Pair(3, 4),), "b bounds a only after 3"
    assert hat.pairs[0][1] == (Pair(2, 0),)
    assert hat.pairs[1][0] == (), "c bounds neither a nor b"
    assert hat.latency == (5, 0)
    rows = group_rules(bounds, group_of).rows
    assert rows["a"][0] == (Pair(5, 4),), "D11: the latency of each member in its own wait"
    assert rows["b"][0] == (Pair(5, 1),)
    costs = {one.source: one for one in cost(bounds, group_of)}
    assert (costs["a"].wait, costs["a"].distance) == (4, 3)
    assert (costs["c"].wait, costs["c"].distance) == (0, 0)
    assert worst(costs.values(), 1)[0].source == "a"
    assert str(costs["a"]) == "a in g: (1, 1) alone, (5, 4) in its group"


@given(SEEDS, st.integers(0, 4))
def test_section_5_2_rows_of_bounds_are_never_later_than_the_matrix_of_groups(chance, latency):
    """D11; and neither is ever broken."""
    names = ["a", "b", "c", "d"]
    pairs = {
        (one, to): [Pair(chance.randint(0, 4), chance.randint(0, 5))]
        for one in names
        for to in names
    }
    bounds = Bounds.of(pairs, latency={"a": latency, "c": 2})
    group_of = {"a": "g", "b": "g", "c": "h", "d": "h"}
    rows = simulate(bounds, chance, rows=25)
    by_rows = Clock(bounds, groups=tuple(group_of.items())).empty()
    by_matrix = Clock(grouped(bounds, group_of)).empty()
    for now in range(rows[-1].arrived + 20):
        some = [row for row in rows if row.arrived == now]
        sent = [row.time for row in some], [row.arrived for row in some]
        mine = by_rows.step(summarise([row.source for row in some], *sent), now).heartbeats
        theirs = by_matrix.step(
            summarise([group_of[row.source] for row in some], *sent), now
        ).heartbeats
        for name, value in theirs.items():
            known = mine[name]
            assert value is None or (known is not None and known >= value)
            late = [r for r in rows if r.arrived > now and group_of[r.source] == name]
            assert all(mine[name] is None or row.time > mine[name] for row in late)


def test_section_5_2_sources_alike_need_a_bound_between_them():
    with pytest.raises(UsageError, match="no bound between two of them"):
        group_alike(disorder(5))
    with pytest.raises(UsageError, match="nothing is known of a group of one; give own="):
        group_alike(Alike(others=(Pair(0, 7),), meaning="clock"))
    both = group_alike(Alike(own=(Pair(0, 1),), others=(Pair(0, 7),), latency=4))
    assert both.own == (Pair(0, 7),)
    assert both.latency == 4


@given(SEEDS)
def test_section_5_2_groups_of_sources_alike_are_never_broken(chance):
    alike = Alike(own=(Pair(0, 2),), others=(Pair(0, 6), Pair(4, 1)), latency=3)
    rows = simulate(alike.named(["a", "b", "c", "d"]), chance, rows=30)
    group_of = {"a": "g", "b": "g", "c": "h", "d": "h"}
    state = Clock(group_alike(alike)).empty()
    for now in range(rows[-1].arrived):
        some = [row for row in rows if row.arrived == now]
        lines = summarise(
            [group_of[r.source] for r in some], [r.time for r in some], [now] * len(some)
        )
        beats = state.step(lines, now).heartbeats
        for row in rows:
            known = beats.get(group_of[row.source])
            assert row.arrived <= now or known is None or row.time > known


def test_section_8_the_slack_of_aurora():
    assert slack(30).own == (Pair(30, 1),)
    clock = Heartbeats(slack(30).named(["s"]))
    clock.arrive("s", 7, at=0)
    assert [clock.advance(29), clock.advance(30)] == [NEVER, 6]


def test_section_8_k_ordered_arrival():
    assert k_ordered(2, strict=True).own == (Pair(2, 0, rows=True),)
    assert k_ordered(2).own == (Pair(2, 1, rows=True),)
    rows = [("s", 9, 0), ("s", 4, 1), ("s", 6, 2), ("s", 9, 3)]
    assert times(Heartbeats(k_ordered(2).named(["s"])), rows) == [NEVER, NEVER, 8, 8]


def test_disorder_is_the_watermark_of_spark_and_flink():
    """Spark promises times >= max - d, Flink's watermark is max - B - 1: delta is d + 1."""
    clock = Heartbeats(disorder(10).named(["s"]))
    assert times(clock, [("s", 100, 0), ("s", 90, 0), ("s", 105, 1)]) == [89, 89, 94]


def test_a_delay_makes_time_pass_where_nothing_arrives():
    clock = Heartbeats(delay(10).named(["s"]))
    assert not delay(10).needs_timeout()
    clock.arrive("s", 95, at=100)
    assert [clock.advance(100), clock.advance(150)] == [90, 140]
    later = SentRow("s", 141, 151, 151)
    assert later.time > 140


@given(SEEDS)
def test_a_delay_is_never_broken_while_it_holds(chance):
    bounds = delay(5, disorder=3).named(["a", "b"])
    rows = simulate(bounds, chance, rows=25)
    for history in (by_reference(bounds, rows), by_columns(bounds, rows)):
        for now, beats in history:
            assert all(row.time > beats[row.source] for row in rows if row.arrived > now)
