"""alter_lifetime, hop, windows, inserts, deletes: an event gets the lifetime of its rule."""

from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from trusting_laws import any_cut_any_restart, element_by_element
from unary_laws import streams

from anabranch import testing
from anabranch.batch.batch import FOREVER_UNITS
from anabranch.batch.codec import from_elements, to_elements
from anabranch.batch.schema import ElementSchema, TimeType
from anabranch.errors import InputError, UsageError
from anabranch.model.element import Adjust, Event, Insert, Stable
from anabranch.model.history import History, replay
from anabranch.model.lifetimes import (
    AlterLifetime,
    DurationCapped,
    DurationConstant,
    DurationKept,
    DurationLengthened,
    GridWindows,
    Hop,
    StartKept,
    StartRounded,
    StartShifted,
    sliding,
)
from anabranch.model.time import FOREVER, NEVER
from anabranch.operators.contract import Arrival, Inputs, Route
from anabranch.operators.grid_windows import GridWindowOperator
from anabranch.operators.inserts import DeletesOperator, InsertsOperator
from anabranch.operators.lifetimes import AlterLifetimeOperator
from anabranch.operators.pipeline import PipelineStep, run, with_final
from anabranch.operators.reference.lifetimes import Deletes, Inserts
from anabranch.operators.state.reshape import Reshape

SCHEMA = ElementSchema(TimeType.BIGINT, pa.schema({"name": pa.string()}))
SMALL = st.integers(1, 5)
STARTS = st.one_of(
    st.just(StartKept()),
    st.builds(StartShifted, st.integers(-4, 4)),
    st.builds(StartRounded, SMALL, offset=st.integers(-6, 6)),
)
DURATIONS = st.one_of(
    st.builds(DurationConstant, st.one_of(SMALL, st.just(FOREVER))),
    st.just(DurationKept()),
    st.builds(DurationLengthened, st.integers(0, 6)),
    st.builds(DurationCapped, SMALL),
)


@st.composite
def alters(draw):
    """A pair of rules that the model allows."""
    start, duration = draw(STARTS), draw(DURATIONS)
    try:
        return "alter_lifetime", AlterLifetime(start, duration)
    except UsageError:
        return "alter_lifetime", AlterLifetime(start, DurationConstant(draw(SMALL)))


HOPS = st.tuples(st.just("hop"), st.builds(Hop, SMALL, SMALL))
WINDOWS = st.tuples(
    st.just("window"),
    st.builds(GridWindows, SMALL, SMALL, offset=st.integers(-6, 6), gaps_between=st.just(True)),
)
RULES = st.one_of(alters(), HOPS, WINDOWS)


def history_of(rule, history):
    """The rule on every event, with the window as a column of windows."""
    return History.from_events(
        Event(
            (e.payload, (life.start, life.end)) if isinstance(rule, GridWindows) else e.payload,
            life.start,
            life.end,
        )
        for e in history
        for life in rule.lifetimes(e.start, e.end)
    )


@given(RULES, streams(), st.data())
def test_any_cut_any_restart_the_history_is_that_of_the_rule(named, stream, data):
    name, rule = named
    of = lambda history: history_of(rule, history)  # noqa: E731
    any_cut_any_restart(name, data, stream, of, rule.stable, rule=rule)


@given(RULES, streams())
def test_the_kernel_emits_what_the_reference_emits(named, stream):
    name, rule = named
    element_by_element(name, stream, rule=rule)


@pytest.mark.parametrize(("name", "rule"), [("inserts", Inserts()), ("deletes", Deletes())])
@given(data=st.data())
def test_any_cut_any_restart_of_inserts_and_deletes(name, rule, data):
    stream = data.draw(streams())
    of = lambda history: history_of(rule, history)  # noqa: E731
    any_cut_any_restart(name, data, stream, of, rule.stable)
    element_by_element(name, stream)


@st.composite
def known_ends(draw):
    """A valid stream that inserts, and removes only what its frontier has not passed."""
    stream, live, frontier = [], [], 0
    for _ in range(draw(st.integers(0, 12))):
        what = draw(st.sampled_from(["insert", "insert", "remove", "stable"]))
        free = [event for event in live if event.start >= frontier]
        if what == "stable":
            frontier += draw(st.integers(0, 4))
            stream.append(Stable(frontier))
        elif what == "remove" and free:
            event = draw(st.sampled_from(free))
            live.remove(event)
            stream.append(Adjust(event.payload, event.start, event.end, event.start))
        else:
            start = frontier + draw(st.integers(0, 6))
            end = draw(st.sampled_from([start + 1, start + 3, FOREVER]))
            live.append(Event(draw(st.sampled_from("ab")), start, end))
            stream.append(Insert(*live[-1]))
    return stream


@given(known_ends(), st.data())
def test_deletes_of_known_ends_are_stable_one_unit_further(stream, data):
    rule = Deletes(final_at_start=True)
    of = lambda history: history_of(rule, history)  # noqa: E731
    any_cut_any_restart("deletes", data, stream, of, rule.stable, final_at_start=True)


