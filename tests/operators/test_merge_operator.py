"""Merge as an operator: control entries are an input, and the result names violators."""

import pickle

import pytest
from merge_driver import SCHEMA, batch_of

from anabranch.batch.batch import FOREVER_UNITS
from anabranch.batch.codec import to_elements
from anabranch.model import parse
from anabranch.model.notation import show_elements
from anabranch.model.properties import MergeCase
from anabranch.operators.contract import Arrival, Attach, Detach, Inputs, Operator, Route
from anabranch.operators.merge.merge import MergeOperator
from anabranch.operators.merge.policy import Policy
from anabranch.operators.pipeline import PipelineStep, run, with_final


def operator(case: MergeCase = MergeCase.R3, policy: str = "default") -> MergeOperator:
    return MergeOperator(SCHEMA, case, Policy.parse(policy))


def arrival(name: str, text: str) -> Arrival:
    return Arrival(name, batch_of(parse(text)))


def test_entries_attach_change_a_guarantee_and_detach() -> None:
    state = operator().empty()
    for entry in (Attach("east"), Attach("west", guarantee=int(FOREVER_UNITS))):
        state.step(Inputs(control=(entry,)))
    assert [(one.name, one.joined) for one in state.inputs] == [("east", True), ("west", False)]
    state.step(Inputs(control=(Attach("west"),)))
    assert all(one.joined for one in state.inputs)
    state.step(Inputs(control=(Detach("west"),)))
    assert [one.name for one in state.inputs] == ["east"]
    assert len(state.step(Inputs(control=(Detach("nobody"),))).output) == 0


def test_violators_are_named_by_the_result() -> None:
    state = operator(policy="violations=detach").empty()
    good, bad = arrival("east", "insert a 3..9; stable 5"), arrival("west", "adjust b 1..2->3")
    assert state.step(Inputs((good, bad))).violators == ("west",)


@pytest.mark.parametrize(
    ("case", "route"), [(MergeCase.R1, Route.START), (MergeCase.R4, Route.IDENTITY)]
)
def test_the_case_decides_the_route(case: MergeCase, route: Route) -> None:
    asked: Operator = operator(case)
    assert asked.route is route
    assert pickle.loads(pickle.dumps(asked)) == asked


def test_a_pipeline_takes_final_events_from_the_merge_where_it_knows_them() -> None:
    for case, ids in ((MergeCase.R3, ["merge"]), (MergeCase.R1, ["merge", "final"])):
        pipeline = with_final((PipelineStep("merge", operator(case)),))
        assert [one.id for one in pipeline] == ids
        states = {one.id: one.operator.empty() for one in pipeline}
        inputs = Inputs((arrival("east", "insert a 3..9; insert b 4..5; stable 6"),))
        *_, (_, _, result) = run(pipeline, states, {"input": inputs})
        assert result.final is not None
        assert show_elements(to_elements(result.final)) == "insert b 4..5"


def test_a_state_goes_on_through_parts_with_its_own_policy() -> None:
    state = operator().empty()
    state.step(Inputs((arrival("east", "insert a 3..9; stable 5"),)))
    saved = state.parts().written
    again = operator().from_parts(saved)
    assert (again.frontier, again.live) == (5, 1)
    other = operator(policy="stable_lag=2").from_parts(saved)
    assert other.policy == state.policy
