"""Laws of the first k rows of each group, their order, and errors."""

import math
import random
from dataclasses import replace
from decimal import Decimal
from itertools import pairwise, permutations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from state_store import Store

from anabranch import testing
from anabranch.batch.codec import from_elements, to_elements
from anabranch.batch.row_order import ranks
from anabranch.batch.schema import ElementSchema, TimeType
from anabranch.errors import SchemaError, StateError, UsageError
from anabranch.model.element import Adjust, Event, Insert, Stable
from anabranch.model.history import History, replay
from anabranch.model.operators import top_k
from anabranch.model.time import FOREVER
from anabranch.operators.by_key.top_k import TopKOperator
from anabranch.operators.contract import Arrival, Inputs
from anabranch.operators.reference.top_k import TopKByElement

PAYLOAD = pa.schema({"k": pa.string(), "x": pa.int64(), "y": pa.float64()})
SCHEMA = ElementSchema(TimeType.BIGINT, PAYLOAD)
DOUBLES = [1.5, -0.0, 0.0, math.nan, math.inf, -math.inf, None]
KEYS = st.sampled_from([(), ("k",), ("k", "x"), ("y",)])
COUNTS = st.integers(1, 3)
ORDERS = st.lists(
    st.sampled_from(["k", "x", "y", "-k", "-x", "-y"]), max_size=2, unique=True
).map(tuple)
SEEDS = st.integers(0, 2**32)
SIZES = st.integers(1, 40)


def row(chance):
    """Few different rows, so that they meet themselves often."""
    return chance.choice("aaab"), chance.choice([None, 1, 2]), chance.choice(DOUBLES)


def stream(chance, count):
    """Elements that keep their promises: ends move both ways, events are removed."""
    live, frontier, made = [], -3, []
    for _ in range(count):
        word = chance.random()
        free = [e for e in live if e.end >= frontier]
        if word < 0.15:
            frontier += chance.randint(0, 4)
            made.append(Stable(frontier))
        elif word < 0.6 or not free:
            start = frontier + chance.randint(0, 6)
            end = chance.choice([FOREVER, start + chance.randint(0, 8)])
            made.append(Insert(row(chance), start, end))
            live += [made[-1].event] if end > start else []
        else:
            event = chance.choice(free)
            live.remove(event)
            ends = [*range(max(frontier, event.start), event.start + 12), FOREVER, event.end]
            end = chance.choice([*ends, *[event.start] * (3 if event.start >= frontier else 0)])
            made.append(Adjust(event.payload, event.start, event.end, end))
            live += [made[-1].event] if end > event.start else []
    return [*made, Stable(FOREVER)] if chance.random() < 0.2 else made


def order(by):
    return tuple((name.removeprefix("-"), not name.startswith("-")) for name in by)


def model(history, keys, k, by):
    """The model's function, with the order of the reference."""
    places = [PAYLOAD.names.index(name) for name in keys]
    rank = TopKByElement(PAYLOAD.names, keys, k, order(by)).rank
    return top_k(history, lambda one: tuple(one[i] for i in places), k, rank)


def step(state, elements, schema=SCHEMA):
    return state.step(Inputs((Arrival("input", from_elements(elements, schema)),)))


def cuts(data, count):
    inner = data.draw(st.lists(st.integers(0, count), max_size=6).map(sorted))
    return pairwise([0, *inner, count])


@given(st.data())
def test_any_cut_any_restart_on_every_engine(data):
    """The output is valid, its history the model's, its frontier the input's."""
    elements = stream(random.Random(data.draw(SEEDS)), data.draw(SIZES))
    keys, k, by = data.draw(KEYS), data.draw(COUNTS), data.draw(ORDERS)
    # A step in lanes costs ten times that of the kernel: they take every third example.
    names = ["reference", "kernel", *(["lanes"] if len(elements) % 3 == 0 else [])]
    engines = [
        testing.engine(name, "top_k", keys=keys, k=k, by=by, payload=PAYLOAD, check_every=1)
        for name in names
    ]
    for begin, end in cuts(data, len(elements)):
        again, seen = data.draw(st.booleans()), replay(elements[:end])
        truth = model(seen.history, keys, k, by)
        for one in engines:
            one.push("input", elements[begin:end])
            one.restart() if again else one.cut()
            found = replay(one.output)
            assert found.violations == ()
            assert (found.history, found.frontier) == (truth, seen.frontier)
        assert len(engines[1].output) <= len(engines[0].output)