# Tight: at the output's frontier something may still begin.


@given(RULES, st.integers(-20, 20))
def test_a_rule_passes_the_greatest_stable_that_is_true(named, time):
    """Some legal insert after stable(t) begins just at the output's frontier, none before."""
    name, rule = named
    with testing.engine("kernel", name, rule=rule) as engine:
        engine.push("input", [Stable(time)])
        engine.cut()
        frontier = replay(engine.output).frontier
        later = [Insert(f"{s}", s, s + 1) for s in range(time, time + 25)]
        engine.push("input", later)
        starts = [one.start for one in engine.cut()]
        assert min(starts) == frontier


@given(st.integers(-9, 9))
def test_deletes_and_inserts_pass_the_greatest_stable_that_is_true(time):
    for name, options, element, start in [
        ("inserts", {}, Insert("b", time, time + 1), time),
        ("deletes", {}, Adjust("a", time - 5, time + 5, time), time),
        ("deletes", {"final_at_start": True}, Insert("b", time, time + 1), time + 1),
    ]:
        with testing.engine("kernel", name, **options) as engine:
            engine.push("input", [Insert("a", time - 5, time + 5), Stable(time)])
            engine.cut()
            assert replay(engine.output).frontier == start
            engine.push("input", [element])
            assert start in [one.start for one in engine.cut()]
            assert replay(engine.output).violations == ()


def test_the_ends_of_time_stay_what_they_are():
    for operator in (
        AlterLifetimeOperator(SCHEMA, AlterLifetime(StartShifted(-7))),
        AlterLifetimeOperator(SCHEMA, Hop(6, 4)),
        GridWindowOperator(SCHEMA, GridWindows(6, 4)),
        InsertsOperator(SCHEMA),
        DeletesOperator(SCHEMA, final_at_start=True),
    ):
        state = operator.empty()
        assert state.frontier < -(2**62)
        step(state, [Stable(FOREVER)])
        assert state.frontier == FOREVER_UNITS


# The errata, by name.


def test_c26_an_adjust_that_changes_nothing_is_not_emitted(local_engine):
    with local_engine("alter_lifetime", rule=sliding(3)) as window:
        window.push("input", "insert a 0..6; stable 5")
        window.cut()
        window.push("input", "adjust a 0..6->5")
        assert window.cut() == ()
        assert replay(window.output).violations == ()


@pytest.mark.parametrize(
    ("start", "duration"),
    [
        (StartRounded(10), DurationKept()),
        (StartRounded(10), DurationLengthened(8)),
        (StartRounded(10), DurationCapped(2)),
    ],
    ids=str,
)
def test_c27_a_rule_that_breaks_its_stables_cannot_be_built(start, duration):
    with pytest.raises(UsageError, match="lets an end change before a stable"):
        AlterLifetimeOperator(SCHEMA, AlterLifetime(start, duration))


@given(STARTS, DURATIONS, st.integers(-9, 9), st.integers(1, 9), st.integers(1, 9))
def test_c27_what_is_refused_breaks_a_stable_and_what_is_built_does_not(
    start, duration, begin, one, other
):
    """The condition is exact: an end that moves between e and e' stays behind f(min(e, e'))."""
    low, high = sorted([begin + one, begin + other])
    try:
        rule = AlterLifetime(start, duration)
    except UsageError:
        assert any(breaks(start, duration, s, e) for s in range(12) for e in range(s + 1, 30))
        return
    old, new = (rule.lifetimes(begin, end)[0].end for end in (low, high))
    assert old == new or min(old, new) >= rule.stable(low)


def breaks(start, duration, begin, end):
    """Whether an event of this end, adjusted to a later one, ends behind the stable."""
    image, later = (start.of(begin) + duration.of(e - begin) for e in (end, end + 20))
    return image != later and image < start.of(end)


def test_c28_deletes_follow_the_end(local_engine):
    with local_engine("deletes") as deletes:
        deletes.push("input", "insert a 4..9")
        deletes.cut()
        deletes.push("input", "adjust a 4..9->8")
        deletes.cut()
        assert deletes.history == History.from_events([Event("a", 8, FOREVER)])


