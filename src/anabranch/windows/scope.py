"""Scope: which stretch of time a window query looks at, for a given instant.

Windows are `(o_i, o_i + size]` with `o_i = t0 + i * slide`, for i = 0, 1, ...  The *active*
window at t is the open one that started first; the scope at t is what of it has passed,
`(o_n, t]` (3.2.1, with erratum S6: n is the smallest index with `t <= close`).  Between
windows, when the slide exceeds the size, the scope is empty (erratum S18).  Instants may be
negative (erratum S10).

`Start` is where the first window starts, t0, which differs from system to system:

* `anchor="first"`: by the first tuple.  Backward (each slide ends a window): the first window
  ends with the first tuple, `t0 = first - size`.  Forward: it starts with it, `first - 1`.
* `anchor="grid"`: by multiples of the slide, whatever comes.  Forward: windows start at
  `k * slide + offset`; backward: they end there.  As the intervals are open on the left,
  t0 is one unit before (erratum S17).  `lead` keeps the paper's rule for Coral8 and
  StreamBase, whose first window may end just before the first tuple (erratum S11).
* `anchor="fixed"`: `t0 = offset`.

Forward and backward differ by a fixed amount only, so only t0 knows about them.

Papers: SECRET 3.2.1, Table 2, B.2.1.

>>> Shape(t0=30, size=5, slide=2).scope(34)
Scope(after=30, upto=34)
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from anabranch.errors import UsageError
from anabranch.windows.stream import whole


class Scope(NamedTuple):
    """The interval `(after, upto]`; empty unless `after < upto`."""

    after: int
    upto: int

    @property
    def length(self) -> int:
        """How many instants it holds."""
        return max(0, self.upto - self.after)

    def __str__(self) -> str:
        return f"({self.after}, {self.upto}]"


@dataclass(frozen=True, slots=True)
class Shape:
    """All windows of one query on one system: where the first starts, how long, how often."""

    t0: int
    size: int
    slide: int

    def index(self, instant: int) -> int:
        """The active window: the first that is not closed at this instant."""
        return max(0, -((self.t0 + self.size - instant) // self.slide))

    def window(self, instant: int) -> Scope:
        """The whole active window, also the part that is to come."""
        start = self.t0 + self.index(instant) * self.slide
        return Scope(start, start + self.size)

    def scope(self, instant: int) -> Scope | None:
        """What of the active window has passed; None before the first window."""
        if instant < self.t0:
            return None
        return Scope(self.window(instant).after, instant)

    def next_close(self, instant: int) -> int:
        """The first instant from this one on at which a window closes."""
        return self.window(instant).after + self.size

    def expiry(self, time: int) -> int:
        """The first instant whose scope starts too late for a tuple of this time."""
        passed = -((self.t0 - time) // self.slide)
        return self.t0 + self.size + (max(passed, 1) - 1) * self.slide + 1


@dataclass(frozen=True, slots=True)
class Start:
    """Where the first window starts."""

    anchor: Literal["first", "grid", "fixed"]
    direction: Literal["forward", "backward"] = "forward"
    offset: int = 0
    lead: bool = False
    earliest: int | None = None

    def __post_init__(self) -> None:
        if self.anchor not in {"first", "grid", "fixed"}:
            message = f"anchor is {self.anchor!r}; expected first, grid or fixed"
            raise UsageError(message)
        if self.direction not in {"forward", "backward"}:
            message = f"direction is {self.direction!r}; expected forward or backward"
            raise UsageError(message)
        whole(self.offset, "offset")

    def t0(self, first: int, size: int, slide: int) -> int:
        """The start of the first window, for a first tuple of that time.

        >>> Start("grid", lead=True).t0(10, size=3, slide=3)
        8
        """
        if self.anchor == "fixed":
            return self.offset
        if self.anchor == "first":
            return first - (size if self.direction == "backward" else 1)
        offset = self.grid_offset(size)
        inside = 0 if self.lead else 1
        start = -((size - inside + offset - first) // slide) * slide + offset
        if self.earliest is not None and start < self.earliest:
            start += -((start - self.earliest) // slide) * slide
        return start - 1

    def grid_offset(self, size: int) -> int:
        """A start of some window: the grid goes on from there both ways."""
        return self.offset - (size if self.direction == "backward" else 0)

    def t0_of_rows(self, size: int, slide: int) -> int:
        """The same for windows that count tuples, numbered from 1 (B.2.1)."""
        return slide - size if self.direction == "backward" else 0

    def starts(self, time: int, size: int, slide: int, t0: int) -> list[int]:
        """First instants of all windows `[start, start + size)` with this time, in order."""
        latest = t0 + 1 + (time - t0 - 1) // slide * slide
        least = self.earliest if self.anchor == "grid" else t0 + 1
        found = range(latest, time - size, -slide)
        return [start for start in reversed(found) if least is None or start >= least]
