"""Rules: the better plan has the same history, and a rule applies only where it is legal."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from zlib import crc32

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_plan_stages import SCHEMA, counted, source

from anabranch.batch.schema import ElementSchema, TimeType
from anabranch.model import operators as model
from anabranch.model.history import History
from anabranch.model.lifetimes import GridWindows, sliding
from anabranch.model.properties import MergeCase
from anabranch.operators.aggregate.functions import Aggregate
from anabranch.operators.aggregate.operator import AggregateOperator
from anabranch.operators.aggregate.panes import PaneAggregateOperator
from anabranch.operators.by_key.top_k import TopKOperator
from anabranch.operators.grid_windows import GridWindowOperator
from anabranch.operators.inserts import InsertsOperator
from anabranch.operators.join.operator import HOWS, JoinOperator
from anabranch.operators.lifetimes import AlterLifetimeOperator
from anabranch.operators.runs.difference import DifferenceOperator
from anabranch.operators.runs.distinct import DistinctOperator
from anabranch.operators.runs.normalise import NormaliseOperator
from anabranch.operators.union_of import UnionOfOperator
from anabranch.plan.explain import explain
from anabranch.plan.node import Native, Node, Step, nodes, require_unique, with_names
from anabranch.plan.rules import RULES, improved
from anabranch.plan.stages import stages
from anabranch.testing.strategies import histories

RIGHT = ElementSchema(TimeType.BIGINT, pa.schema({"k": pa.string(), "w": pa.int64()}))
WINDOWS = GridWindows(4, 2)
ENTRY = source("a")
Row = dict[str, Any]


def where(
    of: Node, columns: set[str], keep: Callable[[Row], bool], id_: str = "where"
) -> Native:
    """A `where` that reads these columns, `start` among them or not."""

    def reads_only(known: tuple[str, ...], start: bool) -> bool:
        return columns <= {*known, *(["start"] if start else [])}

    return Native(
        id_, of, keep, of.schema, f"where {sorted(columns)}", one_to_one=True,
        reads_only=reads_only,
    )  # fmt: skip


def even(of: Node, *columns: str, id_: str = "where") -> Native:
    """A `where` whose condition depends on all of these columns."""

    def keep(row: Row) -> bool:
        return crc32(repr([row[name] for name in columns]).encode()) % 3 > 0

    return where(of, {*columns}, keep, id_)


def select(of: Node) -> Native:
    """The columns k and v, the second one changed."""
    return Native("select", of, lambda row: (row["k"], row["v"] % 2), SCHEMA, "select k, v % 2")


def step(word: str, operator: Any, *reads: Node) -> Step:
    ports = operator.ports if hasattr(operator, "ports") else {"input": None}
    return Step(word, operator, tuple(zip(ports, reads, strict=True)), word)


def counts(of: Node, *keys: str) -> Step:
    operator = AggregateOperator(of.schema, keys, (Aggregate("count", None, "v"),))
    return step("aggregate", operator, of)


def joined(left: Node, right: Node, how: str) -> Step:
    return step(
        "join", JoinOperator(left.schema, right.schema, (("k", "k"),), how), left, right
    )


def result(last: Node, inputs: dict[str, History]) -> History:
    """What a plan means, by the functions of the model."""
    if not isinstance(last, Step | Native):
        return inputs[last.id]
    if isinstance(last, Native):
        names, below = last.of.schema.payload.names, result(last.of, inputs)

        def row(identity: Any) -> Row:
            values = dict(zip(names, identity.payload, strict=True))
            return values | {"start": identity.start}

        if last.reads_only is None:
            return model.project(below, lambda one: last.change(row(one)))
        return model.where(below, lambda one: last.change(row(one)))
    return meaning(last.operator, *(result(one, inputs) for _, one in last.reads))


def meaning(operator: Any, *given: History) -> History:
    """The function of the model for an operator."""
    names = operator.schema.payload.names
    found: Callable[..., History] = getattr(model, operator.name, model.normalise)
    match operator:
        case PaneAggregateOperator():
            given = (model.grid_windows(given[0], operator.windows),)
            found = aggregated([[*names, "window"].index(key) for key in operator.keys])
        case AggregateOperator():
            found = aggregated([names.index(key) for key in operator.keys])
        case JoinOperator():
            found = joining(operator.how)
        case TopKOperator():
            given = (*given, lambda p: p[:1], operator.k, lambda p: (p[1], repr(p)))
        case GridWindowOperator():
            given, found = (*given, operator.windows), model.grid_windows
        case AlterLifetimeOperator():
            given = (*given, operator.rule)
    return found(*given)


def joining(how: str) -> Callable[..., History]:
    """A join on the first columns; the key of the right side is not among the columns."""
    matches = model.on_columns({0: 0})

    def pairs(left: History, right: History) -> History:
        if how == "inner":
            both = model.join(left, right, matches)
        else:
            both = model.left_join(left, right, matches, absent=(None, None))
        return model.project(both, lambda e: (*e.payload[:2], *e.payload[3:]))

    def kept(left: History, right: History) -> History:
        return getattr(model, f"{how}_join")(left, right, matches)

    return kept if how in ("semi", "anti") else pairs


def aggregated(keys: list[int]) -> Callable[[History], History]:
    return lambda history: model.aggregate(
        history, lambda p: tuple(p[at] for at in keys), lambda alive: (len(alive),)
    )


@st.composite
def plans(draw: st.DrawFn, depth: int = 3) -> Node:
    """A plan with the columns k and v: steps, most of them between a select and a `where`."""
    if depth == 0:
        return ENTRY

    def opened(depth: int) -> Node:
        below = draw(plans(max(0, depth)))
        return select(below) if draw(st.integers(0, 3)) else below

    made = draw(st.sampled_from([alone, alone, alone, paired, paired, windowed]))
    plan = made(draw, opened(depth - 1), lambda: opened(depth - 2))
    return even(plan, *draw(COLUMNS)) if draw(st.integers(0, 3)) else plan


COLUMNS = st.sampled_from([("k",), ("v",), ("k", "v"), ("start",), ("k", "start"), ()])
Draw = Callable[[Any], Any]
Another = Callable[[], Node]


def alone(draw: Draw, below: Node, another: Another) -> Node:
    """A step that keeps the columns."""
    del another
    made = (
        lambda: step("distinct", DistinctOperator(SCHEMA), below),
        lambda: step("normalise", NormaliseOperator(SCHEMA), below),
        lambda: counts(below, "k"),
        lambda: step("top_k", TopKOperator(SCHEMA, ("k",), 1, (("v", True),)), below),
        lambda: step("window", AlterLifetimeOperator(SCHEMA, sliding(3)), below),
    )
    return draw(st.sampled_from(made))()


def paired(draw: Draw, below: Node, another: Another) -> Node:
    """A step of two streams; a join is filtered, and has its columns selected."""
    other, word = another(), draw(st.sampled_from(["union", "difference", *HOWS]))
    if word == "union":
        return step("union", UnionOfOperator(SCHEMA, ("one", "two")), below, other)
    if word == "difference":
        return step("difference", DifferenceOperator(SCHEMA), below, other)
    more = draw(st.sampled_from([(), ("w",)])) if word in ("inner", "left") else ()
    both = joined(below, select_right(other), word)
    return select(even(both, *draw(COLUMNS), *more))


def windowed(draw: Draw, below: Node, another: Another) -> Node:
    """Windows that are filtered or not, and counted."""
    del another
    windows = step("windows", GridWindowOperator(SCHEMA, WINDOWS), below)
    columns = draw(st.sampled_from([("k",), ("window",), ("v", "k"), ("start",), None]))
    kept = windows if columns is None else even(windows, *columns)
    return select(counts(kept, "k", "window"))


def select_right(of: Node) -> Native:
    return Native("right", of, lambda row: (row["k"], row["v"]), RIGHT, "select k, v as w")


def natives(last: Node) -> int:
    """How many streams Spark changes between stages."""
    return sum(bool(send.natives) for stage in stages(last)[0] for send in stage.sends)


def finished(node: Node) -> Step:
    """With names, and a last step in lanes, as a query has it."""
    last = (
        step("output", UnionOfOperator(node.schema), node) if isinstance(node, Native) else node
    )
    named = with_names(last)
    assert not isinstance(named, Native)
    return named


PAYLOADS = st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 2))


@given(
    st.lists(plans(), min_size=6, max_size=6),
    histories(case=MergeCase.R4, max_events=8, max_time=9, payloads=PAYLOADS),
)
def test_the_better_plan_has_the_same_history(some: list[Node], truth: History) -> None:
    for plan in some:
        last = finished(plan)
        better, done = improved(last)
        require_unique(better)
        assert result(better, {"a": truth}) == result(last, {"a": truth}), done
        assert natives(better) <= natives(last), explain(better, 2, {}, rules=done)
        assert improved(better) == (better, ())


def words(last: Node) -> list[str]:
    return [one.removeprefix("rule ") for one in improved(finished(last))[1]]


def test_a_where_goes_where_spark_opens_the_rows_already() -> None:
    grouped = counts(select(source()), "k")
    last = step("normalise", NormaliseOperator(SCHEMA), even(grouped, "k"))
    assert words(last) == ["push_where: where goes before aggregate"]
    better, _ = improved(finished(last))
    cut = [[one.node.id for one in stage.steps] for stage in stages(better)[0]]
    assert cut == [["events"], ["aggregate", "normalise"]]
    (moved,) = [one for one in nodes(better) if isinstance(one, Native) and one.is_moved]
    assert (moved.id, moved.of.id, moved.words) == ("where", "select", "where ['k']")


def test_a_where_stays_where_it_would_open_more_rows_or_is_not_legal() -> None:
    """Without a boundary to share, of a column that the step makes, of times, or if shared."""
    assert words(even(counts(source(), "k"), "k")) == []
    assert words(even(counts(select(source()), "k"), "v")) == []
    assert (
        words(even(step("distinct", DistinctOperator(SCHEMA), select(source())), "start")) == []
    )
    shared = step("distinct", DistinctOperator(SCHEMA), select(source()))
    union = UnionOfOperator(SCHEMA, ("one", "two"))
    assert words(step("union", union, shared, even(shared, "k"))) == []
    opened = select(source())
    distinct = step("distinct", DistinctOperator(SCHEMA), opened)
    assert words(step("union", union, opened, even(distinct, "k"))) == []
    with_two = ElementSchema(TimeType.BIGINT, pa.schema({"k": pa.string(), "K": pa.int64()}))
    changed = replace(select(source()), schema=with_two)
    assert words(even(step("distinct", DistinctOperator(with_two), changed), "k")) == []


def test_a_where_goes_to_both_inputs_of_a_union_and_to_one_of_a_join() -> None:
    one, two = select(source("a")), replace(select(source("b")), id="select_2")
    union = step("union", UnionOfOperator(SCHEMA, ("one", "two")), one, two)
    done = words(even(union, "k", "start"))
    assert done == [
        "push_where: where goes before union",
        "drop_output: output changes nothing",
    ]
    better, _ = improved(finished(even(union, "k", "start")))
    assert [one.id for one in nodes(better) if isinstance(one, Native)] == [
        "select", "where", "select_2", "where_2",
    ]  # fmt: skip
    right = replace(select_right(source("b")), id="right")
    for how, column, side in (
        ("inner", "v", "left"),
        ("inner", "w", "right"),
        ("left", "v", "left"),
        ("anti", "k", "left"),
    ):
        (first, *_) = words(even(joined(one, right, how), column))
        assert first == f"push_where: where goes before join on the {side} side"
    assert words(even(joined(one, right, "left"), "w")) == []
    assert words(even(joined(one, right, "inner"), "v", "w")) == []


def test_windows_and_the_aggregate_above_a_where_become_panes() -> None:
    windows = step("windows", GridWindowOperator(SCHEMA, WINDOWS), source())
    last = counts(even(windows, "v"), "k", "window")
    assert words(last) == [
        "push_where: where goes before windows",
        "panes: windows is a part of aggregate",
    ]
    assert words(counts(even(windows, "window"), "k", "window")) == []


def test_what_changes_nothing_is_dropped() -> None:
    distinct = step("distinct", DistinctOperator(SCHEMA), source())
    again = step("normalise", NormaliseOperator(SCHEMA), even(distinct, "v"))
    last = counts(again, "k")
    assert words(last) == ["drop_repeated: normalise changes nothing after distinct"]
    twice = step("distinct", DistinctOperator(SCHEMA), again)
    assert words(counts(twice, "k")) == [
        *words(last),
        "drop_repeated: distinct_2 changes nothing after distinct",
    ]
    normal = step("normalise", NormaliseOperator(SCHEMA), source())
    assert words(step("distinct", DistinctOperator(SCHEMA), normal)) == []
    grouped = step("distinct", DistinctOperator(SCHEMA), counts(source(), "k"))
    assert words(grouped) == []
    assert words(step("normalise", NormaliseOperator(SCHEMA), select(distinct))) == []


def test_rules_are_shown_by_explain() -> None:
    distinct = step("distinct", DistinctOperator(SCHEMA), source())
    better, done = improved(step("n", NormaliseOperator(SCHEMA), distinct))
    text = explain(better, 2, {}, rules=done)
    assert "\nrule drop_repeated: n changes nothing after distinct" in text
    assert [rule.__name__ for rule in RULES] == [
        "push_where", "panes", "drop_repeated", "drop_output",
    ]  # fmt: skip


@pytest.mark.parametrize("operator", [InsertsOperator(SCHEMA), DistinctOperator(SCHEMA)])
def test_a_where_that_calls_python_stays(operator: Any) -> None:
    """What it costs for each row is not known: `reads_only` is not set."""
    opaque = replace(even(step("x", operator, select(source())), "k"), reads_only=None)
    assert improved(finished(opaque))[1] == ()
    assert counted(opaque, "k").reads[0][1] is opaque
