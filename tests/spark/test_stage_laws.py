"""Stages one after the other: any lanes, any cut into triggers, any fault, one history.

No Spark here: `lanes_driver` plays its part.  The chain is merge, then normalise routed by
payload, so that elements of one lane go to several lanes of the next stage and the reverse.
"""

from collections.abc import Sequence
from dataclasses import replace

import hypothesis.strategies as st
import pytest
from hypothesis import given
from lanes_driver import SCHEMA, Runtime, lane_spec
from test_lane_laws import cut, faults

from anabranch.batch.batch import Hashes
from anabranch.batch.columns import Column
from anabranch.batch.hashing import hash_columns
from anabranch.errors import StateError, UsageError
from anabranch.model import History, Insert, MergeCase, Stable
from anabranch.model.normal_form import normal_form
from anabranch.operators.align import AlignOperator
from anabranch.operators.pipeline import PipelineStep, with_final
from anabranch.operators.runs.normalise import NormaliseOperator
from anabranch.operators.state import groups, pieces
from anabranch.spark.lane.spec import Founder, LaneSpec, staged
from anabranch.spark.progress import TriggerRecord
from anabranch.spark.write.reports import require_one_frontier
from anabranch.testing.asserts import assert_valid
from anabranch.testing.strategies import replicas

NORMALISE = PipelineStep("normalise", NormaliseOperator(SCHEMA))


def chain(
    lanes: tuple[int, int], *, final: bool = False, replicas: int = 1
) -> tuple[LaneSpec, ...]:
    founders = tuple(Founder(f"r{number}") for number in range(replicas))
    first = lane_spec("r4", lanes[0], founders=founders)
    pipeline = with_final((NORMALISE,)) if final else (NORMALISE,)
    made = staged(first, (pipeline, lanes[1]))
    return (made[0], replace(made[1], final=final))


@given(data=st.data())
def test_any_lanes_any_cut_any_fault_same_history(data: st.DataObject) -> None:
    streams = data.draw(replicas(case=MergeCase.R4))
    truth = normal_form(History.of(streams[0]))
    lanes = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 3))
    final = data.draw(st.booleans())
    first, second = map(Runtime, chain(lanes, final=final, replicas=len(streams)))
    for trigger in cut(data, streams):
        parcels = first.parcels(trigger)
        faults(data, first, parcels)
        sent = first.commit(parcels)
        faults(data, second, sent)
        second.commit(sent)
        assert_valid(second.output())
        assert first.totals.adds_up
        assert not first.output()
        assert second.totals.frontier == first.totals.frontier
    assert History.of(second.output()) == truth
    if final:
        assert History.from_events(second.final()) == truth


@given(data=st.data())
def test_align_behind_any_lanes_has_one_order(data: st.DataObject) -> None:
    """Any lanes, any cut, any fault: one lane releases the events by their starts."""
    streams = data.draw(replicas(case=MergeCase.R3))
    lanes = data.draw(st.integers(1, 3))
    founders = tuple(Founder(f"r{number}") for number in range(len(streams)))
    first = replace(lane_spec("r3", lanes, founders=founders), final=True)
    align = with_final((PipelineStep("align", AlignOperator(SCHEMA)),))
    if lanes == 1 and data.draw(st.booleans()):
        stages = [Runtime(replace(first, pipeline=(*first.pipeline, *align)))]
    else:
        stages = list(map(Runtime, staged(first, (align, 1))))
    for trigger in cut(data, streams):
        parcels = stages[0].parcels(trigger)
        for stage in stages:
            faults(data, stage, parcels)
            parcels = stage.commit(parcels)
        output = stages[-1].output()
        assert_valid(output)
        starts = [one.start for one in output if isinstance(one, Insert)]
        assert starts == sorted(starts)
        assert stages[-1].totals.frontier == stages[0].totals.frontier
    assert stages[0].totals.adds_up
    truth = History.of(streams[0])
    assert History.of(output) == truth
    assert History.from_events(stages[-1].final()) == truth


def test_one_lane_may_host_the_whole_chain() -> None:
    """Two steps in one pipeline, each with its own prefix in the store."""
    spec = lane_spec("r3", 1)
    runtime = Runtime(
        replace(spec, pipeline=with_final((*spec.pipeline, NORMALISE)), final=True)
    )
    runtime.commit(runtime.parcels({"x": [Insert("a", 1, 5), Insert("b", 2, 4)]}))
    stored = {name for lane in runtime.stores for (name,) in lane}
    assert stored == {"header", "index", "bundle/0"}
    runtime.warm = type(runtime.warm)()  # the next trigger reads the store
    runtime.commit(runtime.parcels({"x": [Insert("a", 5, 9), Stable(float("inf"))]}))
    expected = History.from_events([Insert("a", 1, 9).event, Insert("b", 2, 4).event])
    assert History.of(runtime.output()) == expected
    assert History.from_events(runtime.final()) == expected
    operators = runtime.records[-1].operators
    assert [one.operator for one in operators.values()][:2] == ["merge", "normalise"]
    assert list(operators)[:2] == ["merge", "normalise"]


