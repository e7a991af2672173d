"""Laws of the merges R0, R1 and R2, judged by the model at every prefix."""

from collections import Counter, defaultdict
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from merge_driver import SCHEMA, batch_of, cuts, judge_prefix, prefixes, runs
from ordered_driver import Kernel, Reference, cases, ordered_conflicts
from policy_kernel_driver import time_of

from anabranch.batch.codec import to_elements
from anabranch.model.element import Insert, Stable
from anabranch.model.equivalence import compatible
from anabranch.model.history import History, replay
from anabranch.model.properties import MergeCase
from anabranch.model.time import FOREVER, NEVER
from anabranch.operators.contract import Arrival, Bucket, Reason
from anabranch.operators.merge.ordered_state import OrderedState
from anabranch.operators.route import route
from anabranch.testing.strategies import interleavings, replicas

LAGS = st.sampled_from([0, 0, 1, 4])


def steps(data, arrived):
    """The elements, cut into steps that are not empty."""
    ends = data.draw(cuts(len(arrived)))
    return [arrived[a:b] for a, b in pairwise([0, *ends]) if a < b]


@given(st.data())
def test_reference_is_compatible_at_every_prefix_and_equivalent_at_the_end(data):
    case = data.draw(cases)
    streams = data.draw(replicas(case=case))
    arrived = data.draw(interleavings(streams))
    merge = Reference(case)
    for position, (number, element) in enumerate(arrived):
        merge.take(f"r{number}", [element])
        judge_prefix(merge.output, arrived[: position + 1], len(streams))
    assert History.of(merge.output) == History.of(streams[0])


@given(st.data(), st.booleans())
def test_kernel_any_cut_any_restart_same_history(data, each):
    case = data.draw(cases)
    streams = data.draw(replicas(case=case))
    arrived = data.draw(interleavings(streams))
    merge = Kernel(case, each)
    taken = []
    for some in steps(data, arrived):
        merge.step(runs(some))
        taken += some
        judge_prefix(merge.output, taken, len(streams))
        if data.draw(st.booleans()):
            merge.restart()
    assert History.of(merge.output) == History.of(streams[0])
    assert merge.conflicts == 0


@given(st.data())
def test_kernel_emits_what_the_reference_emits_whatever_comes(data):
    """Also with joining replicas, replicas that leave and come back, and promotions."""
    case = data.draw(cases)
    arrived = data.draw(ordered_conflicts(case))
    choices = {"stable_lag": data.draw(LAGS), "promotes": data.draw(st.booleans())}
    one, whole = Kernel(case, each=True, **choices), Kernel(case, **choices)
    reference = Reference(case, **choices)
    merges = (one, whole, reference)
    attachments = dict.fromkeys(["r0", "r1", "r2"], 1)
    guarantees = st.sampled_from([None, None, 0, 3, 6, FOREVER])
    for name in attachments:
        guarantee = data.draw(guarantees)
        for merge in merges:
            merge.attach(name, guarantee)
    for some in steps(data, arrived):
        one.step(runs(some))
        whole.step(runs(some))
        for name, elements in runs(some):
            reference.take(name, elements)
        agree_but_for_stables(one, reference)
        assert one.reasons == reference.reasons
        assert one.conflicts == whole.conflicts == reference.conflicts
        agree_but_for_stables(whole, reference)
        agree_on_members(one, reference)
        name = data.draw(st.sampled_from(sorted(attachments)))
        event = data.draw(st.sampled_from(["", "", "restart", "attach", "detach", "promote"]))
        if event == "restart":
            one.restart()
            whole.restart()
        elif event == "attach" or name not in reference.merge.replicas:
            attachments[name] += 1
            guarantee = data.draw(guarantees)
            for merge in merges:
                merge.attach(name, guarantee, attachments[name])
        elif event:
            for merge in merges:
                getattr(merge, event)(name)


def agree_on_members(kernel, reference):
    stretches = [(time_of(a), time_of(b), c) for a, b, c in kernel.state.stretches]
    assert stretches == list(reference.merge.stretches)
    theirs, ours = reference.merge.alarm, kernel.state.alarm
    assert (ours is None) == (theirs is None)
    if theirs is not None:
        assert (time_of(ours.frontier), ours.replica, time_of(ours.guarantee)) == theirs


