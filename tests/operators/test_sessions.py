"""Laws of sessions and of aggregates by session: history, promises, finality; and errors."""

import random
from collections import Counter
from itertools import pairwise

import pyarrow as pa
import pytest
from aggregate_streams import BY_VALUE, INVERTIBLE, PAYLOAD, stream
from hypothesis import given
from hypothesis import strategies as st
from state_store import Store
from trusting_laws import in_step_order

from anabranch import testing
from anabranch.batch.batch import FOREVER_UNITS
from anabranch.batch.codec import from_elements, to_elements
from anabranch.batch.schema import ElementSchema, TimeType
from anabranch.errors import InputError, SchemaError, StateError, UsageError
from anabranch.model.element import Adjust, Insert, Stable
from anabranch.model.history import History, replay
from anabranch.model.operators import session, session_stable
from anabranch.model.time import FOREVER
from anabranch.operators.aggregate.functions import Aggregate
from anabranch.operators.aggregate.operator import AggregateOperator
from anabranch.operators.aggregate.sessions import SessionAggregateOperator
from anabranch.operators.by_key.session import SessionOperator
from anabranch.operators.contract import Arrival, Inputs

SCHEMA = ElementSchema(TimeType.BIGINT, PAYLOAD)
COUNT = Aggregate("count", None, "n")
GAPS = st.integers(1, 6)
BY = st.sampled_from([("k",), ("x",), ("k", "x")])
SEEDS = st.integers(0, 2**32)
SIZES = st.integers(1, 40)


def rows(data, *, fixed_ends=False):
    chance = random.Random(data.draw(SEEDS))
    return stream(chance, data.draw(SIZES), fixed_ends=fixed_ends)


def key_of(by):
    places = [PAYLOAD.names.index(name) for name in by]
    return lambda row: tuple(row[i] for i in places)


def step(state, elements, schema=SCHEMA):
    result = state.step(Inputs((Arrival("input", from_elements(elements, schema)),)))
    state.check()
    return result


def cuts(data, count):
    inner = data.draw(st.lists(st.integers(0, count), max_size=6).map(sorted))
    return pairwise([0, *inner, count])


def counted(elements):
    """Elements as often as they are there, bit for bit, but for the sign of 0."""
    return Counter(repr(one).replace("-0.0", "0.0") for one in elements)


# Rows in sessions


@given(st.data())
def test_any_cut_any_restart_on_every_engine(data):
    """The output is valid, its history the model's, its frontier the model's stable."""
    elements, gap, by = rows(data), data.draw(GAPS), data.draw(BY)
    # A step in lanes costs ten times that of the kernel: they take every third example.
    names = ["reference", "kernel", *(["lanes"] if len(elements) % 3 == 0 else [])]
    engines = [
        testing.engine(name, "session", gap=gap, by=by, payload=PAYLOAD, check_every=1)
        for name in names
    ]
    for begin, end in cuts(data, len(elements)):
        again, seen = data.draw(st.booleans()), replay(elements[:end])
        truth = session(seen.history, gap, key_of(by))
        stable = session_stable(seen.history, gap, key_of(by), seen.frontier)
        for one in engines:
            one.push("input", elements[begin:end])
            one.restart() if again else one.cut()
            found = replay(one.output)
            assert found.violations == ()
            assert counted(found.history) == counted(truth)
            assert found.frontier == stable
        assert len(engines[1].output) <= len(engines[0].output)


@given(st.data())
def test_the_kernel_emits_what_the_reference_emits_for_the_same_reasons(data):
    """And remembers as many rows; rows of equal starts may have another order."""
    elements, gap, by = rows(data), data.draw(GAPS), data.draw(BY)
    reference, kernel = (
        testing.engine(name, "session", gap=gap, by=by, payload=PAYLOAD)
        for name in ("reference", "kernel")
    )
    for element in elements:
        for engine in (reference, kernel):
            engine.push("input", [element])
        mine = kernel.cut()
        in_step_order(mine)
        assert counted(reference.cut()) == counted(mine)
        assert reference.counts["live"] == kernel.counts["live"]
    assert reference.reasons == kernel.reasons


@given(st.data())
def test_the_stable_cannot_be_later(data):
    """A legal row removes and inserts an event that starts at the stable."""
    elements, gap, by = rows(data), data.draw(GAPS), data.draw(BY)
    state = SessionOperator(SCHEMA, gap, by).empty()
    step(state, elements)
    seen = replay(elements)
    if seen.frontier in (FOREVER, -FOREVER):
        return
    known = [e.payload for e in seen.history if e.start < seen.frontier]
    moved = [
        Insert(payload, seen.frontier, seen.frontier + 1)
        for payload in [*known, ("new", None, None)]
    ]
    starts = [
        one.start
        for row in moved
        for one in to_elements(
            step(state.operator.from_parts(state.parts().written), [row]).output
        )
        if isinstance(one, Insert)
    ]
    assert min(starts) == state.frontier


