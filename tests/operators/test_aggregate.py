"""Laws of the grouped snapshot aggregate, its errors, and the examples of the papers."""

import random
import re
from collections import Counter
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from aggregate_streams import BY_VALUE, INVERTIBLE, PAYLOAD, row, stream
from hypothesis import given
from hypothesis import strategies as st
from state_store import Store

from anabranch import testing
from anabranch.batch.codec import from_elements, to_elements
from anabranch.batch.schema import ElementSchema, TimeType
from anabranch.errors import RunError, SchemaError, StateError, UsageError
from anabranch.model.element import Adjust, Event, Insert, Stable
from anabranch.model.history import History, replay
from anabranch.model.notation import parse
from anabranch.model.time import FOREVER
from anabranch.operators.aggregate.functions import Aggregate, UserDefined
from anabranch.operators.aggregate.operator import AggregateOperator
from anabranch.operators.contract import Arrival, Inputs
from anabranch.operators.reference.aggregate import AggregateByElement

SCHEMA = ElementSchema(TimeType.BIGINT, PAYLOAD)
COUNT = Aggregate("count", None, "n")
KEYS = st.sampled_from([(), ("k",), ("k", "x")])
FUNCTIONS = st.one_of(
    st.lists(st.sampled_from(INVERTIBLE), min_size=1, unique=True),
    st.lists(st.sampled_from(INVERTIBLE + BY_VALUE), min_size=1, unique=True),
)
SEEDS = st.integers(0, 2**32)
SIZES = st.integers(1, 40)


def step(state, elements, schema=SCHEMA):
    return state.step(Inputs((Arrival("input", from_elements(elements, schema)),)))


def cuts(data, count):
    inner = data.draw(st.lists(st.integers(0, count), max_size=6).map(sorted))
    return pairwise([0, *inner, count])


@given(st.data())
def test_any_cut_any_restart_on_every_engine(data):
    """The output is valid, its history that of the reference, its frontier the input's."""
    elements = stream(random.Random(data.draw(SEEDS)), data.draw(SIZES))
    options = {"keys": data.draw(KEYS), "functions": data.draw(FUNCTIONS), "payload": PAYLOAD}
    engines = [testing.engine(name, "aggregate", **options) for name in ("kernel", "lanes")]
    judge = testing.engine("reference", "aggregate", **options)
    for begin, end in cuts(data, len(elements)):
        again = data.draw(st.booleans())
        for one in (judge, *engines):
            one.push("input", elements[begin:end])
            one.restart() if again else one.cut()
        truth = replay(judge.output)
        assert truth.violations == ()
        assert truth.frontier == replay(elements[:end]).frontier
        for one in engines:
            found = replay(one.output)
            assert found.violations == ()
            assert (found.history, found.frontier) == (truth.history, truth.frontier)
            assert one.counts["live"] == judge.counts["live"]
        assert len(engines[0].output) <= len(judge.output)


@given(SEEDS, SIZES, KEYS, FUNCTIONS, st.randoms())
def test_the_order_of_arrival_within_a_step_does_not_matter(seed, size, keys, functions, mixed):
    elements = [Insert(row(random.Random(seed + i)), i % 7, i % 7 + 3) for i in range(size)]
    operator = AggregateOperator(SCHEMA, keys, functions)
    histories = []
    for _ in range(2):
        result = step(operator.empty(), elements)
        histories.append(History.of(to_elements(result.output)))
        mixed.shuffle(elements)
    assert histories[0] == histories[1]


@given(st.data())
def test_parts_since_a_mark_add_up(data):
    elements = stream(random.Random(data.draw(SEEDS)), data.draw(SIZES))
    operator = AggregateOperator(SCHEMA, data.draw(KEYS), data.draw(FUNCTIONS))
    state, store = operator.empty(), Store()
    for begin, end in cuts(data, len(elements)):
        step(state, elements[begin:end])
        store.save(state)
        assert store.parts.keys() >= state.parts().written.keys()
        again = operator.from_parts(store.parts)
        again.check()
        assert again.parts().written.keys() == state.parts().written.keys()
        rest = elements[end:]
        assert History.of(to_elements(step(again, rest).output)) == History.of(
            to_elements(step(operator.from_parts(state.parts().written), rest).output)
        )


