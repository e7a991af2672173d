"""Summaries of rows for a clock: one line per source and tick of the wall clock.

A line has how many rows came, their least and greatest time, how many were too far ahead to be
believed, and, if asked, a histogram of their times.  `fold` puts lines of several tasks
together. The result is a function of the multiset of rows alone, whatever tasks and order they
came in: lines are sorted by source and tick, and a histogram has the finest buckets of a power
of two that leave at most `BUCKETS` of them, counted from zero.  So all lanes fold the same
bytes.

A tick is the interval (after, upto] in which its rows arrived.  Rounding up is sound and costs
less than one tick; rounding down is not (H19).

Papers: Heartbeats 5.1 (the wall-clock unit is at our discretion), with erratum H19.

>>> rows = summarise(["a", "a", "b"], [10, 14, 7], [3, 5, 5], resolution=4)
>>> for line in rows.lines():
...     print(line.source, line.after, line.upto, line.count, line.least, line.greatest)
a 0 4 1 10 10
a 4 8 1 14 14
b 4 8 1 7 7
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import numpy as np

from anabranch.batch.batch import FOREVER_UNITS, NEVER_UNITS, Ints, Mask
from anabranch.clocks.units import more
from anabranch.errors import UsageError

BUCKETS: Final = 64
"""The number of buckets of a histogram that may have rows."""

_CELLS: Final = 512
"""The number of cells of a line, of which buckets are made: more cost more than they save."""

Names: TypeAlias = tuple[str, ...]
COLUMNS: Final = ("after", "upto", "count", "least", "greatest", "ahead")
"""The columns of lines beside their source."""


@dataclass(frozen=True, eq=False, slots=True)
class Coded:
    """The sources of many rows, by their places in `names`, which are sorted."""

    names: Names
    codes: Ints

    def __len__(self) -> int:
        return len(self.codes)


@dataclass(frozen=True, slots=True)
class Line:
    """One source in one tick; without rows to be believed `least` is above `greatest`."""

    source: str
    after: int
    upto: int
    count: int
    least: int
    greatest: int
    ahead: int = 0


@dataclass(frozen=True, eq=False)
class Histograms:
    """Buckets of each line: `bucket << shift[line]` is the first time of a bucket."""

    shift: Ints
    line: Ints
    bucket: Ints
    number: Ints

    def of(self, line: int) -> "tuple[Ints, Ints, Ints]":
        """First time, last time and number of rows of each bucket of a line, in order."""
        mine = slice(*np.searchsorted(self.line, [line, line + 1]))
        width = int(self.shift[line])
        first = self.bucket[mine] << width
        return first, first + ((1 << width) - 1), self.number[mine]


@dataclass(frozen=True, eq=False)
class Summaries:
    """Lines in the order of source and tick, as columns."""

    names: Names
    source: Ints
    after: Ints
    upto: Ints
    count: Ints
    least: Ints
    greatest: Ints
    ahead: Ints
    histograms: Histograms | None = None

    def __len__(self) -> int:
        return len(self.source)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Summaries) and self.key() == other.key()

    __hash__ = None  # type: ignore[assignment]

    def key(self) -> tuple[Any, ...]:
        """All values: equal for equal rows, whichever way they were folded."""
        columns = [self.source, self.after, self.upto, self.count, self.least, self.greatest]
        held = self.histograms
        if held is not None:
            columns += [held.shift, held.line, held.bucket, held.number]
        return (self.names, *(column.tobytes() for column in (*columns, self.ahead)))

    @classmethod
    def none(cls) -> "Summaries":
        """No rows."""
        empty = np.empty(0, np.int64)
        return cls((), empty, empty, empty, empty, empty, empty, empty)

    def lines(self) -> Iterator[Line]:
        """Each line, for people and tests."""
        columns = (self.after, self.upto, self.count, self.least, self.greatest, self.ahead)
        for at, row in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
            yield Line(self.names[self.source[at]], *row)

    def below(self, line: int, limit: int) -> tuple[int, int]:
        """The greatest time of a line that surely does not exceed a limit, and how many do.

        NEVER_UNITS if there is none.  Needs a histogram; of a wide bucket the first time is
        taken, which is safe.
        """
        if self.histograms is None:
            message = "a summary without histogram cannot be cut; summarise with histogram=True"
            raise UsageError(message)
        first, last, number = self.histograms.of(line)
        good = np.minimum(last, self.greatest[line]) <= limit
        if not good.any():
            return NEVER_UNITS, int(number.sum())
        at = int(np.flatnonzero(good)[-1])
        lowest = int(max(first[at], self.least[line]))
        exact = at == len(first) - 1
        return (
            int(self.greatest[line]) if exact else lowest,
            int(number[~good].sum()),
        )


def summarise(
    sources: Sequence[str] | Coded,
    times: Any,
    arrivals: Any,
    *,
    resolution: int = 1,
    guard: int | None = None,
    histogram: bool = False,
) -> Summaries:
    """The lines of some rows.

    `arrivals` are wall-clock times, in units of which `resolution` make a tick.  With a
    `guard` rows whose time is more than that after their arrival are counted as `ahead` alone.
    """
    if resolution < 1:
        message = f"the resolution of a clock is {resolution}; expected 1 or more units"
        raise UsageError(message)
    time = np.asarray(times, np.int64)
    arrival = np.asarray(arrivals, np.int64)
    if not len(sources) == len(time) == len(arrival):
        lengths = (len(sources), len(time), len(arrival))
        message = f"sources, times and arrivals have different lengths: {lengths}"
        raise UsageError(message)
    names, source = _codes(sources)
    upto = -(-arrival // resolution) * resolution
    good = np.ones(len(time), np.bool_) if guard is None else time <= more(arrival, guard)
    found = _tallied(names, source, upto, resolution, time, good, histogram=histogram)
    if found is not None:
        return found
    return _lines(names, source, upto - resolution, upto, time, good, histogram=histogram)


def summarise_trigger(
    sources: Sequence[str] | Coded,
    times: Any,
    *,
    after: int,
    upto: int,
    guard: int | None = None,
    histogram: bool = False,
) -> Summaries:
    """The lines of rows of which only the trigger is known: all arrived in (after, upto]."""
    time = np.asarray(times, np.int64)
    names, source = _codes(sources)
    good = np.ones(len(time), np.bool_) if guard is None else time <= upto + guard
    ends = np.full((2, len(time)), [[after], [upto]], np.int64)
    width = max(upto - after, 1)
    found = _tallied(names, source, ends[1], width, time, good, histogram=histogram)
    if found is not None:
        return found
    return _lines(names, source, ends[0], ends[1], time, good, histogram=histogram)


def fold(parts: Sequence[Summaries]) -> Summaries:
    """The lines of all parts, as if one task had seen all rows, in whatever order."""
    parts = [part for part in parts if len(part)]
    if not parts:
        return Summaries.none()
    names = tuple(sorted({name for part in parts for name in part.names}))
    place = {name: at for at, name in enumerate(names)}
    source = np.concatenate(
        [np.array([place[n] for n in part.names], np.int64)[part.source] for part in parts]
    )
    columns = [np.concatenate([getattr(part, name) for part in parts]) for name in COLUMNS]
    order = np.lexsort((columns[0], columns[1], source))
    source, (after, upto, count, least, greatest, ahead) = (
        source[order],
        [column[order] for column in columns],
    )
    first, line = _runs(source, upto, after)
    held = [part.histograms for part in parts]
    whole = [one for one in held if one is not None]
    lines = np.empty(len(order), np.int64)
    lines[order] = line
    return Summaries(
        names,
        source[first],
        after[first],
        upto[first],
        np.add.reduceat(count, first),
        np.minimum.reduceat(least, first),
        np.maximum.reduceat(greatest, first),
        np.add.reduceat(ahead, first),
        _fold_histograms(parts, whole, lines, len(first)) if len(whole) == len(held) else None,
    )


def renamed(lines: Summaries, names: Mapping[str, str]) -> Summaries:
    """The lines by other names of their sources, as if the rows had come with those."""
    new = [names.get(name, name) for name in lines.names]
    place = {name: at for at, name in enumerate(dict.fromkeys(new))}
    source = np.array([place[name] for name in new], np.int64)[lines.source]
    return fold([replace(lines, names=tuple(place), source=source)])


def only(lines: Summaries, wanted: Callable[[str], bool]) -> tuple[Summaries, dict[str, int]]:
    """The lines of the sources that are wanted, and the number of rows of each other one."""
    wants = np.array([wanted(name) for name in lines.names], np.bool_)
    if wants.all():
        return lines, {}
    counts = np.zeros(len(lines.names), np.int64)
    np.add.at(counts, lines.source, lines.count)
    others = {lines.names[at]: int(counts[at]) for at in np.flatnonzero(~wants)}
    kept = wants[lines.source]
    place = np.cumsum(wants) - 1
    held = lines.histograms
    if held is not None:
        mine, number = kept[held.line], np.cumsum(kept) - 1
        held = Histograms(
            held.shift[kept], number[held.line[mine]], held.bucket[mine], held.number[mine]
        )
    names = tuple(name for name, want in zip(lines.names, wants, strict=True) if want)
    columns = {name: getattr(lines, name)[kept] for name in COLUMNS}
    source = place[lines.source[kept]]
    return Summaries(names, source, **columns, histograms=held), others


def _codes(sources: Sequence[str] | Coded) -> tuple[Names, Ints]:
    """Sorted names, and the place of each row's name."""
    if isinstance(sources, Coded):
        return sources.names, sources.codes
    names = tuple(sorted(set(sources)))
    place = {name: at for at, name in enumerate(names)}
    return names, np.fromiter((place[name] for name in sources), np.int64, len(sources))


