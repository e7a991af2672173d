"""Values of some columns, each with a number, as long as something refers to it.

The table is one of `state.events`, named by the values alone.  A number stays the same through
a save, and is given away again after `forget`.

Values that are never looked for need no names: without them each row has a number of its own.
`named` is the same table with names.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from anabranch.batch.batch import Batch, Ints
from anabranch.batch.events import inserts
from anabranch.batch.hashing import hash_columns
from anabranch.batch.index import HIGH, LOW
from anabranch.batch.kernel import frozen, frozen_rows, kernel
from anabranch.batch.schema import ElementSchema
from anabranch.batch.store import read_table
from anabranch.operators.state.blocks import InBlocks, Saved, read_blocks
from anabranch.operators.state.codec import StateKind, column_of, to_table
from anabranch.operators.state.events import FLAGS, LIVE, OWN, Events
from anabranch.operators.state.parts import open_control, save
from anabranch.operators.state.pieces import find_piece, pieces


class Interned:
    """The values of one lane; rows have `own` numbers of the operator's, at first 0.

    `is_named`: equal values have one number, and are found by `find`.
    """

    def __init__(self, schema: ElementSchema, *, own: int, is_named: bool = True) -> None:
        self.schema = schema
        self.table = Events(schema.payload, width=OWN + own, is_named=is_named)

    def __len__(self) -> int:
        return len(self.table)

    def __repr__(self) -> str:
        return f"Interned({self.table!r})"

    @property
    def rows(self) -> Ints:
        """The rows by number, with the operator's columns from OWN on."""
        return self.table.rows

    @property
    def is_named(self) -> bool:
        """Whether equal values have one number."""
        return self.table.is_named

    def add(self, batch: Batch, mark: int) -> Ints:
        """New numbers for all rows of a batch, without a look at those that are there.

        The operator's columns are 1.
        """
        assert not self.is_named, f"{self!r} has names: find() is for it"
        if not len(batch):
            return np.empty(0, np.int64)
        columns = read_table(batch.payload)
        hashes = hash_columns(columns, len(batch)) if batch.hashes is None else batch.hashes
        ids: Ints = self.table.candidates(len(batch)).copy()
        self.table.create(ids, columns, None, mark)
        describe_all(self.table.rows, frozen_rows(ids), frozen(hashes.view(np.int64)))
        return ids

    def named(self, mark: int) -> tuple["Interned", Ints, Ints]:
        """The same values with names; their numbers here, and there."""
        ids = self.table.living()
        there = Interned(self.schema, own=self.rows.shape[1] - OWN)
        batch = inserts(self.schema, ids, ids, self.values(ids))
        return there, ids, there.find(batch, self.schema.payload.names, mark)

    def find(self, batch: Batch, columns: Sequence[str], mark: int) -> Ints:
        """The number of these columns of each row; new ones for what is not known."""
        names = self.schema.payload.names
        payload = batch.payload.select(list(columns)).rename_columns(names)
        hashes = batch.hashes if list(columns) == batch.schema.payload.names else None
        asked = replace(batch, schema=self.schema, payload=payload, seq=None, hashes=hashes)
        found = [np.empty(0, np.int64)]
        for piece in pieces([asked]) if len(batch) else ():
            start = np.zeros_like(piece.start)
            rows = np.arange(len(start))
            lookup, created = find_piece(
                self.table, piece, start, np.ones(len(start), np.bool_), rows, mark
            )
            self.table.rows[created, OWN:] = 0
            found.append(lookup.id)
        return np.concatenate(found)

    def values(self, ids: Ints, columns: Sequence[str] | None = None) -> pa.Table:
        """The values with these numbers, in this order; of some columns or of all."""
        return self.table.payload(ids, columns)

    def names(self, ids: Ints) -> Ints:
        """A word of each of these values: the same in whatever order they came."""
        words: Ints = self.table.rows[ids, LOW]
        return words

    def forget(self, ids: Ints, mark: int) -> None:
        """Drop these, each once; their numbers are given away in this order."""
        self.table.remove(ids, mark, ascending=False)

    def parts(self, kind: StateKind, since: int | None, mark: int) -> Saved:
        """What changed after the mark `since`, or all."""
        head = to_table({}, kind.header(time=self.schema.time.value, mark=mark))
        held = InBlocks(
            self.table.blocks(),
            self.table.ids_in,
            lambda ids: (to_table({"node": ids}),),
            self.values,
        )
        return save(head, held, self.schema.payload, since)

    def restore(self, kind: StateKind, parts: Mapping[str, bytes]) -> None:
        """Fill an empty table with what was saved; the operator's columns are 0."""
        _, _, blocks, empty, _ = open_control(parts, kind, self.schema)
        numbers, values = [np.empty(0, np.int64)], [empty]
        for some, _, payload in read_blocks(parts, blocks, kind):
            numbers.append(column_of(some, "node"))
            values.append(payload)
        ids, columns = np.concatenate(numbers), read_table(pa.concat_tables(values))
        rows = np.zeros((len(ids), self.table.rows.shape[1]), np.int64)
        hashes = hash_columns(columns, len(ids)).view(np.int64)
        rows[:, LOW], rows[:, HIGH], rows[:, FLAGS] = hashes[:, 0], hashes[:, 1], LIVE
        self.table.restore(ids, rows, columns, 0)
        self.table.date(blocks)


@kernel
def describe_all(rows: Ints, ids: Ints, hashes: Ints) -> None:
    """Write the hashes of new values, and 1 to the columns of the operator."""
    for k in range(ids.size):
        rows[ids[k], LOW], rows[ids[k], HIGH] = hashes[k, 0], hashes[k, 1]
        for column in range(OWN, rows.shape[1]):
            rows[ids[k], column] = 1
