"""New lifetimes, one element at a time: alter_lifetime, hop, windows, inserts and deletes.

An event is mapped by itself.  An insert brings the new lifetimes of its event; an adjust
compares those of the old event with those of the new one, and emits what differs: the new end
where the start is the same, else a removal and an insert.  An adjust after which nothing
differs emits nothing (erratum C26).

`operators.lifetimes`, `operators.inserts` and `operators.grid_windows` do the same over batches
and are compared with this.

>>> from anabranch.model.element import Adjust, Insert
>>> deletes = NewLifetimes(Deletes())
>>> deletes.push(Insert("a", 4, 9))
(Insert(payload='a', start=9, end=inf),)
>>> for element in deletes.push(Adjust("a", 4, 9, 8)):
...     print(element)
Adjust(payload='a', start=9, old_end=inf, end=9)
Insert(payload='a', start=8, end=inf)
"""

from collections import Counter
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Protocol

from anabranch.model.element import Adjust, Element, Event, Insert, Stable
from anabranch.model.history import Violation
from anabranch.model.lifetime import Lifetime
from anabranch.model.lifetimes import GridWindows
from anabranch.model.time import FOREVER, NEVER, Time


class Rule(Protocol):
    """What a rule of `model.lifetimes` offers."""

    def lifetimes(self, start: Time, end: Time) -> list[Lifetime]:
        """The new lifetimes of an event."""

    def stable(self, time: Time) -> Time:
        """The stable of the output."""


@dataclass(frozen=True)
class Inserts:
    """All that ever started."""

    def lifetimes(self, start: Time, end: Time) -> list[Lifetime]:
        """From the start."""
        return [Lifetime(start, FOREVER)] if start < end else []

    def stable(self, time: Time) -> Time:
        """Stables pass."""
        return time


@dataclass(frozen=True)
class Deletes:
    """All that ever ended; `final_at_start`: the ends of the input are known."""

    final_at_start: bool = False

    def lifetimes(self, start: Time, end: Time) -> list[Lifetime]:
        """From the end, if there is one."""
        return [Lifetime(end, FOREVER)] if start < end < FOREVER else []

    def stable(self, time: Time) -> Time:
        """What comes at `time` ends later; but an end that is there may move to it."""
        return time + 1 if self.final_at_start else time


class NewLifetimes:
    """The state of the reference; `push` is the only step."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.frontier: Time = NEVER
        self.waiting: Counter[Event] = Counter()
        self.violations: list[Violation] = []

    def push(self, element: Element) -> tuple[Element, ...]:
        """Take the next element of the input; what comes out at once."""
        if isinstance(element, Stable):
            time = self.rule.stable(element.time)
            if time <= self.frontier:
                return ()
            self.frontier = time
            return (Stable(time),)
        old = self.events(element.old_event) if isinstance(element, Adjust) else []
        return tuple(_difference(old, self.events(element.event)))

    def events(self, event: Event) -> list[Event]:
        """What becomes of an event."""
        return [
            Event(self.payload(event.payload, life), life.start, life.end)
            for life in self.rule.lifetimes(event.start, event.end)
        ]

    def payload(self, payload: Hashable, life: Lifetime) -> Hashable:
        """The columns; a window is one more."""
        if not isinstance(self.rule, GridWindows):
            return payload
        columns = payload if isinstance(payload, tuple) else (payload,)
        return (*columns, (life.start, life.end))

    def check(self) -> None:
        """Nothing is remembered."""


def _difference(old: list[Event], new: list[Event]) -> Iterator[Element]:
    ends = {event.identity: event.end for event in new}
    for event in old:
        end = ends.pop(event.identity, event.start)
        if end != event.end:
            yield Adjust(event.payload, event.start, event.end, end)
    for event in new:
        if event.identity in ends:
            yield Insert(*event)
