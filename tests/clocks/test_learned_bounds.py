"""Learned bounds: sections 6.1 and 6.2, Figure 4, and errata H12 to H17."""

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from clock_driver import feed
from hypothesis import given
from hypothesis import strategies as st

from anabranch.clocks import Alike, Bounds, Clock, Learning, Pair, Summaries, summarise
from anabranch.clocks.learn import Cell
from anabranch.clocks.saved import write_state
from anabranch.errors import UsageError
from anabranch.testing.clocks import cuts, simulate

SEEDS = st.integers(0, 2**32).map(Random)
EVER = Learning(window=None, warm_up=0)


def clock_of(spec: Learning):
    return Clock(spec).empty()


def row(source, time, at):
    return summarise([source], [time], [at], histogram=True)


def run(state, *rows):
    """Stable after each (source, time, at)."""
    return [state.step(row(*one), one[2]).stable for one in rows]


def bound(state, other="1", name="1", wait=0):
    return state.learner.cells[other, name, wait].distance


def figure_4(rows, spec: Learning, *, waits):
    """The estimates of Figure 4, corrected, one row at a time, as the paper writes it."""
    cells: dict[tuple[str, str, int], list[float]] = {}
    seen: list[tuple[str, int, int]] = []
    shown: dict[tuple[str, str, int], int] = {}
    for name, time, at in rows:
        for other in dict.fromkeys(source for source, _, _ in seen):
            for wait in waits:
                before = [t for s, t, c in seen if s == other and c < at - wait]
                if not before:
                    continue
                key = (other, name, wait)
                delta, win, num = cells.get(key, [0, 0, 0])
                fresh = shown.get(key) != len(before)
                shown[key] = len(before)
                estimate = max(max(before) - time + 1, 0)
                if estimate > delta:
                    delta, win, num = estimate, 0, 0
                elif fresh:
                    num, win = num + 1, max(win, estimate)
                    if spec.window is not None and num >= spec.window:
                        lower = spec.alpha * delta + (1 - spec.alpha) * win
                        delta = win if spec.alpha < 1 and lower - win < 1 else lower
                        win, num = 0, 0
                cells[key] = [delta, win, num]
        seen.append((name, time, at))
    return {key: delta for key, (delta, _, _) in cells.items()}


ROWS = st.lists(
    st.tuples(st.sampled_from("12"), st.integers(0, 40), st.integers(1, 3)), max_size=40
)


@given(ROWS, st.none() | st.integers(1, 5), st.sampled_from([0, 0.25, 0.5, 1]))
def test_figure_4_row_by_row(pieces, window, alpha):
    spec = Learning(window=window, alpha=alpha, waits=(0, 2, 5), across=True, warm_up=0)
    at, rows = 0, []
    for name, time, pause in pieces:
        at += pause
        rows.append((name, time, at))
    state = clock_of(spec)
    run(state, *rows)
    found = {key: cell.delta for key, cell in state.learner.cells.items()}
    assert found == figure_4(rows, spec, waits=spec.waits)


@given(ROWS, st.sampled_from([Learning(window=3, alpha=1, warm_up=0), EVER]))
def test_w_infinite_or_alpha_1_is_section_6_1(pieces, spec):
    rows = [(name, time, at) for at, (name, time, _) in enumerate(pieces, start=1)]
    one, two = clock_of(spec), clock_of(EVER)
    assert run(one, *rows) == run(two, *rows)


@given(SEEDS, st.sampled_from([EVER, Learning(window=4, warm_up=0)]))
def test_a_row_beyond_a_learned_bound_raises_it(chance, spec):
    """Section 6.1: too soon only when skew is higher than the bound; H17: such rows teach."""
    alike = Alike(own=(Pair(0, 9),), others=(Pair(0, 12),))
    rows = simulate(alike.named("ab"), chance, rows=40, pause=2)
    state = clock_of(spec)
    for now in range(rows[-1].arrived + 1):
        some = [one for one in rows if one.arrived == now]
        promised = {
            name: state.learner.reach[other].until(now - 1)[1] - cell.distance
            for (other, name, _), cell in state.learner.cells.items()
        }
        changes = feed(state, some, now).changes
        raised = {change.source for change in changes if change.cause == "exceeded"}
        beyond = {one.source for one in some if one.time <= promised.get(one.source, -1)}
        assert beyond <= raised


