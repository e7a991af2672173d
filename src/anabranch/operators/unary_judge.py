"""Validates the elements of a step against the promises of their stream.

What is kept of earlier steps and what comes now is replayed as one stream, in columns, by
`anabranch.batch.history`; so a violation is defined by the model alone.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from anabranch.batch.batch import FOREVER_UNITS, INSERT, NEVER_UNITS, STABLE, Batch, Codes, Ints
from anabranch.batch.history import replay


@dataclass(frozen=True, eq=False)
class Judged:
    """The events of the touched groups after a step, by (group, start, end), one row each.

    `positions` and `reasons` are the violations among the elements of the step.
    """

    group: Ints
    start: Ints
    end: Ints
    frontier: int
    positions: Ints
    reasons: Codes


def judge(held: tuple[Ints, Ints, Ints], group: Ints, batch: Batch, frontier: int) -> Judged:
    """Replay a batch after the events (group, start, end) that are held of its groups.

    `group` is that of each element, anything for a stable.  Held events are believed; they must
    not be frozen at this frontier.
    """
    held_group, held_start, held_end = held
    past = len(held_group) + 1
    groups = np.concatenate([held_group, [-1], group])
    start = np.concatenate([held_start, [frontier], batch.start])
    kind = np.concatenate([np.repeat(_PAST, [past - 1, 1]), batch.kind])
    end = np.concatenate([held_end, [0], batch.end])
    old_end = np.concatenate([np.zeros(past, np.int64), batch.old_end])
    ids, first = _identities(groups, start)
    replayed = replay(ids, kind, start, end, old_end)
    events = replayed.events
    row = np.repeat(first[events.id], events.count)
    return Judged(
        groups[row],
        start[row],
        np.repeat(events.end, events.count),
        replayed.frontier,
        replayed.positions - past,
        replayed.reasons,
    )


_WORD: Final = 63
_PAST: Final = np.array([INSERT, STABLE], np.int8)


def _identities(group: Ints, start: Ints) -> tuple[Ints, Ints]:
    """Dense ids of (group, start), in their order, and the first row of each."""
    order = order_by(group, start)
    sorted_group, sorted_start = group[order], start[order]
    begins = np.ones(len(order), np.bool_)
    begins[1:] = (sorted_group[1:] != sorted_group[:-1]) | (
        sorted_start[1:] != sorted_start[:-1]
    )
    ids = np.empty(len(order), np.int64)
    ids[order] = np.cumsum(begins) - 1
    return ids, order[begins]


def order_by(group: Ints, time: Ints) -> NDArray[np.intp]:
    """The rows by group, then time; rows that agree in both are in any order."""
    real = (time != FOREVER_UNITS) & (time != NEVER_UNITS)
    # Without a real time the two ends of the line, which do not fit.
    low, high = sorted(
        (
            int(time.min(initial=FOREVER_UNITS, where=real)),
            int(time.max(initial=NEVER_UNITS, where=real)),
        )
    )
    # One word where it fits: NumPy sorts it several times as fast as two keys.
    bits = (high + 2 - low + 1).bit_length()
    if bits + int(group.max(initial=0) + 1).bit_length() > _WORD:
        return np.lexsort((time, group))
    place = np.clip(time, low - 1, high + 1) - (low - 1)
    return np.argsort(((group + 1) << bits) | place)