@given(SEEDS, SIZES, st.booleans(), st.integers(1, 7), KEYS, FUNCTIONS)
def test_what_is_reported_as_final_is_final_and_all_of_it(
    seed, size, fixed_ends, cut, keys, functions
):
    """Each event once, in the step in which no legal input can change it any more."""
    elements = stream(random.Random(seed), size, fixed_ends=fixed_ends)
    operator = AggregateOperator(SCHEMA, keys, functions, final_at_start=fixed_ends)
    state = operator.reporting_final().empty()
    judge = AggregateByElement(PAYLOAD.names, keys, functions, PAYLOAD)
    final, shown = [], []
    for begin in range(0, size + 1, cut):
        result = step(state, elements[begin : begin + cut])
        state.check()
        final += to_elements(result.final)
        for element in elements[begin : begin + cut]:
            shown += judge.push(element)
        frontier = judge.frontier
        frozen = [
            Insert(*event)
            for event in History.of(shown)
            if event.end < frontier or frontier == FOREVER
        ]
        if fixed_ends:
            assert not set(map(plainly, frozen)) - set(map(plainly, final))
        else:
            assert sorted(map(plainly, final)) == sorted(map(plainly, frozen))
    assert {plainly(Event(e.payload, e.start, e.end)) for e in final} <= set(
        map(plainly, History.of(shown))
    )


def plainly(event):
    """The text of an event: -0.0 is 0.0, which of two equal values is shown is left open."""
    return re.sub(r"-0\.0(?!\d)", "0.0", repr(event))


def test_with_fixed_ends_a_window_is_final_when_the_frontier_reaches_its_end():
    operator = AggregateOperator(SCHEMA, (), [COUNT], final_at_start=True).reporting_final()
    state, one = operator.empty(), ("a", 1, 0.5)
    step(state, [Insert(one, 0, 10), Insert(one, 0, 10), Insert(one, 10, 20)])
    assert to_elements(step(state, [Stable(10)]).final) == [Insert(2, 0, 10)]
    assert to_elements(step(state, [Stable(20)]).final) == [Insert(1, 10, 20)]
    assert state.live == 1
    step(state, [Stable(21)])
    assert state.live == 0


def test_with_fixed_ends_a_start_at_the_frontier_may_still_go():
    operator = AggregateOperator(SCHEMA, (), [COUNT], final_at_start=True).reporting_final()
    state, one = operator.empty(), ("a", 1, 0.5)
    step(state, [Insert(one, 0, 30), Insert(one, 10, 30)])
    assert to_elements(step(state, [Stable(10)]).final) == []
    result = step(state, [Adjust(one, 10, 30, 10), Stable(30)])
    assert to_elements(result.final) == [Insert(1, 0, 30)]


@pytest.mark.parametrize("seed", range(3))
def test_a_group_of_many_chunks(seed):
    """Thousands of end points in one group, at random places, in small and large steps."""
    chance, live, made = random.Random(seed), [], []
    functions = [COUNT, INVERTIBLE[2], *([BY_VALUE[0]] if seed else [])]
    operator = AggregateOperator(SCHEMA, ("k",), functions)
    state, store, frontier = operator.empty(), Store(), 0
    for size in (2_000, 1, 900, 3, 1_500, 600, 1):
        elements = []
        for _ in range(size):
            if chance.random() < 0.7 or not live:
                start = frontier + chance.randint(0, 20_000)
                end = start + chance.choice([3, 40, 40, 900])
                live.append(Event(("a", chance.randint(0, 9), None), start, end))
                elements.append(Insert(*live[-1]))
            else:
                event = live.pop(chance.randrange(len(live)))
                if event.start >= frontier:
                    elements.append(Adjust(*event, event.start))
                else:
                    live.append(event)
        frontier += chance.randint(0, 300)
        made += to_elements(step(state, [*elements, Stable(frontier)]).output)
        state.check()
        store.save(state)
        state = operator.from_parts(store.parts)
    assert replay(made).violations == ()
    assert History.of(made) == _swept(live, functions)


def _swept(live, functions):
    """The aggregate of a bag of events of one group, by one walk along its end points."""
    judge = AggregateByElement(PAYLOAD.names, ("k",), functions, PAYLOAD)
    points = sorted({time for event in live for time in (event.start, event.end)})
    starts = sorted(live, key=lambda event: event.start)
    alive, at, found = [], 0, []
    for begin, end in pairwise(points):
        alive = [event for event in alive if event.end > begin]
        while at < len(starts) and starts[at].start <= begin:
            alive.append(starts[at])
            at += 1
        if alive:
            value = judge._result(("a",), [event.payload for event in alive])
            found.append(Event(value, begin, end))
    return History.from_events(found)


