"""Finalize inside a query, one element at a time: forced stables, and what is late behind them.

`reached` moves the forced stable to the greatest start that the query has seen, less
`remember`.  An element passes as it is, or it is late: behind the forced stable, or an adjust
of an event that the output does not have as the input has it.

`lost` counts by how many the input has an event more often than the output: one whose insert
was late, or what an adjust that was late made of it.  Events that end before the output's
frontier are dropped from it: no adjust of those is in time.

`operators.waiting.finalize` does the same over batches; `model.forgetting` is what it means.

>>> from anabranch.model.element import Insert
>>> finalize = Finalize(remember=5)
>>> finalize.push(Insert("a", 20, 21)).output, finalize.reached(Reached(20))
((Insert(payload='a', start=20, end=21),), ((Stable(time=15),), ()))
>>> finalize.push(Insert("b", 14, 30)).reason.bucket.word
'late'
"""

from collections import Counter

from anabranch.model.element import Adjust, Element, Event, Insert, Stable
from anabranch.model.net_change import sync_time
from anabranch.model.time import FOREVER, NEVER, Time
from anabranch.model.waiting import limit
from anabranch.operators.contract import Outcome, Reached, Reason, Released


class Finalize:
    """The state of the reference; `push` and `reached` are the only steps."""

    def __init__(self, *, remember: Time) -> None:
        self.remember = remember
        self.received: Time = NEVER
        self.forced: Time = NEVER
        self.lost: Counter[Event] = Counter()

    @property
    def frontier(self) -> Time:
        """How far the output is final."""
        return max(self.received, self.forced)

    def push(self, element: Element) -> Outcome:
        """Take the next element of the input."""
        if isinstance(element, Stable):
            shown = self.frontier
            self.received = max(self.received, element.time)
            output = self._moved(shown)
            return Outcome(Reason.LEADS if output else Reason.FOLLOWS, output)
        if element.changes_nothing:
            return Outcome(Reason.NO_CHANGE)
        reason = self._late(element)
        if reason is not None:
            self._lose(element)
            return Outcome(reason)
        is_insert = isinstance(element, Insert)
        return Outcome(Reason.FIRST if is_insert else Reason.CORRECTED, (element,))

    def reached(self, one: Reached) -> tuple[tuple[Element, ...], tuple[Released, ...]]:
        """The query has come this far."""
        shown = self.frontier
        self.forced = max(self.forced, limit([(one.start, NEVER)], wait=self.remember))
        return self._moved(shown), ()

    def check(self) -> None:
        """Assert what must always hold between elements."""
        for event, count in self.lost.items():
            assert count, f"an event that is not lost: {event}"
            assert event.end >= self.frontier, f"{event} ends behind {self.frontier}"

    def _late(self, element: Insert | Adjust) -> Reason | None:
        if sync_time(element) < self.forced:
            return Reason.BEHIND_FORCED
        if isinstance(element, Adjust) and self.lost[element.old_event] > 0:
            return Reason.OF_FORGOTTEN
        return None

    def _lose(self, element: Insert | Adjust) -> None:
        if isinstance(element, Adjust):
            self.lost[element.old_event] -= 1
        if not element.event.is_empty:
            self.lost[element.event] += 1
        self._forget()

    def _moved(self, shown: Time) -> tuple[Element, ...]:
        self._forget()
        return (Stable(self.frontier),) if self.frontier > shown else ()

    def _forget(self) -> None:
        at = self.frontier
        is_open = {e: n for e, n in self.lost.items() if n and e.end >= at and at < FOREVER}
        self.lost = Counter(is_open)
