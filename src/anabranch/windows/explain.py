"""`explain`: why each result was reported, and why others were not, by dimension.

For each arrival: did the system tick, and why; for each call of report that followed: which
scope, which content, and the result of each condition of the engine.  Tuples that are
in no result are named with the dimension that kept them out.

>>> print(
...     explain("stream", 5, 1, [(30, 10), (31, 20), Stable(33)], "avg")
... )  # doctest: +ELLIPSIS
stream, size 5, slide 1, avg: (10), (15)
1. (30, 10): tick: time-driven, time moved on to 30
   29: silent; scope (25, 29]; content {}; report: content change no...
2. (31, 20): tick: time-driven, time moved on to 31
   30: (10); scope (25, 30]; content {10}; report: content change yes...
3. stable 33: tick: a stable advanced time to 33
   31: (15); scope (26, 31]; content {10, 20}; report: content change yes...
   32: silent; scope (27, 32]; content {10, 20}; report: content change no...
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from anabranch.model import Stable
from anabranch.windows.aggregate import aggregate
from anabranch.windows.engine import Engine
from anabranch.windows.predict import Prediction, read_for, run_query, show_value, trace
from anabranch.windows.profiles.known import engine as engine_named
from anabranch.windows.reasons import (
    condition_reasons,
    show_item,
    show_scope,
    tick_reason,
    unseen_reasons,
)
from anabranch.windows.stream import Given, Item, rows_of
from anabranch.windows.trace import Query, Step, Visit

_MOST_INSTANTS = 10_000
"""Up to this number of time units every call of report is listed, otherwise only those that
could be answered: a gap of a day has many microseconds."""

Dimension: TypeAlias = Literal["scope", "content", "report", "tick"]


@dataclass(frozen=True, slots=True)
class Reason:
    """One dimension's word: what it asked for, whether that held, and why."""

    dimension: Dimension
    rule: str
    holds: bool
    why: str

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "dimension": self.dimension,
            "rule": self.rule,
            "holds": self.holds,
            "why": self.why,
        }


@dataclass(frozen=True, slots=True)
class Answer:
    """One call of report: reported with a value, or not, and the reasons."""

    instant: int
    reported: bool
    value: Any
    scope: str
    content: tuple[Any, ...]
    reasons: tuple[Reason, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "instant": self.instant,
            "reported": self.reported,
            "value": list(self.value) if isinstance(self.value, tuple) else self.value,
            "scope": self.scope,
            "content": list(self.content),
            "reasons": [one.to_dict() for one in self.reasons],
        }

    def __str__(self) -> str:
        word = f"({show_value(self.value)})" if self.reported else "silent"
        asked = ", ".join(
            f"{one.rule.replace('_', ' ')} {'yes' if one.holds else 'no'} ({one.why})"
            for one in self.reasons
        )
        content = "{" + ", ".join(show_value(value) for value in self.content) + "}"
        return (
            f"{self.instant}: {word}; scope {self.scope}; content {content}; "
            f"report: {asked or 'always'}"
        )


@dataclass(frozen=True, slots=True)
class Explained:
    """One arrival, whether the system acted on it, and what it then looked at."""

    arrival: str
    tick: Reason
    answers: tuple[Answer, ...]
    drops: tuple[Reason, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "arrival": self.arrival,
            "tick": self.tick.to_dict(),
            "answers": [one.to_dict() for one in self.answers],
            "drops": [one.to_dict() for one in self.drops],
        }


@dataclass(frozen=True, slots=True)
class Explanation:
    """A prediction with its reasons, arrival by arrival."""

    prediction: Prediction
    steps: tuple[Explained, ...]
    unseen: tuple[Reason, ...]
    """One for each tuple that is in no result."""
    complete: bool
    """Whether every call of report is listed, or only those that could be answered."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "prediction": self.prediction.to_dict(),
            "steps": [one.to_dict() for one in self.steps],
            "unseen": [one.to_dict() for one in self.unseen],
            "complete": self.complete,
        }

    def __str__(self) -> str:
        query, engine = self.prediction.query, self.prediction.engine
        values = ", ".join(f"({show_value(value)})" for value in self.prediction.values)
        lines = [
            f"{engine.name}, size {query.size}, slide {query.slide}, {query.agg}: {values}"
        ]
        for number, step in enumerate(self.steps, start=1):
            lines.append(f"{number}. {step.arrival}: tick: {step.tick.why}")
            lines += [f"   {answer}" for answer in step.answers]
            lines += [f"   {drop.dimension}: {drop.why}" for drop in step.drops]
        lines += [f"in no result, by {one.dimension}: {one.why}" for one in self.unseen]
        return "\n".join(lines)


def explain(
    engine: str | Engine,
    size: int,
    slide: int,
    tuples: Iterable[Given],
    agg: str = "count",
    *,
    by: Literal["time", "rows", "arrival"] = "time",
) -> Explanation:
    """Why the query returns what it returns on that engine."""
    system, query, kept = engine_named(engine), Query(size, slide, agg, by), list(tuples)
    prediction = run_query(system, query, kept)
    items = read_for(query, kept)
    complete = _span(items) <= _MOST_INSTANTS
    steps = trace(system, query, items, every_instant=complete)
    explained = []
    last: Item | None = None
    for step in steps:
        explained.append(_explained(system, query, step, last))
        last = step.items[-1] if step.items else last
    unseen = tuple(
        Reason(dimension, "seen", holds=False, why=why)
        for dimension, why in unseen_reasons(system, query, steps, rows_of(items))
    )
    return Explanation(prediction, tuple(explained), unseen, complete)


def _span(items: Sequence[Item]) -> int:
    times = [int(item.time) for item in items]
    return max(times) - min(times) if times else 0


def _explained(engine: Engine, query: Query, step: Step, last: Item | None) -> Explained:
    arrival = ", ".join(map(show_item, step.items)) or "a batch without data"
    drops = tuple(
        Reason("scope", "window", holds=False, why=f"{show_item(drop.row)} is in no window")
        if drop.window is None
        else Reason(
            "content",
            "lateness",
            holds=False,
            why=f"{show_item(drop.row)} is too late for {show_scope(engine, drop.window)}: "
            f"time is known to have reached {drop.frontier}",
        )
        for drop in step.drops
    )
    tick = Reason("tick", engine.tick, step.ticked, tick_reason(engine, step, last))
    answers = tuple(_answer(engine, query, visit) for visit in step.visits)
    return Explained(arrival, tick, answers, drops)


def _answer(engine: Engine, query: Query, visit: Visit) -> Answer:
    values = tuple(row.value for row in visit.content)
    reasons = tuple(
        Reason("report", rule, holds, why)
        for rule, holds, why in condition_reasons(engine, query, visit)
    )
    value = aggregate(query.agg)(values) if visit.reported else None
    scope = show_scope(engine, visit.scope)
    return Answer(visit.instant, visit.reported, value, scope, values, reasons)


__all__ = ["Answer", "Explained", "Explanation", "Reason", "Stable", "explain"]
