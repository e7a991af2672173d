"""A JSON line for each trigger: its record, when it began and how long it took.

Spark reports the time of a trigger after our record of it, so a line waits for that report: at
most until the next look, and at the end of the run it is printed without.
"""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from anabranch.spark.run.listen import trigger_times

if TYPE_CHECKING:
    from anabranch.spark.progress import Totals


class TriggerLines:
    """Takes totals after every trigger, in any thread; `show` prints what Spark has timed."""

    def __init__(self, echo: Callable[[str], None] = click.echo) -> None:
        self._echo = echo
        self._waiting: dict[int, dict[str, Any]] = {}

    def take(self, totals: "Totals") -> None:
        """Keep the record of the last trigger until its time is known."""
        if totals.last is not None:
            now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
            times = {"timestamp": now, "duration_ms": None}
            self._waiting[totals.last.trigger] = {**totals.last.to_dict(), **times}

    def show(self, query: Any, *, at_end: bool = False) -> None:
        """Print the triggers that Spark has timed; at the end all of them."""
        if not self._waiting:
            return
        times = _times(query, at_end=at_end)
        for trigger in sorted(self._waiting):
            if at_end or trigger in times:
                record = self._waiting.pop(trigger)
                self._echo(json.dumps({**record, **times.get(trigger, {})}))


def _times(query: Any, *, at_end: bool) -> dict[int, dict[str, Any]]:
    try:
        return trigger_times(query)
    except Exception:
        if not at_end:
            raise
        return {}  # Spark is gone, and the reason is on its way already