@given(SEEDS, SEEDS, st.sampled_from([None, 0.1]))
def test_learned_states_survive_a_restart_after_each_step(chance, cutter, loss):
    spec = Learning(window=5, target_loss=loss, waits=(0, 3), across=True, warm_up=3)
    rows = simulate(Alike(own=(Pair(0, 9),)).named("ab"), chance, rows=30)
    one, two = clock_of(spec), clock_of(spec)
    for now, some in cuts(rows, cutter):
        assert feed(one, some, now).heartbeats == feed(two, some, now).heartbeats
        two = Clock(spec).from_parts(write_state(two).written)
    assert write_state(one).written == write_state(two).written


@given(SEEDS, SEEDS, st.data())
def test_only_bounds_that_are_asked_for_are_kept_over_a_restart(chance, cutter, data):
    """Bounds that are not taught any more would promise what nobody checks."""
    specs = st.builds(
        Learning,
        window=st.sampled_from([None, 2, 1000]),
        target_loss=st.none(),
        waits=st.sampled_from([(0,), (0, 5), (5,)]),
        across=st.booleans(),
        warm_up=st.just(0),
    ) | st.just(Learning(window=5, target_loss=0.2, warm_up=0))
    first, second = data.draw(specs), data.draw(specs)
    rows = simulate(Alike(own=(Pair(0, 9),)).named("ab"), chance, rows=30)
    state, steps = clock_of(first), cuts(rows, cutter)
    for now, some in steps[: len(steps) // 2]:
        feed(state, some, now)
    state = Clock(second).from_parts(write_state(state).written)
    for now, some in steps[len(steps) // 2 :]:
        feed(state, some, now)
        for (other, name, wait), cell in state.learner.cells.items():
            assert wait in second.waits
            assert second.across or other == name
            assert cell.window == second.window
            assert bool(cell.young or cell.old) <= (second.target_loss is not None)


def test_a_bound_that_is_not_taught_any_more_promises_nothing():
    once = clock_of(Learning(window=None, waits=(0,), warm_up=0))
    run(once, *[("1", 10 * n, n) for n in range(1, 11)])
    state = Clock(Learning(window=None, waits=(5,), warm_up=0)).from_parts(
        write_state(once).written
    )
    late = [("1", 10 * n - (20 if n % 2 else 0), n) for n in range(12, 30)]
    for source, time, at in late:
        assert time > state.heartbeat[0]
        state.step(row(source, time, at), at)


def test_a_window_is_as_asked_unless_it_adapts():
    for adapts in (False, True):
        spec = Learning(window=1000, adapts=adapts, warm_up=0)
        state = clock_of(spec)
        run(state, *[("1", 10 * n, n) for n in range(1, 5)])
        other = replace(spec, window=2)
        again = Clock(other).from_parts(write_state(state).written)
        assert again.learner.cells["1", "1", 0].window == (1000 if adapts else 2)


def test_erratum_h3_and_6_the_heartbeat_does_not_fall():
    state = clock_of(EVER)
    assert run(state, ("1", 10, 1), ("1", 8, 2), ("1", 9, 3)) == [None, 8, 8]


def test_erratum_h12_a_row_is_not_compared_with_itself():
    state = clock_of(EVER)
    run(state, *[("1", 10 * n, n) for n in range(1, 9)])
    assert bound(state) == 0, "sorted and without duplicates"
    run(state, ("1", 80, 9))
    assert bound(state) == 1, "a duplicate"


def test_erratum_h13_nothing_is_released_while_it_warms_up():
    state = clock_of(Learning(window=None, warm_up=3))
    stables = run(state, *[("1", 10 * n, n) for n in range(1, 7)])
    assert stables == [None, None, None, 41, 51, 61]


def test_erratum_h14_heartbeats_use_what_is_known_when_they_are_read():
    spec = Learning(window=None, waits=(2,), across=True, warm_up=0)
    state = clock_of(spec)
    run(state, ("1", 5, 0), ("1", 20, 2), ("2", 1, 3))
    assert bound(state, "1", "2", 2) == 5
    beat = state.step(summarise([], [], []), 4)
    assert beat.heartbeats["2"] == 15, "not 20, which the bound of then had promised"


def test_erratum_h15_the_bound_returns_to_0():
    cell = Cell(Learning(window=2, alpha=0.5, warm_up=0))
    cell.observe(9, at=0)
    for at in range(1, 20):
        cell.observe(0, at=at)
    assert cell.distance == 0
    exact = Cell(Learning(window=2, alpha=0.5, warm_up=0))
    exact.observe(9, at=0)
    assert [exact.observe(0, at=at) for at in (1, 2)] == [None, "lowered"], "at the W-th"
    assert (exact.delta, exact.distance) == (4.5, 5), "real, used rounded up"


def test_erratum_h16_a_silent_source_does_not_look_like_no_skew():
    spec = Learning(window=3, alpha=0, across=True, warm_up=0)
    state = clock_of(spec)
    run(
        state,
        *[
            pair
            for n in range(1, 6)
            for pair in (("1", 10 * n, 2 * n), ("2", 10 * n - 10, 2 * n + 1))
        ],
    )
    learned = bound(state, "1", "2")
    assert learned == 11
    run(state, *[("2", 40 + n, 20 + n) for n in range(30)])
    assert bound(state, "1", "2") == learned, "1 has shown nothing new"


def test_erratum_h17_late_rows_teach():
    state = clock_of(EVER)
    run(state, ("1", 10, 1), ("1", 20, 2), ("1", 5, 3))
    assert bound(state) == 16


def test_the_window_may_be_a_span_of_the_wall_clock():
    cell = Cell(Learning(window=None, window_wall=10, alpha=0, warm_up=0))
    cell.observe(8, at=0)
    assert [cell.observe(1, at=at) for at in (5, 9)] == [None, None]
    assert cell.observe(1, at=10) == "lowered"
    assert cell.distance == 1


def test_d10_the_window_adapts():
    spec = Learning(window=4, alpha=0.5, adapts=True, warm_up=0)
    often = Cell(spec)
    for at in range(12):
        often.observe(10 + at, at=at)
    assert often.window > 4
    seldom = Cell(spec)
    seldom.observe(1000, at=0)
    for at in range(1, 40):
        seldom.observe(1, at=at)
    assert seldom.window == 2, "halved after three lowering windows, and not below 2"


@given(
    st.lists(st.integers(0, 10**9), min_size=50, max_size=300),
    st.sampled_from([0.01, 0.05, 0.2]),
)
def test_a_target_loss_takes_a_quantile(estimates, loss):
    cell = Cell(Learning(window=10_000, target_loss=loss, warm_up=0))
    cell.count(np.array(estimates), np.ones(len(estimates), np.int64), at=0)
    late = sum(one > cell.distance for one in estimates)
    assert late <= loss * len(estimates)
    exact = sorted(estimates, reverse=True)[int(loss * len(estimates))]
    assert exact <= cell.distance <= exact * 1.04 + 1, "never too small, at most 4 % too great"


def test_a_spike_moves_the_greatest_and_not_the_quantile():
    rows = [("1", 10 * n - (5000 if n == 300 else 0), n) for n in range(1, 600)]
    greatest = clock_of(Learning(window=1000, warm_up=20))
    share = clock_of(Learning(window=1000, target_loss=0.01, warm_up=20))
    run(greatest, *rows)
    run(share, *rows)
    assert bound(greatest) > 4000
    assert bound(share) == 0


def test_clamps_hold_whatever_is_learned():
    state = clock_of(Learning(window=None, least=3, most=6, warm_up=0))
    run(state, ("1", 10, 1), ("1", 20, 2))
    assert bound(state) == 3
    run(state, ("1", 1, 3))
    assert bound(state) == 6


def test_a_blocked_source_is_moved_by_its_own_rows_alone():
    state = clock_of(Learning(window=None, across=True, waits=(0, 2), warm_up=0))
    run(state, ("1", 10, 1), ("2", 10, 1), ("1", 20, 2), ("2", 20, 2))
    beat = state.step(row("1", 900, 3), 3, blocked=["2"])
    assert beat.heartbeats["2"] == 20
    assert state.step(summarise([], [], []), 9).heartbeats["2"] > 20


def test_the_trail_gives_the_reason_of_each_change():
    state = clock_of(Learning(window=2, alpha=0, warm_up=0))
    run(state, ("1", 10, 1), ("1", 5, 2), ("1", 11, 3), ("1", 12, 4))
    assert list(map(str, state.learner.trail)) == [
        "at 2: 1 behind 1 after 0: nothing -> 6: a row was farther behind",
        "at 4: 1 behind 1 after 0: 6 -> 0: a whole window was nearer",
    ]


def test_rows_of_the_future_teach_nothing():
    lines = summarise(["1", "1"], [10, 9000], [1, 1], guard=100)
    state = clock_of(EVER)
    state.step(lines, 1)
    run(state, ("1", 11, 2))
    assert bound(state) == 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"window": 0}, "window is 0"),
        ({"alpha": 2}, "alpha is 2"),
        ({"target_loss": 0}, "target_loss is 0"),
        ({"waits": ()}, r"waits are \[\]"),
        ({"waits": (3, 1)}, r"waits are \[3, 1\]"),
        ({"least": -1}, "least is -1"),
        ({"least": 5, "most": 4}, "most is 4, below least"),
        ({"window": None, "target_loss": 0.1}, "needs a window of rows"),
    ],
)
def test_settings_that_cannot_be_meant_are_rejected(settings, message):
    with pytest.raises(UsageError, match=message):
        Learning(**settings)


