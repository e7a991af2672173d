"""A timeline as shapes: boxes, lines, discs and words, with places in pixels.

From top to bottom: title, tuples over the axis, a band for each engine (its name and what it
returns, then its windows, as many levels as overlap), the axis again, the legend.  Thin lines
lead from the tuples through all bands.

Colours are those of Okabe and Ito, darkened where words stand on them; no meaning hangs on
colour alone: silent windows are dashed, late marks are labelled, dropped tuples are crosses.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from anabranch.pictures.axis import marks, show_mark, show_time
from anabranch.pictures.timeline import MOST_LABELS, Bar, Mark, Timeline, Track, pack

INK, MUTED, GUIDE, BAND, PAPER = "#1b1f24", "#57606a", "#d0d7de", "#f6f8fa", "#ffffff"
BLUE, SKY, RUST, GREEN, GREY = "#0072b2", "#cfe3f5", "#a84300", "#00735a", "#8c959f"
WIDTH: Final = 960
MARGIN: Final = 28
LEVEL: Final = 24
"""Height of one level of windows."""
STACK: Final = 28
"""Height of one more tuple of the same time."""
AXIS: Final = 24
"""Height of an axis with its labels."""
BAR: Final = 14
PILL: Final = 18
SMALL, NORMAL, LARGE = 11, 13, 18
_INSET: Final = 2


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle; `tooltip` is shown when pointed at."""

    x: float
    y: float
    width: float
    height: float
    fill: str
    stroke: str | None = None
    dashed: bool = False
    radius: float = 0
    tooltip: str = ""


@dataclass(frozen=True, slots=True)
class Line:
    """A straight line."""

    x1: float
    y1: float
    x2: float
    y2: float
    stroke: str
    width: float = 1
    dashed: bool = False


@dataclass(frozen=True, slots=True)
class Disc:
    """A point."""

    x: float
    y: float
    radius: float
    fill: str
    tooltip: str = ""


@dataclass(frozen=True, slots=True)
class Words:
    """Text, with its base line at y."""

    x: float
    y: float
    text: str
    size: int = NORMAL
    fill: str = INK
    bold: bool = False
    anchor: Literal["start", "middle", "end"] = "start"


Shape: TypeAlias = Box | Line | Disc | Words


@dataclass(frozen=True, slots=True)
class Scene:
    """Shapes in the order of drawing, and the picture in words."""

    width: float
    height: float
    title: str
    words: str
    shapes: tuple[Shape, ...]


def width_of(text: str, size: int) -> float:
    """About how wide the text will be."""
    return len(text) * size * 0.6


def fit(text: str, size: int, width: float) -> str:
    """The text, cut to about that width."""
    most = max(1, int(width / (size * 0.6)))
    return text if len(text) <= most else text[: most - 1] + "…"


@dataclass(frozen=True, slots=True)
class _Scale:
    low: int
    high: int

    def x(self, at: float) -> float:
        """The middle of an instant."""
        usable = WIDTH - 2 * MARGIN
        return round(MARGIN + (at - self.low + 0.5) / (self.high - self.low + 1) * usable, 2)


def scene(seen: Timeline) -> Scene:
    """The shapes of a timeline."""
    scale = _Scale(seen.low, seen.high)
    shapes: list[Shape] = [
        Words(MARGIN, 36, fit(seen.title, LARGE, WIDTH - 2 * MARGIN), LARGE, bold=True),
        Words(MARGIN, 56, fit(seen.about, NORMAL, WIDTH - 2 * MARGIN), NORMAL, MUTED),
    ]
    levels = _levels(seen, scale)
    top = 108 + max(levels, default=0) * STACK
    bands: list[Shape] = []
    y = top + 44.0
    for track in seen.tracks:
        height, drawn = _band(track, scale, y, clock=seen.clock)
        # Guides go over the ground of a band and under what is drawn on it, not through words.
        shapes.append(Box(MARGIN / 2, y, WIDTH - MARGIN, height, BAND, radius=6))
        bands += [Box(MARGIN / 2, y, WIDTH - MARGIN, 32, BAND, radius=6), *drawn]
        y += height + 10
    shapes += [*_guides(seen, scale, top, y - 6), *bands]
    shapes += [*_tuples(seen, scale, top, levels), *_axis(seen, scale, top + 14)]
    shapes += _axis(seen, scale, y)
    height = y + 34
    legend, height = _legend(seen, height)
    return Scene(WIDTH, height, seen.title, seen.words, (*shapes, *legend))


