"""Laws of aggregates by panes: windows, then the aggregate by them; and their errors."""

import random
from collections import Counter
from itertools import pairwise

import pyarrow as pa
import pytest
from aggregate_streams import BY_VALUE, INVERTIBLE, PAYLOAD, stream
from hypothesis import given
from hypothesis import strategies as st
from state_store import Store

from anabranch import testing
from anabranch.batch.codec import from_elements, to_elements
from anabranch.batch.schema import ElementSchema, TimeType
from anabranch.errors import InputError, RunError, StateError, UsageError
from anabranch.model.element import Adjust, Insert, Stable
from anabranch.model.history import History, replay
from anabranch.model.lifetimes import GridWindows
from anabranch.model.time import FOREVER
from anabranch.operators.aggregate.functions import Aggregate
from anabranch.operators.aggregate.operator import AggregateOperator
from anabranch.operators.aggregate.panes import PaneAggregateOperator, fits
from anabranch.operators.contract import Arrival, Inputs
from anabranch.operators.grid_windows import GridWindowOperator

SCHEMA = ElementSchema(TimeType.BIGINT, PAYLOAD)
COUNT = Aggregate("count", None, "n")
TOTAL = Aggregate("sum", "x", "total")
KEYS = st.sampled_from([("window",), ("k", "window"), ("window", "k"), ("k", "x", "window")])
FUNCTIONS = st.lists(st.sampled_from(INVERTIBLE), min_size=1, unique=True)
WINDOWS = st.builds(
    GridWindows,
    st.integers(1, 9),
    st.integers(1, 9),
    offset=st.integers(-5, 5),
    gaps_between=st.just(True),
)
SEEDS = st.integers(0, 2**32)
SIZES = st.integers(1, 40)


def step(state, elements, schema=SCHEMA):
    return state.step(Inputs((Arrival("input", from_elements(elements, schema)),)))


def cuts(data, count):
    inner = data.draw(st.lists(st.integers(0, count), max_size=6).map(sorted))
    return pairwise([0, *inner, count])


def panes(keys=("k", "window"), functions=(COUNT,), windows=GridWindows(4, 2)):  # noqa: B008
    return PaneAggregateOperator(SCHEMA, keys, functions, windows=windows)


@given(st.data())
def test_any_cut_any_restart_on_every_engine(data):
    """The output is valid, its history and frontier those of the reference."""
    elements = stream(random.Random(data.draw(SEEDS)), data.draw(SIZES))
    rule, keys = data.draw(WINDOWS), data.draw(st.sampled_from([(), ("k",), ("k", "x")]))
    options = {"size": rule.size, "slide": rule.slide, "offset": rule.offset}
    options |= {"gaps_between": True, "keys": keys, "functions": data.draw(FUNCTIONS)}
    names = ["reference", "kernel", *(["lanes"] if len(elements) % 3 == 0 else [])]
    judge, *engines = [
        testing.engine(name, "panes", payload=PAYLOAD, check_every=1, **options)
        for name in names
    ]
    for begin, end in cuts(data, len(elements)):
        again = data.draw(st.booleans())
        for one in (judge, *engines):
            one.push("input", elements[begin:end])
            one.restart() if again else one.cut()
        truth = replay(judge.output)
        assert truth.violations == ()
        for one in engines:
            found = replay(one.output)
            assert found.violations == ()
            assert (found.history, found.frontier) == (truth.history, truth.frontier)
        assert len(engines[0].output) <= len(judge.output)


@given(st.data())
def test_a_step_emits_what_windows_and_aggregate_emit(data):
    """The same net difference, in a valid order; values are bit-equal."""
    elements = stream(random.Random(data.draw(SEEDS)), data.draw(SIZES))
    rule, keys, functions = data.draw(WINDOWS), data.draw(KEYS), data.draw(FUNCTIONS)
    copying = GridWindowOperator(SCHEMA, rule)
    behind = AggregateOperator(copying.output, keys, functions, final_at_start=True)
    operator = panes(keys, functions, rule)
    assert operator.output == behind.output
    copies, aggregate, state = copying.empty(), behind.empty(), operator.empty()
    for begin, end in cuts(data, len(elements)):
        ours = step(state, elements[begin:end])
        middle = step(copies, elements[begin:end]).output
        theirs = aggregate.step(Inputs((Arrival("input", middle),)))
        state.check()
        found = to_elements(ours.output)
        assert Counter(map(repr, found)) == Counter(map(repr, to_elements(theirs.output)))
        assert ours.frontier == theirs.frontier
        kinds = [type(one) for one in found]
        assert kinds == sorted(kinds, key=[Adjust, Insert, Stable].index)


