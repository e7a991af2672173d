"""Join: the history is that of the model at every cut, and a step costs what it touches."""

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from two_sided_laws import (
    COLUMNS,
    any_cut_any_restart,
    emits_the_fewest_elements,
    forgets_all,
    frontier_of,
    sides,
)

from anabranch import testing
from anabranch.batch.codec import from_elements, to_elements
from anabranch.batch.schema import ElementSchema, TimeType
from anabranch.errors import SchemaError, StateError, UsageError
from anabranch.model.element import Adjust, Event, Insert, Stable
from anabranch.model.history import History
from anabranch.operators.contract import Arrival, HasPorts, Inputs, Route
from anabranch.operators.join.net import in_order
from anabranch.operators.join.operator import HOWS, JoinOperator

SIDES = ("left", "right")
LEFT = ElementSchema(TimeType.BIGINT, pa.schema({"k": pa.string(), "a": pa.int64()}))
RIGHT = ElementSchema(TimeType.BIGINT, pa.schema({"q": pa.string(), "b": pa.int64()}))
each_how = pytest.mark.parametrize("how", HOWS)


def alone(event, shared):
    """The parts of an event that these stretches leave, and those that they cover."""
    times = sorted({event.start, event.end, *(t for s in shared for t in s)})
    gaps, runs = [], []
    for start, end in pairwise(times):
        kind = runs if any(s <= start < e for s, e in shared) else gaps
        if kind and kind[-1][1] == start:
            kind[-1] = (kind[-1][0], end)
        else:
            kind.append((start, end))
    return gaps, runs


def joined(left, right, how):
    """The meaning, in a few lines; the same as `model.operators`."""
    found = []
    for event in left:
        key = event.payload[0]
        partners = [r for r in right if key is not None and r.payload[0] == key]
        both = [(max(event.start, r.start), min(event.end, r.end), r) for r in partners]
        both = [one for one in both if one[0] < one[1]]
        gaps, runs = alone(event, [one[:2] for one in both])
        if how in ("inner", "left"):
            found += [Event((*event.payload, r.payload[1]), s, e) for s, e, r in both]
        if how == "left":
            found += [Event((*event.payload, None), s, e) for s, e in gaps]
        if how in ("semi", "anti"):
            found += [Event(event.payload, s, e) for s, e in (runs if how == "semi" else gaps)]
    return History.from_events(found)


@each_how
@given(st.data())
def test_any_cut_any_restart_is_the_join_of_the_histories(how, data):
    any_cut_any_restart("join", data, lambda one, two: joined(one, two, how), SIDES, how=how)


@each_how
@given(st.data())
def test_each_element_emits_the_fewest_elements(how, data):
    emits_the_fewest_elements("join", data, SIDES, how=how)


@each_how
@given(st.data())
def test_what_both_frontiers_have_passed_is_forgotten(how, data):
    forgets_all("join", data, SIDES, how=how)


def operator(how="inner", **changes):
    return JoinOperator(
        **{"left": LEFT, "right": RIGHT, "on": (("k", "q"),), "how": how} | changes
    )


def step(state, left=(), right=()):
    arrivals = (
        Arrival("left", from_elements(left, LEFT)),
        Arrival("right", from_elements(right, RIGHT)),
    )
    return state.step(Inputs(arrivals))


def test_erratum_c13_a_removed_event_is_no_partner(local_engine):
    with local_engine("join") as join:
        join.push("right", "insert a 1..forever; adjust a 1..forever->1")
        join.cut()
        join.push("left", "insert a 0..forever")
        assert join.cut() == ()


def test_adjusts_come_first_by_sync_time_then_inserts_by_start():
    state = operator("anti").empty()
    step(state, [Insert(("x", 1), 0, 20), Insert(("x", 2), 5, 30)])
    more = [Insert(("x", 0), 8, 9), Insert(("x", 0), 2, 6)]
    output = to_elements(step(state, right=more).output)
    adjusts, inserts = output[:2], output[2:]
    assert adjusts == [Adjust(("x", 1), 0, 20, 2), Adjust(("x", 2), 5, 30, 5)]
    assert [e.start for e in inserts] == [6, 6, 9, 9]
    assert set(inserts) == {
        Insert(("x", 1), 6, 8),
        Insert(("x", 2), 6, 8),
        Insert(("x", 1), 9, 20),
        Insert(("x", 2), 9, 30),
    }


