"""Streams that mark when an event opens and when it closes, read as elements.

`Open(p, t)` starts an event with payload p that ends nobody knows when; `Close(p, t)` ends it,
and a further close revises that end.  At no time are two events with one payload alive, in any
prefix: an open that would overlap an event of its payload is refused, and so is a close that
belongs to none.  A close belongs to the event of its payload with the greatest start that is
not after it; at that very start it removes the event.

Positive and negative tuples, and I-streams with D-streams, are the same thing: a positive tuple
is an open, a negative one a close.

Papers: LMerge III-A, Examples 3 and 4.

>>> from anabranch.model.notation import show_elements
>>> show_elements(as_elements([Open("B", 2), Close("B", 6), Close("B", 5)]))
'insert B 2..forever; adjust B 2..forever->6; adjust B 2..6->5'
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

from anabranch.errors import InputError
from anabranch.model.element import Adjust, Element, Event, Insert, Stable
from anabranch.model.lifetime import Lifetime
from anabranch.model.time import FOREVER, Time, show


@dataclass(frozen=True, slots=True)
class Open:
    """An event with this payload starts; also called a positive tuple."""

    payload: Hashable
    time: Time


@dataclass(frozen=True, slots=True)
class Close:
    """The event with this payload ends; also called a negative tuple."""

    payload: Hashable
    time: Time


Mark: TypeAlias = Open | Close


def as_elements(stream: Iterable[Mark | Stable]) -> list[Element]:
    """The same stream as elements, one for one; stables pass as they are."""
    alive: dict[Hashable, dict[Time, Event]] = {}
    elements: list[Element] = []
    for position, mark in enumerate(stream):
        if isinstance(mark, Stable):
            elements.append(mark)
            continue
        events = alive.setdefault(mark.payload, {})
        element = (_open if isinstance(mark, Open) else _close)(mark, events, position)
        elements.append(element)
        events[element.start] = element.event
        if element.event.is_empty:
            del events[element.start]
    return elements


def is_ordered(stream: Sequence[Mark]) -> bool:
    """Whether times never decrease; then nothing that was closed can get shorter."""
    return all(a.time <= b.time for a, b in pairwise(stream))


def closes_once(stream: Sequence[Mark]) -> bool:
    """Whether no close revises another; then an event that was closed stays as it is."""
    adjusts = (element for element in as_elements(stream) if isinstance(element, Adjust))
    return all(adjust.old_end == FOREVER for adjust in adjusts)


def can_follow(output: Sequence[Mark], inputs: Sequence[Sequence[Mark]]) -> bool:
    """Whether an output is compatible with consistent inputs, where no close revises another.

    Exactly when it has no mark that no input has (Example 4).
    """
    present: Counter[Mark] = Counter()
    for one in inputs:
        present |= Counter(one)
    return Counter(output) <= present


def _open(mark: Mark, events: dict[Time, Event], position: int) -> Insert:
    ours = Lifetime(mark.time, FOREVER)
    other = next((event for event in events.values() if ours.overlaps(event.lifetime)), None)
    if other is not None:
        message = (
            f"item {position}: {mark.payload!r} opens at {show(mark.time)}, but another event "
            f"with this payload is alive during {other.lifetime!r}; only one may be alive at a "
            "time: close it before, or make the payloads different"
        )
        raise InputError(message)
    return Insert(mark.payload, mark.time, FOREVER)


def _close(mark: Mark, events: dict[Time, Event], position: int) -> Adjust:
    start = max((start for start in events if start <= mark.time), default=None)
    if start is None:
        message = (
            f"item {position}: {mark.payload!r} closes at {show(mark.time)}, but no event with "
            "this payload has opened by then; put its open first"
        )
        raise InputError(message)
    return Adjust(mark.payload, start, events[start].end, mark.time)
