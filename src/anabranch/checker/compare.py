"""`check`: validate a stream, and compare its history with another.

Two histories are equal if they have the same multiset of events, whatever the order, format,
batching or number of elements.  Below a frontier, only events that start before it are
compared, and all ends at or after it count as equal.  Memory grows with the data, by one copy
of each payload and about 60 bytes per element.

Papers: LMerge III-B, equivalence of prefixes; the frontier is MaxStable.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from anabranch.batch.batch import FOREVER_UNITS, Ints
from anabranch.batch.history import Difference, Events, difference
from anabranch.batch.intern import Interner
from anabranch.batch.schema import TimeType
from anabranch.batch.times import Shown, show_time
from anabranch.checker.gather import Progress, Refusals, gather
from anabranch.checker.judge import Judged, judge, show_payloads
from anabranch.checker.verdict import (
    Comparison,
    DiffLine,
    Side,
    StreamReport,
    Verdict,
)
from anabranch.errors import SchemaError, UsageError
from anabranch.sources.files import Folder, Format, Layout, look
from anabranch.sources.unify import common_type, shared_payload

ONLY_IN_A: Final = "only in A"
ONLY_IN_B: Final = "only in B"
MORE_IN_A: Final = "more often in A"
MORE_IN_B: Final = "more often in B"
DIFFERENT_END: Final = "different end"


def check(
    path_a: Path | str,
    path_b: Path | str | None = None,
    *,
    until_frontier: bool = False,
    limit: int = 10,
    schema: Path | None = None,
    strict: bool = False,
    on_progress: Progress = lambda _: None,
) -> Verdict:
    """Validate the elements of `a`, and compare its history with that of `b`, if given.

    Unreadable input raises; violations and differences are in the result.
    """
    if until_frontier and path_b is None:
        message = "--until-frontier compares A with B below a frontier; name B, or leave it out"
        raise UsageError(message)
    a, b = look_at(path_a, path_b, schema=schema)
    interner = Interner(a.payload)
    side_b = truth = None
    if b is not None:
        side_b, truth = _truth(b, interner, limit=limit, strict=strict, on_progress=on_progress)
    refusals = Refusals(limit, strict)
    reports, comparisons = [], []
    for judged in _judged(a, interner, refusals, limit=limit, on_progress=on_progress):
        reports.append(judged.report)
        if truth is not None:
            frontier = min(judged.frontier, truth.frontier) if until_frontier else None
            against = (judged, truth.events, interner, a.time)
            comparisons.append(_compare(*against, frontier=frontier, limit=limit))
    return Verdict(_side(a, reports, refusals), side_b, tuple(comparisons))


def look_at(
    path_a: Path | str, path_b: Path | str | None = None, *, schema: Path | None = None
) -> tuple[Folder, Folder | None]:
    """What is to be compared, both sides in the same payload columns."""
    a = look(path_a, schema=schema)
    b = None if path_b is None else look(path_b, schema=schema)
    if schema is not None and all(f is None or f.format is Format.PARQUET for f in (a, b)):
        message = f"--schema {schema}: it is for JSON lines, and Parquet files carry their own"
        raise UsageError(message)
    if b is None:
        return a, None
    if a.time is not b.time:
        message = (
            f"{b.path}: its times are {b.time.value}, those of {a.path} are {a.time.value}; "
            "histories compare in one type of time; cast the one or the other"
        )
        raise SchemaError(message)
    payload_a, payload_b = _payload_like(a, b.payload), _payload_like(b, a.payload)
    payload = shared_payload(payload_a, payload_b, where_a=str(a.path), where_b=str(b.path))
    return _in_columns(a, payload), _in_columns(b, payload)


def _payload_like(folder: Folder, other: pa.Schema) -> pa.Schema:
    """The payload of JSON lines, in the types of the other side where JSON has no own."""
    if folder.format is not Format.JSONL:
        return folder.payload
    fields = []
    for field in folder.payload:
        theirs = other.field(field.name).type if field.name in other.names else field.type
        fields.append(field.with_type(theirs) if _may_mean(field.type, theirs) else field)
    return pa.schema(fields)


def _may_mean(written: pa.DataType, meant: pa.DataType) -> bool:
    if common_type(written, meant) is not None:
        return False
    if pt.is_string(written):
        return bool(pt.is_timestamp(meant) or pt.is_date(meant) or pt.is_binary(meant))
    is_number = pt.is_int64(written) or pt.is_float64(written)
    return is_number and bool(pt.is_floating(meant) or pt.is_decimal(meant))


def _in_columns(folder: Folder, payload: pa.Schema) -> Folder:
    """The folder, to be read with these payload types."""
    types = {field.name: field.type for field in payload}
    fields = [field.with_type(types.get(field.name, field.type)) for field in folder.schema]
    return replace(folder, schema=pa.schema(fields))


def _truth(
    folder: Folder, interner: Interner, *, limit: int, strict: bool, on_progress: Progress
) -> tuple[Side, Judged]:
    """What A is compared with: one stream, or a reference history."""
    refusals = Refusals(limit, strict)
    found = [*_judged(folder, interner, refusals, limit=limit, on_progress=on_progress)]
    if len(found) != 1:
        names = ", ".join(str(one.report.replica) for one in found)
        message = (
            f"{folder.path}: holds several copies ({names}), but A is compared with one "
            "history; name the folder of one of them as B, or make this A"
        )
        raise UsageError(message)
    return _side(folder, [found[0].report], refusals), found[0]


def _judged(
    folder: Folder, interner: Interner, refusals: Refusals, *, limit: int, on_progress: Progress
) -> Iterator[Judged]:
    is_copy = folder.replicas[0].note is not None  # a replica's folder, named by itself
    for stream in gather(folder, interner, refusals, on_progress=on_progress):
        yield judge(
            stream,
            interner,
            folder.time,
            limit=limit,
            is_input=is_copy or stream.replica is not None,
            is_whole=folder.layout is Layout.REFERENCE,
        )


def _side(folder: Folder, reports: list[StreamReport], refusals: Refusals) -> Side:
    return Side(
        str(folder.path),
        folder.layout.value,
        folder.format.value,
        tuple(reports),
        refusals.count,
        tuple(refusals.first),
    )


def _compare(
    judged: Judged,
    truth: Events,
    interner: Interner,
    time: TimeType,
    *,
    frontier: int | None,
    limit: int,
) -> Comparison:
    """One stream of A against B."""
    events = judged.events
    if frontier is not None:
        start = interner.start
        events, truth = events.below(frontier, start), truth.below(frontier, start)
    found = difference(events, truth)
    first = np.flatnonzero(np.diff(found.id, prepend=-1))
    more_a = _sums(np.maximum(found.count_a - found.count_b, 0), first)
    more_b = _sums(np.maximum(found.count_b - found.count_a, 0), first)
    changed = np.minimum(more_a, more_b)
    return Comparison(
        judged.report.replica,
        below=None if frontier is None else show_time(frontier, time),
        equal=not len(found),
        only_in_a=int((more_a - changed).sum()),
        only_in_b=int((more_b - changed).sum()),
        different_end=int(changed.sum()),
        first_lines=_lines(found, first, interner, _Times(time, frontier), limit),
    )


def _sums(values: Ints, first: Ints) -> Ints:
    return np.add.reduceat(values, first) if len(first) else values


@dataclass(frozen=True)
class _Times:
    """How times are shown in a comparison below a frontier."""

    time: TimeType
    frontier: int | None

    def show(self, units: int) -> Shown:
        text = show_time(units, self.time)
        is_open = units == self.frontier and units != FOREVER_UNITS
        return f">= {text}" if is_open else text


def _lines(
    found: Difference, first: Ints, interner: Interner, times: _Times, limit: int
) -> tuple[DiffLine, ...]:
    """The first differences by start, those of one identity together."""
    ids = found.id[first]
    starts = interner.start[ids]
    chosen = np.lexsort((ids, starts))[:limit]
    ends = np.append(first[1:], len(found))
    payloads = show_payloads(interner, ids[chosen])
    lines: list[DiffLine] = []
    for at, payload in zip(chosen.tolist(), payloads, strict=True):
        part = slice(int(first[at]), int(ends[at]))
        start = show_time(int(starts[at]), times.time)
        lines += _identity_lines(found, part, payload, start, times)
    return tuple(lines[:limit])


def _identity_lines(
    found: Difference, part: slice, payload: dict[str, Any], start: Shown, times: _Times
) -> Iterator[DiffLine]:
    """The differences of one identity; an end that changed reads as one line."""
    columns = (found.end[part], found.count_a[part], found.count_b[part])
    rows = [*zip(*(column.tolist() for column in columns), strict=True)]
    # Each as [end, how many more, how often on both sides].
    in_a = [[end, a - b, b] for end, a, b in rows if a > b]
    in_b = [[end, b - a, a] for end, a, b in rows if b > a]
    while in_a and in_b:
        count = min(in_a[0][1], in_b[0][1])
        ends = (times.show(in_a[0][0]), times.show(in_b[0][0]))
        yield DiffLine(DIFFERENT_END, payload, start, *ends, count, count)
        for side in (in_a, in_b):
            side[0][1] -= count
            if not side[0][1]:
                side.pop(0)
    for end, more, both in in_a:
        what = MORE_IN_A if both else ONLY_IN_A
        yield DiffLine(what, payload, start, times.show(end), None, both + more, both)
    for end, more, both in in_b:
        what = MORE_IN_B if both else ONLY_IN_B
        yield DiffLine(what, payload, start, None, times.show(end), both, both + more)
