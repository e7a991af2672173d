"""Cleanse, one element at a time: nothing but final events, in one order.

Events wait until they are frozen; then they are released as inserts.  The output

* has no adjusts and its starts never fall;
* is in the order (start, payload, end), which does not depend on how the input presented its
  history: the outputs of two presentations are prefixes of one sequence of events, so they
  merge under R1 (LMerge's C+LM), and under R2 or R0 if identities, or starts, are unique;
* has at every prefix exactly the events of the input that start before the output's frontier.

Released are only whole groups of one start, below the smallest start that still has an event
which is not frozen; the output's frontier is that start or, if there is none before it, the
input's frontier (erratum L13: the paper's "release all fully frozen elements at each stable"
breaks both the order and the stable).  So one event with end FOREVER blocks everything that
starts after it, until stable(FOREVER).

Remembered: every event that is not released.  That, and the wait, is the price; see
`docs/internals/cleanse.md`.

`operators.cleanse` does the same over batches and is compared with this.

Papers: LMerge VI-D (Cleanse, and C+LM), corrected by erratum L13.

>>> from anabranch.model.element import Insert, Stable
>>> cleanse = Cleanse()
>>> [cleanse.push(e) for e in (Insert("a", 1, 9), Insert("b", 2, 3), Stable(4))]
[(), (), (Stable(time=1),)]
>>> cleanse.push(Stable(10))[:2]
(Insert(payload='a', start=1, end=9), Insert(payload='b', start=2, end=3))
"""

import math
from collections import Counter
from collections.abc import Hashable
from datetime import date, time, timedelta
from decimal import Decimal
from typing import Any, TypeAlias

from anabranch.model.element import Adjust, Element, Event, Insert, Stable
from anabranch.model.frozen import Status, status
from anabranch.model.history import Violation
from anabranch.model.time import NEVER, Time
from anabranch.operators.reference.unary import refuse

Order: TypeAlias = tuple[Any, ...]
"""Something that compares with every other value of its kind."""


class Cleanse:
    """The state of the reference; `push` is the only step."""

    def __init__(self) -> None:
        self.frontier: Time = NEVER
        self.released: Time = NEVER
        self.waiting: Counter[Event] = Counter()
        self.violations: list[Violation] = []
        self.position = 0

    def push(self, element: Element) -> tuple[Element, ...]:
        """Take the next element of the input; what comes out at once."""
        position, self.position = self.position, self.position + 1
        if isinstance(element, Stable):
            return self._stable(element.time)
        reason = refuse(element, self.waiting, frontier=self.frontier)
        if reason is not None:
            self.violations.append(Violation(position, element, reason))
        elif not element.changes_nothing:
            if isinstance(element, Adjust):
                self._add(element.old_event, -1)
            self._add(element.event, 1)
        return ()

    def check(self) -> None:
        """Assert what must always hold between elements."""
        for event, count in self.waiting.items():
            assert count > 0, f"an event that is not there: {event}"
            assert event.start >= self.released, f"an event was not released: {event}"
        assert self.released == self._releasable(), (
            f"released {self.released} != releasable {self._releasable()}"
        )

    def _add(self, event: Event, count: int) -> None:
        self.waiting[event] += 0 if event.is_empty else count
        if not self.waiting[event]:
            del self.waiting[event]

    def _stable(self, time: Time) -> tuple[Element, ...]:
        self.frontier = max(self.frontier, time)
        bound = self._releasable()
        if bound == self.released:
            return ()
        self.released = bound
        ready = sorted((e for e in self.waiting if e.start < bound), key=release_order)
        inserts = [Insert(*event) for event in ready for _ in range(self.waiting.pop(event))]
        return (*inserts, Stable(bound))

    def _releasable(self) -> Time:
        """The smallest start that waits for an event to be frozen, or the input's frontier."""
        return min((e.start for e in self.waiting if self._is_open(e)), default=self.frontier)

    def _is_open(self, event: Event) -> bool:
        held = status(event.start, event.end, frontier=self.frontier)
        return held is not Status.FROZEN and event.start < self.frontier


def release_order(event: Event) -> Order:
    """By start, payload and end."""
    return event.start, payload_order(event.payload), event.end


def payload_order(payload: Hashable) -> Order:
    """A total order of payloads: numbers, text, bytes, times, tuples, other things, nothing.

    Within a kind the natural order; NaN is the greatest number.  Things of other kinds are
    compared by their `repr`.

    >>> sorted(["b", None, 10, 9, "a", (1, None), (1, 2)], key=payload_order)
    [9, 10, 'a', 'b', (1, 2), (1, None), None]
    """
    if payload is None:
        return (9,)
    if isinstance(payload, tuple):
        return (6, *map(payload_order, payload))
    if isinstance(payload, int | float | Decimal):
        is_nan = math.isnan(payload)
        return (0, is_nan, 0 if is_nan else payload)
    for rank, kind in enumerate((str, bytes, date, time, timedelta), start=1):
        if isinstance(payload, kind):
            # By type first: a date and an instant do not compare.
            return (rank, type(payload).__name__, payload)
    return (8, repr(payload))
