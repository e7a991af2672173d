"""Arrivals: tuples with an application time, a position in the order of arrival, and a batch.

* `Arrival(time, value, arrived=, batch=)` is one tuple, as a user gives it; a pair
  `(time, value)` stands for `Arrival(time, value)`.
* `Stable(time)` between tuples: application time has reached `time` although no tuple
  came: the dummy tuple that the paper injects (B.1.2).  It is never part of a content.
* `read` checks them all and numbers the tuples from 1; afterwards only the order counts.

Time is counted in whole units (Definition 1: a discrete line); a fraction is refused, choose a
smaller unit.  Without batches each tuple is a batch of its own.

* `on_system_time`: application time becomes the time of arrival (B.1.1).
* `synchronised`: time goes on by the clock, at most `delay` behind it (B.1.2).
* `in_triggers`: batches by the clock.  `split_batches`: one batch per time (erratum D17).

Papers: SECRET 3.1 Definitions 1 to 3, B.1.

>>> read([(30, 10), (31, 20), Stable(37)])[1]
Row(number=2, time=31, value=20, arrived=2, batch=2)
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TypeAlias

from anabranch.errors import InputError, UsageError
from anabranch.model import Stable


@dataclass(frozen=True, slots=True)
class Arrival:
    """One tuple: its application time, its value, its arrival time and its batch."""

    time: int
    value: object
    arrived: int | None = None
    batch: int | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """One tuple that was read: numbered from 1 in the order of arrival."""

    number: int
    time: int
    value: object
    arrived: int
    batch: int


Given: TypeAlias = "Arrival | Stable | tuple[int, object]"
"""What a user may put into a stream."""

Item: TypeAlias = Row | Stable
"""What is in a stream that was read."""


def whole(value: object, name: str, least: int | None = None) -> int:
    """The value, if it is a whole number and not below `least`."""
    if isinstance(value, bool) or not isinstance(value, int):
        message = (
            f"{name} is {value!r}, it must be a whole number; "
            "count time in a smaller unit if you need fractions"
        )
        raise UsageError(message)
    if least is not None and value < least:
        message = f"{name} is {value}, it must be at least {least}"
        raise UsageError(message)
    return value


@dataclass(slots=True)
class BatchNumbers:
    """Batches numbered from 1 (erratum S9), whatever the user called them."""

    number: int = 0
    given: int | None = None

    def take(self, given: int | None, place: int | None = None) -> int:
        """The number of the next tuple's batch; without a word it is a batch of its own."""
        if given is not None and self.given is not None and given < self.given:
            where = "a tuple" if place is None else f"item {place}"
            message = (
                f"{where} has batch {given} after batch {self.given}; "
                "batches must not go back (Definition 3)"
            )
            raise InputError(message)
        if given is None or given != self.given:
            self.number += 1
        self.given = given
        return self.number

    def to_state(self) -> list[int | None]:
        """Plain values, for JSON."""
        return [self.number, self.given]

    @classmethod
    def from_state(cls, state: list[int | None]) -> "BatchNumbers":
        """Restore the result of `to_state`."""
        number, given = state
        return cls(number or 0, given)


def read(given: Iterable[Given]) -> list[Item]:
    """The stream, checked and numbered; the order of times is not looked at."""
    arrivals = [as_arrival(place, one) for place, one in enumerate(given, start=1)]
    tuples = [one for one in arrivals if isinstance(one, Arrival)]
    batched = [one.batch is not None for one in tuples]
    timed = [one.arrived is not None for one in tuples]
    for name, present in (("batch", batched), ("arrival time", timed)):
        if any(present) and not all(present):
            message = (
                f"tuple {present.index(False) + 1} has no {name}, others have one; "
                "give it for all tuples or for none"
            )
            raise InputError(message)
    items: list[Item] = []
    last: Row | None = None
    batches = BatchNumbers()
    for place, one in enumerate(arrivals, start=1):
        if isinstance(one, Stable):
            items.append(one)
            continue
        number = 1 if last is None else last.number + 1
        last = _numbered(place, one, number, batches.take(one.batch, place), last)
        items.append(last)
    return items


def as_arrival(place: int, one: object) -> Arrival | Stable:
    """One item of a stream, checked by itself."""
    if isinstance(one, tuple) and len(one) == 2:
        one = Arrival(one[0], one[1])
    if not isinstance(one, Arrival | Stable):
        message = (
            f"item {place} is {one!r}; expected (time, value), "
            "Arrival(time, value, ...) or Stable(time)"
        )
        raise InputError(message)
    time: object = one.time
    if isinstance(time, bool) or not isinstance(time, int):
        message = (
            f"item {place} has time {time!r}; times are whole numbers, "
            "choose a smaller unit for fractions"
        )
        raise InputError(message)
    if isinstance(one, Arrival) and isinstance(one.value, float) and math.isnan(one.value):
        message = f"item {place} (time {time}) has the value NaN; remove or replace it"
        raise InputError(message)
    return one


