"""Records on disk: few files however long a run is, and totals that a restart finds again."""

import os
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from anabranch.errors import UsageError
from anabranch.spark.progress import LaneRecord, ReplicaCounts, Totals
from anabranch.spark.step_record import OperatorRecord
from anabranch.spark.write.records import (
    Retention,
    read_totals,
    record_files,
    write_record_file,
    write_snapshot,
)
from anabranch.spark.write.reports import write_records

RECORD = LaneRecord(
    lane=0,
    steps=1,
    replicas={"east": ReplicaCounts(rows=2, emitted=1, late=1, frontier=7, joined=True)},
    output={"elements": 1, "late": 1},
    operators={"merge": OperatorRecord(operator="merge", frontier=7, live=3)},
    frontier=7,
    live=3,
    leader="east",
    violators=("west",),
)


def write(progress: Path, trigger: int) -> LaneRecord:
    one = replace(RECORD, steps=trigger + 1, live=trigger)
    table = pa.table({"lane": pa.array([0], pa.int32()), "record": [one.to_json()]})
    write_record_file(table, progress, trigger)
    return one


def test_totals_are_those_of_all_triggers_and_old_records_go(tmp_path: Path) -> None:
    progress, totals = tmp_path / "progress", Totals()
    for trigger in range(100):
        if trigger % 10 == 0:
            write_snapshot(progress, totals, Retention(20), now=0.0)
        one = write(progress, trigger)
        totals.add([one], trigger, at=1.0)
        assert len(record_files(progress)) <= 20 + 10
    assert totals.to_json() == Totals.from_json(totals.to_json()).to_json()
    found = read_totals(progress)
    assert found.to_dict() == totals.to_dict()
    assert (found.rows, found.next_trigger, found.live) == (200, 100, 99)
    assert {file.suffix for file in progress.iterdir()} == {".parquet"}


def test_records_go_by_age_too(tmp_path: Path) -> None:
    progress, totals = tmp_path / "progress", Totals()
    for trigger in range(10):
        totals.add([write(progress, trigger)], trigger, at=1.0)
        os.utime(record_files(progress)[trigger], (trigger, trigger))
    write(progress, 10)  # begun, and not in the snapshot: it stays, however old
    os.utime(record_files(progress)[10], (0, 0))
    write_snapshot(progress, totals, Retention.parse("6, 5 seconds"), now=12.0)
    assert [*record_files(progress)] == [7, 8, 9, 10]
    write_snapshot(progress, totals, Retention.parse("2, 1 day"), now=12.0)
    assert [*record_files(progress)] == [8, 9, 10]
    found = read_totals(progress)
    assert (found.rows, found.next_trigger) == (22, 11)


@pytest.mark.parametrize("given", ["ten", "", "1000; 7 days", "7 fortnights"])
def test_a_retention_that_is_neither_a_number_nor_a_time_is_rejected(given: str) -> None:
    with pytest.raises(UsageError, match=r"keep_progress is .* expected a number of triggers"):
        Retention.parse(given)


def test_a_trigger_without_rows_is_counted_and_changes_nothing(tmp_path: Path) -> None:
    """Kafka's reader of a topic without messages begins with one: no lane works in it."""
    write_records(None, [], str(tmp_path / "progress"), 0)  # type: ignore[arg-type]
    totals = read_totals(tmp_path / "progress")
    assert (totals.triggers, totals.next_trigger, totals.rows, totals.last) == (1, 1, 0, None)
