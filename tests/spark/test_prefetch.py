"""Items made ahead are the same items, and no more are ahead than stated."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.spark.pack.prefetch import mapped, prefetch


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


@given(st.lists(st.integers()), st.integers(1, 4))
def test_results_of_threads_come_in_the_order_of_the_items(
    items: list[int], threads: int
) -> None:
    assert list(mapped(lambda number: number + 1, items, threads)) == [n + 1 for n in items]


def test_a_thread_is_at_most_one_item_ahead() -> None:
    taken: list[int] = []

    def take(number: int) -> int:
        taken.append(number)
        return number

    for used, _ in enumerate(mapped(take, range(20), 3)):
        assert len(taken) <= used + 1 + 3
    assert len(taken) == 20


def test_what_fails_in_a_thread_is_raised_in_its_turn() -> None:
    items = mapped(lambda number: 10 // number, (5, 2, 0, 1), 2)
    assert [next(items), next(items)] == [2, 5]
    with pytest.raises(ZeroDivisionError):
        next(items)
