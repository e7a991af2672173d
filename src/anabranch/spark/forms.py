"""The forms that a lane's rows take: in the folders of an output, and in views.

A lane's row holds a batch.  Where the lane writes files itself the batch becomes the table of
a file as it is; only what travels through Spark is packed first, and unpacked there.

    elements   the merged stream: sort by `seq` to get a valid physical stream
    changes    `_change_type`: insert, delete, update_preimage, update_postimage; no stables
    final      events that nothing can change any more, each once
    apart      rows that were not merged: where from and why, then the element
    late       the same, with `bucket` (late, violation) in front

`seq` of the merged stream is `step * 2**32 + position`: unique, increasing over steps and
restarts, with the one stable of a step last.  All lanes take the same steps; nearly always a
trigger is one (`anabranch.spark.receive`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa

from anabranch.batch.batch import ADJUST, INSERT, STABLE, Batch
from anabranch.batch.codec import encode
from anabranch.batch.parcel import pack, unpack
from anabranch.batch.schema import (
    END,
    KIND,
    OLD_END,
    SEQ,
    START,
    TIME_COLUMNS,
    ElementSchema,
)

Row = dict[str, Any]
ROWS_PER_STEP: Final = 2**32

LANE_COLUMNS: Final = {
    "channel": "string",
    "lane": "int",
    "step": "bigint",
    "first": "bigint",
    "parcel": "binary",
    "origin": "binary",
    "note": "string",
}
"""What a lane hands to the writer: a parcel (or a note) for one of the four folders.

`first` is the position of the parcel's first element in what the lane made in this step.
"""

_ARROW: Final = {
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "binary": pa.binary(),
}
LANE_ARROW: Final = pa.schema([(name, _ARROW[kind]) for name, kind in LANE_COLUMNS.items()])
"""The same, as Arrow reads it."""

LANE_ROWS: Final = ", ".join(f"{name} {kind}" for name, kind in LANE_COLUMNS.items())
"""The same, as Spark reads it."""

ORIGIN: Final = pa.schema(
    [
        ("reason", pa.string()),
        ("replica", pa.string()),
        ("file", pa.string()),
        ("row", pa.int64()),
        ("raw", pa.string()),
    ]
)
"""Where a row that was not merged came from; `raw` is the row itself if it is no element."""

LATE: Final = "late"
CHANGE: Final = "_change_type"
BUCKET: Final = "bucket"
_WORDS: Final = ("insert", "delete", "update_preimage", "update_postimage")
_INSERT, _DELETE, _PREIMAGE, _POSTIMAGE = range(len(_WORDS))


class Form(Protocol):
    """What a lane's row becomes: a table of these columns."""

    @property
    def columns(self) -> pa.Schema:
        """The columns of the table."""

    def __call__(self, row: Row) -> pa.Table:
        """The table of one row."""


def output_schema(schema: ElementSchema) -> ElementSchema:
    """The merged stream's schema: with `seq`, without `replica`."""
    return ElementSchema(schema.time, schema.payload, has_seq=True)


def quarantine_schema(schema: ElementSchema) -> pa.Schema:
    """The columns of late rows and violations: where from and why, then the element."""
    kept = output_schema(schema).arrow
    return pa.schema([*ORIGIN, *(field.with_nullable(nullable=True) for field in kept)])


def travelling(rows: Sequence[Row]) -> list[Row]:
    """Rows as they cross Spark, their batches packed."""
    return [
        row if row["parcel"] is None else row | {"parcel": pack(row["parcel"])} for row in rows
    ]


def arrived(batch: pa.RecordBatch) -> Iterator[Row]:
    """Rows that crossed Spark; parcels and origins are views of what came."""
    names = batch.schema.names
    binary = [name for name in ("parcel", "origin") if name in names]
    plain = batch.select([name for name in names if name not in binary]).to_pylist()
    for at, row in enumerate(plain):
        values = {name: batch[name][at] for name in binary}
        yield row | {n: v.as_buffer() if v.is_valid else None for n, v in values.items()}


def opened(parcel: Any, schema: ElementSchema) -> Batch:
    """The elements of a lane's row, whether they are packed or not."""
    if isinstance(parcel, Batch):
        return replace(parcel, schema=output_schema(schema))
    return unpack(parcel, output_schema(schema))


@dataclass(frozen=True)
class Unpacker:
    """A form as Spark maps it over rows that travelled."""

    form: Form

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows in their form."""
        for batch in batches:
            for row in arrived(batch):
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

    def __call__(self, row: Row) -> pa.Table:
        """Lanes take turns; no identity is in two of them, so any interleaving is valid."""
        elements = opened(row["parcel"], self.schema)
        position = np.arange(len(elements), dtype=np.int64) + row["first"]
        position = position * self.lanes + row["lane"]
        position[elements.kind == STABLE] = ROWS_PER_STEP - 1
        table = encode(elements)
        index = table.schema.get_field_index(SEQ)
        seq = pa.array(row["step"] * ROWS_PER_STEP + position)
        return table.set_column(index, pa.field(SEQ, pa.int64()), seq)


@dataclass(frozen=True)
class ChangesForm:
    """The merged stream as change rows."""

    schema: ElementSchema
    lanes: int

    @property
    def columns(self) -> pa.Schema:
        """The columns of a change row."""
        elements = output_schema(self.schema).arrow
        times = [elements.field(START), elements.field(END), *self.schema.payload]
        return pa.schema([(CHANGE, pa.string()), *times, elements.field(SEQ)])

    def __call__(self, row: Row) -> pa.Table:
        """The change rows of a lane's row."""
        return changes_of(ElementsForm(self.schema, self.lanes)(row), self.columns)


def changes_of(elements: pa.Table, columns: pa.Schema) -> pa.Table:
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
    said = pa.array(np.array(_WORDS, dtype=object)[word], pa.string())
    fixed = {CHANGE: said, END: end}
    arrays = [fixed[name] if name in fixed else taken[name] for name in columns.names]
    return pa.Table.from_arrays(arrays, schema=columns)


@dataclass(frozen=True)
class FinalForm:
    """Events that are final."""

    schema: ElementSchema

    @property
    def columns(self) -> pa.Schema:
        """The columns of an event."""
        elements = output_schema(self.schema).arrow
        return pa.schema([elements.field(START), elements.field(END), *self.schema.payload])

    def __call__(self, row: Row) -> pa.Table:
        """The events of a lane's row."""
        events = opened(row["parcel"], self.schema)
        return encode(events).select(self.columns.names).cast(self.columns)


@dataclass(frozen=True)
class ApartForm:
    """Rows that were not merged, their origin in front."""

    schema: ElementSchema

    @property
    def columns(self) -> pa.Schema:
        """Where from and why, then the element."""
        return quarantine_schema(self.schema)

    def __call__(self, row: Row) -> pa.Table:
        """The rows that a lane's row keeps apart."""
        table = pa.ipc.open_stream(row["origin"]).read_all()
        if row["parcel"] is not None:
            elements = encode(opened(row["parcel"], self.schema))
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

    def __call__(self, row: Row) -> pa.Table:
        """The rows that a lane's row keeps apart."""
        word = LATE if row["channel"] == LATE else "violation"
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

    def __call__(self, row: Row) -> pa.Table:
        """The same microseconds; only the name of their type differs."""
        made, columns = self.form(row), self.columns
        arrays = [
            pa.chunked_array([chunk.view(field.type) for chunk in array.chunks], field.type)
            if field.name in TIME_COLUMNS
            else array
            for array, field in zip(made.columns, columns, strict=True)
        ]
        return pa.Table.from_arrays(arrays, schema=columns)
