"""The compiled merge with any policy: as the reference with one element per step, and at the
end of each step of any size what the policy promises.
"""

from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from merge_driver import SCHEMA, Kernel, cuts, prefixes, runs, step
from policy_driver import policies, shrinking
from policy_kernel_driver import Duel, any_policies, play, scripts, settle_fates

from anabranch.batch.codec import from_elements
from anabranch.batch.schema import ElementSchema, TimeType
from anabranch.errors import StateError
from anabranch.model.element import Adjust, Insert, Stable
from anabranch.model.equivalence import compatible
from anabranch.model.history import History, replay
from anabranch.model.time import FOREVER
from anabranch.operators.contract import REASONS, Arrival, Attach, Inputs, Reason
from anabranch.operators.merge.policy import Adjusts, Inserts, Policy, Quorum
from anabranch.operators.merge.state import MergeState
from anabranch.testing.strategies import interleavings, replicas


@given(any_policies(), scripts())
def test_with_one_element_per_step_all_is_as_in_the_reference(policy, script):
    play(Duel(policy), script)


def in_steps(data, merge, arrived):
    """Take the elements in steps of any size, sometimes through a restart."""
    begin = 0
    for end in data.draw(cuts(len(arrived))):
        merge.step(runs(arrived[begin:end]))
        if data.draw(st.integers(0, 2)) == 0:
            merge.restart()
        yield end
        begin = end


@given(st.data(), any_policies())
def test_replicas_of_one_stream_are_followed_at_every_step(data, policy):
    streams = data.draw(replicas())
    arrived = data.draw(interleavings(streams))
    merge = Kernel(policy)
    for number in range(len(streams)):
        merge.attach(f"r{number}")
    for end in in_steps(data, merge, arrived):
        out = replay(merge.output)
        assert out.violations == ()
        assert compatible(out, prefixes(arrived[:end], len(streams)))
    assert History.of(merge.output) == History.of(streams[0])
    assert replay(merge.output).frontier == FOREVER
    assert merge.state.live == merge.state.pending == 0


@given(st.data(), policies(inserts=[Inserts.HALF_FROZEN]))
def test_half_frozen_never_removes_an_event_in_steps(data, policy):
    merge = Kernel(policy)
    arrived = data.draw(interleavings(data.draw(replicas())))
    for _ in in_steps(data, merge, arrived):
        assert not any(isinstance(e, Adjust) and e.is_removal for e in merge.output)


@given(st.data(), policies())
def test_shrink_only_never_lengthens_in_steps_where_no_input_does(data, policy):
    streams = [shrinking(stream) for stream in data.draw(replicas())]
    merge = Kernel(replace(policy, shrink_only=True))
    for _ in in_steps(data, merge, data.draw(interleavings(streams))):
        adjusts = [element for element in merge.output if isinstance(element, Adjust)]
        assert all(adjust.end < adjust.old_end for adjust in adjusts)


def test_an_event_that_is_removed_and_inserted_again_in_one_step_has_two_fates():
    merge, fates = Kernel(Policy.parse("inserts=half_frozen,shrink_only=true")), []
    elements = [Insert("b", 4, FOREVER), Adjust("b", 4, FOREVER, 4), Insert("b", 4, FOREVER)]
    result = merge.step([("r0", elements)])
    for element, code in zip(elements, result.reasons[0], strict=True):
        fates.append(("r0", element, REASONS[code]))
    assert [fate[2] is Reason.HELD for fate in fates] == [False, False, True]
    settle_fates(fates, merge.step([("r0", [Stable(FOREVER)])]))
    assert fates[-1][2] is Reason.FIRST
    assert merge.output == [Insert("b", 4, FOREVER), Stable(FOREVER)]


@given(st.data(), policies(adjusts=[Adjusts.ON_STABLE]))
def test_on_stable_keeps_the_bounds_of_erratum_l12_in_steps(data, policy):
    merge = Kernel(policy)
    arrived = data.draw(interleavings(data.draw(replicas())))
    for _ in in_steps(data, merge, arrived):
        pass
    came, went = (
        {kind: sum(isinstance(e, kind) for e in some) for kind in (Insert, Adjust, Stable)}
        for some in ([element for _, element in arrived], merge.output)
    )
    assert went[Stable] <= came[Stable]
    if not policy.shrink_only:
        assert went[Insert] <= came[Insert]
        assert went[Adjust] <= came[Insert] + came[Adjust]
        assert merge.added_inserts == 0


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
    merge = Kernel(Policy.parse(text))
    merge.attach("r0")
    merge.attach("r1")
    assert merge.step([("r1", MANY)]).counts["visits"] == 0
    lag = merge.policy.stable_lag
    assert merge.step([("r1", [Stable(6 + lag)])]).counts["visits"] == visits
    assert merge.state.work.elements == 21
    assert merge.state.nbytes > 0


def test_parts_keep_their_policy_and_are_refused_without_their_control():
    merge = Kernel(Policy(stable_lag=3, inserts=Quorum(1)))
    saved = dict(merge.state.parts().written)
    assert MergeState.from_parts(saved, SCHEMA).policy == merge.policy
    del saved["control"]
    with pytest.raises(StateError, match="no part 'control'"):
        MergeState.from_parts(saved, SCHEMA)


def test_payloads_without_columns_have_policies_too():
    schema = ElementSchema(TimeType.BIGINT, pa.schema({}))
    state = MergeState.empty(schema, policy=Policy(inserts=Quorum(1)))
    for name in ("east", "west"):
        state.step(Inputs(control=(Attach(name),)))
    one = [Insert((), 3, 9)]
    for name, count in (("east", 0), ("west", 1)):
        result = step(state, [Arrival(name, from_elements(one, schema))])
        assert len(result.output) == count
        state = MergeState.from_parts(state.parts().written, schema)
        state.check()
