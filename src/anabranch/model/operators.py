"""The meaning of each query operator: a plain function from histories to a history.

An implementation must emit, at the end of each step, a stream whose history is this function of
the histories of its inputs, and must keep every promise of its own stables.

Payloads are tuples of column values, in the order of the columns: an operator that adds columns
appends to the tuple.  Where no column is added any hashable payload will do.

Results have one of three forms, each a function of the input histories alone:

* one result per event or pair of events: `where`, `project`, `alter_lifetime`, windows,
  `inserts`, `deletes`, `join`, `union`; and `session`, whose lifetimes depend on the other
  events of the key;
* one result between neighbouring end points of the events of a group: `aggregate`.  This is the
  table of *theory* 3.1, with nothing where nothing is alive (erratum D10);
* maximal runs.  Per payload, in normal form: `distinct`, `difference`, `top_k`, `normalise`.
  Per left event: `semi_join`, `anti_join` and the part of `left_join` without partner.

Histories are bags: two equal events are two (erratum D17).

Papers: CEDR *theory* 3.1 and *operators* 2, Definitions 3 to 6.

>>> left = History.from_events([Event(("a", 1), 0, 9)])
>>> right = History.from_events([Event(("a", 7), 3, 5)])
>>> left_join(left, right, on_columns({0: 0}), absent=(None, None))
payload              | start | end
('a', 1, None, None) | 0     | 3
('a', 1, 'a', 7)     | 3     | 5
('a', 1, None, None) | 5     | 9
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise
from math import isnan
from typing import Any, TypeAlias

from anabranch.errors import UsageError
from anabranch.model.element import Event, Identity
from anabranch.model.history import History
from anabranch.model.lifetimes import (
    AlterLifetime,
    GridWindows,
    Hop,
    LifetimeRule,
    sliding,
)
from anabranch.model.normal_form import normal_form
from anabranch.model.time import FOREVER, Time

Payload: TypeAlias = Any
"""A hashable value; a tuple of column values wherever columns are added."""

Columns: TypeAlias = tuple[Any, ...]
Matches: TypeAlias = Callable[[Payload, Payload], bool]

normalise = normal_form


# One result per event


def where(history: History, keep: Callable[[Identity], bool]) -> History:
    """The events that are kept, with their lifetimes.

    `keep` reads start and payload, all that an adjust has in common with its insert; an end may
    change after the event was kept or dropped.
    """
    return History.from_events(e for e in history if keep(e.identity))


def project(history: History, change: Callable[[Identity], Payload]) -> History:
    """All events with new payloads (`select` on the fluent face), with their lifetimes.

    `change` reads start and payload, as for `where`.
    """
    return History.from_events(Event(change(e.identity), e.start, e.end) for e in history)


def alter_lifetime(history: History, rule: AlterLifetime) -> History:
    """All events with the lifetimes of the rule."""
    return _moved(history, rule)


def window(history: History, size: int) -> History:
    """The sliding window: each event is alive during `[start, start + size)`."""
    return _moved(history, sliding(size))


def hop(history: History, size: int, slide: int) -> History:
    """The papers' hopping window, one event per event (erratum D15).

    The snapshot at a hop `k * slide` has the events with `start` in `(hop - size, hop]`, and
    stays the same until the next hop.
    """
    return _moved(history, Hop(size, slide))


def grid_windows(history: History, windows: GridWindows) -> History:
    """One event per window that contains the start; the window is lifetime and last column.

    The column is the pair (start, end).  In a gap between two windows there is none.
    """
    return History.from_events(
        Event((*_columns(e), (life.start, life.end)), life.start, life.end)
        for e in history
        for life in windows.lifetimes(e.start, e.end)
    )


def inserts(history: History) -> History:
    """All that ever started: `[start, FOREVER)`."""
    return History.from_events(e._replace(end=FOREVER) for e in history)


def deletes(history: History) -> History:
    """All that ever ended: `[end, FOREVER)`; an event without end is not among them.

    The new start depends on the end, so this is no `alter_lifetime` (erratum C28): an adjust
    removes one result and inserts another.
    """
    return History.from_events(
        Event(e.payload, e.end, FOREVER) for e in history if e.end != FOREVER
    )


def session(history: History, gap: int, key: Callable[[Payload], Columns]) -> History:
    """One event per event; its session is lifetime and last column, the pair (start, end).

    The sessions of a key are the maximal runs of `[start, start + gap)` of its events: one that
    starts at most `gap` after another is in the same session.  Ends do not matter.
    """
    return History.from_events(
        Event((*_columns(e), life), *life)
        for group in _groups(history, key).values()
        for life in _sessions(group, gap)
        for e in group
        if life[0] <= e.start < life[1]
    )


def session_stable(
    history: History, gap: int, key: Callable[[Payload], Columns], time: Time
) -> Time:
    """The greatest stable of `session` that is true once the input has `stable(time)`.

    A session that ends at `time` or later is open: an event may still join it, which removes
    all of its events and inserts them again.  So the stable is held at the oldest open start.
    """
    if time == FOREVER:
        return FOREVER
    lives = [life for group in _groups(history, key).values() for life in _sessions(group, gap)]
    return min([time, *(start for start, end in lives if end >= time)])


# Two inputs


def on_columns(columns: Mapping[int, int]) -> Matches:
    """Equality of columns, by position: left to right.  Null matches nothing; NaN is NaN.

    >>> on_columns({0: 1})((3, "x"), ("y", 3)), on_columns({0: 0})((None,), (None,))
    (True, False)
    """

    def matches(left: Payload, right: Payload) -> bool:
        pairs = [(left[mine], right[its]) for mine, its in columns.items()]
        return all(a is not None and (a == b or (_is_nan(a) and _is_nan(b))) for a, b in pairs)

    return matches


def join(left: History, right: History, matches: Matches) -> History:
    """Each pair that matches, while both are alive: left columns, then right columns."""
    return History.from_events(
        Event((*_columns(a), *_columns(b)), *shared)
        for a in left
        for b in right
        if matches(a.payload, b.payload)
        for shared in [(max(a.start, b.start), min(a.end, b.end))]
        if shared[0] < shared[1]
    )


def left_join(left: History, right: History, matches: Matches, *, absent: Columns) -> History:
    """`join`, and each left event while it has no partner, with `absent` as right columns.

    The part without partner is maximal runs per left event, whatever the partners are.
    """
    alone = anti_join(left, right, matches)
    padded = [Event((*_columns(e), *absent), e.start, e.end) for e in alone]
    return union(join(left, right, matches), History.from_events(padded))


def semi_join(left: History, right: History, matches: Matches) -> History:
    """Each left event while some partner is alive, in maximal runs per left event."""
    return History.from_events(
        Event(e.payload, start, end)
        for e in left
        for start, end in _with_partner(e, right, matches)
    )


def anti_join(left: History, right: History, matches: Matches) -> History:
    """Each left event while no partner is alive, in maximal runs per left event."""
    return History.from_events(
        Event(e.payload, start, end)
        for e in left
        for start, end in _without(e, _with_partner(e, right, matches))
    )


def union(*histories: History) -> History:
    """All events of all inputs: multiplicities add up."""
    return History.from_events(event for history in histories for event in history)


def difference(left: History, right: History) -> History:
    """For each payload as many as left has more than right (`exceptAll`), in normal form."""

    def more(time: Time) -> Iterable[Payload]:
        return (_alive(left, time) - _alive(right, time)).elements()

    return normal_form(_cut(union(left, right), more))


# Groups and payloads


def aggregate(
    history: History,
    key: Callable[[Payload], Columns],
    function: Callable[[list[Payload]], Columns],
) -> History:
    """Per group one event between neighbouring end points of its events, if any is alive.

    Its payload is the key and, after it, the columns that `function` gives for the payloads
    that are alive.  Neighbours with equal values stay apart: this is the table of *theory* 3.1.
    An end point that disappears lengthens the event before it, so stables pass unchanged where
    adjusts may lengthen (errata C8, C9).
    """

    def results(group: Columns, alive: list[Payload]) -> list[Columns]:
        return [(*group, *function(alive))] if alive else []

    return _cut_by_group(history, key, results)


def top_k(
    history: History,
    key: Callable[[Payload], Columns],
    k: int,
    rank: Callable[[Payload], Any],
) -> History:
    """Per group the k rows that rank first at each time, in normal form (the paper's Rank).

    Ranks are compared with `<`, the smallest first.  The order must be total: different
    payloads with one rank are refused.  Equal payloads count as often as they are there.

    The normal form is used, and not the cuts of *theory* 3.1 at all end points of the group:
    rows keep their payload, so a row that stays among the first is one event however much the
    others change, and only the rows that come or go are emitted (erratum D12).
    """
    if k < 1:
        message = f"top_k: k={k} must be at least 1"
        raise UsageError(message)

    def first(group: Columns, alive: list[Payload]) -> list[Payload]:
        del group
        return _ranked(alive, rank)[:k]

    return normal_form(_cut_by_group(history, key, first))


def distinct(history: History) -> History:
    """Each payload once, in maximal runs while at least one of its events is alive."""
    return normal_form(_cut(history, lambda time: set(_alive(history, time))))


# What they share


def _moved(history: History, rule: LifetimeRule) -> History:
    return History.from_events(
        Event(e.payload, life.start, life.end)
        for e in history
        for life in rule.lifetimes(e.start, e.end)
    )


def _columns(event: Event) -> Columns:
    if not isinstance(event.payload, tuple):
        message = (
            f"the payload {event.payload!r} gets more columns, so it must be a tuple of column "
            f"values; write ({event.payload!r},)"
        )
        raise UsageError(message)
    return event.payload


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and isnan(value)


def _alive(history: History, time: Time) -> Counter[Payload]:
    """How often each payload is alive."""
    return Counter(e.payload for e in history.snapshot(time))


def _cut(history: History, results: Callable[[Time], Iterable[Payload]]) -> History:
    """The results at each end point, alive until the next one."""
    times = sorted({time for e in history for time in (e.start, e.end)})
    return History.from_events(
        Event(payload, start, end)
        for start, end in pairwise(times)
        for payload in results(start)
    )


def _cut_by_group(
    history: History,
    key: Callable[[Payload], Columns],
    results: Callable[[Columns, list[Payload]], Iterable[Payload]],
) -> History:
    """`_cut` for each group, at its own end points; results of the group and who is alive."""

    def cut(group: Columns, part: History) -> History:
        return _cut(part, lambda time: results(group, [e.payload for e in part.snapshot(time)]))

    return union(*(cut(*group) for group in _groups(history, key).items()))


def _groups(history: History, key: Callable[[Payload], Columns]) -> dict[Columns, History]:
    groups: dict[Columns, list[Event]] = {}
    for event in history:
        groups.setdefault(key(event.payload), []).append(event)
    return {group: History.from_events(events) for group, events in groups.items()}


def _sessions(group: History, gap: int) -> list[tuple[Time, Time]]:
    """The maximal runs of `[start, start + gap)`, in order."""
    if gap < 1:
        message = f"session: gap={gap} must be at least 1 unit"
        raise UsageError(message)
    runs: list[tuple[Time, Time]] = []
    for start in sorted(e.start for e in group):
        begin = runs.pop()[0] if runs and start <= runs[-1][1] else start
        runs.append((begin, start + gap))
    return runs


def _ranked(payloads: list[Payload], rank: Callable[[Payload], Any]) -> list[Payload]:
    ordered = sorted(payloads, key=rank)
    for one, other in pairwise(ordered):
        if rank(one) == rank(other) and one != other:
            message = (
                f"top_k: {one!r} and {other!r} have the same rank; the order must be total, so "
                "let the rank end with all columns"
            )
            raise UsageError(message)
    return ordered


def _with_partner(event: Event, right: History, matches: Matches) -> list[tuple[Time, Time]]:
    """The maximal runs of times at which the event and some partner are alive."""
    runs: list[tuple[Time, Time]] = []
    partners = [b for b in right if matches(event.payload, b.payload)]
    for partner in sorted(partners, key=lambda b: b.start):
        start, end = max(event.start, partner.start), min(event.end, partner.end)
        if start >= end:
            continue
        if runs and start <= runs[-1][1]:
            start, end = runs[-1][0], max(runs[-1][1], end)
            runs.pop()
        runs.append((start, end))
    return runs


def _without(event: Event, runs: list[tuple[Time, Time]]) -> Iterator[tuple[Time, Time]]:
    """What the runs leave of the lifetime of the event."""
    begin = event.start
    for start, end in runs:
        if begin < start:
            yield begin, start
        begin = end
    if begin < event.end:
        yield begin, event.end
