"""What a progress record shows of the clocks that infer stables."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

OTHERS: Final = "(others)"
"""All sources without bounds but those that a record names."""
_SHOWN: Final = 10
_SECOND: Final = 1_000_000


@dataclass(frozen=True, kw_only=True)
class ClockRecord:
    """The clocks that infer stables, after a trigger: how many sources are in which state.

    `time` is the trigger's, in microseconds (0: no clock needs it); `due` when something may
    change without any row; `every` that time passes by itself, if events wait.  `ahead` are
    rows whose times were too far in the future, `ahead_of` the same by source.  `sources` are
    the ten that are farthest behind.  `unknown` are the rows of sources for which there are no
    bounds, which move no clock.  `changed` is how many learned bounds changed, `changes` the
    latest ten of them.  Rows and changes are in a record those of the trigger, in totals all.
    """

    time: int
    states: Mapping[str, int]
    held_by: Mapping[str, str]
    due: int | None = None
    every: int | None = None
    ahead: int = 0
    sources: list[dict[str, Any]] = field(default_factory=list)
    unknown: Mapping[str, int] = field(default_factory=dict)
    ahead_of: Mapping[str, int] = field(default_factory=dict)
    changed: int = 0
    changes: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        for name in ("unknown", "ahead_of"):
            object.__setattr__(self, name, _greatest(getattr(self, name)))
        object.__setattr__(self, "changes", self.changes[-_SHOWN:])

    def after(self, before: "ClockRecord | None") -> "ClockRecord":
        """The same with the rows and changes that were counted before."""
        if before is None:
            return self
        return replace(
            self,
            unknown=Counter(before.unknown) + Counter(self.unknown),
            ahead=before.ahead + self.ahead,
            ahead_of=Counter(before.ahead_of) + Counter(self.ahead_of),
            changed=before.changed + self.changed,
            changes=[*before.changes, *self.changes],
        )

    @property
    def troubles(self) -> list[str]:
        """What is wrong, for people."""
        found, far = ", ".join(self.unknown), ", ".join(self.ahead_of)
        unknown = (
            f"no bounds for {found}: rows of these sources are merged where the output is not "
            "final, move no clock, and nothing waits for them; give bounds for them "
            "(heartbeats), or correct their names"
        )
        ahead = (
            f"{far} sent times too far in the future: these rows are merged and move no clock "
            "(clock.ahead in the progress counts them); correct the clocks of these sources, "
            "or, if the times are right, start again with a greater guard (heartbeats)"
        )
        return [text for names, text in ((found, unknown), (far, ahead)) if names]

    def is_due(self, now: float, live: int) -> bool:
        """Whether a clock may show something new at `now` (microseconds) although no row came.

        `live` are the events that wait for a stable.
        """
        if not self.time:
            return False
        times = [] if self.due is None else [self.due]
        if self.every is not None and live:
            times.append(self.time + max(self.every, _SECOND))
        return any(time <= now for time in times)

    @classmethod
    def read(cls, fields: Mapping[str, Any] | None) -> "ClockRecord | None":
        """The record of what JSON has; None if there is none."""
        return None if fields is None else cls(**fields)


def _greatest(counts: Mapping[str, int]) -> dict[str, int]:
    """The sources with most rows by name, and the sum of all others."""
    names = sorted((n for n in counts if n != OTHERS), key=lambda n: (-counts[n], n))
    found = {name: counts[name] for name in sorted(names[:_SHOWN])}
    rest = counts.get(OTHERS, 0) + sum(counts[name] for name in names[_SHOWN:])
    return found | {OTHERS: rest} if rest or len(names) > _SHOWN else found
