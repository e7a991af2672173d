"""The recipes of docs/guide/patterns.md: which B counts for an A, at every boundary."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.model import operators as ops
from anabranch.model.element import Event
from anabranch.model.history import History
from anabranch.model.lifetimes import AlterLifetime, DurationConstant, StartShifted

TIMES = st.lists(st.tuples(st.sampled_from("xy"), st.integers(-4, 12)), max_size=5)
KEY = ops.on_columns({0: 0})
POINT = DurationConstant(1)


def points(rows):
    """Rows (key, time) as points; the payload has the time too, to compare."""
    return History.from_events(Event((key, at), at, at + 1) for key, at in rows)


def shifted(history, by, duration):
    return ops.alter_lifetime(history, AlterLifetime(StartShifted(by), duration))


INNER = {
    "a <= b < a + d": lambda a, b, d: ops.join(ops.window(a, d), b, KEY),
    "a < b <= a + d": lambda a, b, d: ops.join(shifted(a, 1, DurationConstant(d)), b, KEY),
}
ANTI = {
    "a < b <= a + d": lambda a, b, d: ops.anti_join(
        shifted(a, d, POINT), ops.window(b, d), KEY
    ),
    "a <= b < a + d": lambda a, b, d: ops.anti_join(
        shifted(a, d, POINT), shifted(b, 1, DurationConstant(d)), KEY
    ),
}


def counts(boundary, a, b, d):
    return a[0] == b[0] and eval(boundary, {"a": a[1], "b": b[1], "d": d})


@pytest.mark.parametrize("boundary", INNER)
@given(a=TIMES, b=TIMES, d=st.integers(1, 4))
def test_a_then_b_within_d(boundary, a, b, d):
    """Each pair that counts is one point, at the time of B."""
    expected = [
        Event((*one, *other), other[1], other[1] + 1)
        for one in a
        for other in b
        if counts(boundary, one, other, d)
    ]
    assert INNER[boundary](points(a), points(b), d) == History.from_events(expected)


@pytest.mark.parametrize("boundary", ANTI)
@given(a=TIMES, b=TIMES, d=st.integers(1, 4))
def test_a_with_no_b_within_d(boundary, a, b, d):
    """Each A without a B is one point, when the B is due; so every A is in one of the two."""
    expected = [
        Event(one, one[1] + d, one[1] + d + 1)
        for one in a
        if not any(counts(boundary, one, other, d) for other in b)
    ]
    missing = ANTI[boundary](points(a), points(b), d)
    assert missing == History.from_events(expected)
    pairs = INNER[boundary](points(a), points(b), d)
    followed = {e.payload[:2] for e in pairs}
    assert followed | {e.payload for e in missing} == set(a)
    assert not followed & {e.payload for e in missing}


@pytest.mark.parametrize("boundary", INNER)
def test_the_page_states_the_boundaries_that_are_tested(boundary, request):
    page = (request.config.rootpath / "docs" / "guide" / "patterns.md").read_text()
    assert page.count(f"| `{boundary}` |") == 2
    assert set(INNER) == set(ANTI)
