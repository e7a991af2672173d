"""Builders of common bounds: simple ones, and those of the paper.

    disorder          at most so far behind the greatest time of its source: Spark, Flink
    delay             timestamps, and a bound on arrival less time
    duplicates        sorted, with a bound on the rows of one time (3.1)
    global_counter    times are numbers from one counter (4.1)
    sensors           local clocks, at most so far from a common one (4.2)
    slack             Aurora: a wait before a window is closed (8)
    k_ordered         at most k rows out of place (8)

Papers: Heartbeats 3.1, 4.1, 4.2, 8, with errata H7, H11, H23, H26.

>>> disorder(10)
Alike(own=(Pair(wait=0, distance=11, rows=False),), others=(), latency=0, fifo=True, \
meaning='observed', delay=None, timeout=None)
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import ceil

from anabranch.clocks.bounds import Alike, Bounds
from anabranch.clocks.pairs import Pair, reduce_pairs
from anabranch.errors import UsageError


def disorder(units: int, *, timeout: int | None = None) -> Alike:
    """A row is at most `units` behind the greatest time that its source has shown.

    The heartbeat is the greatest time less `units` and one, the stable the greatest less
    `units`, as the watermark of Spark and Flink.  Disorder is counted where rows arrive, so
    there is no latency beside it.
    """
    return Alike(own=(Pair(0, units + 1),), fifo=True, timeout=timeout)


def delay(units: int, *, disorder: int | None = None, timeout: int | None = None) -> Alike:
    """A row arrives at most `units` after its own time; times are timestamps.

    Only this makes time pass where nothing arrives.  A disorder may be known as well.
    """
    own = () if disorder is None else (Pair(0, disorder + 1),)
    return Alike(own=own, fifo=True, delay=units, timeout=timeout)


def duplicates(most: int, *, latency: int = 0) -> Alike:
    """Sorted rows, at most `most` of the same time.

    That is (most - 1 rows, 0): the first row, and most - 1 behind it (H7).
    """
    if most < 1:
        message = f"duplicates: at most {most} rows of one time; expected 1 or more"
        raise UsageError(message)
    return Alike(own=(Pair(0, 1), Pair(most - 1, 0, rows=True)), fifo=True, latency=latency)


@dataclass(frozen=True, slots=True)
class Token:
    """How long a source of a global counter takes from the issue of a number to its row.

    Measured from the *issue*, not from the request (H26).
    """

    least: int
    most: int
    latency: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.least <= self.most:
            message = f"a token takes {self.least} to {self.most}; expected 0 <= least <= most"
            raise UsageError(message)


def global_counter(sources: Mapping[str, Token], *, delayed: bool = True) -> Bounds:
    """Sources that number their rows from one counter and have one number at a time (4.1).

    With `delayed` false, the bounds that a framework without waits would have: they need the
    least time of every source to be above 0, and delay heartbeats by far more.
    """
    if not delayed:
        return _undelayed(sources)
    pairs = {}
    for one, first in sources.items():
        for to, second in sources.items():
            wait = max(second.most - first.least, 0)
            pairs[one, to] = (
                [Pair(0, 0)] if one == to else [Pair(wait, 0), Pair(1, 0, rows=True)]
            )
    latency = {name: token.latency for name, token in sources.items()}
    return Bounds.of(pairs, latency=latency, meaning="observed")


def _undelayed(sources: Mapping[str, Token]) -> Bounds:
    if any(not token.least for token in sources.values()):
        message = (
            "without waits the bound of a global counter needs a least time above 0 for every "
            "source: in no time at all a source takes any number of tokens"
        )
        raise UsageError(message)
    pairs = {}
    for one in sources:
        for to, second in sources.items():
            ahead = sum(
                ceil(second.most / token.least) for name, token in sources.items() if name != to
            )
            pairs[one, to] = [Pair(0, 0 if one == to else ahead)]
    return Bounds.of(pairs, latency={name: one.latency for name, one in sources.items()})


@dataclass(frozen=True, slots=True)
class Sensor:
    """A local clock: at most `deviation` from the common one; `latency` to arrive."""

    deviation: int
    latency: int = 0


def sensors(
    sources: Mapping[str, Sensor], *, rate: float | None = None, resets: bool = True
) -> Bounds:
    """Sources with local clocks that are synchronised now and then (4.2, with H11).

    `rate` is how many units the *common* clock advances at least in a unit of the wall clock;
    with it no timeout is needed.  `resets`: a reset may land anywhere within the deviation;
    else it lands on the common clock.
    """
    if rate is not None and rate <= 0:
        message = f"sensors: the rate is {rate}; expected units per wall-clock unit, above 0"
        raise UsageError(message)
    pairs = {}
    for one, first in sources.items():
        for to, second in sources.items():
            apart = first.deviation + second.deviation
            own = 2 * first.deviation if resets else first.deviation
            found = [Pair(0, (own if one == to else apart) + 1)]
            if rate is not None:
                found.append(Pair(ceil((apart + 1) / Fraction(rate)), 0))
            pairs[one, to] = found
    latency = {name: sensor.latency for name, sensor in sources.items()}
    return Bounds.of(
        {both: reduce_pairs(some) for both, some in pairs.items()}, latency=latency
    )


def slack(wait: int, *, timeout: int | None = None) -> Alike:
    """Aurora's slack: `wait` after a row nothing older comes; equal times may (8)."""
    return Alike(own=(Pair(wait, 1),), timeout=timeout)


def k_ordered(k: int, *, strict: bool = False) -> Alike:
    """A row is not older than the one k + 1 rows before it; with `strict`, younger (8, H23)."""
    return Alike(own=(Pair(k, 0 if strict else 1, rows=True),), fifo=True)
