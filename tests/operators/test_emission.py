"""Laws of aggregates that emit at once, in order or when time has passed, cut or not."""

import random
import re
from math import log2

import numpy as np
import pyarrow as pa
import pytest
from aggregate_streams import BY_VALUE, INVERTIBLE, PAYLOAD, stream
from emission_streams import COUNT, by_kernel, cuts_of, step
from hypothesis import given
from hypothesis import strategies as st
from state_store import Store

from anabranch import testing
from anabranch.batch.codec import from_elements, to_elements
from anabranch.batch.schema import ElementSchema, TimeType
from anabranch.errors import RunError, StateError, UsageError
from anabranch.model.element import Adjust, Event, Insert, Stable
from anabranch.model.emission import Emit
from anabranch.model.history import History, replay
from anabranch.model.lifetimes import GridWindows
from anabranch.model.notation import parse
from anabranch.model.time import FOREVER
from anabranch.operators.aggregate import emitting
from anabranch.operators.aggregate.functions import Aggregate
from anabranch.operators.aggregate.operator import AggregateOperator
from anabranch.operators.aggregate.panes import PaneAggregateOperator
from anabranch.operators.contract import Arrival, Inputs
from anabranch.operators.grid_windows import GridWindowOperator
from anabranch.operators.reference.aggregate import AggregateByElement
from anabranch.operators.reference.snapshots import Snapshots

SCHEMA = ElementSchema(TimeType.BIGINT, PAYLOAD)
NUMBERS = ElementSchema(TimeType.BIGINT, pa.schema({"x": pa.int64()}))
SEEDS = st.integers(0, 2**32)
SIZES = st.integers(1, 40)
KEYS = st.sampled_from([(), ("k",), ("k", "x")])
FUNCTIONS = st.sampled_from(
    [[COUNT], [INVERTIBLE[3], COUNT], [COUNT, BY_VALUE[0]], [BY_VALUE[5]]]
)
WAYS = [(Emit.ORDERED, None), (Emit.PASSED, None)]
WAYS += [(emit, every) for emit in Emit for every in (1, 3, 5)]
EACH_WAY = st.sampled_from(WAYS)


def operator_of(way, keys=("k",), functions=(COUNT,), schema=SCHEMA, **more):
    emit, every = way
    return AggregateOperator(schema, keys, functions, emit=emit, cut_every=every, **more)


@given(st.data())
def test_any_cut_any_restart_on_every_engine(data):
    """The output is valid, its history and frontier those of the reference."""
    chance = random.Random(data.draw(SEEDS))
    fixed = data.draw(st.booleans())
    elements = stream(chance, data.draw(SIZES), fixed_ends=fixed)
    emit, every = data.draw(EACH_WAY)
    options = {"keys": data.draw(KEYS), "functions": data.draw(FUNCTIONS), "payload": PAYLOAD}
    options |= {"emit": emit, "cut_every": every, "final_at_start": fixed}
    names = ("kernel", *(["lanes"] if len(elements) % 4 == 0 else []))
    engines = [testing.engine(name, "aggregate", **options) for name in names]
    judge = testing.engine("reference", "aggregate", **options)
    for begin, end in cuts_of(chance, len(elements)):
        again = chance.random() < 0.5
        for one in (judge, *engines):
            one.push("input", elements[begin:end])
            one.restart() if again else one.cut()
        truth = replay(judge.output)
        assert truth.violations == ()
        for one in engines:
            found = replay(one.output)
            assert found.violations == ()
            assert (found.history, found.frontier) == (truth.history, truth.frontier)
            assert one.counts["live"] == judge.counts["live"]
        assert len(engines[0].output) <= len(judge.output)


@given(st.data())
def test_every_way_reaches_the_same_history(data):
    """With the same grid, once the frontier has passed all ends: replicas may mix the ways."""
    elements = stream(random.Random(data.draw(SEEDS)), data.draw(SIZES))
    every, keys = data.draw(st.sampled_from([None, 2, 5])), data.draw(KEYS)
    functions = data.draw(FUNCTIONS)
    last = max((e.time for e in elements if isinstance(e, Stable)), default=0)
    elements = [*elements, Stable(last + 40 if last < FOREVER else last), Stable(FOREVER)]
    histories = []
    for emit in Emit:
        state = operator_of((emit, every), keys, functions).empty()
        found = [
            out
            for begin, end in cuts_of(random.Random(data.draw(SEEDS)), len(elements))
            for out in step(state, elements[begin:end], SCHEMA)
        ]
        assert replay(found).violations == ()
        assert state.live == state.facts["groups"] == 0
        histories.append(History.of(found))
    assert histories[0] == histories[1] == histories[2]


