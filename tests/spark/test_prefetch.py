"""Items made ahead are the same items, one ahead and no more."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.spark.pack.prefetch import prefetch


@given(st.lists(st.none() | st.integers()))
def test_the_items_are_the_same(items: list[int | None]) -> None:
    assert list(prefetch(iter(items))) == items


def test_at_most_one_is_made_prefetch() -> None:
    made: list[int] = []

    def making() -> Iterator[int]:
        for number in range(20):
            made.append(number)
            yield number

    for used, _ in enumerate(prefetch(making())):
        assert len(made) <= used + 2
    assert len(made) == 20


def test_what_fails_is_raised_where_it_would_be_used() -> None:
    items = prefetch(10 // number for number in (5, 2, 0))
    assert [next(items), next(items)] == [2, 5]
    with pytest.raises(ZeroDivisionError):
        next(items)
