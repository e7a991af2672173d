"""Join, one element at a time: its meaning on what is remembered, before and after.

At every prefix the output's history is the join of the histories of both inputs; its frontier
is the least of theirs.  An element is applied to the events of its side, and the output is the
fewest elements from the old result of its key to the new one.  Nothing is clever here: the
results of a key are computed again from its events.

Remembered are, of an inner join, the events that the frontier of the other side has not passed:
what changes behind them has no partner there.  An event that is forgotten may still be adjusted
by its own side; it is there again while the results are computed.  Of the other joins all
events are remembered that a frontier of either side has not passed.  A run of a left event may
begin where events ended that are over, so these stay as long as a left event of their key goes
on that they overlapped; the compiled join keeps one time instead.

`operators.join` does the same over batches and is compared with this.

Papers: CEDR *operators* 2.2 and Algorithm 6; erratum C13.

>>> from anabranch.model.element import Insert
>>> join = Join(key_of={"left": lambda p: p, "right": lambda p: p}, combine=lambda l, r: (l, r))
>>> join.push("left", Insert("a", 1, 5)).output
()
>>> join.push("right", Insert("a", 3, 9)).output
(Insert(payload=('a', 'a'), start=3, end=5),)
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from anabranch.model.element import Element, Event, Insert, Stable
from anabranch.model.history import History
from anabranch.model.time import FOREVER, NEVER, Time
from anabranch.operators.contract import Outcome, Reason
from anabranch.operators.reference.normalise import difference

_BOTH = ("left", "right")


class _Alone(NamedTuple):
    """Instead of a key, for a payload that matches nothing."""

    payload: Hashable


@dataclass
class Join:
    """The state of the reference.

    `key_of` is the key of a payload by side, None if it matches nothing; `combine` makes the
    payload of a result from that of the left event and of its partner, None for no partner.
    """

    key_of: Mapping[str, Callable[[Hashable], Hashable]]
    combine: Callable[[Hashable, Hashable], Hashable]
    how: str = "inner"
    frontiers: dict[str, Time] = field(default_factory=lambda: dict.fromkeys(_BOTH, NEVER))
    events: dict[str, dict[Hashable, Counter[Event]]] = field(
        default_factory=lambda: {name: {} for name in _BOTH}
    )

    @property
    def frontier(self) -> Time:
        """How far the output is final."""
        return min(self.frontiers.values())

    @property
    def live(self) -> int:
        """The events that a frontier has not passed yet, and that may have partners."""
        return sum(
            not self._is_over(name, event)
            for name, side in self.events.items()
            for key, own in side.items()
            if _joins(key)
            for event in own.elements()
        )

    def push(self, name: str, element: Element) -> Outcome:
        """Take the next element of a side."""
        if isinstance(element, Stable):
            shown = self.frontier
            self.frontiers[name] = max(self.frontiers[name], element.time)
            self._forget()
            if self.frontier == shown:
                return Outcome(Reason.FOLLOWS)
            return Outcome(Reason.LEADS, (Stable(self.frontier),))
        if element.changes_nothing:
            return Outcome(Reason.NO_CHANGE)
        key = self.key_of[name](element.payload)
        key = _Alone(element.payload) if key is None else key
        own = self.events[name].setdefault(key, Counter())
        if not isinstance(element, Insert) and not own[element.old_event]:
            old = element.old_event
            assert self._is_over(name, old), f"{element} adjusts nothing"
            own[old] += 1
        before = self.result(key)
        if not isinstance(element, Insert):
            own[element.old_event] -= 1
        if not element.event.is_empty:
            own[element.event] += 1
        changes = tuple(difference(before, self.result(key)))
        self._forget()
        return Outcome(Reason.APPLIED, changes)

    def result(self, key: Hashable) -> History:
        """The results of one key, of the events that are remembered."""
        left, right = ([*self.events[name].get(key, Counter()).elements()] for name in _BOTH)
        if not _joins(key):
            right = []
        return History.from_events(
            found for event in left for found in self._results(event, right)
        )

    def _results(self, event: Event, right: list[Event]) -> Iterator[Event]:
        shared = [(max(event.start, r.start), min(event.end, r.end), r) for r in right]
        shared = [one for one in shared if one[0] < one[1]]
        if self.how in ("inner", "left"):
            for start, end, partner in shared:
                yield Event(self.combine(event.payload, partner.payload), start, end)
        if self.how == "inner":
            return
        runs = _runs([(start, end) for start, end, _ in shared])
        if self.how != "semi":
            runs = _gaps(event, runs)
        for start, end in runs:
            yield Event(self.combine(event.payload, None), start, end)

    def _forget(self) -> None:
        """Drop the events that no promise lets change, nor what depends on them."""
        for key in {key for side in self.events.values() for key in side}:
            left, right = (self.events[name].pop(key, Counter()) for name in _BOTH)
            left = Counter({e: n for e, n in left.items() if not self._is_over("left", e)})
            begin = min((e.start for e in left), default=FOREVER)
            is_needed = self.how != "inner"
            right = Counter(
                {
                    e: n
                    for e, n in right.items()
                    if not self._is_over("right", e) or (is_needed and e.end >= begin)
                }
            )
            for name, own in zip(_BOTH, (left, right), strict=True):
                if +own:
                    self.events[name][key] = +own

    def _is_over(self, name: str, event: Event) -> bool:
        other = "right" if name == "left" else "left"
        frontier = self.frontiers[other] if self.how == "inner" else self.frontier
        return frontier == FOREVER or event.end < frontier


def _joins(key: Hashable) -> bool:
    return not isinstance(key, _Alone)


def _runs(pieces: list[tuple[Time, Time]]) -> list[tuple[Time, Time]]:
    """The maximal stretches that these cover."""
    found: list[tuple[Time, Time]] = []
    for start, end in sorted(pieces):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return found


def _gaps(event: Event, runs: list[tuple[Time, Time]]) -> list[tuple[Time, Time]]:
    """What these stretches leave of the event."""
    times = [event.start, *(time for run in runs for time in run), event.end]
    return [(a, b) for a, b in zip(times[::2], times[1::2], strict=True) if a < b]