def test_a_quantile_needs_histograms():
    state = clock_of(Learning(target_loss=0.1, warm_up=0))
    state.step(summarise(["1"], [1], [1]), 1)
    with pytest.raises(UsageError, match="histogram=True"):
        state.step(summarise(["1"], [2], [2]), 2)


GROUPS = (("a", "x"), ("b", "x"), ("c", "y"))


@given(
    st.lists(
        st.tuples(st.sampled_from("abcd"), st.integers(0, 200), st.integers(1, 3)), max_size=60
    ),
    st.sampled_from(
        [
            Learning(window=5, warm_up=2),
            Learning(window=9, target_loss=0.2, warm_up=0),
            Learning(waits=(0, 4), across=True, warm_up=0),
        ]
    ),
)
def test_a_group_learns_as_one_source(rows, spec):
    """As if the rows of its members had come under its name; one in no group is itself."""
    grouped = Clock(spec, idle_after=9, groups=GROUPS).empty()
    plain = Clock(spec, idle_after=9).empty()
    names = dict(GROUPS)
    now = 0
    for source, time, pause in rows:
        now += pause
        beat = grouped.step(
            summarise([source, "a"], [time, time], [now, now], histogram=True), now
        )
        both = [names.get(source, source), "x"]
        other = plain.step(summarise(both, [time, time], [now, now], histogram=True), now)
        assert beat.heartbeats == other.heartbeats
        assert (beat.stable, beat.changes) == (other.stable, other.changes)


