"""Laws of merge R4, for the reference and the kernel, judged by the model at every prefix."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from merge_driver import Kernel, cuts, judge_prefix, prefixes, runs, time_of
from merge_r4_driver import (
    KernelR4,
    ReferenceR4,
    conflicting_r4,
    crowds,
    judge_going_on_alone,
    shrinking,
)

from anabranch.model.element import Adjust, Insert, Stable
from anabranch.model.equivalence import compatible
from anabranch.model.history import History, replay
from anabranch.model.notation import parse
from anabranch.model.properties import MergeCase
from anabranch.model.time import FOREVER, NEVER
from anabranch.operators.contract import Bucket, Reason
from anabranch.testing.conditions import breaches_r4
from anabranch.testing.strategies import histories, interleavings, joiners, replicas

LAGS = st.sampled_from([0, 0, 1, 4])
JOINED_BY = [
    lambda data: ReferenceR4(shrink_only=data.draw(st.booleans())),
    lambda data: KernelR4(data.draw(st.booleans())),
]


def bags(**options):
    return replicas(case=MergeCase.R4, **options)


def steps(data, arrived):
    """The elements, cut into steps at random."""
    for start, stop in pairwise([0, *data.draw(cuts(len(arrived)))]):
        yield stop, runs(arrived[start:stop])


@given(st.data())
def test_reference_r4_is_compatible_at_every_prefix_and_equivalent_at_the_end(data):
    streams = data.draw(bags())
    arrived = data.draw(interleavings(streams))
    merge = ReferenceR4(shrink_only=data.draw(st.booleans()))
    for number in range(len(streams)):
        merge.attach(f"r{number}")
    for position, (number, element) in enumerate(arrived):
        merge.take(f"r{number}", [element])
        seen = arrived[: position + 1]
        judge_prefix(merge.output, seen, len(streams))
        assert breaches_r4(replay(merge.output), prefixes(seen, len(streams))) == []
    assert History.of(merge.output) == History.of(streams[0])
    assert (merge.live, merge.settled, merge.conflicts) == (0, 0, 0)


@given(st.data())
def test_kernel_r4_any_cut_any_restart_same_history(data):
    streams = data.draw(bags())
    arrived = data.draw(interleavings(streams))
    merge = KernelR4(data.draw(st.booleans()))
    for stop, some in steps(data, arrived):
        merge.step(some)
        if stop:
            judge_prefix(merge.output, arrived[:stop], len(streams))
            seen = prefixes(arrived[:stop], len(streams))
            assert breaches_r4(replay(merge.output), seen) == []
        if data.draw(st.booleans()):
            merge.restart()
    assert History.of(merge.output) == History.of(streams[0])
    assert (merge.live, merge.conflicts) == (0, 0)


def test_a_replica_that_arrives_in_a_step_is_known_from_its_beginning():
    first, copy = parse("insert a 0..1; stable 5"), parse("insert a 0..1")
    together, apart = KernelR4(), KernelR4()
    together.step([("r0", first), ("r1", copy)])
    assert together.reasons[-1] is Reason.KNOWN
    apart.step([("r0", first)])
    apart.step([("r1", copy)])
    assert apart.reasons[-1] is Reason.LATE


def change_membership(data, kernel, reference):
    name = data.draw(st.sampled_from(["r0", "r1", "r2"]))
    if name not in reference.merge.replicas:
        return
    if data.draw(st.booleans()):
        guarantee = data.draw(st.sampled_from([None, 3]))
        attachment = reference.merge.replicas[name].key[1] + 1
        for merge in (kernel, reference):
            merge.attach(name, guarantee, attachment)
    else:
        for merge in (kernel, reference):
            merge.detach(name)
        kernel.numbers.pop(name, None)


def agree(kernel, reference):
    assert kernel.reasons == reference.reasons
    assert kernel.live == reference.live
    assert kernel.conflicts == reference.conflicts
    assert kernel.settled == reference.settled
    assert sorted(kernel.missing) == sorted(reference.missing)
    stretches = [(time_of(a), time_of(b), c) for a, b, c in kernel.state.stretches]
    assert stretches == list(reference.merge.stretches)
    theirs, ours = reference.merge.alarm, kernel.state.alarm
    assert (ours is None) == (theirs is None)
    if theirs is not None:
        assert (time_of(ours.frontier), ours.replica, time_of(ours.guarantee)) == theirs


@given(st.data())
def test_kernel_r4_and_reference_agree_after_every_element_whatever_comes(data):
    """Steps of one element: the net change is all there is."""
    arrived = data.draw(conflicting_r4)
    shrink_only = data.draw(st.booleans())
    choices = {"stable_lag": data.draw(LAGS), "promote": data.draw(st.booleans())}
    kernel = KernelR4(shrink_only, **choices)
    reference = ReferenceR4(shrink_only, **choices)
    for number in range(3):
        guarantee = data.draw(st.sampled_from([None, None, 0, 3, FOREVER]))
        kernel.attach(f"r{number}", guarantee)
        reference.attach(f"r{number}", guarantee)
    for number, element in arrived:
        kernel.take(f"r{number}", [element])
        reference.take(f"r{number}", [element])
        agree(kernel, reference)
        assert replay(kernel.output) == replay(reference.output)
        if data.draw(st.integers(0, 3)) == 0:
            kernel.restart()
        if data.draw(st.integers(0, 4)) == 0:
            change_membership(data, kernel, reference)


@given(st.data())
def test_r4_with_a_lag_is_compatible_at_every_step_and_equivalent_at_the_end(data):
    streams, lag = data.draw(bags()), data.draw(st.integers(1, 5))
    arrived = data.draw(interleavings(streams))
    merge = KernelR4(data.draw(st.booleans()), stable_lag=lag)
    expected = NEVER
    for stop, some in steps(data, arrived):
        merge.step(some)
        out, seen = replay(merge.output), prefixes(arrived[:stop], len(streams))
        assert out.violations == ()
        assert compatible(out, seen)
        expected = max([expected, *(one.frontier - lag for one in seen)])
        assert out.frontier == expected
        if data.draw(st.booleans()):
            merge.restart()
    assert History.of(merge.output) == History.of(streams[0])
    assert (merge.live, merge.conflicts) == (0, 0)


@given(st.data())
def test_output_r4_is_valid_whatever_comes(data):
    arrived = data.draw(conflicting_r4)
    merge = KernelR4(data.draw(st.booleans()), stable_lag=data.draw(LAGS))
    for _, some in steps(data, arrived):
        merge.step(some)
        assert replay(merge.output).violations == ()
    assert len(merge.reasons) == len(arrived)


@given(st.data())
def test_nothing_is_late_or_a_violation_when_replicas_of_bags_agree(data):
    streams = data.draw(bags(phantoms=0))
    arrived = data.draw(interleavings(streams))
    merge = KernelR4()
    merge.step([(f"r{number}", []) for number in range(len(streams))])
    for _, some in steps(data, arrived):
        merge.step(some)
    found = {reason.bucket for reason in merge.reasons}
    assert found <= {Bucket.EMITTED, Bucket.ABSORBED, Bucket.CORRECTED}
    assert (merge.conflicts, merge.settled) == (0, 0)


@given(st.data())
def test_gaps_of_bags_leave_the_output_valid_and_are_never_absorbed(data):
    streams = data.draw(bags(min_inputs=2, gaps=True, phantoms=0))
    arrived = data.draw(interleavings(streams))
    merge = KernelR4()
    merge.step([(f"r{number}", []) for number in range(len(streams))])
    for _, some in steps(data, arrived):
        merge.step(some)
        assert replay(merge.output).violations == ()
    final = {(e.start, e.payload) for e in History.of(merge.output)}
    emitted = {(e.start, e.payload) for e in merge.output if isinstance(e, Insert)}
    brought = {(e.start, e.payload) for s in streams for e in History.of(s)}
    late = sum(reason.bucket is Bucket.LATE for reason in merge.reasons)
    # What is on no output at all was given back as late; what was taken back is a named gap.
    assert late >= len(brought - final - emitted)
    named = {(start, payload) for _, start, payload in merge.missing}
    assert emitted - final <= named


def count(kind, elements):
    return sum(isinstance(element, kind) for element in elements)


@given(st.data())
def test_lmerge_erratum_l12_bounds_on_chattiness_hold_for_bags(data):
    """Each adjust of the output is paid for by an insert or adjust of the input."""
    streams = data.draw(bags())
    arrived = data.draw(interleavings(streams))
    merge = KernelR4()
    for _, some in steps(data, arrived):
        merge.step(some)
    came = [element for _, element in arrived]
    assert count(Insert, merge.output) <= count(Insert, came)
    assert count(Stable, merge.output) <= count(Stable, came)
    assert count(Adjust, merge.output) <= count(Insert, came) + count(Adjust, came)
    assert merge.added_inserts == 0


@given(st.data())
def test_erratum_l14_nothing_is_lengthened_that_no_input_lengthens(data):
    streams = data.draw(shrinking())
    arrived = data.draw(interleavings(streams))
    reference = ReferenceR4(shrink_only=True)
    kernel = KernelR4(shrink_only=True)
    for number, element in arrived:
        reference.take(f"r{number}", [element])
    for _, some in steps(data, arrived):
        kernel.step(some)
    for merge in (reference, kernel):
        lengthened = [e for e in merge.output if isinstance(e, Adjust) and e.end > e.old_end]
        assert lengthened == []
        assert History.of(merge.output) == History.of(streams[0])
    came = [element for _, element in arrived]
    assert count(Insert, reference.output) <= 2 * count(Insert, came)


@pytest.mark.parametrize("make", JOINED_BY, ids=["reference", "kernel"])
@given(st.data())
def test_a_joining_replica_of_bags_never_makes_the_output_wrong(make, data):
    """LMerge V-B: complete replicas, and one that is right from its guarantee on (L9)."""
    truth = data.draw(st.one_of(histories(case=MergeCase.R4), crowds))
    streams = data.draw(bags(max_inputs=2, history=st.just(truth), phantoms=0))
    guarantee = data.draw(st.integers(0, 10))
    late = joiners(truth, guarantee=guarantee, case=MergeCase.R4, strangers=1, phantoms=0)
    streams.append(data.draw(late))
    arrived = data.draw(interleavings(streams))
    merge = make(data)
    names = [f"r{number}" for number in range(len(streams))]
    for name in names:
        merge.attach(name, guarantee if name == names[-1] else None)
    for _, some in steps(data, arrived):
        merge.step(some)
        assert replay(merge.output).violations == ()
        if isinstance(merge, Kernel) and data.draw(st.booleans()):
            merge.restart()
    assert merge.conflicts == 0
    assert History.of(merge.output) == truth


@pytest.mark.parametrize("make", JOINED_BY, ids=["reference", "kernel"])
@given(st.data())
def test_a_joined_replica_of_bags_can_go_on_alone(make, data):
    judge_going_on_alone(make(data), data)