@given(SEEDS, SIZES, KEYS, COUNTS, ORDERS)
def test_an_element_at_a_time_the_kernel_emits_what_the_reference_does(seed, size, keys, k, by):
    state = TopKOperator(SCHEMA, keys, k, order(by)).empty()
    reference = TopKByElement(PAYLOAD.names, keys, k, order(by))
    for element in stream(random.Random(seed), size):
        ours = to_elements(step(state, [element]).output)
        theirs = reference.push(element)
        assert sorted(map(repr, _zero(ours))) == sorted(map(repr, _zero(theirs)))
        state.check()


def _zero(elements):
    """-0.0 is 0.0: which of two equal rows is shown is left open."""
    for one in elements:
        if not isinstance(one, Stable):
            payload = tuple(0.0 if value == 0 else value for value in one.payload)
            yield replace(one, payload=payload)
        else:
            yield one


@given(st.data())
def test_parts_since_a_mark_add_up(data):
    elements = stream(random.Random(data.draw(SEEDS)), data.draw(SIZES))
    by = order(data.draw(ORDERS))
    operator = TopKOperator(SCHEMA, data.draw(KEYS), data.draw(COUNTS), by)
    state, store, made = operator.empty(), Store(), []
    for begin, end in cuts(data, len(elements)):
        made += to_elements(step(state, elements[begin:end]).output)
        store.save(state)
        again = operator.from_parts(store.parts)
        again.check()
        rest = to_elements(step(again, elements[end:]).output)
        found = replay([*made, *rest])
        assert found.violations == ()
        whole = to_elements(step(operator.empty(), elements).output)
        assert found.history == History.of(whole)


@given(
    st.lists(st.tuples(*(st.sampled_from(v) for v in ("ab", [None, 1, 2], DOUBLES)))), ORDERS
)
def test_rows_are_ranked_as_by_the_reference(rows, by):
    table = pa.table(
        [pa.array([one[i] for one in rows], kind.type) for i, kind in enumerate(PAYLOAD)],
        schema=PAYLOAD,
    )
    found = ranks(table, len(rows), order(by))
    assert sorted(found.tolist()) == list(range(len(rows)))
    rank = TopKByElement(PAYLOAD.names, (), 1, order(by)).rank
    ranked = [rank(rows[i]) for i in sorted(range(len(rows)), key=lambda i: found[i])]
    assert not any(after < before for before, after in pairwise(ranked))


VALUES = [
    (pa.bool_(), [None, False, True]),
    (pa.string(), [None, "", "B", "a", "ä"]),
    (pa.binary(), [None, b"", b"a", b"\xff"]),
    (pa.decimal128(5, 2), [None, Decimal("-2.50"), Decimal("1.5"), Decimal("10.00")]),
    (pa.date32(), [None, -1, 0, 9]),
    (pa.timestamp("us", "UTC"), [None, -1, 0, 9]),
    (pa.float32(), [None, -math.inf, -1.5, 0.0, math.inf, math.nan]),
]


@pytest.mark.parametrize(("kind", "values"), VALUES, ids=lambda one: str(one)[:12])
def test_values_of_each_type_have_their_order_both_ways(kind, values):
    for mixed in list(permutations(range(len(values))))[::7]:
        rows = pa.table({"v": pa.array([values[i] for i in mixed], kind)})
        assert ranks(rows, len(rows), ()).tolist() == list(mixed)
        down = [len(values) - 1 - i for i in mixed]
        assert ranks(rows, len(rows), [("v", False)]).tolist() == down


def test_a_column_of_lists_and_one_of_nulls_break_ties_by_value():
    """Which of the rows is first is the same in whatever order they come."""
    kinds = {"x": pa.int64(), "some": pa.list_(pa.int64()), "none": pa.null()}
    rows = [(1, [1, 2], None), (1, [3], None), (1, None, None), (1, [], None)]
    found = set()
    for mixed in permutations(rows):
        columns = [
            pa.array(values, kind)
            for values, kind in zip(zip(*mixed, strict=True), kinds.values(), strict=True)
        ]
        table = pa.table(columns, names=list(kinds))
        places = ranks(table, len(rows), [("x", False)]).tolist()
        found.add(repr([mixed[places.index(i)] for i in range(len(rows))]))
    assert len(found) == 1


