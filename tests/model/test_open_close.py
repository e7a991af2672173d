"""Open and close elements read as elements."""

from collections import Counter
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from open_close import Close, Open, as_elements, can_follow, closes_once

from anabranch.errors import InputError
from anabranch.model.element import Stable
from anabranch.model.history import History, replay
from anabranch.model.notation import parse_events, show_elements
from anabranch.model.time import FOREVER


def test_a_close_at_its_open_removes_and_the_payload_may_come_again():
    marks = [Open("a", 1), Close("a", 1), Open("a", 1), Close("a", 3)]
    assert show_elements(as_elements(marks)) == (
        "insert a 1..forever; adjust a 1..forever->1; "
        "insert a 1..forever; adjust a 1..forever->3"
    )


def test_a_close_revises_the_event_that_it_belongs_to():
    marks = [Open("a", 1), Close("a", 4), Open("a", 6), Close("a", 3), Close("a", 9)]
    assert History.of(as_elements(marks)) == History.from_events(parse_events("a 1..3; a 6..9"))


def test_stables_pass():
    assert as_elements([Stable(1), Open("a", 2), Stable(FOREVER)])[::2] == [
        Stable(1),
        Stable(FOREVER),
    ]


@pytest.mark.parametrize("second", [Open("a", 5), Open("a", 0), Open("a", 3)])
def test_only_one_event_of_a_payload_is_alive(second):
    with pytest.raises(
        InputError, match=r"item 1: 'a' opens at \d, but another event .* \[3, f"
    ):
        as_elements([Open("a", 3), second])


@pytest.mark.parametrize("marks", [[Close("a", 3)], [Open("a", 4), Close("a", 3)]])
def test_a_close_needs_its_open(marks):
    with pytest.raises(InputError, match=r"item \d: 'a' closes at 3, but no event"):
        as_elements(marks)


@st.composite
def processes(draw):
    """The runs of some processes, and their marks: shuffled, but each payload in order."""
    queues, events = [], []
    for payload in draw(st.sets(st.sampled_from("abc"))):
        times = sorted(draw(st.sets(st.integers(0, 9), max_size=5)))
        kinds = [Open, Close] * 3
        queues.append([kind(payload, time) for kind, time in zip(kinds, times, strict=False)])
        ends = [*times[1::2], FOREVER]
        events += [(payload, s, e) for s, e in zip(times[::2], ends, strict=False)]
    turns = draw(st.permutations([n for n, queue in enumerate(queues) for _ in queue]))
    waiting = [iter(queue) for queue in queues]
    return [next(waiting[n]) for n in turns], History.from_events(events)


@given(processes())
def test_runs_of_processes_have_their_history(drawn):
    marks, history = drawn
    prefix = replay(as_elements(marks))
    assert prefix.violations == ()
    assert prefix.history == history
    assert closes_once(marks)


@given(processes(), st.data())
def test_a_prefix_can_follow_and_what_is_ahead_cannot(drawn, data):
    marks, _ = drawn
    cut = data.draw(st.integers(0, len(marks)))
    assert can_follow(marks[:cut], [marks])
    assert can_follow(marks, [marks[:cut], marks])
    assert can_follow(marks, [marks[:cut]]) == (cut == len(marks))


LIVES = {
    "A": [[], [Open("A", 1)], [Open("A", 1), Close("A", 2)], [Open("A", 1), Close("A", 3)]],
    "B": [[], [Open("B", 1)], [Open("B", 1), Close("B", 2)]],
}
STREAMS = [a + b for a, b in product(LIVES["A"], LIVES["B"])]


def reach(stream):
    """The history of every stream of this small world that only adds to this one."""
    return {History.of(as_elements(s)) for s in STREAMS if all(mark in s for mark in stream)}


def test_example_4_is_the_definition():
    answers = Counter()
    for first, second, output in product(STREAMS, repeat=3):
        together = reach(first) & reach(second)
        if together:
            answer = can_follow(output, [first, second])
            assert answer == (together <= reach(output)), (first, second, output)
            answers[answer] += 1
    assert answers[True] > 100
    assert answers[False] > 100
