"""Aggregates of a window's content: count, sum, avg, min, max, collect.

A result depends on the tuples of the content alone, not on their order: sums of floats are
exact before they are rounded once, `collect` is sorted.  Of nothing, the count is 0, the
collection is empty, and everything else is None, as in SQL.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from fractions import Fraction
from numbers import Rational
from typing import Any, Final

from anabranch.errors import InputError, UsageError
from anabranch.windows.stream import Arrival, Row, as_arrival


def _sum(values: Sequence[Any]) -> Any:
    floats = sum(isinstance(value, float) for value in values)
    if not floats:
        return sum(values)
    try:
        if floats == len(values):
            return math.fsum(values)
    except OverflowError:  # on the way; the sum itself may be a float
        pass
    total = sum((Fraction(value) for value in values), Fraction())
    try:
        return float(total)
    except OverflowError:  # beyond the greatest float
        return math.inf if total > 0 else -math.inf


def _collect(values: Sequence[Any]) -> tuple[Any, ...]:
    try:
        return tuple(sorted(values))
    except TypeError as error:
        message = f"collect sorts its values, but {error}; give values of one kind"
        raise InputError(message) from error


AGGREGATES: Final[dict[str, Callable[[Sequence[Any]], Any]]] = {
    "count": len,
    "sum": lambda values: _sum(values) if values else None,
    "avg": lambda values: _sum(values) / len(values) if values else None,
    "min": lambda values: min(values, default=None),
    "max": lambda values: max(values, default=None),
    "collect": _collect,
}
_ANY_VALUE: Final = {"count", "collect"}


def aggregate(name: str) -> Callable[[Sequence[Any]], Any]:
    """The function of that name.

    >>> aggregate("avg")([10, 20])
    15.0
    """
    if name not in AGGREGATES:
        near = get_close_matches(name, AGGREGATES, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        message = f"unknown aggregate {name!r}; {hint}expected {', '.join(AGGREGATES)}"
        raise UsageError(message)
    return AGGREGATES[name]


def require_values(name: str, rows: Iterable[Row]) -> None:
    """Raise unless each tuple has a value that the aggregate can take."""
    if name in _ANY_VALUE:
        return
    for row in rows:
        _require_value(name, row.value, f"tuple {row.number} (time {row.time})")


def require_arrival(name: str, one: Arrival) -> None:
    """Raise unless a machine can take this tuple and keep its value."""
    if name == "count":
        if type(one.time) is not int:
            as_arrival(1, one)
        return
    as_arrival(1, one)
    if name not in _ANY_VALUE:
        _require_value(name, one.value, f"a tuple (time {one.time})")
    if not isinstance(one.value, int | float | str):
        message = (
            f"a tuple (time {one.time}) has the value {one.value!r}; {name} piece by piece "
            "keeps whole numbers, floats and texts"
        )
        raise InputError(message)


def _require_value(name: str, value: object, where: str) -> None:
    if isinstance(value, bool) or not isinstance(value, Rational | float):
        message = f"{where} has the value {value!r}; {name} needs numbers"
        raise InputError(message)
    if name in {"sum", "avg"} and not math.isfinite(value):
        message = f"{where} has the value {value!r}; {name} needs finite numbers"
        raise InputError(message)
