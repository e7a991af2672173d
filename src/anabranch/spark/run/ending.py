"""The end of a query: wait, stop, and errors of Spark as errors of ours.

Spark wraps an error of a Python worker in its own, with the worker's traceback as text.  If it
was one of ours, `explain` finds its name and message there; anything else is a `RunError` that
names Spark's log.  Where Spark's process is gone (killed, out of memory) it answers nothing any
more: that is a failure of the run like others, and stopping what is gone is none.
"""

import logging
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from anabranch import errors
from anabranch.errors import AnabranchError, RunError
from anabranch.spark.run.unread import left
from anabranch.spark.session.start import log_file

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import SourceProgress
    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger(__name__)

_OURS: Final = re.compile(
    r"anabranch\.errors\.(\w+): (.+?)(?:\n\n|\n\t|\nSQLSTATE| SQLSTATE|$)", re.DOTALL
)

_NO_PYTHON: Final = re.compile(r'Cannot run program "([^"]*python[^"]*)"')


def wait_for(query: "StreamingQuery", seconds: int | None) -> bool:
    """Wait for the end; False if it still runs.  A failure is raised in our words."""
    try:
        ended = query.awaitTermination(seconds)
    except Exception as error:
        raise explain(error) from error
    return bool(ended) or seconds is None


def stop(query: "StreamingQuery | None") -> None:
    """Stop a query that runs; one that has ended, or whose Spark is gone, is left as it is."""
    try:
        if query is not None:
            query.stop()
    except Exception as error:  # what ended it was raised where it was waited for
        log.info("the query could not be stopped: %s", error)


def is_active(query: "StreamingQuery | None") -> bool:
    """Whether a query runs; one whose Spark is gone does not."""
    try:
        return query is not None and bool(query.isActive)
    except Exception:
        return False


def has_backlog(query: "StreamingQuery | None") -> bool:
    """Whether a trigger runs, or a source has reported rows that no trigger has taken.

    Sources that report nothing about that (files) have none, as far as is known.
    """
    try:
        if query is None or query.status["isTriggerActive"]:
            return query is not None
        return has_left(query)
    except Exception:  # Spark is gone: nothing is read any more
        return False


def reported(query: "StreamingQuery | None") -> "Sequence[SourceProgress]":
    """What Spark reports of the sources after the last trigger, in the order of the plan."""
    try:
        progress = None if query is None else query.lastProgress
        return progress.sources if progress is not None else []
    except Exception:  # Spark is gone: nothing is read any more
        return []


def has_left(query: "StreamingQuery | None") -> bool:
    """Whether the last trigger left rows that a source reports to have."""
    return any(left(one.latestOffset, one.endOffset) for one in reported(query))


def explain(error: Exception) -> AnabranchError:
    """The error to raise instead of one that Spark raised."""
    if isinstance(error, AnabranchError):
        return error
    text = str(error)
    found = _OURS.search(text)
    if found:
        kind = getattr(errors, found[1], RunError)
        if isinstance(kind, type) and issubclass(kind, AnabranchError):
            return kind(" ".join(found[2].split()))
    no_python = _NO_PYTHON.search(text)
    if no_python:
        text = (
            f"a worker cannot run {no_python[1]}: set PYSPARK_PYTHON, where the driver starts, "
            "to a Python with Anabranch that every machine has under this path"
        )
    if isinstance(error, ConnectionError) or type(error).__name__ == "Py4JNetworkError":
        text = "its process (the JVM) is gone: killed, or out of memory"
    first = next((line for line in text.splitlines() if line.strip()), type(error).__name__)
    place = log_file()
    where = f"; Spark's log is {place}" if place else ""
    return RunError(
        f"Spark failed: {first.strip()[:500]}{where}; what was committed stays, start again"
    )
