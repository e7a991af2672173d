"""Slow models of the operators that `anabranch.model.inference` speaks of.

An operator over snapshots is a function from history to history.  How it is emitted is apart:
`eager` emits every difference at once, `final` what can no longer change.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any

from anabranch.model.element import Adjust, Element, Event, Insert, Stable
from anabranch.model.history import History, replays
from anabranch.model.time import FOREVER, NEVER, Time

Snapshots = Callable[[History], History]


def where(stream: Iterable[Element], keep: Callable[[Time, str], bool]) -> list[Element]:
    return [e for e in stream if isinstance(e, Stable) or keep(e.start, e.payload)]


def changed(
    stream: Iterable[Element],
    *,
    payload: Callable = lambda payload: payload,
    lifetime: Callable = lambda start, end: (start, end),
) -> list[Element]:
    """Each event's payload and lifetime by these functions; stables are left out.

    What is empty stays empty: an event that is gone has no new lifetime.
    """

    def new_end(start: Time, end: Time) -> Time:
        return lifetime(start, end)[1] if end > start else lifetime(start, start)[0]

    output: list[Element] = []
    for e in stream:
        if isinstance(e, Stable):
            continue
        name, start = payload(e.payload), lifetime(e.start, e.end)[0]
        if isinstance(e, Insert):
            output.append(Insert(name, start, new_end(e.start, e.end)))
        else:
            ends = new_end(e.start, e.old_end), new_end(e.start, e.end)
            output.append(Adjust(name, start, *ends))
    return output


def union_in_order(streams: Sequence[Sequence[Element]]) -> list[Element]:
    """Inserts by start, then input after input; adjusts are left to the end."""
    data = [e for stream in streams for e in stream if not isinstance(e, Stable)]
    inserts = [e for e in data if isinstance(e, Insert)]
    adjusts = [e for e in data if isinstance(e, Adjust)]
    return [*sorted(inserts, key=lambda e: e.start), *adjusts]


def eager(histories: Iterable[History]) -> list[Element]:
    """What changes from each history to the next: shorter and gone first, then new."""
    output: list[Element] = []
    for before, after in pairwise([History({}), *histories]):
        gone, new = before.minus(after).events(), after.minus(before).events()
        inserts: list[Element] = []
        for event in new:
            old = next((one for one in gone if one.identity == event.identity), None)
            if old is None:
                inserts.append(Insert(*event))
            else:
                gone.remove(old)
                output.append(Adjust(event.payload, event.start, old.end, event.end))
        output += [Adjust(e.payload, e.start, e.end, e.start) for e in gone]
        output += inserts
    return output


def final(
    stream: Sequence[Element],
    snapshots: Snapshots,
    *,
    by_stables: bool = False,
    in_order: bool = False,
    ties: Callable[[Event], Any] = repr,
) -> list[Element]:
    """Results that no element can change: when time has passed them, or by stables alone."""
    output: list[Event] = []
    passed: Time = NEVER
    for element, prefix in zip(stream, [*replays(stream)][1:], strict=True):
        if isinstance(element, Stable):
            passed = max(passed, element.time)
        elif not by_stables:
            passed = max(passed, element.start)
        results = snapshots(prefix.history).events()
        done = [e for e in results if e.end < passed or passed == FOREVER]
        if in_order:
            blocked = min((e.start for e in results if e not in done), default=FOREVER)
            done = sorted((e for e in done if e.start < blocked), key=ties)
            done.sort(key=lambda e: e.start)
        else:
            done.sort(key=lambda e: e.end)
        there = Counter(output)
        for event in done:
            there[event] -= 1
            if there[event] < 0:
                output.append(event)
    return [Insert(*event) for event in output]


def counted(history: History) -> History:
    """How many events are alive, where any are."""
    return _cut(history, lambda alive: [len(alive)])


def top_two(history: History) -> History:
    """The two smallest payloads alive; all results are cut where anything changes."""
    return _cut(history, lambda alive: sorted(e.payload for e in alive)[:2])


def counted_by(history: History, group: Callable[[str], str]) -> History:
    """How many events of each group are alive."""
    results: list[Event] = []
    for name in {group(e.payload) for e in history}:
        part = History.from_events(e for e in history if group(e.payload) == name)
        results += _cut(part, lambda alive, name=name: [(name, len(alive))])
    return History.from_events(results)


def normal(history: History) -> History:
    """For each payload and level, one event per longest run with that many alive."""
    results = []
    for payload in {e.payload for e in history}:
        part = History.from_events(e for e in history if e.payload == payload)
        levels = _cut(part, lambda alive: [*range(len(alive))])
        for level in {e.payload for e in levels}:
            runs = [e for e in levels if e.payload == level]
            results += [Event(payload, start, end) for start, end in _joined(runs)]
    return History.from_events(results)


def distinct(history: History) -> History:
    """Each payload once, in runs as long as can be."""
    return normal(
        History(dict.fromkeys(_cut(history, lambda alive: {e.payload for e in alive}), 1))
    )


def joined(left: History, right: History) -> History:
    """Pairs of events while both are alive."""
    pairs = [
        Event((a.payload, b.payload), max(a.start, b.start), min(a.end, b.end))
        for a in left
        for b in right
    ]
    return History.from_events(e for e in pairs if e.start < e.end)


def cleansed(
    stream: Sequence[Element], *, ties: Callable[[Event], Any] = repr
) -> list[Element]:
    """Whole start groups, once nothing that starts before their end of group can change."""
    return final(stream, lambda history: history, by_stables=True, in_order=True, ties=ties)


def _cut(history: History, results: Callable) -> History:
    """Between any two neighbouring endpoints, `results` of the events alive there."""
    times = sorted({time for e in history for time in (e.start, e.end)})
    events = []
    for start, end in pairwise(times):
        alive = history.snapshot(start)
        events += [Event(value, start, end) for value in results(alive)] if alive else []
    return History.from_events(events)


def _joined(runs: Sequence[Event]) -> list[tuple[Time, Time]]:
    found: list[tuple[Time, Time]] = []
    for e in runs:
        if found and found[-1][1] == e.start:
            found[-1] = (found[-1][0], e.end)
        else:
            found.append((e.start, e.end))
    return found
