"""The progress of every query that has a merge in it, through Spark's own observed metrics.

The lanes' records pass by an `observe` on their way to the sink, whatever the sink is: so they
are in `query.lastProgress["observedMetrics"]` and in what any `StreamingQueryListener` is told,
also where a view is written by Spark's own writers, and on Spark Connect.  Each lane's record
is a maximum over rows of which the lane makes one per trigger: a task that is run again, or
rows that are read twice, change nothing.

`progress` reads them; `listener` calls a function with them.
"""

import json
import logging
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from anabranch.errors import UsageError
from anabranch.spark.progress import Record, of_trigger
from anabranch.spark.write import PROGRESS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.listener import StreamingQueryListener

log = logging.getLogger(__name__)

_NAME: Final = "anabranch-"


def observed(rows: "DataFrame", run: str, lanes: int) -> "DataFrame":
    """The lanes' rows; Spark notes their records as it passes them on."""
    from pyspark.sql import functions as F  # noqa: N812

    is_record = F.col("channel") == PROGRESS
    notes = [
        F.max(F.when(is_record & (F.col("lane") == lane), F.col("note"))).alias(f"lane_{lane}")
        for lane in range(lanes)
    ]
    # Two views of one merge may meet in one query; Spark wants each name once.
    return rows.observe(f"{_NAME}{run}-{uuid.uuid4().hex[:8]}", *notes)


def progress(query: Any) -> list[Record]:
    """What the last trigger did, for each merge in a query (nearly always one).

    `query` is a query of Spark's, what `start` of a merge returns, or a progress that Spark
    gives (`query.lastProgress`, `event.progress`).  The list is empty before the first trigger,
    and for a query without a merge.  docs/guide/running.md says what is in a progress.
    """
    from anabranch.spark.started import StartedMerge

    query = query.query if isinstance(query, StartedMerge) else query
    last = query if isinstance(query, Mapping) else _last(query)
    if not last:
        return []
    found = []
    metrics = last.get("observedMetrics") or {}
    for name, row in sorted(metrics.items()):
        if not name.startswith(_NAME):
            continue
        records = [json.loads(note) for note in _notes(row)]
        if records:
            run = name.removeprefix(_NAME).rpartition("-")[0]
            now = of_trigger(records, int(last["batchId"]))
            found.append({"run": run, "timestamp": last["timestamp"], **now})
    return found


def _notes(row: Any) -> Iterator[str]:
    """The lanes' records in a row of metrics; Connect has it with lists inside."""
    if isinstance(row, str):
        if row.startswith("{"):
            yield row
    elif isinstance(row, Mapping):
        yield from _notes(list(row.values()))
    elif isinstance(row, list | tuple):
        for one in row:
            yield from _notes(one)


def _last(query: Any) -> Mapping[str, Any] | None:
    last = getattr(query, "lastProgress", "")
    if last is None or isinstance(last, Mapping):
        return last
    message = (
        f"ab.progress: {query!r} is a {type(query).__name__}; give a streaming query, what "
        "merged.start(...) returned, or the progress in a listener's event"
    )
    raise UsageError(message)


def listener(function: Callable[[Record], None]) -> "StreamingQueryListener":
    """A listener for `spark.streams.addListener`: calls a function after every trigger.

    It is called once for each merge in each query of the session, with what `progress` gives.
    An error in it is put into the log; it stops no query.
    """
    from pyspark.sql.streaming.listener import StreamingQueryListener

    class Listener(StreamingQueryListener):
        def onQueryStarted(self, event: Any) -> None:  # noqa: N802
            """Nothing was done yet."""

        def onQueryProgress(self, event: Any) -> None:  # noqa: N802
            """Spark tells what a trigger did."""
            for one in progress(event.progress):
                try:
                    function(one)
                except Exception:
                    log.exception("a function that listens to progress failed")

        def onQueryIdle(self, event: Any) -> None:  # noqa: N802
            """Nothing came."""

        def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
            """What it did was told before."""

    return Listener()
