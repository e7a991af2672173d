"""Distinct and difference: the history is that of the model at every cut."""

from collections import Counter
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from two_sided_laws import any_cut_any_restart, emits_the_fewest_elements, forgets_all

from anabranch.batch.codec import from_elements
from anabranch.batch.schema import ElementSchema, TimeType
from anabranch.errors import StateError
from anabranch.model.element import Adjust, Event, Insert, Stable
from anabranch.model.history import History
from anabranch.model.normal_form import normal_form
from anabranch.operators.contract import Arrival, Inputs, Route
from anabranch.operators.runs.difference import DifferenceOperator
from anabranch.operators.runs.distinct import DistinctOperator

SCHEMA = ElementSchema(TimeType.BIGINT, pa.schema({"p": pa.string()}))


def alive(history, time):
    return Counter(e.payload for e in history.snapshot(time))


def cut(history, level):
    """What is shown at each end point, until the next one."""
    times = sorted({t for e in history for t in (e.start, e.end)})
    pieces = Counter()
    for start, end in pairwise(times):
        for payload, count in level(start).items():
            pieces[Event(payload, start, end)] += count
    return normal_form(History(+pieces))


def distinct(history):
    return cut(history, lambda t: dict.fromkeys(alive(history, t), 1))


def difference(left, right):
    both = History.from_events([*left, *right])
    return cut(both, lambda t: alive(left, t) - alive(right, t))


OPERATORS = {"distinct": (distinct, ("input",)), "difference": (difference, ("left", "right"))}
each_operator = pytest.mark.parametrize("name", OPERATORS)


@each_operator
@given(st.data())
def test_any_cut_any_restart_is_what_the_model_has(name, data):
    any_cut_any_restart(name, data, *OPERATORS[name])


@each_operator
@given(st.data())
def test_each_element_emits_the_fewest_elements(name, data):
    emits_the_fewest_elements(name, data, OPERATORS[name][1])


@each_operator
@given(st.data())
def test_what_all_frontiers_have_passed_is_forgotten(name, data):
    forgets_all(name, data, OPERATORS[name][1])


def test_a_run_of_many_events_is_remembered_by_its_start():
    """Each event is forgotten when it is over; the run goes on for ever."""
    state = DistinctOperator(SCHEMA).empty()
    for time in range(0, 400, 2):
        some = from_elements([Insert("a", time, time + 3), Stable(time)], SCHEMA)
        state.step(Inputs((Arrival("input", some),)))
        state.check()
        assert state.live < 8


def test_a_lost_event_of_distinct_is_an_error_that_names_the_cause():
    state = DistinctOperator(SCHEMA).empty()
    wrong = from_elements([Insert("a", 1, 5), Adjust("a", 1, 7, 3)], SCHEMA)
    with pytest.raises(StateError, match=r"distinct: an adjust of .*not deterministic"):
        state.step(Inputs((Arrival("input", wrong),)))


def test_the_ports_of_difference():
    made = DifferenceOperator(SCHEMA)
    assert [*made.ports] == ["left", "right"]
    assert {port.route for port in made.ports.values()} == {Route.PAYLOAD}
    with pytest.raises(StateError, match="the state is 'anabranch difference'"):
        DistinctOperator(SCHEMA).from_parts(made.empty().parts().written)
