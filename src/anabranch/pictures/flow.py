"""The flow of a merge as one picture: what each copy has and lacks, the merge, and its output.

`draw_flow` takes the events of the copies and draws them on the left, the merge in the middle
and the events of the output on the right: each once.  An event that a copy lacks is an empty
dashed box in its place.  Below the output are the views that a merge has.

>>> from anabranch.model import Event
>>> copies = {"east": [Event("a", 1, 4)], "west": [Event("b", 2, 6)]}
>>> draw_flow(copies, title="Two copies").startswith("<svg")
True
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from anabranch.errors import UsageError
from anabranch.model import FOREVER, Event
from anabranch.pictures.diagram import arrow
from anabranch.pictures.scene import (
    BAND,
    BLUE,
    GREEN,
    GREY,
    GUIDE,
    INK,
    MARGIN,
    MUTED,
    NORMAL,
    PAPER,
    RUST,
    SKY,
    SMALL,
    WIDTH,
    Box,
    Scene,
    Shape,
    Words,
    fit,
)
from anabranch.pictures.svg import write

PANEL: Final = 356
"""Width of the panels of copies and of the output."""
NODE: Final = 104
"""Width of the box of the merge."""
ROW: Final = 26
HEAD: Final = 30
GAP: Final = 18
VIEWS: Final = (
    ("elements", "every change, with its order"),
    ("changes", "inserts, updates, deletes"),
    ("final", "events that cannot change"),
    ("late", "rows not merged, and why"),
)
"""The views of a merge, and what each has."""


def draw_flow(copies: Mapping[str, Sequence[Event]], *, title: str) -> str:
    """The text of an SVG file."""
    return write(flow(copies, title=title))


def flow(copies: Mapping[str, Sequence[Event]], *, title: str) -> Scene:
    """The picture as shapes; the events must end, and a copy must not repeat one."""
    events = _united(copies)
    if not events:
        message = "draw_flow: no copy has an event; give at least one event"
        raise UsageError(message)
    if any(event.end == FOREVER for event in events):
        message = "draw_flow: an event without an end has no width; give each event an end"
        raise UsageError(message)
    rows = len(events)
    band = HEAD + rows * ROW
    left_height = len(copies) * band + (len(copies) - 1) * GAP
    right_height = band + GAP + len(VIEWS) * 20 + 12
    top, height = MARGIN, max(left_height, right_height)
    right = WIDTH - MARGIN - PANEL
    middle = top + height / 2
    shapes: list[Shape] = []
    heads = []
    for number, (name, own) in enumerate(copies.items()):
        y = top + (height - left_height) / 2 + number * (band + GAP)
        shapes += _panel(MARGIN, y, _heading(name, own, events), events, set(own), BLUE)
        heads.append(y + band / 2)
    node = MARGIN + PANEL + (right - MARGIN - PANEL - NODE) / 2
    for y in heads:
        shapes += arrow(
            [(MARGIN + PANEL, y), (node - 18, y), (node - 18, middle), (node, middle)]
        )
    out = top + (height - right_height) / 2
    shapes += _node(node, middle)
    target = out + band / 2
    corner = node + NODE + 18
    shapes += arrow(
        [(node + NODE, middle), (corner, middle), (corner, target), (right, target)]
    )
    shapes += _panel(right, out, "output: each event once", events, set(events), GREEN)
    shapes += _views(right, out + band + GAP)
    words = _words(copies, events)
    return Scene(WIDTH, height + 2 * MARGIN, title, words, tuple(shapes))


def _united(copies: Mapping[str, Sequence[Event]]) -> list[Event]:
    every = {event for own in copies.values() for event in own}
    return sorted(every, key=lambda event: (event.start, event.end, str(event.payload)))


def _heading(name: str, own: Sequence[Event], events: Sequence[Event]) -> str:
    lacks = len(events) - len(set(own))
    return f"{name}: lacks {lacks}" if lacks else f"{name}: complete"


def _panel(
    x: float, y: float, heading: str, events: Sequence[Event], own: set[Event], colour: str
) -> Iterator[Shape]:
    """One band with a row for each event of the output, on a common axis."""
    first, last = events[0].start, max(event.end for event in events)
    unit = (PANEL - 2 * 12) / (last - first)
    yield Box(x, y, PANEL, HEAD + len(events) * ROW, BAND, stroke=GUIDE, radius=6)
    yield Words(x + 12, y + 20, heading, NORMAL, colour, bold=True)
    for number, event in enumerate(events):
        left = x + 12 + (event.start - first) * unit
        top = y + HEAD + number * ROW
        width = max((event.end - event.start) * unit, 8)
        name = f"{event.payload} {event.start}..{event.end}"
        if event in own:
            yield Box(left, top, width, 18, SKY, stroke=colour, radius=3, tooltip=name)
            yield Words(left + 8, top + 13, fit(str(event.payload), SMALL, width), SMALL, INK)
        else:
            yield Box(
                left,
                top,
                width,
                18,
                PAPER,
                GREY,
                dashed=True,
                radius=3,
                tooltip=f"lacks {name}",
            )
            yield Words(left + 8, top + 13, "lacks it", SMALL, RUST)


def _node(x: float, middle: float) -> Iterator[Shape]:
    yield Box(x, middle - 26, NODE, 52, PAPER, stroke=INK, radius=8)
    centre = x + NODE / 2
    yield Words(centre, middle - 2, "ab.merge", NORMAL, INK, bold=True, anchor="middle")
    yield Words(centre, middle + 15, "on Spark", SMALL, MUTED, anchor="middle")


def _views(x: float, y: float) -> Iterator[Shape]:
    yield Box(x, y, PANEL, len(VIEWS) * 20 + 12, BAND, stroke=GUIDE, radius=6)
    for number, (name, has) in enumerate(VIEWS):
        line = y + 20 + number * 20
        yield Words(x + 12, line, f"{name}()", SMALL, INK, bold=True)
        yield Words(x + 100, line, has, SMALL, MUTED)


def _words(copies: Mapping[str, Sequence[Event]], events: Sequence[Event]) -> str:
    """The picture for those who cannot see it."""
    parts = []
    for name, own in copies.items():
        lacks = [str(event.payload) for event in events if event not in set(own)]
        parts.append(f"{name} lacks {', '.join(lacks)}" if lacks else f"{name} is complete")
    names = ", ".join(str(event.payload) for event in events)
    views = ", ".join(name for name, _ in VIEWS)
    return f"{'; '.join(parts)}. ab.merge emits each event once: {names}. Its views: {views}."
