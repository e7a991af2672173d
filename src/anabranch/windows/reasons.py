"""The texts of an explanation: for ticks, conditions and missing tuples.

Each function reads a trace and evaluates nothing again: the trace has the result of every
condition.
"""

from collections.abc import Iterator, Sequence
from typing import Literal

from anabranch.model import Stable
from anabranch.windows.engine import Engine
from anabranch.windows.predict import show_value
from anabranch.windows.report import Condition
from anabranch.windows.scope import Scope
from anabranch.windows.stream import Item, Row
from anabranch.windows.trace import Query, Step, Visit


def show_item(item: Item) -> str:
    """A tuple as the paper writes it, or a stable."""
    if isinstance(item, Stable):
        return f"stable {int(item.time)}"
    value = item.value
    return f"({item.time}, {show_value(value) if isinstance(value, float) else value})"


def show_scope(engine: Engine, scope: Scope | None) -> str:
    """A scope as the paper writes it, or as engines of today do."""
    if scope is None:
        return "none"
    half_open = f"[{scope.after + 1}, {scope.upto + 1})"
    return half_open if engine.windows == "every" else str(scope)


def tick_reason(engine: Engine, step: Step, last: Item | None) -> str:
    """Why the system acted, or did not."""
    if not step.items:
        return "the time of the previous batch is now known"
    item = step.items[0]
    if isinstance(item, Stable):
        word = "advanced time to" if step.ticked else "does not advance time, which is"
        return f"a stable {word} {int(item.time)}"
    if engine.windows == "every":
        return f"{engine.tick}-driven, a {engine.tick} came"
    if not step.ticked:
        return _no_tick(engine, item, last)
    if last is None or item.time > last.time or engine.tick == "time":
        return f"{engine.tick}-driven, time moved on to {item.time}"
    return f"{engine.tick}-driven, a new {engine.tick} at the same time {item.time}"


def _no_tick(engine: Engine, row: Row, last: Item | None) -> str:
    if last is None or row.time > last.time:
        return f"no window has started at {row.time}"
    if engine.tick == "batch":
        return f"batch-driven, batch {row.batch} had ticked already"
    return f"{engine.tick}-driven, time is still {row.time}"


def condition_reasons(
    engine: Engine, query: Query, visit: Visit
) -> Iterator[tuple[str, bool, str]]:
    """Each condition that the engine asks for: whether it held, and why."""
    report = engine.report
    asked: tuple[tuple[Condition, bool], ...] = (
        ("content_change", report.content_change),
        ("window_close", report.window_close),
        ("non_empty", report.non_empty),
        ("period", report.period not in {None, 1}),
    )
    for name, wanted in asked:
        if wanted:
            holds = name not in visit.failed
            yield name, holds, _word(name, engine, query, visit, holds=holds)


def _word(name: Condition, engine: Engine, query: Query, visit: Visit, *, holds: bool) -> str:
    if name == "content_change":
        return _change(visit) if holds else "as last reported"
    if name == "window_close":
        return _close(engine, query, visit, holds=holds)
    if name == "non_empty":
        return f"{len(visit.content)} {'tuple' if len(visit.content) == 1 else 'tuples'}"
    return f"{visit.instant} by {engine.report.period}"


def _change(visit: Visit) -> str:
    entered = len(set(visit.content) - set(visit.last))
    left = len(set(visit.last) - set(visit.content))
    return f"{entered} entered, {left} left"


def _close(engine: Engine, query: Query, visit: Visit, *, holds: bool) -> str:
    if query.by == "rows":
        return f"{len(visit.content)} of {query.size} tuples"
    if engine.windows == "every":
        starts = engine.progress.starts if engine.progress else None
        if visit.frontier is None or (visit.frontier == starts and not holds):
            return "open, nothing is known of time"
        return f"{'closed' if holds else 'open'}, time has reached {visit.frontier}"
    if holds:
        return f"time went past {visit.window.upto}"
    if visit.scope is not None and visit.scope.length == query.size:
        return f"time has not gone past {visit.instant}"
    return f"{visit.window} is open"


def unseen_reasons(
    engine: Engine, query: Query, steps: Sequence[Step], rows: Sequence[Row]
) -> Iterator[tuple[Literal["scope", "content", "report", "tick"], str]]:
    """Each tuple that is in no result, with the dimension that kept it out."""
    reported = _numbers(steps, reported=True)
    looked_at = _numbers(steps, reported=False)
    dropped = {drop.row.number: drop for step in steps for drop in step.drops}
    for row in rows:
        if row.number in reported:
            continue
        name = show_item(row)
        if row.number in dropped and row.number not in looked_at:
            window = dropped[row.number].window
            if window is None:
                yield "scope", f"{name} is in no window"
            else:
                yield "content", f"{name} came too late for every window"
        elif row.number in looked_at:
            yield "report", f"{name} was looked at, but no such content was reported"
        elif query.by == "rows":
            yield _unseen_by_number(engine, query, steps, row)
        elif _instant_passed(steps, row):
            yield "scope", f"{name} is in no window that was looked at"
        else:
            yield "tick", f"{name}: nothing came after it to show that its time has passed"


def _unseen_by_number(
    engine: Engine, query: Query, steps: Sequence[Step], row: Row
) -> tuple[Literal["scope", "content", "tick"], str]:
    t0 = engine.start.t0_of_rows(query.size, query.slide)
    if row.number <= t0 or (row.number - t0 - 1) % query.slide >= query.size:
        return "scope", f"{show_item(row)} is between two windows"
    seen = [visit.scope.upto for step in steps for visit in step.visits if visit.scope]
    if row.number <= max(seen, default=0):
        return "content", f"{show_item(row)} evaporated: more came at once than are looked at"
    return "tick", f"{show_item(row)}: nothing came after it to show its window"


def _numbers(steps: Sequence[Step], *, reported: bool) -> set[int]:
    return {
        row.number
        for step in steps
        for visit in step.visits
        if visit.reported or not reported
        for row in visit.content
    }


def _instant_passed(steps: Sequence[Step], row: Row) -> bool:
    """Whether report was called for its time or later, after it had come."""
    arrived = False
    for step in steps:
        if arrived and any(visit.instant >= row.time for visit in step.visits):
            return True
        arrived = arrived or row in step.items
    return False
