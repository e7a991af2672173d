"""From rows of any DataFrame to parcels.

The rows have the columns of the element format, `replica` among them, and the columns that
order them.  A row that is no element (an unknown kind, a null start, no replica) travels as
text, to be kept with its reason; the others are packed, replica by replica.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.batch.batch import FOREVER_UNITS, Ints
from anabranch.batch.buffers import take
from anabranch.batch.codec import Decoded, decode
from anabranch.batch.schema import REPLICA, ElementSchema
from anabranch.spark.inbox import Packer
from anabranch.spark.parcels import DATA, PARCEL_ROWS, Row, in_every_lane, pieces, to_batch
from anabranch.spark.receive import CURRENT

NO_REPLICA = "replica is null: nobody knows whose element it is"
_NOBODY = "(none)"


@dataclass(frozen=True)
class RowsSpec:
    """What a packer must know of a DataFrame; `order` are the columns that order its rows."""

    schema: ElementSchema
    order: tuple[str, ...]
    lanes: int
    by_start: bool = False


def pack_rows(spec: RowsSpec) -> Packer:
    """The function that Spark maps over the rows."""

    def parcels(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        partition = context.partitionId() if context is not None else 0
        for part, table in enumerate(_gathered(batches)):
            rows = pack_table(spec, table, f"{partition:08d}", part)
            yield to_batch(rows, spec.lanes)

    return parcels


def _gathered(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Batches put together: a parcel has a cost of its own."""
    kept: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        kept.append(batch)
        rows += batch.num_rows
        if rows >= PARCEL_ROWS:
            yield pa.Table.from_batches(kept)
            kept, rows = [], 0
    if rows:
        yield pa.Table.from_batches(kept)


def pack_table(spec: RowsSpec, table: pa.Table, partition: str, part: int) -> list[Row]:
    """The parcels of some rows of one partition."""
    lost: list[Row] = []
    if table.column(REPLICA).null_count:
        nameless = pc.is_null(table.column(REPLICA))
        lost = table.filter(nameless).to_pylist()
        table = table.filter(pc.invert(nameless))
    decoded = decode(table, spec.schema)
    refused = _refused(spec, table, decoded) if len(decoded.refused) else []
    refused += [_as_refused(spec, row, NO_REPLICA) for row in lost]
    assert decoded.replica is not None
    places = table.select(list(spec.order))
    if len(decoded.refused):
        places = take(places, decoded.rows)
    rows: list[Row] = []
    counts: dict[str, int] = {}
    for name, mine in _by_name(decoded.replica):
        batch = decoded.batch if mine is None else decoded.batch.take(mine)
        where = places if mine is None else take(places, mine)
        base = _base(name, partition, part)
        rows += pieces(base, batch, where, spec.lanes, by_start=spec.by_start)
        counts[name] = len(batch)
    for row in refused:
        counts[row["replica"]] = counts.get(row["replica"], 0) + 1
    return rows + _facts(spec, counts, refused, partition, part)


def _by_name(names: pa.ChunkedArray) -> Iterator[tuple[str, Ints | None]]:
    """The rows of each replica; None: all of them, as nearly always in one partition."""
    codes = pc.dictionary_encode(names).combine_chunks()
    found = codes.dictionary.to_pylist() if len(codes) else []
    numbers = np.asarray(codes.indices) if len(codes) else np.empty(0, np.int64)
    for code, name in enumerate(found):
        yield name, None if len(found) == 1 else np.flatnonzero(numbers == code)


def _facts(
    spec: RowsSpec, counts: dict[str, int], refused: list[Row], partition: str, part: int
) -> list[Row]:
    rows: list[Row] = []
    for name, count in counts.items():
        mine = [row for row in refused if row["replica"] == name]
        facts = {"file": None, "replica": name, "rows": count, "refused": mine}
        base = {**_base(name, partition, part), "entry": DATA if name != _NOBODY else "note"}
        rows += in_every_lane(base, spec.lanes, facts)
    return rows


def _base(name: str, partition: str, part: int) -> Row:
    return {
        "replica": name,
        "attachment": CURRENT,
        "log": int(FOREVER_UNITS),  # after all that the control log says in this trigger
        "file": partition,
        "part": part,
        "guarantee": None,
        "entry": DATA,
    }


def _refused(spec: RowsSpec, table: pa.Table, decoded: Decoded) -> list[Row]:
    raw = table.take(pa.array(decoded.refused.rows)).to_pylist()
    pairs = zip(raw, decoded.refused.reasons, strict=True)
    return [_as_refused(spec, row, reason) for row, reason in pairs]


def _as_refused(spec: RowsSpec, row: Row, reason: str) -> Row:
    order = [row.pop(name) for name in spec.order]
    number = order.pop() if order and isinstance(order[-1], int) else None
    return {
        "replica": row[REPLICA] if row[REPLICA] is not None else _NOBODY,
        "file": "/".join(map(str, order)) or None,
        "row": number,
        "reason": reason,
        "raw": json.dumps(row, default=str),
    }
