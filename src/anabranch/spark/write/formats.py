"""The forms that a lane's rows take: in the folders of an output, and in views.

    elements   the merged stream: sort by `seq` to get a valid physical stream
    changes    `_change_type`: insert, delete, update_preimage, update_postimage, and
               `_commit_version`, the number of the step; no stables
    final      events that nothing can change any more, each once
    apart      rows that were not merged: where from and why, then the element
    late       the same, with `bucket` (late, violation) in front

`seq` of the merged stream is `step * 2**32 + position`: unique, increasing over steps and
restarts, with the one stable of a step last.  All lanes take the same steps; nearly always a
trigger is one (`anabranch.spark.lane.receive`).
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, Protocol

import numpy as np
import pyarrow as pa

from anabranch.batch.batch import ADJUST, INSERT, STABLE, Batch, Ints
from anabranch.batch.buffers import take
from anabranch.batch.codec import encode
from anabranch.batch.hashing import hash_rows
from anabranch.batch.schema import (
    END,
    KIND,
    OLD_END,
    SEQ,
    START,
    TIME_COLUMNS,
    ElementSchema,
)
from anabranch.sources.channels import LATE
from anabranch.spark.lane.rows import ORIGIN, LaneRow, read_rows

STEP_BITS: Final = 32
ROWS_PER_STEP: Final = 2**STEP_BITS

CHANGE: Final = "_change_type"
VERSION: Final = "_commit_version"
"""The number of the step that made a change: the same if a trigger is repeated."""
BUCKET: Final = "bucket"
_WORDS: Final = ("insert", "delete", "update_preimage", "update_postimage")
_INSERT, _DELETE, _PREIMAGE, _POSTIMAGE = range(len(_WORDS))


class Form(Protocol):
    """What a lane's row becomes: a table of these columns."""

    @property
    def columns(self) -> pa.Schema:
        """The columns of the table."""

    def __call__(self, row: LaneRow) -> pa.Table:
        """The table of one row."""


def output_schema(schema: ElementSchema) -> ElementSchema:
    """The merged stream's schema: with `seq`, without `replica`."""
    return ElementSchema(schema.time, schema.payload, has_seq=True)


def quarantine_schema(schema: ElementSchema) -> pa.Schema:
    """The columns of late rows and violations: where from and why, then the element."""
    kept = output_schema(schema).arrow
    return pa.schema([*ORIGIN, *(field.with_nullable(nullable=True) for field in kept)])


def _elements(row: LaneRow, schema: ElementSchema) -> Batch:
    """The elements of a lane's row, with room for their seq."""
    assert row.batch is not None, f"a row of {row.channel} without elements"
    return replace(row.batch, schema=output_schema(schema))


@dataclass(frozen=True)
class Unpacker:
    """A form as Spark maps it over rows that travelled."""

    form: Form
    schema: ElementSchema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows in their form."""
        for batch in batches:
            for row in read_rows(batch, output_schema(self.schema)):
                yield from self.form(row).to_batches()


@dataclass(frozen=True)
class ElementsForm:
    """The merged stream, with `seq`."""

    schema: ElementSchema
    lanes: int

    @property
    def columns(self) -> pa.Schema:
        """The columns of an element."""
        return output_schema(self.schema).arrow

    def __call__(self, row: LaneRow) -> pa.Table:
        """Lanes take turns; no identity is in two of them, so any interleaving is valid."""
        elements = _elements(row, self.schema)
        position = np.arange(len(elements), dtype=np.int64) + row.first
        position = position * self.lanes + row.lane
        position[elements.kind == STABLE] = ROWS_PER_STEP - 1
        table = encode(elements)
        index = table.schema.get_field_index(SEQ)
        seq = pa.array(row.step * ROWS_PER_STEP + position)
        return table.set_column(index, pa.field(SEQ, pa.int64()), seq)


@dataclass(frozen=True)
class ChangesForm:
    """The merged stream as change rows; with `key` a changed value is an update pair."""

    schema: ElementSchema
    lanes: int
    key: tuple[str, ...] = ()

    @property
    def columns(self) -> pa.Schema:
        """The columns of a change row."""
        elements = output_schema(self.schema).arrow
        times = [elements.field(START), elements.field(END), *self.schema.payload]
        own = [(CHANGE, pa.string()), (VERSION, pa.int64())]
        return pa.schema([*own, *times, elements.field(SEQ)])

    def __call__(self, row: LaneRow) -> pa.Table:
        """The change rows of a lane's row."""
        elements = ElementsForm(self.schema, self.lanes)(row)
        steps = np.full(elements.num_rows, row.step, np.int64)
        versioned = elements.append_column(VERSION, pa.array(steps))
        return changes_of(versioned, self.columns, self.key)


