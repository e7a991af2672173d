"""The progress of every query with a merge, through Spark's own observed metrics.

An `observe` step between lanes and sink collects the lanes' records for any sink.  They are in
`query.lastProgress["observedMetrics"]` and in the events of any `StreamingQueryListener`, also
where a view is written by Spark's own writers, and on Spark Connect.  Each metric is a maximum
over rows of which a lane emits one per trigger, so retried tasks do not change it.

`progress` reads them; `listener` calls a function with them.
"""

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from anabranch.errors import UsageError
from anabranch.spark.lane.stage import OBSERVED
from anabranch.spark.progress import LaneRecord, TriggerRecord

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryListener

log = logging.getLogger(__name__)


def progress(query: Any) -> list[dict[str, Any]]:
    """The counts of the last trigger with rows, one record for each merge in a query.

    `query` is a Spark `StreamingQuery`, an `ab.RunningQuery`, or Spark's progress
    (`query.lastProgress`, `event.progress`).  The list is empty before the first trigger, and
    for a query without a merge.  docs/guide/progress.md documents each field.
    """
    from anabranch.spark.run.running import RunningQuery

    query = query.query if isinstance(query, RunningQuery) else query
    if isinstance(query, Mapping):
        return _records(query)
    # While nothing comes, Spark reports triggers that did nothing, and have no records.
    return next((found for one in _latest(query) if (found := _records(one))), [])


def _records(last: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The record of each merge in what Spark reports of one trigger."""
    found = []
    for name, row in sorted(_metrics(last).items()):
        if not _is_ours(name):
            continue
        records = [LaneRecord.from_json(note) for note in _notes(row)]
        if records:
            run = name.removeprefix(OBSERVED).rpartition("-")[0]
            now = TriggerRecord.of(records, _number(last, row)).to_dict()
            found.append({"run": run, **_times(last), **now})
    return found


def trigger_times(query: Any) -> dict[int, dict[str, Any]]:
    """When each of the last triggers of a query began, and how long it took, by its id."""
    # A trigger that did nothing is reported too, with the id of the next that does something.
    found = {}
    for one in query.recentProgress:
        for name, row in _metrics(one).items():
            if _is_ours(name):
                found[_number(one, row)] = _times(one)
    return found


def _number(reported: Mapping[str, Any], row: Any) -> int:
    """The run's number of a trigger: Spark counts from 0 in each of its checkpoints."""
    note = json.loads(next(_notes(row), "{}"))
    return int(reported["batchId"]) + int(note.get("first_trigger", 0))


def _metrics(reported: Mapping[str, Any]) -> Mapping[str, Any]:
    return reported.get("observedMetrics") or {}


def _is_ours(name: str) -> bool:
    return name.startswith(OBSERVED)


def _times(reported: Mapping[str, Any]) -> dict[str, Any]:
    spent = (reported.get("durationMs") or {}).get("triggerExecution")
    return {"timestamp": reported["timestamp"], "duration_ms": spent}


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


def _latest(query: Any) -> Iterator[Mapping[str, Any]]:
    """What Spark reports of a query's triggers, the last one first."""
    last = getattr(query, "lastProgress", "")
    if last is not None and not isinstance(last, Mapping):
        message = (
            f"ab.progress: {query!r} is a {type(query).__name__}; give a streaming query, what "
            "merged.start(...) returned, or the progress in a listener's event"
        )
        raise UsageError(message)
    if last is not None:
        yield last
        yield from reversed(query.recentProgress)


def listener(function: Callable[[dict[str, Any]], None]) -> "StreamingQueryListener":
    """A listener for `spark.streams.addListener`: calls a function after every trigger.

    It is called once for each merge in each query of the session, with a record as in
    `progress`.  An error in it is logged and does not stop the query.
    """
    from pyspark.sql.streaming.listener import StreamingQueryListener

    class Listener(StreamingQueryListener):
        def onQueryStarted(self, event: Any) -> None:  # noqa: N802
            """Nothing was done yet."""

        def onQueryProgress(self, event: Any) -> None:  # noqa: N802
            """Call the function with the record of the trigger."""
            for one in progress(event.progress):
                try:
                    function(one)
                except Exception:
                    log.exception("a function that listens to progress failed")

        def onQueryIdle(self, event: Any) -> None:  # noqa: N802
            """Nothing came."""

        def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
            """Its triggers were reported before."""

    return Listener()