# Table 1 of the operator paper's aggregate: (id, start, end, payload) with a later correction.
def test_the_moving_sum_of_the_paper_is_corrected_by_an_end():
    state = AggregateOperator(
        ElementSchema(TimeType.BIGINT, pa.schema({"x": pa.int64()})),
        (),
        [Aggregate("sum", "x", "total")],
    ).empty()
    schema = state.operator.schema
    first = to_elements(step(state, parse("insert 2 1..5; insert 3 4..9"), schema).output)
    second = to_elements(step(state, parse("adjust 2 1..5->4"), schema).output)
    assert History.of(first) == History.from_events(
        [Event(2, 1, 4), Event(5, 4, 5), Event(3, 5, 9)]
    )
    assert History.of([*first, *second]) == History.from_events(
        [Event(2, 1, 4), Event(3, 4, 9)]
    )


def test_exact_variant_of_c8_lengthens_the_event_before():
    schema = ElementSchema(TimeType.BIGINT, pa.schema({"x": pa.int64()}))
    state = AggregateOperator(schema, (), [COUNT]).empty()
    step(state, parse("insert 1 1..forever; insert 1 3..forever; stable 2"), schema)
    result = to_elements(step(state, parse("adjust 1 3..forever->3"), schema).output)
    assert result == parse("adjust 1 1..3->forever; adjust 2 3..forever->3")


def test_null_is_a_group_and_nulls_are_skipped():
    functions = [COUNT, Aggregate("sum", "x", "total"), Aggregate("max", "x", "most")]
    state = AggregateOperator(SCHEMA, ("k",), functions).empty()
    found = to_elements(
        step(state, [Insert((None, None, None), 1, 5), Insert((None, 4, None), 1, 5)]).output
    )
    assert found == [Insert((None, 2, 4, 4), 1, 5)]
    result = step(state, [Adjust((None, 4, None), 1, 5, 1)])
    assert to_elements(result.output)[-1] == Insert((None, 1, None, None), 1, 5)


def test_user_defined_state_is_rebuilt_from_saved_events():
    longest = UserDefined(
        zero=lambda: 0,
        add=lambda state, value: state * 10 + value,
        remove=lambda state, value: (state - value) // 10,
        result=lambda state: state,
        type=pa.int64(),
    )
    operator = AggregateOperator(SCHEMA, (), [Aggregate("user", "x", "digits", user=longest)])
    state = operator.empty()
    step(state, [Insert(("a", x, None), 1, 9) for x in (3, 1, 2)])
    state = operator.from_parts(state.parts().written)
    result = to_elements(step(state, [Adjust(("a", 1, None), 1, 9, 1)]).output)
    assert result == [Adjust(123, 1, 9, 1), Insert(23, 1, 9)]
    assert not operator.functions[0].is_canonical


def counting(*, canonical):
    """A sum of squares whose calls are counted."""
    calls = Counter()

    def add(state, value):
        calls["add"] += 1
        return state + value * value

    def remove(state, value):
        calls["remove"] += 1
        return state - value * value

    user = UserDefined(lambda: 0, add, remove, lambda s: s, pa.int64(), canonical)
    return user, calls


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(1, 9), st.integers(-2, 2)), max_size=9)
)
def test_results_that_depend_on_the_bag_alone_are_the_same_with_remove(rows):
    found = []
    for canonical in (False, True):
        user, calls = counting(canonical=canonical)
        operator = AggregateOperator(SCHEMA, (), [Aggregate("user", "x", "squares", user=user)])
        made = step(operator.empty(), [Insert(("a", x, None), s, s + n) for s, n, x in rows])
        found.append(to_elements(made.output))
        assert canonical or not calls["remove"]
    assert found[0] == found[1]


def test_a_result_that_is_the_state_is_not_changed_by_the_next_one():
    def add(state, value):
        state.append(value)
        return state

    def remove(state, value):
        state.remove(value)
        return state

    user = UserDefined(list, add, remove, lambda s: s, pa.list_(pa.int64()), canonical=True)
    operator = AggregateOperator(SCHEMA, (), [Aggregate("user", "x", "all", user=user)])
    some = [Insert(("a", x, None), x, 9) for x in (1, 2, 3, 4)]
    found = to_elements(step(operator.empty(), some).output)
    assert [e.payload for e in found] == [(1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)]


def test_few_values_come_and_go_between_neighbours():
    """One call of remove or add for each end point, not all values each time."""
    user, calls = counting(canonical=True)
    operator = AggregateOperator(SCHEMA, (), [Aggregate("user", "x", "squares", user=user)])
    step(operator.empty(), [Insert(("a", x, None), x, 100 - x) for x in range(40)])
    assert calls["remove"] >= 35
    assert calls["add"] + calls["remove"] < 160


