"""Conversion between Arrow tables of elements and batches.

`decode` takes the columns of one physical stream; what is not an element is refused, row by
row, with a reason, and everything else becomes a `Batch`.  `encode` writes the one Arrow
schema. This is the only place where a null end becomes `FOREVER_UNITS` and back: no sentinel is
seen outside, and a real time of that value is refused.

* Times: bigint units (narrower integers are widened); a timestamp of any unit and zone becomes
  microseconds UTC, one without a zone is taken as UTC, one that is not a whole number of
  microseconds is refused.
* What a kind gives no meaning to (the end of a stable, its payload) is ignored.

>>> rows = pa.table({"kind": ["insert", "stable"], "start": [3, None], "end": [9, None]})
>>> to_elements(decode(rows, ElementSchema.of(rows.schema, where="here")).batch)
[Insert(payload=(), start=3, end=9), Stable(time=inf)]
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from anabranch.batch.batch import (
    ADJUST,
    FOREVER_UNITS,
    INSERT,
    KINDS,
    STABLE,
    Batch,
    Codes,
    Ints,
    Mask,
)
from anabranch.batch.buffers import numbers, take, to_arrow, valid
from anabranch.batch.columns import conform
from anabranch.batch.schema import (
    END,
    KIND,
    OLD_END,
    REPLICA,
    RESERVED,
    SEQ,
    START,
    ElementSchema,
)
from anabranch.batch.values import from_payloads, to_payloads
from anabranch.errors import SchemaError
from anabranch.model.element import Adjust, Element, Insert, Stable
from anabranch.model.time import FOREVER, Time

_UNKNOWN = -1
_MICROSECONDS = {"s": 1_000_000, "ms": 1_000, "us": 1}
_NANOSECONDS = 1_000


@dataclass(frozen=True, eq=False)
class Refused:
    """Rows that are not elements, in order, and why."""

    rows: Ints
    reasons: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.reasons)


@dataclass(frozen=True, eq=False)
class Decoded:
    """The elements of a table: element i was row `rows[i]`; what was refused stands beside."""

    batch: Batch
    rows: Ints
    replica: pa.ChunkedArray | None
    refused: Refused


@dataclass(frozen=True, eq=False)
class _Times:
    """One time column: units (FOREVER_UNITS for null), where null, where it cannot be held."""

    units: Ints
    null: Mask
    unfit: Mask


def decode(table: pa.Table, schema: ElementSchema) -> Decoded:
    """The elements of a table that has the columns of this schema."""
    _require(table, schema)
    kind = _codes(table.column(KIND))
    times = {name: _times(table, name) for name in (START, END, OLD_END)}
    refused = _refuse(table, schema, kind, times)
    rows: Ints = np.arange(len(kind))
    payload = conform(table, schema.payload)
    table = table.select([n for n in (SEQ, REPLICA) if n in table.column_names])
    if len(refused):
        rows = np.delete(rows, refused.rows)
        table, payload, kind = take(table, rows), take(payload, rows), kind[rows]
    batch = Batch(
        schema,
        kind,
        times[START].units[rows],
        np.where(kind == STABLE, 0, times[END].units[rows]),
        np.where(kind == ADJUST, times[OLD_END].units[rows], 0),
        _without_stables(payload, kind),
        _widen(table.column(SEQ)) if schema.has_seq else None,
    )
    replica = pc.cast(table.column(REPLICA), pa.string()) if schema.has_replica else None
    return Decoded(batch, rows, replica, refused)


def encode(batch: Batch, *, replica: str | None = None) -> pa.Table:
    """The columns of `batch.schema.arrow`; `replica` is the name of the copy, if it has one."""
    schema = batch.schema.arrow
    kind, time = batch.kind, batch.schema.time.arrow
    codes = pa.DictionaryArray.from_arrays(to_arrow(kind, pa.int8()), pa.array(KINDS))
    columns: list[pa.Array | pa.ChunkedArray] = [
        pc.cast(codes, pa.string()),
        _write_times(batch.start, kind >= INSERT, time),
        _write_times(batch.end, kind != STABLE, time),
        _write_times(batch.old_end, kind == ADJUST, time),
    ]
    if batch.schema.has_seq:
        columns.append(
            pa.nulls(len(batch), pa.int64())
            if batch.seq is None
            else to_arrow(batch.seq, pa.int64())
        )
    if batch.schema.has_replica:
        columns.append(pa.repeat(pa.scalar(replica, pa.string()), len(batch)))
    payload = batch.payload.columns
    return pa.Table.from_arrays([*columns, *payload], schema=schema)


def from_elements(elements: Iterable[Element], schema: ElementSchema) -> Batch:
    """Elements as a batch (one Python step per element: for tests and small things).

    The payload is the value itself where there is one payload column, else a tuple.
    """
    found = list(elements)
    kind = np.array([_code(element) for element in found], np.int8)
    start = [e.time if isinstance(e, Stable) else e.start for e in found]
    end = [0 if isinstance(e, Stable) else e.end for e in found]
    old_end = [e.old_end if isinstance(e, Adjust) else 0 for e in found]
    payloads = [None if isinstance(e, Stable) else e.payload for e in found]
    return Batch(
        schema,
        kind,
        _to_units(start),
        _to_units(end),
        _to_units(old_end),
        from_payloads(payloads, kind == STABLE, schema.payload),
        np.arange(len(found)) if schema.has_seq else None,
    )


def to_elements(batch: Batch) -> list[Element]:
    """The elements of a batch (one Python step per element: for tests and small things)."""
    payloads = to_payloads(batch.payload, len(batch))
    columns = (_from_units(batch.start), _from_units(batch.end), _from_units(batch.old_end))
    elements: list[Element] = []
    for code, payload, start, end, old_end in zip(
        batch.kind.tolist(), payloads, *columns, strict=True
    ):
        if code == INSERT:
            elements.append(Insert(payload, start, end))
        elif code == ADJUST:
            elements.append(Adjust(payload, start, old_end, end))
        else:
            elements.append(Stable(start))
    return elements


def _require(table: pa.Table, schema: ElementSchema) -> None:
    names = [KIND, START, END, *schema.payload.names]
    names += [SEQ] * schema.has_seq + [REPLICA] * schema.has_replica
    missing = [name for name in names if name not in table.column_names]
    if missing:
        message = (
            f"decode: no column {' and no column '.join(map(repr, missing))} among "
            f"{table.column_names}, though the schema of the stream has it; "
            "read all tables of one stream with one schema, absent columns as nulls"
        )
        raise SchemaError(message)


def _codes(column: pa.ChunkedArray) -> Codes:
    if column.type == pa.int8():  # codes already
        return np.array(numbers(column, np.dtype(np.int8)))
    if pt.is_dictionary(column.type):
        column = pc.cast(column, column.type.value_type)
    found = pc.index_in(column, value_set=pa.array(KINDS, column.type))
    codes = numbers(found, np.dtype(np.int32)).astype(np.int8)
    return np.where(valid(found), codes, np.int8(_UNKNOWN))


def _times(table: pa.Table, name: str) -> _Times:
    """A time column in our units; an absent or typeless one is all null."""
    count = table.num_rows
    if name not in table.column_names or pt.is_null(table.schema.field(name).type):
        return _Times(
            np.full(count, FOREVER_UNITS), np.ones(count, np.bool_), np.zeros(count, np.bool_)
        )
    column = table.column(name)
    null = ~valid(column)
    if pt.is_timestamp(column.type):
        units, unfit = _microseconds(numbers(column, np.dtype(np.int64)), column.type.unit)
    else:
        units = _widen(column)
        unfit = np.zeros(count, np.bool_)
    unfit = (unfit | (units == FOREVER_UNITS)) & ~null
    return _Times(np.where(null, FOREVER_UNITS, units), null, unfit)


def _microseconds(values: Ints, unit: str) -> tuple[Ints, Mask]:
    """The values in microseconds, and where they are not a whole int64 of those."""
    if unit == "ns":
        return values // _NANOSECONDS, values % _NANOSECONDS != 0
    factor = _MICROSECONDS[unit]
    if factor == 1:
        return values, np.zeros(len(values), np.bool_)
    limit = FOREVER_UNITS // factor
    unfit = (values > limit) | (values < -limit)
    return np.where(unfit, 0, values) * factor, unfit


def _widen(column: pa.ChunkedArray) -> Ints:
    dtype = np.dtype(f"int{column.type.bit_width}")
    return numbers(column, dtype).astype(np.int64, copy=False)


def _refuse(
    table: pa.Table, schema: ElementSchema, kind: Codes, times: dict[str, _Times]
) -> Refused:
    start, end, old_end = times[START], times[END], times[OLD_END]
    is_data = (kind == INSERT) | (kind == ADJUST)
    checks = {
        "kind": kind == _UNKNOWN,
        "null start": is_data & start.null,
        "start": (kind != _UNKNOWN) & start.unfit,
        "end": is_data & end.unfit,
        "old_end": (kind == ADJUST) & old_end.unfit,
        "backwards": is_data & (end.units < start.units),
    }
    if schema.has_seq:
        checks["null seq"] = ~valid(table.column(SEQ))
    bad = np.logical_or.reduce(list(checks.values()))
    rows = np.flatnonzero(bad)
    if not len(rows):
        return Refused(rows, ())
    which = np.argmax(np.stack([mask[rows] for mask in checks.values()]), axis=0)
    names = list(checks)
    shown = take(table.select([n for n in RESERVED if n in table.column_names]), rows)
    reasons = tuple(
        _reason(names[check], row)
        for check, row in zip(which.tolist(), _texts(shown), strict=True)
    )
    return Refused(rows, reasons)


def _texts(table: pa.Table) -> list[dict[str, str]]:
    """The reserved columns of some rows, to be shown (as text: not every instant is a date)."""
    columns = [
        [value.as_py() for value in pc.cast(column, pa.string())] for column in table.columns
    ]
    return [
        dict(zip(table.column_names, row, strict=True)) for row in zip(*columns, strict=True)
    ]


def _reason(check: str, row: dict[str, str]) -> str:
    if check == "kind":
        return f"kind is {row[KIND]!r}, expected 'insert', 'adjust' or 'stable'"
    if check == "null start":
        return f"start is null, but an {row[KIND]} needs one; only a stable may have none"
    if check == "null seq":
        return "seq is null, but this stream is ordered by seq"
    if check == "backwards":
        return f"end {row[END]} is before start {row[START]}"
    return (
        f"{check} is {row[check]}, which cannot be held: a time is a whole number of units "
        f"(of a timestamp, microseconds) below {FOREVER_UNITS}; write null for no end"
    )


def _without_stables(payload: pa.Table, kind: Codes) -> pa.Table:
    """The payload; what a stable carries there becomes null."""
    stable = np.flatnonzero(kind == STABLE)
    if not len(stable) or not payload.num_columns:
        return payload
    theirs = take(payload, stable)
    if all(column.null_count == len(stable) for column in theirs.columns):
        return payload
    rows = to_arrow(np.arange(len(kind)), pa.int64(), mask=kind != STABLE)
    return payload.take(rows)


def _write_times(units: Ints, meant: Mask, kind: pa.DataType) -> pa.Array:
    known = meant & (units != FOREVER_UNITS)
    return to_arrow(units, kind, mask=None if known.all() else known)


def _code(element: Element) -> int:
    if isinstance(element, Insert):
        return INSERT
    return ADJUST if isinstance(element, Adjust) else STABLE


def _to_units(times: list[Time]) -> Ints:
    return np.array([FOREVER_UNITS if t == FOREVER else int(t) for t in times], np.int64)


def _from_units(units: Ints) -> list[Time]:
    return [FOREVER if unit == FOREVER_UNITS else unit for unit in units.tolist()]
