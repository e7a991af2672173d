"""The records of a run on disk: a file for each trigger, and a snapshot of their totals.

    PROGRESS/trigger-000000000007.parquet     one row for each lane; complete or not there
    .PROGRESS.tail/totals.json                the totals of all committed triggers before some

A restart reads the snapshot and the records after it, so its time does not grow with the age
of the run.  Records that are far older than the snapshot are removed.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from anabranch.batch.times import to_seconds
from anabranch.errors import UsageError
from anabranch.sinks.json_file import replace_text
from anabranch.sinks.published import tail_of
from anabranch.spark.progress import LaneRecord, Totals

KEPT: Final = "1000"
"""The default of `keep_progress`: triggers whose records are kept before the last snapshot."""

SNAPSHOT_EVERY: Final = 100
"""Triggers between two snapshots of the totals."""

SNAPSHOT: Final = "totals.json"


@dataclass(frozen=True, slots=True)
class Retention:
    """How many records are kept before the last snapshot of the totals, and for how long."""

    triggers: int | None = None
    seconds: float | None = None

    @classmethod
    def parse(cls, given: str | int, *, option: str = "keep_progress") -> "Retention":
        """From "1000" (triggers), "7 days", or both with a comma between them."""
        triggers, seconds = None, None
        for part in str(given).split(","):
            if part.strip().isdecimal():
                triggers = int(part)
            else:
                try:
                    seconds = to_seconds(part.strip(), option=option)
                except UsageError as error:
                    message = (
                        f"{option} is {given!r}; expected a number of triggers, a time, or "
                        "both: '1000', '7 days' or '1000, 7 days'"
                    )
                    raise UsageError(message) from error
        return cls(triggers, seconds)

    def ends(self, file: Path, age: int, now: float) -> bool:
        """Whether the record of the trigger that was `age` triggers ago is not kept."""
        if self.triggers is not None and age > self.triggers:
            return True
        return self.seconds is not None and now - file.stat().st_mtime > self.seconds


def record_file(progress: Path, trigger: int) -> Path:
    """The file with the records of a trigger; names sort like numbers."""
    return progress / f"trigger-{trigger:012d}.parquet"


def record_files(progress: Path) -> dict[int, Path]:
    """The files of records in a folder, by trigger, in order."""
    files = sorted(progress.glob("trigger-*.parquet")) if progress.is_dir() else []
    return {int(file.stem.removeprefix("trigger-")): file for file in files}


def read_records(file: Path) -> list[LaneRecord]:
    """The lanes' records of one trigger."""
    texts = pq.read_table(file).column("record").to_pylist()
    return [LaneRecord.from_json(text) for text in texts]


def read_totals(progress: Path) -> Totals:
    """The totals of all triggers that were written: the snapshot, and records after it."""
    file = tail_of(progress) / SNAPSHOT
    totals = Totals.from_json(file.read_text()) if file.exists() else Totals()
    following = totals.next_trigger
    for trigger, records in record_files(progress).items():
        if trigger >= following:
            totals.add(read_records(records), trigger, at=records.stat().st_mtime)
    return totals


def write_snapshot(progress: Path, totals: Totals, kept: Retention, *, now: float) -> None:
    """Keep totals of committed triggers, and remove older records that are not `kept`."""
    replace_text(tail_of(progress) / SNAPSHOT, totals.to_json() + "\n")
    for trigger, file in record_files(progress).items():
        age = totals.next_trigger - trigger
        if age > 0 and kept.ends(file, age, now):
            file.unlink(missing_ok=True)


def write_record_file(table: pa.Table, progress: Path, trigger: int) -> None:
    """Write the records of a trigger."""
    file, tail = record_file(progress, trigger), tail_of(progress)
    tail.mkdir(parents=True, exist_ok=True)
    progress.mkdir(exist_ok=True)
    pq.write_table(table, tail / file.name)
    os.replace(tail / file.name, file)
