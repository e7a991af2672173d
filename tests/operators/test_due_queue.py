"""The queue of due times, raced against a sorted list."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.batch.batch import FOREVER_UNITS, NEVER_UNITS
from anabranch.operators.state.due_queue import DueQueue

TIMES = st.one_of(
    st.integers(-5, 20), st.integers(NEVER_UNITS, FOREVER_UNITS), st.just(FOREVER_UNITS)
)


@given(st.lists(st.one_of(TIMES, st.lists(st.tuples(TIMES, st.integers(0, 9)), max_size=9))))
def test_due_agrees_with_a_sorted_list(steps):
    due, known, operations = DueQueue(), [], 0
    for one in steps:
        if isinstance(one, list):
            times, ids = np.array(one, np.int64).reshape(-1, 2).T
            due.push(times, ids)
            known += one
            operations += len(one)
        else:
            expected = sorted(entry for entry in known if entry[0] < one)
            popped = due.pop_before(one).tolist()
            assert sorted(popped) == sorted(identity for _, identity in expected)
            operations += len(popped)
            known = [entry for entry in known if entry[0] >= one]
        due.check()
        assert len(due) == len(known)
    # An entry moves to a lower bucket each time.
    assert operations <= due.operations <= 65 * operations
    assert due.nbytes >= 0


@pytest.mark.parametrize("step", [1, 10, 1_000])
def test_an_entry_moves_no_more_often_than_there_are_bits_in_what_is_alive(step):
    due, alive = DueQueue(), 1_000
    for now in range(0, 20_000, step):
        due.push(np.arange(now, now + step) + alive, np.arange(now, now + step))
        assert len(due.pop_before(now)) in (0, step, step - 1)
        due.check()
    moves = due.operations - 2 * 20_000
    assert moves <= 20_000 * (max(alive // step, 1).bit_length() + 1)


def test_due_gives_many_and_is_rebuilt_without_doubles():
    due = DueQueue()
    due.push(np.arange(10_000)[::-1], np.arange(10_000))
    assert sorted(due.pop_before(9_000).tolist()) == list(range(1_000, 10_000))
    times, ids = due.entries
    due.rebuild(np.append(times, times), np.append(ids, ids))
    due.check()
    assert repr(due) == "DueQueue(1000 entries)"
    assert sorted(due.pop_before(20_000).tolist()) == list(range(1_000))


def test_a_queue_of_which_the_past_was_changed_is_seen():
    due = DueQueue()
    due.push(np.array([1, 2, 3]), np.array([0, 1, 2]))
    due._blocks.numbers[0] = 2
    with pytest.raises(AssertionError, match="entries by bucket"):
        due.check()
    due._count = 4
    with pytest.raises(AssertionError, match="entries in buckets"):
        due.check()
