"""What operators state of their output: never more than their kernels show, at any cut."""

from itertools import groupby, pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_operator_properties import DISORDERED, kept, promised, replicas_of_a_case
from unary_laws import cuts

from anabranch import testing
from anabranch.batch.codec import from_elements, to_elements
from anabranch.batch.schema import ElementSchema, TimeType
from anabranch.model.notation import parse
from anabranch.model.properties import MergeCase, StreamProperties, cheapest, observe
from anabranch.operators.align import AlignOperator
from anabranch.operators.by_key.keyed import KeyedOperator
from anabranch.operators.contract import Arrival, Inputs
from anabranch.operators.key import Key
from anabranch.operators.union import UnionOperator
from anabranch.operators.union_of import UnionOfOperator
from anabranch.plan.properties import unordered
from anabranch.testing.operators import OPERATORS
from anabranch.testing.strategies import interleavings, replicas

SCHEMA = ElementSchema(TimeType.BIGINT, pa.schema({"payload": pa.string()}))
R0 = StreamProperties(insert_only=True, strictly_increasing=True)
R1 = StreamProperties(insert_only=True, ordered=True, ties_in_same_order=True)
R2 = StreamProperties(insert_only=True, ordered=True, keyed=True)
R3 = StreamProperties(keyed=True)
INSERTS = StreamProperties(insert_only=True)

ROUNDED = {"start": "rounded 4", "duration": "constant 4"}
GAPS = {"size": 2, "slide": 4, "gaps_between": True}
ONE_INPUT = [
    # the operator, its options, and what it states of inputs of R0, R1 and R3
    ("alter_lifetime", {}, (R0, R1, R3)),
    ("alter_lifetime", {"start": "shifted -3", "duration": "capped 4"}, (R0, R1, R3)),
    ("alter_lifetime", ROUNDED, (R1, R1, DISORDERED)),
    ("hop", {"size": 6, "slide": 4}, (R1, R1, DISORDERED)),
    ("window", {"size": 4}, (R1, R1, DISORDERED)),
    ("window", GAPS, (R1, R1, DISORDERED)),
    ("window", {"size": 6, "slide": 4}, (INSERTS, INSERTS, DISORDERED)),
    ("inserts", {}, (R0, R1, R3)),
    ("deletes", {}, (INSERTS, INSERTS, DISORDERED)),
    ("aggregate", {}, (R3, R3, R3)),
    ("aggregate", {"keys": ("payload",)}, (R3, R3, R3)),
    ("aggregate", {"emit": "ordered"}, (R3, R3, R3)),
    ("aggregate", {"emit": "passed"}, (R0, R0, R3)),
    ("aggregate", {"emit": "passed", "cut_every": 3}, (R0, R0, R3)),
    (
        "aggregate",
        {"keys": ("payload",), "emit": "passed"},
        (
            StreamProperties(insert_only=True, keyed=True),
            StreamProperties(insert_only=True, keyed=True),
            R3,
        ),
    ),
    (
        "panes",
        {"size": 6, "slide": 4, "keys": ("payload",), "emit": "passed"},
        (R2, R2, R2),
    ),
    ("panes", {"size": 6, "slide": 4, "keys": ("payload",)}, (R3, R3, R3)),
    ("top_k", {"k": 1, "by": "payload"}, (R3, R3, R3)),
    ("top_k", {"k": 2, "by": "-payload"}, (DISORDERED, DISORDERED, DISORDERED)),
    ("session", {"gap": 2, "by": "payload"}, (DISORDERED, DISORDERED, DISORDERED)),
    ("sessions", {"gap": 2, "by": "payload"}, (R3, R3, R3)),
    ("distinct", {}, (R3, R3, R3)),
    ("normalise", {}, (R3, DISORDERED, R3)),
    (
        "replaced_by",
        {"keys": "payload"},
        (
            StreamProperties(strictly_increasing=True),
            StreamProperties(ordered=True, keyed=True),
            R3,
        ),
    ),
    (
        "replaced_by",
        {},
        (
            StreamProperties(strictly_increasing=True),
            StreamProperties(ordered=True, keyed=True),
            R3,
        ),
    ),
    (
        "cleanse",
        {},
        (
            R0,
            R1,
            StreamProperties(
                insert_only=True, ordered=True, ties_in_same_order=True, keyed=True
            ),
        ),
    ),
    ("align", {}, (R0, R1, StreamProperties(ordered=True, keyed=True))),
    ("hold", {}, (R0, R1, StreamProperties(ordered=True, keyed=True))),
    ("hold", {"wait": 2}, (StreamProperties(insert_only=True, keyed=True), INSERTS, R3)),
    (
        "hold",
        {"release": "final"},
        (
            R0,
            R1,
            StreamProperties(
                insert_only=True, ordered=True, ties_in_same_order=True, keyed=True
            ),
        ),
    ),
    (
        "final",
        {},
        (
            StreamProperties(insert_only=True, keyed=True),
            INSERTS,
            StreamProperties(insert_only=True, keyed=True),
        ),
    ),
]
NAMES = [f"{name} {' '.join(map(str, options.values()))}" for name, options, _ in ONE_INPUT]


