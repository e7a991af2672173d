"""The table of events that a stream prefix stands for, and whether it keeps its promises.

Two prefixes mean the same exactly when their histories are equal, whatever the order, batching
or number of elements that wrote them down.  A history is a bag: the same event may be there
several times.

`replay` reads a prefix element by element.  An element that breaks a promise is a `Violation`
and leaves the history as it was.  An insert with `end == start` and an adjust with
`end == old_end` change nothing and break nothing.  A stable that is not later than the last one
changes nothing either: the promise in force is the greatest (errata, decision D2).

Papers: LMerge III-A calls this the TDB of a prefix (its reconstitution), CEDR the canonical
history table.

>>> from anabranch.model.element import Adjust
>>> History.of([Insert("a", 3, 9), Adjust("a", 3, 9, 7), Stable(8)])
payload | start | end
a       | 3     | 7
>>> [v.reason.name for v in replay([Stable(5), Insert("a", 3, 9)]).violations]
['BEHIND_STABLE']
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from anabranch.errors import UsageError
from anabranch.model.element import Element, Event, Identity, Insert, Stable
from anabranch.model.frozen import may_adjust, may_insert
from anabranch.model.time import NEVER, Time, show


class Reason(Enum):
    """Which promise an element breaks; the value is the text for people."""

    BACKWARDS = "its end is before its start"
    BEHIND_STABLE = "it changes time that a stable has declared final"
    NO_SUCH_EVENT = "it adjusts an event that is not there"


@dataclass(frozen=True, slots=True)
class Violation:
    """An element that breaks a promise of its own stream; `position` counts from 0."""

    position: int
    element: Element
    reason: Reason


class History:
    """An immutable bag of events; equal when each event is there equally often.

    Events with an empty lifetime are none, and are left out.
    """

    __slots__ = ("_counts", "_hash")

    def __init__(self, counts: Mapping[Event, int]) -> None:
        self._counts = {e: n for e, n in counts.items() if n > 0 and not e.is_empty}
        self._hash: int | None = None

    @classmethod
    def of(cls, elements: Iterable[Element]) -> "History":
        """What these elements stand for; those that break a promise are left out."""
        return replay(elements).history

    @classmethod
    def from_events(cls, events: Iterable[Event]) -> "History":
        """The bag of these events; an event that ends before it starts is refused."""
        counts = Counter(Event(*event) for event in events)
        for event in counts:
            if event.end < event.start:
                message = (
                    f"event {event.payload!r} starts at {show(event.start)} and ends at "
                    f"{show(event.end)}; the end must be the start or later"
                )
                raise UsageError(message)
        return cls(counts)

    def events(self) -> list[Event]:
        """Every event as often as it is there, by start, payload text and end."""
        ordered = sorted(self._counts, key=lambda e: (e.start, repr(e.payload), e.end))
        return [event for event in ordered for _ in range(self._counts[event])]

    def count(self, event: Event) -> int:
        """How often this event is there."""
        return self._counts.get(event, 0)

    def snapshot(self, time: Time) -> list[Event]:
        """The events that are alive at this time, ordered like `events()`."""
        return [event for event in self.events() if time in event.lifetime]

    def identities(self) -> dict[Identity, tuple[Time, ...]]:
        """For each identity the ends of its events, smallest first."""
        ends: dict[Identity, list[Time]] = {}
        for event in self.events():
            ends.setdefault(event.identity, []).append(event.end)
        return {identity: tuple(sorted(found)) for identity, found in ends.items()}

    def minus(self, other: "History") -> "History":
        """The events that are here more often than there."""
        return History(Counter(self._counts) - Counter(other._counts))

    @property
    def is_keyed(self) -> bool:
        """Whether every identity names one event only."""
        return len({event.identity for event in self._counts}) == len(self)

    def __len__(self) -> int:
        return sum(self._counts.values())

    def __iter__(self) -> Iterator[Event]:
        return iter(self.events())

    def __contains__(self, event: object) -> bool:
        return event in self._counts

    def __eq__(self, other: object) -> bool:
        return self._counts == other._counts if isinstance(other, History) else NotImplemented

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(frozenset(self._counts.items()))
        return self._hash

    def __repr__(self) -> str:
        rows = [("payload", "start", "end")]
        rows += [(str(e.payload), show(e.start), show(e.end)) for e in self.events()]
        payload, start = (max(len(row[i]) for row in rows) for i in range(2))
        return "\n".join(f"{p:{payload}} | {s:{start}} | {e}" for p, s, e in rows)


@dataclass(frozen=True, slots=True)
class Replay:
    """What a prefix stands for, how far it is final, and the promises that it broke."""

    history: History
    frontier: Time = NEVER
    violations: tuple[Violation, ...] = ()


def replay(elements: Iterable[Element]) -> Replay:
    """Read a prefix from its beginning."""
    reader = Reader()
    for element in elements:
        reader.read(element)
    return reader.replay()


def replays(elements: Iterable[Element]) -> Iterator[Replay]:
    """The replay of every prefix, from the empty one to the whole.

    >>> [len(prefix.history) for prefix in replays([Insert("a", 1, 2), Insert("b", 1, 2)])]
    [0, 1, 2]
    """
    reader = Reader()
    yield reader.replay()
    for element in elements:
        reader.read(element)
        yield reader.replay()


class Reader:
    """The running state of a replay, for a prefix that grows.

    >>> reader = Reader()
    >>> reader.read(Insert("a", 1, 2))
    >>> len(reader.replay().history)
    1
    """

    def __init__(self) -> None:
        self.counts: Counter[Event] = Counter()
        self.frontier: Time = NEVER
        self.violations: list[Violation] = []
        self.position = 0

    def read(self, element: Element) -> None:
        """Take the next element."""
        reason = self._refuse(element)
        if reason is not None:
            self.violations.append(Violation(self.position, element, reason))
        elif isinstance(element, Stable):
            self.frontier = max(self.frontier, element.time)
        else:
            if not isinstance(element, Insert):
                self.counts[element.old_event] -= 1
            self.counts[element.event] += 1
        self.position += 1

    def _refuse(self, element: Element) -> Reason | None:
        if isinstance(element, Stable):
            return None
        if element.end < element.start:
            return Reason.BACKWARDS
        if element.changes_nothing:
            return None
        if isinstance(element, Insert):
            allowed = may_insert(element.start, frontier=self.frontier)
            return None if allowed else Reason.BEHIND_STABLE
        if not may_adjust(element.old_end, element.end, frontier=self.frontier):
            return Reason.BEHIND_STABLE
        # An event with an empty lifetime is never there, whatever was absorbed before.
        there = not element.old_event.is_empty and self.counts[element.old_event] > 0
        return None if there else Reason.NO_SUCH_EVENT

    def replay(self) -> Replay:
        """What was read so far stands for this."""
        return Replay(History(self.counts), self.frontier, tuple(self.violations))
