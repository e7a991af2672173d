"""One replica of a true history: its order, provisional ends, phantoms, gaps and stables.

A presentation is valid by construction.  Its inserts and adjusts are laid out in columns with
an emission key each and sorted by it; a stable may then promise at most the smallest time that
any later element still touches (an insert touches its start, an adjust the smaller of its two
ends).  No element is emitted later than `reach` after the time it touches, so stables follow.

* Every event is emitted as a chain of states, the last of which is the truth: a provisional
  end, a longer or shorter one, no lifetime at all (removed, and later inserted again).  A
  phantom's last state is none at all.
* The first replica has no gaps, and its stables promise all they can.

Papers: LMerge VI-B (Disorder, StableFreq); chains and phantoms go beyond it.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from anabranch.batch.batch import ADJUST, FOREVER_UNITS, INSERT, STABLE, Codes, Ints, Mask
from anabranch.generator.truth import Truth
from anabranch.model.properties import MergeCase

if TYPE_CHECKING:
    from anabranch.generator.workload import Workload

FAR: Final = 2**62
"""Later than every time that is generated; a time plus `reach` stays below int64's end."""

PROVISIONAL: Final = 3
"""States before the truth, at most."""

OPEN_END: Final = 0.35
AGAIN: Final = 0.5
WITHDRAWN: Final = 0.1
"""Chances of a state: an open end (FOREVER); the state before it; no lifetime at all."""

SHOWN: Final = 0.5
"""Chance that a replica shows a phantom."""

NO_EVENT: Final = -1


@dataclass(frozen=True, eq=False)
class Presentation:
    """The elements of one replica in order; `row` is the truth's row, or `NO_EVENT`."""

    kind: Codes
    start: Ints
    end: Ints
    old_end: Ints
    row: Ints

    def __len__(self) -> int:
        return len(self.kind)

    def count(self, kind: int) -> int:
        """How many elements are of this kind."""
        return int(np.count_nonzero(self.kind == kind))


@dataclass(frozen=True, eq=False)
class _Elements:
    """Inserts and adjusts with the key to sort them by."""

    kind: Codes
    start: Ints
    end: Ints
    old_end: Ints
    row: Ints
    key: Ints

    @property
    def columns(self) -> tuple[NDArray[Any], ...]:
        """All columns, in the order of the fields."""
        return (self.kind, self.start, self.end, self.old_end, self.row, self.key)

    @property
    def touches(self) -> Ints:
        """The earliest time that each element changes."""
        adjusted = np.minimum(self.old_end, self.end)
        return np.where(self.kind == INSERT, self.start, adjusted)


def present(workload: "Workload", truth: Truth, replica: int) -> Presentation:
    """The elements of one replica; the same seed, the same elements."""
    rng = np.random.default_rng(np.random.SeedSequence(workload.seed, spawn_key=(1, replica)))
    rows = _rows(workload, rng, truth, replica)
    key = truth.start[rows] + _delays(workload, rng, truth, rows)
    elements = _present(workload, rng, truth, rows, key)
    # Stable sort: equal keys keep the order of levels, and of `rows` within a level.
    order = np.argsort(elements.key, kind="stable")
    elements = _Elements(*(column[order] for column in elements.columns))
    return _promise(workload, rng, elements, replica)


def missing(workload: "Workload", truth: Truth, replica: int) -> Mask:
    """Where the events are that this replica does not have."""
    rng = np.random.default_rng(np.random.SeedSequence(workload.seed, spawn_key=(2, replica)))
    lost: Mask = (rng.random(len(truth)) < workload.gap_rate) & ~truth.phantom
    if replica == 0:
        lost[:] = False
    first = _overtaken(truth)
    lost[[row for row in (truth.mark, truth.mark + 1, first, first + 1) if row < len(lost)]] = (
        False
    )
    return lost


def _rows(workload: "Workload", rng: np.random.Generator, truth: Truth, replica: int) -> Ints:
    """The rows this replica emits, in the order that decides among equal keys."""
    shown = ~missing(workload, truth, replica)
    shown &= ~truth.phantom | (rng.random(len(truth)) < SHOWN)
    rows = np.flatnonzero(shown)
    if workload.case in (MergeCase.R0, MergeCase.R1):
        return rows
    rows = rng.permutation(rows)
    if workload.case is MergeCase.R2:
        pair = np.flatnonzero((rows == truth.mark) | (rows == truth.mark + 1))
        rows[pair] = np.sort(rows[pair])[:: 1 if replica == 0 else -1]
    return rows


def _overtaken(truth: Truth) -> int:
    """The first event that is followed by one with a later start (the last, if none is)."""
    steps = np.flatnonzero(np.diff(truth.start[truth.events]))
    return int(steps[0]) if len(steps) else len(truth.events) - 1


def _delays(workload: "Workload", rng: np.random.Generator, truth: Truth, rows: Ints) -> Ints:
    """How much later than its start each row is first emitted."""
    delays = np.zeros(len(rows), np.int64)
    if workload.disorder_share == 0:
        return delays
    slow = rng.random(len(rows)) < workload.disorder_share
    delays[slow] = rng.integers(1, workload.reach, np.count_nonzero(slow), endpoint=True)
    first = _overtaken(truth)
    if first + 1 < len(truth.events):
        delays[rows == first] = truth.start[first + 1] - truth.start[first] + 1
        delays[rows == first + 1] = 0
    return delays


