"""What readers see of a merge: elements, changes, final events, and what was kept apart.

Each view is a function of the rows that the lanes make (`LANE_ROWS`).

    elements   the merged stream: sort by `seq` to get a valid physical stream
    changes    `_change_type`: insert, delete, update_preimage, update_postimage; no stables
    final      events that nothing can change any more, each once
    late       rows that were not merged: `bucket` (late, violation), reason, replica, place
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from anabranch.batch.batch import ADJUST, INSERT, STABLE, Batch
from anabranch.batch.codec import encode
from anabranch.batch.parcel import unpack
from anabranch.batch.schema import END, KIND, OLD_END, SEQ, START, TIME_COLUMNS, ElementSchema
from anabranch.spark.columns import spark_schema
from anabranch.spark.direct import Shelf, Unpacker
from anabranch.spark.keep import Keeper
from anabranch.spark.write import (
    ELEMENTS,
    FINAL,
    LATE,
    VIOLATIONS,
    output_schema,
    quarantine_schema,
    unpack_elements,
    unpack_quarantined,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CHANGES: Final = "changes"
CHANGE: Final = "_change_type"
BUCKET: Final = "bucket"
_WORDS: Final = ("insert", "delete", "update_preimage", "update_postimage")
_INSERT, _DELETE, _PREIMAGE, _POSTIMAGE = range(len(_WORDS))


@dataclass(frozen=True)
class Views:
    """The columns of every view; `is_ntz`: times come out without a zone, as they came."""

    schema: ElementSchema
    lanes: int
    is_ntz: bool = False

    def of(self, view: str, rows: "DataFrame", keeper: Keeper | None = None) -> "DataFrame":
        """One view of the lanes' rows; a keeper stores what the view does not show."""
        unpacker, columns, channels = self._unpacker(view)
        listed = ", ".join(f"'{channel}'" for channel in channels)
        if keeper is not None and view != LATE:
            unpacker = keeper.beside(unpacker, channels)
        else:
            rows = rows.where(f"channel in ({listed})")
        shown = self._plain(columns)
        return rows.mapInArrow(self._relabelled(unpacker, shown), spark_schema(shown))

    def shelf(self, view: str, folder: str) -> Shelf:
        """One view as a folder that lanes write."""
        unpacker, columns, channels = self._unpacker(view)
        return Shelf(folder, channels, self._relabelled(unpacker, self._plain(columns)))

    def channels(self, view: str) -> tuple[str, ...]:
        """The rows of the lanes that a view is made of."""
        return self._unpacker(view)[2]

    def _unpacker(self, view: str) -> tuple[Unpacker, pa.Schema, tuple[str, ...]]:
        elements = output_schema(self.schema).arrow
        if view == ELEMENTS:
            return unpack_elements(self.schema, self.lanes), elements, (ELEMENTS,)
        times = [elements.field(START), elements.field(END), *self.schema.payload]
        if view == CHANGES:
            columns = pa.schema([(CHANGE, pa.string()), *times, elements.field(SEQ)])
            return _unpack_changes(self.schema, self.lanes, columns), columns, (ELEMENTS,)
        if view == FINAL:
            columns = pa.schema(times)
            return _unpack_final(self.schema, columns), columns, (FINAL,)
        columns = pa.schema([(BUCKET, pa.string()), *quarantine_schema(self.schema)])
        return _unpack_late(self.schema), columns, (LATE, VIOLATIONS)

    def _plain(self, columns: pa.Schema) -> pa.Schema:
        """The columns with times of the type in which they came."""
        if not self.is_ntz:
            return columns
        naive = pa.timestamp("us")
        return pa.schema([f.with_type(naive) if f.name in TIME_COLUMNS else f for f in columns])

    def _relabelled(self, unpacker: Unpacker, columns: pa.Schema) -> Unpacker:
        def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in unpacker(batches):
                # The same microseconds; only the name of their type differs.
                arrays = [
                    array.view(field.type) if field.name in TIME_COLUMNS else array
                    for array, field in zip(batch.columns, columns, strict=True)
                ]
                yield pa.RecordBatch.from_arrays(arrays, schema=columns)

        return rows if self.is_ntz else unpacker


def _unpack_changes(schema: ElementSchema, lanes: int, columns: pa.Schema) -> Unpacker:
    inner = unpack_elements(schema, lanes)

    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in inner(batches):
            yield from changes_of(pa.Table.from_batches([batch]), columns).to_batches()

    return rows


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


def _unpack_final(schema: ElementSchema, columns: pa.Schema) -> Unpacker:
    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for parcel in batch["parcel"]:
                events: Batch = unpack(parcel.as_py(), output_schema(schema))
                table = encode(events).select(columns.names)
                yield from table.cast(columns).to_batches()

    return rows


def _unpack_late(schema: ElementSchema) -> Unpacker:
    inner = unpack_quarantined(schema)

    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for at, channel in enumerate(batch["channel"].to_pylist()):
                word = LATE if channel == LATE else "violation"
                for found in inner(iter([batch.slice(at, 1)])):
                    bucket = pa.array([word] * found.num_rows, pa.string())
                    yield pa.RecordBatch.from_arrays(
                        [bucket, *found.columns], [BUCKET, *found.schema.names]
                    )

    return rows
