"""Bounds that are learned from what arrives, and follow it when it changes.

For two sources i, j and a wait t, a row of j shows how far j may be behind i: the greatest
time of i that arrived more than t before it, less its own time, plus one.  A `Cell` keeps the
bound for one (i, j, t); `Learner` keeps all of them and evaluates heartbeats when they are
read, with what is known then (H14).

* The greatest estimate ever (`window=None` or `alpha=1`): section 6.1.
* Figure 4: an estimate above the bound replaces it at once; after a window of low ones the
  bound falls towards their greatest, `alpha` of the way stays.  The bound is a real number,
  used rounded up, and snaps to the window's greatest when less than 1 above it (H15, D9).  A
  window is a number of rows or a span of the wall clock, and may adapt (D10).
* `target_loss`: the bound is the quantile that this share of rows exceeds, over the last one
  to two windows, instead of the greatest.

Only rows strictly before teach (H12), a source that shows nothing new teaches nothing (H16),
late rows do (H17), and until `warm_up` estimates are there nothing is released (H13).  Learned
bounds are observed: they are never closed (H1).  Every change of a bound is recorded with its
reason.

Papers: Heartbeats 6, 6.1, 6.2, Figure 4, with errata H3, H12 to H17; D9, D10.

>>> cell = Cell(Learning(window=3, alpha=0.5))
>>> [cell.observe(estimate, at=n) and cell.distance for n, estimate in enumerate([9, 1, 1, 1])]
[9, None, None, 5]
"""

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from math import ceil
from typing import Final, Literal, TypeAlias

import numpy as np

from anabranch.batch.batch import NEVER_UNITS, Ints, Mask
from anabranch.clocks.pairs import MOST, Pair
from anabranch.clocks.summary import Summaries, bit_lengths
from anabranch.clocks.units import behind
from anabranch.errors import UsageError

Cause: TypeAlias = Literal["exceeded", "lowered", "quantile"]
KEPT_CHANGES: Final = 200
"""The number of changes that the trail keeps; all are counted."""
_RECENT: Final = 50
_FINE: Final = 5
"""Each power of two has 2^5 buckets of estimates: quantiles are at most 3 % too great."""


@dataclass(frozen=True, slots=True)
class Learning:
    """How bounds are learned; see the module.

    `window` is in rows, `window_wall` in wall-clock units; `waits` are those of the bounds,
    the last of them the horizon.  `across`: also between different sources, at a cost that
    grows with the square of their number.  `least` and `most` clamp the distance.
    """

    window: int | None = 1000
    window_wall: int | None = None
    alpha: float = 0.5
    adapts: bool = False
    target_loss: float | None = None
    waits: tuple[int, ...] = (0,)
    across: bool = False
    least: int = 0
    most: int | None = None
    warm_up: int = 100
    smallest_window: int = 2
    greatest_window: int = 10_000
    exceeded_share: float = 0.05
    lowerings: int = 3

    def __post_init__(self) -> None:
        waits = list(self.waits)
        rising = bool(waits) and waits == sorted(set(waits)) and waits[0] >= 0
        loss = self.target_loss
        checks = [
            (self.window is None or self.window > 0, f"window is {self.window}; expected 1 up"),
            (0 <= self.alpha <= 1, f"alpha is {self.alpha}; expected 0 to 1"),
            (loss is None or 0 < loss < 1, f"target_loss is {loss}; expected between 0 and 1"),
            (rising, f"waits are {waits}; expected some that rise, from 0 or more"),
            (0 <= self.least <= MOST, f"least is {self.least}; expected 0 to {MOST}"),
            (not waits or waits[-1] <= MOST, f"waits are {waits}; expected at most {MOST}"),
            (
                self.most is None or self.most >= self.least,
                f"most is {self.most}, below least, which is {self.least}",
            ),
            (
                loss is None or self.window is not None,
                "target_loss needs a window of rows, over which the share is counted",
            ),
        ]
        for good, what in checks:
            if not good:
                message = f"learned bounds: {what}"
                raise UsageError(message)


@dataclass(frozen=True, slots=True)
class Change:
    """A bound changed: of which two sources, after which wait, when, and why."""

    at: int
    source: str
    other: str
    wait: int
    before: int | None
    after: int
    cause: Cause

    def __str__(self) -> str:
        words = {
            "exceeded": "a row was farther behind",
            "lowered": "a whole window was nearer",
            "quantile": "the share of late rows moved it",
        }
        before = "nothing" if self.before is None else str(self.before)
        pair = f"{self.source} behind {self.other} after {self.wait}"
        return f"at {self.at}: {pair}: {before} -> {self.after}: {words[self.cause]}"


