"""Streams that declare nothing: R4, which is R3 while identities happen to be unique."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from merge_driver import SCHEMA, Kernel, Reference, batch_of, cuts, judge_prefix, runs, step
from merge_r4_driver import KernelR4, ReferenceR4, conflicting_r4

from anabranch.batch.batch import FOREVER_UNITS
from anabranch.errors import SchemaError
from anabranch.model.history import History, replay
from anabranch.model.notation import parse
from anabranch.model.properties import MergeCase
from anabranch.model.time import FOREVER
from anabranch.operators.contract import Arrival, Reason
from anabranch.operators.merge.policy import Policy
from anabranch.operators.merge.state import MergeState
from anabranch.testing.strategies import interleavings, replicas

LAGS = st.sampled_from([0, 0, 1, 4])
CASES = st.sampled_from([MergeCase.R3, MergeCase.R4])


def steps(data, arrived):
    start = 0
    for stop in data.draw(cuts(len(arrived))):
        yield stop, runs(arrived[start:stop])
        start = stop


@pytest.mark.parametrize("case", [MergeCase.R3, MergeCase.R4])
@given(st.data())
def test_it_has_the_history_whatever_the_case(case, data):
    streams = data.draw(replicas(case=case))
    arrived = data.draw(interleavings(streams))
    lag, promote = data.draw(st.sampled_from([0, 0, 3])), data.draw(st.booleans())
    merge = KernelR4(stable_lag=lag, promote=promote)
    for stop, some in steps(data, arrived):
        merge.step(some)
        if stop and not lag:
            judge_prefix(merge.output, arrived[:stop], len(streams))
        if data.draw(st.booleans()):
            merge.restart()
        if case is MergeCase.R3:
            assert len(merge.state.nodes.bag_ids()) == 0
    assert History.of(merge.output) == History.of(streams[0])
    assert merge.live == 0
    assert Reason.SECOND_INSERT not in merge.reasons


@given(st.data())
def test_while_identities_are_unique_r4_emits_what_r3_emits(data):
    """The same elements for the same reasons, whoever comes and goes."""
    streams = data.draw(replicas(min_inputs=2))
    arrived = data.draw(interleavings(streams))
    policy = Policy(
        stable_lag=data.draw(LAGS),
        shrink_only=data.draw(st.booleans()),
        promote=data.draw(st.booleans()),
    )
    merges = Kernel(policy), Kernel(policy, keyed=False)
    for number in range(len(streams)):
        guarantee = data.draw(st.sampled_from([None, None, 2, 5, FOREVER]))
        for merge in merges:
            merge.attach(f"r{number}", guarantee)
    for _, some in steps(data, arrived):
        for merge in merges:
            merge.step(some)
        one, other = merges
        assert one.output == other.output
        assert one.reasons == other.reasons
        assert one.missing == other.missing
        assert (one.conflicts, one.live) == (other.conflicts, other.live)


@given(st.data())
def test_the_references_of_r3_and_r4_agree_while_identities_are_unique(data):
    """Joining, leaving and promoted replicas of one history: R3's rules are those of R4."""
    streams = data.draw(replicas(min_inputs=3, phantoms=0))
    arrived = data.draw(interleavings(streams))
    choices = {"stable_lag": data.draw(LAGS), "promote": True}
    policy = Policy(shrink_only=data.draw(st.booleans()), **choices)
    keyed, bags = Reference(), ReferenceR4(policy.shrink_only, **choices)
    keyed.merge.policy = policy
    numbers = {}
    for number in range(3):
        change_members(data, (keyed, bags), numbers, f"r{number}")
    for _, came in steps(data, arrived):
        for name, elements in came:
            if name in numbers:
                keyed.take(name, elements)
                bags.take(name, elements)
        name = data.draw(st.sampled_from(["r0", "r1", "r2"]))
        if data.draw(st.booleans()):
            change_members(data, (keyed, bags), numbers, name)
        elif name in numbers and data.draw(st.booleans()):
            del numbers[name]
            for one in (keyed, bags):
                one.detach(name)
        assert replay(keyed.output) == replay(bags.output)
        assert keyed.reasons == bags.reasons
        assert keyed.conflicts == bags.conflicts