@given(st.integers(1, 9), st.integers(1, 9), st.integers(-20, 20))
def test_d15_a_hop_sees_what_started_less_than_the_size_ago(size, slide, start):
    with testing.engine("kernel", "hop", size=size, slide=slide) as hop:
        hop.push("input", [Insert("a", start, FOREVER)])
        hop.cut()
        events = hop.history.events()
    for time in range(-60, 60, slide):
        at = -(-time // slide) * slide
        alive = any(e.start <= at < e.end for e in events)
        assert alive == (at - size < start <= at)


# Windows as a column, and what becomes final when.


def step(state, elements, schema=SCHEMA):
    return state.step(Inputs((Arrival("input", from_elements(elements, schema)),)))


@pytest.mark.parametrize("time", list(TimeType))
def test_the_window_is_a_struct_of_the_stream_s_times(time):
    schema = ElementSchema(time, pa.schema({"n": pa.int64()}))
    operator = GridWindowOperator(schema, GridWindows(10, 5))
    result = step(operator.empty(), [Insert(7, 12, 13), Stable(3)], schema)
    kind = pa.struct([("start", time.arrow), ("end", time.arrow)])
    assert operator.output.payload == pa.schema({"n": pa.int64(), "window": kind})
    assert result.output.payload.schema == operator.output.payload
    column = result.output.payload.column("window").combine_chunks()
    starts = column.field("start").cast(pa.int64()).to_pylist()
    ends = column.field("end").cast(pa.int64()).to_pylist()
    assert (starts[:2], ends[:2]) == ([5, 10], [15, 20])
    assert column.is_null().to_pylist() == [False, False, True]


def test_rows_without_columns_have_windows_too():
    schema = ElementSchema(TimeType.BIGINT, pa.schema([]))
    operator = GridWindowOperator(schema, GridWindows(10, 10))
    result = step(operator.empty(), [Insert((), 12, 13)], schema)
    assert to_elements(result.output) == [Insert((10, 20), 10, 20)]


@pytest.mark.parametrize("name", ["window", "Window"])
def test_a_column_called_window_is_refused(name):
    schema = ElementSchema(TimeType.BIGINT, pa.schema({name: pa.int64()}))
    with pytest.raises(UsageError, match="has a column 'window' already"):
        GridWindowOperator(schema, GridWindows(10, 10))


@given(WINDOWS, known_ends())
def test_a_window_is_final_in_the_step_in_which_the_frontier_reaches_its_end(named, stream):
    _, rule = named
    operator = GridWindowOperator(SCHEMA, rule)
    pipeline = with_final((PipelineStep("window", operator),))
    states = {one.id: one.operator.empty() for one in pipeline}
    found = []
    for count, element in enumerate(stream, start=1):
        arrival = Arrival("input", from_elements([element], SCHEMA))
        for _, _, result in run(pipeline, states, {"input": Inputs((arrival,))}):
            found += [] if result.final is None else to_elements(result.final)
        seen = replay(stream[:count])
        events = history_of(rule, seen.history)
        ended = History.from_events(e for e in events if e.end <= seen.frontier)
        assert History.of(found) == ended


def test_which_outputs_are_final_at_their_start():
    def known(rule, **input_):
        return AlterLifetimeOperator(SCHEMA, rule, **input_).output_final_at_start

    assert known(sliding(3))
    assert known(Hop(3, 2))
    assert known(AlterLifetime(StartRounded(5), DurationCapped(1)))
    assert not known(AlterLifetime())
    assert known(AlterLifetime(StartShifted(3)), final_at_start=True)
    assert GridWindowOperator(SCHEMA, GridWindows(3, 3)).output_final_at_start
    assert InsertsOperator(SCHEMA).output_final_at_start
    assert DeletesOperator(SCHEMA).output_final_at_start


@pytest.mark.parametrize(
    "operator",
    [
        AlterLifetimeOperator(SCHEMA, sliding(10)),
        AlterLifetimeOperator(SCHEMA, AlterLifetime(StartShifted(10))),
        AlterLifetimeOperator(SCHEMA, Hop(8, 2)),
        GridWindowOperator(SCHEMA, GridWindows(8, 2)),
    ],
    ids=lambda operator: operator.name,
)
def test_a_time_that_would_leave_the_line_is_refused(operator):
    far = int(FOREVER_UNITS) - 5
    with pytest.raises(InputError, match=f"{operator.name}: the time {far} cannot move by"):
        step(operator.empty(), [Insert("a", far, FOREVER)])
    # An end that no rule reads may be anywhere.
    step(GridWindowOperator(SCHEMA, GridWindows(8, 2)).empty(), [Insert("a", 0, far)])


def test_a_stable_beyond_the_line_stays_on_it():
    later = AlterLifetimeOperator(SCHEMA, AlterLifetime(StartShifted(10)))
    assert later.passed(int(FOREVER_UNITS) - 2) == FOREVER_UNITS - 1
    assert units(later, NEVER) == -(2**63)


def units(operator, time):
    return operator.passed(-(2**63) if time == NEVER else int(time))


def test_lanes_may_change_their_number_and_columns():
    operator = GridWindowOperator(SCHEMA, GridWindows(4, 2))
    state = operator.empty()
    step(state, [Stable(9)])
    wider = pa.schema({"name": pa.string(), "more": pa.int64()})
    shares = operator.split(state, 3, Route.IDENTITY)
    assert [one.frontier for one in shares] == [state.frontier] * 3
    united = operator.unite(shares, Reshape(SCHEMA.payload, wider))
    assert united.frontier == state.frontier
    united.check()
    made = step(united, [Insert(("a", 1), 10, 11)], replace(SCHEMA, payload=wider))
    assert [one.payload[:2] for one in to_elements(made.output)] == [("a", 1), ("a", 1)]