def changes_of(elements: pa.Table, columns: pa.Schema, key: tuple[str, ...] = ()) -> pa.Table:
    """Change rows of elements: an adjust is an old row and a new one, a removal the old one."""
    import pyarrow.compute as pc

    codes = pc.index_in(elements[KIND], value_set=pa.array(["insert", "adjust", "stable"]))
    kind = codes.to_numpy().astype(np.int8)
    gone = pc.fill_null(pc.equal(elements[END], elements[START]), False).to_numpy()  # noqa: FBT003
    adjust = np.flatnonzero(kind == ADJUST)
    inserts = np.flatnonzero((kind == INSERT) & (kind != STABLE))
    after = adjust[~gone[adjust]]
    row = np.concatenate([inserts, adjust, after])
    before = np.where(gone[adjust], _DELETE, _PREIMAGE)
    word = np.concatenate(
        [np.full(len(inserts), _INSERT), before, np.full(len(after), _POSTIMAGE)]
    )
    old = np.isin(word, (_DELETE, _PREIMAGE))
    order = np.lexsort((word, row))
    row, word, old = row[order], word[order], old[order]
    taken = elements.take(pa.array(row))
    end = pc.if_else(pa.array(old), taken[OLD_END], taken[END])
    if key:
        _pair(word, taken.select([START, *key]))
    words = pa.array(np.array(_WORDS, dtype=object)[word], pa.string())
    fixed = {CHANGE: words, END: end}
    arrays = [fixed[name] if name in fixed else taken[name] for name in columns.names]
    return pa.Table.from_arrays(arrays, schema=columns)


def _pair(word: Ints, named: pa.Table) -> None:
    """Turn a delete and an insert of one key and start into the two rows of an update."""
    rows = np.flatnonzero((word == _INSERT) | (word == _DELETE))
    if not len(rows):
        return
    hashes = hash_rows(take(named, rows), len(rows))
    _, group = np.unique(hashes, axis=0, return_inverse=True)
    group = group.reshape(-1)
    count = np.zeros((int(group.max()) + 1, 2), np.int64)
    np.add.at(count, (group, word[rows]), 1)
    pairs = count.min(axis=1)
    for before, after in ((_DELETE, _PREIMAGE), (_INSERT, _POSTIMAGE)):
        own = rows[word[rows] == before]
        mine = group[word[rows] == before]
        order = np.argsort(mine, kind="stable")
        first = np.searchsorted(mine[order], mine[order])
        is_paired = np.arange(len(order)) - first < pairs[mine[order]]
        word[own[order[is_paired]]] = after


@dataclass(frozen=True)
class FinalForm:
    """Events that are final."""

    schema: ElementSchema

    @property
    def columns(self) -> pa.Schema:
        """The columns of an event."""
        elements = output_schema(self.schema).arrow
        return pa.schema([elements.field(START), elements.field(END), *self.schema.payload])

    def __call__(self, row: LaneRow) -> pa.Table:
        """The events of a lane's row."""
        events = _elements(row, self.schema)
        return encode(events).select(self.columns.names).cast(self.columns)


@dataclass(frozen=True)
class ApartForm:
    """Rows that were not merged, their origin in front."""

    schema: ElementSchema

    @property
    def columns(self) -> pa.Schema:
        """Where from and why, then the element."""
        return quarantine_schema(self.schema)

    def __call__(self, row: LaneRow) -> pa.Table:
        """The rows that a lane's row keeps apart."""
        assert row.origin is not None, f"a row of {row.channel} without its origin"
        table = row.origin
        if row.batch is not None:
            elements = encode(_elements(row, self.schema))
            for name in elements.schema.names:
                table = table.append_column(name, elements[name])
        for name in self.columns.names[len(table.schema) :]:
            nothing = pa.nulls(table.num_rows, self.columns.field(name).type)
            table = table.append_column(name, nothing)
        return pa.Table.from_arrays(table.columns, schema=self.columns)


@dataclass(frozen=True)
class LateForm:
    """The same, late rows and violations in one."""

    schema: ElementSchema

    @property
    def columns(self) -> pa.Schema:
        """Which of both it is, then as kept apart."""
        return pa.schema([(BUCKET, pa.string()), *quarantine_schema(self.schema)])

    def __call__(self, row: LaneRow) -> pa.Table:
        """The rows that a lane's row keeps apart."""
        word = LATE if row.channel == LATE else "violation"
        found = ApartForm(self.schema)(row)
        bucket = pa.array([word] * found.num_rows, pa.string())
        return pa.Table.from_arrays([bucket, *found.columns], schema=self.columns)


@dataclass(frozen=True)
class NaiveForm:
    """Another form with times that have no zone, as they came."""

    form: Form

    @property
    def columns(self) -> pa.Schema:
        """The same columns, of which the times have no zone."""
        naive = pa.timestamp("us")
        fields = self.form.columns
        return pa.schema([f.with_type(naive) if f.name in TIME_COLUMNS else f for f in fields])

    def __call__(self, row: LaneRow) -> pa.Table:
        """The same microseconds; only the name of their type differs."""
        made, columns = self.form(row), self.columns
        arrays = [
            pa.chunked_array([chunk.view(field.type) for chunk in array.chunks], field.type)
            if field.name in TIME_COLUMNS
            else array
            for array, field in zip(made.columns, columns, strict=True)
        ]
        return pa.Table.from_arrays(arrays, schema=columns)
