"""What a progress record shows of the clocks that infer stables."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class ClockRecord:
    """The clocks that infer stables, after a trigger: how many sources are in which state.

    `time` is the trigger's, in microseconds (0: no clock needs it); `due` when something may
    change without any row; `every` that time passes by itself, if events wait.  `ahead` are
    rows of the trigger whose times were too far in the future.  `sources` are the ten that are
    farthest behind.
    """

    time: int
    states: Mapping[str, int]
    held_by: Mapping[str, str]
    due: int | None = None
    every: int | None = None
    ahead: int = 0
    sources: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def read(cls, fields: Mapping[str, Any] | None) -> "ClockRecord | None":
        """The record of what JSON has; None if there is none."""
        return None if fields is None else cls(**fields)