@each_how
def test_an_event_is_forgotten_when_the_frontier_of_the_other_side_has_passed_its_end(how):
    """Of an inner join; the others need its own side's frontier too."""
    state = operator(how).empty()
    step(state, [Insert(("x", 1), 0, 5)], [Stable(5)])
    assert state.live == 1
    step(state, right=[Stable(6)])
    assert state.live == (how != "inner")
    assert to_elements(step(state, [Stable(6)]).output) == [Stable(6)]
    assert (state.live, state.facts) == (0, {"keys": 0})


def test_a_forgotten_event_is_still_adjusted_by_its_own_side():
    """The partners that it gains or loses end behind its side's frontier, so they are kept."""
    state = operator().empty()
    step(state, [Insert(("x", 1), 0, 5)], [Insert(("x", 2), 3, 9), Stable(8)])
    assert (state.live, len(state.trees)) == (1, 1)
    output = to_elements(step(state, [Adjust(("x", 1), 0, 5, 7)]).output)
    assert output == [Adjust(("x", 1, 2), 3, 5, 7)]
    assert state.live == 1
    output = to_elements(step(state, [Adjust(("x", 1), 0, 7, 20)]).output)
    assert output == [Adjust(("x", 1, 2), 3, 7, 9)]
    assert state.live == 2  # it may have partners again
    output = to_elements(step(state, right=[Insert(("x", 3), 12, 15)]).output)
    assert output == [Insert(("x", 1, 3), 12, 15)]
    with pytest.raises(StateError, match="finds no such event"):
        step(state, [Adjust(("x", 1), 0, 19, 20)])


@given(data=st.data(), silent=st.sampled_from(SIDES))
def test_a_side_without_stables_keeps_the_other_one_alone(data, silent):
    """The history is right, and of the silent side what the other has passed is forgotten."""
    arrived = [
        (name, one)
        for name, one in data.draw(sides(SIDES))
        if name != silent or not isinstance(one, Stable)
    ]
    for name in ("reference", "kernel"):
        with testing.engine(name, "join", payload=COLUMNS) as engine:
            for at, (who, element) in enumerate(arrived, start=1):
                engine.push(who, [element])
                engine.restart() if at % 3 == 0 else engine.cut()
                past = {n: [e for w, e in arrived[:at] if w == n] for n in SIDES}
                left, right = (History.of(past[n]) for n in SIDES)
                assert engine.history == joined(left, right, "inner")
                other = frontier_of(past["left" if silent == "right" else "right"])
                kept = [
                    event
                    for n in SIDES
                    for event in History.of(past[n])
                    if event.payload[0] is not None
                    and (n != silent or (event.end >= other and other != float("inf")))
                ]
                assert engine.counts["live"] == len(kept)


def test_null_matches_nothing_and_is_not_kept():
    state = operator("left").empty()
    output = to_elements(
        step(state, [Insert((None, 1), 0, 5)], [Insert((None, 2), 0, 5)]).output
    )
    assert output == [Insert((None, 1, None), 0, 5)]
    assert state.live == 0
    output = to_elements(step(state, [Adjust((None, 1), 0, 5, 7)]).output)
    assert output == [Adjust((None, 1, None), 0, 5, 7)]


def test_a_lost_event_is_an_error_that_names_the_cause():
    state = operator().empty()
    step(state, [Insert(("x", 1), 0, 5)])
    with pytest.raises(StateError, match=r"join: an adjust of .*left side.*not deterministic"):
        step(state, [Adjust(("x", 1), 0, 6, 7)])


def visits(live, count=200):
    """Visits per element in a key with `live` events per side that no frontier has passed."""
    state = operator().empty()
    some = [Insert(("x", i), 2 * i, 2 * i + 1) for i in range(live)]
    step(state, some, some)
    more = [
        Insert(("x", i), 2 * i, 2 * i + 1) for i in np.linspace(0, live - 1, count).astype(int)
    ]
    return step(state, more).counts["visits"] / count


def test_a_key_with_very_many_events_costs_a_logarithm():
    few, many = visits(100), visits(10_000)
    assert many < 4 * few < 400