def _runs(*columns: Ints) -> tuple[Ints, Ints]:
    """Where each run of equal rows begins, and the run of each row; rows are sorted."""
    new = np.ones(len(columns[0]), np.bool_)
    if len(new):
        new[1:] = np.any([column[1:] != column[:-1] for column in columns], axis=0)
    return np.flatnonzero(new), np.cumsum(new) - 1


def _tallied(
    names: Names,
    source: Ints,
    upto: Ints,
    width: int,
    time: Ints,
    good: Mask,
    *,
    histogram: bool,
) -> Summaries | None:
    """The lines without sorting any row; None if ticks are too many for a table of them."""
    if not len(time):
        return None
    low = int(upto.min())
    tick = (upto - low) // width
    ticks = int(tick.max()) + 1
    if len(names) * ticks > 4 * len(time) + 1024:
        return None
    cell = source * ticks + tick
    size = len(names) * ticks
    if good.all():
        believed, times, ahead = cell, time, np.zeros(size, np.int64)
    else:
        believed, times = cell[good], time[good]
        ahead = np.bincount(cell[~good], minlength=size)
    count = np.bincount(believed, minlength=size)
    least = np.full(size, FOREVER_UNITS, np.int64)
    greatest = np.full(size, NEVER_UNITS, np.int64)
    np.minimum.at(least, believed, times)
    np.maximum.at(greatest, believed, times)
    there = np.flatnonzero(count + ahead)
    ends = low + there % ticks * width
    source, after = there // ticks, ends - width
    lines = [column[there] for column in (count, least, greatest, ahead)]
    held = None
    if histogram:
        if len(there) < size:
            place = np.zeros(size, np.int64)
            place[there] = np.arange(len(there))
            believed = place[believed]
        held = _tallied_histograms(believed, times, lines[1], lines[2])
    return Summaries(names, source, after, ends, lines[0], lines[1], lines[2], lines[3], held)


