"""Boxes with arrows between them, in columns: how the parts of a run connect.

`draw_diagram` takes the columns, each a list of `Part`, and the arrows by the names of the
parts.  An arrow leads to a part in a column further right, or to the next part below.

>>> columns = [
...     [Part("inbox")],
...     [Part("merge", ("two lanes",))],
...     [Part("out"), Part("checkpoint")],
... ]
>>> arrows = {("inbox", "merge"): "files", ("merge", "out"): "", ("merge", "checkpoint"): ""}
>>> draw_diagram(columns, arrows, title="A merge").startswith("<svg")
True
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from anabranch.errors import UsageError
from anabranch.pictures.scene import (
    BAND,
    BLUE,
    GUIDE,
    INK,
    MARGIN,
    MUTED,
    NORMAL,
    RUST,
    SKY,
    SMALL,
    WIDTH,
    Box,
    Line,
    Scene,
    Shape,
    Words,
    width_of,
)
from anabranch.pictures.svg import write

LINE: Final = 17
"""Height of a line of text in a box."""
PAD: Final = 12
GAP: Final = 20
"""Between two boxes of a column."""
LEAST: Final = 36
"""The least room that an arrow needs between two columns."""


@dataclass(frozen=True, slots=True)
class Part:
    """A box: its name, and lines below it."""

    name: str
    lines: tuple[str, ...] = ()
    main: bool = False
    """Drawn in the colour of a merge: the part that the page is about."""
    wrong: bool = False
    """Dashed: rejected, or kept apart."""

    @property
    def width(self) -> float:
        """In pixels."""
        name = width_of(self.name, NORMAL) * 1.08
        return max(name, *(width_of(line, SMALL) for line in self.lines), 40) + 2 * PAD

    @property
    def height(self) -> float:
        """In pixels."""
        return 2 * PAD + (1 + len(self.lines)) * LINE - 4


@dataclass(frozen=True, slots=True)
class _Place:
    column: int
    x: float
    y: float
    width: float
    height: float


Arrows = Mapping[tuple[str, str], str]
"""By the names of two parts, the text on the arrow from the first to the second."""


def draw_diagram(columns: Sequence[Sequence[Part]], arrows: Arrows, *, title: str) -> str:
    """The text of an SVG file."""
    return write(diagram(columns, arrows, title=title))


def diagram(columns: Sequence[Sequence[Part]], arrows: Arrows, *, title: str) -> Scene:
    """The picture as shapes."""
    parts = {part.name: part for column in columns for part in column}
    places = _places(columns, arrows)
    _validate(places, arrows)
    shapes: list[Shape] = []
    for (source, target), label in arrows.items():
        shapes += _connect(places, source, target, arrows, label)
    for name, part in parts.items():
        shapes += _box(part, places[name])
    bottom = max(place.y + place.height for place in places.values()) + MARGIN
    return Scene(WIDTH, bottom, title, _words(parts, arrows), tuple(shapes))


def _places(columns: Sequence[Sequence[Part]], arrows: Arrows) -> dict[str, _Place]:
    """Boxes of a column are equally wide; what is left of the width goes between columns."""
    widths = [max(part.width for part in column) for column in columns]
    heights = [sum(p.height for p in column) + GAP * (len(column) - 1) for column in columns]
    labels = max((width_of(text, SMALL) for text in arrows.values()), default=0)
    needed = LEAST + labels
    room = WIDTH - 2 * MARGIN - sum(widths)
    gaps = len(columns) - 1
    if gaps and room < needed * gaps:
        message = f"draw_diagram: {sum(widths) + needed * gaps:.0f} pixels are needed"
        message += f" between the margins, there are {WIDTH - 2 * MARGIN}; shorten the texts"
        raise UsageError(message)
    gap = min(room / gaps, needed + 3 * LEAST) if gaps else 0
    x = (WIDTH - sum(widths) - gap * gaps) / 2
    places = {}
    for number, column in enumerate(columns):
        y = MARGIN + (max(heights) - heights[number]) / 2
        for part in column:
            places[part.name] = _Place(number, x, y, widths[number], part.height)
            y += part.height + GAP
        x += widths[number] + gap
    return places


def _validate(places: Mapping[str, _Place], arrows: Arrows) -> None:
    for source, target in arrows:
        for name in (source, target):
            if name not in places:
                message = f"draw_diagram: an arrow names {name!r}, which is no part"
                raise UsageError(message)
        one, other = places[source], places[target]
        below = one.column == other.column and other.y == one.y + one.height + GAP
        if not below and one.column >= other.column:
            message = f"draw_diagram: the arrow from {source!r} to {target!r} leads back;"
            message += " put the target further right, or right below"
            raise UsageError(message)


def _connect(
    places: Mapping[str, _Place], source: str, target: str, arrows: Arrows, label: str
) -> Iterator[Shape]:
    one, other = places[source], places[target]
    if one.column == other.column:
        x = one.x + one.width / 2
        yield Line(x, one.y + one.height, x, other.y, MUTED, 1.5)
        for side in (-5, 5):
            yield Line(x + side, other.y - 7, x, other.y, MUTED, 1.5)
        yield Words(x + 10, other.y - 6, label, SMALL, MUTED)
        return
    y1, y2 = one.y + one.height / 2, other.y + other.height / 2
    left, right = one.x + one.width, other.x
    sources = [s for s, t in arrows if t == target and places[s].column < other.column]
    if len(sources) > 1:  # arrows meet in front of the target
        corner, middle, y = right - 24, (left + right - 24) / 2, y1
    else:  # or part behind the source
        corner, middle, y = left + 16, (left + 16 + right) / 2, y2
    points = [(left, y1), (corner, y1), (corner, y2), (right, y2)]
    yield from arrow(points if y1 != y2 else [points[0], points[-1]])
    yield Words(middle, y - 6, label, SMALL, MUTED, anchor="middle")


def arrow(points: Sequence[tuple[float, float]]) -> Iterator[Shape]:
    """Lines through the points, and a head at the last, which is reached from the left."""
    for (x1, y1), (x2, y2) in pairwise(points):
        yield Line(x1, y1, x2, y2, MUTED, 1.5)
    x, y = points[-1]
    for side in (-5, 5):
        yield Line(x - 7, y + side, x, y, MUTED, 1.5)


def _box(part: Part, place: _Place) -> Iterator[Shape]:
    fill, stroke = (SKY, BLUE) if part.main else (BAND, RUST if part.wrong else GUIDE)
    yield Box(
        place.x, place.y, place.width, place.height, fill, stroke, dashed=part.wrong, radius=6
    )
    y = place.y + PAD + 11
    colour = RUST if part.wrong else INK
    yield Words(place.x + PAD, y, part.name, NORMAL, colour, bold=True)
    for number, line in enumerate(part.lines):
        yield Words(place.x + PAD, y + (number + 1) * LINE, line, SMALL, MUTED)


def _words(parts: Mapping[str, Part], arrows: Arrows) -> str:
    """The picture for those who cannot see it."""
    boxes = [
        f"{name}: {', '.join(part.lines)}" if part.lines else name
        for name, part in parts.items()
    ]
    leads = [f"{source} to {target}" for source, target in arrows]
    return f"{'; '.join(boxes)}. Arrows: {', '.join(leads)}." if leads else "; ".join(boxes)
