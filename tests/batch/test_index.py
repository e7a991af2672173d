"""The hash index, raced against a dict."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from anabranch.batch.index import NOBODY, Index, Lookup

NAMES = st.tuples(st.integers(-2, 2), st.integers(0, 3), st.integers(0, 2**64 - 1))


class Table:
    """A table with names of its own, and the dict that it must agree with."""

    def __init__(self, base: int) -> None:
        self.base = base
        self.index = Index()
        self.names = np.zeros((256, 4), np.int64)
        self.known: dict[tuple[int, int, int], int] = {}
        self.next = base

    def search(self, names, may_add):
        start = np.array([name[0] for name in names], np.int64)
        halves = np.array([(name[2], name[1]) for name in names], np.uint64).reshape(-1, 2)
        ids = np.arange(self.next, self.next + len(names))
        self.index.make_room(len(names), self.names, base=self.base)
        asked = Lookup(start, halves, np.full(len(names), may_add), ids)
        rows = np.arange(len(names))
        added, found = self.index.search(asked, rows, self.names, base=self.base)
        self.next += len(added)
        return asked.id.tolist(), added.tolist(), found.tolist()

    def remove(self, names):
        ids = np.array([self.known.pop(name) for name in names], np.int64)
        self.index.remove(ids, self.names, base=self.base)


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
        table.index.check(table.names, base=table.base)
        gone = data.draw(
            st.lists(st.sampled_from(sorted(table.known)), unique=True)
            if table.known
            else st.just([])
        )
        table.remove(gone)
        table.index.check(table.names, base=table.base)
        assert len(table.index) == len(table.known)
    ids, _, _ = table.search(sorted(table.known), may_add=False)
    assert ids == [table.known[name] for name in sorted(table.known)]


def test_a_search_goes_on_behind_a_name_that_did_not_satisfy():
    table = Table(base=0)
    name = (1, 2, 3)
    asked = Lookup(np.array([1]), np.array([[3, 2]], np.uint64), np.array([True]), np.arange(3))
    for number in range(3):
        asked.slot[0] = NOBODY
        found = []
        while True:
            added, hit = table.index.search(asked, np.array([0]), table.names)
            if len(added):
                break
            found.append(int(asked.id[0]))
            assert hit.tolist() == [0]
        assert found == list(range(number))
        assert asked.id[0] == number
    assert table.search([name], may_add=False)[0] == [0]
    table.index.remove(np.array([0]), table.names)
    assert table.search([name], may_add=False)[0] == [1]
    assert table.index.probes > 0


def test_names_with_one_place_and_one_tag_are_distinguished():
    table = Table(base=0)
    names = [(0, 0, 1), (0, 0, 65), (0, 5, 1)]
    assert table.search(names, may_add=True)[0] == [0, 1, 2]
    assert table.search(names[::-1], may_add=False)[0] == [2, 1, 0]


def test_a_table_grows_and_shrinks():
    table = Table(base=0)
    names = [(k, 0, k * 7919) for k in range(200)]
    table.known = dict(zip(names, table.search(names, may_add=True)[0], strict=True))
    large = table.index.nbytes
    table.remove(names[:198])
    table.index.make_room(0, table.names)
    assert table.index.nbytes < large
    table.index.check(table.names)
    assert table.search(names[198:], may_add=False)[0] == [198, 199]
    assert repr(table.index) == "Index(2 ids in 64 slots)"