@dataclass(slots=True)
class Cell:
    """The bound of one (i, j, t), as Figure 4 keeps it, with its corrections."""

    spec: Learning
    delta: float = 0.0
    greatest: int = 0
    number: int = 0
    began: int | None = None
    seen: int = 0
    fresh: int | None = None
    window: int | None = None
    recent: list[bool] = field(default_factory=list)
    falls: int = 0
    old: dict[int, int] = field(default_factory=dict)
    young: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.window is None:
            self.window = self.spec.window

    @property
    def distance(self) -> int:
        """The bound as heartbeats use it: whole, and clamped."""
        most = self.spec.most
        found = max(ceil(self.delta), self.spec.least)
        return found if most is None else min(found, most)

    @property
    def is_warm(self) -> bool:
        """Whether enough was seen to release anything."""
        return self.seen >= self.spec.warm_up

    def as_asked(self) -> "Cell":
        """The cell as its settings have it, if others were in force when it was saved.

        A window that adapts goes on.  A quantile follows from other estimates than the
        greatest: a cell of the other kind begins again, and warms up.
        """
        counts = bool(self.old or self.young)
        if self.seen and counts != (self.spec.target_loss is not None):
            return Cell(self.spec)
        if not self.spec.adapts or None in (self.window, self.spec.window):
            self.window = self.spec.window
        return self

    def observe(
        self, estimate: int, *, at: int, rows: int = 1, fresh: bool = True
    ) -> Cause | None:
        """Take the greatest estimate of some rows; the cause if the bound changed.

        Rows that show nothing new (`fresh` false) can raise the bound, not lower it (H16).
        """
        self.seen += rows
        before = self.distance
        if self.began is None or at < self.began:
            self.began = at
        raised = estimate > self.delta
        self._remember(raised)
        if raised:
            self.delta, self.greatest, self.number, self.began = estimate, 0, 0, at
            self.falls = 0
        elif fresh:
            self.number += rows
            self.greatest = max(self.greatest, estimate)
            if self._is_over(at):
                self._lower(at)
        if self.distance == before:
            return None
        return "exceeded" if raised else "lowered"

    def count(self, estimates: Ints, number: Ints, *, at: int) -> Cause | None:
        """Take all estimates with their number; for a quantile.  The cause if it changed."""
        before, rows = self.distance, int(number.sum())
        young = self.young
        for bucket, some in zip(_buckets(estimates).tolist(), number.tolist(), strict=True):
            young[bucket] = young.get(bucket, 0) + some
        self.number += rows
        self.seen += rows
        self.delta = self._quantile()
        if self.window is not None and self.number >= self.window:
            self.old, self.young, self.number, self.began = self.young, {}, 0, at
        return None if self.distance == before else "quantile"

    def _quantile(self) -> int:
        old, young = self.old, self.young
        allowed = int((sum(old.values()) + self.number) * (self.spec.target_loss or 0))
        for bucket in sorted({*old, *young}, reverse=True):
            rows = old.get(bucket, 0) + young.get(bucket, 0)
            if rows > allowed:
                return _upper(bucket)
            allowed -= rows
        return 0

    def _is_over(self, at: int) -> bool:
        if self.spec.window_wall is not None:
            return at - (self.began or 0) >= self.spec.window_wall
        return self.window is not None and self.number >= self.window

    def _lower(self, at: int) -> None:
        alpha = self.spec.alpha
        lower = alpha * self.delta + (1 - alpha) * self.greatest
        # A bound that comes within 1 of the window's greatest would never reach it.
        near = alpha < 1 and lower - self.greatest < 1
        fallen = self.delta
        self.delta = float(self.greatest) if near else lower
        self.greatest, self.number, self.began = 0, 0, at
        if not self.spec.adapts or self.window is None:
            return
        self.falls = self.falls + 1 if self.delta < fallen else 0
        if self.falls >= self.spec.lowerings:
            self.window, self.falls = max(self.window // 2, self.spec.smallest_window), 0

    def _remember(self, raised: bool) -> None:  # noqa: FBT001
        if not self.spec.adapts or self.window is None:
            return
        self.recent = [*self.recent, raised][-_RECENT:]
        if raised and sum(self.recent) > self.spec.exceeded_share * _RECENT:
            self.window = min(self.window * 2, self.spec.greatest_window)
            self.recent = []


def _buckets(estimates: Ints) -> Ints:
    """The bucket of each estimate: exact below 2^5, then 2^5 of them for each power of two."""
    shift = np.maximum(bit_lengths(estimates) - _FINE - 1, 0)
    return (shift << (_FINE + 1)) + (estimates >> shift)


def _upper(bucket: int) -> int:
    """The greatest estimate of a bucket."""
    shift, high = bucket >> (_FINE + 1), bucket & ((1 << (_FINE + 1)) - 1)
    return ((high + 1) << shift) - 1


@dataclass(slots=True)
class Reach:
    """The greatest time of a source by tick, as far back as the horizon looks."""

    upto: list[int] = field(default_factory=list)
    greatest: list[int] = field(default_factory=list)

    def add(self, upto: int, greatest: int) -> None:
        """Rows of a tick.

        Ticks need not rise: an arrival in the future, by a wrong clock, counts when it is due
        and hides none that come before.
        """
        at = bisect_right(self.upto, upto)
        known = self.greatest[at - 1] if at else NEVER_UNITS
        self.upto.insert(at, upto)
        self.greatest.insert(at, max(known, greatest))
        for later in range(at + 1, len(self.upto)):
            self.greatest[later] = max(self.greatest[later], greatest)

    def until(self, at: int) -> tuple[int, int] | None:
        """The last tick up to a time, and the greatest time by then."""
        place = bisect_right(self.upto, at)
        return (self.upto[place - 1], self.greatest[place - 1]) if place else None

    def forget(self, before: int) -> None:
        """Ticks before a time are only needed for their greatest."""
        place = bisect_right(self.upto, before)
        if place > 1:
            del self.upto[: place - 1], self.greatest[: place - 1]


class Learner:
    """All bounds between some sources; fed with summaries, asked for heartbeats."""

    def __init__(self, spec: Learning) -> None:
        self.spec = spec
        self.cells: dict[tuple[str, str, int], Cell] = {}
        self.reach: dict[str, Reach] = {}
        self.trail: list[Change] = []
        self.changes = 0

    def has_cell(self, other: str, name: str, wait: int) -> bool:
        """Whether there is such a bound; one that is not taught must promise nothing."""
        return wait in self.spec.waits and (self.spec.across or other == name)

    def learn(self, lines: Summaries) -> list[Change]:
        """Take the lines of a step, tick by tick; the bounds that changed."""
        found: list[Change] = []
        order = np.lexsort((lines.source, lines.upto))
        order = order[lines.count[order] > 0]
        for first, last in _equal(lines.upto[order]):
            tick = order[first:last].tolist()
            for line in tick:
                found += self._teach(lines, line)
            for line in tick:
                name = lines.names[lines.source[line]]
                reach = self.reach.setdefault(name, Reach())
                reach.add(int(lines.upto[line]), int(lines.greatest[line]))
        self.changes += len(found)
        self.trail = [*self.trail, *found][-KEPT_CHANGES:]
        return found

    def _teach(self, lines: Summaries, line: int) -> Iterator[Change]:
        name, after = lines.names[lines.source[line]], int(lines.after[line])
        # In one order: lanes, and states that were saved, record the same changes.
        others = sorted(self.reach) if self.spec.across else [name] * (name in self.reach)
        for other in others:
            for wait in self.spec.waits:
                seen = self.reach[other].until(after - wait)
                if seen is None:
                    continue
                cell = self.cells.setdefault((other, name, wait), Cell(self.spec))
                before = cell.distance if cell.seen else None
                cause = self._observe(cell, lines, line, seen)
                if cause is not None:
                    at = int(lines.upto[line])
                    yield Change(at, name, other, wait, before, cell.distance, cause)

    def _observe(
        self, cell: Cell, lines: Summaries, line: int, seen: tuple[int, int]
    ) -> Cause | None:
        tick, greatest = seen
        fresh, cell.fresh = cell.fresh != tick, tick
        at = int(lines.upto[line])
        if self.spec.target_loss is None:
            estimate = max(greatest - int(lines.least[line]) + 1, 0)
            return cell.observe(estimate, at=at, rows=int(lines.count[line]), fresh=fresh)
        if not fresh:
            return None
        if lines.histograms is None:
            message = "target_loss needs summaries with histogram=True"
            raise UsageError(message)
        first, _, number = lines.histograms.of(line)
        estimates = behind(greatest, np.maximum(first, lines.least[line]))
        return cell.count(estimates, number, at=at)

    def bounds_of(self, name: str) -> tuple[Pair, ...]:
        """What a source has learned of itself, where it may be used."""
        found = [(wait, self.cells.get((name, name, wait))) for wait in self.spec.waits]
        return tuple(Pair(wait, cell.distance) for wait, cell in found if cell and cell.is_warm)

    def unready(self, name: str) -> str:
        """Why a source promises nothing."""
        own = (self.cells.get((name, name, wait)) for wait in self.spec.waits)
        seen = max((cell.seen for cell in own if cell), default=0)
        return f"learns its bound: {seen} of {self.spec.warm_up} rows that it needs first"

    def forget(self, names: Collection[str]) -> None:
        """Sources that are gone."""
        gone = set(names)
        self.cells = {key: one for key, one in self.cells.items() if not gone & {*key[:2]}}
        self.reach = {name: one for name, one in self.reach.items() if name not in gone}

    def raise_heartbeats(
        self, heartbeat: Ints, place: Callable[[str], int], now: int, held: Mask
    ) -> None:
        """Raise heartbeats to what is known now; of a blocked source by its own rows alone."""
        for (other, name, wait), cell in self.cells.items():
            at = place(name)
            if held[at] and (other != name or wait):
                continue
            seen = self.reach[other].until(now - wait)
            if seen is not None and cell.is_warm:
                heartbeat[at] = max(int(heartbeat[at]), seen[1] - cell.distance)
        for reach in self.reach.values():
            reach.forget(now - self.spec.waits[-1])


def _equal(values: Ints) -> Iterator[tuple[int, int]]:
    """The runs of equal values: first and last place."""
    edges = np.flatnonzero(values[1:] != values[:-1]) + 1
    ends = [0, *edges.tolist(), len(values)]
    yield from (pair for pair in pairwise(ends) if pair[0] < pair[1])
