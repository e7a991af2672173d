"""Laws of the operators: snapshots, forms of results, and streams that emit them at once.

The relational operator over one snapshot is written here, over bags of rows, beside each
operator over histories.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise, product

import operator_models as models
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import UsageError
from anabranch.model import operators as ops
from anabranch.model.element import Adjust, Event, Stable
from anabranch.model.history import History, replay, replays
from anabranch.model.lifetimes import (
    AlterLifetime,
    DurationCapped,
    DurationConstant,
    DurationLengthened,
    GridWindows,
    Hop,
    StartRounded,
    StartShifted,
    sliding,
)
from anabranch.model.net_change import difference_of, sync_time
from anabranch.model.normal_form import normal_form, snapshot_equivalent
from anabranch.model.notation import parse_events
from anabranch.model.properties import MergeCase
from anabranch.model.time import FOREVER, NEVER
from anabranch.testing.strategies import histories, interleavings, presentations

ROWS = st.tuples(st.sampled_from(["a", "b", None]), st.sampled_from([1, 2]))
BAGS = histories(case=MergeCase.R4, max_events=6, max_time=8, payloads=ROWS)
SMALL = histories(case=MergeCase.R4, max_events=4, max_time=8, payloads=ROWS)
TIMES = range(-1, 12)  # from before the first start to after the last end

Bag = Counter[tuple]


def key(row):
    return row[:1]


def numbers(rows):
    return (len(rows), sum(row[1] for row in rows))


def groups(rows):
    found = {}
    for row in sorted(rows.elements(), key=repr):
        found.setdefault(key(row), []).append(row)
    return found


def paired(left, right):
    found = Counter()
    for (a, n), (b, m) in product(left.items(), right.items()):
        if a[0] is not None and a[0] == b[0]:
            found[a + b] += n * m
    return found


def partnered(left, right):
    keys = {row[0] for row in right}
    return Counter({row: n for row, n in left.items() if row[0] is not None and row[0] in keys})


def largest_two(rows):
    firsts = [sorted(group, key=by_number)[:2] for group in groups(rows).values()]
    return Counter(row for first in firsts for row in first)


def by_number(row):
    return (-row[1], repr(row))


BY_KEY = ops.on_columns({0: 0})
ABSENT = (None, None)


@dataclass(frozen=True)
class Relational:
    """An operator over histories, and the same over the bags of rows of one time."""

    inputs: int
    operator: Callable[..., History]
    snapshot: Callable[..., Bag]


SNAPSHOT_OPERATORS = {
    "where": Relational(
        1,
        lambda h: ops.where(h, lambda e: e.payload[1] == 1),
        lambda rows: Counter({row: n for row, n in rows.items() if row[1] == 1}),
    ),
    "project": Relational(
        1,
        lambda h: ops.project(h, lambda e: e.payload[1:]),
        lambda rows: Counter(row[1:] for row in rows.elements()),
    ),
    "join": Relational(2, lambda a, b: ops.join(a, b, BY_KEY), paired),
    "left_join": Relational(
        2,
        lambda a, b: ops.left_join(a, b, BY_KEY, absent=ABSENT),
        lambda a, b: (
            paired(a, b) + Counter(r + ABSENT for r in (a - partnered(a, b)).elements())
        ),
    ),
    "semi_join": Relational(2, lambda a, b: ops.semi_join(a, b, BY_KEY), partnered),
    "anti_join": Relational(
        2, lambda a, b: ops.anti_join(a, b, BY_KEY), lambda a, b: a - partnered(a, b)
    ),
    "aggregate": Relational(
        1,
        lambda h: ops.aggregate(h, key, numbers),
        lambda rows: Counter(name + numbers(group) for name, group in groups(rows).items()),
    ),
    "aggregate without keys": Relational(
        1,
        lambda h: ops.aggregate(h, lambda _: (), numbers),
        lambda rows: Counter([numbers([*rows.elements()])] if rows else []),
    ),
    "top_k": Relational(1, lambda h: ops.top_k(h, key, 2, by_number), largest_two),
    "distinct": Relational(1, ops.distinct, lambda rows: Counter(set(rows))),
    "difference": Relational(2, ops.difference, lambda a, b: a - b),
    "union": Relational(2, ops.union, lambda a, b: a + b),
    "normalise": Relational(1, ops.normalise, lambda rows: rows),
}

LIFETIMES = {
    "sliding": sliding(3),
    "tumbling": AlterLifetime(StartRounded(3, offset=1), DurationConstant(3)),
    "shifted": AlterLifetime(StartShifted(-4)),
    "lengthened": AlterLifetime(StartRounded(3), DurationLengthened(2)),
    "capped": AlterLifetime(StartShifted(2), DurationCapped(2)),
    "hop": Hop(5, 3),
    "hop between events": Hop(1, 3),
    "grid windows": GridWindows(5, 2, offset=1),
    "grid windows with gaps": GridWindows(2, 5, gaps_between=True),
}


def moved(rule):
    def operator(history):
        if isinstance(rule, GridWindows):
            return ops.grid_windows(history, rule)
        if isinstance(rule, Hop):
            return ops.hop(history, rule.size, rule.slide)
        return ops.alter_lifetime(history, rule)

    return operator


def rows_at(history, time):
    return Counter(event.payload for event in history.snapshot(time))


def recut(draw, history):
    """A history with the same snapshots: events cut in two, and runs joined."""
    if draw(st.booleans()):
        return normal_form(history)
    events = []
    for event in history:
        cut = draw(st.integers(-1, 10))
        parts = [event]
        if event.start < cut < event.end:
            parts = [event._replace(end=cut), event._replace(start=cut)]
        events += parts
    return History.from_events(events)


operators = st.sampled_from(sorted(SNAPSHOT_OPERATORS)).map(SNAPSHOT_OPERATORS.__getitem__)


# Snapshots


@pytest.mark.parametrize("name", SNAPSHOT_OPERATORS)
@given(data=st.data())
def test_the_snapshot_of_the_result_is_the_relational_operator_on_the_snapshots(name, data):
    one = SNAPSHOT_OPERATORS[name]
    inputs = [data.draw(BAGS) for _ in range(one.inputs)]
    result = one.operator(*inputs)
    for time in TIMES:
        assert rows_at(result, time) == one.snapshot(*(rows_at(side, time) for side in inputs))


@given(operators, st.data())
def test_cedr_operators_definition_2_view_update_compliant(one, data):
    inputs = [data.draw(BAGS) for _ in range(one.inputs)]
    others = [recut(data.draw, side) for side in inputs]
    assert all(map(snapshot_equivalent, inputs, others))
    assert snapshot_equivalent(one.operator(*inputs), one.operator(*others))


@pytest.mark.parametrize("name", ["distinct", "difference", "top_k", "normalise"])
@given(data=st.data())
def test_results_in_normal_form_are_a_function_of_the_snapshots(name, data):
    one = SNAPSHOT_OPERATORS[name]
    inputs = [data.draw(BAGS) for _ in range(one.inputs)]
    result = one.operator(*inputs)
    assert result == normal_form(result)
    assert result == one.operator(*(recut(data.draw, side) for side in inputs))


@pytest.mark.parametrize(
    "operator",
    [
        lambda history: ops.window(history, 2),
        lambda history: ops.hop(history, 2, 2),
        lambda history: ops.grid_windows(history, GridWindows(2, 2)),
        lambda history: ops.alter_lifetime(history, AlterLifetime(duration=DurationCapped(2))),
        ops.inserts,
        ops.deletes,
    ],
)
def test_operators_that_replace_lifetimes_are_not_view_update_compliant(operator):
    whole = History.from_events([Event(("a",), 0, 8)])
    parts = History.from_events([Event(("a",), 0, 4), Event(("a",), 4, 8)])
    assert snapshot_equivalent(whole, parts)
    assert not snapshot_equivalent(operator(whole), operator(parts))


# Streams


@pytest.mark.parametrize("name", SNAPSHOT_OPERATORS)
@given(data=st.data())
def test_cedr_operators_definition_1_well_behaved_and_every_stable_passes(name, data):
    one = SNAPSHOT_OPERATORS[name]
    sides = [data.draw(SMALL) for _ in range(one.inputs)]
    streams = [
        data.draw(presentations(side, case=MergeCase.R4, payloads=ROWS)) for side in sides
    ]
    turns = data.draw(interleavings(streams))
    output = models.answered(one.operator, turns, inputs=one.inputs)
    seen = replay(output)
    assert seen.violations == ()
    assert seen.history == one.operator(*sides)
    assert seen.frontier == FOREVER


@pytest.mark.parametrize("name", [*LIFETIMES, "inserts", "deletes"])
@given(data=st.data())
def test_new_lifetimes_are_well_behaved_and_their_stables_are_true(name, data):
    rule = LIFETIMES.get(name)
    operator = moved(rule) if rule else {"inserts": ops.inserts, "deletes": ops.deletes}[name]
    history = data.draw(SMALL)
    stream = data.draw(presentations(history, case=MergeCase.R4, payloads=ROWS))
    stable = rule.stable if rule else (lambda time: time)
    output = models.answered(operator, ((0, e) for e in stream), stable=stable)
    seen = replay(output)
    assert seen.violations == ()
    assert seen.history == operator(history)
    assert seen.frontier == FOREVER


@given(st.data(), BAGS)
def test_difference_of_leads_from_one_history_to_the_other(data, before):
    lasting = [e._replace(end=e.start + data.draw(st.integers(0, 4))) for e in before]
    after = ops.union(History.from_events(lasting), data.draw(SMALL))
    elements = difference_of(before, after)
    start = [*difference_of(History({}), before)]
    seen = replay([*start, *elements])
    assert seen.violations == ()
    assert seen.history == after
    adjusts = [e for e in elements if isinstance(e, Adjust)]
    assert elements[: len(adjusts)] == adjusts
    assert sorted(adjusts, key=sync_time) == adjusts
    touched = Counter(e.identity for e in before.minus(after)) | Counter(
        e.identity for e in after.minus(before)
    )
    assert len(elements) == touched.total()


# Forms of results


@given(BAGS)
def test_an_aggregate_has_one_event_between_neighbouring_end_points_of_its_group(history):
    result = ops.aggregate(history, key, numbers)
    for name in {key(e.payload) for e in history}:
        group = [e for e in history if key(e.payload) == name]
        points = sorted({time for e in group for time in (e.start, e.end)})
        alive = {
            (start, end)
            for start, end in pairwise(points)
            if any(e.start <= start and e.end >= end for e in group)
        }
        found = [(e.start, e.end) for e in result if key(e.payload) == name]
        assert sorted(found) == sorted(alive)


ONE_KEY = histories(
    case=MergeCase.R4, max_events=5, max_time=6, payloads=st.sampled_from([("a", 1), ("b", 1)])
)


@pytest.mark.parametrize("semi", [True, False])
@given(left=ONE_KEY, right=ONE_KEY)
def test_semi_and_anti_join_are_maximal_runs_per_left_event(left, right, semi):
    expected = []
    for event in left:
        last = min(event.end, TIMES[-1])
        wanted = [
            time
            for time in range(int(event.start), int(last))
            if any(BY_KEY(event.payload, b.payload) for b in right.snapshot(time)) == semi
        ]
        for time in wanted:
            if time - 1 not in wanted:
                end = next(t for t in range(time + 1, TIMES[-1] + 1) if t not in wanted)
                stays = end == TIMES[-1] and event.end == FOREVER
                expected.append(Event(event.payload, time, FOREVER if stays else end))
    operator = ops.semi_join if semi else ops.anti_join
    assert operator(left, right, BY_KEY) == History.from_events(expected)


def rows(text):
    return ops.project(History.from_events(parse_events(text)), lambda e: (e.payload,))


def test_partners_that_take_turns_leave_one_run():
    left, right = rows("a 0..9; a 0..9; b 0..9"), rows("a 1..3; a 2..4; a 4..6; a 8..9")
    assert ops.semi_join(left, right, BY_KEY) == rows("a 1..6; a 8..9; a 1..6; a 8..9")
    assert ops.anti_join(left, right, BY_KEY) == rows("a 0..1; a 6..8; a 0..1; a 6..8; b 0..9")


def test_the_runs_of_left_events_that_touch_stay_apart():
    left, right = rows("a 0..4; a 4..9"), rows("a 2..6")
    assert ops.semi_join(left, right, BY_KEY) == rows("a 2..4; a 4..6")
    assert ops.anti_join(left, rows(""), BY_KEY) == left


@given(BAGS)
def test_two_equal_events_are_two(history):
    twice = ops.union(history, history)
    assert ops.difference(twice, history) == normal_form(history)
    assert ops.difference(history, twice) == History({})
    assert ops.distinct(twice) == ops.distinct(history)
    assert len(ops.semi_join(twice, history, BY_KEY)) == 2 * len(
        ops.semi_join(history, history, BY_KEY)
    )


@given(BAGS, st.integers(1, 5), st.integers(1, 5), st.integers(-3, 3))
def test_grid_windows_are_those_of_the_grid_that_contain_the_start(
    history, size, slide, offset
):
    rule = GridWindows(size, slide, offset=offset, gaps_between=True)
    expected = []
    for event in history:
        for number in range(-30, 31):
            start = number * slide + offset
            if start <= event.start < start + size:
                row = (*event.payload, (start, start + size))
                expected.append(Event(row, start, start + size))
    assert ops.grid_windows(history, rule) == History.from_events(expected)


@given(BAGS, st.integers(1, 5), st.integers(1, 5))
def test_at_a_hop_are_the_events_that_started_less_than_the_size_before(history, size, slide):
    result = ops.hop(history, size, slide)
    for hop in range(-slide, 20 * slide, slide):
        recent = Counter(e.payload for e in history if hop - size < e.start <= hop)
        for time in range(hop, hop + slide):
            assert rows_at(result, time) == recent


SIZES = st.integers(1, 4)


@given(BAGS, SIZES)
def test_sessions_are_the_maximal_runs_of_start_plus_gap_per_key(history, gap):
    """So they are what `distinct` makes of the keys behind `window(gap)`."""
    result = ops.session(history, gap, key)
    keyed = ops.project(history, lambda e: key(e.payload))
    runs = ops.distinct(ops.window(keyed, gap))
    found = {(key(e.payload), e.start, e.end) for e in result}
    assert found == {(e.payload, e.start, e.end) for e in runs}
    assert all(e.payload[-1] == (e.start, e.end) for e in result)
    assert Counter(e.payload[:-1] for e in result) == Counter(e.payload for e in history)


@given(BAGS, SIZES)
def test_a_row_is_in_the_session_of_its_start_and_ends_do_not_matter(history, gap):
    result = ops.session(history, gap, key)
    for e in history:
        lives = [r for r in result if r.payload[:-1] == e.payload]
        assert any(r.start <= e.start < r.end for r in lives)
    assert result == ops.session(ops.inserts(history), gap, key)


@given(SMALL, SIZES, st.data())
def test_a_session_stable_is_true_whatever_comes(history, gap, data):
    stream = data.draw(presentations(history, case=MergeCase.R4, payloads=ROWS))
    output, passed, before = [], NEVER, History({})
    for prefix in replays(stream):
        after = ops.session(prefix.history, gap, key)
        output += difference_of(before, after)
        stable = ops.session_stable(prefix.history, gap, key, prefix.frontier)
        assert stable <= prefix.frontier
        output += [Stable(stable)] if stable > passed else []
        before, passed = after, max(passed, stable)
    seen = replay(output)
    assert seen.violations == ()
    assert seen.history == ops.session(history, gap, key)
    assert seen.frontier == FOREVER


# Bad use


def test_a_gap_that_is_not_positive_is_refused():
    with pytest.raises(UsageError, match="session: gap=0 must be at least 1 unit"):
        ops.session(rows("a 0..3"), 0, key)


def test_top_k_refuses_an_order_that_is_not_total():
    history = History.from_events([Event(("a", 1), 0, 3), Event(("b", 1), 1, 4)])
    with pytest.raises(UsageError, match="must be total"):
        ops.top_k(history, lambda _: (), 1, lambda row: row[1])
    with pytest.raises(UsageError, match="k=0 must be at least 1"):
        ops.top_k(history, key, 0, by_number)


def test_columns_are_added_to_tuples_alone():
    history = History.from_events([Event("a", 0, 3)])
    with pytest.raises(UsageError, match=r"write \('a',\)"):
        ops.grid_windows(history, GridWindows(5, 5))


def test_null_matches_nothing_and_nan_matches_nan():
    nan = float("nan")
    assert BY_KEY((nan, 1), (float("nan"), 2))
    assert not BY_KEY((None, 1), (None, 1))
    assert not ops.on_columns({0: 0, 1: 1})(("a", 1), ("a", 2))
    assert ops.on_columns({0: 1})(("a", 1), (2, "a"))
    assert not ops.on_columns({0: 0})((nan,), (1.0,))
