"""The result of a check, as frozen data: it prints, compares, and `to_dict` goes into JSON.

Times are as people read them: numbers for bigint, ISO-8601 UTC for timestamps, `forever` for
an open end, `never` for the frontier of a stream without a stable, `>= t` for
an end that a comparison below frontier t leaves open.
"""

import math
from dataclasses import asdict, dataclass
from datetime import datetime  # noqa: F401  (a doctest)
from typing import Any

from anabranch.batch.times import Shown


def show_value(value: Any) -> Any:
    """A payload value as JSON has it; what JSON lacks becomes text (bytes in hexadecimal).

    >>> show_value([b"ab", float("nan"), datetime(2024, 5, 31)])
    ['6162', 'nan', '2024-05-31T00:00:00']
    """
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        return {name: show_value(one) for name, one in value.items()}
    if isinstance(value, list):
        return [show_value(one) for one in value]
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


@dataclass(frozen=True)
class RefusedRow:
    """A row that is not an element: where it stands and why."""

    file: str
    row: int
    reason: str
    replica: str | None = None


@dataclass(frozen=True)
class BrokenPromise:
    """An element that breaks a promise of its own stream."""

    replica: str | None
    file: str
    row: int
    reason: str
    kind: str
    start: Shown
    end: Shown | None
    old_end: Shown | None
    payload: dict[str, Any]


@dataclass(frozen=True)
class StreamReport:
    """One physical stream: what is in it, and how many promises it breaks.

    `redelivered` elements came again under a `seq` already seen; `absorbed` ones change
    nothing; `open_events` may still change.
    """

    replica: str | None
    elements: int
    inserts: int
    adjusts: int
    stables: int
    absorbed: int
    redelivered: int
    events: int
    open_events: int
    frontier: Shown
    violations: int
    first_violations: tuple[BrokenPromise, ...]


@dataclass(frozen=True)
class Side:
    """One of the two paths of a check."""

    path: str
    layout: str
    format: str
    streams: tuple[StreamReport, ...]
    refused: int
    first_refused: tuple[RefusedRow, ...]

    @property
    def is_clean(self) -> bool:
        """Whether every row is an element and every promise is kept."""
        return not self.refused and not any(stream.violations for stream in self.streams)


@dataclass(frozen=True)
class DiffLine:
    """One difference: an event that one side has more often, or whose end differs."""

    what: str
    payload: dict[str, Any]
    start: Shown
    end_a: Shown | None
    end_b: Shown | None
    times_a: int
    times_b: int


@dataclass(frozen=True)
class Comparison:
    """A stream of A against B: how many events differ and how, the first of them in detail."""

    replica: str | None
    below: Shown | None
    equal: bool
    only_in_a: int
    only_in_b: int
    different_end: int
    first_lines: tuple[DiffLine, ...]


@dataclass(frozen=True)
class Verdict:
    """The answer of a check, and all that it stands on."""

    a: Side
    b: Side | None
    comparisons: tuple[Comparison, ...]

    @property
    def ok(self) -> bool:
        """Whether the answer is yes."""
        sides = [side for side in (self.a, self.b) if side is not None]
        equal = all(comparison.equal for comparison in self.comparisons)
        return equal and all(side.is_clean for side in sides)

    def to_dict(self) -> dict[str, Any]:
        """Plain values that JSON has."""
        return {"ok": self.ok, **asdict(self)}
