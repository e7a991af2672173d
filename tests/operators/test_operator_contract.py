"""What every operator owes its host, as laws: a new operator is one more entry in OPERATORS.

restart     a state that is saved in parts and restored at any step goes on the same
parts       parts since a mark, applied one after the other, are the whole state
arrivals    the order in which the parcels of a trigger reach a lane does not matter
account     every element is in one bucket, and the output is what the buckets explain
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from merge_driver import SCHEMA, batch_of, cuts, runs
from merge_r4_driver import conflicting_r4
from ordered_driver import ordered_conflicts
from state_store import Store
from unary_laws import broken_streams, streams

from anabranch.batch.batch import FOREVER_UNITS, NEVER_UNITS
from anabranch.batch.codec import to_elements
from anabranch.errors import StateError
from anabranch.model.element import Stable
from anabranch.model.equivalence import equivalent_until
from anabranch.model.history import History, replay
from anabranch.model.lifetimes import (
    AlterLifetime,
    DurationConstant,
    GridWindows,
    Hop,
    StartRounded,
)
from anabranch.model.properties import MergeCase
from anabranch.model.time import FOREVER, NEVER
from anabranch.operators.aggregate.functions import Aggregate
from anabranch.operators.aggregate.panes import PaneAggregateOperator
from anabranch.operators.aggregate.sessions import SessionAggregateOperator
from anabranch.operators.align import AlignOperator
from anabranch.operators.cleanse import CleanseOperator
from anabranch.operators.contract import Arrival, Attach, Bucket, Detach, Inputs, Operator
from anabranch.operators.grid_windows import GridWindowOperator
from anabranch.operators.inserts import DeletesOperator, InsertsOperator
from anabranch.operators.lifetimes import AlterLifetimeOperator
from anabranch.operators.merge.choose import choose
from anabranch.operators.merge.merge import MergeOperator
from anabranch.operators.merge.policy import Policy
from anabranch.operators.normalise import NormaliseOperator
from anabranch.operators.replaced_by import ReplacedByOperator
from anabranch.operators.report_final import ReportFinalOperator
from anabranch.operators.session import SessionOperator
from anabranch.operators.top_k import TopKOperator
from anabranch.operators.union import UnionOperator
from anabranch.testing.step_account import StepAccount
from anabranch.testing.strategies import conflicting_arrivals, interleavings, replicas


@dataclass(frozen=True)
class Entry:
    """An operator; what may come, and inputs that keep their promises and have one history.

    Both are strategies of (number of the input, element), in the order of arrival.
    `members`: inputs attach and detach.  `keys`: the columns that choose the lane.
    """

    operator: Operator
    anything: st.SearchStrategy
    valid: st.SearchStrategy
    members: bool = False
    keys: tuple[str, ...] = ()


def merge(
    case: MergeCase | None, anything: st.SearchStrategy, policy: str = "default"
) -> Entry:
    choice = choose({"any": None}, asked=case)
    operator = MergeOperator.of(SCHEMA, choice, Policy.parse(policy))
    valid = replicas(case=case or MergeCase.R4).flatmap(interleavings)
    return Entry(operator, anything, valid, members=True)


def unary(of: Callable[..., Operator]) -> Entry:
    def alone(stream):
        return [(0, element) for element in stream]

    return Entry(of(SCHEMA), broken_streams().map(alone), streams().map(alone))


def trusting(operator: Operator, keys: tuple[str, ...] = ()) -> Entry:
    """An operator inside a query: its input was validated."""
    valid = streams().map(lambda stream: [(0, element) for element in stream])
    return Entry(operator, valid, valid, keys=keys)


def union(operator: Operator, case: MergeCase = MergeCase.R4) -> Entry:
    valid = replicas(case=case).flatmap(interleavings)
    return Entry(operator, conflicting_r4, valid, members=True)


POLICIES = [
    "stable_lag=2",
    "adjusts=always",
    "inserts=half_frozen",
    "inserts=quorum(0.5),adjusts=follow_leader",
    "promote=true",
]
OPERATORS: dict[str, Entry] = {
    "merge r0": merge(MergeCase.R0, ordered_conflicts(MergeCase.R0)),
    "merge r1": merge(MergeCase.R1, ordered_conflicts(MergeCase.R1)),
    "merge r2": merge(MergeCase.R2, ordered_conflicts(MergeCase.R2)),
    "merge r3": merge(MergeCase.R3, conflicting_arrivals()),
    "merge r4": merge(MergeCase.R4, conflicting_r4),
    "merge auto": merge(None, conflicting_r4),
    **{
        f"merge r3 {policy}": merge(MergeCase.R3, conflicting_arrivals(), policy)
        for policy in POLICIES
    },
    "normalise": unary(NormaliseOperator),
    "cleanse": unary(CleanseOperator),
    "align": unary(AlignOperator),
    "final": unary(ReportFinalOperator),
    "union": union(UnionOperator(SCHEMA)),
    "union of inserts": union(UnionOperator(SCHEMA, insert_only=True), MergeCase.R1),
    "alter_lifetime": trusting(AlterLifetimeOperator(SCHEMA, AlterLifetime())),
    "tumbling": trusting(
        AlterLifetimeOperator(SCHEMA, AlterLifetime(StartRounded(4), DurationConstant(4)))
    ),
    "hop": trusting(AlterLifetimeOperator(SCHEMA, Hop(3, 2))),
    "window": trusting(GridWindowOperator(SCHEMA, GridWindows(5, 2))),
    "panes": trusting(
        PaneAggregateOperator(
            SCHEMA, ("p", "window"), (Aggregate("count", None, "n"),), windows=GridWindows(5, 2)
        ),
        keys=("p",),
    ),
    "replaced_by": trusting(ReplacedByOperator(SCHEMA, ())),
    "session": trusting(SessionOperator(SCHEMA, 2, ("p",)), keys=("p",)),
    "sessions": trusting(
        SessionAggregateOperator(
            SessionOperator(SCHEMA, 2, ("p",)),
            ("p", "window"),
            (Aggregate("count", None, "n"), Aggregate("min", "p", "least")),
        ),
        keys=("p",),
    ),
    "top_k": trusting(TopKOperator(SCHEMA, (), 2, ())),
    "inserts": trusting(InsertsOperator(SCHEMA)),
    "deletes": trusting(DeletesOperator(SCHEMA)),
}
each_operator = pytest.mark.parametrize("name", OPERATORS)


def arrivals_of(arrived):
    return tuple(Arrival(name, batch_of(elements)) for name, elements in runs(arrived))


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
        some = tuple(
            Arrival(one.input, one.batch, attachment=numbers.get(one.input, 1))
            for one in arrivals_of(elements[begin:end])
        )
        steps.append(Inputs(arrivals=some))
    return steps


def shown(result):
    """All that a caller sees of a step."""
    final = None if result.final is None else Counter(to_elements(result.final))
    reasons = [codes.tolist() for codes in result.reasons]
    resolved = [(one.replica, one.reasons.tolist()) for one in result.resolved]
    counted = result.added_adjusts, result.added_inserts, result.conflicts, result.missing
    output = to_elements(result.output)
    return output, final, reasons, resolved, counted, result.frontier, result.violators


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
        assert {name.rpartition("/")[2] for name in unchanged} == {"control"}


@each_operator
@given(st.data())
def test_the_order_of_arrivals_does_not_matter(name, data):
    """Of several inputs that have one history; of one input, the parcels of a trigger."""
    entry = OPERATORS[name]
    arrived = data.draw(entry.valid)
    states = [entry.operator.empty() for _ in range(2)]
    outputs, finals = ([], []), (Counter(), Counter())
    for number in sorted({number for number, _ in arrived}) if entry.members else []:
        for state in states:
            state.step(Inputs(control=(Attach(f"r{number}"),)))
    for begin, end in pairwise([0, *data.draw(cuts(len(arrived)))]):
        parcels = split(arrived[begin:end]) if entry.members else parcels_of(arrived[begin:end])
        shuffled = data.draw(st.permutations(parcels[:-1])) + parcels[-1:]
        if entry.members:
            shuffled = data.draw(st.permutations(parcels))
        for state, some, output, final in zip(
            states, (parcels, shuffled), outputs, finals, strict=True
        ):
            result = state.step(Inputs(arrivals=tuple(some)))
            state.check()
            output.extend(to_elements(result.output))
            final.update(to_elements(result.final) if result.final is not None else [])
        assert states[0].frontier == states[1].frontier
        assert finals[0] == finals[1]
        one, other = (replay(output) for output in outputs)
        assert one.violations == other.violations == ()
        frontier = time_of(states[0].frontier)
        assert equivalent_until(one.history, other.history, frontier)
    assert History.of(outputs[0]) == History.of(outputs[1])


def split(arrived):
    """One arrival for each input."""
    numbers = dict.fromkeys(number for number, _ in arrived)
    return [
        Arrival(f"r{number}", batch_of([e for who, e in arrived if who == number]))
        for number in numbers
    ]


def parcels_of(arrived):
    """The data of a trigger by payload, as lanes before it would send it; then its stables."""
    elements = [element for _, element in arrived]
    names = sorted({e.payload for e in elements if not isinstance(e, Stable)})
    parcels = [
        [e for e in elements if not isinstance(e, Stable) and e.payload == name]
        for name in names
    ]
    parcels.append([e for e in elements if isinstance(e, Stable)])
    return [Arrival("input", batch_of(some)) for some in parcels]


def time_of(unit):
    return FOREVER if unit == FOREVER_UNITS else NEVER if unit == NEVER_UNITS else unit


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
    operator = OPERATORS[name].operator
    state = operator.empty()
    result = state.step(Inputs())
    assert (len(result.output), result.buckets, result.frontier) == (0, (), NEVER_UNITS)
    assert state.live == 0
    assert operator.name
    made = operator.output.payload
    assert made.names[: len(SCHEMA.payload)] == SCHEMA.payload.names
    assert tuple(operator.route_columns) == OPERATORS[name].keys


@each_operator
def test_what_is_not_of_this_operator_is_refused_by_name(name):
    operator = OPERATORS[name].operator
    foreign = next(e.operator for e in OPERATORS.values() if e.operator.name != operator.name)
    with pytest.raises(StateError, match=r"the state is 'anabranch .*, this program reads"):
        operator.from_parts(foreign.empty().parts().written)
    with pytest.raises(StateError, match="no part 'control'"):
        operator.from_parts({})
