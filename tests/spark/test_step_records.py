"""What a record shows of each step: its frontier over all lanes, and what holds it back."""

from typing import Any

import pytest

from anabranch.spark.progress import LaneRecord, Totals, TriggerRecord
from anabranch.spark.step_record import OperatorRecord, Shown, StepRecord, held_by


def operator(frontier: Shown, *reads: str, **how: Any) -> OperatorRecord:
    return OperatorRecord(operator="any", frontier=frontier, live=1, reads=reads, **how)


def holding(**steps: OperatorRecord) -> dict[str, list[str]]:
    frontiers = {name: one.frontier for name, one in steps.items()}
    return {name: held_by(name, steps, frontiers) for name in steps}


def test_figure_5_the_silent_source_holds_the_second_join_and_not_the_first() -> None:
    found = holding(
        S1=operator(8, inputs=("S1",)),
        S2=operator(9, inputs=("S2",)),
        S3=operator(None, inputs=("S3",)),
        O1=operator(8, "S1", "S2"),
        O2=operator(None, "O1", "S3"),
    )
    assert found == {"S1": ["S1"], "S2": ["S2"], "S3": ["S3"], "O1": ["S1"], "O2": ["S3"]}


def test_a_source_is_held_by_the_inputs_that_it_waits_for() -> None:
    union = operator(4, inputs=("west", "north"))
    assert holding(union=union)["union"] == ["north", "west"]
    ended = operator("forever", inputs=("west",))
    assert holding(union=ended, step=operator("forever", "union")) == {"union": [], "step": []}


@pytest.mark.parametrize(("frontier", "holder"), [(7, ["events"]), (3, ["session"])])
def test_a_step_that_withholds_its_stable_holds_what_is_above_it(
    frontier: int, holder: list[str]
) -> None:
    found = holding(
        events=operator(7),
        session=operator(frontier, "events", withholds=True),
        count=operator(frontier, "session"),
    )
    assert found["session"] == found["count"] == holder


def test_a_step_that_moves_times_is_held_by_what_it_reads() -> None:
    found = holding(
        a=operator(7), b=operator(5), later=operator(12, "a"), both=operator(5, "later", "b")
    )
    assert (found["later"], found["both"]) == (["a"], ["b"])


def test_all_that_are_equally_far_hold_a_step_once_each() -> None:
    found = holding(
        a=operator(5),
        b=operator(5),
        left=operator(5, "a", "b"),
        last=operator(5, "left", "a"),
    )
    assert found["last"] == ["a", "b"]


def test_a_merge_of_replicas_is_held_by_the_one_that_it_follows() -> None:
    found = holding(
        a=operator(5), b=operator(9), fast=operator(9, "b"), merge=operator(9, "a", "fast")
    )
    assert found["merge"] == ["b"]


def lane(number: int, stage: int, **steps: OperatorRecord) -> LaneRecord:
    return LaneRecord(
        lane=number, stage=stage, steps=1, replicas={}, output={}, operators=steps,
        frontier=None, live=0,
    )  # fmt: skip


def test_a_step_is_as_far_as_the_least_of_its_lanes_and_lane_0_describes_it() -> None:
    records = [
        lane(1, 1, last=operator(3, taken=1)),
        lane(0, 1, last=operator(5, "first", label=("first",), taken=2)),
        lane(0, 0, first=operator(5, label=["first"], inputs=["east"], made=4)),
        lane(1, 0, first=operator(6, made=3), final=operator(9, observes=True)),
    ]
    first, last = TriggerRecord.of(records, 0).steps
    assert first == StepRecord(
        step="first", operator="any", stage=0, frontier=5, live=2, taken=0, made=7,
        label=["first"], held_by=["east"],
    )  # fmt: skip
    assert (last.frontier, last.taken, last.held_by) == (3, 3, ["first"])
    totals = Totals()
    totals.add(records, 0)
    assert Totals.from_json(totals.to_json()).last == totals.last
    assert LaneRecord.from_json(records[2].to_json()) == records[2]
