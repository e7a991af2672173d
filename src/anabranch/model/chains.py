"""Elements in any order: what they come to, and how far promises make it final.

The elements of an identity come to a signed multiset of ends: an insert adds one, an adjust
takes one and adds one.  The identity is *whole* when no count is negative; then the multiset
is what its events are, in whatever order the elements came.

A promise (an external CTI) is that a number of elements has its sync time in an interval.
Promises tile time from an origin on; the end of the last one that is complete, with none
missing before it, is as far as a stable may be.

Papers: CEDR *operators*, 3 and 4.6, with errata C19 to C25.

>>> from anabranch.model.notation import parse
>>> elements = parse("adjust a 2..3->2; insert a 2..forever; adjust a 2..forever->3")
>>> whole(elements[:2]), whole(elements)
((payload | start | end, {Identity(start=2, payload='a')}), (payload | start | end, set()))
>>> tiled([Promise(0, 5, 1), Promise(5, 9, 0)], [3], origin=0)
9
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from anabranch.model.element import Adjust, Event, Identity, Insert
from anabranch.model.history import History
from anabranch.model.net_change import sync_time
from anabranch.model.time import NEVER, Time


@dataclass(frozen=True, slots=True)
class Promise:
    """`count` elements have their sync time in `[start, end)`."""

    start: Time
    end: Time
    count: int


def whole(elements: Iterable[Insert | Adjust]) -> tuple[History, set[Identity]]:
    """The events of all identities that are whole, and the identities that are not."""
    ends: dict[Identity, Counter[Time]] = {}
    for one in elements:
        mine = ends.setdefault(one.event.identity, Counter())
        mine[one.end] += 1
        if isinstance(one, Adjust):
            mine[one.old_end] -= 1
    broken: set[Identity] = set()
    events: Counter[Event] = Counter()
    for identity, counts in ends.items():
        del counts[identity.start]  # an event without lifetime is none
        if min(counts.values(), default=0) < 0:
            broken.add(identity)
            continue
        for end, count in counts.items():
            events[Event(identity.payload, identity.start, end)] += count
    return History(events), broken


def arrival_time(element: Insert | Adjust) -> Time:
    """The time by which a promise counts an element: its own sync time (C21)."""
    return sync_time(element)


def tiled(promises: Iterable[Promise], times: Iterable[Time], *, origin: Time) -> Time:
    """How far promises are complete for elements with these sync times; NEVER if none is."""
    counts, by_start = Counter(times), {one.start: one for one in promises}
    reached, at = NEVER, origin
    while at in by_start:
        one = by_start[at]
        if sum(n for time, n in counts.items() if one.start <= time < one.end) < one.count:
            break
        reached = at = one.end
    return reached