def made(name, options):
    return OPERATORS[name].operator(SCHEMA, options)


def emitted(engine, name, options, turns, ends):
    """What an engine emits for arrivals (input, element) that are cut there."""
    with testing.engine(engine, name, **options) as running:
        for begin, end in pairwise([0, *ends]):
            for port, element in turns[begin:end]:
                running.push(port, [element])
            running.cut()
        return list(running.output)


def outputs_of(data, engine, name, options, inputs):
    """What each of these replicas gives, cut anywhere."""
    return [
        emitted(engine, name, options, [("input", e) for e in s], data.draw(cuts(len(s))))
        for s in inputs
    ]


@pytest.mark.parametrize(("name", "options", "states"), ONE_INPUT, ids=NAMES)
def test_what_operators_of_one_input_state(name, options, states):
    operator = made(name, options)
    assert tuple(operator.properties(known) for known in (R0, R1, R3)) == states


@pytest.mark.parametrize(("name", "options", "states"), ONE_INPUT, ids=NAMES)
@given(st.data(), replicas_of_a_case)
def test_kernels_keep_what_operators_of_one_input_state(name, options, states, data, drawn):
    case, inputs = drawn
    known = promised(case, inputs)
    assert kept(
        made(name, options).properties(known), outputs_of(data, "kernel", name, options, inputs)
    )


FROM_KNOWN_ENDS = [MergeCase.R0, MergeCase.R1, MergeCase.R2]


@given(st.data(), st.sampled_from(FROM_KNOWN_ENDS))
def test_where_ends_are_known_final_events_come_in_order(data, case):
    inputs = data.draw(replicas(case=case, truncated=True))
    options = {"final_at_start": True}
    stated = made("final", options).properties(observe(inputs))
    assert stated.ordered
    assert stated.ties_in_same_order
    assert kept(stated, outputs_of(data, "kernel", "final", options, inputs))


def test_align_where_ends_are_known_adjusts_nothing():
    known = AlignOperator(SCHEMA, final_at_start=True).properties(R3)
    assert cheapest(known) is MergeCase.R1


OF_TWO = [
    ("difference", {}, DISORDERED),
    ("join", {"how": "inner"}, INSERTS),
    ("join", {"how": "left"}, DISORDERED),
    ("join", {"how": "semi"}, DISORDERED),
    ("join", {"how": "anti"}, DISORDERED),
    ("union", {}, INSERTS),
]


def both_sides(data):
    """Replicas of two streams: what they promise, and the arrivals of each copy of both."""
    sides = []
    for _ in range(2):
        case = data.draw(st.sampled_from(MergeCase))
        inputs = data.draw(replicas(case=case, min_inputs=2, max_inputs=2, truncated=True))
        sides.append((promised(case, inputs), inputs))
    (left, mine), (right, its) = sides
    turns = [data.draw(interleavings(pair)) for pair in zip(mine, its, strict=True)]
    return (left, right), turns


@pytest.mark.parametrize(("name", "options", "states"), OF_TWO)
@given(st.data())
def test_kernels_keep_what_operators_of_two_inputs_state(name, options, states, data):
    operator = made(name, options)
    assert operator.properties(R0, R0) == states
    known, dealt = both_sides(data)
    outputs = []
    for one in dealt:
        turns = [(("left", "right")[number], element) for number, element in one]
        outputs.append(emitted("kernel", name, options, turns, data.draw(cuts(len(turns)))))
    assert kept(operator.properties(*known), outputs)


def stepped(operator, turns, ends):
    """What the state of an operator emits, with no engine around it."""
    state, found = operator.empty(), []
    for begin, end in pairwise([0, *ends]):
        arrivals = [
            Arrival(port, from_elements([e for _, e in some], SCHEMA))
            for port, some in groupby(turns[begin:end], key=lambda turn: turn[0])
        ]
        found += to_elements(state.step(Inputs(tuple(arrivals))).output)
    return found


