"""Which bounds a recorded stream would have needed, and what each of them loses.

`estimate` reads columns of a recording: times, sources, and arrivals if they are known (else
the order of the rows is the order of arrival).  For each row it finds how far it is behind the
greatest time before it (its disorder), and how long after its own time it arrived (its delay).
From these follow the least bounds that lose nothing, the bounds that lose a given share, and
the share that any bound loses.

A row is late under a disorder d if it is more than d behind the greatest time that arrived at
an earlier instant: as if the watermark moved with every row.  An engine that moves it once a
trigger loses less, never more.

Papers: Heartbeats 6.1 (B' over all of a recording), 2 (bounds with a confidence), with H12.

>>> found = estimate([10, 20, 15, 30, 12], ["a"] * 5)
>>> found.disorder.needed(0.0), found.disorder.needed(0.2)
(18, 5)
>>> found.disorder.share_late(5)
0.2
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise, permutations
from typing import Any

import numpy as np

from anabranch.batch.batch import Ints
from anabranch.clocks.bounds import Alike, Bounds
from anabranch.clocks.pairs import Pair
from anabranch.errors import UsageError


@dataclass(frozen=True, eq=False)
class Distances:
    """How far rows are behind something, sorted; `needed` and `share_late` ask both ways."""

    sorted: Ints

    @classmethod
    def of(cls, values: Ints) -> "Distances":
        """Distances in any order."""
        return cls(np.sort(values))

    def __len__(self) -> int:
        return len(self.sorted)

    def needed(self, loss: float) -> int:
        """The least bound under which at most this share of the rows is late."""
        if not len(self.sorted):
            return 0
        late = min(int(loss * len(self.sorted) + 1e-9), len(self.sorted) - 1)
        return int(self.sorted[len(self.sorted) - 1 - late])

    def late(self, bound: int) -> int:
        """How many rows are late under a bound."""
        return len(self.sorted) - int(np.searchsorted(self.sorted, bound, side="right"))

    def share_late(self, bound: int) -> float:
        """The share of the rows that is late under a bound."""
        return self.late(bound) / len(self.sorted) if len(self.sorted) else 0.0

    def curve(self, most: int = 200) -> list[tuple[int, float]]:
        """Bounds and the share that each loses, from 0 to the bound that loses nothing."""
        if not len(self.sorted):
            return []
        values = np.unique(np.concatenate([[0], self.sorted]))
        if len(values) > most:
            places = np.unique(np.linspace(0, len(values) - 1, most).astype(np.int64))
            # The last rows are the interesting ones: take each share's bound as well.
            ends = [self.needed(10.0 ** (-n / 8)) for n in range(48)]
            values = np.unique(np.concatenate([values[places], ends]))
        return [(int(value), self.share_late(int(value))) for value in values]


@dataclass(frozen=True, eq=False)
class SourceEstimate:
    """One source: its disorder; its delay and longest pause, if arrivals are known."""

    name: str
    rows: int
    disorder: Distances
    delay: Distances | None
    pause: int | None


@dataclass(frozen=True, eq=False)
class Estimate:
    """What a recording shows.

    `disorder` is of all rows as one stream, which is what the watermark of one DataFrame is
    about; `by_source` that of each source.  `skew` has, for two sources (i, j), how far rows
    of j are behind i.
    """

    rows: int
    disorder: Distances
    delay: Distances | None
    by_source: tuple[SourceEstimate, ...]
    skew: dict[tuple[str, str], Distances] = field(default_factory=dict)

    def alike(self, loss: float = 0.0) -> Alike:
        """One bound for every source alone: the greatest that any of them needs."""
        needed = max((one.disorder.needed(loss) for one in self.by_source), default=0)
        return Alike(own=(Pair(0, needed + 1),))

    def bounds(self, loss: float = 0.0) -> Bounds:
        """The bounds of each source, and between two of them where they were measured.

        At arrival, so latency is part of them; observed, so they are never closed.
        """
        pairs = {
            (one.name, one.name): [Pair(0, one.disorder.needed(loss) + 1)]
            for one in self.by_source
        }
        for both, found in self.skew.items():
            pairs[both] = [Pair(0, found.needed(loss) + 1)]
        return Bounds.of(pairs)

    @property
    def pause(self) -> int | None:
        """The longest time that a source sent nothing between two rows."""
        known = [one.pause for one in self.by_source if one.pause is not None]
        return max(known, default=None)


MOST_PAIRS = 12
"""Skew between sources is measured up to this number of sources."""


def estimate(
    times: Any, sources: Sequence[str], arrivals: Any | None = None, *, delays: bool = True
) -> Estimate:
    """What the rows show; `delays`: arrivals and times are of one clock."""
    place: dict[str, int] = {}
    codes = [place.setdefault(str(name), len(place)) for name in sources]
    return estimate_coded(times, tuple(place), codes, arrivals, delays=delays)


def estimate_coded(
    times: Any,
    names: Sequence[str],
    source: Any,
    arrivals: Any | None = None,
    *,
    delays: bool = True,
) -> Estimate:
    """The same; `source` are places in `names`, which are different ones."""
    time, code = np.asarray(times, np.int64), np.asarray(source, np.int64)
    known = arrivals is not None
    arrival = np.asarray(arrivals, np.int64) if known else np.arange(len(time))
    if not len(time) == len(code) == len(arrival):
        message = (
            f"times, sources and arrivals have different lengths: {len(time)}, {len(code)}, "
            f"{len(arrival)}"
        )
        raise UsageError(message)
    if not bool((arrival[1:] >= arrival[:-1]).all()):
        order = np.argsort(arrival, kind="stable")
        time, arrival, code = time[order], arrival[order], code[order]
    delay = np.maximum(arrival - time, 0) if known and delays else None
    by_name = sorted(range(len(names)), key=lambda at: names[at])
    rows = _by_code(code, len(names))
    found = tuple(
        SourceEstimate(
            names[at],
            len(mine),
            Distances.of(_behind(time[mine], arrival[mine], time[mine], arrival[mine])),
            None if delay is None else Distances.of(delay[mine]),
            int(np.diff(arrival[mine]).max()) if known and len(mine) > 1 else None,
        )
        for at in by_name
        for mine in [rows[at]]
    )
    skew = {}
    if len(names) <= MOST_PAIRS:
        for i, j in permutations(by_name, 2):
            one, to = rows[i], rows[j]
            behind = _behind(time[one], arrival[one], time[to], arrival[to])
            skew[names[i], names[j]] = Distances.of(behind)
    return Estimate(
        len(time),
        Distances.of(_behind(time, arrival, time, arrival)),
        None if delay is None else Distances.of(delay),
        found,
        skew,
    )


def _by_code(code: Ints, count: int) -> list[Ints]:
    """The rows of each code, in order; one pass, however many codes there are."""
    order = np.argsort(code, kind="stable")
    ends = np.searchsorted(code[order], np.arange(count + 1))
    return [order[first:last] for first, last in pairwise(ends.tolist())]


def _behind(time: Ints, arrival: Ints, later: Ints, at: Ints) -> Ints:
    """How far each later row is behind the greatest time that arrived at an instant before it.

    0 if it is not behind, or nothing was before it.  All are sorted by arrival.
    """
    greatest = np.maximum.accumulate(time) if len(time) else time
    before = np.searchsorted(arrival, at, side="left")
    known = before > 0
    behind = np.zeros(len(later), np.int64)
    behind[known] = np.maximum(greatest[before[known] - 1] - later[known], 0)
    return behind
