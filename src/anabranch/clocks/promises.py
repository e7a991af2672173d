"""Pending promises of many sources, as columns.

`Promises` wait for a time of the wall clock; `Counts` wait for rows of a source and then
become promises.  Both keep only what can still raise a heartbeat, so that memory is in
proportion to the promises that are pending, not to rows or time: of each source a staircase in
which what is due later is higher (D3).

Papers: Heartbeats 3, 5.1, with errata H2, H4, H6; D3, D12.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from anabranch.batch.batch import Ints, Mask


def _empty() -> Ints:
    return np.empty(0, np.int64)


@dataclass(slots=True)
class Promises:
    """Heartbeats to be: `value` holds for source `unit` when the clock shows `due`."""

    unit: Ints = field(default_factory=_empty)
    due: Ints = field(default_factory=_empty)
    value: Ints = field(default_factory=_empty)

    def __len__(self) -> int:
        return len(self.unit)

    def add(self, unit: Ints, due: Ints, value: Ints) -> None:
        """More promises; `settle` removes what they make needless."""
        self.unit = np.concatenate([self.unit, unit])
        self.due = np.concatenate([self.due, due])
        self.value = np.concatenate([self.value, value])

    def settle(self, heartbeat: Ints, now: int, held: Mask) -> None:
        """Raise heartbeats by what is due, except of sources that are `held`; drop the rest."""
        due = (self.due <= now) & ~held[self.unit]
        if due.any():
            np.maximum.at(heartbeat, self.unit[due], self.value[due])
        self._keep(~due & (self.value > heartbeat[self.unit]))
        self._keep(_stairs(self.unit, self.due, self.value))

    def move(self, place: Ints, kept: Mask) -> None:
        """Units have other places, or are not kept."""
        self._keep(kept[self.unit])
        self.unit = place[self.unit]

    def _keep(self, rows: Mask) -> None:
        if not rows.all():
            self.unit, self.due, self.value = self.unit[rows], self.due[rows], self.value[rows]

    def check(self, heartbeat: Ints) -> None:
        """Assert that each promise is above the heartbeat and all that is due before it."""
        own = heartbeat[self.unit]
        assert (self.value > own).all(), f"promises {self.value} <= heartbeats {own}"
        assert _stairs(self.unit, self.due, self.value).all(), (
            f"values {self.value} do not increase with due times {self.due}"
        )


def _stairs(unit: Ints, due: Ints, value: Ints) -> Mask:
    """The promises that are above all others of their source that are due no later."""
    keep = np.ones(len(unit), np.bool_)
    if len(unit) < 2:
        return keep
    order = np.lexsort((-value, due, unit))
    # Ranks, so that sources can be kept apart by an offset without overflow.
    rank = np.unique(value, return_inverse=True)[1].reshape(-1)[order]
    height = rank + unit[order] * (len(unit) + 1)
    highest = np.maximum.accumulate(height)
    keep[order[1:]] = (height[1:] > highest[:-1]) | (unit[order][1:] != unit[order][:-1])
    return keep


@dataclass(slots=True)
class Count:
    """A promise of `value` that waits for rows in ticks that begin at `after` or later.

    When they have come, it is due `latency` later.
    """

    after: int
    remaining: int
    value: int
    latency: int


@dataclass(slots=True)
class Counts:
    """Promises that wait for rows, by the source whose rows count."""

    by_unit: dict[int, list[Count]] = field(default_factory=dict)

    def __len__(self) -> int:
        return sum(map(len, self.by_unit.values()))

    def see(self, unit: int, after: int, upto: int, rows: int) -> list[tuple[int, int]]:
        """Count `rows` rows of a source in a tick; what is complete, as (due, value)."""
        left, done = [], []
        for count in self.by_unit.get(unit, ()):
            count.remaining -= rows if count.after <= after else 0
            if count.remaining > 0:
                left.append(count)
            else:
                done.append((upto + count.latency, count.value))
        if left:
            self.by_unit[unit] = left
        else:
            self.by_unit.pop(unit, None)
        return done

    def add(self, unit: int, count: Count) -> None:
        """One more."""
        self.by_unit.setdefault(unit, []).append(count)

    def move(self, place: Ints, kept: Mask) -> None:
        """Units have other places, or are not kept."""
        found = {unit: some for unit, some in self.by_unit.items() if kept[unit]}
        self.by_unit = {int(place[unit]): some for unit, some in found.items()}

    def settle(self, heartbeat: Ints, passed: int) -> None:
        """Drop what cannot raise a heartbeat; ticks before `passed` are over."""
        for unit, counts in list(self.by_unit.items()):
            for count in counts:
                count.after = max(count.after, passed)
            kept = _undominated([c for c in counts if c.value > heartbeat[unit]])
            if kept:
                self.by_unit[unit] = kept
            else:
                del self.by_unit[unit]


def _undominated(counts: Sequence[Count]) -> list[Count]:
    """Those that no other surpasses: higher or as high, and complete no later."""
    kept: list[Count] = []
    for count in sorted(counts, key=lambda c: (c.after, c.remaining, c.latency, -c.value)):
        if not any(
            other.remaining <= count.remaining
            and other.latency <= count.latency
            and other.value >= count.value
            for other in kept
        ):
            kept.append(count)
    return kept
