"""The compiled merge with any policy against the reference: outputs, reasons, accounts."""

from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from merge_driver import SCHEMA, cuts, prefixes, runs
from policy_driver import policies, shrinking
from policy_kernel_driver import Duel, any_policies, play, scripts

from anabranch.batch.codec import from_elements
from anabranch.batch.schema import ElementSchema, TimeType
from anabranch.errors import StateError
from anabranch.model.element import Adjust, Insert, Stable
from anabranch.model.equivalence import compatible
from anabranch.model.history import History, replay
from anabranch.model.time import FOREVER
from anabranch.operators.merge.contract import Arrival, Reason
from anabranch.operators.merge.policy import HalfFrozen, OnStable, Policy, Quorum
from anabranch.operators.merge.r3_policy_kernel import step
from anabranch.operators.merge.r3_policy_state import R3PolicyState
from anabranch.operators.merge.r3_state import R3State
from anabranch.testing.strategies import interleavings, replicas


@given(any_policies(), scripts())
def test_by_element_all_is_as_the_reference_says(policy, script):
    play(Duel(policy, "element"), script)


@given(any_policies(), scripts())
def test_by_batch_readers_see_what_the_reference_says(policy, script):
    play(Duel(policy, "batch"), script)


@pytest.mark.parametrize("granularity", ["element", "batch"])
@given(st.data(), any_policies())
def test_replicas_of_one_stream_are_followed_at_every_step(granularity, data, policy):
    streams = data.draw(replicas())
    arrived = data.draw(interleavings(streams))
    duel = Duel(policy, granularity)
    for number in range(len(streams)):
        duel.attach(f"r{number}")
    begin = 0
    for end in data.draw(cuts(len(arrived))):
        duel.take(runs(arrived[begin:end]))
        out = replay(duel.output)
        assert compatible(out, prefixes(arrived[:end], len(streams)))
        begin = end
    assert History.of(duel.output) == History.of(streams[0])
    assert replay(duel.output).frontier == FOREVER
    assert duel.state.live == duel.state.pending == 0


@given(st.data(), policies(inserts=[HalfFrozen()]))
def test_half_frozen_never_removes_an_event_by_batch(data, policy):
    duel = Duel(policy, "batch")
    play(duel, data.draw(scripts()))
    assert not any(isinstance(e, Adjust) and e.is_removal for e in duel.output)


@given(st.data(), policies())
def test_shrink_only_never_lengthens_by_batch_where_no_input_does(data, policy):
    streams = [shrinking(stream) for stream in data.draw(replicas())]
    arrived = data.draw(interleavings(streams))
    duel, begin = Duel(replace(policy, shrink_only=True), "batch"), 0
    for end in data.draw(cuts(len(arrived))):
        duel.take(runs(arrived[begin:end]))
        begin = end
    adjusts = [element for element in duel.output if isinstance(element, Adjust)]
    assert all(adjust.end < adjust.old_end for adjust in adjusts)


def test_an_event_that_is_removed_and_told_again_in_one_step_has_two_fates():
    duel = Duel(Policy.parse("inserts=half_frozen,shrink_only=true"), "batch")
    told = [Insert("b", 4, FOREVER), Adjust("b", 4, FOREVER, 4), Insert("b", 4, FOREVER)]
    duel.take([("r0", told)])
    assert [fate[2] is Reason.HELD for fate in duel.fates] == [False, False, True]
    duel.take([("r0", [Stable(FOREVER)])])
    assert duel.output == [Insert("b", 4, FOREVER), Stable(FOREVER)]


@given(st.data(), policies(adjusts=[OnStable()]))
def test_on_stable_keeps_the_bounds_of_erratum_l12_by_batch(data, policy):
    duel = Duel(policy, "batch")
    arrived, begin = data.draw(interleavings(data.draw(replicas()))), 0
    for end in data.draw(cuts(len(arrived))):
        duel.take(runs(arrived[begin:end]))
        begin = end
    read, written = duel.account.read, duel.account.written
    assert written["stable"] <= read["stable"]
    if not policy.shrink_only:
        assert written["insert"] <= read["insert"]
        assert written["adjust"] <= read["insert"] + read["adjust"]
        assert duel.account.added_inserts == 0


MANY = [Insert("a", start, start + 9) for start in range(5, 25)]


@pytest.mark.parametrize(
    ("text", "visits"),
    [
        ("inserts=quorum(1)", 1),
        ("inserts=half_frozen,stable_lag=2", 1 + 19),
        ("inserts=leader", 1 + 19),
        ("adjusts=follow_leader", 1 + 20),
    ],
)
def test_the_work_of_a_step_is_counted(text, visits):
    """A stable looks at what it half freezes, a new view at what waits, or follows, too."""
    duel = Duel(Policy.parse(text), "batch")
    duel.attach("r0")
    duel.attach("r1")
    assert duel.take([("r1", MANY)]).counts["visits"] == 0
    lag = duel.policy.stable_lag
    assert duel.take([("r1", [Stable(6 + lag)])]).counts["visits"] == visits
    assert duel.state.work.elements == 21
    assert duel.state.nbytes > 0
    # The next one finds the same leader: what it half freezes, and what becomes sure.
    again = duel.take([("r1", [Stable(7 + lag)])]).counts["visits"]
    assert again == {"half_frozen": 3, "follow_leader": 21}.get(text.split(",")[0][8:], 1)


def test_a_state_is_refused_by_name_where_it_is_not_its_own():
    state = R3PolicyState.empty(SCHEMA, policy=Policy(stable_lag=3))
    with pytest.raises(StateError, match="'anabranch merge r3 with a policy' version 1"):
        R3State.from_bytes(state.to_bytes(), SCHEMA)
    saved = dict(state.parts().written)
    assert R3PolicyState.from_parts(saved, SCHEMA).policy == Policy(stable_lag=3)
    del saved["control"]
    with pytest.raises(StateError, match="no part 'control'"):
        R3PolicyState.from_parts(saved, SCHEMA)


def test_payloads_without_columns_have_policies_too():
    schema = ElementSchema(TimeType.BIGINT, pa.schema({}))
    state = R3PolicyState.empty(schema, policy=Policy(inserts=Quorum(1)))
    state.attach("east")
    state.attach("west")
    one = [Insert((), 3, 9)]
    for name, count in (("east", 0), ("west", 1)):
        arrival = Arrival(name, from_elements(one, schema))
        assert len(step(state, [arrival]).result.output) == count
        state = R3PolicyState.from_bytes(state.to_bytes(), schema)
        state = R3PolicyState.from_parts(state.parts().written, schema)
        state.check()