@given(st.data(), st.booleans())
def test_with_a_lag_the_output_is_compatible_at_every_step_and_equivalent_at_the_end(
    data, each
):
    case, lag = data.draw(cases), data.draw(st.integers(1, 5))
    streams = data.draw(replicas(case=case))
    arrived = data.draw(interleavings(streams))
    merge, taken, expected = Kernel(case, each, stable_lag=lag), [], NEVER
    for some in steps(data, arrived):
        merge.step(runs(some))
        taken += some
        out, seen = replay(merge.output), prefixes(taken, len(streams))
        assert out.violations == ()
        assert compatible(out, seen)
        expected = max([expected, *(one.frontier - lag for one in seen)])
        assert out.frontier == expected
        if data.draw(st.booleans()):
            merge.restart()
    assert History.of(merge.output) == History.of(streams[0])


def agree_but_for_stables(kernel, reference):
    """A batch shows the same inserts in the same order, and the last of its stables."""
    assert replay(kernel.output) == replay(reference.output)
    inserts = [[e for e in m.output if isinstance(e, Insert)] for m in (kernel, reference)]
    assert inserts[0] == inserts[1]
    for ours, theirs in zip(kernel.reasons, reference.reasons, strict=True):
        assert ours is theirs or (ours, theirs) == (Reason.FOLLOWS, Reason.LEADS)


@given(st.data())
def test_output_is_valid_and_ordered_whatever_comes(data):
    case = data.draw(cases)
    arrived = data.draw(ordered_conflicts(case))
    merge = Kernel(case, data.draw(st.booleans()))
    merge.attach("r2", data.draw(st.sampled_from([None, 3])))
    for some in steps(data, arrived):
        merge.step(runs(some))
        assert replay(merge.output).violations == ()
    starts = [e.start for e in merge.output if isinstance(e, Insert)]
    assert all(a < b if case is MergeCase.R0 else a <= b for a, b in pairwise(starts))
    assert case is MergeCase.R1 or replay(merge.output).history.is_keyed
    assert len(merge.reasons) == len(arrived)


@given(st.data())
def test_gaps_lose_only_what_nobody_brings_in_time(data):
    """LMerge V-C: an event is on the output if it comes before a greater start, or a stable."""
    case = data.draw(cases)
    streams = data.draw(replicas(case=case, min_inputs=2, gaps=True))
    arrived = data.draw(interleavings(streams))
    merge = Kernel(case, each=True)
    for some in steps(data, arrived):
        merge.step(runs(some))
        assert replay(merge.output).violations == ()
    wanted = in_time(arrived)
    assert History.of(merge.output) == History.from_events(wanted.elements())
    # What is on no output at all was given back as late, and nothing else was lost.
    late = merge.account.buckets(Insert).count(Bucket.LATE)
    brought = Counter()
    for stream in streams:
        brought |= Counter(e.event for e in stream if isinstance(e, Insert))
    assert late >= (brought - wanted).total()
    assert merge.conflicts == 0


def in_time(arrived):
    """Of each start, as many of each event as some replica had brought while it was open."""
    greatest = frontier = NEVER
    best, came = Counter(), defaultdict(Counter)
    for number, element in arrived:
        if isinstance(element, Stable):
            frontier = max(frontier, element.time)
        elif element.start >= max(greatest, frontier):
            greatest = element.start
            came[number][element.event] += 1
            best |= came[number]
    return best


@given(st.data())
def test_nothing_is_wrong_when_replicas_agree_and_what_is_behind_is_late(data):
    case = data.draw(cases)
    streams = data.draw(replicas(case=case))
    arrived = data.draw(interleavings(streams))
    merge = Kernel(case)
    for some in steps(data, arrived):
        merge.step(runs(some))
    assert set(merge.account.buckets(Insert)) <= {
        Bucket.EMITTED,
        Bucket.ABSORBED,
        Bucket.LATE,
    }
    assert set(merge.account.buckets(Stable)) <= {Bucket.EMITTED, Bucket.ABSORBED}
    emitted = merge.account.buckets(Insert).count(Bucket.EMITTED)
    assert emitted == len(History.of(streams[0]))


