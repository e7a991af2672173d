"""Bounds on skew, disorder and delay of sources, from which heartbeats are inferred.

`Bounds` names its sources and has a set of pairs for each two of them; the diagonal bounds the
disorder of a source.  `Alike` is the same for any number of sources that are all alike, named
or not.  Both are frozen, validated when they are made, and have

* `latency`: how long a row of a source is under way at most;
* `fifo`: rows of a source arrive in the order of emission, and are emitted one after the other
  (H10), so that a row speaks of all rows that arrive behind it, without the latency;
* `meaning`: `observed` (a bound speaks only when a source emits a row) or `clock` (it speaks
  of the source's clock, so that what follows indirectly may be used: the closure B*).
  `observed` is sound either way, and is never closed (H1, D1);
* `delay`: rows have timestamps, and arrive at most this span after their time;
* `timeout`: if no source sends anything for this span, all have reached the greatest
  time seen; at least the greatest wait and latency (H18).

Papers: Heartbeats 2, 3.1, 3.2, 3.4, with errata H1, H6, H8, H10, H18, H21; D1, D12.

>>> both = Bounds.of({("a", "a"): [Pair(0, 0)], ("a", "b"): [Pair(1, 1)]})
>>> both.needs_timeout()
True
>>> Alike(own=(Pair(0, 0),), others=(Pair(5, 0),)).needs_timeout()
False
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Literal, TypeAlias, get_args

from anabranch.clocks.pairs import (
    MOST,
    Pair,
    Pairs,
    by_time,
    chain,
    counted,
    reduce_pairs,
    show_pairs,
    timed,
)
from anabranch.errors import UsageError

Meaning: TypeAlias = Literal["observed", "clock"]
Matrix: TypeAlias = tuple[tuple[Pairs, ...], ...]


def product(one: Matrix, other: Matrix) -> Matrix:
    """B * B': what follows from one step of each, beside what both had; reduced.

    Pairs that count rows stay as they are (D12).
    """
    size = range(len(one))
    return tuple(
        tuple(
            reduce_pairs(
                [
                    *one[i][j],
                    *other[i][j],
                    *(pair for k in size for pair in chain(one[i][k], other[k][j])),
                ]
            )
            for j in size
        )
        for i in size
    )


def reduced(matrix: Matrix) -> Matrix:
    """The matrix with each of its sets reduced."""
    return tuple(tuple(reduce_pairs(pairs) for pairs in row) for row in matrix)


def is_idempotent(matrix: Matrix) -> bool:
    """Whether nothing follows indirectly: one product of the reduced matrix decides (H21)."""
    own = reduced(matrix)
    return product(own, own) == own


def closure(matrix: Matrix) -> Matrix:
    """B*: all that follows over any number of steps.  Only for clocks, never for `observed`."""
    found = reduced(matrix)
    while (longer := product(found, found)) != found:
        found = longer
    return found


@dataclass(frozen=True, slots=True)
class Bounds:
    """Named sources and the bounds between each two of them; see the module.

    `pairs[i][j]` are the bounds that a row of source i puts on source j.
    """

    sources: tuple[str, ...]
    pairs: Matrix
    latency: tuple[int, ...]
    fifo: tuple[bool, ...]
    meaning: Meaning = "observed"
    delay: int | None = None
    timeout: int | None = None

    @classmethod
    def of(
        cls,
        pairs: Mapping[tuple[str, str], Iterable[Pair]],
        *,
        latency: Mapping[str, int] | int = 0,
        fifo: Mapping[str, bool] | bool = False,
        meaning: Meaning = "observed",
        delay: int | None = None,
        timeout: int | None = None,
        sources: Iterable[str] = (),
    ) -> "Bounds":
        """Bounds by (from, to); an absent entry is empty.  Sources are those that are named."""
        by_source = latency if isinstance(latency, Mapping) else {}
        in_order = fifo if isinstance(fifo, Mapping) else {}
        names = tuple(dict.fromkeys([*sources, *(name for both in pairs for name in both)]))
        for name in (*by_source, *in_order):
            if name not in names:
                near = get_close_matches(name, names, n=1)
                hint = f"; did you mean {near[0]!r}?" if near else ""
                message = f"bounds: {name!r} is none of the sources {list(names)}{hint}"
                raise UsageError(message)
        return cls(
            names,
            tuple(
                tuple(tuple(sorted(set(pairs.get((one, to), ())))) for to in names)
                for one in names
            ),
            tuple(latency if isinstance(latency, int) else by_source.get(n, 0) for n in names),
            tuple(fifo if isinstance(fifo, bool) else in_order.get(n, False) for n in names),
            meaning,
            delay,
            timeout,
        )

    def __post_init__(self) -> None:
        count = len(self.sources)
        _require_shape(self, count)
        for name, units in zip(self.sources, self.latency, strict=True):
            _require_span(units, f"the latency of source {name!r}")
        _require_common(self.meaning, self.delay, self.timeout)
        longest = max(
            [
                *self.latency,
                *(
                    pair.wait + self.latency[j]
                    for row in self.effective
                    for j, pairs in enumerate(row)
                    for pair in timed(pairs)
                ),
            ],
            default=0,
        )
        _require_timeout(self.timeout, longest)

    def __str__(self) -> str:
        rows = [
            f"{one} -> {to}: {show_pairs(self.pairs[i][j])}"
            for i, one in enumerate(self.sources)
            for j, to in enumerate(self.sources)
            if self.pairs[i][j]
        ]
        return "\n".join([f"{self.meaning} bounds of {', '.join(self.sources)}", *rows])

    @property
    def effective(self) -> Matrix:
        """The sets that heartbeats use: B* if these are clocks, else B; reduced."""
        return closure(self.pairs) if self.meaning == "clock" else reduced(self.pairs)

    def needs_timeout(self) -> bool:
        """Whether rows may wait for ever for the next row, if all sources pause (Theorem 3.3).

        Only pairs that take a time count, or no time and no row: a number of rows may never
        be complete (H8).
        """
        if self.delay is not None or self.timeout is not None:
            return False
        return any(
            all(pair.distance for pair in by_time(pairs))
            for row in self.effective
            for pairs in row
        )

    def index(self, name: str) -> int:
        """The place of a source; UsageError if there is no such."""
        if name not in self.sources:
            message = f"there are no bounds for source {name!r}, only for {list(self.sources)}"
            raise UsageError(message)
        return self.sources.index(name)


@dataclass(frozen=True, slots=True)
class Alike:
    """Any number of sources that are alike; see the module.

    `own` bounds the disorder of each source, `others` how far any source is behind any other.
    """

    own: Pairs = ()
    others: Pairs = ()
    latency: int = 0
    fifo: bool = False
    meaning: Meaning = "observed"
    delay: int | None = None
    timeout: int | None = None

    def __post_init__(self) -> None:
        _require_span(self.latency, "the latency")
        _require_common(self.meaning, self.delay, self.timeout)
        waits = [pair.wait for pair in (*self.own_among(2), *self.others) if not pair.rows]
        _require_timeout(self.timeout, max([0, *waits]) + self.latency)

    def own_among(self, sources: int) -> Pairs:
        """The disorder that heartbeats use, where there is this number of sources.

        What follows over another source and back is all that a closure adds: a longer way
        between two sources is never stronger than the direct one.  Over no other source
        nothing follows.
        """
        closes = self.meaning == "clock" and sources > 1
        there_and_back = chain(self.others, self.others) if closes else ()
        return reduce_pairs([*self.own, *there_and_back])

    @property
    def effective_others(self) -> Pairs:
        """The skew that heartbeats use."""
        return reduce_pairs(self.others)

    def needs_timeout(self, sources: int | None = None) -> bool:
        """As `Bounds.needs_timeout`, for this number of sources; without one, for several."""
        if self.delay is not None or self.timeout is not None:
            return False
        sets = [self.own_among(2 if sources is None else sources)]
        if sources is None or sources > 1:
            sets.append(self.effective_others)
        return any(all(pair.distance for pair in by_time(pairs)) for pairs in sets)

    def named(self, sources: Iterable[str]) -> Bounds:
        """The same bounds as a matrix of these sources."""
        names = tuple(sources)
        return Bounds.of(
            {
                (one, to): self.own if one == to else self.others
                for one in names
                for to in names
            },
            latency=self.latency,
            fifo=self.fifo,
            meaning=self.meaning,
            delay=self.delay,
            timeout=self.timeout,
        )


AnyBounds: TypeAlias = Bounds | Alike


def with_timeout(bounds: Bounds | Alike, timeout: int) -> Bounds | Alike:
    """The same bounds with a timeout."""
    return replace(bounds, timeout=timeout)


def counts_rows(bounds: Bounds | Alike) -> bool:
    """Whether any of the pairs counts rows."""
    sets = (
        [*bounds.own, *bounds.others]
        if isinstance(bounds, Alike)
        else [pair for row in bounds.pairs for pairs in row for pair in pairs]
    )
    return bool(counted(sets))


def _require_shape(bounds: Bounds, count: int) -> None:
    if not count:
        message = "bounds need at least one source; use Alike for sources that have no names"
        raise UsageError(message)
    if len(set(bounds.sources)) != count:
        message = f"bounds name a source twice: {list(bounds.sources)}"
        raise UsageError(message)
    sides = {len(bounds.pairs), *map(len, bounds.pairs), len(bounds.latency), len(bounds.fifo)}
    if sides != {count}:
        message = (
            f"bounds of {count} sources need {count} rows and columns, and as many latencies "
            f"and fifo flags; these have {sorted(sides)}; Bounds.of fills in what is absent"
        )
        raise UsageError(message)


def _require_span(units: int, what: str) -> None:
    if isinstance(units, bool) or not isinstance(units, int) or not 0 <= units <= MOST:
        message = f"{what} is {units!r}; expected a whole number of units, 0 to {MOST}"
        raise UsageError(message)


def _require_common(meaning: str, delay: int | None, timeout: int | None) -> None:
    if meaning not in get_args(Meaning):
        message = f"the meaning of bounds is {meaning!r}; expected 'observed' or 'clock'"
        raise UsageError(message)
    for what, units in (("the delay", delay), ("the timeout", timeout)):
        if units is not None:
            _require_span(units, what)


def _require_timeout(timeout: int | None, longest: int) -> None:
    if timeout is not None and timeout < longest:
        message = (
            f"the timeout is {timeout}, but a row may be announced and still be under way for "
            f"{longest} (the greatest wait plus latency); give a timeout of at least {longest}"
        )
        raise UsageError(message)
