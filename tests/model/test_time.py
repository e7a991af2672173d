"""Times, lifetimes and what a stable freezes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import UsageError
from anabranch.model.element import Adjust, Event, Identity, Insert
from anabranch.model.frozen import Status, may_adjust, may_insert, status
from anabranch.model.lifetime import Lifetime
from anabranch.model.time import FOREVER, NEVER, show

times = st.one_of(st.integers(-5, 5), st.just(FOREVER))
lifetimes = (
    st.tuples(st.integers(-5, 5), times)
    .filter(lambda t: t[0] <= t[1])
    .map(lambda t: Lifetime(*t))
)
POINTS = range(-6, 8)


def test_times_are_shown_as_words_and_numbers():
    assert [show(time) for time in (FOREVER, NEVER, -3, 0)] == ["forever", "never", "-3", "0"]


@given(lifetimes, lifetimes)
def test_overlap_is_what_both_contain(left, right):
    both = [time for time in POINTS if time in left and time in right]
    assert [time for time in POINTS if time in left.overlap(right)] == both
    assert left.overlaps(right) == bool(both)
    assert left.is_empty == (not any(time in left for time in POINTS))


def test_a_lifetime_does_not_run_backwards():
    with pytest.raises(UsageError, match="starts at 3 cannot end at 2"):
        Lifetime(3, 2)


def test_lifetimes_are_shown_half_open():
    assert repr(Lifetime(3, FOREVER)) == "[3, forever)"


def test_an_element_knows_its_events():
    insert, adjust = Insert("a", 3, 9), Adjust("a", 3, 9, 3)
    assert insert.event == adjust.old_event == Event("a", 3, 9)
    assert insert.event.identity == adjust.event.identity == Identity(3, "a")
    assert insert.event.lifetime == Lifetime(3, 9)
    assert adjust.is_removal
    assert adjust.event.is_empty
    assert not Adjust("a", 3, 9, 7).is_removal


def test_what_changes_nothing():
    assert Insert("a", 3, 3).changes_nothing
    assert Adjust("a", 3, 9, 9).changes_nothing
    assert not Insert("a", 3, 4).changes_nothing
    assert not Adjust("a", 3, 9, 3).changes_nothing


@pytest.mark.parametrize(
    ("frontier", "expected"),
    [
        (NEVER, Status.FREE),
        (3, Status.FREE),
        (4, Status.HALF_FROZEN),
        (9, Status.HALF_FROZEN),
        (10, Status.FROZEN),
        (FOREVER, Status.FROZEN),
    ],
)
def test_status_of_an_event(frontier, expected):
    assert status(3, 9, frontier=frontier) is expected


def test_a_status_is_shown_by_name():
    assert repr(status(3, 9, frontier=4)) == "Status.HALF_FROZEN"


def test_only_stable_forever_freezes_an_end_at_forever():
    assert status(3, FOREVER, frontier=10**18) is Status.HALF_FROZEN
    assert status(3, FOREVER, frontier=FOREVER) is Status.FROZEN


@given(st.integers(-5, 5), times, times)
def test_status_is_what_the_promise_leaves_open(start, end, frontier):
    """Free: may still be removed.  Frozen: no other end may follow.  Else half frozen."""
    if end <= start:
        return
    ends = [FOREVER, *range(start, 9)]
    others = [e for e in ends if e != end and may_adjust(end, e, frontier=frontier)]
    how = status(start, end, frontier=frontier)
    assert (how is Status.FREE) == (start in others) == may_insert(start, frontier=frontier)
    assert (how is Status.FROZEN) == (others == [])
