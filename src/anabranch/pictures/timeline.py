"""The content of a timeline: tuples as points, windows as bars, reports as marks.

Nothing here knows pixels or characters; `scene` and `text` give it a form.

* A bar is a window that some call of report looked at while it held tuples.  It is *reported*
  if one of the calls was answered; if none was, it is there to show the silence.
* A mark is at the instant for which a content was reported; for engines that keep every window
  at the greatest time, of a tuple or a stable, that had been seen.  Several at one instant (of
  one window) are one mark with all values.
* Windows of tuples are drawn over the numbers of the tuples instead of times.

Instants are discrete: the one at t takes `[t - 1/2, t + 1/2)`, so that a tuple at a window's
first instant is inside its bar, and one at its end is outside.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from anabranch.errors import UsageError
from anabranch.model import Stable
from anabranch.pictures.axis import show_duration, show_time
from anabranch.windows.aggregate import aggregate
from anabranch.windows.predict import Prediction, read_for, show_value, trace
from anabranch.windows.stream import Given, Item, Row, rows_of
from anabranch.windows.trace import Query, Step, Visit

MOST_BARS: Final = 40
"""Windows that are drawn in one row; a picture with more is not readable."""
MOST_LABELS: Final = 60
"""Tuples up to which each shows its value."""
_MOST_INSTANTS: Final = 10_000
"""Up to this span every call of report is looked at, so that silent windows are known."""
_LONGEST: Final = 14
"""Characters of a value at a point."""
_LONGEST_MARK: Final = 22
"""Characters of the values at a mark."""


@dataclass(frozen=True, slots=True)
class Point:
    """A tuple: where, and its value."""

    at: int
    label: str
    late: bool = False
    """Whether it came after a later one; its label then has the time of arrival."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A report: where on the axis, the value in words, and whether it came late."""

    at: int
    label: str
    late: bool


@dataclass(frozen=True, slots=True)
class Bar:
    """A window `[start, end)` and its reports."""

    start: int
    end: int
    marks: tuple[Mark, ...]

    @property
    def last(self) -> int:
        """The last instant that it or one of its marks needs."""
        return max([self.end - 1, *(mark.at for mark in self.marks)])


