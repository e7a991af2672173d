"""Lifetimes of events over one axis of time, with the times that matter to them.

`draw_lifetimes` takes the events, a word about each, and named times, such as a stable or a
frontier, which cross all of them as dashed lines.

>>> from anabranch.model import Event
>>> events = {Event("a", 1, 4): "frozen", Event("b", 3, 9): "half frozen"}
>>> draw_lifetimes(events, {"stable 6": 6}, title="Lifetimes").startswith("<svg")
True
"""

from collections.abc import Iterator, Mapping
from typing import Final

from anabranch.errors import UsageError
from anabranch.model import FOREVER, Event
from anabranch.pictures.axis import marks
from anabranch.pictures.scene import (
    BAND,
    BLUE,
    GREEN,
    GUIDE,
    INK,
    MARGIN,
    MUTED,
    NORMAL,
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

ROW: Final = 32
HEAD: Final = 40
NOTES: Final = 240
"""Room at the right for the words about the events."""


def draw_lifetimes(events: Mapping[Event, str], times: Mapping[str, int], *, title: str) -> str:
    """The text of an SVG file."""
    return write(lifetimes(events, times, title=title))


def lifetimes(events: Mapping[Event, str], times: Mapping[str, int], *, title: str) -> Scene:
    """The picture as shapes; an event without an end runs to the right edge."""
    if not events:
        message = "draw_lifetimes: there is no event; give at least one"
        raise UsageError(message)
    ends = [event.end for event in events if event.end != FOREVER]
    low = int(min([*(event.start for event in events), *times.values()]))
    high = int(max([*ends, *(event.start + 1 for event in events), *times.values()])) + 1
    left, right = MARGIN, WIDTH - MARGIN - NOTES
    unit = (right - left) / (high - low)
    bottom = MARGIN + HEAD + len(events) * ROW
    shapes: list[Shape] = [Box(left, MARGIN + HEAD - 10, right - left, bottom - 58, BAND)]
    for number, (event, note) in enumerate(events.items()):
        y = MARGIN + HEAD + number * ROW
        start = left + (event.start - low) * unit
        end = right if event.end == FOREVER else left + (event.end - low) * unit
        shapes += [
            Box(start, y, max(end - start, 4), 20, SKY, BLUE, radius=3),
            Words(start + 8, y + 14, _name(event), SMALL, INK),
            Words(right + 16, y + 14, note, NORMAL, INK),
        ]
    for name, time in times.items():
        shapes += _crossing(name, left + (time - low) * unit, bottom, right)
    shapes.append(Line(left, bottom, right, bottom, MUTED))
    for at in marks(low, high - 1, 12, clock=False):
        x = left + (at - low) * unit
        shapes += [
            Line(x, bottom, x, bottom + 4, MUTED),
            Words(x, bottom + 17, str(at), SMALL, MUTED, anchor="middle"),
        ]
    words = "; ".join(f"{_name(event)}: {note}" for event, note in events.items())
    return Scene(WIDTH, bottom + MARGIN, title, f"{', '.join(times)}. {words}.", tuple(shapes))


def _name(event: Event) -> str:
    end = "" if event.end == FOREVER else event.end
    return f"{event.payload} {event.start}..{end}"


def _crossing(name: str, x: float, bottom: float, right: float) -> Iterator[Shape]:
    yield Line(x, MARGIN + 16, x, bottom, GREEN, 1.5, dashed=True)
    half = width_of(name, SMALL) / 2
    middle = min(max(x, MARGIN + half), right - half)
    yield Words(middle, MARGIN + 10, name, SMALL, GREEN, bold=True, anchor="middle")
    yield Line(x, bottom, x, bottom + 4, GUIDE)
