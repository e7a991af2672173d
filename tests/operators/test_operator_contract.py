"""What every operator owes its host, as laws: a new operator is one more entry in OPERATORS.

restart     a state that is saved in parts and restored at any step goes on the same
parts       parts since a mark, applied one after the other, are the whole state
arrivals    the order in which the parcels of a trigger reach a lane does not matter
account     every element is in one bucket, and the output is what the buckets explain
"""

import importlib
import inspect
import pkgutil
from collections import Counter
from itertools import groupby, pairwise

import pytest
from contract_entries import OPERATORS, Entry
from hypothesis import given
from hypothesis import strategies as st
from merge_driver import cuts, time_of
from state_store import Store

from anabranch import operators
from anabranch.batch.batch import FOREVER_UNITS, NEVER_UNITS
from anabranch.batch.codec import to_elements
from anabranch.errors import StateError
from anabranch.model.element import Stable
from anabranch.model.equivalence import equivalent_until
from anabranch.model.history import History, replay
from anabranch.operators.contract import Arrival, Attach, Bucket, Detach, Inputs, PassOver
from anabranch.testing.step_account import StepAccount

EXCLUDED = {
    "Operator": "the contract",
    "StatelessOperator": "what operators without a memory have in common",
}
each_operator = pytest.mark.parametrize("name", OPERATORS)


def arrivals_of(entry, arrived):
    """Consecutive elements of one input together."""
    return [
        Arrival(name, entry.batch(name, [element for _, element in some]))
        for name, some in groupby(arrived, key=lambda one: one[0])
    ]


@st.composite
def scripts(draw, entry: Entry, arrived: st.SearchStrategy):
    """What reaches an operator, step by step: elements, and control entries between them."""
    elements = draw(arrived)
    numbers: dict[str, int] = {}
    steps = []
    for begin, end in pairwise([0, *draw(cuts(len(elements)))]):
        if entry.members and draw(st.integers(0, 3)) == 0:
            who = draw(st.sampled_from(["r0", "r1", "r2"]))
            numbers[who] = numbers.get(who, 1) + 1
            guarantee = draw(st.sampled_from([None, 3, FOREVER_UNITS]))
            steps.append(Inputs(control=(Detach(who),)))
            steps.append(Inputs(control=(Attach(who, numbers[who], guarantee),)))
            if draw(st.booleans()):
                steps.append(Inputs(control=(PassOver(who),)))
        some = tuple(
            Arrival(one.input, one.batch, attachment=numbers.get(one.input, 1))
            for one in arrivals_of(entry, elements[begin:end])
        )
        steps.append(Inputs(arrivals=some))
    return steps


def shown(result):
    """All that a caller sees of a step."""
    final = None if result.final is None else Counter(to_elements(result.final))
    reasons = [codes.tolist() for codes in result.reasons]
    resolved = [(one.replica, one.reasons.tolist()) for one in result.resolved]
    counted = result.added_adjusts, result.added_inserts, result.conflicts, result.missing
    lacking = result.lacks, result.alone, result.repeated
    output, rows = to_elements(result.output), rows_of(result)
    frontier, violators = result.frontier, result.violators
    return output, rows, final, reasons, resolved, counted, lacking, frontier, violators


def rows_of(result):
    """What an operator emits whose output is a table of its own."""
    return [] if result.rows is None else result.rows.to_pylist()


@each_operator
@given(st.data())
def test_a_restart_through_parts_at_any_step_changes_nothing(name, data):
    entry = OPERATORS[name]
    state, other, store = entry.operator.empty(), entry.operator.empty(), Store()
    for inputs in data.draw(scripts(entry, entry.anything)):
        assert shown(state.step(inputs)) == shown(other.step(inputs))
        state.check()
        store.save(state)
        if data.draw(st.booleans()):
            state = entry.operator.from_parts(store.parts)
            state.check()
        assert (state.frontier, state.live) == (other.frontier, other.live)
        assert (state.inputs, state.facts) == (other.inputs, other.facts)


@each_operator
@given(st.data())
def test_parts_since_a_mark_add_up_to_the_whole(name, data):
    """Whenever a save happens: what it writes, applied to the saves before, is the state."""
    entry, store = OPERATORS[name], Store()
    state = entry.operator.empty()
    for inputs in data.draw(scripts(entry, entry.anything)):
        state.step(inputs)
        if not data.draw(st.booleans()):
            continue
        store.save(state)
        added, whole = store.parts, state.parts().written
        assert set(added) == set(whole)
        read = [entry.operator.from_parts(parts) for parts in (added, whole)]
        assert read[0].parts().written == read[1].parts().written
        unchanged = state.parts(since=store.mark).written
        assert {part.rpartition("/")[2] for part in unchanged} == {"control"}