@given(st.data())
def test_final_are_the_rows_of_sessions_that_nothing_legal_can_change(data):
    elements, gap, by = rows(data), data.draw(GAPS), data.draw(BY)
    operator = SessionOperator(SCHEMA, gap, by).reporting_final()
    state, store, final = operator.empty(), Store(), []
    for begin, end in cuts(data, len(elements)):
        final += to_elements(step(state, elements[begin:end]).final)
        store.save(state)
        if data.draw(st.booleans()):
            state = operator.from_parts(store.parts)
        seen = replay(elements[:end])
        events = session(seen.history, gap, key_of(by))
        fixed = [e for e in events if not can_change(e, seen, gap, by)]
        assert counted(final) == counted(Insert(*e) for e in fixed)
    whole = session(replay(elements).history, gap, key_of(by))
    assert counted(final) <= counted(Insert(*e) for e in whole)


def can_change(event, seen, gap, by):
    """Whether a row that starts at the frontier or later takes the event away."""
    if seen.frontier == FOREVER:
        return False
    row = event.payload[:-1]
    least = max(seen.frontier, event.start - gap)
    for start in range(int(least), int(max(least, event.end)) + 1):
        more = History.from_events([*seen.history, Insert(row, start, start + 1).event])
        if counted(session(more, gap, key_of(by)))[repr_of(event)] < 1:
            return True
    return event.start >= seen.frontier


def repr_of(event):
    return repr(event).replace("-0.0", "0.0")


@given(st.data())
def test_parts_since_a_mark_add_up(data):
    elements, gap, by = rows(data), data.draw(GAPS), data.draw(BY)
    session_of = SessionOperator(SCHEMA, gap, by)
    operator = data.draw(
        st.sampled_from(
            [
                session_of,
                SessionAggregateOperator(session_of, (*by, "window"), (COUNT, BY_VALUE[0])),
            ]
        )
    )
    state, store = operator.empty(), Store()
    for begin, end in cuts(data, len(elements)):
        step(state, elements[begin:end])
        store.save(state)
        again = operator.from_parts(store.parts)
        again.check()
        rest = elements[end:]
        other = operator.from_parts(state.parts().written)
        assert to_elements(step(again, rest).output) == to_elements(step(other, rest).output)


def row(user, page=None):
    return user, page, None


def test_a_late_row_joins_two_sessions():
    state = SessionOperator(SCHEMA, 10, ("k",)).empty()
    step(state, [Insert(row("a", 1), 0, 1), Insert(row("a", 2), 15, 16), Stable(5)])
    assert to_elements(step(state, [Insert(row("a", 3), 8, 9)]).output) == [
        Adjust((*row("a", 1), (0, 10)), 0, 10, 0),
        Adjust((*row("a", 2), (15, 25)), 15, 25, 15),
        *(Insert((*row("a", page), (0, 25)), 0, 25) for page in output_order(state)),
    ]
    assert state.frontier == 0


def output_order(state):
    """Equal starts are ordered by the hash of the row."""
    other = SessionOperator(SCHEMA, 10, ("k",)).empty()
    some = [Insert(row("a", page), 0, 1) for page in (1, 2, 3)]
    return [one.payload[1] for one in to_elements(step(other, some).output)]


def test_an_equal_row_that_moves_within_its_session_does_not_show():
    state = SessionOperator(SCHEMA, 10, ("k",)).empty()
    step(state, [Insert(row("a"), time, FOREVER) for time in (0, 5, 8)])
    moved = [Adjust(row("a"), 5, FOREVER, 5), Insert(row("a"), 6, 7)]
    assert len(step(state, moved).output) == 0
    assert state.live == 3


def test_a_step_reads_only_the_keys_that_it_touches_or_closes():
    state = SessionOperator(SCHEMA, 10, ("k",)).empty()
    step(state, [Insert(row(f"k{i}"), 100 + i, FOREVER) for i in range(1_000)])
    assert step(state, [Insert(row("k7"), 110, FOREVER)]).counts["visits"] == 3
    assert step(state, [Stable(100)]).counts["visits"] == 0
    assert step(state, [Stable(113)]).counts["visits"] == 3
    assert state.frontier == 103


@pytest.mark.parametrize("aggregated", [False, True])
def test_one_endless_session_holds_the_stable_and_nothing_else(aggregated):
    """Rows of other keys leave, with their values, and are final."""
    operator = SessionOperator(SCHEMA, 10, ("k",))
    if aggregated:
        functions = (COUNT, Aggregate("max", "x", "last"))
        operator = SessionAggregateOperator(operator, ("k", "window"), functions)
    state, final = operator.reporting_final().empty(), 0
    for begin in range(0, 20_000, 1_000):
        times = range(begin, begin + 1_000)
        # A user has twenty rows; the bot never stops.
        users = [Insert(row(f"{time // 20}", time), time, FOREVER) for time in times]
        bot = [Insert(row("bot"), time, FOREVER) for time in times if time % 10 == 0]
        result = step(state, [*users, *bot, Stable(begin + 1_000)])
        final += len(result.final)
        assert state.live - (begin + 1_000) // 10 == 20
        assert state.frontier == 0
    assert final == (19_980 if not aggregated else 999)
    if aggregated:
        assert state.facts["groups"] == 2
    result = step(state, [Stable(FOREVER)])
    assert (state.live, state.frontier) == (0, int(FOREVER_UNITS))
    assert len(result.final) == (20 + 2_000 if not aggregated else 2)


