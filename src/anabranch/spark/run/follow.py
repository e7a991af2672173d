"""The records that a query wrote, read by the process that started it: for Spark Connect.

On a classic session the function that Spark calls at the end of a trigger runs in this very
process, and can count and call back.  On Connect it is pickled and runs on the server:
what it changes there is never visible here.  So it only writes, and a `Follower` reads the
records of each trigger from the progress folder, in order, soon after they are complete.  Where
the checkpoint is visible too, it waits until Spark has committed the trigger: one that is run
again after a failure is handed over as on a classic session, with the records that replaced
those of the first attempt.
"""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from anabranch.errors import UsageError
from anabranch.spark.checkpoint.control_log import ENTRIES, read_entries
from anabranch.spark.lane.stage import escaped
from anabranch.spark.progress import LaneRecord
from anabranch.spark.write.records import read_records, record_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

INTERVAL: Final = 0.2
"""Seconds between two looks."""

Take = Callable[[list[LaneRecord], int], None]


class Follower:
    """Hands over the records of each trigger, once and in order.

    `committed` returns the last trigger that Spark has committed.
    """

    def __init__(
        self, progress: Path, following: int, take: Take, committed: Callable[[], float]
    ) -> None:
        self._progress = progress
        self._next = following
        self._committed = committed
        self._take = take
        self._lock = threading.Lock()

    def look(self) -> None:
        """Hand over what is there and was not handed over."""
        with self._lock:
            last = self._committed()
            for number, file in record_files(self._progress).items():
                if self._next <= number <= last:
                    self._take(read_records(file), number)
                    self._next = number + 1


def require_shared_disk(spark: "SparkSession", control: Path) -> None:
    """Reject an inbox where Spark's server does not see the control log written here."""
    written = sum(1 for _ in read_entries(control))
    try:
        seen = spark.read.schema(ENTRIES).json(escaped(str(control))).count()
    except Exception:  # whatever the reason is, it does not see it
        seen = -1
    if seen < written:
        message = (
            f"ab.inbox: the Spark Connect server does not see {control}, which was written "
            "here: an inbox needs a disk that client and server share under the same path; "
            "read the files with spark.readStream instead, as ab.elements"
        )
        raise UsageError(message)
