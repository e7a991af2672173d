"""Bounds as a clock uses them: which promises a line of a summary makes, for what and when.

Lines come by *key* (a source); heartbeats are kept by *unit* (a source, or a group of them).
Latency is added to the waits here, once, for the unit that is promised about (Lemma 3.1).

Papers: Heartbeats 3 (line 4 of Figure 2), 5.2, with errata H5, H6, H10; D11.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, TypeAlias

import numpy as np

from anabranch.batch.batch import FOREVER_UNITS, Ints
from anabranch.clocks.bounds import Alike, Bounds, Matrix, counts_rows
from anabranch.clocks.pairs import Pair, Pairs, by_time, counted, weakest
from anabranch.clocks.units import less, more

Made: TypeAlias = tuple[Ints, Ints, Ints]
"""Promises as columns: unit, due, value."""


@dataclass(frozen=True, slots=True)
class RowRule:
    """A promise that counts rows of a unit: how many, and what is due when they have come."""

    unit: int
    rows: int
    distance: int
    before: int
    """Rows count that come more than this span after the row that promises."""
    latency: int
    """It takes effect this span after the last of them."""


class Rules(Protocol):
    """What lines promise."""

    @property
    def delay(self) -> int | None:
        """Rows arrive at most this span after their time."""

    @property
    def timeout(self) -> int | None:
        """After such a silence of all, all have reached the greatest time."""

    @property
    def counts_rows(self) -> bool:
        """Whether any promise counts rows."""

    def knows(self, name: str) -> bool:
        """Whether there are bounds for a source."""

    def unit_of(self, name: str) -> str:
        """The unit that a source belongs to."""

    def units(self) -> Sequence[str]:
        """Units that are there from the beginning, in their order."""

    def promises(self, key: Ints, upto: Ints, greatest: Ints, names: Sequence[str]) -> Made:
        """What lines promise by time; `key` is the place of each line's source in `names`.

        Where sources are units, `names` are all units, in their order.
        """

    def own(self, unit: str) -> Pairs:
        """The bounds of a unit on itself, for people."""

    def at_once(self, name: str) -> int | None:
        """The distance that a source promises about itself with its row, without any wait."""

    def row_rules(self, name: str, units: Sequence[str]) -> Sequence[RowRule]:
        """Its promises that count rows."""


def _no_promises() -> Made:
    empty = np.empty(0, np.int64)
    return empty, empty, empty


def _at_once(pairs: Pairs, latency: int, *, fifo: bool) -> int | None:
    found = [p.distance for p in pairs if not p.wait and (fifo or not latency)]
    return min(found, default=None)


def _wait(pair: Pair, latency: int, *, in_order: bool) -> int:
    return 0 if in_order and not pair.wait else min(pair.wait + latency, FOREVER_UNITS)


@dataclass(frozen=True)
class AlikeRules:
    """Any number of sources that are alike: keys are units."""

    bounds: Alike

    @property
    def delay(self) -> int | None:
        """See `Rules`."""
        return self.bounds.delay

    @property
    def timeout(self) -> int | None:
        """See `Rules`."""
        return self.bounds.timeout

    @cached_property
    def counts_rows(self) -> bool:
        """See `Rules`."""
        return counts_rows(self.bounds)

    def knows(self, name: str) -> bool:  # noqa: ARG002
        """Every source."""
        return True

    def unit_of(self, name: str) -> str:
        """Itself."""
        return name

    def units(self) -> Sequence[str]:
        """None: they are found."""
        return ()

    def promises(self, key: Ints, upto: Ints, greatest: Ints, names: Sequence[str]) -> Made:
        """What each line promises its own source, and all others."""
        latency, made = self.bounds.latency, [_no_promises()]
        for pair in by_time(self.bounds.own_among(len(names))):
            wait = _wait(pair, latency, in_order=self.bounds.fifo)
            made.append((key, more(upto, wait), less(greatest, pair.distance)))
        others = by_time(self.bounds.effective_others)
        if others and len(names) > 1:
            unit = np.tile(np.arange(len(names)), len(key))
            line = np.repeat(np.arange(len(key)), len(names))
            other = unit != key[line]
            unit, line = unit[other], line[other]
            for pair in others:
                due = more(more(upto, pair.wait), latency)[line]
                made.append((unit, due, less(greatest, pair.distance)[line]))
        unit, due, value = (np.concatenate(columns) for columns in zip(*made, strict=True))
        return unit, due, value

    def own(self, unit: str) -> Pairs:  # noqa: ARG002
        """The same for all."""
        return self.bounds.own_among(1)

    def at_once(self, name: str) -> int | None:  # noqa: ARG002
        """The same for all, from what a source states of itself."""
        own = self.bounds.own_among(1)
        return _at_once(own, self.bounds.latency, fifo=self.bounds.fifo)

    def row_rules(self, name: str, units: Sequence[str]) -> Sequence[RowRule]:
        """Own pairs to itself, others to all others."""
        found = []
        for unit, to in enumerate(units):
            own = self.bounds.own_among(len(units))
            pairs = own if to == name else self.bounds.effective_others
            in_order = to == name and self.bounds.fifo
            found += _row_rules(unit, pairs, self.bounds.latency, in_order=in_order)
        return found


@dataclass(frozen=True)
class MatrixRules:
    """Named sources, each a unit of its own."""

    bounds: Bounds

    @cached_property
    def matrix(self) -> Matrix:
        """The sets that are used: closing them costs, so it is done once."""
        return self.bounds.effective

    @property
    def delay(self) -> int | None:
        """See `Rules`."""
        return self.bounds.delay

    @property
    def timeout(self) -> int | None:
        """See `Rules`."""
        return self.bounds.timeout

    @cached_property
    def counts_rows(self) -> bool:
        """See `Rules`."""
        return counts_rows(self.bounds)

    def knows(self, name: str) -> bool:
        """Those that the bounds name."""
        return name in self.bounds.sources

    def unit_of(self, name: str) -> str:
        """Itself, if there are bounds for it."""
        return self.bounds.sources[self.bounds.index(name)]

    def units(self) -> Sequence[str]:
        """All sources."""
        return self.bounds.sources

    def promises(self, key: Ints, upto: Ints, greatest: Ints, names: Sequence[str]) -> Made:
        """What each line promises all sources."""
        made = [_no_promises()]
        for at, mine in _by_key(key):
            i = self.bounds.index(names[at])
            in_order = [i == j and fifo for j, fifo in enumerate(self.bounds.fifo)]
            rules = [
                (j, _wait(pair, self.bounds.latency[j], in_order=in_order[j]), pair.distance)
                for j, pairs in enumerate(self.matrix[i])
                for pair in by_time(pairs)
            ]
            made.append(_outer(np.array(rules, np.int64), upto[mine], greatest[mine]))
        unit, due, value = (np.concatenate(columns) for columns in zip(*made, strict=True))
        return unit, due, value

    def own(self, unit: str) -> Pairs:
        """See `Rules`."""
        i = self.bounds.index(unit)
        return self.matrix[i][i]

    def at_once(self, name: str) -> int | None:
        """See `Rules`."""
        i = self.bounds.index(name)
        own = self.matrix[i][i]
        return _at_once(own, self.bounds.latency[i], fifo=self.bounds.fifo[i])

    def row_rules(self, name: str, units: Sequence[str]) -> Sequence[RowRule]:
        """See `Rules`."""
        i, found = self.bounds.index(name), []
        for unit, to in enumerate(units):
            j = self.bounds.index(to)
            in_order = i == j and self.bounds.fifo[j]
            pairs, latency = self.matrix[i][j], self.bounds.latency[j]
            found += _row_rules(unit, pairs, latency, in_order=in_order)
        return found


@dataclass(frozen=True)
class GroupRules:
    """Named sources in groups: `rows[source][group]` has the latency in its waits (D11)."""

    groups: tuple[str, ...]
    group_of: dict[str, str]
    rows: dict[str, tuple[Pairs, ...]]
    delay: int | None = None
    timeout: int | None = None
    counts_rows: bool = False

    def knows(self, name: str) -> bool:
        """Those that are in a group."""
        return name in self.group_of

    def unit_of(self, name: str) -> str:
        """The group of a source."""
        return self.group_of[name]

    def units(self) -> Sequence[str]:
        """All groups."""
        return self.groups

    def promises(self, key: Ints, upto: Ints, greatest: Ints, names: Sequence[str]) -> Made:
        """What each line promises all groups."""
        made = [_no_promises()]
        for at, mine in _by_key(key):
            rules = [
                (unit, pair.wait, pair.distance)
                for unit, pairs in enumerate(self.rows[names[at]])
                for pair in pairs
            ]
            made.append(_outer(np.array(rules, np.int64), upto[mine], greatest[mine]))
        unit, due, value = (np.concatenate(columns) for columns in zip(*made, strict=True))
        return unit, due, value

    def own(self, unit: str) -> Pairs:
        """What a row of any member promises the group, with the latency."""
        at = self.groups.index(unit)
        return weakest(
            [self.rows[name][at] for name, of in self.group_of.items() if of == unit]
        )

    def at_once(self, name: str) -> int | None:  # noqa: ARG002
        """Nothing: a row of one member does not speak for the others."""
        return None

    def row_rules(self, name: str, units: Sequence[str]) -> Sequence[RowRule]:  # noqa: ARG002
        """None: pairs that count rows are not for groups (D12)."""
        return ()


def _row_rules(unit: int, pairs: Pairs, latency: int, *, in_order: bool) -> list[RowRule]:
    used = 0 if in_order else latency
    return [
        RowRule(unit, pair.wait, pair.distance, used, used)
        for pair in counted(pairs)
        if pair.wait
    ]


def _by_key(key: Ints) -> Iterator[tuple[int, Ints]]:
    """Each key, and its lines in their order; sorted once, however many keys there are."""
    if not len(key):
        return iter(())
    order = np.argsort(key, kind="stable")
    keys, first = np.unique(key[order], return_index=True)
    return zip(keys.tolist(), np.split(order, first[1:]), strict=True)


def _outer(rules: Ints, upto: Ints, greatest: Ints) -> Made:
    """Each rule (unit, wait, distance) for each line."""
    if not len(rules):
        return _no_promises()
    unit = np.repeat(rules[:, 0], len(upto))
    due = np.concatenate([more(upto, wait) for wait in rules[:, 1].tolist()])
    value = np.concatenate([less(greatest, distance) for distance in rules[:, 2].tolist()])
    return unit, due, value
