"""The counts of merge steps add up, also over lanes; and the judge sees what does not."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from merge_driver import SCHEMA, batch_of, cuts, route, runs, step

from anabranch.model.notation import parse
from anabranch.operators.contract import Arrival, Bucket, Reason, Resolved, StepResult
from anabranch.operators.merge.state import MergeState
from anabranch.testing.step_account import StepAccount
from anabranch.testing.strategies import conflicting_arrivals, interleavings, replicas

three_replicas = replicas(min_inputs=3, max_inputs=3).flatmap(interleavings)


def arrive(*texts):
    """`east: insert a 1..2; stable 3` is an arrival."""
    split = (text.split(":") for text in texts)
    return [Arrival(name, batch_of(parse(elements))) for name, elements in split]


def in_steps(arrived, ends):
    """The arrivals of each step, cut at these ends."""
    return [
        [Arrival(name, batch_of(elements)) for name, elements in runs(arrived[begin:end])]
        for begin, end in zip([0, *ends], ends, strict=False)
    ]


def counted(reasons, output=""):
    """A result with this output and these reasons."""
    codes = tuple(np.array([one.code for one in part], np.int8) for part in reasons)
    return StepResult(batch_of(parse(output)), codes, codes, 0)


@given(st.one_of(three_replicas, conflicting_arrivals()), st.data())
def test_the_account_adds_up_after_every_step(arrived, data):
    account, state, written = StepAccount(), MergeState.empty(SCHEMA), 0
    for arrivals in in_steps(arrived, data.draw(cuts(len(arrived)))):
        result = step(state, arrivals)
        account.add(arrivals, result)
        written += len(result.output)
        assert account.adds_up
    assert account.elements.total() == len(arrived)
    assert sum(account.bucket(bucket) for bucket in Bucket) == len(arrived)
    assert account.written.total() == written
    for number in range(3):
        mine = sum(1 for who, _ in arrived if who == number)
        assert account.elements[f"r{number}"] == mine


@given(three_replicas, st.data())
def test_erratum_l12_the_default_output_is_never_chattier_than_its_input(arrived, data):
    account, state = StepAccount(), MergeState.empty(SCHEMA)
    for arrivals in in_steps(arrived, data.draw(cuts(len(arrived)))):
        account.add(arrivals, step(state, arrivals))
        assert account.is_quiet


@given(three_replicas, st.integers(1, 3), st.data())
def test_lanes_add_up_to_the_account_of_all(arrived, lanes, data):
    states = [MergeState.empty(SCHEMA) for _ in range(lanes)]
    parts = [StepAccount() for _ in range(lanes)]
    whole, state = StepAccount(), MergeState.empty(SCHEMA)
    for arrivals in in_steps(arrived, data.draw(cuts(len(arrived)))):
        whole.add(arrivals, step(state, arrivals))
        routed = [route(arrival.batch, lanes) for arrival in arrivals]
        for number, (lane, part) in enumerate(zip(states, parts, strict=True)):
            mine = [
                Arrival(a.input, a.batch.take((to == number) | (to < 0)))
                for a, to in zip(arrivals, routed, strict=True)
            ]
            part.add(mine, step(lane, mine), stables=number == 0)
            assert part.adds_up
    assert sum(parts, StepAccount()) == whole + StepAccount()


def test_a_small_merge_in_figures():
    account, state = StepAccount(), MergeState.empty(SCHEMA)
    for texts in (
        ["east: insert a 3..9; stable 5"],
        ["west: insert a 3..7; insert b 6..9; stable 8", "east: stable 6"],
        ["west: stable 9", "east: insert c 1..2"],
    ):
        arrivals = arrive(*texts)
        account.add(arrivals, step(state, arrivals))
    assert account.elements == {"east": 4, "west": 4}
    assert account.read == {"insert": 4, "stable": 4}
    assert account.written == {"insert": 2, "adjust": 1, "stable": 3}
    assert account.added_adjusts == 1
    found = {bucket.word: account.bucket(bucket) for bucket in Bucket if account.bucket(bucket)}
    assert found == {"emitted": 5, "absorbed": 2, "violation": 1}


def test_pending_elements_move_when_they_are_resolved():
    account = StepAccount()
    held = arrive("east: insert a 1..2; insert b 1..2; insert c 1..2")
    account.add(held, counted([[Reason.HELD] * 3]))
    assert account.adds_up
    assert account.bucket(Bucket.PENDING) == 3
    codes = np.array([Reason.FIRST.code, Reason.LATE.code], np.int8)
    two = Resolved("east", batch_of(parse("insert a 1..2; insert b 1..2")), codes)
    out = batch_of(parse("insert a 1..2"))
    account.add([], StepResult(out, (), (), 0, resolved=(two,)))
    assert account.adds_up
    buckets = [account.bucket(b) for b in (Bucket.EMITTED, Bucket.LATE, Bucket.PENDING)]
    assert buckets == [1, 1, 1]


def test_what_was_never_pending_cannot_be_resolved():
    account = StepAccount()
    codes = np.array([Reason.LATE.code], np.int8)
    one = Resolved("east", batch_of(parse("insert a 1..2")), codes)
    account.add([], StepResult(batch_of([]), (), (), 0, resolved=(one,)))
    assert not account.adds_up


@pytest.mark.parametrize(
    ("element", "reason", "output"),
    [
        ("insert a 1..2", Reason.FIRST, ""),
        ("insert a 1..2", Reason.KNOWN, "insert a 1..2"),
        ("insert a 1..2", Reason.KNOWN, "adjust a 1..2->3"),
        ("stable 1", Reason.LEADS, ""),
    ],
)
def test_an_output_that_the_reasons_do_not_explain_does_not_add_up(element, reason, output):
    account = StepAccount()
    account.add(arrive(f"east: {element}"), counted([[reason]], output))
    assert not account.adds_up


def test_an_element_without_a_bucket_does_not_add_up():
    account = StepAccount()
    account.add(arrive("east: insert a 1..2"), counted([[Reason.KNOWN]]))
    account.elements["east"] += 1
    assert not account.adds_up