@given(st.data())
def test_a_window_is_reported_once_when_the_input_reaches_its_end(data):
    elements = stream(random.Random(data.draw(SEEDS)), data.draw(SIZES))
    rule, keys, functions = data.draw(WINDOWS), data.draw(KEYS), data.draw(FUNCTIONS)
    operator = panes(keys, functions, rule).reporting_final()
    state, store, shown, final = operator.empty(), Store(), [], []
    for begin, end in cuts(data, len(elements)):
        result = step(state, elements[begin:end])
        state.check()
        shown += to_elements(result.output)
        final += to_elements(result.final)
        reached = replay(elements[:end]).frontier
        closed = [Insert(*event) for event in History.of(shown) if event.end <= reached]
        assert Counter(map(repr, final)) == Counter(map(repr, closed))
        store.save(state)
        if data.draw(st.booleans()):
            state = operator.from_parts(store.parts)
            state.check()


@given(st.data())
def test_parts_since_a_mark_add_up(data):
    elements = stream(random.Random(data.draw(SEEDS)), data.draw(SIZES))
    operator = panes(data.draw(KEYS), data.draw(FUNCTIONS), data.draw(WINDOWS))
    state, store = operator.empty(), Store()
    for begin, end in cuts(data, len(elements)):
        step(state, elements[begin:end])
        store.save(state)
        again = operator.from_parts(store.parts)
        again.check()
        rest = elements[end:]
        other = operator.from_parts(state.parts().written)
        assert to_elements(step(again, rest).output) == to_elements(step(other, rest).output)


def test_a_row_is_added_to_one_pane():
    state = panes(windows=GridWindows(600, 100)).empty()
    rows = [Insert(("a", 1, None), i % 100, FOREVER) for i in range(1_000)]
    result = step(state, rows)
    assert (result.counts["moves"], state.live, len(result.output)) == (1, 1, 6)


def test_state_is_flat_while_the_frontier_moves_and_empty_at_the_end():
    state, sizes = panes(windows=GridWindows(60, 10)).empty(), []
    for begin in range(0, 20_000, 1_000):
        rows = [Insert(("ab"[i % 2], 1, 0.5), i, i + 1) for i in range(begin, begin + 1_000)]
        step(state, [*rows, Stable(begin + 1_000)])
        sizes.append(state.live)
    assert max(sizes) == 2 * 5
    step(state, [Stable(FOREVER)])
    assert (state.live, state.facts["groups"]) == (0, 0)


def test_a_step_reads_the_panes_around_those_that_it_touches_alone():
    state = panes(keys=("window",), windows=GridWindows(2, 1)).empty()
    step(state, [Insert(("a", 1, None), i, FOREVER) for i in range(100_000)])
    assert step(state, [Insert(("a", 1, None), 50_000, FOREVER)]).counts["rows"] < 1_000


def test_rows_that_come_and_go_in_one_step_do_not_show():
    state = panes().empty()
    row = ("a", 1, None)
    result = step(state, [Insert(row, 1, 5), Adjust(row, 1, 5, 1)])
    assert (len(result.output), state.live, state.facts["groups"]) == (0, 0, 0)


@pytest.mark.parametrize("row", [("a", 1, None), ("b", 1, None)])
def test_a_removal_that_finds_no_event_names_the_cause(row):
    state = panes().empty()
    step(state, [Insert(("a", 1, None), 7, 9)])
    with pytest.raises(StateError, match=r"aggregate: .* not deterministic"):
        step(state, [Adjust(row, 1, 5, 1)])


def test_a_sum_beyond_its_type_fails_as_that_of_the_aggregate():
    rows = [Insert(("a", 2**62, None), 5, 6), Insert(("a", 2**62, None), 6, 7)]
    with pytest.raises(
        RunError, match=r"aggregate: sum\(x\) of group {'k': 'a'} at 4 is beyond"
    ):
        step(panes(functions=(TOTAL,)).empty(), rows)


def test_a_time_without_room_for_its_windows_is_rejected():
    with pytest.raises(InputError, match="window: the time"):
        step(panes().empty(), [Insert(("a", 1, None), 2**63 - 9, 2**63 - 8)])


@pytest.mark.parametrize("function", [*BY_VALUE, Aggregate("count", "window", "n")], ids=str)
def test_functions_that_need_values_or_the_window_are_refused(function):
    assert not fits([function])
    with pytest.raises(UsageError, match="cannot be computed by panes"):
        panes(functions=(function,))


def test_keys_without_the_window_are_refused():
    with pytest.raises(UsageError, match="name the key 'window'"):
        panes(keys=("k",))


def test_a_state_of_other_windows_is_refused():
    parts = panes().empty().parts().written
    with pytest.raises(StateError, match="cannot change"):
        panes(windows=GridWindows(6, 2)).from_parts(parts)
    with pytest.raises(StateError):
        AggregateOperator(SCHEMA, ("k",), (COUNT,)).from_parts(parts)


def test_the_schema_before_the_windows_has_no_column_of_that_name():
    schema = ElementSchema(TimeType.BIGINT, pa.schema({"window": pa.int64()}))
    with pytest.raises(UsageError, match="has a column 'window' already"):
        PaneAggregateOperator(schema, ("window",), (COUNT,), windows=GridWindows(4, 2))