def _tallied_histograms(line: Ints, time: Ints, least: Ints, greatest: Ints) -> Histograms:
    """Histograms of rows in any order, by lines with this least and greatest time.

    Rows are counted in cells as wide as the range of their line permits; buckets are made of
    cells.  A line with so few cells in use that its buckets are finer, because of a time far
    from all others, is sorted.
    """
    lines = len(least)
    cells = min(_CELLS, 1 << max(int(4 * len(line) / max(lines, 1)).bit_length() - 1, 0))
    if cells <= 2 * BUCKETS:
        return _sorted_histograms(line, time, lines)
    width = np.maximum(bit_lengths(greatest - least) - (cells.bit_length() - 1), 0)
    base = least >> width
    # Gathers by row are most of the cost, and lines alike need none.
    alike = lines > 0 and bool((width == width[0]).all())
    cell = time >> (width[0] if alike else width[line])
    cell += (np.arange(lines) * (cells + 1) - base)[line]
    number = np.bincount(cell, minlength=lines * (cells + 1))
    there = np.flatnonzero(number)
    where = there // (cells + 1)
    first = np.left_shift(there - where * (cells + 1) + base[where], width[where])
    made = _histograms(where, first, number[there], lines, least=width)
    used = np.bincount(where, minlength=lines)
    coarse = (used <= BUCKETS) & (width > 0)
    if not coarse.any():
        return made
    again = coarse[line]
    fine = _sorted_histograms(line[again], time[again], lines)
    return _either(made, fine, coarse)


