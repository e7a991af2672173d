"""Windows over two inputs, as for a join: their contents, and when they are reported.

Tick, scope and content are those of one input, for each of the two: the arrivals of both inputs
are one sequence, which drives the tick; each side has its own windows and its own content.
What the paper leaves open is report: when do the two windows become visible?  Here, each
condition is asked of both sides, and holds if it holds for `any` of them or for `all`:

* `any`: a content that changed, or a window that closed, on either side shows both;
* `all`: both must have changed, closed, be non-empty.

Papers: SECRET B.2.2.

>>> from anabranch.windows.profiles.known import engine
>>> both = [("left", (1, "a")), ("right", (1, "b")), ("left", (2, "c")), ("left", (4, "d"))]
>>> side = Query(size=1, slide=1)
>>> found = predict_join(engine("streambase"), side, side, both, when="all")
>>> [(one.instant, one.pairs) for one in found]
[(1, (('a', 'b'),))]
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from anabranch.errors import InputError, UsageError
from anabranch.windows.active import answerable, content_of
from anabranch.windows.engine import Engine
from anabranch.windows.report import Report
from anabranch.windows.scope import Shape
from anabranch.windows.stream import (
    Given,
    Item,
    Row,
    read,
    require_order,
    require_plain_batches,
)
from anabranch.windows.tick import LastTick, calls
from anabranch.windows.trace import Query

Side = Literal["left", "right"]


@dataclass(frozen=True, slots=True)
class JoinResult:
    """What became visible: the contents of both windows, and the pairs that match."""

    instant: int
    step: int
    left: tuple[int, ...]
    right: tuple[int, ...]
    pairs: tuple[tuple[Any, Any], ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "instant": self.instant,
            "step": self.step,
            "left": list(self.left),
            "right": list(self.right),
            "pairs": [list(pair) for pair in self.pairs],
        }


@dataclass(slots=True)
class _Input:
    """One side: its windows, its tuples, and what was last reported of it."""

    shape: Shape
    rows: list[Row]
    times: list[int]
    arrived: int = 0
    reported: tuple[Row, ...] = ()

    def content(self, instant: int) -> tuple[Row, ...]:
        return content_of(self.rows, self.times, self.shape.scope(instant), self.arrived)

    def closes(self, instant: int, now: float) -> bool:
        scope = self.shape.scope(instant)
        return scope is not None and scope.length == self.shape.size and instant < now


def predict_join(
    engine: Engine,
    left: Query,
    right: Query,
    tuples: Iterable[tuple[Side, Given]],
    *,
    on: Callable[[Any, Any], bool] = lambda _left, _right: True,
    when: Literal["any", "all"] = "any",
) -> list[JoinResult]:
    """What a join over two windows is shown, and the pairs of values for which `on` is true."""
    if engine.windows != "active" or left.by != "time" or right.by != "time":
        message = f"{engine.name}: two inputs need one window at a time, by time, on each side"
        raise UsageError(message)
    if when not in {"any", "all"}:
        message = f"when is {when!r}; expected any or all"
        raise UsageError(message)
    given = list(tuples)
    items = read([one for _, one in given])
    require_order(items, f"{engine.name} (one window at a time)")
    if engine.tick == "batch":
        require_plain_batches(items)
    sides = [_side(place, side) for place, (side, _) in enumerate(given, start=1)]
    inputs = {
        name: _input(engine, query, items, sides, name)
        for name, query in (("left", left), ("right", right))
    }
    return _run(engine, inputs, items, sides, on, any if when == "any" else all)


def _side(place: int, side: object) -> str:
    if side not in {"left", "right"}:
        message = f"item {place} is of side {side!r}; expected 'left' or 'right'"
        raise InputError(message)
    return str(side)


def _input(
    engine: Engine, query: Query, items: Sequence[Item], sides: Sequence[str], name: str
) -> _Input:
    pairs = zip(items, sides, strict=True)
    rows = [item for item, side in pairs if side == name and isinstance(item, Row)]
    first = rows[0].time if rows else 0
    t0 = engine.start.t0(first, query.size, query.slide)
    return _Input(Shape(t0, query.size, query.slide), rows, [row.time for row in rows])


def _run(
    engine: Engine,
    inputs: dict[str, _Input],
    items: Sequence[Item],
    sides: Sequence[str],
    on: Callable[[Any, Any], bool],
    combine: Callable[[Iterable[bool]], bool],
) -> list[JoinResult]:
    both = [one for one in inputs.values() if one.rows]
    rows = [item for item in items if isinstance(item, Row)]
    if not rows:
        return []
    last = LastTick.before(rows[0].time, min(one.shape.t0 for one in both))
    results: list[JoinResult] = []
    begun = False
    for step, (item, side) in enumerate(zip(items, sides, strict=True), start=1):
        begun = begun or isinstance(item, Row)
        called = calls(engine.tick, last, item) if begun else None
        for instant in _candidates(engine.report, called, both):
            contents = {name: one.content(instant) for name, one in inputs.items()}
            if _shown(engine.report, inputs, contents, instant, item, combine):
                results.append(_result(instant, step, contents, on))
                for name, one in inputs.items():
                    one.reported = contents[name]
        last = last.after(item, called)
        inputs[side].arrived += isinstance(item, Row)
    return results


def _candidates(report: Report, called: range | None, both: Sequence[_Input]) -> list[int]:
    """Instants at which some side can close or change; conditions are asked one by one here."""
    if called is None:
        return []
    wanted = Report(window_close=report.window_close, period=report.period)
    if not report.window_close:
        wanted = Report(content_change=report.content_change, period=report.period)
    return sorted(
        {
            instant
            for one in both
            for instant in answerable(called, one.shape, wanted, one.times, one.arrived)
        }
    )


def _shown(
    report: Report,
    inputs: dict[str, _Input],
    contents: dict[str, tuple[Row, ...]],
    instant: int,
    item: Item,
    combine: Callable[[Iterable[bool]], bool],
) -> bool:
    return not report.failed(
        changed=combine(contents[name] != one.reported for name, one in inputs.items()),
        closed=combine(one.closes(instant, item.time) for one in inputs.values()),
        empty=not combine(bool(content) for content in contents.values()),
        instant=instant,
    )


def _result(
    instant: int,
    step: int,
    contents: dict[str, tuple[Row, ...]],
    on: Callable[[Any, Any], bool],
) -> JoinResult:
    left, right = contents["left"], contents["right"]
    return JoinResult(
        instant,
        step,
        tuple(row.number for row in left),
        tuple(row.number for row in right),
        tuple((a.value, b.value) for a in left for b in right if on(a.value, b.value)),
    )
