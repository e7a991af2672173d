"""A look at the outside every so often, beside a query that runs."""

import threading
from collections.abc import Callable

from anabranch.batch.schema import TimeType
from anabranch.sources.durations import to_units


class Poller:
    """Calls a function again and again in a thread; a failure ends that, and is kept."""

    def __init__(self, look: Callable[[], None], interval: str) -> None:
        self._look = look
        length = to_units(interval, TimeType.TIMESTAMP, option="--interval")
        self._seconds = length / 1_000_000
        self._ended = threading.Event()
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="anabranch-poll", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.wait(self._seconds):
            try:
                self._look()
            except Exception as error:  # raised where the query is waited for
                self._failure = error
                return

    def raise_failure(self) -> None:
        """Raise what the function raised."""
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """No further call begins; waits for one that runs."""
        self._ended.set()
        self._thread.join()
