"""Report: under which conditions a content becomes visible as a result.

Any conjunction of four conditions; with none of them every call of report is answered.

* `content_change`: the content differs from the last content that was *reported* (erratum S5;
  the paper compares with the instant before, which is the same for slide 1).  Contents are
  compared tuple by tuple, not by value (erratum D20).
* `window_close`: the scope is a whole window, and application time is known to have gone
  past it (erratum S7).  For windows of tuples: the content has `size` tuples (B.2.1).
* `non_empty`: the content is not empty.
* `period`: the instant is a multiple of it; None and 1 ask for nothing.

"Not reported" and "reported, and empty" are two things (erratum S4): a result may have an
empty content.

Papers: SECRET 3.2.3.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from anabranch.windows.stream import whole

Condition: TypeAlias = Literal["content_change", "window_close", "non_empty", "period"]


@dataclass(frozen=True, slots=True)
class Report:
    """The conditions that a system asks for before it shows a content."""

    content_change: bool = False
    window_close: bool = False
    non_empty: bool = False
    period: int | None = None

    def __post_init__(self) -> None:
        if self.period is not None:
            whole(self.period, "the report period", 1)

    def failed(
        self, *, changed: bool, closed: bool, empty: bool, instant: int
    ) -> tuple[Condition, ...]:
        """The conditions that are asked for and do not hold; none: the content is reported.

        >>> Report(window_close=True, non_empty=True).failed(
        ...     changed=True, closed=False, empty=False, instant=3
        ... )
        ('window_close',)
        """
        # One by one: a search calls this a million times, and nearly always nothing failed.
        found: list[Condition] = []
        if self.content_change and not changed:
            found.append("content_change")
        if self.window_close and not closed:
            found.append("window_close")
        if self.non_empty and empty:
            found.append("non_empty")
        if self.period is not None and instant % self.period != 0:
            found.append("period")
        return tuple(found)

    def __str__(self) -> str:
        words = [
            word
            for word, on in (
                ("window close", self.window_close),
                ("content change", self.content_change),
                ("non-empty", self.non_empty),
                (f"every {self.period}", self.period is not None),
            )
            if on
        ]
        return " & ".join(words) or "always"
