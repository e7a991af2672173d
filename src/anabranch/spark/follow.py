"""What a query wrote down, followed by whoever started it: for Spark Connect.

On a classic session the function that Spark calls at the end of a trigger runs in this very
process, and can count and call back.  On Connect it is pickled and runs beside the server:
what it changes there is never seen here.  So it only writes (`only_writing`), and a `Follower`
reads the records of each trigger from the progress folder, in order, soon after they are
complete.
"""

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from anabranch.spark.poll import Poller
from anabranch.spark.progress import Record

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_INTERVAL: Final = "200 milliseconds"

Take = Callable[[list[Record], int], None]


class Writer(Protocol):
    """What happens at the end of a trigger; plain data, so that it may run elsewhere."""

    def write(self, df: "DataFrame", trigger: int) -> list[Record]:
        """Write the rows of a trigger, and last its records."""


def only_writing(writer: Writer) -> "Callable[[DataFrame, int], None]":
    """The function for Spark to call where nothing can come back."""

    def write(df: "DataFrame", trigger: int) -> None:
        writer.write(df, trigger)

    return write


class Follower:
    """Hands over the records of each trigger, once and in order; a failure ends the query."""

    def __init__(self, progress: Path, following: int, take: Take) -> None:
        self._progress = progress
        self._next = following
        self._take = take
        self._lock = threading.Lock()
        self._poller: Poller | None = None
        self._failure: Exception | None = None

    def start(self, stop: Callable[[], None]) -> None:
        """Look every so often; `stop` is called if whoever takes the records fails."""

        def look() -> None:
            try:
                self.look()
            except Exception as error:
                self._failure = error
                stop()
                raise

        self._poller = Poller(look, _INTERVAL)

    def look(self) -> None:
        """Hand over what is there and was not handed over."""
        with self._lock:
            for number, folder in sorted(self._complete()):
                self._take(_read(folder), number)
                self._next = number + 1

    def _complete(self) -> list[tuple[int, Path]]:
        folders = self._progress.glob("trigger-*") if self._progress.exists() else ()
        numbered = ((int(path.name.removeprefix("trigger-")), path) for path in folders)
        return [
            (number, path)
            for number, path in numbered
            if number >= self._next and (path / "_SUCCESS").exists()
        ]

    def cease(self) -> None:
        """Look no more."""
        if self._poller is not None:
            self._poller.stop()

    def finish(self) -> None:
        """Hand over the rest, when the query has ended; raise what whoever took it raised."""
        self.cease()
        if self._failure is not None:
            raise self._failure
        self.look()


def waited(wait: Callable[[], bool], follower: Follower | None) -> bool:
    """Wait for the end of a query, and for what it wrote last; False if it still runs."""
    try:
        ended = wait()
    except Exception:
        if follower is not None:
            follower.cease()
        raise
    if ended and follower is not None:
        follower.finish()
    return ended


def _read(folder: Path) -> list[Record]:
    import pyarrow.parquet as pq

    lines = pq.read_table(folder).column("record").to_pylist()
    return [json.loads(line) for line in lines]
