"""The events that may still change, one row of numbers each, found by name in constant time.

A row (a `node`) has the columns

    START, HIGH, LOW    the name: see `slots`
    ROW                 where its payload is in `store`, which holds it once
    BORN                its rank among the events that came to the output: the order of adjusts
    SHOWN, OUT          its end on the output as readers have it, and as the step makes it
    FLAGS               LIVE and what else is so; see below
    ENDS + r            its end in replica r: ABSENT if the replica never spoke of it, its start
                        if the replica removed it (a tombstone)

Node numbers are given again in the order in which they became free, so that events of one time
are near each other.  Every BLOCK of numbers remembers when a row in it was last changed, and
when one last got a new payload: `r3_parts` writes only what changed since.

Nothing here costs more than what it is asked for, but for two things that are paid in advance:
arrays double when they are full, and payloads are moved when less than half of them is live.

Papers: LMerge IV-D, in2t (Figure 1, left); the space is O(w(p + s)) of Table IV.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from anabranch.batch.batch import NEVER_UNITS, Ints
from anabranch.batch.columns import Column
from anabranch.batch.kernel import frozen_rows, kernel
from anabranch.batch.store import Store, copied, grown, write_table
from anabranch.operators.merge.fifo import Fifo
from anabranch.operators.merge.slots import NOBODY, Slots

ROW: Final = 3
BORN: Final = 4
SHOWN: Final = 5
OUT: Final = 6
FLAGS: Final = 7
ENDS: Final = 8

LIVE: Final = 1
CONFLICT: Final = 2
"""A deciding replica denied it although the output had promised it; counted once."""
HALF_FROZEN: Final = 4
"""It starts before the output's frontier, and is in `Agenda.passed`."""
DONE: Final = 8
"""It leaves the state when the step ends."""
TOLD: Final = 16
"""It is done because the deciding replica itself removed it."""
CREDITED: Final = 32
"""An adjust of this step has the credit for its new end."""
SEEN: Final = 64
"""Within one look at a list: it was there before."""

ABSENT: Final = int(NEVER_UNITS)
"""Not on the output; never mentioned by this replica."""

BLOCK_BITS: Final = 10
BLOCK: Final = 1 << BLOCK_BITS

# Below this nothing is moved to save room.
_SMALL: Final = 1_024
# Payloads per live one: with more than that, room is given back instead of kept for the next.
_MUCH: Final = 8


