"""Ctrl-C while Spark runs: recorded at once, and checked between two calls of Spark.

PySpark's own handler calls Spark from within the very call that it interrupts: both fail, and
py4j prints a traceback for each.  Here the call that runs ends as usual.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def interrupts_noted() -> Iterator[threading.Event]:
    """What is set by Ctrl-C while the block runs; a second one interrupts at once."""
    noted = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield noted  # only the main thread gets signals
        return

    def note(number: int, frame: Any) -> None:  # noqa: ARG001
        noted.set()
        signal.signal(signal.SIGINT, signal.default_int_handler)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield noted
    finally:
        signal.signal(signal.SIGINT, before)
