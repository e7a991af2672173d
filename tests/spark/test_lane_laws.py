"""Lanes, also other ones later, cases, cuts, retries, lost workers: always the same history.

No Spark here: `lanes_driver` plays its part, so that many faults can be tried.
"""

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given
from lanes_driver import Runtime, lane_spec

from anabranch.model import Adjust, History, Insert, MergeCase, Stable
from anabranch.model.history import replay
from anabranch.spark.lane.spec import Founder
from anabranch.spark.lane.state import WarmCopies
from anabranch.testing.asserts import assert_valid
from anabranch.testing.strategies import replicas

CASES = ["r0", "r1", "r2", "r3", "r4"]


def cut(data: st.DataObject, streams: list[list[Any]]) -> list[dict[str, list[Any]]]:
    """The streams as triggers, each with a piece of some of them."""
    triggers: list[dict[str, list[Any]]] = []
    left = {f"r{number}": list(stream) for number, stream in enumerate(streams)}
    while any(left.values()):
        one = {}
        for name, rest in left.items():
            size = len(rest) - data.draw(st.integers(0, len(rest)))  # shrinks to one trigger
            one[name], left[name] = rest[:size], rest[size:]
        triggers.append({name: part for name, part in one.items() if part})
    return [one for one in triggers if one]


def faults(data: st.DataObject, runtime: Runtime, parcels: list[Any]) -> None:
    """Attempts that Spark does not commit, and workers that are lost."""
    for _ in range(data.draw(st.integers(0, 2))):
        if data.draw(st.booleans()):
            runtime.attempt(data.draw(st.integers(0, runtime.spec.lanes - 1)), parcels)
        else:
            runtime.warm = WarmCopies(data.draw(st.integers(0, 3)))


@pytest.mark.parametrize("case", [*CASES, "auto"])
@given(data=st.data())
def test_any_lanes_any_cut_any_fault_same_history(data: st.DataObject, case: str) -> None:
    shape = MergeCase(case) if case != "auto" else MergeCase.R4
    streams = data.draw(replicas(case=shape))
    history = History.of(streams[0])
    founders = tuple(Founder(f"r{number}") for number in range(len(streams)))
    lanes = data.draw(st.integers(1, 3))
    final = data.draw(st.booleans())
    runtime = Runtime(lane_spec(case, lanes, founders=founders, final=final))
    for trigger in cut(data, streams):
        parcels = runtime.parcels(trigger)
        faults(data, runtime, parcels)
        runtime.commit(parcels)
        assert_valid(runtime.output())
        assert runtime.totals.adds_up
        if data.draw(st.booleans()):
            runtime.redistribute(data.draw(st.integers(1, 3)))
    assert History.of(runtime.output()) == history
    if final:
        assert History.from_events(runtime.final()) == history


def test_a_duplicate_in_one_lane_is_a_bag_there_and_the_history_is_right_in_all() -> None:
    runtime = Runtime(lane_spec("auto", 2))
    names = "abcdefgh"
    first = [Insert(name, 1, 9) for name in names]
    runtime.commit(runtime.parcels({"x": first, "y": first}))
    again = [Insert("a", 1, 7), Adjust("b", 1, 9, 5), Stable(float("inf"))]
    runtime.commit(runtime.parcels({"x": again}))
    kinds = {record.lane: record.fact("case") for record in runtime.records[-2:]}
    assert sorted(kinds.values()) == ["r4", "r4"]
    expected = replay([*first, *again]).history
    assert History.of(runtime.output()) == expected


def test_a_replica_that_leaves_and_returns_in_one_trigger_takes_three_steps() -> None:
    runtime = Runtime(lane_spec("r3", 2))
    runtime.commit(runtime.parcels({"x": [Insert("a", 1, 9), Insert("b", 2, 8)]}))
    old = runtime.parcels({"x": [Insert("c", 3, 9), Stable(2)]})
    leave = runtime.control("detach", "x", log=5)
    new = runtime.parcels({"x": [Insert("d", 4, 9), Stable(5)]}, attachment=2, log=6)
    runtime.commit([*old, *leave, *new])
    assert {record.steps for record in runtime.records[-2:]} == {4}
    assert_valid(runtime.output())
    assert runtime.output()[-1] == Stable(5)
    assert runtime.totals.adds_up


def test_what_a_replica_sends_after_it_left_is_kept_as_violations() -> None:
    runtime = Runtime(lane_spec("r3", 2))
    runtime.commit(runtime.parcels({"x": [Insert("a", 1, 9)], "y": []}))
    runtime.commit([*runtime.control("detach", "x"), *runtime.parcels({"y": []})])
    runtime.commit(runtime.parcels({"x": [Insert("z", 2, 9), Stable(4)]}))
    assert runtime.totals.replicas["x"].buckets["violation"] == 2
    assert runtime.totals.adds_up
    assert runtime.totals.frontier is None


def test_a_guarantee_that_is_declared_later_lets_a_replica_join_in_all_lanes() -> None:
    runtime = Runtime(lane_spec("r3", 3))
    runtime.commit(runtime.parcels({"x": [Insert("a", 1, 9), Stable(6)]}, guarantee=2**63 - 1))
    assert runtime.totals.frontier is None
    runtime.commit(runtime.control("attach", "x"))
    assert {record.frontier for record in runtime.records[-3:]} == {6}
    assert runtime.output() == [Insert("a", 1, 9), Stable(6)]
