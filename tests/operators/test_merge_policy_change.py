"""A merge whose policy changes while it runs: as the reference that makes the same change.

Whenever it changes, nothing is lost, each element is in one bucket, and the history in the end
is that of a merge which had the last policy from the beginning.
"""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from merge_driver import SCHEMA, Kernel, cuts, prefixes, runs
from merge_r4_driver import ReferenceR4
from policy_driver import Run, policies
from policy_kernel_driver import Duel, any_policies, play, scripts

from anabranch.errors import StateError, UsageError
from anabranch.model.element import Adjust, Identity
from anabranch.model.equivalence import compatible
from anabranch.model.history import History, replay
from anabranch.model.notation import parse, show_elements
from anabranch.model.properties import MergeCase
from anabranch.model.time import FOREVER
from anabranch.operators.contract import Reason
from anabranch.operators.merge.merge import MergeOperator
from anabranch.operators.merge.policy import (
    Adjusts,
    Follow,
    Inserts,
    Policy,
    Quorum,
    require_support,
)
from anabranch.testing import engine
from anabranch.testing.strategies import conflicting_arrivals, interleavings, replicas


@st.composite
def changing(draw):
    """Any policy, with gaps or without, as it is read from its text."""
    policy = draw(any_policies())
    if draw(st.booleans()):
        wait = draw(st.sampled_from([None, 0, 3]))
        policy = replace(policy, gaps=True, wait=wait)
    return Policy.parse(str(policy))


PLAIN = ["default", "stable_lag=2", "shrink_only=true", "promote=true", "gaps=true",
         "gaps=true,wait=2", "gaps=true,shrink_only=true,stable_lag=1", "remember=1",
         "gaps=true,wait=2,remember=3"]  # fmt: skip


@given(st.data(), changing())
def test_with_one_element_per_step_all_is_as_in_the_reference(data, policy):
    duel = Duel(policy)
    for _ in range(data.draw(st.integers(1, 3))):
        play(duel, data.draw(scripts()))
        duel.change(data.draw(changing()))
        if data.draw(st.booleans()):
            duel.restart()
    play(duel, data.draw(scripts()))


def in_steps(data, merge, arrived, policies):
    """Take the elements in steps of any size; between two of them the policy changes."""
    begin = 0
    for end in data.draw(cuts(len(arrived))):
        merge.step(runs(arrived[begin:end]))
        if policies and data.draw(st.booleans()):
            merge.note([], merge.state.change(policies.pop()))
        if data.draw(st.integers(0, 2)) == 0:
            merge.restart()
        yield end
        begin = end
    for policy in policies:
        merge.note([], merge.state.change(policy))


# An output that does not wait may pass an event that its only replica takes back later.
PATIENT = [text for text in PLAIN if "wait" not in text]


@given(st.data(), st.lists(changing(), min_size=2, max_size=4))
def test_replicas_of_one_stream_are_followed_through_every_change(data, found):
    policies = [replace(policy, wait=None) for policy in found]
    streams = data.draw(replicas())
    arrived = data.draw(interleavings(streams))
    merge = Kernel(policies.pop())
    for number in range(len(streams)):
        merge.attach(f"r{number}")
    for end in in_steps(data, merge, arrived, policies):
        out = replay(merge.output)
        assert out.violations == ()
        assert compatible(out, prefixes(arrived[:end], len(streams)))
    assert History.of(merge.output) == History.of(streams[0])
    assert replay(merge.output).frontier == FOREVER
    assert merge.state.live == merge.state.pending == 0


@given(st.data(), st.sampled_from(PLAIN), st.sampled_from(PLAIN))
def test_a_merge_of_bags_is_as_its_reference_through_a_change(data, first, then):
    """R4, in steps of one element."""
    arrived, at = data.draw(conflicting_arrivals()), data.draw(st.integers(0, 20))
    kernel, reference = Kernel(Policy.parse(first), keyed=False), ReferenceR4()
    reference.merge.change(Policy.parse(first))
    for number in range(3):
        for merge in (kernel, reference):
            merge.attach(f"r{number}")
    for number, (replica, element) in enumerate(arrived):
        if number == at:
            kernel.note([], kernel.state.change(Policy.parse(then)))
            reference.output.extend(reference.merge.change(Policy.parse(then)).output)
            kernel.restart()
        for merge in (kernel, reference):
            merge.take(f"r{replica}", [element])
        mine, theirs = replay(kernel.output), replay(reference.output)
        assert mine.violations == ()
        assert (mine.history, mine.frontier) == (theirs.history, theirs.frontier)
        assert kernel.state.conflicts == reference.conflicts


@pytest.mark.parametrize("case", ["r0", "r1", "r2", "r3", "r4"])
@given(st.data())
def test_in_lanes_the_end_is_that_of_the_last_policy(case, data):
    """And each element is in one bucket."""
    texts = st.sampled_from([text for text in PATIENT if _has(case, text)])
    streams = data.draw(replicas(case=MergeCase(case)))
    with engine("lanes", "merge", case=case, policy=data.draw(texts)) as merge:
        for number in range(len(streams)):
            merge.attach(f"r{number}")
        arrived = data.draw(interleavings(streams))
        for start in range(0, len(arrived), 4):
            for number, element in arrived[start : start + 4]:
                merge.push(f"r{number}", [element])
            merge.change(data.draw(texts))
            merge.restart() if data.draw(st.booleans()) else None
        merge.push("r0", "stable forever")
        merge.cut()
        assert replay(merge.output).violations == ()
        assert merge.history == History.of(streams[0])
        assert sum(sum(one.values()) for one in merge.account.values()) == len(arrived) + 1


def _has(case, text):
    try:
        require_support(MergeCase(case), Policy.parse(text))
    except UsageError:
        return False
    return True


