"""A level of consistency in lanes: what it changes of a query's output, and what it does not.

No Spark here: `plan_lanes` plays its part.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from plan_lanes import PlanRun, source, where

from anabranch.batch.schema import ElementSchema, TimeType
from anabranch.model import FOREVER, Adjust, Element, Event, History, Insert, Stable
from anabranch.model.frozen import Status, status
from anabranch.model.lifetimes import GridWindows, sliding
from anabranch.model.net_change import sync_time
from anabranch.model.time import NEVER
from anabranch.operators.aggregate.functions import Aggregate
from anabranch.operators.aggregate.operator import AggregateOperator
from anabranch.operators.aggregate.panes import PaneAggregateOperator
from anabranch.operators.join.operator import JoinOperator
from anabranch.operators.lifetimes import AlterLifetimeOperator
from anabranch.operators.runs.distinct import DistinctOperator
from anabranch.operators.waiting.level import NAMED, Level
from anabranch.plan.node import Node, Step
from anabranch.testing.asserts import assert_valid

SCHEMA = ElementSchema(TimeType.BIGINT, pa.schema({"k": pa.string(), "at": pa.int64()}))
OTHER = ElementSchema(TimeType.BIGINT, pa.schema({"name": pa.string(), "b": pa.int64()}))
COUNT = Aggregate("count", None, "n")
SEEDS = st.integers(0, 2**32)


def step(name: str, operator: Any, *reads: Node) -> Step:
    ports = ("left", "right") if len(reads) == 2 else ("input",)
    return Step(name, operator, tuple(zip(ports, reads, strict=True)), name)


def counted(node: Node, *keys: str) -> Step:
    return step("count", AggregateOperator(node.schema, keys, (COUNT,)), node)


def windows(node: Node) -> Step:
    made = PaneAggregateOperator(
        node.schema, ("k", "window"), (COUNT,), windows=GridWindows(6, 3)
    )
    return step("windows", made, node)


def sliding_windows(node: Node) -> Step:
    return step("window", AlterLifetimeOperator(node.schema, sliding(5)), node)


def joined(left: Node, right: Node) -> Step:
    return step("join", JoinOperator(left.schema, right.schema, (("k", "name"),)), left, right)


def a() -> Node:
    return source("a", SCHEMA)


def b() -> Node:
    return source("b", OTHER)


def is_early(one: Element) -> bool:
    return isinstance(one, Stable) or one.payload[1] % 3 != 0


PLANS: dict[str, Callable[[], Node]] = {
    "counts": lambda: counted(a(), "k"),
    "one count": lambda: counted(a()),
    "windows": lambda: windows(a()),
    "a filter, sliding, counted": lambda: counted(sliding_windows(where(a(), is_early, "e"))),
    "distinct": lambda: step("distinct", DistinctOperator(SCHEMA), a()),
    "join": lambda: joined(a(), b()),
    "a join, counted": lambda: counted(joined(a(), b()), "k"),
    "a count, joined": lambda: joined(counted(a(), "k"), b()),
}
ORDERED = ("one count", "distinct", "join", "windows")
"""Whose output is in order from trigger to trigger, if the input of the state is (X3)."""


def stream(chance: random.Random, count: int, schema: ElementSchema) -> list[Element]:
    """Events out of order, of which some are corrected, with true stables; the end is known."""
    made, live, low, now = [], [], 0, 0
    for at in range(count):
        word, now = chance.random(), now + chance.randint(0, 2)
        changing = [one for one in live if one.end >= low]
        if word < 0.15:
            low = max(low, now - 5)
            made.append(Stable(low))
        elif word < 0.3 and changing:
            event = chance.choice(changing)
            end = chance.choice([max(low, event.start), max(low, event.start) + 3, FOREVER])
            if end == event.end:
                continue
            live.remove(event)
            made.append(Adjust(event.payload, event.start, event.end, end))
            live += [event._replace(end=end)] if end > event.start else []
        else:
            start = max(low, now - chance.choice([0, 0, 1, 4]))
            end = chance.choice([FOREVER, start + chance.randint(1, 9)])
            live.append(Event((chance.choice("xy"), at), start, end))
            made.append(Insert(*live[-1]))
    return [*made, Stable(FOREVER)]


def cut(
    chance: random.Random, streams: Mapping[str, Sequence[Element]]
) -> list[dict[str, Any]]:
    """The streams in some triggers, in which each comes as far as it likes."""
    triggers = chance.randint(1, 4)
    ends = {
        name: [*sorted(chance.randint(0, len(one)) for _ in range(triggers - 1)), len(one)]
        for name, one in streams.items()
    }
    begins = {name: [0, *some[:-1]] for name, some in ends.items()}
    return [
        {name: streams[name][begins[name][at] : ends[name][at]] for name in streams}
        for at in range(triggers)
    ]


def streams_of(chance: random.Random, plan: Node) -> dict[str, list[Element]]:
    found = {"a": stream(chance, chance.randint(1, 18), SCHEMA)}
    if "join" in str(plan):
        found["b"] = stream(chance, chance.randint(1, 12), OTHER)
    return found


def frozen(run: PlanRun, until: float) -> list[Event]:
    """The events of the output that nothing may change before this time."""
    return [
        one
        for one in History.of(run.output)
        if status(one.start, one.end, frontier=until) is Status.FROZEN or until == FOREVER
    ]


@given(plan=st.sampled_from(sorted(PLANS)), seed=SEEDS, lanes=st.sampled_from([1, 1, 2]))
def test_levels_agree_on_what_is_final(plan: str, seed: int, lanes: int) -> None:
    """Below the least of their frontiers all have the same frozen events."""
    chance = random.Random(seed)
    streams = streams_of(chance, PLANS[plan]())
    names = ("middle", "strong", "ultra")
    runs = [PlanRun(PLANS[plan](), lanes)]
    runs += [PlanRun(PLANS[plan](), lanes, level=NAMED[name]) for name in names]
    for trigger in cut(chance, streams):
        for run in runs:
            before = len(run.output)
            run.push({name: some for name, some in trigger.items() if some})
            assert_valid(run.output)
            if run is runs[-1]:
                is_perfect(run.output[before:], plan)
        until = min(run.frontier for run in runs)
        first, *others = (frozen(run, until) for run in runs)
        assert [one for one in others if one != first] == []
    assert all(run.frontier == FOREVER and not run.pending and not run.late for run in runs)


def is_perfect(elements: Sequence[Element], plan: str) -> None:
    """Nothing is corrected, whatever the input was."""
    corrected = [one for one in elements if isinstance(one, Adjust)]
    assert plan == "a count, joined" or corrected == []


@given(plan=st.sampled_from(ORDERED), seed=SEEDS)
def test_strong_answers_at_stables_and_in_order(plan: str, seed: int) -> None:
    """Theorem 7: no output without a stable; triggers follow one another in sync order."""
    chance = random.Random(seed)
    streams, known = streams_of(chance, PLANS[plan]()), NEVER
    run = PlanRun(PLANS[plan](), level=NAMED["strong"])
    for trigger in cut(chance, streams):
        before = len(run.output)
        run.push({name: some for name, some in trigger.items() if some})
        stables = [one for some in trigger.values() for one in some if isinstance(one, Stable)]
        data = [one for one in run.output[before:] if not isinstance(one, Stable)]
        times = [sync_time(one) for one in data]
        assert stables or not data
        assert not times or min(times) >= known
        known = max([known, *times])


@given(
    plan=st.sampled_from(["counts", "one count", "windows", "distinct"]),
    seed=SEEDS,
    lanes=st.sampled_from([1, 1, 2]),
    wait=st.sampled_from([None, 0, 2]),
)
def test_what_is_forgotten_is_late_and_nothing_else(
    plan: str, seed: int, lanes: int, wait: int | None
) -> None:
    """With a finite memory the output is the query of the input without its late rows."""
    chance = random.Random(seed)
    streams = streams_of(chance, PLANS[plan]())
    level = Level(wait=wait, remember=chance.choice([0, 2, 4, 30]) + (wait or 0))
    run, judge = PlanRun(PLANS[plan](), lanes, level=level), PlanRun(PLANS[plan](), lanes)
    for trigger in cut(chance, streams):
        run.push({name: some for name, some in trigger.items() if some})
        assert_valid(run.output)
    assert run.frontier == FOREVER
    judge.push({"a": in_time(streams["a"], run.late)})
    assert History.of(run.output) == History.of(judge.output)


def test_a_wait_by_the_wall_clock_is_over_without_rows() -> None:
    """The record has when, so that the driver lets time pass then; lanes agree."""
    second = 1_000_000
    level = Level(wait=None, wait_wall=10 * second)
    run = PlanRun(PLANS["counts"](), 2, level=level)
    run.push({"a": [Insert(("x", 1), 5, 9)]}, time=1_000 * second)
    assert (run.output, run.due, run.pending) == ([], 1_010 * second, 1)
    run.push({"a": [Insert(("y", 2), 3, 4), Insert(("x", 3), 7, 8)]}, time=1_006 * second)
    run.push({}, time=1_009 * second)
    assert (run.output, run.due, run.pending) == ([], 1_010 * second, 3)
    run.push({}, time=1_010 * second)
    first = [Event(("y", 1), 3, 4), Event(("x", 1), 5, 9)]
    assert History.of(run.output) == History.from_events(first)
    assert run.due == 1_016 * second
    run.push({}, time=1_016 * second)
    assert (run.due, run.pending, len(History.of(run.output))) == (None, 0, 4)


LEVELS = [
    *(NAMED[name] for name in ("middle", "strong", "weak")),
    *(Level(wait=2, remember=None), Level(wait=None, remember=4)),
]


@given(
    plan=st.sampled_from(["counts", "one count", "windows", "distinct"]),
    seed=SEEDS,
    lanes=st.sampled_from([1, 1, 2]),
)
def test_a_level_that_changes_loses_nothing(plan: str, seed: int, lanes: int) -> None:
    """Whatever it was when, the output is the query of what was not late."""
    chance = random.Random(seed)
    streams = streams_of(chance, PLANS[plan]())
    level = chance.choice(LEVELS)
    run, judge = PlanRun(PLANS[plan](), lanes, level=level), PlanRun(PLANS[plan](), lanes)
    for trigger in cut(chance, streams):
        before = run.frontier
        run.push({"a": trigger["a"]}, chance.choice([None, *LEVELS]))
        assert_valid(run.output)
        assert run.frontier >= before
    assert (run.frontier, run.pending) == (FOREVER, 0)
    judge.push({"a": in_time(streams["a"], run.late)})
    assert History.of(run.output) == History.of(judge.output)


def in_time(stream: Sequence[Element], late: Sequence[Element]) -> list[Element]:
    """A stream without what was late, and the stable of its end."""
    rest, kept = list(late), []
    for one in stream:
        if one in rest:
            rest.remove(one)
        elif not isinstance(one, Stable):
            kept.append(one)
    assert rest == [], "each late row is one of the input"
    return [*kept, Stable(FOREVER)]


@given(seed=SEEDS)
def test_middle_depends_on_no_cut(seed: int) -> None:
    """With a memory for ever the history is that of the batch, however triggers are cut."""
    chance = random.Random(seed)
    streams = streams_of(chance, PLANS["join"]())
    batch, run = PlanRun(PLANS["join"]()), PlanRun(PLANS["join"](), level=NAMED["middle"])
    batch.push(streams)
    for trigger in cut(chance, streams):
        run.push({name: some for name, some in trigger.items() if some})
    assert History.of(run.output) == History.of(batch.output)
