"""The normal form: one history for all that have the same snapshots.

For each payload let m(t) be its multiplicity at time t: how many of its events are alive then.
The normal form has, for every level i, one event per maximal run of times with `m(t) >= i`.

* It is a function of the snapshots alone, and has the same snapshots: fragments that touch
  become one event, and overlapping ones are nested.
* What a stable at t fixes of a history fixes m before t, and with it every start before t and
  every end before t of the normal form.  An end at t itself may still move: a fragment that
  starts at t lengthens the run.

Papers: none has it; erratum X1 shows why merge needs it.

>>> fragments = History.from_events([Event("a", 5, 13), Event("a", 13, 14)])
>>> normal_form(fragments)
payload | start | end
a       | 5     | 14
>>> snapshot_equivalent(fragments, History.from_events([Event("a", 5, 14)]))
True
"""

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping

from anabranch.model.element import Event
from anabranch.model.history import History
from anabranch.model.time import Time


def normal_form(history: History) -> History:
    """The history with the same snapshots that is a function of them alone.

    >>> normal_form(History.from_events([Event("a", 1, 5), Event("a", 3, 9)])).events()
    [Event(payload='a', start=1, end=9), Event(payload='a', start=3, end=5)]
    """
    return History.from_events(
        run for payload, steps in _steps(history).items() for run in _runs(payload, steps)
    )


def snapshot_equivalent(left: History, right: History) -> bool:
    """Whether at every time the same payloads are alive, equally often."""
    return _steps(left) == _steps(right)


def max_multiplicity(history: History) -> int:
    """The greatest number of events of one payload that are alive at one time.

    >>> max_multiplicity(History.from_events([Event("a", 1, 5), Event("a", 5, 9)]))
    1
    """
    levels = (_levels(steps) for steps in _steps(history).values())
    return max((level for some in levels for level in some), default=0)


def _steps(history: History) -> dict[Hashable, dict[Time, int]]:
    """By how much the multiplicity of each payload changes at each time; nowhere by nothing."""
    changes: dict[Hashable, Counter[Time]] = {}
    for event in history:
        own = changes.setdefault(event.payload, Counter())
        own[event.start] += 1
        own[event.end] -= 1
    return {
        payload: {time: own[time] for time in sorted(own) if own[time]}
        for payload, own in changes.items()
    }


def _runs(payload: Hashable, steps: Mapping[Time, int]) -> Iterator[Event]:
    """Runs nest: what ends first is the level that was reached last."""
    begun: list[Time] = []
    for time, change in steps.items():
        begun += [time] * change
        for _ in range(-change):
            yield Event(payload, begun.pop(), time)


def _levels(steps: Mapping[Time, int]) -> Iterator[int]:
    level = 0
    for change in steps.values():
        level += change
        yield level
