"""The end of a trigger: every sink gets its rows, then the records are written.

Spark calls `TriggerWriter.write` with the lanes' rows, again with the same id after a crash.
All sinks write before the first of them commits; the records of the trigger, which mark that it
was written, come last.  A writer is plain data: on Spark Connect it is pickled and runs beside
the server.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from anabranch.sinks.contract import Sink
from anabranch.sinks.folder import FolderSink
from anabranch.sources.channels import PROGRESS
from anabranch.spark.pack.spill import Depot
from anabranch.spark.progress import LaneRecord
from anabranch.spark.write.reports import (
    LaneReport,
    read_reports,
    staged_files,
    trigger_name,
    write_records,
)
from anabranch.spark.write.stage_files import Direct, Shelf
from anabranch.spark.write.views import View

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class UriSink:
    """A folder that only Spark reaches: a sub-folder per trigger, overwritten by Spark."""

    uri: str
    folder: None = None

    def open(self, run: str) -> None:
        """Nothing to prepare."""

    def write(self, trigger: int, rows: Any, files: Mapping[str, int]) -> None:  # noqa: ARG002
        """Let Spark write the rows."""
        rows.write.mode("overwrite").parquet(f"{self.uri}/{trigger_name(trigger)}")

    def commit(self, trigger: int) -> None:
        """Spark's committer has done it."""

    def committed(self, trigger: int) -> None:
        """Nothing is kept for a repetition."""


@dataclass(frozen=True)
class Outlet:
    """One view of the output, and the sink that it goes to."""

    view: View
    sink: Sink


@dataclass(frozen=True)
class TriggerWriter:
    """All that a query writes; `progress` is the folder of the records.

    Spark counts triggers from 0; the run has taken `first_trigger` before, and counts on.
    """

    outlets: tuple[Outlet, ...]
    progress: str
    depot: Depot | None = None
    first_trigger: int = 0

    def open(self, run: str) -> None:
        """Prepare every sink for the triggers of one start."""
        for outlet in self.outlets:
            outlet.sink.open(run)

    def write(self, df: "DataFrame", batch: int) -> tuple[list[LaneRecord], int]:
        """Write what Spark calls `batch`; the records of its lanes, and its trigger."""
        trigger = self.first_trigger + batch
        if trigger > 0:
            self.committed(trigger - 1)  # Spark begins a trigger when the one before is done
        others = [outlet for outlet in self.outlets if outlet.sink.folder is None]
        if others:
            df = df.persist()  # several sinks read it; the lanes must work once
        try:
            reports = read_reports(df.where(f"channel = '{PROGRESS}'") if others else df)
            for outlet in self.outlets:
                _write(outlet, df, trigger, reports)
            for outlet in self.outlets:
                outlet.sink.commit(trigger)
            write_records(df, reports, self.progress, trigger)
            if self.depot is not None:
                self.depot.clear()
        finally:
            if others:
                df.unpersist()
        return [one.record for one in reports], trigger

    def committed(self, trigger: int) -> None:
        """Notify every sink that Spark repeats no trigger up to this one."""
        for outlet in self.outlets:
            outlet.sink.committed(trigger)

    def roll(self, committed: int) -> None:
        """Let the folders publish what is old enough; Spark has committed this trigger."""
        for folder in self.folders:
            folder.committed(committed)

    def publish(self) -> None:
        """Let the folders publish all that they know to be committed."""
        for folder in self.folders:
            folder.publish()

    @property
    def folders(self) -> list[FolderSink]:
        """The sinks that are folders of ours."""
        sinks = (outlet.sink for outlet in self.outlets)
        return [sink for sink in sinks if isinstance(sink, FolderSink)]

    def direct(self) -> Direct:
        """What the lanes write themselves, and what they hand on for other sinks."""
        shelves, travel = [], {PROGRESS: None}
        for outlet in self.outlets:
            folder, view = outlet.sink.folder, outlet.view
            if folder is None:
                travel |= dict.fromkeys(view.channels)
            else:
                shelves.append(Shelf(folder, view.channels, view.form))
        return Direct(tuple(shelves), tuple(travel))


def _write(
    outlet: Outlet, df: "DataFrame", trigger: int, reports: Sequence[LaneReport]
) -> None:
    """Give a sink what a trigger has for it; nothing if there is nothing."""
    if outlet.sink.folder is not None:
        staged = staged_files(reports).get(outlet.sink.folder)
        if staged:
            outlet.sink.write(trigger, None, staged)
    elif any(one.record.output.get(name) for one in reports for name in outlet.view.channels):
        outlet.sink.write(trigger, outlet.view.of(df), {})
