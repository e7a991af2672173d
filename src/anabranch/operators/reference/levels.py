"""Distinct and difference, one element at a time: their meaning, payload by payload.

At every prefix the output's history is, for each payload, the normal form of a number at each
time: of distinct one while any event is alive, of difference as many as left has more than
right.  The frontier is the least of the inputs'.

Remembered are the events of a payload as long as one of them is not over: runs may have begun
with events that are.  `operators.levels` keeps less, and is compared with this.

>>> from anabranch.model.element import Insert
>>> distinct = Levels(("input",), lambda alive: min(1, alive["input"]))
>>> distinct.push("input", Insert("a", 1, 5)).output
(Insert(payload='a', start=1, end=5),)
>>> distinct.push("input", Insert("a", 3, 9)).output
(Adjust(payload='a', start=1, old_end=5, end=9),)
"""

from collections import Counter
from collections.abc import Callable, Hashable
from itertools import pairwise

from anabranch.model.element import Element, Event, Insert, Stable
from anabranch.model.history import History
from anabranch.model.normal_form import normal_form
from anabranch.model.time import FOREVER, NEVER, Time
from anabranch.operators.contract import Outcome, Reason
from anabranch.operators.reference.normalise import difference

Level = Callable[[Counter[str]], int]


class Levels:
    """The state of the reference; `level` is what is shown, by the events alive per input."""

    def __init__(self, inputs: tuple[str, ...], level: Level) -> None:
        self.level = level
        self.frontiers: dict[str, Time] = dict.fromkeys(inputs, NEVER)
        self.events: dict[Hashable, Counter[tuple[str, Event]]] = {}

    @property
    def frontier(self) -> Time:
        """How far the output is final."""
        return min(self.frontiers.values())

    @property
    def live(self) -> int:
        """The events that may still change."""
        held = (event for own in self.events.values() for _, event in own.elements())
        return sum(not self._is_over(event) for event in held)

    def push(self, name: str, element: Element) -> Outcome:
        """Take the next element of an input."""
        name = name if len(self.frontiers) > 1 else next(iter(self.frontiers))
        if isinstance(element, Stable):
            return self._stable(name, element)
        if element.changes_nothing:
            return Outcome(Reason.NO_CHANGE)
        before = self.result(element.payload)
        own = self.events.setdefault(element.payload, Counter())
        if not isinstance(element, Insert):
            assert own[name, element.old_event] > 0, f"{element} adjusts nothing"
            own[name, element.old_event] -= 1
        if not element.event.is_empty:
            own[name, element.event] += 1
        self.events[element.payload] = +own
        return Outcome(Reason.APPLIED, tuple(difference(before, self.result(element.payload))))

    def result(self, payload: Hashable) -> History:
        """The runs of one payload."""
        own = list(self.events.get(payload, Counter()).elements())
        times = sorted({time for _, e in own for time in (e.start, e.end)})
        pieces: Counter[Event] = Counter()
        for start, end in pairwise(times):
            alive = Counter(name for name, e in own if e.start <= start < e.end)
            pieces[Event(payload, start, end)] += max(0, self.level(alive))
        return normal_form(History(+pieces))

    def _stable(self, name: str, element: Stable) -> Outcome:
        before = self.frontier
        self.frontiers[name] = max(self.frontiers[name], element.time)
        if self.frontier == before:
            return Outcome(Reason.FOLLOWS)
        self.events = {
            payload: own
            for payload, own in self.events.items()
            if not all(self._is_over(event) for _, event in own)
        }
        return Outcome(Reason.LEADS, (Stable(self.frontier),))

    def _is_over(self, event: Event) -> bool:
        return self.frontier == FOREVER or event.end < self.frontier
