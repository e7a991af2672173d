"""Merges of replicas in a plan: normalise and why, the case, its stage, refusals, explain."""

from dataclasses import replace

import pyarrow as pa
import pytest
from test_plan_properties import KEYED_INSERTS, STRICT, passed_on, source, windowed
from test_plan_stages import RATES, SCHEMA, counted, filtered, ids, joined

from anabranch.errors import UsageError
from anabranch.model.properties import MergeCase, StreamProperties
from anabranch.operators.aggregate.functions import Aggregate, UserDefined
from anabranch.operators.aggregate.operator import AggregateOperator
from anabranch.operators.by_key.top_k import TopKOperator
from anabranch.operators.contract import Route
from anabranch.operators.merge.policy import Policy
from anabranch.operators.route import Routing
from anabranch.operators.runs.distinct import DistinctOperator
from anabranch.plan.explain import explain
from anabranch.plan.node import Node, Source, Step, nodes, with_names
from anabranch.plan.replicas import difference, merged, settled, why_normalise
from anabranch.plan.stages import placement, stages

NOTHING = StreamProperties()
KEYED = StreamProperties(keyed=True)
R1 = StreamProperties(insert_only=True, ordered=True, ties_in_same_order=True)
R2 = StreamProperties(insert_only=True, ordered=True, keyed=True)


def distinct(node: Node) -> Step:
    return Step("distinct", DistinctOperator(node.schema), (("input", node),), "distinct")


def top(node: Node, k: int) -> Step:
    operator = TopKOperator(node.schema, (), k, (("v", True),))
    return Step("top_k", operator, (("input", node),), f"first {k}")


def of(one: Node, two: Node, lanes: int = 1, **how: object) -> Step:
    """The settled merge of two replicas."""
    made = with_names(merged({"one": one, "two": two}, **how))  # type: ignore[arg-type]
    last = settled(made, lanes)  # type: ignore[arg-type]
    assert isinstance(last, Step)
    return last


CASES = [
    # what both sources promise, the plan, lanes, and the case
    (STRICT, windowed, 1, MergeCase.R0),
    (STRICT, windowed, 2, MergeCase.R3),
    (R1, windowed, 1, MergeCase.R1),
    (R2, windowed, 1, MergeCase.R2),
    (R1, windowed, 2, MergeCase.R4),
    (KEYED_INSERTS, windowed, 1, MergeCase.R3),
    (NOTHING, windowed, 1, MergeCase.R4),
    (NOTHING, distinct, 2, MergeCase.R3),
    (STRICT, lambda s: counted(s), 1, MergeCase.R3),  # noqa: PLW0108
    (NOTHING, lambda s: counted(s, "k"), 2, MergeCase.R3),
    (NOTHING, lambda s: top(s, 1), 1, MergeCase.R3),
    (STRICT, lambda s: top(s, 2), 1, MergeCase.R4),
    (STRICT, lambda s: passed_on(filtered(s)), 1, MergeCase.R3),
    (STRICT, lambda s: passed_on(filtered(s)), 2, MergeCase.R4),
    (STRICT, lambda s: joined(s, replace(source(STRICT, "x"), schema=RATES)), 1, MergeCase.R4),
]


@pytest.mark.parametrize(("known", "plan", "lanes", "case"), CASES)
def test_the_case_follows_from_what_the_plans_promise(known, plan, lanes, case) -> None:  # type: ignore[no-untyped-def]
    last = of(plan(source(known, "a")), plan(source(known, "b")), lanes)
    assert last.operator.case is case
    assert last.words == f"merge of replicas one, two by case {case.name}"


def test_the_case_is_that_of_the_replica_that_promises_least() -> None:
    last = of(windowed(source(STRICT, "a")), windowed(source(KEYED, "b")))
    assert last.operator.case is MergeCase.R3
    assert of(last, last, 1).operator.case is MergeCase.R3


def test_other_lanes_choose_again() -> None:
    """As a run that is continued may have others than a new one."""
    last = of(windowed(source(STRICT, "a")), windowed(source(STRICT, "b")), 2)
    assert settled(last, 1).operator.case is MergeCase.R0  # type: ignore[union-attr]
    assert settled(settled(last, 1), 2) is not last
    assert settled(settled(last, 1), 2).words == last.words