@pytest.mark.parametrize(
    ("gap", "by", "error", "words"),
    [
        (0, ("k",), UsageError, "session: gap is 0; it must be greater than 0"),
        (5, (), UsageError, "session: by names no column, and sessions are those of a key"),
        (5, ("q",), SchemaError, r"session: there is no column 'q' for by; .* \['k', 'x', 'y'"),
    ],
)
def test_wrong_options_are_refused_when_the_query_is_built(gap, by, error, words):
    with pytest.raises(error, match=words):
        SessionOperator(SCHEMA, gap, by)


def test_a_column_that_is_called_window_is_refused():
    schema = ElementSchema(TimeType.BIGINT, pa.schema({"k": pa.string(), "Window": pa.int64()}))
    with pytest.raises(SchemaError, match="session: the input has a column 'window' already"):
        SessionOperator(schema, 5, ("k",))


def test_a_removal_that_finds_no_row_names_the_cause():
    state = SessionOperator(SCHEMA, 5, ("k",)).empty()
    step(state, [Insert(row("a"), 7, 9)])
    with pytest.raises(StateError, match=r"session: an adjust of the row .* not deterministic"):
        step(state, [Adjust(row("a"), 6, 9, 6)])


def test_a_time_without_room_for_its_gap_is_rejected():
    with pytest.raises(InputError, match="session: the time"):
        step(SessionOperator(SCHEMA, 5, ("k",)).empty(), [Insert(row("a"), 2**63 - 4, FOREVER)])


def test_a_state_of_another_gap_or_key_is_refused():
    parts = SessionOperator(SCHEMA, 5, ("k",)).empty().parts().written
    for other in (SessionOperator(SCHEMA, 6, ("k",)), SessionOperator(SCHEMA, 5, ("x",))):
        with pytest.raises(StateError, match=r"sessions of gap 5 by k.* cannot change"):
            other.from_parts(parts)


# Aggregates by session

FUNCTIONS = st.lists(st.sampled_from([*INVERTIBLE, *BY_VALUE]), min_size=1, unique=True)
GROUPS = [("k", "window"), ("window", "k"), ("k", "x", "window")]


@given(st.data())
def test_aggregates_any_cut_any_restart_on_every_engine(data):
    elements, gap = rows(data), data.draw(GAPS)
    options = {"gap": gap, "by": "k", "functions": data.draw(FUNCTIONS)}
    options["keys"] = data.draw(st.sampled_from([("k",), ("k", "x")]))
    names = ["reference", "kernel", *(["lanes"] if len(elements) % 3 == 0 else [])]
    judge, *engines = [
        testing.engine(name, "sessions", payload=PAYLOAD, check_every=1, **options)
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


@given(st.data())
def test_in_one_step_they_emit_what_two_steps_emit_and_are_final_earlier(data):
    elements, gap = rows(data), data.draw(GAPS)
    keys, functions = data.draw(st.sampled_from(GROUPS)), data.draw(FUNCTIONS)
    first = SessionOperator(SCHEMA, gap, ("k",))
    second = AggregateOperator(first.output, keys, functions, final_at_start=True)
    both = SessionAggregateOperator(first, keys, functions).reporting_final()
    assert both.output == second.output
    sessions, values, state = first.empty(), second.empty(), both.empty()
    made, final = [], []
    for begin, end in cuts(data, len(elements)):
        ours = step(state, elements[begin:end])
        middle = step(sessions, elements[begin:end]).output
        theirs = values.step(Inputs((Arrival("input", middle),)))
        assert counted(to_elements(ours.output)) == counted(to_elements(theirs.output))
        assert ours.frontier == theirs.frontier
        made += to_elements(ours.output)
        final += to_elements(ours.final)
        received = replay(elements[:end]).frontier
        closed = [e for e in History.of(made) if e.end < received or received == FOREVER]
        assert counted(final) == counted(Insert(*e) for e in closed)
        assert state.live <= sessions.live


def test_keys_that_lack_those_of_the_session_are_refused():
    with pytest.raises(
        UsageError, match=r"sessions are those of k, .*\['x', 'window'\] lack k"
    ):
        SessionAggregateOperator(SessionOperator(SCHEMA, 5, ("k",)), ("x", "window"), (COUNT,))