@given(st.data())
def test_a_union_inside_a_query_keeps_what_it_states(data):
    case, inputs = data.draw(replicas_of_a_case)
    alone = UnionOfOperator(SCHEMA)
    outputs = [
        stepped(alone, [("input", e) for e in s], data.draw(cuts(len(s)))) for s in inputs
    ]
    assert alone.properties(R1) == R1
    assert kept(alone.properties(promised(case, inputs)), outputs)
    known, dealt = both_sides(data)
    two = UnionOfOperator(SCHEMA, ("left", "right"))
    outputs = [
        stepped(two, [(("left", "right")[n], e) for n, e in one], data.draw(cuts(len(one))))
        for one in dealt
    ]
    assert two.properties(R0, R0) == INSERTS
    assert kept(two.properties(*known), outputs)


@given(st.data(), st.sampled_from(MergeCase))
def test_merges_keep_what_they_state(data, case):
    inputs = data.draw(replicas(case=case, truncated=True))
    options = {"case": case.value}
    outputs = []
    for _ in range(2):
        turns = [(f"r{n}", e) for n, e in data.draw(interleavings(inputs))]
        ends = data.draw(cuts(len(turns)))
        outputs.append(emitted("kernel", "merge", options, turns, ends))
    stated = made("merge", options).properties(*(promised(case, inputs) for _ in inputs))
    assert cheapest(stated) in (case, MergeCase.R0)
    assert kept(stated, outputs)


def test_a_key_makes_inputs_keyed():
    union, key = UnionOperator(SCHEMA), Key(("payload",), with_start=False, drops=False)
    assert KeyedOperator(union, key).properties(INSERTS) == StreamProperties(
        insert_only=True, keyed=True
    )
    assert KeyedOperator(union, key).properties(INSERTS, INSERTS) == INSERTS
    plain = UnionOperator(SCHEMA, insert_only=True)
    assert plain.properties(DISORDERED, R3) == INSERTS


NOT_IN_ORDER = [
    # the operator, its options, and an input in order, of which each element is a step
    ("window", {"size": 6, "slide": 4}, "insert a 5..6; insert b 5..6"),
    ("deletes", {}, "insert a 1..9; insert b 2..3"),
    ("final", {}, "insert a 1..9; insert b 2..3; stable 5; stable 20"),
    ("replaced_by", {}, "insert a 1..9; insert b 1..9; insert c 3..9; adjust b 1..9->1"),
    ("distinct", {}, "insert a 1..9; insert a 2..9; insert b 3..9; adjust a 1..9->1"),
]


@pytest.mark.parametrize(("name", "options", "text"), NOT_IN_ORDER)
def test_an_input_in_order_need_not_give_order(name, options, text):
    stream = parse(text)
    known = observe([stream])
    assert known.ordered
    steps = range(1, len(stream) + 1)
    output = emitted("kernel", name, options, [("input", e) for e in stream], steps)
    assert not observe([output]).ordered
    assert kept(made(name, options).properties(known), [output])


@pytest.mark.parametrize("name", ["alter_lifetime", "inserts"])
def test_ties_of_a_step_with_adjusts_are_in_another_order(name):
    """Two letters in both orders: one of them is not the order in which a step has them."""
    found = set()
    for letters in ("ab", "ba"):
        stream = parse(f"insert {letters[0]} 1..9; insert {letters[1]} 1..9; insert x 2..5")
        stream += parse("adjust x 2..5->2; insert c 2..5")
        turns = [("input", e) for e in stream]
        known = observe([stream])
        assert known.ties_in_same_order
        outputs = [emitted("kernel", name, {}, turns, ends) for ends in ([5], [3, 4, 5])]
        assert kept(made(name, {}).properties(known), outputs)
        found.add(observe(outputs).ties_in_same_order)
    assert False in found


def test_align_shows_ends_that_differ():
    streams = [
        parse("insert a 1..5; insert b 1..7; stable 2; adjust a 1..5->9"),
        parse("insert b 1..7; insert a 1..9; stable 2"),
    ]
    outputs = [
        emitted("kernel", "align", {}, [("input", e) for e in one], [len(one)])
        for one in (streams[0][:3], streams[1])
    ]
    assert not observe(outputs).ties_in_same_order
    assert kept(made("align", {}).properties(observe(streams)), outputs)


@pytest.mark.parametrize("name", ["alter_lifetime", "aggregate", "distinct", "replaced_by"])
@given(st.data(), replicas_of_a_case)
def test_lanes_keep_what_is_left_without_order(name, data, drawn):
    case, inputs = drawn
    options = next(one[1] for one in ONE_INPUT if one[0] == name)
    stated = unordered(made(name, options).properties(unordered(promised(case, inputs))))
    assert kept(stated, outputs_of(data, "lanes", name, options, inputs[:1]))
