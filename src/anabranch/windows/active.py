"""One window at a time: tick calls report, report looks at content, content at scope.

`trace_active` is for windows of time, `trace_rows` for windows of tuples.  Tuples come in order
of time.

The content at an instant is every tuple of its scope that arrived *before* the one that ticked
(3.2.2, erratum S8).  Since tuples are in order, it is a run of consecutive tuples.

Calls of report that cannot be answered need not be made, and a gap of a day has many
microseconds: unless `every_instant` is asked for, only those instants are visited at which a
report is possible.  The results are the same (a law in the tests).

For windows of tuples (B.2.1, erratum S16) the scope is on the numbers of the tuples, a tick
calls report once, for all tuples that came before; if several windows closed in between, only
the last is shown.  So tuples may evaporate in systems that do not tick for each.

Papers: SECRET 3.2, B.2.1.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence

from anabranch.windows.engine import Engine
from anabranch.windows.report import Report
from anabranch.windows.scope import Scope, Shape
from anabranch.windows.stream import Item, Row, require_order, require_plain_batches, rows_of
from anabranch.windows.tick import LastTick, calls
from anabranch.windows.trace import Query, Step, Visit


def trace_active(
    engine: Engine, query: Query, items: Sequence[Item], *, every_instant: bool = False
) -> list[Step]:
    """Each arrival with the calls of report that it caused, for windows of time."""
    shape, last = _begin(engine, query, items)
    if shape is None or last is None:
        return [Step((item,), ticked=False) for item in items]
    rows = rows_of(items)
    times = [row.time for row in rows]
    steps: list[Step] = []
    arrived = 0
    reported: tuple[Row, ...] = ()
    for item in items:
        called = calls(engine.tick, last, item) if arrived or isinstance(item, Row) else None
        visits: list[Visit] = []
        if called is not None:
            chosen: Iterable[int] = called
            if not every_instant:
                chosen = answerable(called, shape, engine.report, times, arrived)
            for instant in chosen:
                scope = shape.scope(instant)
                content = content_of(rows, times, scope, arrived)
                visit = _visit(engine.report, shape, item, instant, scope, content, reported)
                visits.append(visit)
                reported = content if visit.reported else reported
        steps.append(Step((item,), called is not None, tuple(visits)))
        last = last.after(item, called)
        arrived += isinstance(item, Row)
    return steps


def _begin(
    engine: Engine, query: Query, items: Sequence[Item]
) -> tuple[Shape | None, LastTick | None]:
    require_order(items, f"{engine.name} (one window at a time)")
    if engine.tick == "batch":
        require_plain_batches(items)
    rows = rows_of(items)
    if not rows:
        return None, None
    t0 = engine.start.t0(rows[0].time, query.size, query.slide)
    return Shape(t0, query.size, query.slide), LastTick.before(rows[0].time, t0)


def content_of(
    rows: Sequence[Row], times: Sequence[int], scope: Scope | None, arrived: int
) -> tuple[Row, ...]:
    """The tuples in the scope, of those that arrived first; `times` is that of `rows`."""
    if scope is None:
        return ()
    low = bisect_right(times, scope.after, 0, arrived)
    high = bisect_right(times, scope.upto, 0, arrived)
    return tuple(rows[low:high])


def _visit(
    report: Report,
    shape: Shape,
    item: Item,
    instant: int,
    scope: Scope | None,
    content: tuple[Row, ...],
    reported: tuple[Row, ...],
) -> Visit:
    # Erratum S7: the window is whole, and time is known to have gone past it.
    whole = scope is not None and scope.length == shape.size
    failed = report.failed(
        changed=content != reported,
        closed=whole and instant < item.time,
        empty=not content,
        instant=instant,
    )
    return Visit(instant, shape.window(instant), scope, content, failed, reported)


def answerable(
    called: range, shape: Shape, report: Report, times: Sequence[int], arrived: int
) -> Iterator[int]:
    """The instants of a call at which a report is possible, in order; perhaps a few more.

    Between two arrivals a content changes only when a tuple expires.
    """
    stop = called.stop
    if report.non_empty:
        stop = min(stop, shape.expiry(times[arrived - 1])) if arrived else called.start
    reached = called.start
    for change in _changes(called.start, stop, shape, report, times, arrived):
        instant = _next_answer(max(change, reached), shape, report, stop)
        while instant is not None:
            yield instant
            reached = instant + 1
            if report.content_change:
                break
            instant = _next_answer(reached, shape, report, stop)


def _changes(
    start: int, stop: int, shape: Shape, report: Report, times: Sequence[int], arrived: int
) -> Iterator[int]:
    """The start, and each instant before `stop` at which a tuple expires."""
    yield start
    if report.content_change:
        low = bisect_right(times, shape.window(start).after, 0, arrived)
        while low < arrived and shape.expiry(times[low]) < stop:
            expiry = shape.expiry(times[low])
            yield expiry
            low = bisect_right(times, shape.window(expiry).after, low, arrived)


def _next_answer(instant: int, shape: Shape, report: Report, stop: int) -> int | None:
    """The first instant from this one on that suits window close and period."""
    period = report.period or 1
    if not report.window_close:
        instant += -instant % period
        return instant if instant < stop else None
    for _ in range(period):
        instant = shape.next_close(instant)
        if instant >= stop:
            return None
        if instant % period == 0:
            return instant
        instant += 1
    return None


def trace_rows(engine: Engine, query: Query, items: Sequence[Item]) -> list[Step]:
    """Each arrival with the call of report that it caused, for windows of tuples."""
    _, last = _begin(engine, query, items)
    rows = rows_of(items)
    if last is None:
        return [Step((item,), ticked=False) for item in items]
    # Any tuple has its number, wherever the windows of time would start.
    last = LastTick.before(rows[0].time, rows[0].time - 1)
    shape = Shape(engine.start.t0_of_rows(query.size, query.slide), query.size, query.slide)
    steps: list[Step] = []
    arrived = shown = 0
    reported: tuple[Row, ...] = ()
    for item in items:
        called = calls(engine.tick, last, item) if arrived or isinstance(item, Row) else None
        visits: tuple[Visit, ...] = ()
        if called is not None and arrived > shown:
            visit = _visit_rows(engine.report, shape, rows, shown, arrived, reported)
            reported = visit.content if visit.reported else reported
            visits, shown = (visit,), arrived
        steps.append(Step((item,), called is not None, visits))
        last = last.after(item, called)
        arrived += isinstance(item, Row)
    return steps


def _visit_rows(
    report: Report,
    shape: Shape,
    rows: Sequence[Row],
    shown: int,
    arrived: int,
    reported: tuple[Row, ...],
) -> Visit:
    upto = arrived
    if report.window_close:
        close = shape.next_close(shown + 1)
        if close <= arrived:
            upto = close + (arrived - close) // shape.slide * shape.slide
    scope = Scope(shape.window(upto).after, upto)
    content = tuple(rows[max(0, scope.after) : upto])
    failed = report.failed(
        changed=content != reported,
        closed=len(content) == shape.size,
        empty=not content,
        instant=rows[upto - 1].time,
    )
    instant = rows[arrived - 1].time
    return Visit(instant, shape.window(upto), scope, content, failed, reported)
