"""Finalize where a stream enters, one element at a time: chains, promises, forced stables.

* An insert is emitted.  An adjust of an end that the output has is emitted; another one waits.
  Where an event comes to an end that an adjust waits for, that adjust is applied to it, and so
  on; what one element sets off is emitted as its net change (C23).  Adjusts that wait and come
  to nothing together (one to an end, one from it to where the first began) are dropped.
* Every element counts by its own sync time (C21, C24), unless its promise is complete (C25) or
  all that it counts is there: then it is a violation.
* The frontier is as far as promises are complete, at most the least sync time of what waits
  (C22), or the forced stable, if that is further.
* Behind the forced stable elements are late as in `reference.finalize`, and so is what waits.

Nothing is forgotten here but what the frontier has passed: the ends of events (C18), and those
of events that were late.

`operators.waiting.promised` does the same over batches, with `seq`; `model.chains` is what it
means.

>>> from anabranch.model.notation import parse
>>> finalize = Promised(origin=0)
>>> for one in parse("adjust a 0..10->8; adjust a 0..6->4; adjust a 0..8->6; insert a 0..10"):
...     out = finalize.push("input", one)
>>> out.output, finalize.push("promises", Insert(4, 0, 9)).output
((Insert(payload='a', start=0, end=4),), (Stable(time=9),))
"""

from collections import Counter
from dataclasses import dataclass

from anabranch.model.chains import Promise, arrival_time
from anabranch.model.element import Adjust, Element, Event, Identity, Insert, Stable
from anabranch.model.history import History
from anabranch.model.net_change import difference_of, sync_time
from anabranch.model.time import FOREVER, NEVER, Time
from anabranch.model.waiting import limit
from anabranch.operators.contract import Outcome, Reached, Reason, Released
from anabranch.operators.waiting.promise_book import PROMISES

Data = Insert | Adjust


@dataclass(frozen=True)
class Waiting:
    """An adjust of an end that no event has, and its input."""

    name: str
    element: Adjust


