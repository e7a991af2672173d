"""Replay of one stream into its history, in columns: the fast form of `model.history`.

`replay` returns for every element what `anabranch.model.history.replay` returns (the same
violations for the same reasons, the same frontier, the same multiset of events), for ten
million elements in seconds.  The model is the judge; law tests race the two.

The payloads do not travel: an element names its (start, payload) by a dense identity id, as
`anabranch.batch.intern` gives it out.  Two histories compare when one interner gave the ids.

How: what an element breaks by itself, or against the running maximum of the stables, is one
comparison per row.  What is left adds events to and takes events from its identity.  Sorted by
(id, end), a running sum that never falls below zero proves every adjust of that identity
right; an identity where it does is replayed one by one, and identities are independent.

Papers: LMerge III-C, Example 5; the history is the TDB of a prefix, as a bag (case R4).
"""

from collections import Counter
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from anabranch.batch.batch import ADJUST, INSERT, NEVER_UNITS, STABLE, Codes, Ints, Mask
from anabranch.model.history import Reason

REASONS: Final = (Reason.BACKWARDS, Reason.BEHIND_STABLE, Reason.NO_SUCH_EVENT)
"""The reasons of a violation by code, in the order in which they are looked for."""

NO_IDENTITY: Final = -1
"""The id of a stable."""

_BACKWARDS, _BEHIND_STABLE, _NO_SUCH_EVENT = range(3)
_Order: TypeAlias = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Events:
    """A multiset of events as columns, sorted by (id, end), each (id, end) once, count > 0."""

    id: Ints
    end: Ints
    count: Ints

    def __len__(self) -> int:
        return int(self.count.sum())

    def open_at(self, frontier: int) -> int:
        """How many events a stream with this frontier may still change.

        >>> Events(np.array([0, 1]), np.array([4, 5]), np.array([1, 2])).open_at(5)
        2
        """
        if frontier == np.iinfo(np.int64).max:
            return 0
        return int(self.count[self.end >= frontier].sum())

    def below(self, frontier: int, start: Ints) -> "Events":
        """What a frontier has fixed: events that start before it, their ends if below it.

        Ends at or after the frontier are still free, so they fold into one class, which bears
        the frontier's own value.  `start` is the start of every identity, by id.
        """
        fixed = start[self.id] < frontier
        end = np.minimum(self.end[fixed], frontier)
        return collect(self.id[fixed], end, self.count[fixed])

    def check(self) -> None:
        """Verify what the class promises; for tests."""
        sizes = (len(self.id), len(self.end), len(self.count))
        assert len(set(sizes)) == 1, f"lengths of id, end, count differ: {sizes}"
        assert bool((self.count > 0).all()), f"counts must be > 0: {self.count}"
        keys = list(zip(self.id.tolist(), self.end.tolist(), strict=True))
        assert keys == sorted(set(keys)), f"(id, end) must be sorted and unique: {keys}"


@dataclass(frozen=True, eq=False)
class Replayed:
    """What a physical stream stands for, and where it broke its promises.

    `positions` are the violating elements in rising order, `reasons` index `REASONS`.
    """

    events: Events
    frontier: int
    positions: Ints
    reasons: Codes
    absorbed: int


@dataclass(frozen=True, eq=False)
class Difference:
    """Where two histories differ: one row per (id, end) that one has more often."""

    id: Ints
    end: Ints
    count_a: Ints
    count_b: Ints

    def __len__(self) -> int:
        return len(self.id)


def replay(ids: Ints, kind: Codes, start: Ints, end: Ints, old_end: Ints) -> Replayed:
    """Replay the elements of one stream in order; violating ones are left out of the history.

    >>> ids, kind = np.array([0, -1, 0]), np.array([INSERT, STABLE, ADJUST], dtype=np.int8)
    >>> start, end, old_end = np.array([3, 5, 3]), np.array([9, 0, 7]), np.array([0, 0, 9])
    >>> replay(ids, kind, start, end, old_end).events.end
    array([7])
    """
    frontier, behind = _frontiers(kind, start)
    is_data = kind != STABLE
    is_adjust = kind == ADJUST
    backwards = is_data & (end < start)
    absorbed = ~backwards & np.where(is_adjust, end == old_end, is_data & (end == start))
    late = np.where(is_adjust, np.minimum(old_end, end), start) < behind
    late &= is_data & ~backwards & ~absorbed
    live = is_data & ~(backwards | absorbed | late)
    events, unfounded = _apply(np.flatnonzero(live), ids, kind, start, end, old_end)
    positions, reasons = _violations((backwards, late), unfounded)
    return Replayed(events, frontier, positions, reasons, int(np.count_nonzero(absorbed)))


def difference(a: Events, b: Events) -> Difference:
    """Where two multisets of events differ; empty exactly when they are equal."""
    ids = np.concatenate([a.id, b.id])
    end = np.concatenate([a.end, b.end])
    order, first = _group(ids, end)
    of_a = np.concatenate([a.count, np.zeros_like(b.count)])[order]
    of_b = np.concatenate([np.zeros_like(a.count), b.count])[order]
    if len(first):
        of_a, of_b = np.add.reduceat(of_a, first), np.add.reduceat(of_b, first)
    differ = of_a != of_b
    keys = order[first][differ]
    return Difference(ids[keys], end[keys], of_a[differ], of_b[differ])


