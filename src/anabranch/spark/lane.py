"""What one lane makes of one trigger's parcels: the merge's step, without Spark.

`receive` puts parcels into the order of each replica's stream: by file name and row, then by
`seq` where there is one.  `make` lets the merge take a step and returns rows for the writer:
parcels of merged elements, of late rows and violations with their origin, and one progress
record.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

import numpy as np
import pyarrow as pa

from anabranch.batch.batch import FOREVER_UNITS, NEVER_UNITS, STABLE, Batch, Codes, Ints, concat
from anabranch.batch.parcel import pack, unpack
from anabranch.batch.schema import ElementSchema
from anabranch.errors import ViolationError
from anabranch.operators.merge.contract import REASONS, Arrival, Bucket, StepResult
from anabranch.operators.merge.r3_kernel import step
from anabranch.operators.merge.r3_state import R3State
from anabranch.spark.lanes import PARCEL_ROWS
from anabranch.spark.progress import BUCKETS, Record
from anabranch.spark.write import ELEMENTS, LATE, ORIGIN, PROGRESS, VIOLATIONS

Row = dict[str, Any]

COUNTING_LANE: Final = 0
"""The lane that counts what every lane sees: stables, files and refused rows."""


@dataclass(frozen=True, eq=False)
class Received:
    """One replica's elements of a trigger, and the file and row that each came from."""

    arrival: Arrival
    files: tuple[str, ...]
    file: Ints
    row: Ints


def receive(parcels: Iterable[Row], schema: ElementSchema) -> list[Received]:
    """One arrival per replica and attachment, in the order of its stream."""
    order = sorted(parcels, key=lambda p: (p["replica"], p["attachment"], p["file"], p["part"]))
    groups = groupby(order, key=lambda p: (p["replica"], p["attachment"]))
    return [_receive(list(parcels), schema) for _, parcels in groups]


def _receive(parcels: Sequence[Row], schema: ElementSchema) -> Received:
    last = parcels[-1]
    full = [parcel for parcel in parcels if parcel["parcel"] is not None]
    files = tuple(dict.fromkeys(parcel["file"] for parcel in full))
    batches = [unpack(parcel["parcel"], schema) for parcel in full]
    nothing = _empty(schema)
    batch = concat([nothing, *batches]) if batches else nothing
    sizes = [len(batch) for batch in batches]
    numbers = np.array([files.index(parcel["file"]) for parcel in full], dtype=np.int64)
    file = np.repeat(numbers, sizes)
    rows = [np.frombuffer(parcel["rows"], dtype=np.int64) for parcel in full]
    row = np.concatenate(rows) if rows else np.empty(0, np.int64)
    if batch.seq is not None:
        by_seq = np.argsort(batch.seq, kind="stable")
        batch, file, row = batch.take(by_seq), file[by_seq], row[by_seq]
    guarantee = last["guarantee"]
    arrival = Arrival(
        last["replica"],
        batch,
        guarantee=None if guarantee is None else int(guarantee),
        attachment=int(last["attachment"]),
    )
    return Received(arrival, files, file, row)


def _empty(schema: ElementSchema) -> Batch:
    none = np.empty(0, np.int64)
    seq = none if schema.has_seq else None
    payload = schema.payload.empty_table()
    return Batch(schema, np.empty(0, np.int8), none, none, none, payload, seq)


@dataclass(frozen=True)
class Founder:
    """A replica that was there when the run began; every lane knows it from the first step on.

    Only then is remembered what it may still mention when its first file comes later.
    """

    name: str
    guarantee: int | None = None
    attachment: int = 1


def make(
    lane: int, state: R3State, parcels: Sequence[Row], schema: ElementSchema, *, strict: bool
) -> Iterator[Row]:
    """Take one step and say all that came of it."""
    received = receive(parcels, schema)
    result = step(state, [item.arrival for item in received])
    counting = lane == COUNTING_LANE
    facts = [json.loads(parcel["note"]) for parcel in parcels if parcel["note"]]
    refused = [row for fact in facts for row in fact.pop("refused")]
    rows = list(_elements(lane, result, counting=counting))
    rows += _quarantined(lane, LATE, Bucket.LATE, received, result)
    broken = list(_quarantined(lane, VIOLATIONS, Bucket.VIOLATION, received, result))
    if broken and strict:
        raise _stop(received, result)
    rows += broken
    if refused:
        origin = pa.Table.from_pylist(refused, schema=ORIGIN)
        rows.append(_row(VIOLATIONS, lane, origin=_ipc(origin)))
    record = _record(lane, state, received, result, counting=counting)
    for row in refused:
        record["replicas"][row["replica"]]["violation"] += 1
    record["output"][VIOLATIONS] += len(refused)
    record["files"] = facts
    yield from rows
    yield _row(PROGRESS, lane, note=json.dumps(record))