@given(st.data())
def test_parts_since_a_mark_add_up(data):
    chance = random.Random(data.draw(SEEDS))
    elements = stream(chance, data.draw(SIZES))
    operator = operator_of(data.draw(EACH_WAY), data.draw(KEYS), data.draw(FUNCTIONS))
    state, store = operator.empty(), Store()
    for begin, end in cuts_of(chance, len(elements)):
        step(state, elements[begin:end], SCHEMA)
        store.save(state)
        again = operator.from_parts(store.parts)
        again.check()
        assert again.frontier == state.frontier
        rest = elements[end:]
        other = operator.from_parts(state.parts().written)
        assert to_text(step(again, rest, SCHEMA)) == to_text(step(other, rest, SCHEMA))


def to_text(elements):
    """Elements in any order, with NaN equal to itself; -0.0 is 0.0."""
    return sorted(re.sub(r"-0\.0(?!\d)", "0.0", repr(one)) for one in elements)


@given(st.data())
def test_what_is_reported_as_final_is_what_at_once_makes_final(data):
    """Each event once, in the step in which nothing legal can change it, whatever is shown."""
    chance, fixed = random.Random(data.draw(SEEDS)), data.draw(st.booleans())
    elements = stream(chance, data.draw(SIZES), fixed_ends=fixed)
    emit, every = data.draw(EACH_WAY)
    operator = operator_of((emit, every), data.draw(KEYS), (COUNT,), final_at_start=fixed)
    state = operator.reporting_final().empty()
    judge = AggregateByElement(PAYLOAD.names, operator.keys, (COUNT,), PAYLOAD, cut_every=every)
    final, shown = [], []
    for begin, end in cuts_of(chance, len(elements)):
        batch = from_elements(elements[begin:end], SCHEMA)
        final += to_elements(state.step(Inputs((Arrival("input", batch),))).final)
        for element in elements[begin:end]:
            shown += judge.push(element)
        passed = judge.frontier
        over = [Insert(*e) for e in History.of(shown) if e.end < passed or passed == FOREVER]
        at = [Insert(*e) for e in History.of(shown) if e.end == passed < FOREVER]
        missing = set(to_text(over)) - set(to_text(final))
        assert not missing
        assert set(to_text(final)) <= set(to_text([*over, *at]))
        assert len(final) == len(set(to_text(final))) or len(over) != len(set(to_text(over)))


# What the stable waits for


def test_the_stable_is_held_at_the_start_of_what_is_withheld():
    state = operator_of((Emit.PASSED, None), (), schema=NUMBERS).empty()
    found = step(state, parse_numbers("insert 1 1..forever; insert 1 3..4; stable 9"))
    assert found == [Insert(1, 1, 3), Insert(2, 3, 4), Stable(4)]
    assert state.frontier == 4
    assert step(state, [Adjust(1, 1, FOREVER, 20), Stable(21)]) == [
        Insert(1, 4, 20),
        Stable(21),
    ]


def test_a_grid_bounds_how_far_the_stable_is_held_back():
    state = operator_of((Emit.PASSED, 10), (), schema=NUMBERS).empty()
    step(state, parse_numbers("insert 1 1..forever"))
    for time in range(5, 500, 5):
        step(state, [Stable(time)])
        assert state.frontier > time - 10
        assert state.live <= 2
    assert step(state, [Stable(500)])[-1] == Stable(500)


def test_with_known_ends_the_stable_reaches_them():
    """As after `window(size)`: an end at the frontier cannot move any more."""
    state = operator_of((Emit.PASSED, None), (), schema=NUMBERS, final_at_start=True).empty()
    assert step(state, parse_numbers("insert 1 0..10; stable 10")) == [
        Insert(1, 0, 10),
        Stable(10),
    ]


def test_a_removal_does_not_take_back_that_time_has_passed():
    """The greatest start is remembered, also over a restart, until it is passed."""
    operator = operator_of((Emit.PASSED, None), (), schema=NUMBERS)
    state = operator.empty()
    step(state, parse_numbers("insert 1 5..9; adjust 1 5..9->5"))
    assert (state.live, state.facts["groups"]) == (0, 1)
    state = operator.from_parts(state.parts().written)
    assert step(state, parse_numbers("insert 1 1..3")) == [Insert(1, 1, 3)]
    step(state, [Stable(5)])
    assert state.facts["groups"] == 0


