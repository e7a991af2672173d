"""Several runs in one state: each is as if it were alone, also after a restart from parts."""

import pytest

from anabranch.batch.codec import from_elements, to_elements
from anabranch.batch.schema import ElementSchema, TimeType
from anabranch.model.notation import parse
from anabranch.operators.contract import Arrival, Attach, Detach, Inputs
from anabranch.testing import engine
from anabranch.testing.element_lines import crossing
from anabranch.testing.engine import TEXT
from anabranch.testing.operators import OPERATORS
from anabranch.testing.several import SeveralOperator, emitted, name_in

SCHEMA = ElementSchema(TimeType.BIGINT, TEXT)
RUNS = (
    ("merge", {"case": "r3", "policy": "violations=detach"}),
    ("merge", {"case": "r0"}),
    ("final", {}),
    ("union", {}),
)
TURNS = (
    [(0, "east", "insert a 3..9"), (0, "west", "insert a 3..7"), (2, "0", "insert b 1..4")],
    [
        (0, "west", "stable 8"),
        (3, "east", "insert a 1..2; insert a 1..2"),
        (2, "0", "stable 9"),
    ],
    [(1, "east", "insert c 1..2; insert d 1..3"), (0, "east", "insert z 1..2; stable 9")],
    [(3, "east", "stable 4"), (1, "west", "insert c 1..2; stable 2"), (0, "west", "stable 10")],
)


def several():
    operators = tuple(OPERATORS[name].operator(SCHEMA, options) for name, options in RUNS)
    return SeveralOperator(SCHEMA, operators, finals=frozenset([2]))


def alone(number):
    name, options = RUNS[number]
    with engine("kernel", name, **options) as running:
        for turn in TURNS:
            for run, replica, text in turn:
                if run == number:
                    running.push(replica, text)
            running.cut()
        return list(running.output)


def arrivals(turn):
    return tuple(
        Arrival(name_in(run, replica), from_elements(map(crossing, parse(text)), SCHEMA))
        for run, replica, text in turn
    )


@pytest.mark.parametrize("restarts", [False, True])
def test_each_run_is_as_if_it_were_alone(restarts):
    operator = several()
    state, stored, mark, found = operator.empty(), {}, None, []
    for turn in TURNS:
        result = state.step(Inputs(arrivals(turn)))
        assert [len(one) for one in result.buckets] == [len(parse(t)) for _, _, t in turn]
        found += emitted(to_elements(result.output))
        for name in result.violators:
            state.step(Inputs(control=(Detach(name),)))
        saved = state.parts(since=mark)
        stored |= saved.written
        for name in saved.deleted:
            stored.pop(name, None)
        mark = saved.mark
        state.check()
        if restarts:
            state = operator.from_parts(stored)
    for number in range(len(RUNS)):
        assert [one for run, one in found if run == number] == alone(number)
    assert any(found)


def test_inputs_and_violators_have_the_names_of_the_query():
    state = several().empty()
    state.step(Inputs(control=(Attach("0:east"), Attach("3:east"))))
    assert [one.name for one in state.inputs] == ["0:east", "3:east"]
    result = state.step(Inputs(arrivals([(0, "east", "insert a 9..1")])))
    assert result.violators == ("0:east",)
    state.step(Inputs(control=(Detach("0:east"),)))
    assert [one.name for one in state.inputs] == ["3:east"]


def test_a_save_writes_the_runs_that_changed():
    state = several().empty()
    first = state.parts()
    state.step(Inputs(arrivals([(2, "0", "insert a 1..2")])))
    then = state.parts(since=first.mark)
    assert {name.split("/")[0] for name in first.written} == {"0", "1", "2", "3", "marks"}
    assert {name.split("/")[0] for name in then.written} == {"2", "marks"}
