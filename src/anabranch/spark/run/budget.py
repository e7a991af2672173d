"""A warning when a trigger reads more bytes of DataFrames than its limit.

What a trigger takes of an inbox is bounded by us (`max_bytes_per_trigger`).  What it takes of a
DataFrame is decided by the source, and many take all that waits unless an option bounds them.
So a trigger above the same budget is warned of, with the names of those options.
"""

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from anabranch.spark.progress import TriggerRecord

log = logging.getLogger(__name__)

OPTIONS: Final = (
    "maxBytesPerTrigger or maxFilesPerTrigger for files and Delta, maxOffsetsPerTrigger for "
    "Kafka"
)
"""What bounds the triggers of Spark's sources."""


@dataclass
class BudgetWarner:
    """Warns of the first trigger above `limit` bytes, and of one that is twice as large."""

    limit: int
    logged: int = 0

    def warn(self, trigger: "TriggerRecord") -> None:
        """Look at one trigger."""
        size = trigger.frame_bytes
        if size <= max(self.limit, 2 * self.logged - 1):
            return
        self.logged = size
        log.warning(
            "trigger %d took %s bytes of rows from DataFrames, more than max_bytes_per_trigger "
            "(%s): its memory grows with what waits; bound it by an option of the source, as "
            "in spark.readStream.option(...): %s",
            trigger.trigger,
            f"{size:,}",
            f"{self.limit:,}",
            OPTIONS,
        )
