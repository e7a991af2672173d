"""What align may release: the limit of a wait, sync order, and what is final in order.

Papers: CEDR *operators*, 4.5, with errata C15 to C17, L13 and D13.

>>> from anabranch.model.element import Adjust, Event, Insert
>>> in_sync_order([Insert("a", 2, 9), Adjust("b", 1, 7, 4), Insert("c", 3, 5)])
False
>>> final_in_order(History.from_events([Event("a", 1, 9), Event("b", 2, 3)]), 5)
(payload | start | end, 1)
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise

from anabranch.model.element import Element, Stable
from anabranch.model.frozen import Status, status
from anabranch.model.history import History
from anabranch.model.net_change import sync_time
from anabranch.model.time import NEVER, Time


def limit(
    reached: Sequence[tuple[Time, Time]],
    *,
    wait: Time | None = None,
    wait_wall: Time | None = None,
) -> Time:
    """The start up to which no event waits any longer, after these (greatest start, time).

    With `wait` the greatest start less that; with `wait_wall` the greatest start that was known
    that long before.  It never falls; nothing is over before anything was reached (C17).

    >>> limit([(20, 100), (30, 160)], wait=15), limit([(20, 100), (30, 160)], wait_wall=60)
    (15, 20)
    """
    found = [NEVER]
    for now, (greatest, time) in enumerate(reached):
        if wait is not None:
            found.append(greatest - wait)
        if wait_wall is not None:
            past = [start for start, then in reached[: now + 1] if then <= time - wait_wall]
            found += past
    return max(found)


def in_sync_order(elements: Iterable[Element]) -> bool:
    """Whether the sync times of inserts and adjusts never fall."""
    times = [sync_time(one) for one in elements if not isinstance(one, Stable)]
    return all(one <= other for one, other in pairwise(times))


def final_in_order(history: History, frontier: Time) -> tuple[History, Time]:
    """The frozen events that only frozen events start before or with, and up to which start.

    No event starts at the time that is returned, or one that is not frozen does.
    """
    open_starts = [
        event.start
        for event in history
        if event.start < frontier
        and status(event.start, event.end, frontier=frontier) is not Status.FROZEN
    ]
    bound = min(open_starts, default=frontier)
    return History.from_events(event for event in history if event.start < bound), bound