def parse_numbers(text):
    """Elements whose payloads are numbers."""
    return [
        one if isinstance(one, Stable) else type(one)(int(one.payload), *rest(one))
        for one in parse(text)
    ]


def rest(one):
    return (
        (one.start, one.end) if isinstance(one, Insert) else (one.start, one.old_end, one.end)
    )


def test_more_pieces_than_fit_are_refused(monkeypatch):
    monkeypatch.setattr(emitting, "MOST_PIECES", 100)
    state = operator_of((Emit.AT_ONCE, 10), ("k",)).empty()
    with pytest.raises(RunError, match=r"aggregate: cut_every=10 .*'k': 'a'.* 5,000 units"):
        step(state, [Insert(("a", 1, None), 0, 5_000)], SCHEMA)


# Windows


WINDOWS = st.builds(
    GridWindows,
    st.integers(1, 9),
    st.integers(1, 9),
    offset=st.integers(-5, 5),
    gaps_between=st.just(True),
)


@given(st.data())
def test_windows_are_emitted_once_when_they_are_over(data):
    """By panes as by rows that are copied; the engines agree with the reference."""
    chance, rule = random.Random(data.draw(SEEDS)), data.draw(WINDOWS)
    elements = stream(chance, data.draw(SIZES))
    options = {"rule": rule, "keys": ("k",), "functions": [COUNT], "emit": Emit.PASSED}
    names = ["reference", "kernel", *(["lanes"] if len(elements) % 4 == 0 else [])]
    judge, *engines = [testing.engine(n, "panes", payload=PAYLOAD, **options) for n in names]
    copying = GridWindowOperator(SCHEMA, rule)
    by_rows = AggregateOperator(
        copying.output, ("k", "window"), (COUNT,), emit=Emit.PASSED, by_window=True
    )
    copies, behind, shown = copying.empty(), by_rows.empty(), []
    for begin, end in cuts_of(chance, len(elements)):
        again = chance.random() < 0.5
        for one in (judge, *engines):
            one.push("input", elements[begin:end])
            one.restart() if again else one.cut()
            assert all(isinstance(each, Insert | Stable) for each in one.output)
            assert replay(one.output).violations == ()
            assert replay(one.output) == replay(judge.output)
        batch = from_elements(elements[begin:end], SCHEMA)
        middle = copies.step(Inputs((Arrival("input", batch),))).output
        shown += to_elements(behind.step(Inputs((Arrival("input", middle),))).output)
        behind.check()
        assert replay(shown) == replay(judge.output)
        starts = [one.start for one in shown if isinstance(one, Insert)]
        assert starts == sorted(starts)


@given(st.data())
def test_windows_in_order_are_open_until_they_are_over(data):
    chance, rule = random.Random(data.draw(SEEDS)), data.draw(WINDOWS)
    elements = stream(chance, data.draw(SIZES))
    copying = GridWindowOperator(SCHEMA, rule)
    how = {"emit": Emit.ORDERED, "by_window": True}
    by_rows = AggregateOperator(copying.output, ("k", "window"), (COUNT,), **how)
    copies, behind, shown = copying.empty(), by_rows.empty(), []
    for begin, end in cuts_of(chance, len(elements)):
        batch = from_elements(elements[begin:end], SCHEMA)
        middle = copies.step(Inputs((Arrival("input", batch),))).output
        shown += to_elements(behind.step(Inputs((Arrival("input", middle),))).output)
        behind.check()
    found, passed = replay(shown), replay(elements).frontier
    assert found.violations == ()
    for event in found.history:
        window = event.payload[1]
        end = window[1] if window[1] <= passed else FOREVER
        assert (event.start, event.end) == (window[0], end)


# Cost and state


def random_stream(count, chance):
    """Rows of which some are late and some are corrected, with stables."""
    made, live, low = [], [], 0
    for at in range(count):
        if chance.random() < 0.1 and live:
            event = live.pop(chance.randrange(len(live)))
            if event.end > low:
                made.append(Adjust(*event, max(low, event.start + 1)))
        start = max(low, at - chance.choice([0, 0, 0, 20]))
        made.append(Insert(1, start, start + chance.randint(1, 30)))
        live = [*live[-40:], made[-1].event]
        if at % 50 == 49:
            low = at - 20
            made.append(Stable(low))
    return made


