"""Aggregates that grow and shrink: the same values as `aggregate`, without starting over.

* `Growing`: tuples only come in; one for each window that an engine keeps.
* `Sliding`: tuples come in at one end and leave at the other; for one window at a time.

Sums are exact whole numbers (a float is a whole number of the smallest float there is), so that
what was added can be taken away again; they are rounded once, when they are asked for.

>>> sums = Sliding("sum")
>>> for value in (1e16, 1.0, 1.0):
...     sums.add(value)
>>> sums.drop(1e16)
>>> sums.value()
2.0
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Any, Final

from anabranch.windows.aggregate import aggregate

_SMALLEST: Final = 1074
"""The smallest float above 0 is 2 to the power of minus this."""


def rounded(total: int) -> float:
    """The float nearest to a sum of `count` smallest floats; infinite if it is beyond all."""
    try:
        return total / (1 << _SMALLEST)
    except OverflowError:
        return float("inf") if total > 0 else float("-inf")


@dataclass(slots=True)
class Total:
    """An exact sum; a float only if there is a float in it, as in Python."""

    whole: int = 0
    small: int = 0
    floats: int = 0

    @classmethod
    def of(cls, value: Any) -> "Total":
        """The sum of one number."""
        if not isinstance(value, float):
            return cls(whole=value)
        above, below = value.as_integer_ratio()
        # `below` is a power of two, so this is a shift and exact.
        return cls(small=above * ((1 << _SMALLEST) // below), floats=1)

    def add(self, other: "Total", sign: int = 1) -> None:
        """So much more, or with `sign=-1` so much less."""
        self.whole += sign * other.whole
        self.small += sign * other.small
        self.floats += sign * other.floats

    def value(self) -> Any:
        """The sum, rounded once."""
        return rounded((self.whole << _SMALLEST) + self.small) if self.floats else self.whole


def share(agg: str, value: Any) -> Total | None:
    """What a value adds to a sum; None where no sum is asked for."""
    return Total.of(value) if agg in {"sum", "avg"} else None


@dataclass(slots=True)
class Growing:
    """The aggregate of a window that only takes tuples."""

    agg: str
    count: int = 0
    total: Total = field(default_factory=Total)
    extreme: Any = None
    values: list[Any] = field(default_factory=list)

    def add(self, value: Any, total: Total | None) -> None:
        """One more tuple; `total` is `share(agg, value)`, made once for all its windows."""
        self.count += 1
        if total is not None:
            self.total.add(total)
        elif self.agg == "collect":
            self.values.append(value)
        elif self.agg != "count" and (
            self.count == 1 or _before(self.agg, value, self.extreme)
        ):
            self.extreme = value

    def value(self) -> Any:
        """The aggregate of what is in."""
        if self.agg == "collect":
            return aggregate(self.agg)(self.values)
        return _value(self.agg, self.count, self.total, self.extreme)

    def to_state(self) -> list[Any]:
        """Plain values, for JSON; hexadecimal where Python limits the digits of a number."""
        total = [hex(self.total.whole), hex(self.total.small), self.total.floats]
        return [self.count, total, self.extreme, self.values]

    @classmethod
    def from_state(cls, agg: str, state: list[Any]) -> "Growing":
        """Restore the result of `to_state`."""
        count, (whole, small, floats), extreme, values = state
        return cls(agg, count, Total(int(whole, 16), int(small, 16), floats), extreme, values)


class Sliding:
    """The aggregate of a run of tuples whose ends only move on.

    For the least and the greatest only those are kept that may still become it: each of them is
    before (or equal to) all that came after it.
    """

    def __init__(self, agg: str) -> None:
        self.agg = agg
        self.count = 0
        self._total = Total()
        self._kept: deque[Any] = deque()

    def add(self, value: Any) -> None:
        """A tuple comes in at the end."""
        self.count += 1
        if self.agg in {"sum", "avg"}:
            self._total.add(Total.of(value))
        elif self.agg == "collect":
            self._kept.append(value)
        elif self.agg != "count":
            while self._kept and _before(self.agg, value, self._kept[-1]):
                self._kept.pop()
            self._kept.append(value)

    def drop(self, value: Any) -> None:
        """The tuple at the beginning, which has this value, leaves."""
        self.count -= 1
        if self.agg in {"sum", "avg"}:
            self._total.add(Total.of(value), -1)
        elif self._kept and (self.agg == "collect" or self._kept[0] == value):
            self._kept.popleft()

    def value(self) -> Any:
        """The aggregate of what is in."""
        if self.agg == "collect":
            return aggregate(self.agg)(tuple(self._kept))
        return _value(self.agg, self.count, self._total, self._kept[0] if self._kept else None)


def _before(agg: str, one: Any, other: Any) -> bool:
    return bool(one < other) if agg == "min" else bool(one > other)


def _value(agg: str, count: int, total: Total, extreme: Any) -> Any:
    if agg == "count":
        return count
    if not count:
        return None
    if agg in {"min", "max"}:
        return extreme
    return total.value() if agg == "sum" else total.value() / count
