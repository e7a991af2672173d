"""Interning: a dense number for each identity (start, payload), payloads compared by value.

The n-th identity that is seen for the first time gets the id n, from 0, and two rows have the
same id exactly when their identities are equal: a hash only finds candidates, every hit is
compared by value with the first seen form, and unequal payloads of equal hash get two ids.

>>> interner = Interner(pa.schema({"a": pa.string()}))
>>> interner.intern(np.array([7, 7, 8]), pa.table({"a": ["x", "x", "x"]})).tolist()
[0, 0, 1]
"""

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from anabranch.batch.batch import Hashes, Ints
from anabranch.batch.columns import Column, conform
from anabranch.batch.equality import equal_columns
from anabranch.batch.hashing import hash_columns
from anabranch.batch.index import LOW, START, Index, Lookup
from anabranch.batch.kernel import frozen, frozen_rows
from anabranch.batch.schema import plain_type
from anabranch.batch.store import Store, grown, read_table, write_table

HashPayload = Callable[[pa.Table], tuple[Hashes, Hashes]]

# Rows that are hashed, looked up and compared while they are in the cache.
_STRIDE: Final = 16_384


class Interner:
    """Ids of identities; remembers the first seen form of each.

    `hash_payload` is for tests: any function of the payload's value will do, if slowly.
    """

    def __init__(self, payload: pa.Schema, *, hash_payload: HashPayload | None = None) -> None:
        fields = [pa.field(field.name, plain_type(field.type)) for field in payload]
        self._schema = pa.schema(fields)
        self._hash_payload = hash_payload
        self._index = Index()
        self._names: Ints = np.zeros((0, LOW + 1), np.int64)
        self._store = Store.of(self._schema)

    def __len__(self) -> int:
        return len(self._index)

    def __repr__(self) -> str:
        return f"Interner({len(self)} identities)"

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
        return frozen(self._names[: len(self), START])

    @property
    def payload(self) -> pa.Table:
        """The first seen payload of each identity, by id."""
        return write_table(self._schema, self._store.columns(), len(self))

    def take(self, ids: Ints) -> pa.Table:
        """The first seen payloads of these identities; costs no more than they do."""
        store = Store.of(self._schema)
        store.append(self._store.columns(), frozen_rows(ids))
        return write_table(self._schema, store.columns(), len(ids))

    def check(self) -> None:
        """Assert every invariant."""
        self._index.check(self._names)
        for column in self._store.columns():
            assert column.count == len(self), (
                f"{column.count} payloads != {len(self)} identities"
            )

    def _intern_piece(self, start: Ints, payload: pa.Table) -> Ints:
        columns, known = read_table(payload), len(self)
        self._names = grown(self._names, known + len(start))
        self._index.make_room(len(start), self._names)
        may_add, ids = np.ones(len(start), np.bool_), known + np.arange(len(start))
        lookup = Lookup(start, self._hash(columns, payload, len(start)), may_add, ids)
        rows, new_rows = np.arange(len(start)), [np.empty(0, np.int64)]
        while len(rows):
            added, hits = self._index.search(lookup, rows, self._names)
            self._store.append(columns, frozen_rows(added))
            new_rows.append(added)
            left, right = frozen_rows(hits), frozen_rows(lookup.id[hits])
            # What is not equal goes on to the next slot of the same hash.
            rows = hits[~equal_columns(columns, left, self._store.columns(), right)]
        if any(map(len, new_rows[2:])):
            self._put_in_order(known, np.concatenate(new_rows), lookup, columns)
        return lookup.id

    def _hash(self, columns: Sequence[Column], payload: pa.Table, count: int) -> Hashes:
        if self._hash_payload is None or not columns:
            return hash_columns(columns, count)
        return np.ascontiguousarray(np.stack(self._hash_payload(payload), axis=1))

    def _put_in_order(
        self, known: int, added: Ints, lookup: Lookup, columns: Sequence[Column]
    ) -> None:
        """Number what is new by first row: unequal payloads of equal hash were added late."""
        order = np.argsort(added)
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        self._index.renumber(lookup.slot[added], known + rank)
        self._names[known : len(self)] = self._names[known : len(self)][order]
        is_new = lookup.id >= known
        lookup.id[is_new] = known + rank[lookup.id[is_new] - known]
        self._store.truncate(known)
        self._store.append(columns, frozen_rows(added[order]))
