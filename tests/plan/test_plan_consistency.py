"""Where a level of consistency takes effect in a plan, and which levels are rejected."""

from typing import Any

import pyarrow as pa
import pytest

from anabranch.batch.schema import ElementSchema, TimeType
from anabranch.errors import UsageError
from anabranch.model.emission import Emit
from anabranch.model.lifetimes import sliding
from anabranch.operators.aggregate.functions import Aggregate
from anabranch.operators.aggregate.operator import AggregateOperator
from anabranch.operators.aggregate.sessions import SessionAggregateOperator
from anabranch.operators.by_key.session import SessionOperator
from anabranch.operators.contract import Route
from anabranch.operators.join.operator import JoinOperator
from anabranch.operators.lifetimes import AlterLifetimeOperator
from anabranch.operators.route import Routing
from anabranch.operators.waiting.finalize import FinalizeOperator
from anabranch.operators.waiting.level import NAMED, Level, Release
from anabranch.plan.consistency import in_words, level_of, placed, without_levels
from anabranch.plan.explain import explain
from anabranch.plan.node import Native, Node, Source, Step, nodes, with_names
from anabranch.plan.replicas import merged
from anabranch.plan.stages import stages

SCHEMA = ElementSchema(TimeType.BIGINT, pa.schema({"k": pa.string(), "v": pa.int64()}))
COUNT = Aggregate("count", None, "n")
STRONG = NAMED["strong"]


def source(name: str = "events") -> Source:
    return Source(name, object(), SCHEMA, Routing(Route.IDENTITY), "union")


def windowed(node: Node) -> Step:
    rule = AlterLifetimeOperator(node.schema, sliding(5))
    return Step("window", rule, (("input", node),), "window")


def counted(node: Node, *keys: str, **more: Any) -> Step:
    count = Aggregate("count", None, "m") if "n" in keys else COUNT
    operator = AggregateOperator(node.schema, keys, (count,))
    return Step("count", operator, (("input", node),), "count", **more)


def joined(left: Node, right: Node, on: tuple[str, str] = ("k", "k")) -> Step:
    operator = JoinOperator(left.schema, right.schema, (on,), how="semi")
    return Step("join", operator, (("left", left), ("right", right)), "join")


def drawn(last: Node, level: Level = STRONG) -> dict[str, str]:
    """What each step of the plan reads, by its name."""
    plan = with_names(placed(last, level))
    return {
        one.id: ", ".join(read.id for _, read in one.reads)
        for one in nodes(plan)
        if isinstance(one, Step)
    }


def test_a_plan_without_state_waits_for_nothing() -> None:
    plan = windowed(Native("where", source(), "opaque", SCHEMA, "where"))
    assert drawn(plan) == {"window": "where"}


def test_finalize_then_align_go_in_front_of_the_first_state() -> None:
    plan = counted(counted(windowed(source()), "k"), "n")
    assert drawn(plan) == {
        "window": "events",
        "finalize": "window",
        "align": "finalize",
        "count": "align",
        "count_2": "count",
    }


def test_the_inputs_of_one_step_are_released_together() -> None:
    """Each align reads the stables of the other; all share the lanes of the join."""
    made = joined(source("a"), counted(source("b"), "k"))
    assert drawn(made) == {
        "finalize": "a",
        "finalize_2": "b",
        "align": "finalize_2",
        "count": "align",
        "align_2": "finalize, count",
        "join": "align_2, count",
    }
    both = with_names(placed(joined(source("a"), source("b")), STRONG))
    assert isinstance(both, Step)
    cut, routings = stages(both)
    assert len(cut) == 1
    assert set(routings.values()) == {Routing(Route.KEY, ("k",))}
    aligns = [one for one in nodes(both) if one.id.startswith("align")]
    assert all(isinstance(one, Step) and len(one.reads) == 2 for one in aligns)


def test_a_stream_that_two_steps_read_is_finalized_once() -> None:
    a = source("a")
    made = drawn(joined(counted(a, "k"), counted(a, "k")))
    assert [name for name in made if name.startswith("finalize")] == ["finalize"]


def test_a_level_is_behind_a_merge_of_replicas_and_not_below_it() -> None:
    a = source("a")
    merge = merged({"one": counted(a, "k"), "two": counted(a, "k")})
    assert drawn(counted(merge, "n")) == {
        "count": "a",
        "count_2": "a",
        "merge": "count, count_2",
        "finalize": "merge",
        "align": "finalize",
        "count_3": "align",
    }
    assert "finalize" not in drawn(merge)


