"""The trace of a window query, step by step, from which predict, compare and explain are made.

* A `Step` is one arrival (or one batch of them) and the calls of report that it caused.
* A `Visit` is one such call: for which instant, which window, which content, and the
  conditions that did not hold.  It was reported if none failed.
"""

from dataclasses import dataclass
from typing import Literal

from anabranch.errors import UsageError
from anabranch.windows.report import Condition
from anabranch.windows.scope import Scope
from anabranch.windows.stream import Item, Row, whole


@dataclass(frozen=True, slots=True)
class Query:
    """A window query: how long, how often, counted in what, and which aggregate.

    `by` is `time` (application time), `rows` (tuple-based windows, B.2.1) or `arrival`
    (system time, B.1.1).
    """

    size: int
    slide: int
    agg: str = "count"
    by: Literal["time", "rows", "arrival"] = "time"

    def __post_init__(self) -> None:
        whole(self.size, "size", 1)
        whole(self.slide, "slide", 1)
        if self.by not in {"time", "rows", "arrival"}:
            message = f"by is {self.by!r}; expected time, rows or arrival"
            raise UsageError(message)


@dataclass(frozen=True, slots=True)
class Visit:
    """One call of report."""

    instant: int
    window: Scope
    """The whole window, `(after, upto]`; numbers of tuples for windows by rows."""
    scope: Scope | None
    """What of it is looked at; None before the first window."""
    content: tuple[Row, ...]
    failed: tuple[Condition, ...]
    last: tuple[Row, ...] = ()
    """The content that was reported last, to see what changed."""
    late: bool = False
    """Whether time had gone past the window before its last tuple came."""
    frontier: int | None = None
    """How far time is known to have come, where an engine keeps every window."""

    @property
    def reported(self) -> bool:
        """Whether the content became visible."""
        return not self.failed


@dataclass(frozen=True, slots=True)
class Drop:
    """A tuple that came too late for a window, or that was in no window at all."""

    row: Row
    window: Scope | None
    frontier: int | None


@dataclass(frozen=True, slots=True)
class Step:
    """What one arrival, or one batch of them, did."""

    items: tuple[Item, ...]
    """Empty for a batch without data."""
    ticked: bool
    visits: tuple[Visit, ...] = ()
    drops: tuple[Drop, ...] = ()
