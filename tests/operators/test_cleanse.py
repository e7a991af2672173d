"""Laws of cleanse: only final events, in one order, on every engine."""

import math
from datetime import UTC, date, datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from unary_laws import (
    any_cut_any_restart,
    bags,
    broken_streams,
    element_by_element,
    streams,
    whole,
)

from anabranch import testing
from anabranch.batch.codec import from_elements
from anabranch.batch.schema import ElementSchema, TimeType
from anabranch.model.element import Insert, Stable
from anabranch.model.frozen import Status, status
from anabranch.model.history import History, replay
from anabranch.model.notation import parse
from anabranch.model.properties import (
    MergeCase,
    StreamProperties,
    cheapest,
    missing_for,
    observe,
)
from anabranch.model.time import FOREVER
from anabranch.operators.cleanse import CleanseState, after_cleanse, release_order
from anabranch.operators.contract import Arrival, Inputs
from anabranch.operators.reference.cleanse import payload_order
from anabranch.testing.strategies import interleavings, presentations, replicas

SCHEMA = ElementSchema(TimeType.BIGINT, pa.schema({"p": pa.string()}))


def step(state, elements):
    return state.step(Inputs((Arrival("input", from_elements(elements, SCHEMA)),)))


def run(stream):
    return whole(testing.engine("reference", "cleanse", check_every=1_000), stream)


def events(output):
    return [element.event for element in output if isinstance(element, Insert)]


def released_of(seen):
    """The output's frontier and history, from the definition."""
    waiting = [
        event.start
        for event in seen.history
        if status(event.start, event.end, frontier=seen.frontier) is not Status.FROZEN
    ]
    bound = min([seen.frontier, *waiting])
    final = [e for e in seen.history if e.start < bound or bound == FOREVER]
    return bound, History.from_events(final)


def judge(engine, seen):
    out = replay(engine.output)
    assert out.violations == ()
    assert (out.frontier, out.history) == released_of(seen)
    assert all(isinstance(element, Insert | Stable) for element in engine.output)
    order = [(e.start, e.payload, e.end) for e in events(engine.output)]
    assert order == sorted(order)


@given(broken_streams())
def test_output_is_valid_ordered_and_the_final_part_at_every_prefix(stream):
    """On the reference, and the kernel emits and remembers the same after every element."""
    element_by_element("cleanse", stream, judge, same_live=True)


@given(st.data())
def test_any_cut_any_restart_same_sequence(data):
    """In one lane: several have an order and a frontier each."""
    any_cut_any_restart("cleanse", data, judge, lanes=1)


@given(streams())
def test_at_the_end_nothing_is_lost_and_nothing_waits(stream):
    output = run(stream)
    assert History.of(output) == History.of(stream)
    assert output[-1] == Stable(FOREVER)


@given(st.data())
def test_presentations_of_one_history_give_prefixes_of_one_sequence(data):
    truth = data.draw(bags())
    one, other = (
        events(run(data.draw(presentations(truth, case=MergeCase.R4, closed=False))))
        for _ in range(2)
    )
    common = min(len(one), len(other))
    assert one[:common] == other[:common]


@pytest.mark.parametrize("case", MergeCase)
@given(st.data())
def test_the_output_has_the_properties_that_are_promised(case, data):
    stream = data.draw(streams(case))
    promised = after_cleanse(observe([stream])).to_dict()
    held = observe([run(stream)]).to_dict()
    assert all(held[name] for name, promise in promised.items() if promise)


def test_what_cleanse_makes_of_properties():
    assert cheapest(after_cleanse(StreamProperties())) is MergeCase.R1
    assert after_cleanse(StreamProperties(keyed=True)).keyed
    strict = StreamProperties(strictly_increasing=True)
    assert cheapest(after_cleanse(strict)) is MergeCase.R0


@pytest.mark.parametrize("case", ["r1", "r4"], ids=["C+LM R1", "C+LM R4"])
@given(st.data())
def test_lmerge_section_6_d_cleanse_in_front_of_each_input(case, data):
    streams = data.draw(replicas(case=MergeCase.R4, history=bags()))
    inputs = [run(stream) for stream in streams]
    assert missing_for(observe(inputs), MergeCase.R1) == ()
    with testing.engine("reference", case=case) as merge:
        for number in range(len(inputs)):
            merge.attach(str(number))
        for number, element in data.draw(interleavings(inputs)):
            merge.push(str(number), [element])
            merge.cut()
            assert replay(merge.output).violations == ()
    assert merge.history == History.of(streams[0])
    assert events(merge.output) == events(max(inputs, key=len))


def test_erratum_l13_order_and_stable_are_kept():
    output = run(parse("insert a 1..9; insert b 2..3; stable 4; stable 10"))
    assert output == parse("stable 1; insert a 1..9; insert b 2..3; stable 10")


def test_erratum_l13_equal_starts_come_in_one_order_wherever_the_stables_are():
    one = run(parse("insert a 1..9; insert b 1..3; stable 4; stable 10"))
    other = run(parse("insert b 1..3; insert a 1..9; stable 10"))
    assert events(one) == events(other)


