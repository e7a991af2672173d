"""What a prefix stands for, and which elements break its promises."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import UsageError
from anabranch.model.element import Event, Insert, Stable
from anabranch.model.history import History, Reason, Violation, replay, replays
from anabranch.model.notation import parse, parse_events
from anabranch.model.time import FOREVER, NEVER
from anabranch.testing.strategies import histories, replicas


def history(text):
    return History.from_events(parse_events(text))


@pytest.mark.parametrize(
    ("text", "reasons"),
    [
        ("insert a 5..4", [Reason.BACKWARDS]),
        ("stable 9; insert a 5..4", [Reason.BACKWARDS]),
        ("insert a 5..9; adjust a 5..9->4", [Reason.BACKWARDS]),
        ("stable 9; insert a 5..5", []),
        ("stable 9; adjust a 1..3->3", []),
        ("adjust a 1..3->3", []),
        ("stable 9; adjust a 1..3->4", [Reason.BEHIND_STABLE]),
        ("stable forever; insert a 5..forever", [Reason.BEHIND_STABLE]),
        ("insert a 1..forever; stable forever; adjust a 1..forever->9", [Reason.BEHIND_STABLE]),
        ("insert a 1..3; stable 2; adjust a 1..3->1", [Reason.BEHIND_STABLE]),
        ("adjust a 1..3->4", [Reason.NO_SUCH_EVENT]),
        ("insert a 1..3; adjust a 1..3->1; adjust a 1..1->4", [Reason.NO_SUCH_EVENT]),
        ("insert a 1..1; adjust a 1..1->4", [Reason.NO_SUCH_EVENT]),
        ("insert a 1..3; adjust b 1..3->4", [Reason.NO_SUCH_EVENT]),
        ("insert a 1..3; adjust a 1..3->4; adjust a 1..3->5", [Reason.NO_SUCH_EVENT]),
        ("stable 5; stable 3; insert a 4..9", [Reason.BEHIND_STABLE]),
        ("stable 5; stable 5; insert a 5..9", []),
    ],
)
def test_promises(text, reasons):
    assert [violation.reason for violation in replay(parse(text)).violations] == reasons


def test_violations_leave_the_history_and_name_their_place():
    prefix = replay(parse("insert a 1..3; stable 2; insert b 1..9; adjust a 1..3->2"))
    assert prefix.history == history("a 1..2")
    assert prefix.frontier == 2
    assert prefix.violations == (Violation(2, Insert("b", 1, 9), Reason.BEHIND_STABLE),)


def test_a_history_is_a_bag():
    twice = History.of(parse("insert a 1..3; insert a 1..3; insert a 1..4"))
    assert twice.count(Event("a", 1, 3)) == 2
    assert twice.count(Event("b", 1, 3)) == 0
    assert len(twice) == len(list(twice)) == 3
    assert twice != history("a 1..3; a 1..4")
    assert not twice.is_keyed
    assert History.of(parse("insert a 1..3; insert a 1..3; adjust a 1..3->4")) == history(
        "a 1..3; a 1..4"
    )


def test_a_history_answers_questions():
    known = history("a 1..3; a 1..forever; b 0..2")
    assert known.events() == [Event("b", 0, 2), Event("a", 1, 3), Event("a", 1, FOREVER)]
    assert known.snapshot(2) == [Event("a", 1, 3), Event("a", 1, FOREVER)]
    assert known.identities() == {(0, "b"): (2,), (1, "a"): (3, FOREVER)}
    assert Event("a", 1, 3) in known
    assert Event("a", 1, 4) not in known
    assert known.minus(history("a 1..3")) == history("a 1..forever; b 0..2")
    assert known != "something else"


def test_empty_events_are_none_and_backward_ones_are_refused():
    assert history("a 1..1") == History({})
    with pytest.raises(UsageError, match="'a' starts at 3 and ends at 2"):
        history("a 3..2")


def test_a_history_prints_as_a_table():
    assert repr(history("a 10..forever; longer 2..3")).splitlines() == [
        "payload | start | end",
        "longer  | 2     | 3",
        "a       | 10    | forever",
    ]


@given(histories(), histories())
def test_equal_histories_have_equal_hashes(left, right):
    again = History.from_events(reversed(left.events()))
    assert again == left
    assert hash(again) == hash(left) == hash(left)
    assert (left == right) == (left.events() == right.events())


@given(replicas(max_inputs=1, truncated=True), st.data())
def test_replays_are_the_replays_of_prefixes(inputs, data):
    stream = [*inputs, []][0]
    every = list(replays(stream))
    assert len(every) == len(stream) + 1
    cut = data.draw(st.integers(0, len(stream)))
    assert every[cut] == replay(stream[:cut])
    assert every[0] == replay([])
    assert every[0].frontier == NEVER


@given(replicas(max_inputs=1, min_inputs=1), st.data())
def test_what_is_behind_the_frontier_is_always_found(inputs, data):
    """An element put behind the stable that it breaks is a violation, wherever it stands."""
    stream = inputs[0]
    at = data.draw(st.integers(0, len(stream)))
    frontier = replay(stream[:at]).frontier
    if abs(frontier) == FOREVER:
        return
    late = Insert("late", frontier - 1, frontier + 3)
    found = replay([*stream[:at], late, *stream[at:]])
    assert found.violations == (Violation(at, late, Reason.BEHIND_STABLE),)
    assert found.history == replay(stream).history


def test_a_stable_alone_changes_no_history():
    assert replay([Stable(3)]).history == History({})