def change_members(data, merges, numbers, name):
    guarantee = data.draw(st.sampled_from([None, None, 2, 5, FOREVER]))
    numbers[name] = data.draw(st.integers(1, 3)) + numbers.get(name, 0)
    if name in merges[1].merge.replicas:
        numbers[name] = merges[1].merge.replicas[name].key[1] + 1
    for merge in merges:
        merge.attach(name, guarantee, numbers[name])


@given(st.data())
def test_it_is_valid_and_has_the_history_of_r4_whatever_comes(data):
    arrived = data.draw(conflicting_r4)
    merge, reference = KernelR4(), ReferenceR4()
    for number, element in arrived:
        merge.take(f"r{number}", [element])
        reference.take(f"r{number}", [element])
        assert replay(merge.output) == replay(reference.output)
        assert replay(merge.output).violations == ()
    assert Reason.SECOND_INSERT not in merge.reasons


def test_a_step_that_meets_a_duplicate_makes_a_bag_of_that_identity_alone():
    merge = KernelR4()
    merge.attach("late", guarantee=9)
    merge.take("1", parse("insert a 1..9; insert b 2..3; insert c 3..9; adjust c 3..9->3"))
    merge.take("2", parse("insert a 1..5; stable 2; insert d 6..9"))
    assert len(merge.state.nodes.bag_ids()) == 0
    merge.take("1", parse("insert d 6..9; stable 4; insert d 6..7; stable 5"))
    assert len(merge.state.nodes.bag_ids()) == 1
    assert [(r.name, r.joined) for r in merge.state.inputs] == [
        ("late", False),
        ("1", True),
        ("2", True),
    ]
    merge.restart()
    merge.take("2", parse("insert d 6..7; stable forever"))
    assert History.of(merge.output) == History.of(
        parse("insert a 1..5; insert b 2..3; insert d 6..9; insert d 6..7")
    )
    assert Reason.SECOND_INSERT not in merge.reasons
    assert merge.state.frontier == FOREVER_UNITS
    merge.detach("2")
    merge.attach("3")
    assert merge.state.members.names == ["late", "1", "3"]
    assert merge.state.conflicts == 0


@pytest.mark.parametrize(
    "text",
    [
        "insert a 1..3; adjust a 1..3->1; insert a 1..3",
        "insert a 1..3; adjust a 1..3->4; adjust a 1..4->1; insert a 1..5",
        "insert a 1..3; insert a 1..1; insert a 2..3; insert b 1..3",
        "insert a 1..3; stable 2; stable 3; adjust a 1..3->9",
    ],
)
def test_what_r3_can_take_makes_no_bag(text):
    for cut in range(len(parse(text)) + 1):
        merge = KernelR4()
        merge.take("1", parse(text)[:cut])
        merge.take("1", parse(text)[cut:])
        merge.take("2", parse(text))
        assert len(merge.state.nodes.bag_ids()) == 0


def test_an_attachment_that_replays_makes_no_bag_and_a_redelivery_neither():
    merge = KernelR4()
    merge.take("1", parse("insert a 1..3"))
    merge.attach("1", attachment=2)
    merge.take("1", parse("insert a 1..3"))
    assert len(merge.state.nodes.bag_ids()) == 0
    state = MergeState.empty(SCHEMA, keyed=False)
    batch = batch_of(parse("insert a 1..3; insert a 1..3"), seq=[4, 4])
    for _ in range(2):
        step(state, [Arrival("1", batch)])
        assert len(state.nodes.bag_ids()) == 0


def test_other_columns_are_refused_by_the_words_of_merge():
    other = batch_of([])
    other = type(other)(
        type(SCHEMA)(SCHEMA.time, SCHEMA.payload.with_metadata(None).append(SCHEMA.payload[0])),
        other.kind,
        other.start,
        other.end,
        other.old_end,
        other.payload,
    )
    with pytest.raises(SchemaError, match="input 'x' has"):
        step(MergeState.empty(SCHEMA, keyed=False), [Arrival("x", other)])