def test_state_is_flat_while_the_frontier_moves_and_empty_at_the_end():
    state, sizes = TopKOperator(SCHEMA, ("k",), 2, (("x", False),)).empty(), []
    for begin in range(0, 20_000, 1_000):
        rows = [
            Insert(("ab"[i % 2], i % 5, 0.5), i, i + 50) for i in range(begin, begin + 1_000)
        ]
        step(state, [*rows, Stable(begin + 1_000)])
        sizes.append(state.live)
    assert max(sizes) <= 250
    assert replay([]).frontier < state.frontier == 20_000
    step(state, [Stable(FOREVER)])
    assert (state.live, len(state.members), len(state.members.table)) == (0, 0, 0)


def test_a_group_that_nothing_touches_is_forgotten():
    state = TopKOperator(SCHEMA, ("k",), 1, ()).empty()
    step(state, [Insert((f"{i}", i % 7, None), 1, 5) for i in range(100)])
    assert state.live == 200
    step(state, [Insert(("new", 1, None), 5, 9), Stable(6)])
    state.check()
    # One start that goes on, and one end.
    assert (state.live, len(state.members.table)) == (2, 1)


def test_a_step_reads_the_groups_that_it_touches_alone():
    state = TopKOperator(SCHEMA, ("k",), 1, ()).empty()
    step(state, [Insert((f"{i}", i % 7, None), 1, 5) for i in range(1_000)])
    result = step(state, [Insert(("7", 9, None), 2, 5)])
    assert result.counts["visits"] == 2 + 4
    assert len(result.output) == 0


def test_an_untouched_row_of_a_touched_group_is_not_saved_again():
    state = TopKOperator(SCHEMA, (), 2, (("x", True),)).empty()
    step(state, [Insert(("a", i, None), 1, FOREVER) for i in range(50_000)])
    mark, whole = state.parts().mark, state.parts().written
    step(state, [Adjust(("a", 7, None), 1, FOREVER, 9)])
    changed = state.parts(since=mark).written
    assert 0 < len(changed) < len(whole) / 2


def test_k_beyond_what_is_alive_shows_all_and_a_late_row_takes_a_place():
    state = TopKOperator(SCHEMA, ("k",), 3, (("x", False),)).empty()
    rows = [("a", x, None) for x in (1, 2, 3, 4)]
    first = to_elements(step(state, [Insert(one, 0, 10) for one in rows[:3]]).output)
    assert History.of(first) == History.from_events([Event(one, 0, 10) for one in rows[:3]])
    second = to_elements(step(state, [Stable(2), Insert(rows[3], 4, 6)]).output)
    assert second == [
        Adjust(rows[0], 0, 10, 4),
        Insert(rows[3], 4, 6),
        Insert(rows[0], 6, 10),
        Stable(2),
    ]


@pytest.mark.parametrize(
    ("keys", "k", "by", "error", "words"),
    [
        (("k",), 0, (), UsageError, "k is 0; it must be 1 or more"),
        (("z",), 1, (), SchemaError, "no key column 'z'"),
        ((), 1, (("z", True),), SchemaError, "no column 'z'"),
        ((), 1, (("some", True),), SchemaError, "cannot be ranked by column 'some'"),
    ],
)
def test_wrong_options_are_refused_when_the_query_is_built(keys, k, by, error, words):
    payload = PAYLOAD.append(pa.field("some", pa.list_(pa.int64())))
    with pytest.raises(error, match=words):
        TopKOperator(ElementSchema(TimeType.BIGINT, payload), keys, k, by)


def test_an_adjust_that_finds_no_event_names_the_cause():
    state = TopKOperator(SCHEMA, ("k",), 1, ()).empty()
    with pytest.raises(StateError, match=r"top_k: .*'x': 1.* not deterministic"):
        step(state, [Adjust(("a", 1, None), 1, 5, 3)])


def test_a_state_of_another_order_is_refused():
    parts = TopKOperator(SCHEMA, ("k",), 1, (("x", True),)).empty().parts().written
    with pytest.raises(StateError, match="cannot change"):
        TopKOperator(SCHEMA, ("k",), 2, (("x", True),)).from_parts(parts)
    with pytest.raises(StateError, match="cannot change"):
        TopKOperator(SCHEMA, ("k",), 1, (("x", False),)).from_parts(parts)
