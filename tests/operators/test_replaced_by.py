"""replaced_by: each row lives until the next row of its key."""

import math
from collections import Counter
from itertools import groupby

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from trusting_laws import any_cut_any_restart, element_by_element

from anabranch.batch.codec import from_elements, to_elements
from anabranch.batch.row_order import row_order, sort_key
from anabranch.batch.schema import ElementSchema, TimeType
from anabranch.errors import StateError, UsageError
from anabranch.model.element import Adjust, Event, Insert, Stable
from anabranch.model.history import History
from anabranch.model.time import FOREVER
from anabranch.operators.by_key.replaced_by import ReplacedByOperator
from anabranch.operators.contract import Arrival, Inputs

PAYLOAD = pa.schema({"k": pa.string(), "v": pa.int64()})
SCHEMA = ElementSchema(TimeType.BIGINT, PAYLOAD)
OPTIONS = {"payload": PAYLOAD, "keys": "k", "columns": "k v"}
ROWS = st.tuples(st.sampled_from(["x", "y", None]), st.sampled_from([None, 1, 2]))


@st.composite
def row_streams(draw):
    """Rows in any order of arrival, removals of free rows, new ends, and stables."""
    stream, live, frontier = [], [], 0
    for _ in range(draw(st.integers(0, 14))):
        what = draw(st.sampled_from(["insert"] * 4 + ["remove", "adjust", "stable"]))
        open_rows = [e for e in live if e.end >= frontier and e.end > e.start]
        free = [e for e in open_rows if e.start >= frontier]
        if what == "stable":
            frontier += draw(st.integers(0, 3))
            stream.append(Stable(frontier))
        elif what == "remove" and free:
            event = draw(st.sampled_from(free))
            live.remove(event)
            stream.append(Adjust(event.payload, event.start, event.end, event.start))
        elif what == "adjust" and open_rows:
            event = draw(st.sampled_from(open_rows))
            live.remove(event)
            end = max(frontier, event.start) + draw(st.integers(1, 5))
            live.append(event._replace(end=end))
            stream.append(Adjust(*event, end))
        else:
            start = frontier + draw(st.integers(0, 5))
            end = draw(st.sampled_from([start + 1, start + 9, FOREVER]))
            live.append(Event(draw(ROWS), start, end))
            stream.append(Insert(*live[-1]))
    return stream


def of(history):
    """The meaning, directly: by key and start, the greatest of those that start together."""
    events = []
    by_key = sorted({e.identity for e in history}, key=lambda r: sort_key(r.payload[0]))
    for _, rows in groupby(by_key, key=lambda row: row.payload[0]):
        last = {}
        for row in sorted(rows, key=lambda row: (row.start, sort_key(row.payload))):
            last[row.start] = row.payload
        ends = [*list(last)[1:], FOREVER]
        events += [Event(p, s, e) for (s, p), e in zip(last.items(), ends, strict=True)]
    return History.from_events(events)


@given(row_streams(), st.data())
def test_any_cut_any_restart_rows_live_until_the_next(stream, data):
    any_cut_any_restart("replaced_by", data, stream, of, lambda time: time, **OPTIONS)


@given(row_streams())
def test_the_kernel_emits_what_the_reference_emits(stream):
    """And remembers as many rows; a restart of its lists is in the laws of all operators."""
    element_by_element("replaced_by", stream, **OPTIONS)


def step(state, elements):
    result = state.step(Inputs((Arrival("input", from_elements(elements, SCHEMA)),)))
    state.check()
    return result


def test_remembered_are_the_rows_at_the_frontier_or_later_and_the_last_before_it():
    state = ReplacedByOperator(SCHEMA, ("k",)).empty()
    step(state, [Insert(("x", i), i, FOREVER) for i in range(100)])
    step(state, [Insert(("y", i), 0, FOREVER) for i in range(5)])
    assert state.live == 105
    result = step(state, [Stable(90)])
    assert state.live == 11 + 1
    assert result.counts["visits"] == 2
    assert step(state, [Stable(90)]).counts["visits"] == 0
    result = step(state, [Insert(("x", 0), 90, FOREVER), Insert(("y", 0), 95, FOREVER)])
    assert to_elements(result.output) == [
        Adjust(("y", 4), 0, FOREVER, 95),
        Insert(("y", 0), 95, FOREVER),
    ]
    step(state, [Stable(FOREVER)])
    assert state.live == 0
    assert set(state.parts().written) == {"control"}


def test_a_step_looks_only_at_the_keys_that_it_touches():
    state = ReplacedByOperator(SCHEMA, ("k",)).empty()
    step(state, [Insert((f"k{i}", 1), i, FOREVER) for i in range(1_000)])
    counts = [step(state, [Stable(time)]).counts["visits"] for time in (10, 500)]
    assert counts == [0, 0]
    step(state, [Insert(("k7", 2), 600, FOREVER)])
    assert step(state, [Stable(601)]).counts["visits"] == 1


@pytest.mark.parametrize(
    "element", [Adjust(("x", 1), 5, FOREVER, 5), Adjust(("z", 1), 4, 9, 4)]
)
def test_a_removal_of_a_row_that_is_not_there_names_the_cause(element):
    state = ReplacedByOperator(SCHEMA, ("k",)).empty()
    step(state, [Insert(("x", 1), 5, FOREVER)])
    with pytest.raises(StateError, match=r"replaced_by: an adjust of the row .*deterministic"):
        step(state, [element, element])


def test_a_key_that_is_no_column_is_refused():
    with pytest.raises(UsageError, match=r"replaced_by: no column 'q' among \['k', 'v'\]"):
        ReplacedByOperator(SCHEMA, ("k", "q"))


VALUES = {
    pa.float64(): [None, -1.5, -0.0, 0.0, 2.0, float("inf"), float("-inf"), float("nan")],
    pa.string(): [None, "", "a", "ab", "B", "\u00e9", "\U0001f600", "\uffff"],
    pa.bool_(): [None, True, False],
    pa.int32(): [None, -5, 0, 7],
    pa.struct([("a", pa.int8()), ("b", pa.string())]): [
        None, {"a": 1, "b": None}, {"a": 0, "b": "z"}, {"a": 1, "b": "a"},
    ],
    pa.list_(pa.int64()): [None, [], [1], [1, 0], [None]],
    pa.null(): [None],
}  # fmt: skip


@pytest.mark.parametrize("kind", VALUES, ids=str)
@given(data=st.data())
def test_rows_are_ordered_as_spark_orders_them(kind, data):
    """Nulls first, NaN last, text by its bytes, nested values by their items."""
    values = data.draw(st.lists(st.sampled_from(VALUES[kind]), max_size=9))
    column = pa.chunked_array([pa.array(values, kind)])
    order = row_order(pa.table({"x": column}), len(values)).tolist()

    def rank(value):
        if isinstance(value, dict):
            return (1, tuple(map(rank, value.values())))
        if isinstance(value, list):
            return (1, tuple(map(rank, value)))
        if isinstance(value, str):
            return (1, value.encode())
        if value is None:
            return (0,)
        return (2,) if isinstance(value, float) and math.isnan(value) else (1, value)

    ranks = [rank(values[at]) for at in order]
    assert ranks == sorted(map(rank, values))
    assert Counter(order) == Counter(range(len(values)))
