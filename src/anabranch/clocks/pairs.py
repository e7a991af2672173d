"""Sets of skew bounds between two sources, and the algebra on them.

A `Pair` (wait, distance) from source i to source j promises: if i emits a row of time tau at
wall-clock time c, then every row that j emits after c + wait has a time above tau - distance.
With `rows`, the wait is a number of rows that j emits, not a span of the wall clock.  A set of
pairs promises what each of them does; the empty set promises nothing.

Waits are wall-clock microseconds (or any fixed unit of the wall clock), distances are units of
application time; both are whole numbers.

Papers: Heartbeats 2, 3.1, 3.2 (reduced sets, the product), 5.2 (S+ and the weakest of two).

>>> show_pairs(reduce_pairs([Pair(0, 5), Pair(2, 7), Pair(3, 1)]))
'(0, 5) (3, 1)'
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Final, TypeAlias

from anabranch.errors import UsageError

MOST: Final = 1 << 62
"""The greatest wait or distance, half of what a column of times holds."""


@dataclass(frozen=True, slots=True, order=True)
class Pair:
    """One skew bound: after `wait`, at most `distance` behind."""

    wait: int
    distance: int
    rows: bool = False

    def __post_init__(self) -> None:
        for name, value in (("wait", self.wait), ("distance", self.distance)):
            if isinstance(value, bool) or not isinstance(value, int):
                message = f"a bound has the {name} {value!r}; expected a whole number of units"
                raise UsageError(message)
            if not 0 <= value <= MOST:
                more = "0 or more" if value < 0 else f"at most {MOST}"
                message = f"a bound has the {name} {value}; expected {more}"
                raise UsageError(message)

    def __str__(self) -> str:
        wait = f"{self.wait} rows" if self.rows else str(self.wait)
        return f"({wait}, {self.distance})"


Pairs: TypeAlias = tuple[Pair, ...]
"""A set of pairs, sorted; without pairs nothing is promised."""


def timed(pairs: Iterable[Pair]) -> Pairs:
    """The pairs whose wait is a span of the wall clock."""
    return tuple(pair for pair in pairs if not pair.rows)


def counted(pairs: Iterable[Pair]) -> Pairs:
    """The pairs whose wait is a number of rows."""
    return tuple(pair for pair in pairs if pair.rows)


def by_time(pairs: Iterable[Pair]) -> Pairs:
    """The pairs whose effect needs no count: a count of no rows is a wait of no time.

    >>> show_pairs(by_time([Pair(0, 1), Pair(0, 0, rows=True), Pair(2, 0, rows=True)]))
    '(0, 1) (0, 0)'
    """
    found = tuple(pairs)
    none = (Pair(0, pair.distance) for pair in counted(found) if not pair.wait)
    return (*timed(found), *none)


def reduce_pairs(pairs: Iterable[Pair]) -> Pairs:
    """The set without pairs that another one makes redundant (S-).

    A pair is redundant if another one of its kind promises as much, no later.
    """
    kept: list[Pair] = []
    for rows in (False, True):
        least: int | None = None
        for pair in sorted(pair for pair in pairs if pair.rows is rows):
            if least is None or pair.distance < least:
                kept.append(pair)
                least = pair.distance
    return tuple(kept)


def chain(first: Iterable[Pair], second: Iterable[Pair]) -> Pairs:
    """What follows from a bound on k and a bound of k: waits and distances add up.

    Pairs that count rows are left out: a count of rows and then a span is no pair (H6).
    """
    pairs = ((one, other) for one in timed(first) for other in timed(second))
    sums = ((one.wait + other.wait, one.distance + other.distance) for one, other in pairs)
    # What is beyond the greatest bound promises nothing.
    return tuple(Pair(*both) for both in sums if max(both) <= MOST)


def weakest(sets: Sequence[Iterable[Pair]]) -> Pairs:
    """What all of these sets promise, at every wait: the bound of a group.

    Each set is read as a staircase (S+: between two pairs, the earlier one holds); the result
    is reduced.  An empty set empties the result, and pairs that count rows are left out.
    """
    stairs = [reduce_pairs(timed(one)) for one in sets]
    if not stairs or not all(stairs):
        return ()
    return reduce(_weaker, stairs)


def _weaker(one: Pairs, other: Pairs) -> Pairs:
    waits = sorted({pair.wait for pair in (*one, *other)})
    first = max(one[0].wait, other[0].wait)
    return reduce_pairs(
        Pair(wait, max(distance_at(one, wait), distance_at(other, wait)))
        for wait in waits
        if wait >= first
    )


def distance_at(pairs: Iterable[Pair], wait: int) -> int:
    """The least distance that is promised after this wait; there must be one.

    >>> [distance_at([Pair(1, 2), Pair(3, 1)], wait) for wait in (1, 2, 3, 9)]
    [2, 2, 1, 1]
    """
    return min(pair.distance for pair in timed(pairs) if pair.wait <= wait)


def expanded(pairs: Iterable[Pair], waits: Iterable[int]) -> Pairs:
    """S+: the strongest promise at each of these waits, redundant or not.

    >>> show_pairs(expanded([Pair(1, 2), Pair(3, 1)], range(4)))
    '(1, 2) (2, 2) (3, 1)'
    """
    own = timed(pairs)
    first = min((pair.wait for pair in own), default=None)
    if first is None:
        return ()
    return tuple(Pair(wait, distance_at(own, wait)) for wait in waits if wait >= first)


def delayed(pairs: Iterable[Pair], latency: int) -> Pairs:
    """The pairs that take a time, counted from one arrival to another (D11)."""
    waits = ((pair.wait + latency, pair.distance) for pair in timed(pairs))
    return tuple(Pair(*both) for both in waits if both[0] <= MOST)


def show_pairs(pairs: Iterable[Pair]) -> str:
    """The pairs in one line; `-` is the empty set."""
    return " ".join(map(str, pairs)) or "-"
