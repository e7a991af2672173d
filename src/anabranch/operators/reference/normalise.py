"""Normalise, one element at a time: a stream that has the normal form of what it reads.

At every prefix the output's history is the normal form of the input's
(`anabranch.model.normal_form`), and its frontier is the input's.  So replicas that only agree
in their snapshots (other plans, other fragments: erratum X1) have equal histories behind it,
and can be merged.

* Only ends are adjusted; an event of the output appears, changes its end or goes.
* Stables pass, one for one, if they move the frontier.  A valid input cannot make the output
  break them: its stable(t) fixes the multiplicities before t, so runs that start before t stay,
  ends before t stay, and a run that ends at t, or goes on across t, may still change its end.
* Output is R3 if at most one event of a payload is alive at any time (`max_multiplicity=1`), or
  if the input's identities are unique; else it is R4.

Remembered per payload: the input's events that are not frozen, and the starts of the runs that
go on across the frontier, of which there are as many as half-frozen input events.

`operators.normalise` does the same over batches and is compared with this.

Papers: none; the need for it is erratum X1.

>>> from anabranch.model.element import Insert
>>> normalise = Normalise()
>>> normalise.push(Insert("a", 5, 13))
(Insert(payload='a', start=5, end=13),)
>>> normalise.push(Insert("a", 13, 14))
(Adjust(payload='a', start=5, old_end=13, end=14),)
"""

from collections import Counter
from collections.abc import Hashable, Iterator
from itertools import zip_longest

from anabranch.model.element import Adjust, Element, Event, Identity, Insert, Stable
from anabranch.model.frozen import Status, status
from anabranch.model.history import History, Violation
from anabranch.model.normal_form import normal_form
from anabranch.model.time import NEVER, Time
from anabranch.operators.reference.unary import refuse


class Normalise:
    """The state of the reference; `push` is the only step."""

    def __init__(self) -> None:
        self.frontier: Time = NEVER
        self.live: dict[Hashable, Counter[Event]] = {}
        self.begun: dict[Hashable, list[Time]] = {}
        self.violations: list[Violation] = []
        self.position = 0

    def push(self, element: Element) -> tuple[Element, ...]:
        """Take the next element of the input; what comes out at once."""
        position, self.position = self.position, self.position + 1
        if isinstance(element, Stable):
            return self._stable(element)
        own = self.live.get(element.payload, Counter())
        reason = refuse(element, own, frontier=self.frontier)
        if reason is not None:
            self.violations.append(Violation(position, element, reason))
            return ()
        before = self.runs(element.payload)
        if isinstance(element, Adjust):
            own[element.old_event] -= 1
        own[element.event] += 1
        self._keep(element.payload, own)
        return tuple(difference(before, self.runs(element.payload)))

    def runs(self, payload: Hashable) -> History:
        """The output's events of this payload that are not frozen."""
        # Which half-frozen event goes with which of the begun runs makes no difference: none
        # of them ends before the frontier, and runs nest by their starts.
        begun = iter(self.begun.get(payload, ()))
        return normal_form(
            History.from_events(
                Event(payload, next(begun), event.end) if self._crosses(event) else event
                for event in self.live.get(payload, Counter()).elements()
            )
        )

    def check(self) -> None:
        """Assert what must always hold between elements."""
        for payload, own in self.live.items():
            crossing = sum(count for event, count in own.items() if self._crosses(event))
            assert len(self.begun.get(payload, [])) == crossing, f"runs of {payload!r}"
            for event, count in own.items():
                assert count > 0, f"an event that is not there: {event}"
                assert not self._is_frozen(event), f"a frozen event was kept: {event}"
        assert self.begun.keys() <= self.live.keys(), (
            f"payloads with runs {self.begun.keys()} not in {self.live.keys()}"
        )
        assert all(self.live.values()), f"a payload without events: {self.live}"

    def _stable(self, element: Stable) -> tuple[Element, ...]:
        if element.time <= self.frontier:
            return ()
        runs = {payload: self.runs(payload) for payload in self.live}
        self.frontier = element.time
        for payload, some in runs.items():
            begun = [run.start for run in some if self._crosses(run)]
            self.begun[payload] = begun
            own = self.live[payload]
            self._keep(payload, Counter({e: own[e] for e in own if not self._is_frozen(e)}))
        return (element,)

    def _keep(self, payload: Hashable, own: Counter[Event]) -> None:
        self.live[payload] = Counter(
            {event: count for event, count in own.items() if count > 0 and not event.is_empty}
        )
        if not self.live[payload]:
            del self.live[payload]
        if not self.begun.get(payload):
            self.begun.pop(payload, None)

    def _crosses(self, event: Event) -> bool:
        held = status(event.start, event.end, frontier=self.frontier)
        return held is Status.HALF_FROZEN

    def _is_frozen(self, event: Event) -> bool:
        return status(event.start, event.end, frontier=self.frontier) is Status.FROZEN


def difference(before: History, after: History) -> Iterator[Element]:
    """The fewest elements from one bag of events to the other: adjusts, then inserts.

    >>> one, other = (History.from_events([Event("a", 1, end)]) for end in (3, 9))
    >>> list(difference(one, other))
    [Adjust(payload='a', start=1, old_end=3, end=9)]
    """
    extra, lack = before.minus(after).identities(), after.minus(before).identities()
    for (start, payload), old_ends in extra.items():
        ends = lack.get(Identity(start, payload), ())
        for old_end, end in zip_longest(old_ends, ends[: len(old_ends)], fillvalue=start):
            yield Adjust(payload, start, old_end, end)
    for identity, ends in lack.items():
        for end in ends[len(extra.get(identity, ())) :]:
            yield Insert(identity.payload, identity.start, end)