def _levels(seen: Timeline, scale: _Scale) -> list[int]:
    """How high each tuple is drawn, so that neither points nor values overlap."""
    halves = [_label_width(seen, point.label) / 2 + 2 for point in seen.points]
    places = [scale.x(point.at) for point in seen.points]
    order = sorted(range(len(places)), key=lambda n: (places[n], n))
    packed = pack([(places[n] - halves[n], places[n] + halves[n]) for n in order])
    levels = dict(zip(order, packed, strict=True))
    return [levels[n] for n in range(len(places))]


def _label_width(seen: Timeline, label: str) -> float:
    if len(seen.points) > MOST_LABELS:
        return 6
    return max(12, width_of(label, NORMAL) * 1.1)


def _tuples(seen: Timeline, scale: _Scale, y: float, levels: list[int]) -> list[Shape]:
    shapes: list[Shape] = []
    every = len(seen.points) <= MOST_LABELS
    for point, level in zip(seen.points, levels, strict=True):
        x, at = scale.x(point.at), y - STACK * level
        tooltip = f"{point.label} at {show_time(point.at, clock=seen.clock)}".strip()
        if level:
            shapes.insert(0, Line(x, at, x, y, GUIDE))
        shapes.append(Disc(x, at, 5 if every else 3, INK, tooltip))
        if every:
            label = point.label
            shapes.append(Words(x, at - 10, label, NORMAL, bold=True, anchor="middle"))
    return shapes


def _axis(seen: Timeline, scale: _Scale, y: float) -> list[Shape]:
    most = 8 if seen.clock else 16
    shapes: list[Shape] = [Line(MARGIN / 2, y, WIDTH - MARGIN / 2, y, MUTED)]
    for at in marks(seen.low, seen.high, most, clock=seen.clock):
        x = scale.x(at)
        label = show_mark(at, seen.low, seen.high, clock=seen.clock)
        shapes.append(Line(x, y, x, y + 4, MUTED))
        shapes.append(Words(x, y + 17, label, SMALL, MUTED, anchor="middle"))
    return shapes


def _guides(seen: Timeline, scale: _Scale, top: float, bottom: float) -> list[Shape]:
    axis, below = top + 14, top + 14 + AXIS
    shapes: list[Shape] = []
    for at in sorted({point.at for point in seen.points}):
        shapes.append(Line(scale.x(at), top, scale.x(at), axis, GUIDE))
        shapes.append(Line(scale.x(at), below, scale.x(at), bottom, GUIDE))
    for at in sorted(set(seen.stables)):
        x = scale.x(at)
        anchor: Literal["end", "middle"] = "end" if x > WIDTH - 80 else "middle"
        at_x = min(x + 20, WIDTH - MARGIN / 2) if anchor == "end" else x
        label = f"stable {show_time(at, clock=seen.clock, short=True)}"
        shapes.append(Line(x, top - 14, x, axis, GREEN, 1.5, dashed=True))
        shapes.append(Line(x, below, x, bottom, GREEN, 1.5, dashed=True))
        shapes.append(Words(at_x, top - 20, label, SMALL, GREEN, anchor=anchor))
    return shapes


def _band(track: Track, scale: _Scale, y: float, *, clock: bool) -> tuple[float, list[Shape]]:
    name = Words(MARGIN, y + 22, fit(track.name, NORMAL, WIDTH / 2), NORMAL, bold=True)
    begin = MARGIN + max(110.0, width_of(name.text, NORMAL) * 1.1 + 14)
    note = f"same as {track.same_as}" if track.same_as else ""
    note = f"{track.left_out:,} more windows not drawn" if track.left_out else note
    end = WIDTH - MARGIN - width_of(note, SMALL)
    values = ",  ".join(track.values) or "no result"
    shapes: list[Shape] = [
        name,
        Words(begin, y + 22, fit(values, NORMAL, end - begin - 10), NORMAL),
        Words(WIDTH - MARGIN, y + 22, note, SMALL, MUTED, anchor="end"),
    ]
    top = y + 34
    for point in track.dropped:
        shapes += _cross(scale.x(point.at), top + 4, point.label)
    top += 20 if track.dropped else 0
    levels = pack([_extent(bar, scale) for bar in track.bars])
    for bar, level in zip(track.bars, levels, strict=True):
        shapes += _bar(bar, scale, top + level * LEVEL, clock=clock)
    return top - y + (max(levels, default=0) + 1) * LEVEL + 6, shapes


def _cross(x: float, y: float, label: str) -> list[Shape]:
    return [
        Line(x - 4, y - 4, x + 4, y + 4, RUST, 2),
        Line(x - 4, y + 4, x + 4, y - 4, RUST, 2),
        Words(x + 8, y + 4, label, SMALL, RUST),
    ]


def _pill_width(mark: Mark) -> float:
    return max(22, width_of(mark.label, SMALL) + 10)


