"""A warning when too many rows of the last triggers were not merged, or events left out.

It comes when a share begins to exceed the limit, and not again before the share has fallen
below half of it: so a share that stays about the limit warns once.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from anabranch.errors import UsageError
from anabranch.sources.channels import LATE, VIOLATIONS

if TYPE_CHECKING:
    from anabranch.spark.progress import TriggerRecord

log = logging.getLogger(__name__)

WARN_SHARE: Final = 0.01
"""The share of rows above which there is a warning, unless another is asked for."""

WINDOW: Final = 100
"""Triggers over which shares are taken: an old run would hide new trouble, one trigger none."""

_WORDS: Final = {
    LATE: "rows were late",
    VIOLATIONS: "rows broke a promise or are not elements",
    "missing": "events were left out by the replica that decides",
}


@dataclass
class ShareWarner:
    """Warns of shares above `limit` (0: never); `places` are where such rows are kept."""

    limit: float
    places: Mapping[str, str]
    counts: dict[int, dict[str, int]] = field(default_factory=dict)
    above: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Reject a limit that is no share."""
        if not 0 <= self.limit <= 1:
            message = (
                f"warn_share is {self.limit}; expected a share of the rows from 0 to 1, such "
                "as 0.01; 0 switches the warning off"
            )
            raise UsageError(message)

    def warn(self, trigger: "TriggerRecord") -> None:
        """Count a trigger, once also if it is repeated, and log each share that is new."""
        self.counts[trigger.trigger] = _counts(trigger)
        while len(self.counts) > WINDOW:
            del self.counts[min(self.counts)]
        sums = {
            name: sum(one[name] for one in self.counts.values()) for name in _counts(trigger)
        }
        rows = sums.pop("rows")
        for name, count in sums.items():
            if self.limit and name not in self.above and count > self.limit * rows:
                self.above.add(name)
                log.warning("%s", self._text(name, count, rows))
            elif count <= self.limit * rows / 2:
                self.above.discard(name)

    def _text(self, name: str, count: int, rows: int) -> str:
        share = f"{count / rows:.1%}" if rows else "none were expected"
        return (
            f"{count:,} {_WORDS[name]}, of {rows:,} rows in the last {len(self.counts)} "
            f"triggers ({share}; warn_share is {self.limit:.2%}); look into {self.places[name]}"
        )


def _counts(trigger: "TriggerRecord") -> dict[str, int]:
    replicas = trigger.replicas.values()
    return {
        "rows": trigger.rows,
        LATE: sum(one.late for one in replicas),
        VIOLATIONS: sum(one.violation for one in replicas),
        # What a copy with gaps lacks is in the output, if another copy has it.
        "missing": trigger.output.get("missing", 0) - sum(one.lacks for one in replicas),
    }
