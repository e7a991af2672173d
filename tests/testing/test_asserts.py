"""The asserts pass what is right, and show what is wrong as a table."""

import pytest
from hypothesis import given

from anabranch.model.history import History
from anabranch.model.notation import parse
from anabranch.testing import (
    assert_compatible,
    assert_consistent,
    assert_equivalent,
    assert_valid,
    replicas,
)


@given(replicas())
def test_replicas_pass_all(inputs):
    for stream in inputs:
        assert_valid(stream)
        assert_equivalent(stream, inputs[0])
        assert_equivalent(History.of(stream), inputs[0], until=5)
        assert_compatible(stream, inputs)
    assert_consistent(inputs)


def failure(check, *args, **options):
    with pytest.raises(AssertionError) as caught:
        check(*args, **options)
    return str(caught.value).splitlines()


def test_violations_are_shown_with_their_position():
    assert failure(assert_valid, parse("stable 5; insert a 3..9; adjust a 5..6->7")) == [
        "2 of 3 elements break a promise",
        "position | element          | reason",
        "1        | insert a 3..9    | it changes time that a stable has declared final",
        "2        | adjust a 5..6->7 | it adjusts an event that is not there",
    ]


def test_histories_that_differ_are_shown_side_by_side():
    left, right = parse("insert a 1..2; insert b 1..2"), parse("insert b 1..2; insert c 1..2")
    assert failure(assert_equivalent, left, right) == [
        "the histories differ",
        "where      | event",
        "left only  | a 1..2",
        "right only | c 1..2",
    ]


def test_differences_before_a_time():
    left, right = parse("insert a 1..2; insert b 1..8"), parse("insert b 1..9; insert c 3..4")
    assert failure(assert_equivalent, left, right, until=3) == [
        "the histories differ before 3",
        "identity | left   | right",
        "a at 1   | ends 2 | nothing",
    ]


def test_an_output_that_is_ahead():
    assert failure(assert_compatible, parse("stable 5"), [parse("stable 4")]) == [
        "the output (left, frontier 5) cannot follow its leading input (right, frontier 4); "
        "it must not be ahead"
    ]


def test_an_output_that_has_lost_an_event():
    inputs = [parse("insert a 1..9; insert a 1..2; stable 4"), []]
    assert failure(assert_compatible, parse("stable 3"), inputs) == [
        "the output (left, frontier 3) cannot follow its leading input (right, frontier 4)",
        "identity | left    | right",
        "a at 1   | nothing | ends 2, 1 half frozen",
    ]


def test_streams_that_cannot_meet():
    streams = [parse("insert a 1..2; stable 3"), parse("stable 4"), parse("stable 2")]
    assert failure(assert_consistent, streams) == [
        "stream 0 (left, frontier 3) cannot become the leading one (right, frontier 4)",
        "identity | left   | right",
        "a at 1   | ends 2 | nothing",
    ]


def test_long_tables_are_capped():
    many = parse("; ".join(f"insert a {n}..{n + 1}" for n in range(25)))
    lines = failure(assert_equivalent, many, [])
    assert len(lines) == 23
    assert lines[-1] == "... and 5 more"
