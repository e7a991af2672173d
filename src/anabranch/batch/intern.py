"""Dense numbers for identities: (start, payload), the payload compared by value.

The n-th identity that is seen for the first time gets the id n, from 0, and two rows have the
same id exactly when their identities are equal: a hash only says where to look, every hit is
compared by value with the first seen form, and unequal payloads of equal hash get two ids.

>>> interner = Interner(pa.schema({"a": pa.string()}))
>>> interner.intern(np.array([7, 7, 8]), pa.table({"a": ["x", "x", "x"]})).tolist()
[0, 0, 1]
"""

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from anabranch.batch.batch import Ints
from anabranch.batch.columns import Column, conform
from anabranch.batch.equality import equal_columns
from anabranch.batch.hashing import Hashes, hash_columns, hash_numbers
from anabranch.batch.intern_kernel import ID_BITS, move_slots, probe, rebuild
from anabranch.batch.kernel import frozen, frozen_rows
from anabranch.batch.schema import plain_type
from anabranch.batch.store import Store, grown, read_table, write_table

HashPayload = Callable[[pa.Table], tuple[Hashes, Hashes]]

# Rows that are hashed, looked up and compared while they are in the cache.
_STRIDE: Final = 16_384
_FIRST_SLOTS: Final = 1_024
# Slots per identity, at least, so that probes stay short.
_ROOM: Final = 2


class Interner:
    """Ids of identities; remembers the first seen form of each.

    `hash_payload` is for tests: any function of the payload's value will do, if slowly.
    """

    def __init__(self, payload: pa.Schema, *, hash_payload: HashPayload | None = None) -> None:
        fields = [pa.field(field.name, plain_type(field.type)) for field in payload]
        self._schema = pa.schema(fields)
        self._hash_payload = hash_payload
        self._count = 0
        self._slots = np.zeros(_FIRST_SLOTS, np.uint64)
        self._keys = np.zeros((0, 2), np.uint64)
        self._start = np.zeros(0, np.int64)
        self._store = Store.of(self._schema)

    def __len__(self) -> int:
        return self._count

    def __repr__(self) -> str:
        return f"Interner({self._count} identities in {len(self._slots)} slots)"

    def intern(self, start: Ints, payload: pa.Table) -> Ints:
        """The id of each row's identity; an identity not seen before gets the next one."""
        table = conform(payload, self._schema)
        if len(self._schema) and table.num_rows != len(start):
            message = f"{len(start)} starts for {table.num_rows} payloads"
            raise ValueError(message)
        ids = np.empty(len(start), np.int64)
        for begin in range(0, len(start), _STRIDE):
            end = min(begin + _STRIDE, len(start))
            piece = np.ascontiguousarray(start[begin:end], np.int64)
            ids[begin:end] = self._intern_piece(piece, table.slice(begin, end - begin))
        return ids

    @property
    def start(self) -> Ints:
        """The start of each identity, by id."""
        return frozen(self._start[: self._count])

    @property
    def payload(self) -> pa.Table:
        """The first seen payload of each identity, by id."""
        return write_table(self._schema, self._store.columns(), self._count)

    def take(self, ids: Ints) -> pa.Table:
        """The first seen payloads of these identities; costs no more than they do."""
        store = Store.of(self._schema)
        store.append(self._store.columns(), frozen_rows(ids))
        return write_table(self._schema, store.columns(), len(ids))

    def hashes(self, ids: Ints) -> tuple[Hashes, Hashes]:
        """The low and high halves of the hash of these identities (of payload, then start)."""
        return self._keys[ids, 0], self._keys[ids, 1]

    def check(self) -> None:
        """Assert what must always hold: each id in one slot, reachable from where it hashes."""
        used = np.flatnonzero(self._slots)
        ids = (self._slots[used] & np.uint64((1 << ID_BITS) - 1)).astype(np.int64) - 1
        assert sorted(ids.tolist()) == list(range(self._count)), f"ids are not dense: {self!r}"
        assert len(self._slots) >= _ROOM * self._count, f"too full: {self!r}"
        free = np.flatnonzero(self._slots == 0)
        size = len(self._slots)
        home = (self._keys[ids, 0] & np.uint64(size - 1)).astype(np.int64)
        # The first free slot at or after home must lie behind the slot that holds the id.
        gap = (free[np.searchsorted(free, home) % len(free)] - home) % size
        assert np.all((used - home) % size < gap), f"an id cannot be reached: {self!r}"
        for column in self._store.columns():
            assert column.count == self._count, f"payloads are missing: {self!r}"

    def _intern_piece(self, start: Ints, payload: pa.Table) -> Ints:
        columns = read_table(payload)
        hashes = self._hash(columns, payload, start)
        self._make_room(len(start))
        known = self._count
        ids = np.empty(len(start), np.int64)
        slots = np.full(len(start), -1, np.int64)
        rows = np.arange(len(start))
        new_rows = [rows[:0]]
        while len(rows):
            fresh, hits = self._probe(rows, hashes, start, slots, ids)
            self._store.append(columns, frozen_rows(fresh))
            new_rows.append(fresh)
            left, right = frozen_rows(hits), frozen_rows(ids[hits])
            # What is not equal goes on to the next slot of the same hash.
            rows = hits[~equal_columns(columns, left, self._store.columns(), right)]
        if any(map(len, new_rows[2:])):
            self._put_in_order(known, np.concatenate(new_rows), slots, ids, columns)
        return ids

    def _hash(self, columns: Sequence[Column], payload: pa.Table, start: Ints) -> Hashes:
        if self._hash_payload is None or not columns:
            state = hash_columns(columns, len(start))
        else:
            state = np.ascontiguousarray(np.stack(self._hash_payload(payload), axis=1))
        hash_numbers(start, state)
        return state

    def _make_room(self, more: int) -> None:
        """For this many identities, so that nothing moves while they are added."""
        need = self._count + more
        self._keys = grown(self._keys, need)
        self._start = grown(self._start, need)
        size = len(self._slots)
        while size < _ROOM * need:
            size *= 2
        if size > len(self._slots):
            self._slots = np.zeros(size, np.uint64)
            rebuild(self._slots, frozen(self._keys), self._count)

    def _probe(
        self, rows: Ints, hashes: Hashes, start: Ints, slots: Ints, ids: Ints
    ) -> tuple[Ints, Ints]:
        """Finds or adds these rows, from where `slots` says; what was new, what to compare."""
        fresh, hits = np.empty((2, len(rows)), np.int64)
        table = self._slots, self._keys, self._start, self._count
        found = probe(
            frozen_rows(rows), frozen(hashes), frozen(start), *table, slots, ids, fresh, hits
        )
        added = int(found)
        self._count += added
        return fresh[:added], hits[: len(rows) - added]

    def _put_in_order(
        self, known: int, fresh: Ints, slots: Ints, ids: Ints, columns: Sequence[Column]
    ) -> None:
        """Numbers what is new by first row: unequal payloads of equal hash were added late."""
        order = np.argsort(fresh)
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        move_slots(self._slots, frozen_rows(slots[fresh]), frozen_rows(known + rank))
        self._keys[known : self._count] = self._keys[known : self._count][order]
        self._start[known : self._count] = self._start[known : self._count][order]
        is_new = ids >= known
        ids[is_new] = known + rank[ids[is_new] - known]
        self._store.truncate(known)
        self._store.append(columns, frozen_rows(fresh[order]))
