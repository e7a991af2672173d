"""Aggregates that do not emit at once: their stages, and what `explain` states of them."""

from typing import Any

import pyarrow as pa
import pytest

from anabranch.batch.schema import ElementSchema, TimeType
from anabranch.model.emission import Emit
from anabranch.model.lifetimes import AlterLifetime, DurationConstant, GridWindows, Hop, sliding
from anabranch.model.time import FOREVER
from anabranch.operators.aggregate.functions import Aggregate
from anabranch.operators.aggregate.operator import AggregateOperator
from anabranch.operators.aggregate.panes import PaneAggregateOperator
from anabranch.operators.contract import Route
from anabranch.operators.grid_windows import GridWindowOperator
from anabranch.operators.lifetimes import AlterLifetimeOperator
from anabranch.operators.route import Routing
from anabranch.operators.runs.distinct import DistinctOperator
from anabranch.plan.explain import explain
from anabranch.plan.node import Native, Source, Step
from anabranch.plan.stages import stages

SCHEMA = ElementSchema(TimeType.BIGINT, pa.schema({"k": pa.string(), "v": pa.int64()}))
TIMED = ElementSchema(TimeType.TIMESTAMP, SCHEMA.payload)
COUNT = Aggregate("count", None, "n")


def source(schema: ElementSchema = SCHEMA) -> Source:
    return Source("events", None, schema, Routing(Route.IDENTITY), "union")


def counted(node: Any, emit: Emit, keys: tuple[str, ...] = ("k",), **how: Any) -> Step:
    operator = AggregateOperator(node.schema, keys, (COUNT,), emit=emit, **how)
    return Step("aggregate", operator, (("input", node),), "count")


def moved(rule: Any, schema: ElementSchema = SCHEMA) -> Step:
    operator = AlterLifetimeOperator(schema, rule)
    return Step("window", operator, (("input", source(schema)),), "window")


def changes(step: Step) -> list[str]:
    lines = explain(step, 1, {}).splitlines()
    return [line.strip() for line in lines if "changes per row" in line]


def warnings(step: Step) -> list[str]:
    return [line for line in explain(step, 1, {}).splitlines() if line.startswith("warning")]


def holds(step: Step) -> list[bool]:
    return [stage.holds_stables for stage in stages(step)[0]]


def test_lanes_that_hold_their_stables_are_brought_together_behind_the_last_stage() -> None:
    words = "stage 1: 1 lane, which emits the least stable of all lanes"
    passed = counted(source(), Emit.PASSED)
    assert holds(passed) == [True]
    assert words in explain(passed, 4, {})
    beside = Step("distinct", DistinctOperator(passed.schema), (("input", passed),), "distinct")
    assert holds(beside) == [True]
    operator = AggregateOperator(passed.schema, ("n",), (Aggregate("count", None, "m"),))
    again = Step("again", operator, (("input", passed),), "count")
    assert holds(again) == [True, False]
    assert "least stable" not in explain(again, 4, {})
    for emit in (Emit.AT_ONCE, Emit.ORDERED):
        assert holds(counted(source(), emit)) == [False]


def test_windows_that_are_passed_have_one_stable() -> None:
    operator = PaneAggregateOperator(
        SCHEMA, ("k", "window"), (COUNT,), windows=GridWindows(6, 2), emit=Emit.PASSED
    )
    assert holds(Step("aggregate", operator, (("input", source()),), "count")) == [False]


GRID = GridWindowOperator(SCHEMA, GridWindows(60, 10))


@pytest.mark.parametrize(
    ("emit", "words"),
    [
        (Emit.AT_ONCE, "up to 12 (6 windows); cheaper: emit='passed', which emits each window"),
        (Emit.ORDERED, "up to 18 (6 windows); cheaper: emit='passed', which emits each window"),
        (Emit.PASSED, "at most 6 (6 windows, each emitted once), the cheapest choice"),
    ],
)
def test_changes_per_row_of_windows_that_overlap(emit: Emit, words: str) -> None:
    windows = Step("window", GRID, (("input", source()),), "windows")
    found = changes(counted(windows, emit, ("k", "window"), by_window=True))
    assert len(found) == 1
    assert found[0].startswith(f"changes per row: {words}")


def test_changes_per_row_by_panes_and_of_one_window() -> None:
    def panes(size: int) -> Step:
        operator = PaneAggregateOperator(
            SCHEMA, ("k", "window"), (COUNT,), windows=GridWindows(size, 10)
        )
        return Step("aggregate", operator, (("input", source()),), "count")

    assert "12 (6 windows)" in changes(panes(60))[0]
    assert not changes(panes(10))


@pytest.mark.parametrize(
    ("rule", "emit", "words"),
    [
        (sliding(30), Emit.AT_ONCE, "2 k + 1 for k other rows of its group within 30 units; "),
        (sliding(30), Emit.ORDERED, "3; cheaper: emit='passed', 2 per row"),
        (sliding(30), Emit.PASSED, "2 (emit='passed' is the cheapest choice)"),
        (Hop(30, 10), Emit.AT_ONCE, "up to 7 (3 hops); cheaper: emit='passed', 2 per row"),
    ],
)
def test_changes_per_row_of_sliding_lifetimes(rule: Any, emit: Emit, words: str) -> None:
    found = changes(counted(moved(rule), emit))
    assert len(found) == 1
    assert found[0].startswith(f"changes per row: {words}")


def test_changes_per_row_show_durations_and_pass_filters() -> None:
    windows = moved(sliding(600_000_000), TIMED)
    kept = Native("where", windows, "opaque", windows.schema, "where v > 0")
    assert "within 10 minutes" in changes(counted(kept, Emit.AT_ONCE))[0]
    forever = moved(AlterLifetime(duration=DurationConstant(FOREVER)))
    assert not changes(counted(forever, Emit.AT_ONCE))
    assert not changes(counted(source(), Emit.AT_ONCE))


def test_a_stable_that_nothing_bounds_is_a_warning() -> None:
    found = warnings(counted(source(), Emit.PASSED))
    assert len(found) == 1
    assert "aggregate holds its stable" in found[0]
    assert "cut_every=, such as cut_every='1 hour'" in found[0]
    forever = moved(AlterLifetime(duration=DurationConstant(FOREVER)))
    assert warnings(counted(forever, Emit.PASSED)) == found


def test_a_stable_that_is_bounded_is_none() -> None:
    assert not warnings(counted(source(), Emit.PASSED, cut_every=10))
    assert not warnings(counted(source(), Emit.ORDERED))
    for rule in (sliding(30), Hop(30, 10)):
        assert not warnings(counted(moved(rule), Emit.PASSED))
    windows = Step("window", GRID, (("input", source()),), "windows")
    assert not warnings(counted(windows, Emit.PASSED, ("k", "window"), by_window=True))


def test_what_passed_results_promise() -> None:
    """In order and never corrected only over such an input; windows are passed by stables."""
    windows = Step("window", GRID, (("input", source()),), "windows")
    passed = counted(windows, Emit.PASSED, ("k", "window"), by_window=True)
    assert "promises insert_only, ordered, keyed; replicas of it merge by case R2" in explain(
        passed, 1, {}
    )
    assert "promises keyed; replicas of it merge by case R3" in explain(
        counted(source(), Emit.PASSED), 1, {}
    )
