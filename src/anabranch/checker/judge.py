"""Validates one stream: are its promises kept, and which history does it have.

The order of a stream is its `seq` if it has one, else file name and row.  A `seq` that comes
again is a redelivery where copies are read as they arrive (an inbox, a `replica` column) and
the element is the same; anywhere else, or with another element, it is a broken promise.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from anabranch.batch.batch import ADJUST, FOREVER_UNITS, INSERT, KINDS, STABLE, Ints, Mask
from anabranch.batch.history import REASONS, Events, replay
from anabranch.batch.intern import Interner
from anabranch.batch.schema import TimeType
from anabranch.batch.times import show_time
from anabranch.checker.gather import Gathered
from anabranch.checker.verdict import BrokenPromise, StreamReport, show_value

SAME_SEQ: Final = "its seq is that of an element before it"
OTHER_ELEMENT: Final = "its seq is that of another element before it, so it is not a redelivery"


@dataclass(frozen=True, eq=False)
class Judged:
    """A stream's report, the events that it stands for, and how far they are final."""

    report: StreamReport
    events: Events
    frontier: int


@dataclass(frozen=True, eq=False)
class _Ordered:
    """Positions in stream order: those to replay, those that came again, those that may not."""

    kept: Ints
    redelivered: int
    refused: Ints


def judge(
    stream: Gathered,
    interner: Interner,
    time: TimeType,
    *,
    limit: int,
    is_input: bool = False,
    is_whole: bool = False,
) -> Judged:
    """Judge a stream; in an input redeliveries are no fault, a reference history is whole."""
    order = _order(stream, is_input=is_input)
    at = order.kept
    columns = (stream.ids[at], stream.kind[at], stream.start[at])
    found = replay(*columns, stream.end[at], stream.old_end[at])
    frontier = FOREVER_UNITS if is_whole else found.frontier
    positions = np.concatenate([at[found.positions], order.refused])
    reasons = [REASONS[code].value for code in found.reasons[:limit].tolist()]
    reasons += [OTHER_ELEMENT if is_input else SAME_SEQ] * min(limit, len(order.refused))
    shown = np.concatenate([at[found.positions[:limit]], order.refused[:limit]])
    first = _shown(stream, shown, reasons, interner, time)[:limit]
    counts = np.bincount(stream.kind, minlength=len(KINDS)).tolist()
    report = StreamReport(
        stream.replica,
        elements=len(stream.kind),
        inserts=counts[INSERT],
        adjusts=counts[ADJUST],
        stables=counts[STABLE],
        absorbed=found.absorbed,
        redelivered=order.redelivered,
        events=len(found.events),
        open_events=found.events.open_at(frontier),
        frontier=show_time(frontier, time),
        violations=len(positions),
        first_violations=first,
    )
    return Judged(report, found.events, frontier)


def _order(stream: Gathered, *, is_input: bool) -> _Ordered:
    count, nothing = len(stream.kind), np.empty(0, np.int64)
    if stream.seq is None:
        return _Ordered(np.arange(count), 0, nothing)
    order = np.argsort(stream.seq, kind="stable")
    seq = stream.seq[order]
    again = np.zeros(count, np.bool_)
    again[1:] = seq[1:] == seq[:-1]
    if not again.any():
        return _Ordered(order, 0, nothing)
    same = again & _like_first(stream, order, again) if is_input else np.zeros_like(again)
    return _Ordered(order[~again], int(np.count_nonzero(same)), order[again & ~same])


def _like_first(stream: Gathered, order: Ints, again: Mask) -> Mask:
    """Where an element equals the first one with its `seq`."""
    first = order[np.maximum.accumulate(np.where(again, 0, np.arange(len(order))))]
    same = np.ones(len(order), np.bool_)
    for column in (stream.kind, stream.ids, stream.start, stream.end, stream.old_end):
        same &= column[order] == column[first]
    return same


def _shown(
    stream: Gathered, positions: Ints, reasons: list[str], interner: Interner, time: TimeType
) -> tuple[BrokenPromise, ...]:
    """Some elements in full, in the order of their rows."""
    is_data = stream.kind[positions] != STABLE
    payloads = iter(show_payloads(interner, stream.ids[positions[is_data]]))
    found = []
    for position, reason in zip(positions.tolist(), reasons, strict=True):
        file, row = stream.place(position)
        code = int(stream.kind[position])
        ends = (int(stream.end[position]), int(stream.old_end[position]))
        promise = BrokenPromise(
            stream.replica,
            str(file),
            row,
            reason,
            KINDS[code],
            show_time(int(stream.start[position]), time),
            None if code == STABLE else show_time(ends[0], time),
            show_time(ends[1], time) if code == ADJUST else None,
            {} if code == STABLE else next(payloads),
        )
        found.append((position, promise))
    return tuple(promise for _, promise in sorted(found, key=lambda pair: pair[0]))


def show_payloads(interner: Interner, ids: Ints) -> list[dict[str, Any]]:
    """The payloads of a few identities, as values that JSON has."""
    payload = interner.take(ids)
    rows = payload.to_pylist() if payload.num_columns else [{} for _ in ids]
    return [{name: show_value(value) for name, value in row.items()} for row in rows]