def test_an_overflow_names_step_and_key():
    operator = AggregateOperator(
        SCHEMA, ("k",), [Aggregate("sum", "x", "total")], name="totals"
    )
    state = operator.empty()
    step(state, [Insert(("a", 2**63 - 1, None), 1, 5), Insert(("b", 2**63 - 1, None), 1, 5)])
    with pytest.raises(RunError, match=r"totals: sum\(x\) of group \{'k': 'b'\} at 3"):
        step(state, [Insert(("b", 1, None), 3, 4)])


def test_sums_that_come_back_into_range_within_a_step_are_right():
    state = AggregateOperator(SCHEMA, (), [Aggregate("sum", "x", "total")]).empty()
    rows = [("a", x, None) for x in (2**63 - 1, 1, -5)]
    result = step(state, [Insert(one, 1, 5) for one in rows])
    assert to_elements(result.output) == [Insert(2**63 - 5, 1, 5)]


@pytest.mark.parametrize(
    ("functions", "error", "words"),
    [
        (
            [Aggregate("sum", "k", "s")],
            SchemaError,
            "sum of column 'k' is not possible.*string",
        ),
        ([Aggregate("avg", "z", "s")], SchemaError, "column 'z' does not exist"),
        ([Aggregate("sum", None, "s")], UsageError, "sum needs a column"),
        ([Aggregate("quantile", "x", "q", p=2.0)], UsageError, "between 0 and 1"),
        ([Aggregate("median", "x", "q")], UsageError, "no aggregate is called 'median'"),
        ([Aggregate("user", "x", "q")], UsageError, "give zero, add"),
        ([COUNT, COUNT], SchemaError, "two columns of the result are called 'n'"),
        ([], UsageError, "no aggregate is given"),
    ],
)
def test_wrong_functions_are_refused_when_the_query_is_built(functions, error, words):
    with pytest.raises(error, match=words):
        AggregateOperator(SCHEMA, ("k",), functions)


@pytest.mark.parametrize("functions", [[COUNT], [BY_VALUE[0]], [BY_VALUE[4]]])
def test_an_adjust_that_finds_no_event_names_the_cause(functions):
    state = AggregateOperator(SCHEMA, ("k",), functions).empty()
    with pytest.raises(StateError, match="not deterministic"):
        step(state, [Adjust(("a", 1, None), 1, 5, 3)])
    state = AggregateOperator(SCHEMA, ("k",), functions).empty()
    step(state, [Insert(("a", 1, None), 1, 5)])
    with pytest.raises(StateError, match="not deterministic"):
        step(state, [Adjust(("a", 1, None), 2, 7, 3)])


def test_a_state_of_other_functions_is_refused():
    parts = AggregateOperator(SCHEMA, ("k",), [COUNT]).empty().parts().written
    with pytest.raises(StateError, match=r"n=count\(\*\).*total=sum\(x\)"):
        AggregateOperator(SCHEMA, ("k",), [INVERTIBLE[2]]).from_parts(parts)


def test_a_small_step_saves_few_blocks():
    operator, chance = AggregateOperator(SCHEMA, ("k",), [COUNT]), random.Random(1)
    state = operator.empty()
    rows = [Insert(("a", 1, None), start, start + 3) for start in range(0, 40_000, 4)]
    chance.shuffle(rows)
    step(state, rows)
    mark = state.parts().mark
    step(state, [Insert(("a", 1, None), 7, 9)])
    changed = state.parts(since=mark).written
    assert sum(name.startswith("points/") for name in changed) == 1
    assert sum(name.startswith("points/") for name in state.parts().written) > 20


def test_a_step_reads_few_rows_of_a_large_group():
    state = AggregateOperator(SCHEMA, ("k",), [COUNT, BY_VALUE[0]]).empty()
    step(state, [Insert(("a", 1, None), start, start + 3) for start in range(0, 40_000, 4)])
    assert state.live == 20_000
    assert step(state, [Insert(("a", 1, None), 20_001, 20_002)]).counts["rows"] <= 512


def test_state_is_flat_while_the_frontier_moves():
    operator = AggregateOperator(SCHEMA, ("k",), [COUNT, *BY_VALUE])
    state, sizes = operator.empty(), []
    for begin in range(0, 40_000, 2_000):
        rows = [
            Insert(("ab"[i % 2], i % 5, 0.5), i, i + 50) for i in range(begin, begin + 2_000)
        ]
        step(state, [*rows, Stable(begin + 2_000)])
        sizes.append((state.live, state.facts["events"], len(state.parts().written)))
    assert np.max(sizes[3:], axis=0).tolist() <= [110, 6_000, 30]
    step(state, [Stable(FOREVER)])
    assert (state.live, state.facts["events"], state.facts["groups"]) == (0, 0, 0)
