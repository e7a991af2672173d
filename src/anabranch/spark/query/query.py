"""`Query`: continuous queries over events with lifetimes, one step at a time.

A query answers at once and corrects itself: at the end of every trigger its output has exactly
the history that its operators give for everything that has arrived.  `final()` delivers what
nothing can change any more.

A `Query` is a value that describes; nothing runs before a view is used or `start` is called.
Each method returns another one.  Columns, keys, types and durations are validated at the call.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from anabranch.batch.schema import ElementSchema
from anabranch.batch.times import to_seconds
from anabranch.errors import UsageError
from anabranch.plan.explain import explain, has_state
from anabranch.plan.labels import labels
from anabranch.plan.node import Node, Source
from anabranch.sources.channels import CHANGES, ELEMENTS, FINAL, LATE
from anabranch.spark.query.endless import warn_endless
from anabranch.spark.query.fluent import Fluent
from anabranch.spark.query.levels import aligned
from anabranch.spark.query.merged import QUERY
from anabranch.spark.query.planned import Planned
from anabranch.spark.run.prepare import Given, prepare
from anabranch.spark.run.shares import WARN_SHARE
from anabranch.spark.session.host import TRIGGER_BYTES, to_bytes
from anabranch.spark.write.records import KEPT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from anabranch.spark.run.running import OnTrigger, RunningQuery


@dataclass(frozen=True, eq=False)
class Query(Fluent):
    """A continuous query that does not run yet; made by the methods of streams and merges.

    Its views (`elements`, `changes`, `final`, `late`) are DataFrames; `start` runs one
    streaming query with several sinks.
    """

    _hidden = "node planned"
    node: Node

    @property
    def _node(self) -> Node:
        return self.node

    @cached_property
    def planned(self) -> Planned:
        """The query with its stages and lanes."""
        return Planned.of(self.node)

    @property
    def schema(self) -> ElementSchema:
        """The type of the times, and the payload columns of the output."""
        return self.node.schema

    @property
    def columns(self) -> list[str]:
        """The payload columns of the output."""
        return list(self.schema.payload.names)

    def selectivity(self, rows: float) -> "Query":
        """Declare how many rows the last step emits per row that it reads, on average.

        With a consistency that waits, a step that multiplies rows does not run ahead of those
        that need other sources as well: its result would be remembered until then.

        Args:
            rows: 0 or greater; 4 for a join that finds four partners for each row.
        """
        if isinstance(self.node, Source) or rows < 0 or not isfinite(rows):
            message = (
                f"selectivity: got {rows} for {self.node.id}; it must be 0 or greater, and "
                "belongs to a step: query.join(other, ...).selectivity(4)"
            )
            raise UsageError(message)
        return Query(replace(self.node, selectivity=float(rows)))

    def align(
        self,
        *,
        wait: str | int | None = None,
        wait_wall: str | None = None,
        release: "Literal['ordered', 'final']" = "ordered",
        id: str | None = None,  # noqa: A002
    ) -> "Query":
        """Hold events back until a stable passes them; what changes them meanwhile is combined.

        `consistency` does it for all inputs of a query.

        Args:
            wait: At the latest, an event is released when its start is this far behind the
                greatest start of the whole query: application time.
            wait_wall: At the latest, an event is released after this time by the wall clock.
            release: "ordered": what a stable has passed, in order.  "final": events that are
                final, by start, without corrections; one without end blocks all behind it.
            id: The name of the step.
        """
        return aligned(self, wait=wait, wait_wall=wait_wall, release=release, id=id)

    def elements(self) -> "DataFrame":
        """The output in the element format; sort by `seq` to read it in order."""
        return self.planned.view(ELEMENTS)

    def changes(self, *, key: "str | Sequence[str]" = ()) -> "DataFrame":
        """Change rows: `_change_type` is insert, delete, update_preimage, update_postimage.

        Applying them in the order of `seq` gives the history.  `_commit_version` is the number
        of the step that made a change.

        Args:
            key: Columns that identify a row together with its `start`: a changed value is an
                update pair then.  Without it only a changed end is; a changed value is a delete
                and an insert.
        """
        return self.planned.keyed(key).view(CHANGES)

    def final(self) -> "DataFrame":
        """Final events, each once: append-only, for any sink."""
        return self.planned.view(FINAL)

    def late(self) -> "DataFrame":
        """Rows that were not taken, with the reason: late rows and violations."""
        return self.planned.view(LATE)

    @property
    def explanation(self) -> str:
        """The steps with their stages, keys and what they remember."""
        planned = self.planned
        words = {name: entry.as_source for name, entry in planned.entries}
        waits = labels(planned.last, planned.waiting)
        return explain(planned.last, planned.lanes, words, planned.endless, waits=waits)

    def explain(self) -> None:
        """Print the explanation."""
        print(self.explanation)

    def start(
        self,
        checkpoint: str | Path,
        *,
        output: str | Path | None = None,
        elements: "Given | None" = None,
        changes: "Given | None" = None,
        final: "Given | None" = None,
        late: "Given | None" = None,
        once: bool = False,
        interval: str = "1 second",
        roll: str = "0",
        max_bytes_per_trigger: str | int = TRIGGER_BYTES,
        on_trigger: "OnTrigger | None" = None,
        warn_share: float = WARN_SHARE,
        keep_progress: str | int = KEPT,
        complete: bool = False,
        key: "str | Sequence[str]" = (),
    ) -> "RunningQuery":
        """Start one query with one or several sinks; the arguments are those of a merge.

        See `Merged.start`; `key` is that of `changes`.
        """
        planned = self.planned.keyed(key)
        if planned.copies.stream is not None and not planned.copies.is_streaming:
            message = (
                "query: start() is for streaming DataFrames; these are batches: write a view, "
                "for instance query.final().write.parquet(PATH)"
            )
            raise UsageError(message)
        if planned.is_endless and (final is not None or has_state(planned.last)):
            warn_endless(QUERY)
        sinks = {ELEMENTS: elements, CHANGES: changes, FINAL: final, LATE: late}
        prepared = prepare(
            planned,
            str(checkpoint),
            sinks,
            output=None if output is None else Path(output),
            roll=to_seconds(roll, option="roll"),
            limit=to_bytes(max_bytes_per_trigger, option="max_bytes_per_trigger"),
        )
        return prepared.start(
            planned.spark,
            once=once,
            interval=interval,
            on_trigger=on_trigger,
            warn_share=warn_share,
            keep_progress=keep_progress,
            complete=complete,
        )