def _centre(mark: Mark, scale: _Scale) -> float:
    """The middle of a mark: its instant, or as near as the picture's edge permits."""
    half = _pill_width(mark) / 2 + MARGIN / 2
    return round(min(max(scale.x(mark.at), half), WIDTH - half), 2)


def _sides(bar: Bar, scale: _Scale) -> tuple[float, float]:
    return scale.x(bar.start - 0.5) + _INSET, scale.x(bar.end - 0.5) - _INSET


def _extent(bar: Bar, scale: _Scale) -> tuple[float, float]:
    """What a bar needs of its level, with its marks."""
    left, right = _sides(bar, scale)
    halves = [(_centre(mark, scale), _pill_width(mark) / 2) for mark in bar.marks]
    least = min([left, *(x - half for x, half in halves)])
    return least, max([right, *(x + half for x, half in halves)]) + 1


def _bar(bar: Bar, scale: _Scale, y: float, *, clock: bool) -> list[Shape]:
    show: Callable[[int], str] = lambda at: show_time(at, clock=clock)  # noqa: E731
    left, right = _sides(bar, scale)
    middle = y + LEVEL / 2
    fill, stroke = (SKY, BLUE) if bar.marks else (PAPER, GREY)
    tooltip = f"window [{show(bar.start)}, {show(bar.end)})" + (
        "" if bar.marks else ": not reported"
    )
    width = max(1.0, round(right - left, 2))
    box = Box(left, middle - BAR / 2, width, BAR, fill, stroke, not bar.marks, 3, tooltip)
    shapes: list[Shape] = [box]
    furthest = max((_centre(mark, scale) for mark in bar.marks), default=right)
    if furthest > right:
        shapes.insert(0, Line(right, middle, furthest, middle, BLUE, 1.5))
    return [*shapes, *_pills(bar, scale, middle, show)]


def _pills(
    bar: Bar, scale: _Scale, middle: float, show: Callable[[int], str]
) -> Iterator[Shape]:
    """The marks of a bar; the last ones win where there is not room for all values."""
    following = float("inf")
    for mark in reversed(bar.marks):
        x, half = _centre(mark, scale), _pill_width(mark) / 2
        tooltip = f"{mark.label}, reported for {show(mark.at)}"
        colour = RUST if mark.late else BLUE
        if x + half < following:
            following = x - half - 1
            yield Box(
                x - half, middle - PILL / 2, 2 * half, PILL, colour, radius=9, tooltip=tooltip
            )
            yield Words(x, middle + 4, mark.label, SMALL, PAPER, bold=True, anchor="middle")
        elif x + 4 < following:  # the values are beside the name
            following = x - 5
            yield Disc(x, middle, 4, colour, tooltip)


def _legend(seen: Timeline, y: float) -> tuple[list[Shape], float]:
    """What the shapes mean, those that are there; and the height of the whole picture."""
    bars = [bar for track in seen.tracks for bar in track.bars]
    found = [mark for bar in bars for mark in bar.marks]
    entries: list[tuple[bool, str]] = [
        (bool(seen.points), "tuple, with its value" + _order_note(seen)),
        (any(bar.marks for bar in bars), "window"),
        (any(not bar.marks for bar in bars), "window that was looked at, not reported"),
        (bool(found), f"report, at its {seen.axis}"),
        (any(mark.late for mark in found), "report again, late"),
        (any(track.dropped for track in seen.tracks), "tuple too late for a window"),
    ]
    shapes: list[Shape] = []
    x = float(MARGIN)
    for kind, (there, text) in enumerate(entries):
        if not there:
            continue
        needed = 34 + width_of(text, SMALL)
        if x + needed > WIDTH - MARGIN / 2:
            x, y = float(MARGIN), y + 22
        shapes += _sample(kind, x, y)
        shapes.append(Words(x + 34, y + 4, text, SMALL, MUTED))
        x += needed + 14
    return shapes, y + 24


def _order_note(seen: Timeline) -> str:
    return " (#4: came fourth)" if any(point.late for point in seen.points) else ""


def _sample(kind: int, x: float, y: float) -> list[Shape]:
    middle = x + 13
    samples: list[list[Shape]] = [
        [Disc(middle, y, 5, INK)],
        [Box(x, y - 6, 26, 12, SKY, BLUE, radius=3)],
        [Box(x, y - 6, 26, 12, PAPER, GREY, dashed=True, radius=3)],
        [Box(x, y - 8, 26, 16, BLUE, radius=8)],
        [Box(x, y - 8, 26, 16, RUST, radius=8)],
        [*_cross(middle, y, "")[:2]],
    ]
    return samples[kind]