@each_operator
@given(st.data())
def test_the_order_of_arrivals_does_not_matter(name, data):
    """Of several inputs that have one history; of the ports of one operator, the parcels."""
    entry = OPERATORS[name]
    arrived = data.draw(entry.valid)
    states = [entry.operator.empty() for _ in range(2)]
    outputs, finals, rows = ([], []), (Counter(), Counter()), ([], [])
    for number in sorted({who for who, _ in arrived}) if entry.members else []:
        for state in states:
            state.step(Inputs(control=(Attach(number),)))
    for begin, end in pairwise([0, *data.draw(cuts(len(arrived)))]):
        first, last = parcels_of(entry, arrived[begin:end])
        shuffled = data.draw(st.permutations(first)) + data.draw(st.permutations(last))
        for at, (state, some) in enumerate(zip(states, (first + last, shuffled), strict=True)):
            result = state.step(Inputs(arrivals=tuple(some)))
            state.check()
            outputs[at].extend(to_elements(result.output))
            finals[at].update(to_elements(result.final) if result.final is not None else [])
            rows[at].extend(sorted(map(repr, rows_of(result))))
        assert states[0].frontier == states[1].frontier
        assert (finals[0], rows[0]) == (finals[1], rows[1])
        one, other = (replay(output) for output in outputs)
        assert one.violations == other.violations == ()
        frontier = time_of(states[0].frontier)
        assert equivalent_until(one.history, other.history, frontier)
    assert History.of(outputs[0]) == History.of(outputs[1])


def parcels_of(entry, arrived):
    """The arrivals of a trigger, in two lots; within each they may come in any order.

    Of an operator whose inputs are replicas, one for each of them.  Else the data of each port
    by payload, as the lanes before it would send it; then the stables of each port.
    """
    streams = {who: [e for name, e in arrived if name == who] for who, _ in arrived}
    if entry.members or entry.in_order:
        return [Arrival(who, entry.batch(who, some)) for who, some in streams.items()], []
    data, stables = [], []
    for who, some in streams.items():
        payloads = dict.fromkeys(e.payload for e in some if not isinstance(e, Stable))
        of = {
            p: [e for e in some if not isinstance(e, Stable) and e.payload == p]
            for p in payloads
        }
        data += [Arrival(who, entry.batch(who, mine)) for mine in of.values()]
        stables.append(
            Arrival(who, entry.batch(who, [e for e in some if isinstance(e, Stable)]))
        )
    return data, stables


@each_operator
@given(st.data())
def test_the_buckets_add_up_to_the_input(name, data):
    entry, account, came = OPERATORS[name], StepAccount(), Counter()
    state = entry.operator.empty()
    for inputs in data.draw(scripts(entry, entry.anything)):
        result = state.step(inputs)
        assert len(result.buckets) == len(inputs.arrivals)
        account.add(inputs.arrivals, result)
        assert account.adds_up, account
        assert result.frontier == state.frontier
        for arrival in inputs.arrivals:
            came[arrival.input] += len(arrival.batch)
    assert +account.elements == +came
    assert sum(account.bucket(bucket) for bucket in Bucket) == came.total()


@each_operator
def test_a_step_of_nothing_and_a_spec_that_describes_itself(name):
    entry = OPERATORS[name]
    operator = entry.operator
    state = operator.empty()
    result = state.step(Inputs())
    assert (len(result.output), rows_of(result)) == (0, [])
    assert (result.buckets, result.frontier) == ((), NEVER_UNITS)
    assert state.live == 0
    assert operator.name
    made = operator.output if entry.emits_rows else operator.output.payload
    assert (result.rows is None) != entry.emits_rows
    assert tuple(operator.route_columns) == entry.keys
    first = list(entry.keys or operator.schema.payload.names)
    assert made.names[: len(first)] == first


def test_every_operator_has_an_entry():
    """Each class of the room whose name ends with Operator, but for those that are none."""
    modules = [
        importlib.import_module(one.name)
        for one in pkgutil.walk_packages(operators.__path__, f"{operators.__name__}.")
    ]
    found = {
        name
        for module in modules
        for name, kind in inspect.getmembers(module, inspect.isclass)
        if name.endswith("Operator") and kind.__module__ == module.__name__
    }
    listed = {type(entry.operator).__name__ for entry in OPERATORS.values()}
    assert found == listed | EXCLUDED.keys()
    assert not listed & EXCLUDED.keys()


@each_operator
def test_what_is_not_of_this_operator_is_refused_by_name(name):
    operator = OPERATORS[name].operator
    foreign = next(e.operator for e in OPERATORS.values() if e.operator.name != operator.name)
    with pytest.raises(StateError, match=r"the state is 'anabranch .*, this program reads"):
        operator.from_parts(foreign.empty().parts().written)
    with pytest.raises(StateError, match="no part 'control'"):
        operator.from_parts({})