@given(st.data())
def test_a_joining_replica_loses_and_doubles_nothing(data):
    """LMerge V-B: complete replicas, and one that is right from its guarantee on (L9)."""
    case = data.draw(cases)
    streams = data.draw(replicas(case=case, min_inputs=2))
    guarantee = data.draw(st.integers(0, 10))
    # Without what has ended before its guarantee, which it need not know.
    streams[-1] = [e for e in streams[-1] if isinstance(e, Stable) or e.end >= guarantee]
    arrived = data.draw(interleavings(streams))
    merge = Kernel(case, data.draw(st.booleans()))
    names = [f"r{number}" for number in range(len(streams))]
    for name in names:
        merge.attach(name, guarantee if name == names[-1] else None)
    for some in steps(data, arrived):
        merge.step(runs(some))
        assert replay(merge.output).violations == ()
        if data.draw(st.booleans()):
            merge.restart()
    assert History.of(merge.output) == History.of(streams[0])
    assert merge.account.pending == 0
    assert merge.conflicts == 0


@given(st.data())
def test_a_joined_replica_can_go_on_alone(data):
    """LMerge V-B: once joined, all others may fail (L9: held back, not dropped)."""
    case = data.draw(cases)
    streams = data.draw(replicas(case=case, min_inputs=2, max_inputs=2))
    guarantee = data.draw(st.integers(0, 10))
    streams[1] = [e for e in streams[1] if isinstance(e, Stable) or e.end >= guarantee]
    arrived = data.draw(interleavings(streams))
    merge = Kernel(case, data.draw(st.booleans()))
    merge.attach("r0")
    merge.attach("r1", guarantee)
    for some in steps(data, arrived):
        if "r0" in merge.state.members.names and merge.state.inputs[1].joined:
            merge.detach("r0")
        gone = "r0" not in merge.state.members.names
        merge.step([(name, e) for name, e in runs(some) if not (gone and name == "r0")])
        assert replay(merge.output).violations == ()
    assert History.of(merge.output) == History.of(streams[0])


@given(st.data())
def test_replicas_may_leave_and_come_back_with_a_replay(data):
    """Anyone may be detached, the leader too, while one complete replica stays (L7, L8)."""
    case = data.draw(cases)
    streams = data.draw(replicas(case=case, min_inputs=2))
    merge = Kernel(case, data.draw(st.booleans()))
    at, attachments = [0] * len(streams), [1] * len(streams)
    while at[0] < len(streams[0]):
        number = data.draw(st.integers(0, len(streams) - 1))
        more = data.draw(st.integers(1, 3))
        name = f"r{number}"
        merge.step([(name, streams[number][at[number] : at[number] + more])])
        at[number] += more
        if number and data.draw(st.booleans()):
            merge.detach(name)
            attachments[number] += 1
            merge.attach(name, None, attachments[number])
            at[number] = 0
        assert replay(merge.output).violations == ()
    assert History.of(merge.output) == History.of(streams[0])
    assert merge.conflicts == 0


@given(st.data())
def test_lanes_together_have_the_same_history(data):
    case = data.draw(cases)
    streams = data.draw(replicas(case=case))
    arrived = data.draw(interleavings(streams))
    lanes = [OrderedState.empty(case, SCHEMA) for _ in range(data.draw(st.integers(1, 3)))]
    output = []
    for some in steps(data, arrived):
        batches = [(name, batch_of(elements)) for name, elements in runs(some)]
        routes = [route(batch, len(lanes)) for _, batch in batches]
        stables = set()
        for number, lane in enumerate(lanes):
            parts = [
                Arrival(name, batch.take((to == number) | (to < 0)))
                for (name, batch), to in zip(batches, routes, strict=True)
            ]
            result = lane.step(parts)
            lane.check()
            output += [e for e in to_elements(result.output) if isinstance(e, Insert)]
            stables.add(result.stable)
        assert len(stables) == 1
    assert History.of(output) == History.of(streams[0])


@given(st.data(), st.booleans())
def test_merges_of_merges_have_the_same_history(data, each):
    """LMerge II-1: the output of a merge keeps the promises that a replica of its case must."""
    case = data.draw(cases)
    streams = data.draw(replicas(case=case, min_inputs=2, max_inputs=4))
    arrived = data.draw(interleavings(streams))
    below = [Kernel(case, each), Kernel(case, each)]
    above = Kernel(case, each)
    for some in steps(data, arrived):
        for number, merge in enumerate(below):
            mine = [one for one in some if one[0] % 2 == number]
            before = len(merge.output)
            merge.step(runs(mine))
            above.step([(f"m{number}", merge.output[before:])])
        assert replay(above.output).violations == ()
    assert History.of(above.output) == History.of(streams[0])
    assert Bucket.VIOLATION not in {reason.bucket for reason in above.reasons}
