"""The records that a query wrote, read by the process that started it: for Spark Connect.

On a classic session the function that Spark calls at the end of a trigger runs in this very
process, and can count and call back.  On Connect it is pickled and runs beside the server:
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

from anabranch.sinks.folder import is_complete
from anabranch.spark.progress import LaneRecord, read_records

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
            for number, folder in sorted(self._complete()):
                self._take(read_records(folder), number)
                self._next = number + 1

    def _complete(self) -> list[tuple[int, Path]]:
        last = self._committed()
        folders = self._progress.glob("trigger-*") if self._progress.exists() else ()
        numbered = ((int(path.name.removeprefix("trigger-")), path) for path in folders)
        return [
            (number, path)
            for number, path in numbered
            if self._next <= number <= last and is_complete(path)
        ]