class Promised:
    """The state of the reference; `push` and `reached` are the only steps."""

    def __init__(self, *, origin: Time, remember: Time | None = None) -> None:
        self.origin, self.remember = origin, remember
        self.done: Time = NEVER
        self.forced: Time = NEVER
        self.shown: Time = NEVER
        self.promises: dict[Time, Promise] = {}
        self.counts: Counter[Time] = Counter()
        self.events: Counter[Event] = Counter()
        self.waiting: list[Waiting] = []
        self.lost: Counter[Event] = Counter()

    @property
    def frontier(self) -> Time:
        """How far the output is final."""
        missing = [sync_time(one.element) for one in self.waiting]
        return max(min([self.done, *missing]), self.forced)

    @property
    def hole(self) -> tuple[Time, Time] | None:
        """Where the next promise is missing, although later ones are there."""
        at = self.origin if self.done == NEVER else self.done
        later = [start for start in self.promises if start > at]
        return (at, min(later)) if later and at not in self.promises else None

    def push(self, name: str, element: Element) -> Outcome:
        """Take the next element of an input, or a promise."""
        if name == PROMISES:
            return self._promise(element)
        if isinstance(element, Stable):
            return Outcome(Reason.FOLLOWS)
        reason = self._refuse(element)
        if reason is not None:
            return Outcome(reason, self._advance())
        late = self._late(element)
        if late is not None:
            gone = (*self._lose(element), *self._close(element.event.identity))
            return Outcome(late, self._advance(), gone)
        outcome = self._take(name, element)
        output = (*outcome.output, *self._advance())
        return Outcome(outcome.reason, output, outcome.resolved)

    def reached(self, one: Reached) -> tuple[tuple[Element, ...], tuple[Released, ...]]:
        """The query has come this far."""
        if self.remember is None:
            return (), ()
        self.forced = max(self.forced, limit([(one.start, NEVER)], wait=self.remember))
        late = [held for held in self.waiting if sync_time(held.element) < self.forced]
        self.waiting = [held for held in self.waiting if held not in late]
        gone = [Released(h.name, h.element, Reason.BEHIND_FORCED) for h in late]
        for held in late:
            gone += self._lose(held.element)
            gone += self._close(held.element.event.identity)
        return self._advance(), tuple(gone)

    def check(self) -> None:
        """Assert what must always hold between elements."""
        assert self.shown == self.frontier, f"shown {self.shown} != {self.frontier}"
        for held in self.waiting:
            assert not self.events[held.element.old_event], f"{held} waits for nothing"

    def _promise(self, element: Element) -> Outcome:
        if isinstance(element, Stable):
            return Outcome(Reason.FOLLOWS)
        if isinstance(element, Adjust) or not isinstance(element.payload, int):
            return Outcome(Reason.NOT_PROMISED)
        made = Promise(element.start, element.end, element.payload)
        first = self.origin if self.done == NEVER else self.done
        overlaps = any(made.start < p.end and p.start < made.end for p in self._open(first))
        if made.start < first or made.end <= made.start or made.count < 0 or overlaps:
            return Outcome(Reason.NOT_PROMISED)
        self.promises[made.start] = made
        return Outcome(Reason.APPLIED, self._advance())

    def _open(self, first: Time) -> list[Promise]:
        return [one for one in self.promises.values() if one.start >= first]

    def _refuse(self, element: Data) -> Reason | None:
        """Why an element is not applied; it is counted where a promise may count it."""
        time = arrival_time(element)
        first = self.origin if self.done == NEVER else self.done
        mine = [one for one in self._open(first) if one.start <= time < one.end]
        if time < first or any(self._received(one) >= one.count for one in mine):
            return Reason.NOT_PROMISED
        self.counts[time] += 1
        if element.end < element.start:
            return Reason.BACKWARDS
        if element.changes_nothing:
            return Reason.NO_CHANGE
        if isinstance(element, Adjust) and element.old_end <= element.start:
            return Reason.NO_SUCH_EVENT
        return None

    def _late(self, element: Data) -> Reason | None:
        if sync_time(element) < self.forced:
            return Reason.BEHIND_FORCED
        if isinstance(element, Adjust) and self.lost[element.old_event] > 0:
            return Reason.OF_FORGOTTEN
        return None

    def _received(self, promise: Promise) -> int:
        return sum(n for t, n in self.counts.items() if promise.start <= t < promise.end)

    def _take(self, name: str, element: Data) -> Outcome:
        identity = element.event.identity
        mine = [one for one in self.waiting if one.element.event.identity == identity]
        new = Waiting(name, element) if isinstance(element, Adjust) else None
        if new is not None and not self.events[new.element.old_event]:
            self.waiting.append(new)
            gone = self._close(identity)
            if len(gone) == 0:
                return Outcome(Reason.BROKEN_CHAIN)
            return Outcome(Reason.APPLIED, resolved=gone[:-1])
        before = History(self.events)
        self._apply(element)
        gone = (*self._fire(element.event), *self._close(identity))
        if not mine:
            is_insert = isinstance(element, Insert)
            return Outcome(Reason.FIRST if is_insert else Reason.CORRECTED, (element,))
        output = tuple(difference_of(before, History(self.events)))
        return Outcome(Reason.APPLIED, output, gone)

    def _apply(self, element: Data) -> None:
        if isinstance(element, Adjust):
            self.events[element.old_event] -= 1
        if not element.event.is_empty:
            self.events[element.event] += 1

    def _fire(self, event: Event) -> list[Released]:
        """Apply what waits for an event that came to this end, then for what it becomes."""
        fired: list[Released] = []
        while not event.is_empty:
            mine = [one for one in self.waiting if one.element.old_event == event]
            if not mine:
                break
            first = mine[0]
            fired.append(Released(first.name, first.element, Reason.APPLIED))
            self.waiting.remove(first)
            self._apply(first.element)
            event = first.element.event
        return fired

    def _close(self, identity: Identity) -> tuple[Released, ...]:
        """Drop what waits of an identity, if no count of its ends is negative with that.

        All of it comes to nothing then: adjusts that lead back to where they began.
        """
        mine = [one for one in self.waiting if one.element.event.identity == identity]
        ends = Counter({e: n for e, n in self.events.items() if e.identity == identity})
        for one in mine:
            ends[one.element.old_event] -= 1
            if not one.element.event.is_empty:
                ends[one.element.event] += 1
        if min(ends.values(), default=0) < 0:
            return ()
        self.waiting = [one for one in self.waiting if one not in mine]
        return tuple(Released(one.name, one.element, Reason.APPLIED) for one in mine)

    def _lose(self, element: Data) -> tuple[Released, ...]:
        """An element is late, and with it what waits for the event that it brings."""
        if isinstance(element, Adjust):
            self.lost[element.old_event] -= 1
        if element.event.is_empty:
            return ()
        self.lost[element.event] += 1
        mine = [one for one in self.waiting if one.element.old_event == element.event]
        if not mine or self.lost[element.event] <= 0:
            return ()
        first = mine[0]
        self.waiting.remove(first)
        gone = Released(first.name, first.element, Reason.OF_FORGOTTEN)
        return (gone, *self._lose(first.element))

    def _open_ends(self, counts: Counter[Event]) -> Counter[Event]:
        """Those that the frontier has not frozen."""
        at = self.frontier
        is_open = {e: n for e, n in counts.items() if n and e.end >= at and at < FOREVER}
        return Counter(is_open)

    def _advance(self) -> tuple[Element, ...]:
        """Complete promises, forget what is behind the frontier, and emit it if it is news."""
        at = self.origin if self.done == NEVER else self.done
        while at in self.promises and self._received(self.promises[at]) >= (
            self.promises[at].count
        ):
            self.done = at = self.promises.pop(at).end
        self.counts = Counter({time: n for time, n in self.counts.items() if time >= at})
        self.lost, self.events = self._open_ends(self.lost), self._open_ends(self.events)
        frontier = self.frontier
        if frontier <= self.shown:
            return ()
        self.shown = frontier
        return (Stable(frontier),)