def changed(data, first, then):
    """A run of streams that disagree, whose policy has just changed."""
    run = Run.of(first, 3)
    for number, element in data.draw(conflicting_arrivals()):
        run.take(number, element)
    run.note(run.merge.change(then))
    return run


def free_events(run):
    """Of each event that may still start, who has it."""
    merge = run.merge
    keys = {one.key for one in merge.replicas.values()}
    return {
        (start, payload): {key for key in keys if node.ends.get(key)}
        for (start, payload), node in merge.nodes.items()
        if start >= merge.frontier
    }


@given(st.data(), policies(), policies(inserts=[Inserts.FIRST], adjusts=[Adjusts.ON_STABLE]))
def test_what_was_held_is_shown_when_first_begins(data, before, policy):
    run = changed(data, before, policy)
    assert all(one in run.shown() for one, some in free_events(run).items() if some)
    assert not any(reason is Reason.HELD for _, _, reason in run.fates)
    run.judge_accounts()


@given(st.data(), policies(), policies(inserts=[Quorum(0.5)], adjusts=[Adjusts.ON_STABLE]))
def test_what_a_quorum_has_is_shown_when_it_begins(data, before, policy):
    run = changed(data, before, policy)
    joined = len(run.merge.members.joined(run.merge.frontier))
    need = policy.inserts.needed(joined)
    assert all(
        one in run.shown() for one, some in free_events(run).items() if len(some) >= need
    )


@given(st.data(), policies(), policies(adjusts=[Follow("r1")], inserts=[Inserts.FIRST]))
def test_the_ends_of_the_followed_are_shown_when_it_begins(data, before, policy):
    run = changed(data, before, replace(policy, shrink_only=False))
    shown = run.shown()
    for identity, end in run.ends("r1").items():
        if end == identity.start and identity.start >= run.merge.frontier:
            assert identity not in shown
        elif identity in shown and end >= run.merge.frontier and end > identity.start:
            assert shown[identity] == end


@given(st.data(), policies(), policies(inserts=[Inserts.HALF_FROZEN]))
def test_what_is_on_the_output_when_half_frozen_begins_stays_there(data, before, policy):
    run = changed(data, before, policy)
    until = len(run.output)
    for number, element in data.draw(conflicting_arrivals()):
        run.take(number, element)
    assert not any(isinstance(e, Adjust) and e.is_removal for e in run.output[until:])


def test_half_frozen_takes_back_what_was_shown_too_early():
    """Else an event that one replica invents would stay for ever."""
    duel = Duel(Policy())
    duel.take([("r0", parse("insert a 5..9; insert b 1..9; stable 2"))])
    duel.take([("r1", parse("insert b 1..9"))])
    duel.change(Policy(inserts=Inserts.HALF_FROZEN))
    assert duel.output[-1] == parse("adjust a 5..9->5")[0]
    assert set(duel.run.shown()) == {Identity(1, "b")}
    duel.take([("r1", parse("stable 6"))])
    assert set(duel.run.shown()) == {Identity(1, "b")}


def test_a_quorum_that_ends_shows_what_waits_and_one_that_begins_holds():
    duel = Duel(Policy(inserts=Quorum(1)))
    duel.attach("r1")
    duel.take([("r0", parse("insert a 5..9"))])
    assert duel.output == []
    duel.change(Policy())
    assert duel.output == list(parse("insert a 5..9"))
    assert duel.fates[0][2] is Reason.FIRST
    duel.change(Policy(inserts=Quorum(1)))
    duel.take([("r0", parse("insert b 5..9"))])
    duel.save()
    duel.restore()
    assert len(duel.output) == duel.state.pending == 1


def test_less_lag_and_no_gaps_let_the_frontier_go_on():
    duel = Duel(Policy.parse("gaps=true,stable_lag=3"))
    duel.attach("r1")
    duel.take([("r0", parse("insert a 1..9; stable 8"))])
    assert duel.state.frontier < 0
    duel.change(Policy.parse("stable_lag=3"))
    assert duel.state.frontier == 5
    duel.change(Policy())
    assert duel.state.frontier == 8
    duel.change(Policy.parse("gaps=true"))
    duel.take([("r0", parse("stable 9"))])
    assert duel.state.frontier == 8, "it waits for the other one again, and never goes back"


def test_a_change_between_policies_that_ask_nothing_leaves_no_credit_behind():
    with engine("lanes", "merge", case="r3", check_every=1) as merge:
        merge.attach("r0")
        merge.change("default")
        merge.push("r0", "insert b 1..2; stable 2; adjust b 1..2->forever; stable 3")
        assert show_elements(merge.cut()) == "insert b 1..forever; stable 3"


def test_a_policy_that_the_case_has_not_is_refused_and_changes_nothing():
    merge = MergeOperator(SCHEMA, MergeCase.R4).empty()
    with pytest.raises(UsageError, match="case R4 has no inserts=leader"):
        merge.change(Policy(inserts=Inserts.LEADER))
    assert (merge.policy, merge.mark) == (Policy(), 0)


def test_a_state_has_its_policy_and_the_operator_only_violations():
    state = MergeOperator(SCHEMA, MergeCase.R3, Policy.parse("stable_lag=1")).empty()
    state.change(Policy.parse("inserts=quorum(0.5)"))
    operator = MergeOperator(SCHEMA, MergeCase.R3, Policy.parse("violations=detach"))
    again = operator.from_parts(state.parts().written)
    assert str(again.policy) == "inserts=quorum(0.5),violations=detach"
    with pytest.raises(StateError, match="started as case R3, but this merge is R4"):
        MergeOperator(SCHEMA, MergeCase.R4).from_parts(state.parts().written)
