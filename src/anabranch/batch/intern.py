"""Dense numbers for identities: (start, payload), the payload compared by value.

The n-th identity that is seen for the first time gets the id n, from 0.
"""

from collections.abc import Hashable

import numpy as np
import pyarrow as pa

from anabranch.batch.batch import Ints
from anabranch.batch.buffers import conform, take
from anabranch.batch.values import to_payloads


class Interner:
    """Ids of identities; remembers the first seen form of each."""

    def __init__(self, payload: pa.Schema) -> None:
        self._schema = payload
        self._ids: dict[tuple[int, Hashable], int] = {}
        self._start: list[int] = []
        self._chunks: list[pa.Table] = []

    def __len__(self) -> int:
        return len(self._start)

    def intern(self, start: Ints, payload: pa.Table) -> Ints:
        """The id of each row's identity; an identity not seen before gets the next one."""
        ids = np.empty(len(start), np.int64)
        table = conform(payload, self._schema)
        new = []
        for row, identity in enumerate(
            zip(start.tolist(), to_payloads(table, len(start)), strict=True)
        ):
            known = len(self._ids)
            ids[row] = self._ids.setdefault(identity, known)
            if len(self._ids) > known:
                new.append(row)
                self._start.append(identity[0])
        if self._schema.names:
            self._chunks.append(take(table, np.array(new, np.int64)))
        return ids

    @property
    def start(self) -> Ints:
        """The start of each identity, by id."""
        return np.array(self._start, np.int64)

    @property
    def payload(self) -> pa.Table:
        """The first seen payload of each identity, by id."""
        if not self._chunks:
            return self._schema.empty_table()
        return pa.concat_tables(self._chunks)

    def check(self) -> None:
        """Assert what must always hold."""
        assert len(self._start) == len(self._ids)
