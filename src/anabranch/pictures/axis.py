"""The marks of an axis, and the text of its times and durations.

Times are whole units; with `clock` they are microseconds since 1970, in UTC.

>>> marks(25, 37, most=6)
[26, 28, 30, 32, 34, 36]
>>> show_duration(300_000_000, clock=True), show_duration(5, clock=False)
('5 minutes', '5')
"""

from datetime import UTC, datetime, timedelta
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND: Final = 1_000_000
_DAY: Final = 86_400 * _SECOND
_CLOCK_STEPS: Final = [
    *(seconds * _SECOND for seconds in (1, 2, 5, 10, 15, 30)),
    *(minutes * 60 * _SECOND for minutes in (1, 2, 5, 10, 15, 30)),
    *(hours * 3600 * _SECOND for hours in (1, 2, 3, 6, 12)),
]
_UNITS: Final = (
    ("day", _DAY),
    ("hour", 3600 * _SECOND),
    ("minute", 60 * _SECOND),
    ("second", _SECOND),
    ("millisecond", 1000),
    ("microsecond", 1),
)


def step_of(low: int, high: int, most: int, *, clock: bool = False) -> int:
    """The distance of marks, a round number, such that about `most` marks fit."""
    least = max(1, -(-(high - low) // max(1, most)))
    if clock and _SECOND <= least <= _CLOCK_STEPS[-1]:
        return next(step for step in _CLOCK_STEPS if step >= least)
    unit = _DAY if clock and least > _SECOND else 1
    power = 1
    while True:
        for factor in (1, 2, 5):
            if factor * power * unit >= least:
                return factor * power * unit
        power *= 10


def marks(low: int, high: int, most: int, *, clock: bool = False) -> list[int]:
    """The times that get a mark, in order."""
    step = step_of(low, high, most, clock=clock)
    return list(range(low + -low % step, high + 1, step))


def show_time(units: int, *, clock: bool = False, short: bool = False) -> str:
    """A time as people read it; short leaves the day out.

    >>> show_time(1_700_000_000_000_000, clock=True)
    '2023-11-14T22:13:20Z'
    >>> show_time(1_700_000_000_000_000, clock=True, short=True)
    '22:13:20'
    """
    if not clock:
        return str(units)
    try:
        instant = _EPOCH + timedelta(microseconds=units)
    except OverflowError:
        return f"{units} us"  # a year that the calendar of Python does not have
    if not short:
        return instant.isoformat().replace("+00:00", "Z")
    if not units % (60 * _SECOND):
        return instant.strftime("%H:%M")
    return instant.time().isoformat().rstrip("0") if units % _SECOND else str(instant.time())


def show_mark(units: int, low: int, high: int, *, clock: bool = False) -> str:
    """The words at a mark of an axis from low to high: with the day where it is needed."""
    if clock and high - low >= 2 * _DAY:
        full = show_time(units, clock=True)
        return full[5:10] if not units % _DAY else f"{full[5:10]} {full[11:16]}"
    return show_time(units, clock=clock, short=True)


def show_duration(units: int, *, clock: bool = False) -> str:
    """A size or a slide as people write it."""
    if not clock:
        return str(units)
    name, length = next((n, u) for n, u in _UNITS if not units % u)
    count = units // length
    return f"{count} {name}" if count == 1 else f"{count} {name}s"