def test_a_merge_of_merges_follows_from_the_inner_ones() -> None:
    inner = merged({"a": source(STRICT, "a"), "b": source(STRICT, "b")})
    last = of(windowed(inner), windowed(source(STRICT, "c")))
    cases = [one.operator.case for one in nodes(last) if getattr(one, "id", "") == "merge"]
    assert cases
    assert set(cases) == {MergeCase.R0}


def test_one_plan_needs_no_normalise() -> None:
    one, two = (counted(source(NOTHING, name), "k") for name in "ab")
    assert why_normalise({"one": one, "two": two}) == ""
    kernel = replace(one, operator=replace(one.operator, final_at_start=True), id="other")
    assert difference(one, kernel) is None, "not the meaning"
    assert difference(one, one) is None


OTHER_PLANS = [
    (
        lambda s: counted(s, "k"),
        lambda s: counted(s, "v"),
        "'count by ('k',)' in 'one', 'count by ('v',)' in 'two'",
    ),
    (lambda s: s, windowed, "the source in 'one', 'window of 5' in 'two'"),
    (
        lambda s: counted(s, "k"),
        lambda s: counted(filtered(s), "k"),
        "the source in 'one', 'where v > 0' in 'two'",
    ),
    (
        lambda s: filtered(s),  # noqa: PLW0108
        lambda s: replace(filtered(s), change="another"),
        "in 'where v > 0'",
    ),
]


@pytest.mark.parametrize(("one", "two", "shown"), OTHER_PLANS)
def test_plans_that_differ_get_normalise_with_the_reason(one, two, shown) -> None:  # type: ignore[no-untyped-def]
    read = source(NOTHING)
    last = merged({"one": one(read), "two": two(read)})
    below = [node for _, node in last.reads]
    assert [node.operator.name for node in below if isinstance(node, Step)] == ["normalise"] * 2
    why = (
        f"the plans differ ({shown}): they may cut lifetimes differently, although they agree "
        "in every snapshot"
    )
    assert {node.why for node in below if isinstance(node, Step)} == {why}


def test_sources_of_other_columns_are_another_plan() -> None:
    one, two = source(NOTHING), replace(source(NOTHING, "rates"), schema=RATES)
    found = difference(one, two)
    assert found == ("a source of k: string, v: int64", "a source of name: string, rate: int64")


def test_normal_form_needs_no_normalise_whatever_is_below() -> None:
    read = source(NOTHING)
    last = merged({"one": distinct(read), "two": distinct(filtered(read))})
    assert [one.operator.name for _, one in last.reads] == ["distinct"] * 2  # type: ignore[union-attr]
    last = merged({"one": distinct(read), "two": windowed(read)})
    assert [one.operator.name for _, one in last.reads] == ["distinct", "normalise"]  # type: ignore[union-attr]


def test_results_that_depend_on_the_order_of_rows_are_rejected() -> None:
    def summed(node: Source, *, canonical: bool) -> Step:
        user = UserDefined(int, max, min, str, pa.string(), canonical)
        first = Aggregate("user", "v", "first", user=user)
        operator = AggregateOperator(SCHEMA, ("k",), (first,))
        return Step("aggregate", operator, (("input", node),), "first by k")

    read = source(NOTHING)
    with pytest.raises(
        UsageError,
        match=r"two runs of replica 'b' may differ: 'first' of step 'aggregate' may depend on "
        r"the order of the rows; declare ab.user_defined\(..., canonical=True\)",
    ):
        merged({"a": read, "b": windowed(summed(read, canonical=False))})
    assert merged({"a": summed(read, canonical=True), "b": summed(read, canonical=True)})


def test_a_case_or_policy_that_the_plans_do_not_permit_is_rejected() -> None:
    one, two = source(STRICT, "a"), windowed(source(NOTHING, "b"))
    with pytest.raises(
        UsageError,
        match=r"case R3 was asked for and needs keyed; the plan of replica 'two' does not "
        r"promise keyed",
    ):
        of(one, two, asked=MergeCase.R3)
    assert of(one, windowed(source(STRICT, "b")), asked=MergeCase.R4).operator.case is (
        MergeCase.R4
    )
    always = Policy.parse("adjusts=always")
    with pytest.raises(UsageError, match=r"case R4 has no adjusts=always; the case follows"):
        of(one, two, policy=always)
    last = of(one, source(STRICT, "b"), policy=always)
    assert last.operator.case is MergeCase.R3, "R0 has no such policy"
    assert "policy adjusts=always" in last.words
    last = of(one, source(STRICT, "b"), policy=Policy(remember=9))
    assert last.operator.case is MergeCase.R0, "it remembers no events"
    assert last.operator.inner.policy == Policy()


