"""The account adds up at every step, sees what does not; lanes combine."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from merge_driver import SCHEMA, batch_of, cuts, quarrels, route, runs

from anabranch.errors import UsageError
from anabranch.model.notation import parse
from anabranch.operators.merge.account import MergeAccount, ReplicaAccount, combine
from anabranch.operators.merge.contract import (
    Arrival,
    Bucket,
    Reason,
    Resolved,
    StepResult,
)
from anabranch.operators.merge.r3_kernel import step
from anabranch.operators.merge.r3_state import R3State
from anabranch.testing.strategies import interleavings, replicas

three_replicas = replicas(min_inputs=3, max_inputs=3).flatmap(interleavings)


def arrive(*texts):
    """`east: insert a 1..2; stable 3` is an arrival."""
    split = (text.split(":") for text in texts)
    return [Arrival(name, batch_of(parse(elements))) for name, elements in split]


def account_of(*steps):
    account, state = MergeAccount(), R3State.empty(SCHEMA)
    for texts in steps:
        arrivals = arrive(*texts)
        account.add(arrivals, step(state, arrivals))
        assert account.adds_up
    return account


def in_steps(arrived, ends):
    """The arrivals of each step, cut at these ends."""
    return [
        [Arrival(name, batch_of(elements)) for name, elements in runs(arrived[begin:end])]
        for begin, end in zip([0, *ends], ends, strict=False)
    ]


def counted(reasons):
    """A result with no output and these reasons."""
    codes = tuple(np.array([one.code for one in part], np.int8) for part in reasons)
    return StepResult(batch_of([]), codes, codes, None, 0, 0)


@given(st.one_of(three_replicas, quarrels()), st.data())
def test_the_account_adds_up_after_every_step(arrived, data):
    account, state, written = MergeAccount(), R3State.empty(SCHEMA), 0
    for number, arrivals in enumerate(in_steps(arrived, data.draw(cuts(len(arrived))))):
        result = step(state, arrivals)
        account.add(arrivals, result)
        written += len(result.output)
        assert account.adds_up
        assert account.steps == number + 1
    assert account.elements == len(arrived)
    assert sum(account.bucket(bucket) for bucket in Bucket) == len(arrived)
    assert account.written.total() == written
    assert account.conflicts == state.conflicts
    for number in range(3):
        mine = account.replicas.get(f"r{number}", ReplicaAccount())
        assert mine.elements == sum(1 for who, _ in arrived if who == number)
    assert json.loads(json.dumps(account.to_dict()))["adds_up"]


@given(three_replicas, st.data())
def test_erratum_l12_the_default_output_is_never_chattier_than_its_input(arrived, data):
    account, state = MergeAccount(), R3State.empty(SCHEMA)
    for arrivals in in_steps(arrived, data.draw(cuts(len(arrived)))):
        account.add(arrivals, step(state, arrivals))
        assert account.chattiness.within_bounds


@given(three_replicas, st.integers(1, 3), st.data())
def test_lanes_combine_to_the_account_of_all(arrived, lanes, data):
    states = [R3State.empty(SCHEMA) for _ in range(lanes)]
    parts = [MergeAccount() for _ in range(lanes)]
    whole, state = MergeAccount(), R3State.empty(SCHEMA)
    for arrivals in in_steps(arrived, data.draw(cuts(len(arrived)))):
        whole.add(arrivals, step(state, arrivals))
        routed = [route(arrival.batch, lanes) for arrival in arrivals]
        for number, (lane, part) in enumerate(zip(states, parts, strict=True)):
            mine = [
                Arrival(a.replica, a.batch.take((to == number) | (to < 0)))
                for a, to in zip(arrivals, routed, strict=True)
            ]
            part.add(mine, step(lane, mine), stables=number == 0)
            assert part.adds_up
    combined, expected = combine(parts).to_dict(), whole.to_dict()
    for shown in (combined, expected):
        shown["gaps"].sort()  # lanes have no common order
    assert combined == expected
    assert combine([]) == MergeAccount()


def test_a_small_merge_in_figures():
    account = account_of(
        ["east: insert a 3..9; stable 5"],
        ["west: insert a 3..7; insert b 6..9; stable 8", "east: stable 6"],
        ["west: stable 9", "east: insert c 1..2"],
    )
    assert account.to_dict() == {
        "steps": 3,
        "elements": 8,
        "adds_up": True,
        "replicas": {
            "east": _buckets(elements=4, emitted=2, absorbed=1, violation=1, led=1),
            "west": _buckets(elements=4, emitted=3, absorbed=1, led=2),
        },
        "read": {"insert": 4, "adjust": 0, "stable": 4},
        "written": {"insert": 2, "adjust": 1, "stable": 3},
        "saved": 2,
        "added_adjusts": 1,
        "added_inserts": 0,
        "conflicts": 0,
        "missing": 0,
        "gaps": [],
        "leader": "west",
        "leader_changes": 1,
        "chattiness": {"inserts": 0.5, "adjusts": 0.25, "stables": 0.75},
    }


def _buckets(**counts):
    zero = dict.fromkeys((bucket.word for bucket in Bucket), 0)
    return {"elements": 0, **zero, "led": 0, **counts}


def test_leaders_change_when_another_moves_the_frontier():
    account = account_of(
        ["east: stable 1"],
        ["west: stable 3", "east: stable 2"],
        ["west: stable 4"],
        ["east: stable 5"],
    )
    assert (account.leader, account.leader_changes, account.led) == ("east", 2, 4)
    assert account.replicas["west"].led == 2


def test_nothing_in_is_no_chattiness():
    assert MergeAccount().chattiness.within_bounds
    assert MergeAccount().adds_up


def test_an_output_without_input_is_above_every_bound():
    account = MergeAccount()
    account.add([], StepResult(batch_of(parse("stable 1")), (), (), 1, 0, 0))
    assert not account.chattiness.within_bounds
    assert account.to_dict()["chattiness"] == {"inserts": 0, "adjusts": 0, "stables": None}


def test_pending_elements_move_when_they_are_resolved():
    account = MergeAccount()
    held = arrive("east: insert a 1..2; insert b 1..2; insert c 1..2")
    account.add(held, counted([[Reason.HELD] * 3]))
    assert account.adds_up
    assert account.bucket(Bucket.PENDING) == 3
    codes = np.array([Reason.FIRST.code, Reason.LATE.code], np.int8)
    two = Resolved("east", batch_of(parse("insert a 1..2; insert b 1..2")), codes)
    out = batch_of(parse("insert a 1..2"))
    account.add([], StepResult(out, (), (), None, 0, 0, (two,)))
    assert account.adds_up
    found = {
        bucket: count for bucket, count in account.replicas["east"].buckets.items() if count
    }
    assert found == {Bucket.EMITTED: 1, Bucket.LATE: 1, Bucket.PENDING: 1}
    assert account.elements == 3


def test_what_was_never_pending_cannot_be_resolved():
    account = MergeAccount()
    codes = np.array([Reason.LATE.code], np.int8)
    one = Resolved("east", batch_of(parse("insert a 1..2")), codes)
    account.add([], StepResult(batch_of([]), (), (), None, 0, 0, (one,)))
    assert account.replicas["east"].elements == 0
    assert not account.adds_up


@pytest.mark.parametrize(
    ("reason", "output"),
    [
        (Reason.FIRST, ""),
        (Reason.KNOWN, "insert a 1..2"),
        (Reason.KNOWN, "adjust a 1..2->3"),
    ],
)
def test_an_output_that_the_buckets_do_not_explain_does_not_add_up(reason, output):
    account = MergeAccount()
    codes = (np.array([reason.code], np.int8),)
    result = StepResult(batch_of(parse(output)), codes, codes, None, 0, 0)
    account.add(arrive("east: insert a 1..2"), result)
    assert not account.adds_up


def test_a_stable_that_led_must_come_out():
    account = MergeAccount()
    account.add(arrive("east: stable 1"), counted([[Reason.LEADS]]))
    assert not account.adds_up


def test_an_element_without_a_bucket_does_not_add_up():
    account = MergeAccount()
    account.add(arrive("east: insert a 1..2"), counted([[Reason.KNOWN]]))
    account.replicas["east"].elements += 1
    assert not account.adds_up
    account.read["insert"] += 1
    assert not account.adds_up


def test_a_result_is_added_with_its_own_arrivals():
    with pytest.raises(UsageError, match="account: 2 columns of reasons for 1 arrivals"):
        MergeAccount().add(arrive("east: stable 1"), counted([[], []]))
