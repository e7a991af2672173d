"""Laws that hold under every merge policy, judged by the model at every prefix."""

from hypothesis import given
from hypothesis import strategies as st
from merge_driver import prefixes
from policy_driver import ADJUSTS, INSERTS, Run, policies, shrinking

from anabranch.model.element import Adjust, Insert, Stable
from anabranch.model.equivalence import compatible
from anabranch.model.history import History, replay
from anabranch.model.time import FOREVER, NEVER
from anabranch.operators.contract import Bucket
from anabranch.operators.merge.policy import Adjusts, Inserts, Policy, Quorum
from anabranch.operators.reference.r3 import MergeR3
from anabranch.testing.strategies import conflicting_arrivals, interleavings, replicas


@given(st.data(), policies())
def test_every_policy_is_compatible_at_every_prefix_and_equivalent_at_the_end(data, policy):
    streams = data.draw(replicas())
    arrived = data.draw(interleavings(streams))
    run = Run.of(policy, len(streams))
    expected = NEVER
    for position, (number, element) in enumerate(arrived):
        run.take(number, element)
        out, inputs = replay(run.output), prefixes(arrived[: position + 1], len(streams))
        assert out.violations == ()
        assert out.history.is_keyed
        assert compatible(out, inputs)
        expected = max(expected, max(one.frontier for one in inputs) - policy.stable_lag)
        assert out.frontier == run.merge.frontier == expected
        run.judge_accounts()
    assert History.of(run.output) == History.of(streams[0])
    assert run.merge.frontier == FOREVER
    assert run.merge.nodes == run.merge.settled == {}
    assert run.buckets()[Bucket.PENDING] == 0
    assert run.merge.conflicts == 0


@given(st.data(), policies())
def test_every_policy_is_valid_and_accounted_whatever_comes(data, policy):
    arrived = data.draw(conflicting_arrivals())
    run = Run.of(policy, 0)
    for number in range(3):
        guarantee = data.draw(st.sampled_from([None, None, 0, 3, FOREVER]))
        run.note(run.merge.attach(f"r{number}", guarantee=guarantee))
    for number, element in arrived:
        run.take(number, element)
        assert replay(run.output).violations == ()
        run.judge_accounts()
    for number in range(3):
        run.note(run.merge.detach(f"r{number}"))
        assert replay(run.output).violations == ()
        run.judge_accounts()
    assert run.buckets()[Bucket.PENDING] == 0


@given(st.data(), policies(adjusts=[Adjusts.ON_STABLE]))
def test_on_stable_keeps_the_bounds_of_erratum_l12(data, policy):
    streams = data.draw(replicas())
    arrived = data.draw(interleavings(streams))
    run = Run.of(policy, len(streams))
    for number, element in arrived:
        run.take(number, element)
        came, went = run.came, run.went
        assert went[Stable] <= came[Stable]
        if not policy.shrink_only:
            assert went[Insert] <= came[Insert]
            assert went[Adjust] <= came[Insert] + came[Adjust]
            assert run.added(Insert) == 0


@given(st.data(), policies())
def test_shrink_only_never_lengthens_where_no_input_does(data, policy):
    """Erratum L14; also by a removal and a longer insert, which inputs may emit."""
    streams = [shrinking(stream) for stream in data.draw(replicas())]
    assert all(replay(stream).violations == () for stream in streams)
    arrived = data.draw(interleavings(streams))
    chosen = Policy(
        adjusts=policy.adjusts,
        inserts=policy.inserts,
        stable_lag=policy.stable_lag,
        shrink_only=True,
    )
    run = Run.of(chosen, len(streams))
    for number, element in arrived:
        run.take(number, element)
    adjusts = [element for element in run.output if isinstance(element, Adjust)]
    assert all(adjust.end < adjust.old_end for adjust in adjusts)
    assert History.of(run.output) == History.of(streams[0])


@given(st.data(), policies(), policies())
def test_a_merge_of_merges_is_a_merge(data, below, above):
    """LMerge II-1: outputs of merges are inputs of another."""
    streams = data.draw(replicas(min_inputs=2, max_inputs=4))
    arrived = data.draw(interleavings(streams))
    halves = [MergeR3(policy=below), MergeR3(policy=below)]
    for number in range(len(streams)):
        halves[number % 2].attach(f"r{number}")
    run = Run.of(above, 2)
    for number, element in arrived:
        half = number % 2
        for emitted in halves[half].push(f"r{number}", element).output:
            run.take(half, emitted)
        assert replay(run.output).violations == ()
        run.judge_accounts()
    assert History.of(run.output) == History.of(streams[0])
    assert run.buckets()[Bucket.VIOLATION] == 0


def test_all_parts_are_drawn():
    assert len(ADJUSTS) == 4
    assert {one for one in INSERTS if not isinstance(one, Quorum)} == set(Inserts)
    assert any(isinstance(one, Quorum) for one in INSERTS)
