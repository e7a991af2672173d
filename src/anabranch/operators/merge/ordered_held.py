"""The inserts of joining replicas, held back until it is known what becomes of them.

One row per insert, those of a replica in their order, numbered for ever: `ordered_parts` saves
them by number.  Rows that left stay in the payload table until more than half of it is unused.

Papers: LMerge V-B, erratum L9: held, not dropped, since the others may fail right after.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from anabranch.batch.batch import INSERT, Batch, Ints
from anabranch.batch.buffers import take
from anabranch.batch.schema import ElementSchema

MAX_CHUNKS: Final = 32
"""A payload table of more chunks than this is made one: each step may add a chunk."""


@dataclass(eq=False)
class Held:
    """Columns of inserts; `replica` is a row of the members, `place` one of `payload`."""

    replica: Ints
    start: Ints
    end: Ints
    place: Ints
    number: Ints
    payload: pa.Table

    @classmethod
    def nothing(cls, schema: pa.Schema) -> "Held":
        """Nobody is joining."""
        numbers = np.empty(0, np.int64)
        return cls(numbers, numbers, numbers, numbers, numbers, schema.empty_table())

    def __len__(self) -> int:
        return len(self.start)

    def keep(self, rows: Ints) -> "Held":
        """Only these, with the payloads where they are."""
        return Held(
            self.replica[rows],
            self.start[rows],
            self.end[rows],
            self.place[rows],
            self.number[rows],
            self.payload,
        )

    def compact(self) -> "Held":
        """The same, with no more payloads than twice the rows, and in few chunks."""
        if not self.payload.num_columns:
            return self
        chunks = self.payload.column(0).num_chunks
        if self.payload.num_rows <= 2 * len(self) and chunks <= MAX_CHUNKS:
            return self
        payload = take(self.payload, self.place).combine_chunks()
        places = np.arange(len(self))
        return Held(self.replica, self.start, self.end, places, self.number, payload)

    def detach(self, replica: int) -> "Held":
        """Without the rows of this replica; those behind it move up."""
        kept = self.keep(np.flatnonzero(self.replica != replica))
        kept.replica = kept.replica - (kept.replica > replica)
        return kept.compact()

    def batch(self, schema: ElementSchema, rows: Ints) -> Batch:
        """These inserts as a batch."""
        count = len(rows)
        return Batch(
            schema,
            np.full(count, INSERT, np.int8),
            self.start[rows],
            self.end[rows],
            np.zeros(count, np.int64),
            take(self.payload, self.place[rows]),
        )

    def check(self, replicas: int) -> None:
        """Assert what must always hold, with this many replicas."""
        columns = (self.replica, self.start, self.end, self.place, self.number)
        assert len(set(map(len, columns))) == 1, repr(self)
        assert (np.diff(self.number) > 0).all(), f"a number twice: {self!r}"
        assert (self.end > self.start).all(), f"an empty event was held: {self!r}"
        assert (self.replica < replicas).all(), f"held for nobody: {self!r}"
        if self.payload.num_columns:
            assert (self.place < self.payload.num_rows).all(), f"a payload is lost: {self!r}"
        order = np.argsort(self.replica, kind="stable")
        start, same = self.start[order], np.diff(self.replica[order]) == 0
        assert (np.diff(start)[same] >= 0).all(), f"held out of order: {self!r}"
