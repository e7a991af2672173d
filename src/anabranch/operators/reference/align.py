"""Align, one element at a time: events are released in the order of their starts.

An event waits until a stable has passed its start; until then adjusts change it where it
waits.  A stable releases what it passes, by start, payload and end, and follows it.  Adjusts of
events that were released are passed on at once.  The output

* has inserts whose starts never fall, and stables behind which nothing starts;
* has at every prefix exactly the events of the input that start before its frontier.

Compare `anabranch.operators.reference.cleanse`, which also waits for ends: align is as early as
an order of starts can be.  Without it streams are unordered, with stables.

`operators.align` does the same over batches; this is what it is raced against.

Papers: Heartbeats 2 (the input manager releases rows in the order of their times), decision D7;
rows of one time come by payload and end, which every cut, lane and replica sees alike, and not
by stream and arrival.

>>> from anabranch.model.element import Insert, Stable
>>> align = Align()
>>> [align.push(e) for e in (Insert("b", 2, 9), Insert("a", 1, 3), Stable(2))]
[(), (), (Insert(payload='a', start=1, end=3), Stable(time=2))]
"""

from collections import Counter

from anabranch.model.element import Adjust, Element, Event, Insert, Stable
from anabranch.model.frozen import Status, status
from anabranch.model.history import Violation
from anabranch.model.time import NEVER, Time
from anabranch.operators.reference.cleanse import release_order
from anabranch.operators.reference.unary import refuse


class Align:
    """The state of the reference; `push` is the only step.

    `waiting` are the events that are not frozen; those that start before the frontier were
    released.
    """

    def __init__(self) -> None:
        self.frontier: Time = NEVER
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
            return ()
        if element.changes_nothing:
            return ()
        if isinstance(element, Adjust):
            self.waiting -= Counter([element.old_event])
        if not element.event.is_empty:
            self.waiting[element.event] += 1
        return (element,) if element.start < self.frontier else ()

    def check(self) -> None:
        """Assert what must always hold between elements."""
        for event, count in self.waiting.items():
            assert count > 0, f"an event that is not there: {event}"
            assert not self._is_frozen(event), f"a frozen event is kept: {event}"

    def _stable(self, time: Time) -> tuple[Element, ...]:
        if time <= self.frontier:
            return ()
        ready = sorted(
            (event for event in self.waiting if self.frontier <= event.start < time),
            key=release_order,
        )
        released = [Insert(*event) for event in ready for _ in range(self.waiting[event])]
        self.frontier = time
        for event in [event for event in self.waiting if self._is_frozen(event)]:
            del self.waiting[event]
        return (*released, Stable(time))

    def _is_frozen(self, event: Event) -> bool:
        return status(event.start, event.end, frontier=self.frontier) is Status.FROZEN
