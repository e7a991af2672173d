"""Laws of merge R4, for the reference and the kernel, judged by the model at every prefix."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from merge_driver import cuts, judge_prefix, prefixes, runs
from merge_r4_driver import KernelR4, ReferenceR4, quarrels_r4, shrinking
from policy_kernel_driver import time_of

from anabranch.model.conditions import breaches_r4
from anabranch.model.element import Adjust, Insert, Stable
from anabranch.model.equivalence import compatible
from anabranch.model.history import History, replay
from anabranch.model.notation import parse
from anabranch.model.properties import MergeCase
from anabranch.model.time import FOREVER, NEVER
from anabranch.operators.merge.contract import Bucket, Reason
from anabranch.testing.strategies import interleavings, replicas

GRANULARITIES = st.sampled_from(["batch", "element"])
LAGS = st.sampled_from([0, 0, 1, 4])


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
    merge = KernelR4(data.draw(st.booleans()), data.draw(GRANULARITIES))
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


@given(st.data())
def test_kernel_r4_says_in_element_granularity_what_the_reference_says(data):
    """The same elements in the same order and the same reasons, whatever comes."""
    arrived = data.draw(quarrels_r4())
    shrink_only = data.draw(st.booleans())
    choices = {"stable_lag": data.draw(LAGS), "promote": data.draw(st.booleans())}
    kernel = KernelR4(shrink_only, "element", **choices)
    reference = ReferenceR4(shrink_only, **choices)
    for number in range(3):
        guarantee = data.draw(st.sampled_from([None, None, 0, 3, FOREVER]))
        kernel.attach(f"r{number}", guarantee)
        reference.attach(f"r{number}", guarantee)
    for _, some in steps(data, arrived):
        kernel.step(some)
        for name, _ in some:  # a step announces all that arrive in it, also who had left
            if name not in reference.merge.replicas:
                reference.attach(name)
        for name, elements in some:
            reference.take(name, elements)
        agree(kernel, reference)
        assert kernel.output == reference.output
        if data.draw(st.booleans()):
            kernel.restart()
        if data.draw(st.integers(0, 2)) == 0:
            change_membership(data, kernel, reference)


def test_a_replica_that_arrives_in_a_step_is_known_from_its_beginning():
    told, copy = parse("insert a 0..1; stable 5"), parse("insert a 0..1")
    together, apart = KernelR4(False, "element"), KernelR4(False, "element")
    together.step([("r0", told), ("r1", copy)])
    assert together.reasons[-1] is Reason.SETTLED
    apart.step([("r0", told)])
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
    arrived = data.draw(quarrels_r4())
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
        if choices["promote"] and data.draw(st.integers(0, 4)) == 0:
            change_membership(data, kernel, reference)


@given(st.data())
def test_r4_with_a_lag_is_compatible_at_every_step_and_equivalent_at_the_end(data):
    streams, lag = data.draw(bags()), data.draw(st.integers(1, 5))
    arrived = data.draw(interleavings(streams))
    merge = KernelR4(data.draw(st.booleans()), data.draw(GRANULARITIES), stable_lag=lag)
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
    arrived = data.draw(quarrels_r4())
    choices = data.draw(st.booleans()), data.draw(GRANULARITIES)
    merge = KernelR4(*choices, stable_lag=data.draw(LAGS))
    for _, some in steps(data, arrived):
        merge.step(some)
        assert replay(merge.output).violations == ()
    assert len(merge.reasons) == len(arrived)


@given(st.data())
def test_nothing_is_late_or_a_violation_when_replicas_of_bags_agree(data):
    streams = data.draw(bags(phantoms=0))
    arrived = data.draw(interleavings(streams))
    merge = KernelR4(granularity=data.draw(GRANULARITIES))
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
    merge = KernelR4(granularity=data.draw(GRANULARITIES))
    merge.step([(f"r{number}", []) for number in range(len(streams))])
    for _, some in steps(data, arrived):
        merge.step(some)
        assert replay(merge.output).violations == ()
    final = {(e.start, e.payload) for e in History.of(merge.output)}
    emitted = {(e.start, e.payload) for e in merge.output if isinstance(e, Insert)}
    told = {(e.start, e.payload) for s in streams for e in History.of(s)}
    late = sum(reason.bucket is Bucket.LATE for reason in merge.reasons)
    # What is on no output at all was given back as late; what was taken back is a named gap.
    assert late >= len(told - final - emitted)
    named = {(start, payload) for _, start, payload in merge.missing}
    assert emitted - final <= named


def count(kind, elements):
    return sum(isinstance(element, kind) for element in elements)


@given(st.data())
def test_lmerge_erratum_l12_bounds_on_chattiness_hold_for_bags(data):
    """Each adjust of the output is paid for by an insert or adjust of the input."""
    streams = data.draw(bags())
    arrived = data.draw(interleavings(streams))
    merge = KernelR4(granularity=data.draw(GRANULARITIES))
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
    kernel = KernelR4(shrink_only=True, granularity=data.draw(GRANULARITIES))
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


@given(st.data())
def test_a_joining_replica_of_bags_never_makes_the_output_wrong(data):
    """LMerge V-B: complete replicas, and one that is right from its guarantee on (L9)."""
    streams = data.draw(bags(min_inputs=2, max_inputs=3, phantoms=0))
    guarantee = data.draw(st.integers(0, 10))
    # Without identities all of whose events ended before its guarantee.
    known = {(e.start, e.payload) for e in History.of(streams[-1]) if e.end >= guarantee}
    streams[-1] = [
        e for e in streams[-1] if isinstance(e, Stable) or (e.start, e.payload) in known
    ]
    arrived = data.draw(interleavings(streams))
    merge = KernelR4(granularity=data.draw(GRANULARITIES))
    names = [f"r{number}" for number in range(len(streams))]
    for name in names:
        merge.attach(name, guarantee if name == names[-1] else None)
    for _, some in steps(data, arrived):
        merge.step(some)
        assert replay(merge.output).violations == ()
        if data.draw(st.booleans()):
            merge.restart()
    assert merge.conflicts == 0
    assert History.of(merge.output) == History.of(streams[0])
