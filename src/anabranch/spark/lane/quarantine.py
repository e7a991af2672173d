"""Rows that are not taken: late ones and violations, with where they came from and why.

A late row names its distance: to the frontier of the output and to what its clock inferred, or
to the stable of the step inside the query that it is behind.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.batch.batch import ADJUST, Batch, Codes, Ints
from anabranch.batch.buffers import take
from anabranch.batch.times import show_time
from anabranch.errors import ViolationError
from anabranch.operators.abilities import Paced
from anabranch.operators.contract import REASONS, Bucket, Resolved, StepResult
from anabranch.operators.pipeline import PipelineStep
from anabranch.sources.channels import LATE, VIOLATIONS
from anabranch.spark.lane.late import explained, span
from anabranch.spark.lane.now import Trigger
from anabranch.spark.lane.receive import Received
from anabranch.spark.lane.rows import ORIGIN
from anabranch.spark.pack.parcels import COUNTING_LANE, cut

LEFT = "its replica was detached; it returns with a greater attachment number"


def from_stage(sender: str, batch: Batch) -> Received:
    """Elements that another operator sent: their rows have no place in any file."""
    none = np.zeros(len(batch), np.int64)
    return Received(sender, 1, None, batch, pa.table({}), (None,), none)


@dataclass(frozen=True)
class Place:
    """The step that did not take a row, and the stable that the row may be behind.

    `passed` is the frontier of a step that forces stables, before it took the row; None: of
    another step.
    """

    step: str
    passed: int | None
    is_entry: bool


def forces(step: PipelineStep) -> bool:
    """Whether a step may make rows late by itself: it goes by how far the query is."""
    return isinstance(step.operator, Paced) and step.operator.is_paced


def quarantine(
    now: Trigger, taken: Sequence[Received], result: StepResult, place: Place
) -> None:
    """Keep what a step did not take, with the reason."""
    for channel, bucket in ((LATE, Bucket.LATE), (VIOLATIONS, Bucket.VIOLATION)):
        for item, buckets, reasons in zip(taken, result.buckets, result.reasons, strict=True):
            where = np.flatnonzero(buckets == bucket)
            if len(where) and now.spec.strict and bucket is Bucket.VIOLATION:
                raise _stop(item, where, reasons)
            for first, end in cut(len(where)):
                some = where[first:end]
                rows, texts = item.batch.take(some), [REASONS[c].text for c in reasons[some]]
                if bucket is Bucket.LATE:
                    texts = _late(now, place, item.input, rows, take(item.places, some), texts)
                origin = with_raw(now, rows, origin_of(item, some, texts))
                now.row(channel, batch=_kept(now, rows), origin=origin)
    for held in result.resolved:
        _quarantine_held(now, held, place)


def _quarantine_held(now: Trigger, held: Resolved, place: Place) -> None:
    """Keep what was pending and is late now."""
    where = np.flatnonzero(held.buckets == Bucket.LATE)
    if not len(where):
        return
    rows, texts = held.batch.take(where), [REASONS[c].text for c in held.reasons[where]]
    texts = _late(now, place, held.replica, rows, pa.table({}), texts)
    nowhere: list[Any] = [None] * len(where)
    origin = with_raw(now, rows, _origins(texts, held.replica, nowhere, nowhere))
    now.row(LATE, batch=_kept(now, rows), origin=origin)


def _late(
    now: Trigger,
    place: Place,
    name: str,
    rows: Batch,
    places: pa.Table,
    texts: Sequence[str],
) -> list[str]:
    """The reasons of late rows, with how far behind what they are."""
    if place.passed is not None:
        return _forced_texts(place, rows, texts)
    if place.is_entry and now.spec.infers(name):
        return explained(now.lane, now.spec, name, rows, places, texts)
    return list(texts)


def _forced_texts(place: Place, batch: Batch, texts: Sequence[str]) -> list[str]:
    """The reasons with the step, and how far behind its stable each element is."""
    time = batch.schema.time
    least = np.minimum(batch.old_end, batch.end)
    sync = np.where(batch.kind == ADJUST, least, batch.start)
    made = []
    for text, at in zip(texts, sync.tolist(), strict=True):
        parts = [text, f"step '{place.step}'"]
        if place.passed is not None and at < place.passed:
            parts.append(
                f"{span(place.passed - at, time)} behind its stable "
                f"{show_time(place.passed, time)}"
            )
        made.append("; ".join(parts))
    return made


def _kept(now: Trigger, batch: Batch) -> Batch:
    """Rows that were not taken, with the columns that those of all inputs are kept with."""
    schema = now.spec.late
    if schema is None:
        return batch
    known = {one.name: one.type for one in batch.payload.schema}
    columns = [
        batch.payload.column(one.name)
        if known.get(one.name) == one.type
        else pa.nulls(len(batch), one.type)
        for one in schema.payload
    ]
    payload = pa.table(columns, schema=schema.payload)
    return replace(batch, schema=schema, payload=payload, seq=None, hashes=None)


def with_raw(now: Trigger, batch: Batch, origin: pa.Table) -> pa.Table:
    """The origins with the rows as text, if not all of their columns are kept.

    So it is behind a `select`: the columns that are kept are those of the sources.
    """
    schema = now.spec.late
    if schema is None or all(one in list(schema.payload) for one in batch.payload.schema):
        return origin
    raw = [json.dumps(row, default=str) for row in batch.payload.to_pylist()]
    at = origin.column_names.index("raw")
    return origin.set_column(at, ORIGIN.field(at), pa.array(raw, pa.string()))


def quarantine_left(now: Trigger, item: Received) -> None:
    """Elements of an input that has left are kept as violations."""
    rows = np.arange(len(item.batch))
    if now.number != COUNTING_LANE:
        rows = np.flatnonzero(item.batch.is_data)
    now.account.add_left(item.input, len(rows))
    for first, end in cut(len(rows)):
        some = rows[first:end]
        origin = origin_of(item, some, [LEFT] * len(some))
        now.row(VIOLATIONS, batch=_kept(now, item.batch.take(some)), origin=origin)


def origin_of(item: Received, rows: Ints, reasons: Sequence[str]) -> pa.Table:
    """Where some elements came from, and why they are kept."""
    files, numbers = item.origin(rows)
    return _origins(reasons, item.input, files, numbers)


def _origins(
    reasons: Sequence[str],
    replica: str,
    files: Sequence[str | None],
    numbers: Sequence[int | None],
) -> pa.Table:
    count = len(reasons)
    columns = {
        "reason": pa.array(reasons, pa.string()),
        "replica": pa.array([replica] * count, pa.string()),
        "file": pa.array(files, pa.string()),
        "row": pa.array(numbers, pa.int64()),
        "raw": pa.nulls(count, pa.string()),
    }
    return pa.table(columns, schema=ORIGIN)


def _stop(item: Received, where: Ints, reasons: Codes) -> ViolationError:
    origin = origin_of(item, where[:1], [REASONS[reasons[where[0]]].text]).to_pylist()[0]
    message = (
        f"{origin['file']}: row {origin['row']}: {origin['reason']} (replica "
        f"'{origin['replica']}'; --strict stops here)"
    )
    return ViolationError(message)
