"""The records of a run on disk: a file for each trigger, and a snapshot of their totals.

    PROGRESS/trigger-000000000007.parquet     one row for each lane; complete or not there
    .PROGRESS.tail/totals.json                the totals of all committed triggers before some

A restart reads the snapshot and the records after it, so its time does not grow with the age
of the run.  Records that are far older than the snapshot are removed.
"""

import os
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from anabranch.sinks.json_file import replace_text
from anabranch.sinks.published import tail_of
from anabranch.spark.progress import LaneRecord, Totals

KEPT: Final = 1000
"""The number of triggers whose records are kept before the last snapshot of the totals."""

SNAPSHOT_EVERY: Final = 100
"""Triggers between two snapshots of the totals."""

SNAPSHOT: Final = "totals.json"


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


def write_snapshot(progress: Path, totals: Totals) -> None:
    """Keep totals of committed triggers, and remove records that are older by `KEPT`."""
    replace_text(tail_of(progress) / SNAPSHOT, totals.to_json() + "\n")
    for trigger, file in record_files(progress).items():
        if trigger < totals.next_trigger - KEPT:
            file.unlink(missing_ok=True)


def write_record_file(table: pa.Table, progress: Path, trigger: int) -> None:
    """Write the records of a trigger."""
    file, tail = record_file(progress, trigger), tail_of(progress)
    tail.mkdir(parents=True, exist_ok=True)
    progress.mkdir(exist_ok=True)
    pq.write_table(table, tail / file.name)
    os.replace(tail / file.name, file)
