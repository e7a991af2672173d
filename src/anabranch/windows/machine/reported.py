"""The output of a machine: results when they are reported, and rejected tuples."""

from dataclasses import dataclass
from typing import Any, Literal

Reason = Literal["earlier than what was there", "too late for this window", "in no window"]


@dataclass(frozen=True, slots=True)
class Reported:
    """One result; as `Result`, with the number of its tuples instead of their names."""

    value: Any
    start: int
    end: int
    instant: int
    step: int
    count: int
    late: bool = False


@dataclass(frozen=True, slots=True)
class Late:
    """One tuple that was not taken, or not into this window."""

    time: int
    value: Any
    step: int
    reason: Reason
    start: int | None = None
    end: int | None = None


@dataclass(frozen=True, slots=True)
class Fed:
    """What one piece of a stream brought."""

    shown: tuple[Reported, ...]
    late: tuple[Late, ...]
