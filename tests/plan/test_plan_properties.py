"""Properties through a plan: rules of nodes, lanes and shuffles."""

from dataclasses import replace

import pyarrow as pa
import pytest
from test_plan_stages import SCHEMA, counted, filtered

from anabranch.batch.schema import ElementSchema, TimeType
from anabranch.model.lifetimes import sliding
from anabranch.model.properties import MergeCase, StreamProperties, cheapest
from anabranch.operators.align import AlignOperator
from anabranch.operators.by_key.replaced_by import ReplacedByOperator
from anabranch.operators.contract import Route
from anabranch.operators.join.operator import JoinOperator
from anabranch.operators.lifetimes import AlterLifetimeOperator
from anabranch.operators.route import Routing
from anabranch.operators.runs.distinct import DistinctOperator
from anabranch.operators.union_of import UnionOfOperator
from anabranch.plan.explain import explain
from anabranch.plan.node import Native, Source, Step
from anabranch.plan.properties import properties, unordered
from anabranch.plan.stages import stages

STRICT = StreamProperties(insert_only=True, strictly_increasing=True)
KEYED_INSERTS = StreamProperties(insert_only=True, keyed=True)


def source(known: StreamProperties, name: str = "events") -> Source:
    return Source(name, None, SCHEMA, Routing(Route.IDENTITY), "merge", properties=known)


def windowed(node: Source | Step | Native) -> Step:
    operator = AlterLifetimeOperator(node.schema, sliding(5))
    return Step("window", operator, (("input", node),), "window of 5")


def selected(node: Source | Step, *, one_to_one: bool) -> Native:
    schema = ElementSchema(TimeType.BIGINT, pa.schema({"k": pa.string()}))
    return Native("select", node, "opaque", schema, "select k", one_to_one=one_to_one)


def passed_on(node: Source | Step | Native) -> Step:
    return Step("output", UnionOfOperator(node.schema), (("input", node),), "output")


def test_sources_state_theirs_and_order_stays_in_one_lane() -> None:
    last = windowed(source(STRICT))
    assert properties(last, 1) == {"events": STRICT, "window": STRICT}
    assert properties(last, 2) == {"events": KEYED_INSERTS, "window": KEYED_INSERTS}


def test_a_step_that_makes_order_makes_it_in_one_lane_alone() -> None:
    read = source(KEYED_INSERTS)
    last = Step("align", AlignOperator(SCHEMA), (("input", read),), "align")
    assert properties(last, 1)["align"].ordered
    assert properties(last, 2)["align"] == KEYED_INSERTS


@pytest.mark.parametrize("lanes", [1, 2])
def test_order_ends_at_what_spark_changes(lanes: int) -> None:
    kept = passed_on(filtered(source(STRICT)))
    assert properties(kept, lanes)["where"] == StreamProperties(
        insert_only=True, keyed=lanes == 1
    )
    shuffled = counted(counted(source(STRICT), "k"), "n_aggregate", name="again")
    assert not properties(shuffled, lanes)["again"].ordered


def test_a_shuffle_of_one_lane_keeps_order() -> None:
    """Its one lane sends its elements as it emits them: see `test_replica_laws`."""

    def replaced(read: Source) -> Step:
        return Step("rows", ReplacedByOperator(SCHEMA, ("k",)), (("input", read),), "rows")

    free, by_start = source(STRICT), Routing(Route.START)
    fixed = replace(free, routing=by_start, may_follow=False)
    for read, count in ((free, 1), (fixed, 2)):
        cut, _ = stages(replaced(read))
        assert len(cut) == count
        assert properties(replaced(read), 1)["rows"].strictly_increasing
        assert properties(replaced(read), 2)["rows"] == StreamProperties(keyed=True)
    join = JoinOperator(SCHEMA, SCHEMA, (("k", "k"), ("v", "v")))
    both = Step("join", join, (("left", fixed), ("right", fixed)), "join")
    assert properties(both, 1)["join"] == StreamProperties(insert_only=True)


@pytest.mark.parametrize("one_to_one", [True, False])
def test_a_select_keeps_identities_if_it_is_one_to_one(one_to_one: bool) -> None:
    last = passed_on(selected(source(KEYED_INSERTS), one_to_one=one_to_one))
    found = properties(last, 2)
    assert found["select"].keyed is one_to_one
    assert found["output"] == StreamProperties(insert_only=True, keyed=one_to_one)


def test_in_several_lanes_starts_are_not_unique_so_a_select_may_repeat_an_identity() -> None:
    """Each lane has unique starts; two lanes may have the same one."""
    last = passed_on(selected(source(STRICT), one_to_one=False))
    assert properties(last, 1)["select"].keyed
    assert not properties(last, 2)["select"].keyed


def test_explain_has_the_merge_case_of_each_step() -> None:
    read = source(StreamProperties(insert_only=True))
    distinct = Step("distinct", DistinctOperator(SCHEMA), (("input", read),), "distinct")
    lines = explain(distinct, 2, {}).splitlines()
    assert lines[1:3] == [
        "  events: merge, lanes by start and payload",
        "    promises insert_only; replicas of it merge by case R4",
    ]
    assert lines[-1] == "    promises keyed; replicas of it merge by case R3"


def test_unordered_keeps_what_does_not_depend_on_order() -> None:
    assert unordered(STRICT) == KEYED_INSERTS
    assert cheapest(unordered(STRICT)) is MergeCase.R3
