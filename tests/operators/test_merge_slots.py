"""The two structures under the merge kernels, raced against a dict and a sorted list."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.batch.batch import FOREVER_UNITS, NEVER_UNITS
from anabranch.operators.merge.due import Due
from anabranch.operators.merge.slots import NOBODY, Asked, Slots

NAMES = st.tuples(st.integers(-2, 2), st.integers(0, 3), st.integers(0, 2**64 - 1))


class Table:
    """A table with names of its own, and the dict that it must agree with."""

    def __init__(self, base: int) -> None:
        self.base = base
        self.slots = Slots()
        self.names = np.zeros((256, 4), np.int64)
        self.known: dict[tuple[int, int, int], int] = {}
        self.next = base

    def search(self, names, may_add):
        start = np.array([name[0] for name in names], np.int64)
        halves = np.array([(name[2], name[1]) for name in names], np.uint64).reshape(-1, 2)
        ids = np.arange(self.next, self.next + len(names))
        self.slots.make_room(len(names), self.names, base=self.base)
        asked = Asked(start, halves, np.full(len(names), may_add), ids)
        rows = np.arange(len(names))
        added, found = self.slots.search(asked, rows, self.names, base=self.base)
        self.next += len(added)
        return asked.id.tolist(), added.tolist(), found.tolist()

    def remove(self, names):
        ids = np.array([self.known.pop(name) for name in names], np.int64)
        self.slots.remove(ids, self.names, base=self.base)


@given(st.lists(st.tuples(st.booleans(), st.lists(NAMES, max_size=8)), max_size=8), st.data())
def test_slots_agree_with_a_dict(rounds, data):
    table = Table(base=data.draw(st.sampled_from([0, 1000])))
    for may_add, names in rounds:
        expected, next_id = [], table.next
        for name in names:
            if may_add and name not in table.known:
                table.known[name] = next_id
                next_id += 1
            expected.append(table.known.get(name, NOBODY))
        ids, added, found = table.search(names, may_add)
        assert ids == expected
        assert sorted(added + found) == [k for k, i in enumerate(ids) if i != NOBODY]
        table.slots.check(table.names, base=table.base)
        gone = data.draw(
            st.lists(st.sampled_from(sorted(table.known)), unique=True)
            if table.known
            else st.just([])
        )
        table.remove(gone)
        table.slots.check(table.names, base=table.base)
        assert len(table.slots) == len(table.known)
    ids, _, _ = table.search(sorted(table.known), may_add=False)
    assert ids == [table.known[name] for name in sorted(table.known)]


def test_a_search_goes_on_behind_a_name_that_did_not_satisfy():
    table = Table(base=0)
    name = (1, 2, 3)
    asked = Asked(np.array([1]), np.array([[3, 2]], np.uint64), np.array([True]), np.arange(3))
    for number in range(3):
        asked.slot[0] = NOBODY
        found = []
        while True:
            added, hit = table.slots.search(asked, np.array([0]), table.names)
            if len(added):
                break
            found.append(int(asked.id[0]))
            assert hit.tolist() == [0]
        assert found == list(range(number))
        assert asked.id[0] == number
    assert table.search([name], may_add=False)[0] == [0]
    table.slots.remove(np.array([0]), table.names)
    assert table.search([name], may_add=False)[0] == [1]
    assert table.slots.probes > 0


def test_names_with_one_place_and_one_tag_are_told_apart():
    table = Table(base=0)
    names = [(0, 0, 1), (0, 0, 65), (0, 5, 1)]
    assert table.search(names, may_add=True)[0] == [0, 1, 2]
    assert table.search(names[::-1], may_add=False)[0] == [2, 1, 0]


def test_a_table_grows_and_shrinks():
    table = Table(base=0)
    names = [(k, 0, k * 7919) for k in range(200)]
    table.known = dict(zip(names, table.search(names, may_add=True)[0], strict=True))
    large = table.slots.nbytes
    table.remove(names[:198])
    table.slots.make_room(0, table.names)
    assert table.slots.nbytes < large
    table.slots.check(table.names)
    assert table.search(names[198:], may_add=False)[0] == [198, 199]
    assert repr(table.slots) == "Slots(2 ids in 64 slots)"


TIMES = st.one_of(
    st.integers(-5, 20), st.integers(NEVER_UNITS, FOREVER_UNITS), st.just(FOREVER_UNITS)
)


@given(st.lists(st.one_of(TIMES, st.lists(st.tuples(TIMES, st.integers(0, 9)), max_size=9))))
def test_due_agrees_with_a_sorted_list(steps):
    due, known, operations = Due(), [], 0
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
    due, alive = Due(), 1_000
    for now in range(0, 20_000, step):
        due.push(np.arange(now, now + step) + alive, np.arange(now, now + step))
        assert len(due.pop_before(now)) in (0, step, step - 1)
        due.check()
    moves = due.operations - 2 * 20_000
    assert moves <= 20_000 * (max(alive // step, 1).bit_length() + 1)


def test_due_gives_many_and_is_rebuilt_without_doubles():
    due = Due()
    due.push(np.arange(10_000)[::-1], np.arange(10_000))
    assert sorted(due.pop_before(9_000).tolist()) == list(range(1_000, 10_000))
    times, ids = due.entries
    due.rebuild(np.append(times, times), np.append(ids, ids))
    due.check()
    assert repr(due) == "Due(1000 entries)"
    assert sorted(due.pop_before(20_000).tolist()) == list(range(1_000))


def test_a_queue_of_which_the_past_was_changed_is_seen():
    due = Due()
    due.push(np.array([1, 2, 3]), np.array([0, 1, 2]))
    due._blocks.numbers[0] = 2
    with pytest.raises(AssertionError, match="in another bucket"):
        due.check()
    due._count = 4
    with pytest.raises(AssertionError, match="miscounted"):
        due.check()
