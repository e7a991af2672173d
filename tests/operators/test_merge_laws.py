"""Laws of merge R3, for the reference and the kernel, judged by the model at every prefix."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from merge_driver import (
    SCHEMA,
    Kernel,
    Reference,
    batch_of,
    cuts,
    judge_prefix,
    prefixes,
    runs,
    spread,
)

from anabranch.batch.codec import to_elements
from anabranch.model.element import Adjust, Insert, Stable
from anabranch.model.equivalence import compatible
from anabranch.model.history import History, replay
from anabranch.model.time import FOREVER, NEVER
from anabranch.operators.contract import Arrival, Bucket, count_buckets
from anabranch.operators.merge.policy import Policy
from anabranch.operators.merge.state import MergeState
from anabranch.operators.reference.r3 import MergeR3
from anabranch.testing.strategies import conflicting_arrivals, interleavings, joiners, replicas


@given(st.data())
def test_reference_is_compatible_at_every_prefix_and_equivalent_at_the_end(data):
    streams = data.draw(replicas())
    arrived = data.draw(interleavings(streams))
    merge = Reference()
    for number in range(len(streams)):
        merge.attach(f"r{number}")
    for position, (number, element) in enumerate(arrived):
        merge.take(f"r{number}", [element])
        judge_prefix(merge.output, arrived[: position + 1], len(streams))
    assert History.of(merge.output) == History.of(streams[0])
    assert merge.live == 0
    assert merge.merge.settled == {}


@given(st.data())
def test_kernel_any_cut_any_restart_same_history(data):
    streams = data.draw(replicas())
    arrived = data.draw(interleavings(streams))
    merge = Kernel()
    for start, stop in pairwise([0, *data.draw(cuts(len(arrived)))]):
        merge.step(runs(arrived[start:stop]))
        if stop:
            judge_prefix(merge.output, arrived[:stop], len(streams))
        if data.draw(st.booleans()):
            merge.restart()
    assert History.of(merge.output) == History.of(streams[0])
    assert merge.live == 0


@given(st.data())
def test_kernel_and_reference_agree_after_every_element_whatever_comes(data):
    arrived = data.draw(conflicting_arrivals())
    lag = data.draw(st.sampled_from([0, 0, 1, 4]))
    kernel = Kernel(Policy(stable_lag=lag))
    reference = Reference(MergeR3(policy=Policy(stable_lag=lag)))
    for number in range(3):
        guarantee = data.draw(st.sampled_from([None, None, 0, 3, FOREVER]))
        kernel.attach(f"r{number}", guarantee)
        reference.attach(f"r{number}", guarantee)
    for number, element in arrived:
        kernel.take(f"r{number}", [element])
        reference.take(f"r{number}", [element])
        assert kernel.reasons == reference.reasons
        assert replay(kernel.output) == replay(reference.output)
        assert kernel.live == reference.live
        assert kernel.conflicts == reference.conflicts
        assert kernel.settled == len(reference.merge.settled)


@given(st.data())
def test_with_a_lag_the_output_is_compatible_at_every_step_and_equivalent_at_the_end(data):
    streams, lag = data.draw(replicas()), data.draw(st.integers(1, 5))
    arrived = data.draw(interleavings(streams))
    merge = Kernel(Policy(stable_lag=lag))
    expected = NEVER
    for start, stop in pairwise([0, *data.draw(cuts(len(arrived)))]):
        merge.step(runs(arrived[start:stop]))
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
def test_output_is_valid_whatever_comes(data):
    arrived = data.draw(conflicting_arrivals())
    merge = Kernel()
    for start, stop in pairwise([0, *data.draw(cuts(len(arrived)))]):
        merge.step(runs(arrived[start:stop]))
        assert replay(merge.output).violations == ()
    assert len(merge.reasons) == len(arrived)


@given(st.data())
def test_gaps_leave_the_output_valid_and_are_never_absorbed(data):
    streams = data.draw(replicas(min_inputs=2, gaps=True, phantoms=0))
    arrived = data.draw(interleavings(streams))
    merge = Kernel()
    merge.step([(f"r{number}", []) for number in range(len(streams))])
    for start, stop in pairwise([0, *data.draw(cuts(len(arrived)))]):
        merge.step(runs(arrived[start:stop]))
        assert replay(merge.output).violations == ()
    final = {(e.start, e.payload) for e in History.of(merge.output)}
    emitted = {(e.start, e.payload) for e in merge.output if isinstance(e, Insert)}
    brought = {(e.start, e.payload) for s in streams for e in History.of(s)}
    late = sum(reason.bucket is Bucket.LATE for reason in merge.reasons)
    # What is on no output at all was given back as late.
    assert late >= len(brought - final - emitted)


@given(st.data())
def test_nothing_is_late_or_a_violation_when_replicas_agree(data):
    streams = data.draw(replicas(phantoms=0))
    arrived = data.draw(interleavings(streams))
    merge = Kernel()
    merge.step([(f"r{number}", []) for number in range(len(streams))])
    for start, stop in pairwise([0, *data.draw(cuts(len(arrived)))]):
        merge.step(runs(arrived[start:stop]))
    found = {reason.bucket for reason in merge.reasons}
    assert found <= {Bucket.EMITTED, Bucket.ABSORBED, Bucket.CORRECTED}
    assert merge.conflicts == 0
    assert merge.settled == 0


@given(st.data())
def test_lanes_together_have_the_same_history(data):
    streams = data.draw(replicas())
    arrived = data.draw(interleavings(streams))
    lanes = [MergeState.empty(SCHEMA) for _ in range(data.draw(st.integers(1, 4)))]
    output, elements, counted = [], 0, 0
    for start, stop in pairwise([0, *data.draw(cuts(len(arrived)))]):
        arrivals = [Arrival(name, batch_of(some)) for name, some in runs(arrived[start:stop])]
        results = spread(lanes, arrivals)
        parts = [to_elements(result.output) for result in results]
        output += [e for part in parts for e in part if not isinstance(e, Stable)]
        output += [e for e in parts[0] if isinstance(e, Stable)]
        assert len({result.stable for result in results}) == 1
        assert len({lane.frontier for lane in lanes}) == 1
        data_elements = sum(int(arrival.batch.is_data.sum()) for arrival in arrivals)
        stables = sum(len(a.batch) for a in arrivals) - data_elements
        elements += data_elements + stables * len(lanes)
        counted += sum(sum(count_buckets(r.buckets).values()) for r in results)
        if stop:
            judge_prefix(output, arrived[:stop], len(streams))
    assert History.of(output) == History.of(streams[0])
    assert counted == elements


@given(st.data())
def test_lmerge_erratum_l12_bounds_on_chattiness(data):
    streams = data.draw(replicas())
    arrived = data.draw(interleavings(streams))
    reference, kernel = Reference(), Kernel()
    for number, element in arrived:
        reference.take(f"r{number}", [element])
    for start, stop in pairwise([0, *data.draw(cuts(len(arrived)))]):
        kernel.step(runs(arrived[start:stop]))

    def count(kind, elements):
        return sum(isinstance(element, kind) for element in elements)

    came = [element for _, element in arrived]
    for output in (reference.output, kernel.output):
        assert count(Insert, output) <= count(Insert, came)
        assert count(Stable, output) <= count(Stable, came)
        assert count(Adjust, output) <= count(Insert, came) + count(Adjust, came)


@given(st.data())
def test_a_joining_replica_never_makes_the_output_wrong(data):
    """LMerge V-B: complete replicas, and one that is right from its guarantee on (L9)."""
    streams = data.draw(replicas(max_inputs=2, phantoms=0))
    truth, guarantee = History.of(streams[0]), data.draw(st.integers(0, 10))
    late = joiners(truth, guarantee=guarantee, strangers=1, phantoms=0)
    streams.append(data.draw(late))
    arrived = data.draw(interleavings(streams))
    merge = Kernel()
    names = [f"r{number}" for number in range(len(streams))]
    for name in names:
        merge.attach(name, guarantee if name == names[-1] else None)
    for start, stop in pairwise([0, *data.draw(cuts(len(arrived)))]):
        merge.step(runs(arrived[start:stop]))
        assert replay(merge.output).violations == ()
        if data.draw(st.booleans()):
            merge.restart()
    assert merge.conflicts == 0
    assert History.of(merge.output) == History.of(streams[0])
    assert prefixes(arrived, 1)[0].frontier == FOREVER
