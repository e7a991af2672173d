"""The identities that may still change: where they are found, their bags, and when to look.

A node is a row of `facts` (the first three columns are the name by which `slots` finds it), a
row of the lists (`r4_lists`) and a payload in `payloads`; rows of nodes that left are used
again.  The facts of a node:

    BORN      its number in the order of first arrival, which is the order of the output when
              several are due; NOT_BORN if no insert of it was believed yet
    DUE       no stable up to and including this time has anything to do here: its start while
              it is free, then the smallest end, of anybody, that is not behind the frontier
    ROW       its payload
    CREDIT    while a step lasts: inserts that bring an event of it to the output
    STATUS    bits: IN_CONFLICT, and while a step lasts: DEAD, TOLD (the decider knew it)

A node whose DUE is before a stable is found by a heap (`due`).  A replica that wants an end
which is behind the output's frontier already is not: it has the node in `waiting`, to be looked
at when that replica decides.  So a stable looks only at what it freezes or corrects.

`blocks` remembers when the nodes of each block of numbers were last changed, and when one last
got a payload: `r4_parts` writes only what changed since.

Papers: LMerge IV-E, in3t; FindHalfFrozen without a scan.
"""

from typing import Any, Final

import numpy as np
import pyarrow as pa

from anabranch.batch.batch import FOREVER_UNITS, Ints, Mask
from anabranch.batch.columns import Column
from anabranch.batch.equality import equal_columns
from anabranch.batch.kernel import frozen_rows, kernel
from anabranch.batch.store import Store, grown, write_table
from anabranch.operators.merge.due import Due
from anabranch.operators.merge.r4_lists import ABSENT, NO_BLOCK, Lists, free_blocks, no_lists
from anabranch.operators.merge.slots import LOW, START, Slots
from anabranch.operators.state_parts import BLOCK, BLOCK_BITS, Blocks

BORN: Final = LOW + 1
DUE: Final = LOW + 2
ROW: Final = LOW + 3
CREDIT: Final = LOW + 4
STATUS: Final = LOW + 5
_WIDTH: Final = LOW + 6

NOT_BORN: Final = -1
IN_CONFLICT: Final = 1
DEAD: Final = 2
TOLD: Final = 4

_WASTE: Final = 1_024
"""So many unused payloads are never worth a copy."""