def test_a_join_of_lasting_events_of_one_key_forgets_runs():
    """Runs of partners that are over: one is left for each key with left events."""
    state = operator("anti").empty()
    step(state, [Insert(("x", 1), 0, 1_000)])
    for time in range(0, 500, 10):
        step(state, [Stable(time)], [Insert(("x", 2), time, time + 5), Stable(time)])
        state.check()
        assert len(state.trees) <= 5


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), max_size=60))
def test_rows_of_one_time_are_in_the_order_of_their_names(rows):
    """Few of them are sorted one by one, many together."""
    times, words = (np.array([row[at] for row in rows], np.int64) for at in (0, 1))
    order = in_order(times, lambda at: words[at].copy())
    assert [rows[at] for at in order] == sorted(rows)


def test_payloads_get_names_when_an_adjust_looks_for_one():
    """Equal events are two nodes before, and one with a count of two afterwards."""
    state = operator().empty()
    step(state, [Insert(("x", 1), 0, 5), Insert(("x", 1), 0, 5)], [Insert(("x", 2), 3, 9)])
    state.check()
    assert (state.live, len(state.trees)) == (3, 3)
    again = operator().from_parts(state.parts().written)
    for one in (state, again):
        output = to_elements(step(one, [Adjust(("x", 1), 0, 5, 7)]).output)
        assert output == [Adjust(("x", 1, 2), 3, 5, 7)]
        one.check()
        step(one, [Insert(("x", 1), 0, 5)])
        assert (one.live, len(one.trees)) == (4, 3)


def test_the_ports_and_columns():
    made = operator("left")
    assert isinstance(made, HasPorts)
    assert {name: port.route_columns for name, port in made.ports.items()} == {
        "left": ("k",),
        "right": ("q",),
    }
    assert made.ports["right"].route is made.route is Route.KEY
    assert made.output.payload.names == ["k", "a", "b"]
    assert operator("semi").output.payload.names == ["k", "a"]
    assert operator(final_at_start=True).output_final_at_start
    assert not operator("left", final_at_start=True).output_final_at_start


def test_what_cannot_be_joined_is_refused_by_name():
    other = ElementSchema(TimeType.BIGINT, pa.schema({"q": pa.int64(), "b": pa.int64()}))
    with pytest.raises(SchemaError, match=r"'k' of the left side is string, column 'q'.*int64"):
        operator(right=other)
    with pytest.raises(SchemaError, match="both sides have a column 'a'"):
        operator(right=LEFT, on=(("k", "k"),))
    with pytest.raises(SchemaError, match="the right side has no column 'z'"):
        operator(on=(("k", "z"),))
    with pytest.raises(UsageError, match="how='outer'"):
        operator("outer")
    with pytest.raises(UsageError, match="on is empty"):
        operator(on=())
    times = ElementSchema(TimeType.TIMESTAMP, RIGHT.payload)
    with pytest.raises(SchemaError, match="bigint times, the right side timestamp"):
        operator(right=times)


def test_a_state_of_another_join_is_refused():
    saved = operator("semi").empty().parts().written
    with pytest.raises(StateError, match="how=semi, the operator how=anti"):
        operator("anti").from_parts(saved)
    with pytest.raises(StateError, match="no part 'control'"):
        operator().from_parts({})
    with pytest.raises(StateError, match="the state is 'anabranch join'"):
        testing.operators.OPERATORS["distinct"].operator(LEFT, {}).from_parts(saved)


def test_a_save_writes_what_changed():
    state = operator().empty()
    step(state, [Insert((str(i), i), i, i + 5) for i in range(3_000)])
    whole = state.parts()
    step(state, [Insert(("2", 2), 2, 9)])
    changed = state.parts(since=whole.mark).written
    assert len(whole.written) > 9
    controls = {"control", "keys/control", "left/control", "right/control"}
    assert changed.keys() - controls == {"events/2", "left/nodes/2", "left/payload/2"}
    step(state, [Adjust(("7", 7), 7, 12, 20)])  # payloads get names
    whole = state.parts()
    step(state, [Insert(("2", 2), 2, 11)])
    assert len(state.parts(since=whole.mark).written.keys() - controls) == 1