def test_a_step_that_was_placed_by_hand_is_no_state() -> None:
    by_hand = Step("mine", FinalizeOperator(SCHEMA, 5), (("input", source()),), "finalize")
    assert drawn(counted(by_hand, "k")) == {
        "mine": "events",
        "finalize": "mine",
        "align": "finalize",
        "count": "align",
    }


def test_steps_by_hand_go_to_the_lanes_of_the_key_behind_them() -> None:
    by_hand = Step("mine", FinalizeOperator(SCHEMA, 5), (("input", source()),), "finalize")
    cut, routings = stages(counted(by_hand, "k"))
    assert len(cut) == 1
    assert routings == {"events": Routing(Route.KEY, ("k",))}


def operators(last: Node, level: Level) -> list[Any]:
    return [one.operator for one in nodes(placed(last, level)) if isinstance(one, Step)]


def test_the_steps_have_what_the_level_asks_for() -> None:
    plan = counted(source(), "k")
    finalize, align, _ = operators(plan, Level(wait=3, remember=9))
    assert (finalize.remember, align.wait, align.wait_wall) == (9, 3, None)
    assert align.is_leveled
    assert finalize.route_columns == align.route_columns == ("k",)
    finalize, align, count = operators(plan, NAMED["ultra"])
    assert (finalize.remember, align.release) == (None, Release.FINAL)
    assert not align.is_leveled
    assert count.emit is Emit.PASSED


@pytest.mark.parametrize("name", NAMED)
def test_levels_that_wait_for_stables_emit_what_has_passed(name: str) -> None:
    *_, count = operators(counted(source(), "k"), NAMED[name])
    waits = name in ("strong", "ultra")
    assert count.emit is (Emit.PASSED if waits else Emit.AT_ONCE)
    ordered = counted(source(), "k", emits=Emit.ORDERED)
    *_, count = operators(ordered, NAMED[name])
    assert count.emit is Emit.AT_ONCE, "what was asked for stays"


def test_sessions_are_counted_when_they_have_passed() -> None:
    session = SessionAggregateOperator(
        SessionOperator(SCHEMA, 5, ("k",)), ("k", "window"), (COUNT,)
    )
    plan = Step("aggregate", session, (("input", source()),), "sessions")
    assert drawn(plan) == {
        "finalize": "events",
        "align": "finalize",
        "session": "align",
        "aggregate": "session",
    }
    *_, count = operators(plan, STRONG)
    assert (count.emit, count.output) == (Emit.PASSED, session.output)
    assert list(drawn(plan, NAMED["weak"])) == ["finalize", "align", "aggregate"]


def test_an_answer_at_once_does_not_wait_for_stables() -> None:
    plan = counted(source(), "k", emits=Emit.AT_ONCE)
    words = r"step 'count' has emit='at_once', .* the level 'strong' waits for stables"
    with pytest.raises(UsageError, match=words):
        placed(plan, STRONG)
    assert len(operators(plan, NAMED["middle"])) == 3


def test_a_query_has_one_level() -> None:
    a = source("a")
    strong = Step("count", counted(a).operator, (("input", a),), "count", level=STRONG)
    assert level_of(counted(strong, "n")) is STRONG
    assert level_of(a) is None
    weak = Step(
        "n", counted(strong, "n").operator, (("input", strong),), "n", level=NAMED["weak"]
    )
    with pytest.raises(UsageError, match="two levels, 'strong' and 'weak'"):
        level_of(weak)


def test_a_stream_with_a_level_is_the_stream_itself() -> None:
    a = source("a")
    leveled = Source("a", a.entry, SCHEMA, a.routing, "union", level=STRONG)
    plan = without_levels(joined(leveled, a))
    assert [one.id for one in nodes(plan)] == ["a", "join"]
    assert level_of(plan) is None


@pytest.mark.parametrize(
    ("level", "words"),
    [
        (STRONG, "strong"),
        (Level(wait=0, remember=3), "wait 0, remember 3"),
        (Level(wait=None, remember=3), "wait for stables, remember 3"),
        (Level(wait=None, wait_wall=5_000_000), "wait 5 seconds of wall-clock time, remember"),
    ],
)
def test_a_level_in_words(level: Level, words: str) -> None:
    assert in_words(level, TimeType.BIGINT).startswith(words)


def test_an_align_of_final_events_has_its_warning_in_explain() -> None:
    plan = with_names(placed(counted(source(), "k"), NAMED["ultra"]))
    assert isinstance(plan, Step)
    text = explain(plan, 2, {})
    assert "warning: align releases final events only, so one event without end" in text
    assert "align: align, level ultra" in text
    plan = with_names(placed(counted(source(), "k"), STRONG))
    assert isinstance(plan, Step)
    assert "without end" not in explain(plan, 2, {})