def test_every_lane_sends_its_frontier_in_every_trigger() -> None:
    first, second = map(Runtime, chain((3, 2)))
    sent = first.commit(first.parcels({"r0": [Stable(4)]}))
    assert [(one.lane, one.part, one.frontier) for one in sent] == [
        (lane, part, 4) for part in range(3) for lane in range(2)
    ]
    assert all(one.batch is None for one in sent)
    second.commit(sent)
    assert second.output() == [Stable(4)]
    second.commit(first.commit(first.parcels({"r0": []})))
    assert second.output() == [Stable(4)]


def test_the_frontier_of_a_stage_is_the_least_of_its_lanes() -> None:
    first, second = map(Runtime, chain((2, 1)))
    sent = first.commit(first.parcels({"r0": [Insert("a", 1, 9), Stable(4)]}))
    behind = [replace(one, frontier=3) if one.part == 1 else one for one in sent]
    second.commit(behind)
    assert second.output() == [Insert("a", 1, 9), Stable(3)]
    second.commit([replace(one, batch=None, places=None) for one in sent])
    assert second.output()[-1] == Stable(4)


def test_a_lane_that_sent_nothing_is_noticed() -> None:
    first, second = map(Runtime, chain((2, 1)))
    sent = first.commit(first.parcels({"r0": [Stable(4)]}))
    with pytest.raises(
        StateError, match=r"2 lanes of the stage before .* got parcels of \[0\]"
    ):
        second.commit([one for one in sent if one.part == 0])


@pytest.mark.parametrize("lanes", [(1, 1), (2, 1), (1, 2), (2, 2)])
def test_a_stage_of_several_lanes_gets_the_hashes_that_routed(
    lanes: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed = []

    def counted(columns: Sequence[Column], count: int) -> Hashes:
        hashed.append(count)
        return hash_columns(columns, count)

    first, second = map(Runtime, chain(lanes))
    parcels = first.parcels({"r0": [Insert("a", 1, 9), Insert("b", 2, 9), Stable(4)]})
    monkeypatch.setattr(pieces, "hash_names", counted)
    monkeypatch.setattr(groups, "hash_columns", counted)
    sent = first.commit(parcels)
    assert bool(hashed) == (lanes[0] == 1), "only without packers that hash"
    hashed.clear()
    second.commit(sent)
    assert bool(hashed) == (lanes[1] == 1)
    expected = History.from_events([Insert("a", 1, 9).event, Insert("b", 2, 9).event])
    assert History.of(second.output()) == expected


def test_the_records_of_all_stages_are_one() -> None:
    first, second = map(Runtime, chain((2, 2)))
    second.commit(first.commit(first.parcels({"r0": [Insert("a", 1, 9), Stable(4)]})))
    record = TriggerRecord.of([*second.records, *first.records], 0)
    assert record.rows == 2
    assert list(record.replicas) == ["r0"]
    assert (record.frontier, record.live, record.leader) == (4, 1, "r0")
    assert record.output["elements"] == 2
    assert [(one.stage, one.lane) for one in record.lanes] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    for stage in (record.lanes[:2], record.lanes[2:]):
        assert sum(one.rows for one in stage) == 1
        assert sorted(one.share for one in stage) == [0, 1]
    assert [one.live for one in record.lanes] == [one.rows for one in record.lanes]


def test_lanes_of_the_last_stage_that_differ_are_refused() -> None:
    first, second = map(Runtime, chain((2, 2)))
    second.commit(first.commit(first.parcels({"r0": [Insert("a", 1, 9), Stable(4)]})))
    records = [*first.records, *second.records]
    require_one_frontier([replace(records[0], frontier=3), *records[1:]])
    with pytest.raises(StateError, match=r"different frontiers, \{0: 4, 1: 3\}"):
        require_one_frontier([*records[:-1], replace(records[-1], frontier=3)])


def test_steps_of_one_run_have_ids_of_their_own() -> None:
    with pytest.raises(UsageError, match=r"\['merge', 'merge'\]; expected"):
        staged(lane_spec(), ((replace(NORMALISE, id="merge"),), 2))
    with pytest.raises(UsageError, match="has no '/'"):
        staged(lane_spec(), ((replace(NORMALISE, id="a/b"),), 2))