def _numbered(place: int, one: Arrival, number: int, batch: int, last: Row | None) -> Row:
    arrived = number if one.arrived is None else one.arrived
    if last is not None and arrived <= last.arrived:
        message = (
            f"item {place} arrived at {arrived}, the tuple before it at {last.arrived}; "
            "arrival times must be strictly increasing (Definition 2)"
        )
        raise InputError(message)
    return Row(number, one.time, one.value, arrived, batch)


def rows_of(items: Iterable[Item]) -> list[Row]:
    """The tuples alone."""
    return [item for item in items if isinstance(item, Row)]


def require_order(items: Sequence[Item], why: str) -> None:
    """Raise if an item is earlier than one before it."""
    reached: int | None = None
    for place, item in enumerate(items, start=1):
        time = int(item.time)
        if reached is not None and time < reached:
            message = (
                f"item {place} has time {time} after time {reached}; {why} needs tuples in "
                "order of time (SECRET 3.2): sort or reorder them first"
            )
            raise InputError(message)
        reached = time


def require_plain_batches(items: Iterable[Item]) -> None:
    """Raise if a batch holds several times (Definition 3)."""
    times: dict[int, int] = {}
    for row in rows_of(items):
        if times.setdefault(row.batch, row.time) != row.time:
            message = (
                f"batch {row.batch} holds time {times[row.batch]} and time {row.time}; all "
                "tuples of a SECRET batch have one time: use windows.split_batches"
            )
            raise InputError(message)


def on_system_time(given: Iterable[Given]) -> list[Arrival]:
    """The stream with the time of arrival as application time (B.1.1); stables are dropped."""
    return [
        Arrival(row.arrived, row.value, row.arrived, row.batch) for row in rows_of(read(given))
    ]


def synchronised(
    given: Iterable[Given], delay: int, until: int | None = None, every: int = 1
) -> list[Given]:
    """The stream with a stable wherever the clock, less `delay`, is ahead of the tuples.

    Times and arrival times are on one clock, which is read every `every` units, and
    after the last tuple `until` that time (B.1.2).  A tuple that comes more than `delay` after
    its time is behind a stable, and refused where order is needed.

    >>> synchronised([Arrival(1, "a", arrived=1), Arrival(9, "b", arrived=9)], 2, every=4)
    [Arrival(time=1, value='a', arrived=1, batch=1), Stable(time=3), \
Arrival(time=9, value='b', arrived=9, batch=2)]
    """
    delay, every = whole(delay, "delay", 0), whole(every, "every", 1)
    result: list[Given] = []
    reached: int | None = None
    clock: int | None = None
    for row in rows_of(read(given)):
        if reached is not None and clock is not None:
            reached = _advance_time(
                result, range(clock + every, row.arrived, every), delay, reached
            )
        result.append(Arrival(row.time, row.value, row.arrived, row.batch))
        clock, reached = row.arrived, max(row.time, row.time if reached is None else reached)
    if until is not None and reached is not None and clock is not None:
        _advance_time(result, range(clock + every, until + 1, every), delay, reached)
    return result


def _advance_time(result: list[Given], looks: range, delay: int, reached: int) -> int:
    for look in looks:
        if look - delay > reached:
            reached = look - delay
            result.append(Stable(reached))
    return reached


def in_triggers(given: Iterable[Given], every: int) -> list[Given]:
    """The stream cut into batches by the clock: all that arrives in one stretch of `every`."""
    every = whole(every, "every", 1)
    return [
        item
        if isinstance(item, Stable)
        else Arrival(item.time, item.value, item.arrived, item.arrived // every)
        for item in read(given)
    ]


def split_batches(given: Iterable[Given]) -> list[Given]:
    """The stream with one batch per time, each batch sorted by time first (erratum D17)."""
    result: list[Given] = []
    number = 0
    for _, unit in groupby(read(given), key=lambda one: getattr(one, "batch", one)):
        places = list(unit)
        batch = sorted(rows_of(places), key=lambda row: row.time)
        result += [one for one in places if isinstance(one, Stable)]
        previous: int | None = None
        for row, place in zip(batch, rows_of(places), strict=True):
            number += row.time != previous
            previous = row.time
            result.append(Arrival(row.time, row.value, place.arrived, number))
    return result