@dataclass(frozen=True, slots=True)
class Track:
    """One engine: its windows, what it returns, and what was left out."""

    name: str
    values: tuple[str, ...]
    bars: tuple[Bar, ...]
    left_out: int
    """Windows that are not drawn, because there are too many."""
    dropped: tuple[Point, ...]
    """Tuples that came too late for a window."""
    same_as: str | None
    """An engine above it that returns the same."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """All that is to be seen, from the instant `low` to the instant `high`."""

    title: str
    about: str
    axis: str
    clock: bool
    low: int
    high: int
    points: tuple[Point, ...]
    stables: tuple[int, ...]
    tracks: tuple[Track, ...]

    @property
    def words(self) -> str:
        """The picture for those who cannot see it."""
        tuples = ", ".join(
            f"{point.label or 'a tuple'} at {show_time(point.at, clock=self.clock)}"
            for point in self.points[:MOST_BARS]
        )
        engines = [
            f"{track.name} returns {', '.join(track.values[:MOST_BARS]) or 'nothing'}"
            for track in self.tracks
        ]
        return f"{self.about}: {tuples}. {'; '.join(engines)}."


def timeline(
    predictions: Sequence[Prediction], tuples: Iterable[Given], *, clock: bool = False
) -> Timeline:
    """The timeline of predictions for one query over these tuples."""
    queries = {prediction.query for prediction in predictions}
    if len(queries) != 1:
        message = (
            f"a timeline shows one query on one or more engines; got {len(queries)} queries: "
            "draw one timeline for each"
        )
        raise UsageError(message)
    query = predictions[0].query
    items = read_for(query, tuples)
    clock = clock and query.by != "rows"
    points = _points(query, items)
    stables = () if query.by == "rows" else _stables(items)
    tracks = _tracks(predictions, items)
    bars = [bar for track in tracks for bar in track.bars]
    ends = [end for bar in bars for end in (bar.start, bar.last)]
    if any(track.left_out for track in tracks):
        points = tuple(point for point in points if point.at <= max(ends))
        stables = tuple(at for at in stables if at <= max(ends))
    ends += [*(point.at for point in points), *stables]
    size, slide = (show_duration(u, clock=clock) for u in (query.size, query.slide))
    return Timeline(
        title=f"{query.agg} over windows of size {size}, slide {slide}",
        about=_about(items, clock=clock),
        axis={"time": "time", "rows": "number of the tuple", "arrival": "arrival"}[query.by],
        clock=clock,
        low=min(ends, default=0),
        high=max(ends, default=0),
        points=points,
        stables=stables,
        tracks=tracks,
    )


def pack(extents: Sequence[tuple[float, float]]) -> list[int]:
    """A level for each extent, so that none overlaps another on its level.

    >>> pack([(0, 5), (1, 6), (5, 9)])
    [0, 1, 0]
    """
    free: list[float] = []
    levels = []
    for begin, end in extents:
        level = next((n for n, at in enumerate(free) if at <= begin), len(free))
        free[level : level + 1] = [end]
        levels.append(level)
    return levels


def show_short(value: Any) -> str:
    """A value in few letters; exact ones are in the prediction.

    >>> show_short(2 / 3), show_short(15.0), show_short((1, 2)), show_short(123456)
    ('0.6667', '15', '{1, 2}', '123456')
    """
    if isinstance(value, tuple):
        return "{" + ", ".join(map(show_short, value)) + "}"
    if isinstance(value, float) and not value.is_integer():
        return f"{value:.4g}"
    return show_value(value)


def short(text: str, longest: int) -> str:
    """A label, cut where it is too long."""
    return text if len(text) <= longest else text[: longest - 1] + "…"


def _about(items: Sequence[Item], *, clock: bool) -> str:
    rows = rows_of(items)
    count = f"{len(rows):,} tuple{'' if len(rows) == 1 else 's'}"
    if clock and rows:
        count += f" from {show_time(min(row.time for row in rows), clock=True)} (UTC)"
    if items and isinstance(items[-1], Stable):
        count += f", then stable {show_time(int(items[-1].time), clock=clock)}"
    return count


def _points(query: Query, items: Sequence[Item]) -> tuple[Point, ...]:
    """Tuples; one that came after a later one has its time of arrival."""
    points = []
    latest: int | None = None
    for row in rows_of(items):
        at = row.number if query.by == "rows" else row.time
        behind = latest is not None and at < latest
        latest = at if latest is None else max(latest, at)
        label = f"{_label(row)} #{row.number}".strip() if behind else _label(row)
        points.append(Point(at, label, late=behind))
    return tuple(points)


def _label(row: Row) -> str:
    return "" if row.value is None else short(show_short(row.value), _LONGEST)


def _stables(items: Sequence[Item]) -> tuple[int, ...]:
    return tuple(int(item.time) for item in items if isinstance(item, Stable))


def _tracks(predictions: Sequence[Prediction], items: Sequence[Item]) -> tuple[Track, ...]:
    """One for each prediction; where there are too many windows, all end at the same."""
    times = [int(item.time) for item in items]
    every = bool(times) and max(times) - min(times) <= _MOST_INSTANTS
    traces = [trace(one.engine, one.query, items, every_instant=every) for one in predictions]
    bars = [_bars(*pair) for pair in zip(predictions, traces, strict=True)]
    last = min((row[MOST_BARS - 1].start for row in bars if len(row) > MOST_BARS), default=None)
    tracks: list[Track] = []
    for prediction, steps, row in zip(predictions, traces, bars, strict=True):
        kept = [bar for bar in row if last is None or bar.start <= last][:MOST_BARS]
        values = tuple(map(show_short, prediction.values))
        drops = {drop.row.number: drop.row for step in steps for drop in step.drops}
        same = zip(predictions, tracks, strict=False)
        tracks.append(
            Track(
                name=prediction.engine.name,
                values=values,
                bars=tuple(kept),
                left_out=len(row) - len(kept),
                dropped=tuple(Point(row.time, _label(row)) for row in drops.values()),
                same_as=next(
                    (track.name for one, track in same if one.values == prediction.values), None
                ),
            )
        )
    return tuple(tracks)


def _bars(prediction: Prediction, steps: Sequence[Step]) -> list[Bar]:
    compute = aggregate(prediction.query.agg)
    windows: dict[tuple[int, int], list[tuple[int, bool, Any]]] = {}
    reached: int | None = None
    for step in steps:
        times = [int(item.time) for item in step.items]
        reached = max([*times, *([] if reached is None else [reached])], default=reached)
        for visit in step.visits:
            if not visit.reported and not visit.content:
                continue
            key = (visit.window.after + 1, visit.window.upto + 1)
            found = windows.setdefault(key, [])
            if visit.reported:
                value = compute([row.value for row in visit.content])
                found.append((_place(prediction, visit, reached), visit.late, value))
    return [
        Bar(start, end, _marks(reports)) for (start, end), reports in sorted(windows.items())
    ]


def _place(prediction: Prediction, visit: Visit, reached: int | None) -> int:
    if prediction.query.by == "rows" and visit.scope is not None:
        return visit.scope.upto
    if prediction.engine.windows == "every" and reached is not None:
        return reached
    return visit.instant


def _marks(reports: list[tuple[int, bool, Any]]) -> tuple[Mark, ...]:
    places: dict[int, dict[bool, list[str]]] = {}
    for at, late, value in reports:
        places.setdefault(at, {}).setdefault(late, []).append(show_short(value))
    return tuple(
        Mark(at, _label_of(found), late=True in found) for at, found in sorted(places.items())
    )


def _label_of(values: dict[bool, list[str]]) -> str:
    """First what was on time, then what came late."""
    texts = [", ".join(values[False])] if False in values else []
    texts += [f"late {', '.join(values[True])}"] if True in values else []
    return short(", ".join(texts), _LONGEST_MARK)