def test_a_group_is_paused_when_all_its_members_are():
    bounds = Bounds.of({(i, j): [Pair(0, 1)] for i in "ab" for j in "ab"})
    for spec in (Learning(warm_up=0), bounds):
        state = Clock(spec, groups=(("a", "x"), ("b", "x"))).empty()
        rows = summarise(["a", "b"], [5, 5], [1, 1])
        assert state.step(rows, 1, paused=["a"]).counts["paused"] == 0
        assert state.step(Summaries.none(), 2, paused=["a", "b"]).counts["paused"] == 1
        assert state.step(Summaries.none(), 3, blocked=["a"]).counts["blocked"] == 1


def test_a_time_that_is_not_believed_teaches_nothing():
    state = Clock(Learning(window=5, warm_up=0), jump=100).empty()
    for at in range(1, 20):
        time = 10**9 if at == 10 else 10 * at
        state.step(summarise(["a"], [time], [at], histogram=True), at)
    assert state.learner.cells["a", "a", 0].distance == 0
    assert state.stable == 191


def test_an_arrival_in_the_future_does_not_stop_learned_bounds():
    state = clock_of(Learning())
    for n in range(1, 200):
        beat = state.step(row("1", 10 * n, 10**9 if n == 5 else n), n)
    assert beat.stable == 1991
    walled = clock_of(Learning(window=None, window_wall=10, alpha=0, warm_up=0))
    for n in range(1, 30):
        walled.step(row("1", 0 if n == 3 else 10 * n, 10**9 if n == 3 else n), n)
    assert bound(walled) == 0, "21 at the third row"
