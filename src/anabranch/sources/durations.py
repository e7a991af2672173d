"""Lengths of application time as people write them, in units.

For bigint times a duration is an integer; for timestamps it is text with a unit, and the result
is microseconds.  Months and years have no fixed length and are refused.

>>> to_units("10 minutes", TimeType.TIMESTAMP), to_units("20", TimeType.BIGINT)
(600000000, 20)
"""

import re
from fractions import Fraction
from typing import Final

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
_TEXT: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+?)s?\s*", re.IGNORECASE)


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
    found = _TEXT.fullmatch(text)
    unit = MICROSECONDS.get(found[2].lower()) if found else None
    exact = Fraction(found[1]) * unit if found and unit else None
    if exact is None or exact.denominator != 1:
        message = (
            f"{option} {text!r}: for timestamps a duration is a number and a unit, whole "
            f"microseconds in all, such as '10 minutes'; units: {', '.join(MICROSECONDS)}"
        )
        raise UsageError(message)
    return int(exact)