def _present(
    workload: "Workload", rng: np.random.Generator, truth: Truth, rows: Ints, key: Ints
) -> _Elements:
    """One insert per row, and for revised rows the further states, level after level."""
    start, end = truth.start[rows], truth.end[rows].copy()
    revised = truth.phantom[rows] | (rng.random(len(rows)) < workload.revision_share)
    if workload.revision_share > 0:
        revised |= rows == truth.mark
    at = np.flatnonzero(revised)
    states = _states(workload, rng, start[at], end[at])
    if len(at):
        end[at] = states[0]
    kinds = np.full(len(rows), INSERT, np.int8)
    levels = [_Elements(kinds, start, end, np.zeros_like(start), rows, key)]
    levels += _later_levels(workload, rng, states, start[at], rows[at], key[at])
    columns = zip(*(level.columns for level in levels), strict=True)
    return _Elements(*(np.concatenate(column) for column in columns))


def _states(workload: "Workload", rng: np.random.Generator, start: Ints, end: Ints) -> Ints:
    """Ends over time, one column per event; the last row is the truth."""
    shape = (PROVISIONAL, len(start))
    provisional = start + rng.integers(1, 2 * workload.lifetime, shape, endpoint=True)
    provisional[rng.random(shape) < OPEN_END] = FOREVER_UNITS
    withdrawn = rng.random(len(start)) < WITHDRAWN
    provisional[1] = np.where(withdrawn, start, provisional[1])
    for level in range(1, PROVISIONAL):
        again = rng.random(len(start)) < AGAIN
        provisional[level] = np.where(again, provisional[level - 1], provisional[level])
    # A revised event has at least one adjust: its first end is never the true one.
    lucky = provisional[0] == end
    provisional[0, lucky] = np.where(
        end[lucky] == FOREVER_UNITS, start[lucky] + 1, FOREVER_UNITS
    )
    return np.vstack([provisional, end])


def _later_levels(
    workload: "Workload",
    rng: np.random.Generator,
    states: Ints,
    start: Ints,
    rows: Ints,
    key: Ints,
) -> list[_Elements]:
    """The changes from each state to the next one, each emitted before its deadline."""
    before, after = states[:-1], states[1:]
    changes = before != after
    again = before == start
    touches = np.where(again, start, np.minimum(before, after))
    touches[~changes] = FAR
    deadlines = np.minimum.accumulate(touches[::-1], axis=0)[::-1] + workload.reach
    levels = []
    for level in range(len(before)):
        there = changes[level]
        room = np.where(there, deadlines[level] - key, 0)
        key = key + (rng.random(len(key)) * room).astype(np.int64)
        kind = np.where(again[level], INSERT, ADJUST).astype(np.int8)
        old_end = np.where(again[level], 0, before[level])
        columns = (kind, start, after[level], old_end, rows, key)
        levels.append(_Elements(*(column[there] for column in columns)))
    return levels


def _promise(
    workload: "Workload", rng: np.random.Generator, elements: _Elements, replica: int
) -> Presentation:
    """The elements with stables among them."""
    places, times = _stables(workload, rng, elements, replica)
    if not workload.open:
        places = np.append(places, len(elements.kind))
        times = np.append(times, FOREVER_UNITS)
    return Presentation(
        np.insert(elements.kind, places, np.int8(STABLE)),
        np.insert(elements.start, places, times),
        np.insert(elements.end, places, 0),
        np.insert(elements.old_end, places, 0),
        np.insert(elements.row, places, NO_EVENT),
    )


def _stables(
    workload: "Workload", rng: np.random.Generator, elements: _Elements, replica: int
) -> tuple[Ints, Ints]:
    """Where stables go (before which element) and what they promise."""
    count = len(elements.kind)
    chance = workload.stable_freq / (1 - workload.stable_freq)
    places = 1 + np.flatnonzero(rng.random(count) < chance)
    if not workload.open:
        places = places[places < count]
    # At least one insert between two stables, as the paper has it.
    inserts = np.append(0, np.cumsum(elements.kind == INSERT))[places]
    places = places[np.diff(inserts, prepend=0) > 0]
    # What no later element touches; after the last one, an open stream goes on from its starts.
    tail = np.append(elements.touches, elements.start.max())
    limit = np.minimum.accumulate(tail[::-1])[::-1][places]
    # A replica with slack stays `behind` stables back, and a part of the way to the next limit.
    behind = min(int(rng.integers(0, 3)) if replica else 0, len(places))
    limit = limit[: len(places) - behind]
    slack = np.where(rng.random(len(limit)) < 0.5, 0.0, rng.random(len(limit)))
    progress = np.diff(limit, prepend=elements.start.min() - 1)
    times = limit - (slack * progress if replica else 0 * slack).astype(np.int64)
    places = places[behind:]
    news = np.diff(times, prepend=np.int64(-FAR)) > 0
    return places[news], times[news]