def _sorted_histograms(line: Ints, time: Ints, lines: int) -> Histograms:
    order = np.lexsort((time, line))
    return _histograms(line[order], time[order], np.ones(len(line), np.int64), lines)


def _either(made: Histograms, other: Histograms, replaced: Mask) -> Histograms:
    """The histograms of the lines `replaced` from the other ones."""
    kept = ~replaced[made.line]
    columns = [
        np.concatenate([getattr(made, name)[kept], getattr(other, name)])
        for name in ("line", "bucket", "number")
    ]
    order = np.argsort(columns[0], kind="stable")
    shift = np.where(replaced, other.shift, made.shift)
    return Histograms(shift, *(column[order] for column in columns))


def _lines(
    names: Names,
    source: Ints,
    after: Ints,
    upto: Ints,
    time: Ints,
    good: Mask,
    *,
    histogram: bool,
) -> Summaries:
    if not len(time):
        return Summaries.none()
    order = np.lexsort((time, after, upto, source))
    source, after, upto = source[order], after[order], upto[order]
    time, good = time[order], good[order]
    first, line = _runs(source, upto, after)
    return Summaries(
        names,
        source[first],
        after[first],
        upto[first],
        np.add.reduceat(good.astype(np.int64), first),
        np.minimum.reduceat(np.where(good, time, FOREVER_UNITS), first),
        np.maximum.reduceat(np.where(good, time, NEVER_UNITS), first),
        np.add.reduceat((~good).astype(np.int64), first),
        _histograms(line[good], time[good], np.ones(int(good.sum()), np.int64), len(first))
        if histogram
        else None,
    )


def _histograms(
    line: Ints, time: Ints, number: Ints, lines: int, *, least: Ints | None = None
) -> Histograms:
    """Histograms of times that are sorted by line; no shift is below `least`."""
    shift = np.zeros(lines, np.int64) if least is None else least.copy()
    same = line[1:] == line[:-1]
    # Two neighbours fall apart at a shift exactly if their highest different bit is above it.
    apart = bit_lengths(time[1:] ^ time[:-1])[same]
    where = line[1:][same]
    # The finest shift at which fewer than BUCKETS neighbours fall apart.
    if lines * 65 <= 4 * len(time) + 1024:
        table = np.bincount(where * 65 + apart, minlength=lines * 65).reshape(lines, 65)
        above = np.cumsum(table[:, ::-1], axis=1)[:, ::-1]
        shift = np.maximum(shift, (above[:, 1:] >= BUCKETS).sum(axis=1))
    else:
        order = np.lexsort((-apart, where))
        apart, where = apart[order], where[order]
        begin = np.searchsorted(where, np.arange(lines))
        end = np.searchsorted(where, np.arange(lines), side="right")
        crowded = end - begin >= BUCKETS
        shift[crowded] = np.maximum(shift[crowded], apart[begin[crowded] + BUCKETS - 1])
    bucket = time >> np.minimum(shift[line], 63)
    first, _ = _runs(line, bucket)
    counts = np.add.reduceat(number, first) if len(first) else number
    return Histograms(shift, line[first], bucket[first], counts)


def _fold_histograms(
    parts: Sequence[Summaries], held: Sequence[Histograms], lines: Ints, count: int
) -> Histograms:
    line, time, number = [], [], []
    least = np.zeros(count, np.int64)
    at = 0
    for part, one in zip(parts, held, strict=True):
        mine = lines[at : at + len(part)]
        at += len(part)
        np.maximum.at(least, mine, one.shift)
        line.append(mine[one.line])
        time.append(one.bucket << one.shift[one.line])
        number.append(one.number)
    lines, times, numbers = map(np.concatenate, (line, time, number))
    order = np.lexsort((times, lines))
    lines, times, numbers = lines[order], times[order], numbers[order]
    # Buckets of a finer part are first made as coarse as those of the others.
    times = (times >> least[lines]) << least[lines]
    first, _ = _runs(lines, times)
    numbers = np.add.reduceat(numbers, first) if len(first) else numbers
    return _histograms(lines[first], times[first], numbers, count, least=least)


def bit_lengths(values: Ints) -> Ints:
    """The number of bits of each value, as an unsigned one."""
    words = values.view(np.uint64)
    high = (words >> np.uint64(32)).astype(np.float64)
    low = (words & np.uint64(0xFFFFFFFF)).astype(np.float64)
    return np.where(high > 0, np.frexp(high)[1] + 32, np.frexp(low)[1]).astype(np.int64)
