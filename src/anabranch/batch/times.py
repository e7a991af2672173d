"""Parsing and printing of application time: durations, instants and text, in units.

For bigint times a duration is an integer; for timestamps it is text with a unit, and the result
is microseconds.  Months and years have no fixed length and are rejected.

>>> to_units("10 minutes", TimeType.TIMESTAMP), to_units("20", TimeType.BIGINT)
(600000000, 20)
>>> to_units("4 minutes 10 seconds", TimeType.TIMESTAMP)
250000000
"""

import re
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Final, TypeAlias

from anabranch.batch.batch import FOREVER_UNITS, NEVER_UNITS
from anabranch.batch.schema import TimeType
from anabranch.errors import UsageError

MICROSECONDS: Final = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}
Shown: TypeAlias = int | str
"""A time as it is shown."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TEXT: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+?)s?\s*(?=\d|$)", re.IGNORECASE)


def to_units(text: str, time: TimeType, *, option: str = "duration") -> int:
    """The duration in units of this kind of time; `option` goes into the error."""
    if time is TimeType.BIGINT:
        if re.fullmatch(r"\s*-?\d+\s*", text):
            return int(text)
        message = (
            f"{option} {text!r}: for bigint times a duration is a whole number of units, such "
            f"as {option} 20; or ask for timestamps"
        )
        raise UsageError(message)
    exact = _microseconds(text)
    if exact is None or exact.denominator != 1:
        message = (
            f"{option} {text!r}: for timestamps a duration is a number and a unit, whole "
            f"microseconds in all, such as '10 minutes'; units: {', '.join(MICROSECONDS)}"
        )
        raise UsageError(message)
    return int(exact)


def _microseconds(text: str) -> Fraction | None:
    """The sum of a number and a unit, once or several times; None if the text is not that."""
    found, at = Fraction(0), 0
    while at < len(text) or not at:
        part = _TEXT.match(text, at)
        unit = MICROSECONDS.get(part[2].lower()) if part else None
        if part is None or unit is None:
            return None
        found, at = found + Fraction(part[1]) * unit, part.end()
    return found


def show_span(microseconds: int) -> str:
    """A duration as people and Spark write it, exact.

    >>> show_span(250_000_000), show_span(0), show_span(1_500)
    ('4 minutes 10 seconds', '0 seconds', '1 millisecond 500 microseconds')
    """
    parts, rest = [], abs(microseconds)
    for unit, length in reversed([one for one in MICROSECONDS.items() if one[0] != "week"]):
        count, rest = divmod(rest, length)
        if count:
            parts.append(f"{count} {unit}{'s' if count > 1 else ''}")
    return ("-" if microseconds < 0 else "") + (" ".join(parts) or "0 seconds")


def to_seconds(text: str, *, option: str) -> float:
    """A duration by the clock; 0 needs no unit.

    >>> to_seconds("1 minute", option="roll"), to_seconds("0", option="roll")
    (60.0, 0.0)
    """
    if text.strip() == "0":
        return 0.0
    return to_units(text, TimeType.TIMESTAMP, option=option) / 1_000_000


def instant_units(instant: datetime) -> int:
    """Microseconds since 1970; an instant without a zone is taken as UTC.

    >>> instant_units(datetime(1970, 1, 1, 0, 0, 1))
    1000000
    """
    zoned = instant if instant.tzinfo else instant.replace(tzinfo=UTC)
    return (zoned - _EPOCH) // timedelta(microseconds=1)


def show_time(units: int, time: TimeType) -> Shown:
    """A time as people read it.

    >>> show_time(1_700_000_000_000_000, TimeType.TIMESTAMP), show_time(7, TimeType.BIGINT)
    ('2023-11-14T22:13:20Z', 7)
    """
    if units == FOREVER_UNITS:
        return "forever"
    if units == NEVER_UNITS:
        return "never"
    if time is TimeType.BIGINT:
        return units
    try:
        instant = _EPOCH + timedelta(microseconds=units)
    except OverflowError:
        return f"{units} us"  # a year that the calendar of Python does not have
    return instant.isoformat().replace("+00:00", "Z")
