"""Simulated sources, networks and clocks: rows that keep some bounds, or break them on purpose.

* `simulate(bounds, chance)`: rows of the named sources, emitted and under way as the bounds
  allow, at their very limits as often as not.  With `broken` some rows break them.
* `simulate_counter`, `simulate_sensors`: the systems of the paper's section 4, which know
  nothing of bounds: tokens of a global counter; local clocks that drift and are reset.
* `breaches(rows, bounds)`: each two rows that break a bound, found by its definition.

Chance is handed in as a `random.Random`; the same seed gives the same run.

Papers: Heartbeats 2, 4.1, 4.2, with errata H1, H5, H6, H10, H11, H26.

>>> from random import Random
>>> from anabranch.clocks import disorder
>>> run = simulate(disorder(3).named(["a"]), Random(1), rows=20)
>>> breaches(run, disorder(3).named(["a"]))
[]
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil
from random import Random

from anabranch.clocks.bounds import Bounds, Matrix
from anabranch.clocks.builders import Sensor, Token
from anabranch.clocks.pairs import Pair


@dataclass(frozen=True, slots=True)
class SentRow:
    """A row of a source: its time, when it was emitted, and when it arrived.

    `number` counts the rows of all sources in the order of emission.  `broken`: its time breaks
    a bound on purpose.
    """

    source: str
    time: int
    emitted: int
    arrived: int
    number: int = 0
    broken: bool = False


def simulate(
    bounds: Bounds,
    chance: Random,
    *,
    rows: int = 40,
    pause: int = 3,
    spread: int = 6,
    broken: float = 0.0,
) -> list[SentRow]:
    """Rows in the order of arrival.

    `pause` is the longest wall-clock time between two rows, `spread` how far a time is above
    the least that is allowed; `broken` is the share of rows that break the bounds.
    """
    sent: list[SentRow] = []
    matrix = bounds.effective
    clock, arrived = 0, dict.fromkeys(bounds.sources, 0)
    for number in range(rows):
        clock += chance.randint(0, pause)
        source = chance.choice(bounds.sources)
        at = bounds.index(source)
        latency = bounds.latency[at]
        under_way = chance.choice((0, latency, chance.randint(0, latency)))
        arrival = clock + under_way
        if bounds.fifo[at]:
            arrival = arrived[source] = max(arrived[source], arrival)
        floor = _floor(sent, matrix, bounds, source, clock)
        if bounds.delay is not None:
            floor = max(floor, arrival - bounds.delay - 1)
        time = floor + 1 + chance.choice((0, chance.randint(0, spread)))
        breaks = chance.random() < broken and any(row.source for row in sent)
        if breaks:
            time = floor - chance.randint(0, spread)
        sent.append(SentRow(source, time, clock, arrival, number, breaks))
    return in_order(sent)


def in_order(rows: Sequence[SentRow]) -> list[SentRow]:
    """Rows by arrival; of one instant, in the order of emission."""
    return sorted(rows, key=lambda row: (row.arrived, row.number))


def _floor(
    sent: Sequence[SentRow], matrix: Matrix, bounds: Bounds, source: str, clock: int
) -> int:
    """The greatest time that a row emitted now must exceed; 0 is where time begins."""
    j = bounds.index(source)
    # The rows that are constrained and count are those of this source, with a new one last.
    new = SentRow(source, 0, clock, clock, len(sent))
    floor = -1
    for row in sent:
        i = bounds.index(row.source)
        for pair in matrix[i][j]:
            if applies(pair, row, new, sent, fifo=i == j and bounds.fifo[j]):
                floor = max(floor, row.time - pair.distance)
    return floor


def applies(
    pair: Pair, first: SentRow, later: SentRow, sent: Sequence[SentRow], *, fifo: bool
) -> bool:
    """Whether a pair, by a row, constrains the time of a later one.

    "After" means at a later instant; in a sequence, at a later number.
    """
    if not pair.rows and not (fifo and not pair.wait):
        return later.emitted > first.emitted + pair.wait
    if not _is_after(first, later, fifo=fifo):
        return False
    between = [
        row
        for row in sent
        if row.source == later.source
        and _is_after(first, row, fifo=fifo)
        and _is_after(row, later, fifo=fifo)
    ]
    return len(between) >= pair.wait


def _is_after(first: SentRow, later: SentRow, *, fifo: bool) -> bool:
    return later.number > first.number if fifo else later.emitted > first.emitted


def breaches(rows: Sequence[SentRow], bounds: Bounds) -> list[tuple[SentRow, SentRow, Pair]]:
    """Each row, a later one and the pair that the later one breaks; by the bounds."""
    sent = sorted(rows, key=lambda row: row.number)
    found = []
    matrix = bounds.effective
    for first in sent:
        i = bounds.index(first.source)
        for later in sent:
            j = bounds.index(later.source)
            for pair in matrix[i][j]:
                used = applies(pair, first, later, sent, fifo=i == j and bounds.fifo[j])
                if used and first is not later and later.time <= first.time - pair.distance:
                    found.append((first, later, pair))
    return found


def simulate_counter(
    sources: Mapping[str, Token], chance: Random, *, rows: int = 40
) -> list[SentRow]:
    """Sources that take a number from one counter, work, and emit it (4.1)."""
    issued: list[tuple[int, str]] = []
    free = dict.fromkeys(sources, 0)
    sent = []
    for _ in range(rows):
        source = min(free, key=lambda name: (free[name], chance.random()))
        issue = free[source] + chance.choice((0, 0, chance.randint(0, 4)))
        token = sources[source]
        done = issue + chance.choice((token.least, token.most))
        free[source] = max(done, issue)
        issued.append((issue, source))
        sent.append((issue, source, done))
    # Numbers are issued in the order of time; of one instant, in any order.
    order = sorted(sent, key=lambda one: (one[0], chance.random()))
    rows_ = [
        _row(source, time, done, sources[source].latency, chance)
        for time, (_, source, done) in enumerate(order)
    ]
    return in_order(_numbered(rows_))


def simulate_sensors(
    sources: Mapping[str, Sensor],
    chance: Random,
    *,
    rows: int = 40,
    rate: float | None = None,
    anywhere: bool = True,
) -> list[SentRow]:
    """Local clocks that stay within a deviation of a common one, by drift and resets (4.2).

    Without a rate the common clock may stand still for any time.
    """
    common, clock = 100.0, 0
    local = dict.fromkeys(sources, 0)
    sent = []
    for _ in range(rows):
        pause = chance.randint(0, 3)
        clock += pause
        least = 0 if rate is None else ceil(pause * rate)
        common += least + chance.choice((0, 0, chance.randint(0, 5)))
        source = chance.choice(list(sources))
        most = sources[source].deviation
        local[source] = _drift(local[source], most, chance, anywhere=anywhere)
        time = int(common) + local[source]
        sent.append(_row(source, time, clock, sources[source].latency, chance))
    return in_order(_numbered(sent))


def _drift(ahead: int, most: int, chance: Random, *, anywhere: bool) -> int:
    """How far a local clock is ahead next: it drifts, or is reset."""
    if anywhere:
        return chance.choice((-most, most, chance.randint(-most, most)))
    return chance.choice((0, min(most, max(ahead, 0) + 1)))


def _row(source: str, time: int, emitted: int, latency: int, chance: Random) -> SentRow:
    under_way = chance.choice((0, latency, chance.randint(0, latency)))
    return SentRow(source, time, emitted, emitted + under_way)


def _numbered(rows: Sequence[SentRow]) -> list[SentRow]:
    order = sorted(range(len(rows)), key=lambda at: (rows[at].emitted, at))
    return [replace(rows[at], number=number) for number, at in enumerate(order)]


def instants(rows: Sequence[SentRow]) -> Iterator[tuple[int, list[SentRow]]]:
    """The rows of each wall-clock instant, from the first arrival to the last."""
    by_instant: dict[int, list[SentRow]] = {}
    for row in rows:
        by_instant.setdefault(row.arrived, []).append(row)
    for now in range(min(by_instant), max(by_instant) + 1):
        yield now, by_instant.get(now, [])


def cuts(rows: Sequence[SentRow], chance: Random) -> list[tuple[int, list[SentRow]]]:
    """The rows cut into triggers at random: each with its wall-clock time, and what arrived."""
    if not rows:
        return []
    last = rows[-1].arrived
    ends = sorted({last, *(row.arrived for row in rows if chance.random() < 0.4)})
    starts = [rows[0].arrived - 1, *ends]
    return [
        (end, [row for row in rows if start < row.arrived <= end])
        for start, end in pairwise(starts)
    ]
