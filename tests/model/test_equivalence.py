"""Laws of equivalent, consistent and compatible on random streams."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.model.equivalence import (
    Difference,
    Settled,
    compatible,
    consistent,
    differences_until,
    equivalent,
    equivalent_until,
    leading,
    settled,
)
from anabranch.model.history import History, replay, replays
from anabranch.model.notation import parse, parse_events
from anabranch.model.properties import MergeCase
from anabranch.model.time import FOREVER, NEVER
from anabranch.testing.conditions import breaches_r3
from anabranch.testing.strategies import histories, replicas

BAGS = st.sampled_from([MergeCase.R3, MergeCase.R4])


def history(text):
    return History.from_events(parse_events(text))


@given(st.data(), BAGS)
def test_prefixes_of_replicas_are_consistent(data, case):
    inputs = data.draw(replicas(case=case, truncated=True))
    assert consistent(replay(stream) for stream in inputs)


@given(st.data(), BAGS)
def test_a_replica_can_follow_itself_and_whoever_is_ahead(data, case):
    inputs = data.draw(replicas(case=case, truncated=True, min_inputs=2))
    prefixes = [replay(stream) for stream in inputs]
    for output in prefixes:
        assert compatible(output, prefixes)
        if case is MergeCase.R3:
            assert breaches_r3(output, prefixes) == []


@given(st.data())
def test_the_two_tests_agree_on_streams(data):
    """Also for outputs that are not replicas: streams of another history."""
    inputs = data.draw(replicas(truncated=True))
    for one in data.draw(replicas(truncated=True)):
        for output in replays(one):
            known = [replay(stream) for stream in inputs]
            assert compatible(output, known) == (breaches_r3(output, known) == [])


@given(histories(case=MergeCase.R4), histories(case=MergeCase.R4))
def test_until_forever_is_equality(left, right):
    assert equivalent_until(left, right, FOREVER) == (left == right)
    assert equivalent_until(left, right, NEVER)
    assert equivalent_until(left, left, 5)


@given(histories(case=MergeCase.R4), histories(case=MergeCase.R4), st.integers(0, 13))
def test_until_is_the_same_number_and_the_same_ends_before(left, right, frontier):
    """The definition of the command line's --until-frontier, in its own words."""

    def before(one):
        started = {i: e for i, e in one.identities().items() if i.start < frontier}
        return {i: (len(e), [end for end in e if end < frontier]) for i, e in started.items()}

    assert equivalent_until(left, right, frontier) == (before(left) == before(right))


@given(histories(), histories(), st.integers(0, 13))
def test_agreement_until_a_time_implies_agreement_before(left, right, frontier):
    if equivalent_until(left, right, frontier):
        assert equivalent_until(left, right, frontier - 1)


def test_settled_counts_half_frozen_and_keeps_frozen_ends():
    bag = history("a 1..2; a 1..2; a 1..5; a 1..9; b 5..6; c 1..9")
    assert settled(bag, 5) == {(1, "a"): Settled((2, 2), 2), (1, "c"): Settled((), 1)}


def test_differences_name_the_identity_and_both_sides():
    left, right = history("a 1..2; b 1..9"), history("a 1..3; b 1..8; c 1..9")
    assert differences_until(left, right, 5) == [
        Difference((1, "a"), Settled((2,)), Settled((3,))),
        Difference((1, "c"), Settled(), Settled((), 1)),
    ]


def test_equivalence_is_about_histories_only():
    assert equivalent(replay(parse("insert a 1..2; stable 9")), replay(parse("insert a 1..2")))
    assert not equivalent(replay(parse("insert a 1..2")), replay(parse("insert a 1..3")))


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ("insert a 1..4; stable 3", "insert a 1..9; stable 2", True),
        ("insert a 1..4; stable 5", "insert a 1..9; stable 2", True),
        ("insert a 1..4; stable 5", "insert a 1..9; stable 5", False),
        ("insert a 1..4; stable 2", "stable 2", False),
        ("insert a 1..4", "stable 2", True),
        ("insert a 1..4; stable 2", "stable 1", True),
        ("insert a 1..forever; stable forever", "insert a 1..9; stable 9", True),
        ("insert a 1..forever; stable forever", "insert a 1..9; stable 10", False),
    ],
)
def test_consistent(left, right, expected):
    pair = [replay(parse(left)), replay(parse(right))]
    assert consistent(pair) == consistent(pair[::-1]) == expected


def test_the_leader_is_the_first_with_the_greatest_frontier():
    first, second, third = (
        replay(parse(t)) for t in ("stable 1", "stable 2", "stable 2; stable 1")
    )
    assert leading([first, second, third]) is second
    assert leading([]).frontier == NEVER