@pytest.mark.parametrize("emit", Emit)
def test_the_algorithms_cost_n_log_n_and_what_they_emit(emit):
    """Searches count as the logarithm of their size; the factor does not grow with n."""
    factors = []
    for size in (200, 400, 800):
        elements = random_stream(size, random.Random(size))
        state = Snapshots(len, emit)
        state.check = lambda: None
        emitted = sum(len(state.push(element)) for element in elements)
        factors.append(state.visits / (size * log2(size) + emitted))
    assert max(factors) < 6
    assert factors[-1] < 1.2 * factors[0]


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_a_step_reads_few_rows_of_a_large_group(way):
    state = operator_of(way, ("k",)).empty()
    rows = [Insert(("a", 1, None), start, start + 3) for start in range(0, 40_000, 4)]
    step(state, rows, SCHEMA)
    batch = from_elements([Insert(("a", 1, None), 20_001, 20_002)], SCHEMA)
    assert state.step(Inputs((Arrival("input", batch),))).counts["rows"] <= 512


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_state_is_flat_while_the_frontier_moves(way):
    state, sizes = operator_of(way, ("k",), (COUNT, BY_VALUE[0])).empty(), []
    step(state, [Insert(("ab"[i], 1, 0.5), 0, FOREVER) for i in range(2)], SCHEMA)
    for begin in range(0, 20_000, 1_000):
        rows = [
            Insert(("ab"[i % 2], i % 5, 0.5), i, i + 50) for i in range(begin, begin + 1_000)
        ]
        step(state, [*rows, Stable(begin + 1_000)], SCHEMA)
        sizes.append((state.live, len(state.parts().written)))
    assert np.max(sizes[3:], axis=0).tolist() <= [110, 30]


def test_a_small_step_saves_few_blocks():
    state = operator_of((Emit.PASSED, None), ("x",)).empty()
    step(state, [Insert(("a", x, None), x, x + 3) for x in range(10_000)], SCHEMA)
    mark = state.parts().mark
    step(state, [Insert(("a", 7, None), 20_000, 20_009)], SCHEMA)
    changed = state.parts(since=mark).written
    assert sum(name.startswith("nodes/") for name in changed) == 1
    assert len(changed) < 6 < len(state.parts().written)


# Changes per row: what `anabranch.plan.chatter` states


def emitted_per_row(emit, elements, skip):
    made = by_kernel(emit)
    return (len(made(elements)) - len(made(elements[:skip]))) / (len(elements) - skip)


@pytest.mark.parametrize(
    ("emit", "changes"), [(Emit.AT_ONCE, 2 * 9 + 1), (Emit.ORDERED, 3), (Emit.PASSED, 2)]
)
def test_changes_per_row_of_sliding_lifetimes(emit, changes):
    """Nine other rows are alive when a row comes; each starts and ends at times of its own."""
    rows = [Insert(1, 10 * at, 10 * at + 95) for at in range(80)]
    assert emitted_per_row(emit, rows, 40) == changes


# Errors


def test_a_state_of_another_way_is_refused():
    parts = operator_of((Emit.PASSED, None)).empty().parts().written
    for way in [(Emit.ORDERED, None), (Emit.PASSED, 3)]:
        with pytest.raises(StateError, match="emit passed"):
            operator_of(way).from_parts(parts)
    with pytest.raises(StateError, match="emit passed"):
        AggregateOperator(SCHEMA, ("k",), (COUNT,)).from_parts(parts)


@pytest.mark.parametrize("every", [0, -5])
def test_a_grid_has_a_step(every):
    with pytest.raises(UsageError, match=f"cut_every={every} must be at least 1 unit"):
        operator_of((Emit.PASSED, every))


def test_windows_are_not_cut():
    with pytest.raises(UsageError, match="would cut windows into pieces"):
        operator_of((Emit.PASSED, 5), by_window=True)


def test_panes_have_ends():
    keys, windows = ("k", "window"), GridWindows(4, 2)
    with pytest.raises(UsageError, match="emit='ordered' leaves ends open"):
        PaneAggregateOperator(SCHEMA, keys, (COUNT,), windows=windows, emit=Emit.ORDERED)


@pytest.mark.parametrize("given", ["eager", None, True, Aggregate("count", None, "n")])
def test_a_way_that_does_not_exist_is_refused(given):
    with pytest.raises(UsageError, match=r"aggregate: emit=.*'at_once', 'ordered', 'passed'"):
        Emit.of(given, where="aggregate")


def test_history_of_an_open_event_on_a_grid():
    """It is cut as far as time has passed, and on as one event."""
    made = by_kernel(Emit.AT_ONCE, 10)
    found = History.of(made([Insert(1, 3, FOREVER), Stable(25), Stable(FOREVER)]))
    pieces = [(3, 10), (10, 20), (20, FOREVER)]
    assert found == History.from_events(Event((1,), *piece) for piece in pieces)