def test_erratum_l13_an_event_without_end_blocks_what_is_behind_it(local_engine):
    with local_engine("cleanse", lanes=1) as cleanse:
        cleanse.push("input", "insert a 1..forever; insert b 2..3")
        assert cleanse.cut() == ()
        cleanse.push("input", [Stable(1_000_000)])
        assert cleanse.cut() == (Stable(1),)
        cleanse.push("input", [Stable(2_000_000)])
        assert cleanse.cut() == ()
        cleanse.push("input", [Stable(FOREVER)])
        assert events(cleanse.cut()) == [Insert("a", 1, FOREVER).event, Insert("b", 2, 3).event]


def test_state_forgets_what_is_released():
    state = CleanseState(SCHEMA)
    for time in range(0, 40_000, 40):
        some = [Insert(f"p{i}", time + i, time + i + 90) for i in range(40)]
        step(state, [*some, Stable(time)])
    state.check()
    assert state.live < 200
    assert state.groups.stored < 3_000
    assert len(state.line) < 200
    step(state, [Stable(FOREVER)])
    assert state.live == 0
    assert repr(state).startswith("CleanseState(")


def test_a_blocked_step_looks_at_nothing_but_what_passes_the_frontier():
    state = CleanseState(SCHEMA)
    step(state, [Insert("blocks", 0, FOREVER)])
    visits = []
    for time in range(1, 50):
        some = [Insert(f"p{time}-{i}", time, time + 1) for i in range(10)]
        visits.append(step(state, [*some, Stable(time)]).counts["visits"])
    assert visits == [1] + [10] * 48
    state.check()


KINDS = {
    "float": (pa.float64(), [1.5, -math.inf, math.inf, math.nan, 0.0, None]),
    "int": (pa.int64(), [10, 9, -1, None]),
    "text": (pa.string(), ["b", "a", "ab", "", "ä", "Z", "'", None]),
    "binary": (pa.binary(), [b"b", b"a", b"\xff", None]),
    "decimal": (pa.decimal128(5, 2), [Decimal("1.50"), Decimal("-2.00"), None]),
    "instant": (pa.timestamp("us", "UTC"), [datetime(2026, m, 1, tzinfo=UTC) for m in (3, 1)]),
    "date": (pa.date32(), [date(2026, 3, 1), date(2025, 3, 1), None]),
    "boolean": (pa.bool_(), [True, False, None]),
    "struct": (pa.struct({"x": pa.int8(), "y": pa.string()}), [(1, "b"), (1, "a"), (0, "z")]),
}


@pytest.mark.parametrize("kind", KINDS)
@given(st.randoms(use_true_random=False))
def test_kernel_orders_payloads_as_the_reference_does(kind, random):
    arrow, values = KINDS[kind]
    stream = [Insert(value, 1, end) for value in values for end in (3, 2)]
    random.shuffle(stream)
    kernel = testing.engine("kernel", "cleanse", payload=pa.schema({"p": arrow}))
    output = whole(kernel, [*stream, Stable(9)])
    expected = sorted(stream, key=lambda e: (payload_order(e.payload), e.end))
    emitted, ordered = (
        [(payload_order(e.payload), e.end) for e in some] for some in (output[:-1], expected)
    )
    assert emitted == ordered


NESTED = pa.schema(
    {"l": pa.list_(pa.int8()), "s": pa.struct({"x": pa.list_(pa.float64())}), "h": pa.float16()}
)


@given(st.permutations(range(8)))
def test_what_arrow_cannot_order_has_one_order_too(order):
    lists = pa.array([[1], [2], [], None, [1, 2], [2, 1], [0], [None]], NESTED.field("l").type)
    structs = pa.array(
        [{"x": None}, None, {"x": [0.0]}, {"x": []}, {"x": [1.0]}, None, {"x": [2.0]}, None],
        NESTED.field("s").type,
    )
    halves = pa.array(np.zeros(8, np.float16))
    table = pa.table([lists, structs, halves], schema=NESTED)
    start, end = np.ones(8, np.int64), np.full(8, 5)
    known = table.take(release_order(start, table, end)).to_pylist()
    shuffled = table.take(pa.array(order))
    assert shuffled.take(release_order(start, shuffled, end)).to_pylist() == known


def test_zeros_and_nans_of_any_sign_are_one_payload_in_the_order():
    values = pa.array([0.0, -0.0, math.nan, -math.nan, 0.0, -0.0])
    end = np.array([5, 4, 8, 7, 3, 2])
    order = release_order(np.ones(6, np.int64), pa.table({"p": values}), end)
    assert order.tolist() == [5, 4, 1, 0, 3, 2]


def test_without_payload_columns_the_order_is_start_and_end():
    stream = [Insert((), 2, 3), Insert((), 1, 5), Insert((), 1, 4), Stable(9)]
    output = whole(testing.engine("kernel", "cleanse", payload=pa.schema({})), stream)
    assert output == [Insert((), 1, 4), Insert((), 1, 5), Insert((), 2, 3), Stable(9)]


def test_payloads_of_mixed_kinds_have_an_order():
    values = [None, (1, None), frozenset({1}), b"x", "x", 2, True, date(2026, 1, 1), math.nan]
    ranked = [repr(value) for value in sorted(values, key=payload_order)]
    assert ranked[:4] == ["True", "2", "nan", "'x'"]
    assert ranked[-3:] == ["(1, None)", "frozenset({1})", "None"]
