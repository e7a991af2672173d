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
from typing import Final

from anabranch.spark.progress import LaneRecord
from anabranch.spark.write.records import read_records, record_files

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
