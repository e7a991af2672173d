"""Replicas of queries in lanes: any order of arrival, any triggers, other plans, one history.

No Spark here: `plan_lanes` plays its part.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plan_lanes import PlanRun, source, where
from test_lane_laws import cut

from anabranch.batch.schema import ElementSchema, TimeType
from anabranch.errors import StateError
from anabranch.model import (
    FOREVER,
    Element,
    Event,
    History,
    MergeCase,
    Stable,
    StreamProperties,
    parse,
)
from anabranch.model.lifetimes import GridWindows, sliding
from anabranch.model.normal_form import normal_form
from anabranch.model.notation import show_elements
from anabranch.model.properties import PROPERTIES, cheapest, observe, shared
from anabranch.operators.aggregate.functions import Aggregate
from anabranch.operators.aggregate.operator import AggregateOperator
from anabranch.operators.by_key.replaced_by import ReplacedByOperator
from anabranch.operators.by_key.top_k import TopKOperator
from anabranch.operators.cleanse import CleanseOperator
from anabranch.operators.grid_windows import GridWindowOperator
from anabranch.operators.join.operator import JoinOperator
from anabranch.operators.lifetimes import AlterLifetimeOperator
from anabranch.operators.merge.merge import MergeOperator
from anabranch.operators.runs.distinct import DistinctOperator
from anabranch.operators.runs.normalise import NormaliseOperator
from anabranch.operators.union_of import UnionOfOperator
from anabranch.plan.node import Native, Node, Source, Step
from anabranch.plan.replicas import merged
from anabranch.testing.asserts import assert_valid
from anabranch.testing.strategies import histories, replicas

SCHEMA = ElementSchema(TimeType.BIGINT, pa.schema({"k": pa.string()}))


def step(name: str, operator: Any, *reads: Node, final_at_start: bool = False) -> Step:
    ports = ("left", "right") if len(reads) == 2 else ("input",)
    return Step(name, operator, tuple(zip(ports, reads, strict=True)), name, final_at_start)


def windowed(node: Node) -> Step:
    return step("window", AlterLifetimeOperator(node.schema, sliding(5)), node)


def counted(node: Node, *keys: str, name: str = "n") -> Step:
    count = Aggregate("count", None, name)
    return step(f"count by {keys}", AggregateOperator(node.schema, keys, (count,)), node)


def distinct(node: Node) -> Step:
    return step("distinct", DistinctOperator(node.schema), node)


def normalised(node: Node) -> Step:
    return step("normalise", NormaliseOperator(node.schema), node)


def top(node: Node, k: int) -> Step:
    return step(f"top {k}", TopKOperator(node.schema, (), k, (("k", True),)), node)


def in_windows(node: Node) -> Step:
    operator = GridWindowOperator(node.schema, GridWindows(4, 2))
    return step("windows", operator, node, final_at_start=True)


def joined(left: Node, right: Node, on: tuple[str, str], **how: Any) -> Step:
    made = step("join", JoinOperator(left.schema, right.schema, (on,), **how), left, right)
    return replace(made, words=f"inner join on {on[0]} = {on[1]}")


def is_not_c(one: Element) -> bool:
    payload = () if isinstance(one, Stable) else one.payload
    return (payload[0] if isinstance(payload, tuple) else payload) != "c"


def kept(node: Node) -> Node:
    return where(node, is_not_c, "k <> 'c'")


def passed_on(node: Node) -> Step:
    return step("output", UnionOfOperator(node.schema), node)


PLANS: dict[str, Callable[[Node], Node]] = {
    "nothing": lambda s: s,
    "sliding windows": windowed,
    "counts": lambda s: counted(s, "k"),
    "one count": counted,
    "counts of a filter": lambda s: counted(kept(s), "k"),
    "windows, counted": lambda s: replace(
        counted(in_windows(s), "k", "window"), final_at_start=True
    ),
    "counts of counts": lambda s: counted(counted(s, "k"), "n", name="m"),
    "distinct": distinct,
    "first two": lambda s: top(s, 2),
    "rows by key": lambda s: step("rows", ReplacedByOperator(SCHEMA, ("k",)), s),
    "filtered last": lambda s: kept(distinct(s)),
}


def run_alone(
    plan: Callable[..., Node],
    *streams: Sequence[Element],
    schemas: Sequence[ElementSchema] = (SCHEMA,),
) -> History:
    """The history of a plan that gets everything at once."""
    named = [source(f"s{at}", schema) for at, schema in enumerate(schemas)]
    node = plan(*named)
    run = PlanRun(passed_on(node) if isinstance(node, Native) else node)
    run.push({one.id: stream for one, stream in zip(named, streams, strict=True)})
    assert_valid(run.output)
    return History.of(run.output)


def run_merged(
    data: st.DataObject, run: PlanRun, streams: Mapping[str, Sequence[Element]]
) -> None:
    """The plan on these streams of its sources, in triggers of any size."""
    named = dict(zip(streams, (f"r{number}" for number in range(len(streams))), strict=True))
    for trigger in cut(data, list(map(list, streams.values()))):
        run.push({name: trigger[key] for name, key in named.items() if key in trigger})
        assert_valid(run.output)
    assert run.conflicts == 0
    if run.final:
        assert History.from_events(one.event for one in run.finals) == History.of(run.output)
    require_promises(run)


def require_promises(run: PlanRun) -> None:
    """What reaches the merge has the properties from which its case follows."""
    merge = run.last
    assert isinstance(merge, Step)
    promised = shared(run.promised[one.id] for _, one in merge.reads)
    assert merge.operator.case is cheapest(promised)
    for ports in run.reads.values():
        seen = observe(list(ports.values()))
        broken = [n for n in PROPERTIES if getattr(promised, n) and not getattr(seen, n)]
        assert not broken, (broken, ports)


def normalising(merge: Step) -> list[str]:
    """The replicas before which normalise was put in."""
    return [name for name, one in merge.reads if isinstance(one, Step) and one.why]


@pytest.mark.parametrize("name", PLANS)
@given(data=st.data())
def test_two_replicas_of_one_plan_have_its_history(name: str, data: st.DataObject) -> None:
    """Other orders of arrival, provisional ends and stables; triggers of other sizes."""
    plan, lanes = PLANS[name], data.draw(st.integers(1, 2))
    streams = data.draw(replicas(case=MergeCase.R4, min_inputs=2, max_inputs=2))
    alone = run_alone(plan, streams[0])
    assert run_alone(plan, streams[1]) == alone
    merge = merged({f"r{at}": plan(source(f"s{at}", SCHEMA)) for at in range(2)})
    assert normalising(merge) == []
    run = PlanRun(merge, lanes, final=True)
    run_merged(data, run, {f"s{at}": one for at, one in enumerate(streams)})
    assert History.of(run.output) == alone
    assert run.frontier == FOREVER


VALUES = st.tuples(st.sampled_from("ab"), st.sampled_from([0.1, 3.0, 1e17, -1e17, 0.2]))
SUMMED = ElementSchema(TimeType.BIGINT, pa.schema({"k": pa.string(), "v": pa.float64()}))


def summed(node: Node) -> Step:
    functions = (Aggregate("sum", "v", "total"), Aggregate("avg", "v", "mean"))
    return step("sums", AggregateOperator(node.schema, ("k",), functions), node)


@given(data=st.data())
def test_sums_of_floats_are_bit_equal_in_all_replicas(data: st.DataObject) -> None:
    some = histories(case=MergeCase.R4, payloads=VALUES)
    how: dict[str, Any] = {"history": some, "payloads": VALUES, "min_inputs": 2}
    streams = data.draw(replicas(case=MergeCase.R4, max_inputs=2, **how))
    alone = [run_alone(summed, one, schemas=(SUMMED,)) for one in streams]
    assert alone[0] == alone[1]
    run = PlanRun(merged({f"r{at}": summed(source(f"s{at}", SUMMED)) for at in range(2)}))
    run_merged(data, run, {f"s{at}": one for at, one in enumerate(streams)})
    assert History.of(run.output) == alone[0]


OTHERS: dict[str, tuple[Callable[[Node], Node], Callable[[Node], Node], list[str]]] = {
    # two plans with the same snapshots, and before which of them normalise is put in
    "filtered before or after windows": (
        lambda s: kept(windowed(s)),
        lambda s: windowed(kept(s)),
        ["r0", "r1"],
    ),
    "counted before or after the filter": (
        lambda s: counted(kept(s), "k"),
        lambda s: kept(counted(s, "k")),
        ["r0", "r1"],
    ),
    "fragments and runs": (lambda s: s, normalised, ["r0"]),
    "two that are in normal form": (distinct, lambda s: distinct(normalised(s)), []),
}


@pytest.mark.parametrize("name", OTHERS)
@given(data=st.data())
def test_two_plans_with_the_same_snapshots_have_one_history(
    name: str, data: st.DataObject
) -> None:
    """Erratum X1: they need not have the same events."""
    one, other, before = OTHERS[name]
    streams = data.draw(replicas(case=MergeCase.R4, min_inputs=2, max_inputs=2))
    expected = normal_form(run_alone(one, streams[0]))
    read = [source(f"s{at}", SCHEMA) for at in range(2)]
    shared_one = data.draw(st.booleans())
    merge = merged({"r0": one(read[0]), "r1": other(read[0 if shared_one else 1])})
    assert normalising(merge) == before
    run = PlanRun(merge, data.draw(st.integers(1, 2)), final=True)
    run_merged(data, run, {f"s{at}": s for at, s in enumerate(streams[: 2 - shared_one])})
    assert History.of(run.output) == expected


def of_two_columns(*names: str) -> ElementSchema:
    return ElementSchema(TimeType.BIGINT, pa.schema(dict.fromkeys(names, pa.string())))


SCHEMAS = [of_two_columns("k", "x"), of_two_columns("i", "y"), of_two_columns("j", "z")]
ROWS = st.tuples(st.sampled_from("ab"), st.sampled_from("cd"))


def from_the_left(a: Node, b: Node, c: Node) -> Node:
    return joined(joined(a, b, ("k", "i")), c, ("k", "j"))


def from_the_right(a: Node, b: Node, c: Node) -> Node:
    return joined(a, joined(b, c, ("i", "j")), ("k", "i"))


@given(data=st.data())
def test_other_join_orders_have_one_history(data: st.DataObject) -> None:
    some = histories(case=MergeCase.R4, max_events=3, max_time=8, payloads=ROWS)
    how: dict[str, Any] = {"history": some, "payloads": ROWS, "max_inputs": 1}
    streams = {f"s{at}": data.draw(replicas(case=MergeCase.R4, **how))[0] for at in range(3)}
    read = [source(f"s{at}", schema) for at, schema in enumerate(SCHEMAS)]
    merge = merged({"left": from_the_left(*read), "right": from_the_right(*read)})
    assert normalising(merge) == ["left", "right"]
    run = PlanRun(merge, data.draw(st.integers(1, 2)), final=True)
    run_merged(data, run, streams)
    alone = run_alone(from_the_left, *streams.values(), schemas=SCHEMAS)
    assert History.of(run.output) == normal_form(alone)


def cleansed(node: Node) -> Step:
    return step("cleanse", CleanseOperator(node.schema), node)


IV_G = [
    # the example, what sources publish, the plan, lanes, and the case that follows
    ("1, strictly increasing", MergeCase.R0, PLANS["nothing"], 1, MergeCase.R0),
    ("1, ties in one order", MergeCase.R1, PLANS["nothing"], 1, MergeCase.R1),
    ("1, ordered and keyed", MergeCase.R2, PLANS["nothing"], 1, MergeCase.R2),
    ("1, keyed", MergeCase.R3, PLANS["nothing"], 1, MergeCase.R3),
    ("1, nothing", MergeCase.R4, PLANS["nothing"], 1, MergeCase.R4),
    ("1, windows keep it", MergeCase.R0, windowed, 1, MergeCase.R0),
    ("1, lanes have no order", MergeCase.R0, windowed, 2, MergeCase.R3),
    ("2, cleansed, with L13", MergeCase.R4, cleansed, 1, MergeCase.R1),
    ("2, cleansed, keyed", MergeCase.R3, cleansed, 1, MergeCase.R1),
    ("3, ours answers at once", MergeCase.R0, lambda s: counted(windowed(s)), 1, MergeCase.R3),
    ("4, ours is corrected", MergeCase.R0, lambda s: top(windowed(s), 2), 1, MergeCase.R4),
    ("4, the first alone", MergeCase.R0, lambda s: top(windowed(s), 1), 1, MergeCase.R3),
    ("5, with X3", MergeCase.R0, lambda s: counted(windowed(s), "k"), 1, MergeCase.R3),
    ("6, disordered", MergeCase.R4, lambda s: counted(windowed(s), "k"), 2, MergeCase.R3),
]
PUBLISHED = {
    MergeCase.R0: StreamProperties(insert_only=True, strictly_increasing=True),
    MergeCase.R1: StreamProperties(insert_only=True, ordered=True, ties_in_same_order=True),
    MergeCase.R2: StreamProperties(insert_only=True, ordered=True, keyed=True),
    MergeCase.R3: StreamProperties(keyed=True),
    MergeCase.R4: StreamProperties(),
}


def published(name: str, case: MergeCase) -> Source:
    """A stream that is read in its order: by a merge of this case, of one copy."""
    return source(name, SCHEMA, PUBLISHED[case], MergeOperator(SCHEMA, case))


@pytest.mark.parametrize(
    ("publishes", "plan", "lanes", "case"),
    [one[1:] for one in IV_G],
    ids=[one[0] for one in IV_G],
)
@given(data=st.data())
def test_lmerge_iv_g_the_case_follows_from_the_plan(
    publishes: MergeCase,
    plan: Callable[[Node], Node],
    lanes: int,
    case: MergeCase,
    data: st.DataObject,
) -> None:
    """And what reaches the merge is of that case: `require_promises`."""
    streams = data.draw(replicas(case=publishes, min_inputs=2, max_inputs=2))
    merge = merged({f"r{at}": plan(published(f"s{at}", publishes)) for at in range(2)})
    run = PlanRun(merge, lanes, final=True)
    assert isinstance(run.last, Step)
    assert run.last.operator.case is case
    run_merged(data, run, {f"s{at}": one for at, one in enumerate(streams)})
    assert History.of(run.output) == run_alone(plan, streams[0])


def test_erratum_x2_stables_do_not_cut_results() -> None:
    """The exact aggregate: replicas with other stables have the same events."""
    streams = [parse(f"insert a 0..3; {more}stable forever") for more in ("", "stable 1; ")]
    histories_ = [run_alone(PLANS["counts"], one) for one in streams]
    assert [history.events() for history in histories_] == [[Event(("a", 1), 0, 3)]] * 2


def test_erratum_x3_groups_of_an_ordered_stream_merge_by_r3() -> None:
    stream = parse("insert A 1..10; insert B 5..7; insert B 8..9; insert A 11..12; stable 20")
    merge = merged(
        {f"r{at}": counted(published(f"s{at}", MergeCase.R0), "k") for at in range(2)}
    )
    run = PlanRun(merge, 1)
    run.push({"s0": stream, "s1": stream[:2]})
    run.push({"s1": stream[2:]})
    assert run.last.operator.case is MergeCase.R3  # type: ignore[union-attr]
    assert History.of(run.output) == run_alone(PLANS["counts"], stream)


def test_erratum_l13_stables_do_not_change_the_order_of_a_cleansed_stream() -> None:
    data = "insert a 1..9; insert b 1..3; insert c 2..3; "
    merge = merged({f"r{at}": cleansed(published(f"s{at}", MergeCase.R4)) for at in range(2)})
    run = PlanRun(merge, 1)
    run.push({"s0": parse(data + "stable 4; stable 10"), "s1": parse(data + "stable 5")})
    run.push({"s1": parse("stable 12")})
    assert run.last.operator.case is MergeCase.R1  # type: ignore[union-attr]
    assert show_elements(run.output) == (
        "insert a 1..9; insert b 1..3; insert c 2..3; stable 10; stable 12"
    )


def test_what_a_slow_replica_still_revises_is_not_late() -> None:
    """`n` is 1 on 3..9 for a while in the replica whose rows come one after the other."""
    merge = merged({name: counted(source(name, SCHEMA)) for name in ("fast", "slow")})
    run = PlanRun(merge)
    rows = parse("insert a 1..9; insert b 3..9; stable 20")
    run.push({"fast": rows})
    for row in rows:
        run.push({"slow": [row]})  # `push` asserts that nothing is late
    assert History.of(run.output) == run_alone(PLANS["one count"], rows)
    assert run.conflicts == 0


def test_replicas_without_one_history_show_as_conflicts() -> None:
    merge = merged({name: distinct(source(name, SCHEMA)) for name in ("one", "two")})
    run = PlanRun(merge)
    run.push({"one": parse("insert a 1..9; stable 3")})
    run.push({"two": parse("insert b 1..9; stable 5")})
    assert run.conflicts == 1


def test_a_declaration_that_is_not_true_stops_the_query() -> None:
    merge = merged(
        {name: windowed(source(name, SCHEMA, PUBLISHED[MergeCase.R0])) for name in ("a", "b")}
    )
    run = PlanRun(merge)
    run.push({"b": parse("insert x 3..4")})
    with pytest.raises(
        StateError,
        match=r"replica 'b' sent 'insert y 1\.\.6', which is wrong: starts before an earlier "
        r"insert.* for case R0, insert_only and strictly_increasing",
    ):
        run.push({"b": parse("insert y 1..2")})