class Nodes:
    """The rows, their names and payloads."""

    def __init__(self, payload: pa.Schema, *, replicas: int = 0) -> None:
        self.schema = payload
        self.rows: Ints = np.empty((0, ENDS + replicas), np.int64)
        self.slots = Slots()
        self.live = 0
        self.used = 0
        self.changed: Ints = np.zeros(0, np.int64)
        self.filled: Ints = np.zeros(0, np.int64)
        self.held: Ints = np.zeros(0, np.int64)
        self._store = Store.of(payload)
        self._stored = 0
        self._free = Fifo()

    def __repr__(self) -> str:
        return f"Nodes({self.live} of {self.used} live, {self._stored} payloads)"

    @property
    def stored(self) -> int:
        """How many payloads are held, those of events that left included."""
        return self._stored

    @property
    def nbytes(self) -> int:
        """What rows, names and free numbers take; payloads not counted."""
        return self.rows.nbytes + self.slots.nbytes + self._free.nbytes

    def living(self) -> Ints:
        """The numbers of all nodes, ascending; costs a look at each."""
        return np.flatnonzero(self.rows[: self.used, FLAGS] & LIVE)

    def ids_in(self, block: int) -> Ints:
        """The numbers of the nodes of a block, ascending."""
        first = block << BLOCK_BITS
        flags = self.rows[first : min(first + BLOCK, self.used), FLAGS]
        return first + np.flatnonzero(flags & LIVE)

    def columns(self) -> list[Column]:
        """The payloads by ROW."""
        return self._store.columns()

    def take(self, payload_rows: Ints) -> pa.Table:
        """Copies of these payloads, in this order."""
        if not len(self.schema):
            return pa.table({})
        columns = copied(self._store.columns(), frozen_rows(payload_rows))
        return write_table(self.schema, columns, len(payload_rows))

    def candidates(self, count: int) -> Ints:
        """The next numbers that would be given, with room for their rows and names."""
        again = self._free.front(count)
        last = self.used + count - len(again)
        self.rows = grown(self.rows, last)
        blocks = (len(self.rows) >> BLOCK_BITS) + 1
        if blocks > len(self.changed):
            missing = np.zeros(blocks - len(self.changed), np.int64)
            self.changed = np.append(self.changed, missing)
            self.filled = np.append(self.filled, missing)
            self.held = np.append(self.held, missing)
        self.slots.make_room(count, self.rows)
        if last == self.used:
            return again
        return np.concatenate([again, np.arange(self.used, last)])

    def create(self, ids: Ints, columns: Sequence[Column], rows: Ints, mark: int) -> None:
        """Give the first candidates these payloads; nobody has spoken of them yet."""
        again = min(len(ids), len(self._free))
        self._free.drop(again)
        self.used += len(ids) - again
        self.live += len(ids)
        self._store.append(columns, frozen_rows(rows))
        blocks = (self.changed, self.filled, self.held)
        create_all(self.rows, frozen_rows(ids), self._stored, mark, blocks)
        self._stored += len(ids)

    def remove(self, ids: Ints, mark: int) -> None:
        """Let these nodes go, and their payloads some day."""
        if not len(ids):
            return
        self.slots.remove(ids, self.rows)
        remove_all(self.rows, frozen_rows(ids), mark, self.changed, self.held)
        self._free.append(np.sort(ids))
        self.live -= len(ids)
        if self._stored > 2 * self.live + _SMALL:
            self._move_payloads()

    def add_replica(self) -> None:
        """One more column of ends; the new replica has said nothing."""
        nothing = np.full((len(self.rows), 1), ABSENT, np.int64)
        self.rows = np.concatenate([self.rows, nothing], axis=1)

    def remove_replica(self, replica: int) -> None:
        """Forget what this replica said."""
        self.rows = np.delete(self.rows, ENDS + replica, axis=1)

    def restore(self, ids: Ints, rows: Ints, payload: Sequence[Column], mark: int) -> None:
        """Fill what is empty with these nodes; `rows` has all columns but ROW."""
        assert self.used == 0, f"something is here already: {self!r}"
        size = int(ids.max(initial=-1)) + 1
        self.rows = grown(self.rows, size)
        self.rows[:size, FLAGS] = 0
        self.rows[ids] = rows
        self.rows[ids, ROW] = np.arange(len(ids))
        self._store.append(payload, frozen_rows(np.arange(len(ids))))
        self._stored = self.live = len(ids)
        self.used = size
        self._free.append(np.flatnonzero(self.rows[:size, FLAGS] == 0))
        blocks = (len(self.rows) >> BLOCK_BITS) + 1
        self.changed = np.full(blocks, mark, np.int64)
        self.filled = self.changed.copy()
        self.held = np.bincount(ids >> BLOCK_BITS, minlength=blocks)
        self.slots.put(ids, self.rows)

    def _move_payloads(self) -> None:
        owner, kept = np.full(self._stored, NOBODY, np.int64), np.empty(self.live, np.int64)
        renumber(self.rows, self.used, owner, kept)
        rows = frozen_rows(kept)
        if self._stored <= _MUCH * self.live + _SMALL:
            self._store.keep(rows)
        else:
            # The room that was needed once is given back.
            store = Store.of(self.schema)
            store.append(self._store.columns(), rows)
            self._store = store
        self._stored = len(kept)

    def check(self) -> None:
        """Assert what must always hold."""
        ids = self.living()
        assert len(ids) == self.live == len(self.slots), f"miscounted: {self!r}"
        free = self._free.front(len(self._free))
        assert len(np.union1d(ids, free)) == self.used == self.live + len(free), repr(self)
        held = np.bincount(ids >> BLOCK_BITS, minlength=len(self.held))
        assert (held == self.held).all(), f"blocks miscounted: {self!r}"
        payload_rows = self.rows[ids, ROW]
        assert len(np.unique(payload_rows)) == self.live, f"a payload twice: {self!r}"
        assert (payload_rows < self._stored).all(), f"a payload is lost: {self!r}"
        assert all(column.count == self._stored for column in self.columns()), repr(self)
        self.slots.check(self.rows)


@kernel
def renumber(rows: Any, used: Any, owner: Any, kept: Any) -> None:
    """List the payloads that a node has, ascending, and number them anew in this order."""
    for node in range(used):
        if rows[node, FLAGS] & LIVE:
            owner[rows[node, ROW]] = node
    count = 0
    for row in range(owner.size):
        if owner[row] != NOBODY:
            kept[count] = row
            rows[owner[row], ROW] = count
            count += 1


@kernel
def remove_all(rows: Any, ids: Any, mark: Any, changed: Any, held: Any) -> None:
    """These nodes are not live any more."""
    for k in range(ids.size):
        rows[ids[k], FLAGS] = 0
        changed[ids[k] >> BLOCK_BITS] = mark
        held[ids[k] >> BLOCK_BITS] -= 1


@kernel
def payload_rows(rows: Any, ids: Any, some: Any, found: Any) -> None:
    """Where the payloads of these nodes are: of `ids` those at the places `some`."""
    for k in range(some.size):
        found[k] = rows[ids[some[k]], ROW]


@kernel
def create_all(rows: Any, ids: Any, first: Any, mark: Any, blocks: Any) -> None:
    """The rows of new nodes, whose payloads are stored one after the other from `first` on."""
    changed, filled, held = blocks
    for k in range(ids.size):
        node = ids[k]
        rows[node, ROW] = first + k
        rows[node, BORN] = ABSENT
        rows[node, SHOWN] = ABSENT
        rows[node, OUT] = ABSENT
        rows[node, FLAGS] = LIVE
        for column in range(ENDS, rows.shape[1]):
            rows[node, column] = ABSENT
        changed[node >> BLOCK_BITS] = mark
        filled[node >> BLOCK_BITS] = mark
        held[node >> BLOCK_BITS] += 1
