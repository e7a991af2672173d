"""`predict`: what a window query returns on an engine, before it runs there.

>>> predict("streambase", 5, 1, [(30, 10), (31, 20), (36, 30), Stable(37)], "avg").values
(10.0, 15.0, 15.0, 15.0, 15.0, 20.0, 30.0)

A result becomes known when the *next* arrival shows that its instant has passed; the last ones
need a `Stable` at the end (errata S15, D16): nothing is flushed by itself.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from anabranch.errors import UsageError
from anabranch.model import Stable
from anabranch.windows.active import trace_active, trace_rows
from anabranch.windows.aggregate import aggregate, require_values
from anabranch.windows.engine import Engine
from anabranch.windows.every import trace_every
from anabranch.windows.profiles.known import engine as engine_named
from anabranch.windows.stream import Given, Item, on_system_time, read, rows_of
from anabranch.windows.trace import Query, Step, Visit

__all__ = ["Prediction", "Result", "Stable", "predict", "run_query", "trace"]


@dataclass(frozen=True, slots=True)
class Result:
    """One result: its value, the window it is of, the tuples in it, and when it was shown."""

    value: Any
    start: int
    """First instant of the window (first tuple, for windows by rows)."""
    end: int
    """One past its last instant: the window is `[start, end)`."""
    instant: int
    """The application time for which it was reported."""
    step: int
    """The arrival that made it visible, counted from 1 (stables and batches count too)."""
    content: tuple[int, ...]
    """Numbers of the tuples in it."""
    late: bool = False
    """Whether time had gone past the window before its last tuple came."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "value": list(self.value) if isinstance(self.value, tuple) else self.value,
            "start": self.start,
            "end": self.end,
            "instant": self.instant,
            "step": self.step,
            "content": list(self.content),
            "late": self.late,
        }


@dataclass(frozen=True, slots=True)
class Prediction:
    """All results of a query on an engine, in the order in which they are shown."""

    engine: Engine
    query: Query
    results: tuple[Result, ...]

    @property
    def values(self) -> tuple[Any, ...]:
        """The values alone: what the paper prints."""
        return tuple(result.value for result in self.results)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "engine": self.engine.name,
            "size": self.query.size,
            "slide": self.query.slide,
            "agg": self.query.agg,
            "by": self.query.by,
            "results": [result.to_dict() for result in self.results],
        }

    def __str__(self) -> str:
        return f"{self.engine.name}: {', '.join(f'({show_value(v)})' for v in self.values)}"


def show_value(value: Any) -> str:
    """The text of a value: a whole average without its `.0`, nothing as `-`."""
    if value is None:
        return "-"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def predict(
    engine: str | Engine,
    size: int,
    slide: int,
    tuples: Iterable[Given],
    agg: str = "count",
    *,
    by: Literal["time", "rows", "arrival"] = "time",
) -> Prediction:
    """What the query returns on that engine for these tuples."""
    return run_query(engine_named(engine), Query(size, slide, agg, by), tuples)


def run_query(engine: Engine, query: Query, tuples: Iterable[Given]) -> Prediction:
    """The same for values that are made already."""
    compute = aggregate(query.agg)
    items = read_for(query, tuples)
    results = tuple(
        _result(compute([row.value for row in visit.content]), visit, number)
        for number, step in enumerate(trace(engine, query, items), start=1)
        for visit in step.visits
        if visit.reported
    )
    return Prediction(engine, query, results)


def read_for(query: Query, tuples: Iterable[Given]) -> list[Item]:
    """The tuples as the query sees them, checked for its aggregate."""
    aggregate(query.agg)
    items = read(on_system_time(tuples) if query.by == "arrival" else tuples)
    require_values(query.agg, rows_of(items))
    return items


def trace(
    engine: Engine, query: Query, items: Sequence[Item], *, every_instant: bool = False
) -> list[Step]:
    """Each arrival and what it did; see `anabranch.windows.trace`."""
    require_fit(engine, query)
    if engine.windows == "every":
        return trace_every(engine, query, items)
    if query.by == "rows":
        return trace_rows(engine, query, items)
    return trace_active(engine, query, items, every_instant=every_instant)


def require_fit(engine: Engine, query: Query) -> None:
    """Raise unless the engine has such windows."""
    found = unfit(engine, query)
    if found is not None:
        message = f"{engine.name} {found[0]}{found[1]}"
        raise UsageError(message)


def unfit(engine: Engine, query: Query) -> tuple[str, str] | None:
    """What the engine lacks for such windows, and what the query asks for; None if it fits."""
    if query.slide > query.size and not engine.gaps:
        asked = f", this query has size {query.size} and slide {query.slide}"
        return "takes no slide above the size", asked
    if engine.windows != "every":
        return None
    if abs(engine.start.offset) >= query.slide and engine.start.anchor == "grid":
        asked = f", this query has offset {engine.start.offset} and slide {query.slide}"
        return "takes only an offset below the slide", asked
    if query.by == "rows":
        instead = "; use one of the engines that show one window at a time, or windows of time"
        return "has no windows of tuples", instead
    return None


def _result(value: Any, visit: Visit, step: int) -> Result:
    return Result(
        value=value,
        start=visit.window.after + 1,
        end=visit.window.upto + 1,
        instant=visit.instant,
        step=step,
        content=tuple(row.number for row in visit.content),
        late=visit.late,
    )
