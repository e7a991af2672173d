"""The half-open stretch of time `[start, end)` during which an event is true.

The start belongs to it, the end does not: two lifetimes that touch do not overlap, and one
whose end is its start is empty.

Papers: LMerge III-A calls this the validity interval `[Vs, Ve)`.

>>> Lifetime(3, 7).overlaps(Lifetime(7, 9))
False
>>> 3 in Lifetime(3, 7), 7 in Lifetime(3, 7)
(True, False)
"""

from dataclasses import dataclass

from anabranch.errors import UsageError
from anabranch.model.time import Time, show


@dataclass(frozen=True, slots=True)
class Lifetime:
    """The times t with `start <= t < end`; `end < start` is refused."""

    start: Time
    end: Time

    def __post_init__(self) -> None:
        if self.end < self.start:
            message = (
                f"a lifetime that starts at {show(self.start)} cannot end at {show(self.end)}; "
                "the end must be the start or later"
            )
            raise UsageError(message)

    @property
    def is_empty(self) -> bool:
        """Whether no time is in it."""
        return self.start == self.end

    def __contains__(self, time: Time) -> bool:
        return self.start <= time < self.end

    def overlaps(self, other: "Lifetime") -> bool:
        """Whether some time is in both."""
        return not self.overlap(other).is_empty

    def overlap(self, other: "Lifetime") -> "Lifetime":
        """The times that are in both.

        >>> Lifetime(3, 7).overlap(Lifetime(5, 9))
        [5, 7)
        """
        start = max(self.start, other.start)
        return Lifetime(start, max(start, min(self.end, other.end)))

    def __repr__(self) -> str:
        return f"[{show(self.start)}, {show(self.end)})"