class Payloads:
    """Each identity's payload, stored once."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.count = 0
        self._store = Store.of(schema)

    def append(self, columns: list[Column], rows: Ints) -> Ints:
        """Store these rows; the numbers they have here."""
        self._store.append(columns, frozen_rows(rows))
        self.count += len(rows)
        return np.arange(self.count - len(rows), self.count)

    def equal(self, columns: list[Column], rows: Ints, ours: Ints) -> Mask:
        """Which of these rows have the same values as ours."""
        return equal_columns(
            columns, frozen_rows(rows), self._store.columns(), frozen_rows(ours)
        )

    def take(self, rows: Ints) -> pa.Table:
        """These payloads; costs no more than they do."""
        store = Store.of(self.schema)
        store.append(self._store.columns(), frozen_rows(rows))
        return write_table(self.schema, store.columns(), len(rows))

    def keep(self, rows: Ints) -> None:
        """Only these payloads, numbered in this order."""
        store = Store.of(self.schema)
        store.append(self._store.columns(), frozen_rows(rows))
        self._store, self.count = store, len(rows)


class Nodes:
    """All nodes of a lane, and what is needed to find them."""

    def __init__(self, schema: pa.Schema) -> None:
        self.facts = np.empty((0, _WIDTH), np.int64)
        self.lists: Lists = no_lists()
        self.waits = np.empty((0, 1), np.bool_)
        self.waiting: list[list[Ints]] = [[]]
        self.payloads = Payloads(schema)
        self.slots = Slots()
        self.due = Due()
        self.next_born = 0
        self.blocks = Blocks.none()
        self._used = 0
        self._free = np.empty(0, np.int64)

    def __len__(self) -> int:
        return self._used - len(self._free)

    def __repr__(self) -> str:
        return f"Nodes({len(self)} of {self._used}, {self.payloads.count} payloads)"

    @property
    def columns(self) -> int:
        """The output and the replicas."""
        return int(self.lists.single.shape[1])

    def ids(self) -> Ints:
        """All nodes, in the order of first arrival."""
        is_used = np.ones(self._used, np.bool_)
        is_used[self._free] = False
        ids = np.flatnonzero(is_used)
        return ids[np.argsort(self.facts[ids, BORN], kind="stable")]

    def ids_in(self, block: int) -> Ints:
        """The nodes with the numbers of a block, rising; only between steps."""
        first = block << BLOCK_BITS
        born = self.facts[first : min(first + BLOCK, self._used), BORN]
        return first + np.flatnonzero(born != NOT_BORN)

    def reserve(self, count: int) -> Ints:
        """Ids for new nodes, and room for them; see `begin` and `give_back`."""
        used = min(count, len(self._free))
        keep = len(self._free) - used
        ids = np.append(self._free[keep:], self._used + np.arange(count - used))
        self._free = self._free[:keep]
        self._make_room(self._used + count - used)
        return ids

    def restore(self, ids: Ints) -> None:
        """Let just these ids be in use, where none is; see `begin`."""
        assert self._used == 0, f"something is here already: {self!r}"
        self._make_room(int(ids.max(initial=-1)) + 1)
        is_free = np.ones(self._used, np.bool_)
        is_free[ids] = False
        self._free = np.flatnonzero(is_free)

    def _make_room(self, used: int) -> None:
        self.facts = grown(self.facts, used)
        self.facts[self._used : used, BORN] = NOT_BORN
        self._used = used
        self.waits = grown(self.waits, self._used)
        self.lists = self.lists._replace(
            single=grown(self.lists.single, self._used),
            block=grown(self.lists.block, self._used),
        )

    def begin(self, ids: Ints, payload_rows: Ints) -> None:
        """Make reserved ids nodes that nobody has inserted yet; their names are there."""
        rows = (self.facts, self.lists.single, self.lists.block, self.waits)
        begin_all(frozen_rows(ids), frozen_rows(payload_rows), *rows)

    def give_back(self, ids: Ints) -> None:
        """Reserved ids that were not needed, or whose nodes left."""
        self._free = np.append(self._free, ids)

    def note(self, born: Ints, touched: Ints, ended: Ints, mark: int) -> None:
        """Which nodes a step has made, may have changed, and will let go."""
        self.blocks.add(born, mark)
        self.blocks.change(touched, mark)
        self.blocks.remove(ended, mark)

    def forget(self, ids: Ints) -> None:
        """Let these nodes go; their rows and cells are used again."""
        if len(ids):
            free_blocks(self.lists, frozen_rows(ids), np.arange(self.columns))
            self.slots.remove(ids, self.facts)
            self.facts[ids, BORN] = NOT_BORN
            self.give_back(ids)
        if self.payloads.count > 2 * len(self) + _WASTE:
            live = self.ids()
            self.payloads.keep(self.facts[live, ROW])
            self.facts[live, ROW] = np.arange(len(live))
        if len(self.due) > 2 * len(self) + _WASTE:
            live = self.ids()
            live = live[self.facts[live, DUE] < FOREVER_UNITS]
            self.due.rebuild(self.facts[live, DUE], live)

    def add_column(self) -> None:
        """A replica that has said nothing."""
        one = ((0, 0), (0, 1))
        self.lists = self.lists._replace(
            single=np.pad(self.lists.single, one, constant_values=ABSENT),
            block=np.pad(self.lists.block, one, constant_values=NO_BLOCK),
        )
        self.waits = np.pad(self.waits, one)
        self.waiting.append([])

    def remove_column(self, column: int) -> None:
        """Forget what a replica said."""
        free_blocks(self.lists, frozen_rows(self.ids()), np.array([column]))
        self.lists = self.lists._replace(
            single=np.delete(self.lists.single, column, axis=1),
            block=np.delete(self.lists.block, column, axis=1),
        )
        self.waits = np.delete(self.waits, column, axis=1)
        del self.waiting[column]

    def wait(self, some: Ints) -> None:
        """These nodes (node, number, column) are to be looked at when that column decides."""
        for column in np.unique(some[:, 2]).tolist():
            self.waiting[column].append(some[some[:, 2] == column, :2])
            if sum(map(len, self.waiting[column])) > 2 * len(self) + _WASTE:
                self.waiting[column] = [self._still(column)]

    def due_before(
        self, time: int, column: int, pushed: Ints, *, in_order: bool, all_of_them: bool = False
    ) -> Ints:
        """What a stable of this column must look at, each node once; or all that start before.

        `pushed` are nodes with a new DUE that are not on the heap yet; in the order of first
        arrival, if that matters.
        """
        waiting = self._still(column)[:, 0]
        self.waiting[column] = []
        self.waits[waiting, column] = False
        if time == FOREVER_UNITS:
            waiting, popped = waiting[:0], self.ids()
        else:
            is_due = pushed[:, 0] < time
            self.due.push(pushed[~is_due, 0], pushed[~is_due, 1])
            popped = np.append(self.due.pop_before(time), pushed[is_due, 1])
            if all_of_them:
                facts = self.facts[self.ids()]
                there = (facts[:, BORN] != NOT_BORN) & (facts[:, START] < time)
                waiting, popped = self.ids()[there], popped[:0]
        ids = np.empty(len(waiting) + len(popped), np.int64)
        count = int(pick_due(waiting, popped, self.facts, time, ids))
        ids = ids[:count]
        return ids[np.argsort(self.facts[ids, BORN])] if in_order else ids

    def _still(self, column: int) -> Ints:
        """What waits for a column, without nodes that have left."""
        rows = np.concatenate([np.empty((0, 2), np.int64), *self.waiting[column]])
        still: Ints = rows[self.facts[rows[:, 0], BORN] == rows[:, 1]]
        return still

    def check(self) -> None:
        """Assert what must always hold between steps."""
        ids = self.ids()
        facts = self.facts[ids]
        assert (facts[:, BORN] >= 0).all(), f"a node that nobody inserted: {self!r}"
        assert len(np.unique(facts[:, BORN])) == len(ids), f"a number twice: {self!r}"
        assert (facts[:, BORN] < self.next_born).all(), repr(self)
        assert (facts[:, CREDIT] == 0).all(), f"a step has not ended: {self!r}"
        assert (facts[:, STATUS] & ~IN_CONFLICT == 0).all(), f"a step has not ended: {self!r}"
        assert (facts[:, ROW] < max(self.payloads.count, 1)).all(), f"a lost payload: {self!r}"
        assert len(self.slots) == len(ids), repr(self)
        self.blocks.check(ids)
        self.slots.check(self.facts)
        self.due.check()
        times, entries = self.due.entries
        known = set(zip(times.tolist(), entries.tolist(), strict=True))
        wanted = facts[:, DUE] < FOREVER_UNITS
        for pair in zip(facts[wanted, DUE].tolist(), ids[wanted].tolist(), strict=True):
            assert pair in known, f"node {pair[1]} will not be found at {pair[0]}: {self!r}"
        for column in range(self.columns):
            still = self._still(column)[:, 0]
            marked = ids[self.waits[ids, column]]
            assert sorted(still.tolist()) == sorted(marked.tolist()), f"lost: {self!r}"
        assert (facts[:, START] < FOREVER_UNITS).all(), repr(self)


@kernel
def begin_all(
    ids: Any, payload_rows: Any, facts: Any, single: Any, block: Any, waits: Any
) -> None:
    """What a node is before anybody has inserted it."""
    for k in range(ids.size):
        node = ids[k]
        facts[node, BORN], facts[node, DUE] = NOT_BORN, FOREVER_UNITS
        facts[node, ROW], facts[node, CREDIT], facts[node, STATUS] = payload_rows[k], 0, 0
        for column in range(single.shape[1]):
            single[node, column], block[node, column] = ABSENT, NO_BLOCK
            waits[node, column] = False


@kernel
def pick_due(waiting: Any, popped: Any, facts: Any, time: Any, ids: Any) -> Any:
    """The nodes that are still there and due; a visit says when they are due again."""
    count = 0
    for node in waiting:
        if facts[node, STATUS] & DEAD == 0:
            facts[node, DUE] = FOREVER_UNITS
            ids[count] = node
            count += 1
    for node in popped:
        is_there = facts[node, BORN] != NOT_BORN and facts[node, STATUS] & DEAD == 0
        if is_there and (facts[node, DUE] < time or time == FOREVER_UNITS):
            facts[node, DUE] = FOREVER_UNITS
            ids[count] = node
            count += 1
    return count
