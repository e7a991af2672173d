"""Records on disk: few files however long a run is, and totals that a restart finds again."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from anabranch.spark.progress import LaneRecord, OperatorRecord, ReplicaCounts, Totals
from anabranch.spark.write import records
from anabranch.spark.write.records import (
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


def test_totals_are_those_of_all_triggers_and_old_records_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "KEPT", 20)
    progress, totals = tmp_path / "progress", Totals()
    for trigger in range(100):
        if trigger % 10 == 0:
            write_snapshot(progress, totals)
        one = write(progress, trigger)
        totals.add([one], trigger, at=1.0)
        assert len(record_files(progress)) <= 20 + 10
    assert totals.to_json() == Totals.from_json(totals.to_json()).to_json()
    found = read_totals(progress)
    assert found.to_dict() == totals.to_dict()
    assert (found.rows, found.next_trigger, found.live) == (200, 100, 99)
    assert {file.suffix for file in progress.iterdir()} == {".parquet"}


def test_a_trigger_without_rows_is_counted_and_changes_nothing(tmp_path: Path) -> None:
    """Kafka's reader of a topic without messages begins with one: no lane works in it."""
    write_records(None, [], str(tmp_path / "progress"), 0)  # type: ignore[arg-type]
    totals = read_totals(tmp_path / "progress")
    assert (totals.triggers, totals.next_trigger, totals.rows, totals.last) == (1, 1, 0, None)
