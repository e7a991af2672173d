"""Progress records: one JSON form, one version, and every field documented."""

import json
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from anabranch.errors import StateError
from anabranch.spark.clock_record import ClockRecord
from anabranch.spark.lane_share import LaneShare
from anabranch.spark.progress import (
    BUCKETS,
    LaneRecord,
    ReplicaCounts,
    ReplicaRecord,
    Totals,
    TriggerRecord,
)
from anabranch.spark.step_record import OperatorRecord, StepRecord

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "progress.md"
TIMES = st.one_of(st.none(), st.just("forever"), st.integers(-(2**62), 2**62))
COUNTS = st.integers(0, 2**40)
REPLICAS = st.builds(
    ReplicaCounts,
    **dict.fromkeys(("rows", *BUCKETS), COUNTS),
    frontier=TIMES,
    joined=st.booleans(),
    attached=st.booleans(),
)
RECORDS = st.builds(
    LaneRecord,
    lane=st.integers(0, 9),
    stage=st.integers(0, 2),
    steps=COUNTS,
    replicas=st.dictionaries(st.text(max_size=3), REPLICAS, max_size=3),
    output=st.dictionaries(st.sampled_from(["elements", "late"]), COUNTS),
    operators=st.dictionaries(
        st.sampled_from(["merge", "normalise"]),
        st.builds(
            OperatorRecord,
            operator=st.text(max_size=3),
            frontier=TIMES,
            live=COUNTS,
            taken=COUNTS,
            made=COUNTS,
        ),
    ),
    frontier=TIMES,
    live=COUNTS,
    taken=COUNTS,
    leader=st.none(),
    violators=st.lists(st.text(max_size=3), max_size=2).map(tuple),
    version=st.just(1),
)


@given(RECORDS)
def test_a_record_is_what_its_text_has(record: LaneRecord) -> None:
    assert LaneRecord.from_json(record.to_json()) == record


@given(st.lists(RECORDS, max_size=4))
def test_sums_count_every_row_of_every_lane_once(records: list[LaneRecord]) -> None:
    made = TriggerRecord.of(records, 3)
    rows = [one.rows for record in records for one in record.replicas.values()]
    assert made.rows == sum(rows) == sum(one.rows for one in made.replicas.values())
    assert sum(made.output.values()) == sum(sum(one.output.values()) for one in records)
    totals = Totals()
    totals.add(records, 3)
    assert (totals.rows, totals.frontier) == (made.rows, made.frontier)
    assert json.loads(json.dumps(made.to_dict())) == made.to_dict()


@given(st.lists(RECORDS, max_size=4))
def test_shares_of_lanes_add_up_to_one_in_each_stage(records: list[LaneRecord]) -> None:
    made = TriggerRecord.of(records, 3)
    assert sum(one.rows for one in made.lanes) == sum(one.taken for one in records)
    assert sum(one.live for one in made.lanes) == sum(one.remembered for one in records)
    for stage in {one.stage for one in made.lanes}:
        found = [one.share for one in made.lanes if one.stage == stage]
        assert found.count(None) == len(found) or abs(sum(found) - 1) < 0.01
    totals = Totals()
    totals.add(records, 3)
    assert Totals.from_json(totals.to_json()).last == totals.last


def test_the_frontier_is_the_least_of_the_last_stage() -> None:
    def record(stage: int, lane: int, frontier: Any) -> LaneRecord:
        return LaneRecord(
            lane=lane, stage=stage, steps=1, replicas={}, output={}, operators={},
            frontier=frontier, live=0,
        )  # fmt: skip

    assert TriggerRecord.of([record(0, 0, 1), record(0, 1, 2)], 0).frontier == 1
    last = [record(1, 0, "forever"), record(1, 1, 7)]
    assert TriggerRecord.of([record(0, 0, 1), *last], 0).frontier == 7
    assert TriggerRecord.of([*last, record(1, 2, None)], 0).frontier is None


def test_another_version_is_refused_by_name() -> None:
    text = json.dumps({"version": 2})
    with pytest.raises(StateError, match=r"has version 2, .* reads version 1;"):
        LaneRecord.from_json(text)


def documented(heading: str) -> set[str]:
    """The fields in the first column of the tables of a section."""
    section = PAGE.read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    cells = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    return {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}


def names(*records: type) -> set[str]:
    return {field.name for record in records for field in fields(record)}


def test_every_field_is_documented_and_no_other() -> None:
    of_spark = {"run", "timestamp", "duration_ms"}
    assert (
        documented("A trigger")
        == names(TriggerRecord, ReplicaRecord, LaneShare, StepRecord) | of_spark
    )
    assert documented("Clocks") == names(ClockRecord)
    assert documented("A lane") == names(LaneRecord)
