"""Align inside a query, one element at a time: events are held back, and leave in order.

What is held is an *arc*: an event that is not released, from nothing to its end, or an adjust
of one that is, from the end that it has on the output to another one.  An adjust that begins
where an arc ends lengthens that arc; an arc from an end to itself is dropped (erratum C14).

* A stable releases the arcs whose sync time it passes, in the order of these, and follows them
  (C15).  An insert has its start as sync time, an adjust the least of its two ends.
* `reached` moves the limit of a wait: arcs that start there or before are released, and what
  comes later for such a start passes at once (4.5: the start decides, not the sync time).
* With `Release.FINAL` a stable releases the events that are final in order, and the output's
  stable is where that stops (L13).

A held element is pending.  An arc stands for the last of its elements; the others are applied
when they are combined.

`operators.waiting.hold` does the same over batches and is compared with this.

>>> from anabranch.model.element import Insert, Stable
>>> align = Hold()
>>> for one in (Insert("b", 5, 9), Insert("a", 4, 8), Adjust("a", 4, 8, 4), Stable(6)):
...     out = align.push("input", one)
>>> out.output
(Insert(payload='b', start=5, end=9), Stable(time=6))
"""

from dataclasses import dataclass

from anabranch.model.element import Adjust, Element, Event, Insert, Stable
from anabranch.model.history import History
from anabranch.model.net_change import sync_time
from anabranch.model.time import NEVER, Time
from anabranch.model.waiting import final_in_order, limit
from anabranch.operators.contract import Outcome, Reached, Reason, Released
from anabranch.operators.reference.cleanse import payload_order
from anabranch.operators.waiting.level import Release

Data = Insert | Adjust


@dataclass
class Arc:
    """What is held of one event: `origin` is its end on the output, its start if it has none.

    `name` and `element` are the input and the element that it stands for.
    """

    origin: Time
    end: Time
    name: str
    element: Data

    @property
    def data(self) -> Data:
        """The element that releases it."""
        payload, start = self.element.payload, self.element.start
        if self.origin == start:
            return Insert(payload, start, self.end)
        return Adjust(payload, start, self.origin, self.end)


class Hold:
    """The state of the reference; `push` and `reached` are the only steps."""

    def __init__(
        self,
        *,
        wait: Time | None = None,
        wait_wall: Time | None = None,
        release: Release = Release.ORDERED,
        beside: int = 0,
    ) -> None:
        self.wait, self.wait_wall, self.release = wait, wait_wall, release
        names = ["input", *(f"beside_{number}" for number in range(beside))]
        self.received: dict[str, Time] = dict.fromkeys(names, NEVER)
        self.passed: list[tuple[Time, Time]] = []
        self.limit: Time = NEVER
        self.shown: Time = NEVER
        self.arcs: list[Arc] = []

    @property
    def frontier(self) -> Time:
        """The least frontier of the inputs."""
        return min(self.received.values())

    def push(self, name: str, element: Element) -> Outcome:
        """Take the next element of an input; `beside_0` and so on are only waited for."""
        port = name if name in self.received else "input"
        if isinstance(element, Stable):
            return self._stable(port, element.time)
        if element.changes_nothing:
            return Outcome(Reason.NO_CHANGE)
        if port != "input":
            return Outcome(Reason.APPLIED)
        arc = self._combine(name, element)
        resolved = self.dropped
        if arc is None:
            return Outcome(Reason.APPLIED, resolved=resolved)
        if self.release is Release.ORDERED and element.start <= self.limit:
            self.arcs.remove(arc)
            return Outcome(Reason.APPLIED, (arc.data,), resolved)
        return Outcome(Reason.HELD, resolved=resolved)

    def reached(self, one: Reached) -> tuple[tuple[Element, ...], tuple[Released, ...]]:
        """The query has come this far."""
        self.passed.append((one.start, NEVER if one.time is None else one.time))
        wall = None if one.time is None else self.wait_wall
        self.limit = max(self.limit, limit(self.passed, wait=self.wait, wait_wall=wall))
        return self._release([arc for arc in self.arcs if arc.element.start <= self.limit])

    def check(self) -> None:
        """Assert what must always hold between elements."""
        for arc in self.arcs:
            assert arc.origin != arc.end, f"an arc that changes nothing: {arc}"
            assert arc.element.start > self.limit, f"{arc} is held at the limit {self.limit}"
            if self.release is Release.ORDERED:
                assert sync_time(arc.data) >= self.frontier, f"{arc} < {self.frontier}"

    def _combine(self, name: str, element: Data) -> Arc | None:
        """The arc that the element is part of now; None if nothing is left of it.

        `dropped` are the elements that no longer stand for an arc.
        """
        self.dropped: tuple[Released, ...] = ()
        identity = element.event.identity
        origin = element.old_end if isinstance(element, Adjust) else element.start
        mine = [
            one
            for one in self.arcs
            if isinstance(element, Adjust)
            and one.element.event.identity == identity
            and one.end == origin
        ]
        if not mine:
            self.arcs.append(Arc(origin, element.end, name, element))
            return self.arcs[-1]
        arc = mine[-1]
        self.dropped = (Released(arc.name, arc.element, Reason.APPLIED),)
        arc.end, arc.name, arc.element = element.end, name, element
        if arc.end != arc.origin:
            return arc
        self.arcs = [one for one in self.arcs if one is not arc]
        return None

    def _stable(self, port: str, time: Time) -> Outcome:
        self.received[port] = max(self.received[port], time)
        if self.release is Release.FINAL:
            events = [Event(one.data.payload, one.data.start, one.end) for one in self.arcs]
            _, bound = final_in_order(History.from_events(events), self.frontier)
            ready = [arc for arc in self.arcs if arc.data.start < bound]
        else:
            bound = self.frontier
            ready = [arc for arc in self.arcs if sync_time(arc.data) < bound]
        output, resolved = self._release(ready)
        if bound <= self.shown:
            assert not output, f"{output} behind the frontier {self.shown}"
            return Outcome(Reason.FOLLOWS)
        self.shown = bound
        return Outcome(Reason.LEADS, (*output, Stable(bound)), resolved)

    def _release(self, arcs: list[Arc]) -> tuple[tuple[Element, ...], tuple[Released, ...]]:
        """Let these arcs go, in the order of their sync times."""
        gone = {id(arc) for arc in arcs}
        self.arcs = [arc for arc in self.arcs if id(arc) not in gone]
        resolved = tuple(Released(arc.name, arc.element, Reason.APPLIED) for arc in arcs)
        return tuple(sorted((arc.data for arc in arcs), key=_order)), resolved


def _order(element: Data) -> tuple[object, ...]:
    """By sync time, adjusts first; of one time by payload and end."""
    by_value = payload_order(element.payload), element.start, element.end
    return (sync_time(element), isinstance(element, Insert), *by_value)