def collect(ids: Ints, end: Ints, count: Ints) -> Events:
    """The multiset that these counts add up to; keys that come to nothing are left out."""
    order, first = _group(ids, end)
    total = np.add.reduceat(count[order], first) if len(first) else count
    present = total != 0
    keys = order[first][present]
    return Events(ids[keys], end[keys], total[present])


def _frontiers(kind: Codes, start: Ints) -> tuple[int, Ints]:
    """The last frontier, and for every element the frontier it came under."""
    running = np.maximum.accumulate(np.where(kind == STABLE, start, NEVER_UNITS))
    if not len(running):
        return NEVER_UNITS, running
    # An element's own stable does not bind it; only data is looked at, where the two agree.
    return int(running[-1]), running


def _violations(masks: tuple[Mask, Mask], unfounded: Ints) -> tuple[Ints, Codes]:
    found = [np.flatnonzero(mask) for mask in masks] + [unfounded]
    codes = (_BACKWARDS, _BEHIND_STABLE, _NO_SUCH_EVENT)
    positions = np.concatenate(found).astype(np.int64)
    reasons = np.repeat(np.array(codes, dtype=np.int8), [len(rows) for rows in found])
    order = np.argsort(positions, kind="stable")
    return positions[order], reasons[order]


def _apply(
    live: _Order, ids: Ints, kind: Codes, start: Ints, end: Ints, old_end: Ints
) -> tuple[Events, Ints]:
    """The events that these elements leave, and those among them that adjust nothing."""
    adjusts = live[kind[live] == ADJUST]
    # What an element adds comes after what the elements before it added or took, so every
    # change keeps the position of its element.  A removal adds nothing.
    adding = live[(kind[live] == INSERT) | (end[live] != start[live])]
    position = np.concatenate([adding, adjusts])
    at = np.concatenate([end[adding], old_end[adjusts]])
    change = np.repeat(np.array([1, -1]), [len(adding), len(adjusts)])
    if len(adjusts):
        sorted_by_position = np.argsort(position, kind="stable")
        position = position[sorted_by_position]
        at, change = at[sorted_by_position], change[sorted_by_position]
    doubtful = _overdrawn(ids[position], at, change)
    if not len(doubtful):
        return collect(ids[position], at, change), np.empty(0, dtype=np.int64)
    sure = ~np.isin(ids[position], doubtful)
    again = live[np.isin(ids[live], doubtful)]
    exact, unfounded = _one_by_one(again, ids, kind, start, end, old_end)
    fast = collect(ids[position][sure], at[sure], change[sure])
    return _merged(fast, exact), unfounded


def _overdrawn(ids: Ints, end: Ints, change: Ints) -> Ints:
    """The ids for which, at some point, more events of one end are taken than were there."""
    order, first = _group(ids, end)
    if not len(first) or not (change < 0).any():
        return np.empty(0, dtype=np.int64)
    running = np.cumsum(change[order])
    before = np.concatenate([[0], running[first[1:] - 1]])
    level = running - np.repeat(before, np.diff(np.append(first, len(order))))
    return np.unique(ids[order[level < 0]])


def _one_by_one(
    positions: _Order, ids: Ints, kind: Codes, start: Ints, end: Ints, old_end: Ints
) -> tuple[Events, Ints]:
    """The exact replay of a few identities: what the model does, element by element."""
    present: Counter[tuple[int, int]] = Counter()
    unfounded = []
    columns = (positions, ids[positions], kind[positions], start[positions])
    rows = zip(
        *(column.tolist() for column in (*columns, end[positions], old_end[positions])),
        strict=True,
    )
    for position, identity, code, starts, ends, old_ends in rows:
        if code == ADJUST:
            if present[identity, old_ends] <= 0:
                unfounded.append(position)
                continue
            present[identity, old_ends] -= 1
        if ends != starts:
            present[identity, ends] += 1
    kept = [(*key, count) for key, count in present.items() if count > 0]
    table = np.array(kept, dtype=np.int64).reshape(-1, 3)
    events = collect(table[:, 0], table[:, 1], table[:, 2])
    return events, np.array(unfounded, dtype=np.int64)


def _merged(a: Events, b: Events) -> Events:
    return collect(
        np.concatenate([a.id, b.id]),
        np.concatenate([a.end, b.end]),
        np.concatenate([a.count, b.count]),
    )


def _group(ids: Ints, end: Ints) -> tuple[_Order, _Order]:
    """A stable order by (id, end), and where in it each key begins."""
    order = np.lexsort((end, ids))
    sorted_ids, sorted_end = ids[order], end[order]
    changes = np.ones(len(order), dtype=np.bool_)
    changes[1:] = (sorted_ids[1:] != sorted_ids[:-1]) | (sorted_end[1:] != sorted_end[:-1])
    return order, np.flatnonzero(changes)