def test_a_merge_runs_where_its_replicas_are() -> None:
    one, two = (counted(source(NOTHING, name), "k") for name in "ab")
    last = of(one, two, 2)
    cut, routings = stages(last)
    assert [ids(stage) for stage in cut] == [["a", "aggregate", "b", "aggregate_2", "merge"]]
    assert set(routings.values()) == {Routing(Route.KEY, ("k",))}
    assert placement(last) == Routing(Route.KEY, ("k",))


def test_a_merge_of_streams_in_other_lanes_is_a_stage_of_its_own() -> None:
    one = counted(source(NOTHING, "a"), "k")
    two = counted(filtered(source(NOTHING, "b")), "k")
    last = of(one, two, 2)
    cut, _ = stages(last)
    assert ids(cut[-1])[-1] == "merge"
    assert {"normalise", "normalise_2"} <= {name for stage in cut for name in ids(stage)}


def test_ends_are_known_if_they_are_in_all_replicas_and_identities_are_unique() -> None:
    def final(node: Step) -> Step:
        return replace(node, final_at_start=True)

    one, two = (source(KEYED, name) for name in "ab")
    assert merged({"one": final(windowed(one)), "two": final(windowed(two))}).final_at_start
    assert not merged({"one": final(windowed(one)), "two": windowed(two)}).final_at_start
    free = replace(two, properties=NOTHING)
    assert not merged(
        {"one": final(windowed(one)), "two": final(windowed(free))}
    ).final_at_start
    assert of(final(windowed(one)), final(windowed(two))).operator.output_final_at_start


def test_explain_has_the_case_why_and_what_is_remembered() -> None:
    read = source(NOTHING)
    lines = explain(of(distinct(read), counted(read, "k", "v"), 2), 2, {}).splitlines()
    at = next(n for n, line in enumerate(lines) if line.startswith("  merge:"))
    assert lines[at + 2 : at + 6] == [
        "    case R3: every plan promises keyed (R2 needs insert_only and ordered too)",
        "    remembers an entry per event that may still change",
        "    events are final when the frontier has passed their ends",
        "    promises keyed; replicas of it merge by case R3",
    ]
    assert lines[at + 1].startswith(
        "    normalise goes before it: the plans differ ('distinct'"
    )
    assert "    goes before a merge of replicas that need it" in lines


def test_explain_has_why_a_case_is_not_cheaper() -> None:
    def reason(*known: StreamProperties, **how: object) -> str:
        one, two = (source(each, name) for each, name in zip(known, "ab", strict=True))
        text = explain(of(one, two, **how), 1, {})  # type: ignore[arg-type]
        return next(line.strip() for line in text.splitlines() if line.startswith("    case"))

    assert reason(STRICT, STRICT) == "case R0: every plan promises insert_only and " + (
        "strictly_increasing"
    )
    assert reason(KEYED, NOTHING) == (
        "case R4: the plan of 'two' does not promise keyed (R3 needs keyed too)"
    )
    assert reason(STRICT, STRICT, asked=MergeCase.R3).startswith(
        "case R3: it was asked for, and every plan permits it"
    )
    assert reason(STRICT, STRICT, policy=Policy.parse("shrink_only=true")).startswith(
        "case R3: a cheaper case does not have the policy"
    )


def test_streams_of_their_own_that_drop_late_rows_are_a_warning() -> None:
    one, two = (replace(source(NOTHING, name), may_drop=True) for name in ("east", "west"))
    text = explain(of(one, two), 1, {})
    assert "replicas of merge read streams of their own (east of 'one'; west of 'two')" in text
    assert "warning" not in explain(of(one, windowed(one)), 1, {})
    assert "warning" not in explain(of(source(NOTHING, "a"), source(NOTHING, "b")), 1, {})
