"""Late rows of streams with clocks: source, distance and bound, and what is forgotten."""

import pytest
from clocked_lanes import SCHEMA, ClockedLanes, Row

from anabranch.clocks.builders import disorder
from anabranch.clocks.clock import Clock
from anabranch.model.properties import MergeCase
from anabranch.operators.merge.merge import MergeOperator
from anabranch.operators.merge.policy import Policy

SECOND = 1_000_000


def late(lanes: ClockedLanes) -> list[tuple[str, str]]:
    """The name of each late row, and its reason."""
    found = []
    for row in lanes.runtime.rows:
        if row.channel == "late":
            assert row.batch is not None
            assert row.origin is not None
            names = row.batch.payload.column("name").to_pylist()
            found += list(zip(names, row.origin.column("reason").to_pylist(), strict=True))
    return sorted(found)


def merged(policy: str) -> MergeOperator:
    return MergeOperator(SCHEMA, MergeCase.R3, Policy.parse(policy))


def test_a_late_row_has_its_source_its_distances_and_the_bound() -> None:
    """Of two sources of a replica, one far ahead: the stable is that of the slower one."""
    lanes = ClockedLanes(Clock(disorder(5)), by=("__source",), replicas=("east",))
    lanes.trigger({"east": [Row(100, "a", "s1"), Row(50, "b", "s2")]}, 0)
    assert lanes.frontier == 45
    rows = [Row(40, "x", "s1"), Row(44, "y", "s2"), Row(60, "behind s1 alone", "s1")]
    lanes.trigger({"east": rows}, SECOND)
    unknown = "behind the output's frontier, and not known to the final output"
    assert late(lanes) == [
        ("x", f"{unknown}; source s1, 5 behind the frontier 45, "
              "55 behind its heartbeat 94, bound: given: less than 6 behind"),
        ("y", f"{unknown}; source s2, 1 behind the frontier 45, "
              "1 behind its heartbeat 44, bound: given: less than 6 behind"),
    ]  # fmt: skip
    assert lanes.bucket("late") == 2
    assert lanes.bucket("violation") == 0


@pytest.mark.parametrize("by", [(), ("__source",)])
def test_a_row_that_was_held_and_comes_too_late_has_them_as_well(by: tuple[str, ...]) -> None:
    """Too few copies have it when the frontier passes it."""
    operator = merged("gaps=true,inserts=quorum(1.0)")
    lanes = ClockedLanes(Clock(disorder(0)), by=by, operator=operator)
    source = "s" if by else None
    lanes.trigger({"east": [Row(1, "only", source)], "west": [Row(2, "b", source)]}, 0)
    rows = {name: [Row(9, "c", source)] for name in ("east", "west")}
    lanes.trigger(rows, SECOND)
    ((_, b), (name, reason)) = late(lanes)
    assert name == "only"
    named = "not known" if by else "east"
    assert f"; source {named}, 8 behind the frontier 9, " in reason
    assert reason.endswith("bound: given: less than 1 behind")
    assert f"source {'not known' if by else 'west'}, 7 behind" in b


def test_a_silent_copy_that_returns_is_known_up_to_remember() -> None:
    """State is bounded while it is silent; one that was never silent loses nothing."""
    clock = Clock(disorder(0), idle_after=60 * SECOND)
    lanes = ClockedLanes(clock, lifetime=1, operator=merged("gaps=true,remember=50"))
    t = 1_000 * SECOND
    lanes.trigger({"east": [Row(0)], "west": [Row(0)]}, t)
    for at in range(1, 301):
        t += 10 * SECOND
        lanes.trigger({"east": [Row(at)]}, t)
    assert lanes.frontier == 300
    lanes.restart()
    lanes.trigger({"west": [Row(at) for at in range(1, 301)]}, t + SECOND)
    # What ended before 250 is forgotten: the events that start from 1 to 248.
    assert lanes.bucket("late") == 248
    assert all(
        reason.startswith("further behind the output's frontier than `remember`")
        for _, reason in late(lanes)
    )
    assert lanes.bucket("absorbed") == 1 + 52
    assert [one.start for one in lanes.final] == list(range(299))
