"""The end of a query: waited for, made, or met; failures in our words, and the lock let go.

Where Spark's process is gone (killed, out of memory) it answers nothing any more: that is a
failure of the run like others, and stopping what is gone is none.
"""

import logging
from typing import TYPE_CHECKING, Any

from anabranch.spark.failure import explain
from anabranch.spark.lock import DriverLock

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger(__name__)


def wait_for(query: "StreamingQuery", lock: DriverLock | None, seconds: int | None) -> bool:
    """Wait for the end; False if it still runs.  A failure is raised in our words."""
    try:
        ended = query.awaitTermination(seconds)
    except Exception as error:
        _release(lock)
        raise explain(error) from error
    if ended or seconds is None:
        _release(lock)
        return True
    return False


def stop(query: "StreamingQuery | None", lock: DriverLock | None) -> None:
    """Stop a query that runs; one that has ended, or whose Spark is gone, is left as it is."""
    try:
        if query is not None:
            query.stop()
    except Exception as error:  # what ended it was raised where it was waited for
        log.info("the query could not be stopped: %s", error)
    finally:
        _release(lock)


def is_active(query: Any) -> bool:
    """Whether a query runs; one whose Spark is gone does not."""
    try:
        return query is not None and bool(query.isActive)
    except Exception:
        return False


def _release(lock: DriverLock | None) -> None:
    if lock is not None:
        lock.release()
