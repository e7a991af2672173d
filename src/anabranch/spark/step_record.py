"""What a progress record shows of each step of a query: how far it is, and what holds it back.

The frontier of a step is the least of its lanes'.  Lane 0 describes its steps besides: what
they read, their labels, and which inputs a source waits for; the other lanes have the same.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeAlias

Shown: TypeAlias = str | int | None
"""A time in a record: a number of units, `forever`, or None where there is none yet."""


_LEVEL: Final = ("wait", "wait_wall", "remember")


@dataclass(frozen=True, kw_only=True)
class OperatorRecord:
    """One operator in one lane, after the trigger.

    `taken` and `made` are the inserts and adjusts that it read and emitted in this trigger.
    `reads` are the steps that it reads, `label` are the sources that it waits for, `withholds`
    whether its own data may hold its frontier back; `inputs` are those of a source that are as
    far as the source is.  These four are of lane 0 alone.  One that only `observes` is no step
    of the user's.
    """

    operator: str
    frontier: Shown
    live: int
    facts: Mapping[str, Any] = field(default_factory=dict)
    taken: int = 0
    made: int = 0
    reads: Sequence[str] = ()
    label: Sequence[str] = ()
    withholds: bool = False
    inputs: Sequence[str] = ()
    observes: bool = False

    def __post_init__(self) -> None:
        for name in ("reads", "label", "inputs"):  # JSON has lists
            object.__setattr__(self, name, tuple(getattr(self, name)))


@dataclass(frozen=True)
class Described:
    """A step in terms of the plan: the steps that it reads, and the sources of its label."""

    reads: tuple[str, ...] = ()
    label: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class StepRecord:
    """One step in one trigger, over all lanes.

    `frontier` is the least of its lanes'.  `held_by` are the sources, or the step itself, whose
    stable it waits for; of a source its inputs.  `level` has how long an align waits (without
    `wait` and `wait_wall` for stables) and how long a finalize remembers (without: for ever).
    """

    step: str
    operator: str
    stage: int
    frontier: Shown
    live: int
    taken: int
    made: int
    label: Sequence[str]
    held_by: Sequence[str]
    level: Mapping[str, Any] = field(default_factory=dict)


class HasSteps(Protocol):
    """The record of a lane: which one, and its operators."""

    @property
    def stage(self) -> int:
        """The stage of the lane, from 0."""

    @property
    def lane(self) -> int:
        """The number of the lane in its stage."""

    @property
    def operators(self) -> Mapping[str, OperatorRecord]:
        """Its operators by the ids of their steps."""


def place(time: Shown) -> float:
    """Sorts times of records: none yet, then numbers, then forever."""
    return float("-inf") if time is None else float("inf") if isinstance(time, str) else time


def step_records(records: Sequence[HasSteps]) -> list[StepRecord]:
    """Of each step, in the order of stages and pipelines."""
    by_step: dict[str, list[OperatorRecord]] = {}
    stage: dict[str, int] = {}
    for one in sorted(records, key=lambda one: (one.stage, one.lane)):
        for name, operator in one.operators.items():
            if not operator.observes:
                by_step.setdefault(name, []).append(operator)
                stage.setdefault(name, one.stage)
    facts = {name: lanes[0] for name, lanes in by_step.items()}
    frontiers = {
        name: min((one.frontier for one in lanes), key=place) for name, lanes in by_step.items()
    }
    return [
        StepRecord(
            step=name,
            operator=facts[name].operator,
            stage=stage[name],
            frontier=frontiers[name],
            live=sum(one.live for one in lanes),
            taken=sum(one.taken for one in lanes),
            made=sum(one.made for one in lanes),
            label=list(facts[name].label),
            held_by=held_by(name, facts, frontiers),
            level={key: facts[name].facts[key] for key in _LEVEL if key in facts[name].facts},
        )
        for name, lanes in by_step.items()
    ]


def held_by(
    name: str, facts: Mapping[str, OperatorRecord], frontiers: Mapping[str, Shown]
) -> list[str]:
    """Whose stable a step waits for: sources, or steps that hold their own back.

    From the step down to what is no farther than it is; of several that are equally far, all.
    Nothing holds back what has ended.
    """
    if frontiers[name] == "forever":
        return []
    if not facts[name].reads:
        return sorted(facts[name].inputs)
    return sorted(set(_behind(name, facts, frontiers)))


def _behind(
    name: str, facts: Mapping[str, OperatorRecord], frontiers: Mapping[str, Shown]
) -> Iterable[str]:
    mine = facts[name]
    reads = [one for one in mine.reads if one in frontiers]
    if not reads:
        return [name]
    least = min(place(frontiers[one]) for one in reads)
    if mine.withholds and place(frontiers[name]) < least:
        return [name]
    # A step that moves times has one input: it is as far as that allows.
    same = [one for one in reads if frontiers[one] == frontiers[name]]
    follows = same or [one for one in reads if place(frontiers[one]) == least]
    return [below for one in follows for below in _behind(one, facts, frontiers)]
