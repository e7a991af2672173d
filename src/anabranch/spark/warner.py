"""Warnings in the log for those who rely on the output of a merge."""

import logging
from dataclasses import dataclass, field
from typing import Final

from anabranch.batch.schema import TimeType
from anabranch.spark.progress import Totals, troubles

log = logging.getLogger(__name__)

_WARN_AT: Final = (10, 100, 1000)
"""Numbers of triggers without a stable after which a warning is logged."""


@dataclass
class Warner:
    """Puts each trouble into the log when it begins, and not again while it lasts."""

    time: TimeType
    logged: list[str] = field(default_factory=list)

    def warn(self, totals: Totals) -> None:
        """Log what is new."""
        now = troubles(totals, self.time)
        for one in now:
            if one not in self.logged:
                log.warning("%s", one)
        self.logged = now
        if totals.frontier is None and totals.triggers in _WARN_AT:
            log.warning(
                "no stable in %d triggers: %d events are remembered (%d bytes of state), and "
                "none of them can become final; add heartbeats "
                "(ab.events(...).heartbeats) or send stables",
                totals.triggers,
                totals.live,
                totals.state_bytes,
            )
