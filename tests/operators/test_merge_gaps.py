"""Gaps by identity: what a deciding replica never mentioned, on the R3 path as in R4.

Papers: LMerge V-C.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from merge_driver import SCHEMA, Kernel, Reference, batch_of, cuts, runs, step
from merge_r4_driver import KernelR4, ReferenceR4

from anabranch.model.element import Insert, Stable
from anabranch.model.history import History
from anabranch.model.notation import parse
from anabranch.model.time import FOREVER
from anabranch.operators.contract import GAPS_SHOWN, Arrival, Gap
from anabranch.operators.merge.policy import Policy, Quorum
from anabranch.operators.merge.state import MergeState
from anabranch.operators.reference.r3 import MergeR3
from anabranch.testing.strategies import conflicting_arrivals, interleavings, replicas

GUARANTEES = st.sampled_from([None, None, 0, 3, FOREVER])


def steps(data, arrived):
    """The elements, cut into steps at random."""
    start = 0
    for stop in data.draw(cuts(len(arrived))):
        yield runs(arrived[start:stop])
        start = stop


@given(st.data())
def test_the_kernel_names_the_gaps_of_the_reference_whatever_comes(data):
    """In steps of one element."""
    arrived = data.draw(conflicting_arrivals())
    kernel, reference = Kernel(), Reference()
    for number in range(3):
        guarantee = data.draw(GUARANTEES)
        for merge in (kernel, reference):
            merge.attach(f"r{number}", guarantee)
    for some in steps(data, arrived):
        for name, elements in some:
            for element in elements:
                kernel.take(name, [element])
                reference.take(name, [element])
        assert sorted(kernel.missing) == sorted(reference.missing)
    assert len(set(reference.missing)) == len(reference.missing)


@given(st.data())
def test_r3_and_r4_name_the_same_gaps_where_replicas_have_one_history(data):
    """Of events that end: of one that may last for ever they may show another end meanwhile,
    and whether the end of the stream has to decide it depends on that."""
    streams = data.draw(replicas(min_inputs=2, gaps=True, phantoms=0))
    endless = {
        (e.start, e.payload)
        for stream in streams
        for e in stream
        if not isinstance(e, Stable) and e.end == FOREVER
    }
    arrived = data.draw(interleavings(streams))
    ours, theirs = Kernel(), KernelR4()
    references = Reference(), ReferenceR4()
    for number in range(len(streams)):
        for merge in (ours, theirs, *references):
            merge.attach(f"r{number}")
    for some in steps(data, arrived):
        for merge in (ours, theirs):
            merge.step(some)
        for name, elements in some:
            for merge in references:
                merge.take(name, elements)
        for one, other in ((ours, theirs), references):
            named = [
                sorted(gap for gap in merge.missing if gap[1:] not in endless)
                for merge in (one, other)
            ]
            assert named[0] == named[1]


@given(st.data())
def test_what_was_taken_back_for_a_gap_is_named(data):
    streams = data.draw(replicas(min_inputs=2, gaps=True, phantoms=0))
    arrived = data.draw(interleavings(streams))
    merge = Kernel()
    merge.step([(f"r{number}", []) for number in range(len(streams))])
    for some in steps(data, arrived):
        merge.step(some)
    final = {(e.start, e.payload) for e in History.of(merge.output)}
    emitted = {(e.start, e.payload) for e in merge.output if isinstance(e, Insert)}
    assert emitted - final <= {(start, payload) for _, start, payload in merge.missing}


@given(st.data())
def test_replicas_without_holes_have_no_gaps(data):
    streams = data.draw(replicas(phantoms=0))
    arrived = data.draw(interleavings(streams))
    merge = Kernel()
    merge.step([(f"r{number}", []) for number in range(len(streams))])
    for some in steps(data, arrived):
        merge.step(some)
    assert merge.missing == []


EAST = parse("insert a 1..9; insert b 4..6; stable 3")


@pytest.mark.parametrize("merge", [Kernel(), KernelR4(), Reference(), ReferenceR4()])
def test_a_gap_is_named_when_it_is_half_frozen_or_frozen_and_once(merge):
    merge.attach("east")
    merge.attach("west")
    merge.take("east", EAST)
    merge.take("west", parse("stable 5"))
    # `b` would be half frozen: it leaves.  `a` was promised: it is not yet final.
    assert merge.missing == [("west", 4, "b")]
    merge.take("west", parse("stable 10"))
    assert merge.missing[1:] == [("west", 1, "a")]
    merge.take("east", parse("stable forever"))
    assert len(merge.missing) == 2


def test_what_the_deciding_replica_removed_itself_is_no_gap():
    for merge in (Kernel(), KernelR4(), Reference(), ReferenceR4()):
        merge.take("east", parse("insert a 1..9"))
        merge.take("west", parse("insert a 1..9; adjust a 1..9->1; stable 5"))
        assert merge.missing == []


def test_an_event_that_a_policy_holds_back_can_be_a_gap_too():
    merge = MergeR3(policy=Policy(inserts=Quorum(0.9)))
    merge.attach("east")
    merge.attach("west")
    merge.push("east", Insert("a", 1, 9))
    merge.push("west", Stable(5))
    assert merge.missing == [("west", (1, "a"))]


def test_one_that_was_promoted_need_not_know_what_ends_before_its_guarantee():
    merge = MergeR3(policy=Policy(promote=True))
    merge.attach("east")
    merge.push("east", Insert("a", 1, 9))
    merge.push("east", Insert("b", 30, 40))
    merge.push("east", Stable(3))
    merge.attach("west", guarantee=20)
    merge.detach("east")
    merge.push("west", Stable(50))
    assert merge.missing == [("west", (30, "b"))]


def test_gaps_are_named_of_single_events_and_of_bags():
    state = MergeState.empty(SCHEMA, keyed=False)

    def take(name, text):
        return step(state, [Arrival(name, batch_of(parse(text)))])

    take("east", "insert a 1..9")
    result = take("west", "stable 2")
    assert (result.missing, result.gaps) == (1, (Gap("west", 1, "a"),))
    take("east", "insert b 3..9; insert b 3..9")
    result = take("west", "stable 5")
    assert (result.missing, result.gaps) == (1, (Gap("west", 3, "b"),))


def test_all_gaps_are_counted_and_the_first_are_named():
    state = MergeState.empty(SCHEMA)
    many = [Insert(f"p{i}", 1, 9) for i in range(30)]
    step(state, [Arrival("east", batch_of(many))])
    result = step(state, [Arrival("west", batch_of([Stable(2)]))])
    assert (result.missing, len(result.gaps)) == (30, GAPS_SHOWN)
    assert result.gaps[0].replica == "west"
    assert result.gaps[0].start == 1