def _row(channel: str, lane: int, **values: Any) -> Row:
    return {"first": 0, "parcel": None, "origin": None, "note": None} | {
        "channel": channel,
        "lane": lane,
        **values,
    }


def _elements(lane: int, result: StepResult, *, counting: bool) -> Iterator[Row]:
    """The merged elements in parcels; one lane alone says the stable."""
    output = result.output
    if not counting:
        output = output.take(np.flatnonzero(output.is_data))
    for first in range(0, len(output), PARCEL_ROWS):
        piece = output.take(np.arange(first, min(first + PARCEL_ROWS, len(output))))
        yield _row(ELEMENTS, lane, first=first, parcel=pack(piece))


def _quarantined(
    lane: int, channel: str, bucket: Bucket, received: Sequence[Received], result: StepResult
) -> Iterator[Row]:
    for item, buckets, reasons in zip(received, result.buckets, result.reasons, strict=True):
        where = np.flatnonzero(buckets == bucket)
        for first in range(0, len(where), PARCEL_ROWS):
            rows = where[first : first + PARCEL_ROWS]
            parcel = pack(item.arrival.batch.take(rows))
            yield _row(channel, lane, parcel=parcel, origin=_ipc(_origin(item, rows, reasons)))


def _origin(item: Received, rows: Ints, reasons: Codes) -> pa.Table:
    files = np.array(item.files, dtype=object)
    texts = np.array([reason.text for reason in REASONS], dtype=object)
    return pa.table(
        {
            "reason": pa.array(texts[reasons[rows]], pa.string()),
            "replica": pa.array([item.arrival.replica] * len(rows), pa.string()),
            "file": pa.array(files[item.file[rows]], pa.string()),
            "row": pa.array(item.row[rows], pa.int64()),
            "raw": pa.nulls(len(rows), pa.string()),
        },
        schema=ORIGIN,
    )


def _ipc(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _stop(received: Sequence[Received], result: StepResult) -> ViolationError:
    broken = [np.flatnonzero(buckets == Bucket.VIOLATION) for buckets in result.buckets]
    which = next(number for number, rows in enumerate(broken) if len(rows))
    origin = _origin(received[which], broken[which][:1], result.reasons[which]).to_pylist()[0]
    message = (
        f"{origin['file']}: row {origin['row']}: {origin['reason']} (replica "
        f"'{origin['replica']}'; --strict stops here)"
    )
    return ViolationError(message)


def _record(
    lane: int,
    state: R3State,
    received: Sequence[Received],
    result: StepResult,
    *,
    counting: bool,
) -> Record:
    counts: dict[str, Record] = {
        status.name: dict.fromkeys(BUCKETS, 0)
        | {"frontier": time_or_word(status.frontier), "joined": status.joined}
        for status in state.replicas
    }
    for item, buckets in zip(received, result.buckets, strict=True):
        batch = item.arrival.batch
        counted = buckets if counting else buckets[batch.kind != STABLE]
        for bucket in Bucket:
            counts[item.arrival.replica][bucket.word] += int((counted == bucket).sum())
    data = int(result.output.is_data.sum())
    stables = len(result.output) - data if counting else 0
    made = {
        ELEMENTS: data + stables,
        LATE: sum(int((buckets == Bucket.LATE).sum()) for buckets in result.buckets),
        VIOLATIONS: sum(int((buckets == Bucket.VIOLATION).sum()) for buckets in result.buckets),
        "added_adjusts": result.added_adjusts,
        "conflicts": result.conflicts,
    }
    leader = max(state.replicas, key=lambda r: (r.joined, r.frontier), default=None)
    return {
        "lane": lane,
        "replicas": counts,
        "output": made,
        "live": state.live,
        "frontier": time_or_word(state.frontier),
        "leader": leader.name if leader else None,
        "files": [],
    }


def time_or_word(units: int) -> int | str | None:
    """A frontier for a record: a number, `forever`, or nothing yet."""
    if units == FOREVER_UNITS:
        return "forever"
    return None if units == NEVER_UNITS else int(units)
