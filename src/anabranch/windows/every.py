"""All windows at once: every window that holds a tuple is kept, and reported by itself.

This is what Spark, Flink, Kafka Streams and Beam do, and what no active window can express: one
tuple changes several windows, and each of them is shown (erratum D18).  Tuples may come out of
order; which are too late is a matter of the engine's `Progress`.

A step is one tuple or one batch, by the engine's tick.  In a step:

1. each tuple goes into every window that holds its time and still takes tuples;
2. the frontier moves on;
3. report: with `window_close`, the windows that have just closed, and before them those that
   had closed earlier and took a tuple now; with `content_change` alone, the windows that
   took a tuple; with neither, every window that is kept.

With `Progress(known="before")` 2 comes before 1; with `next` the frontier of a batch is made
from the batches before it, late tuples are judged by the one before that, and a batch without
data follows if the frontier moved.  A stable is a step of its own and moves the frontier.

Windows of one step are shown by their end, earliest first; late ones before the others.

Papers: SECRET 3.2.1 (2), errata D18, D19 and the table of current engines.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from anabranch.model import Stable
from anabranch.windows.engine import Engine, Progress
from anabranch.windows.scope import Scope
from anabranch.windows.stream import Item, Row, rows_of
from anabranch.windows.trace import Drop, Query, Step, Visit


def trace_every(engine: Engine, query: Query, items: Sequence[Item]) -> list[Step]:
    """Each step with the windows it looked at."""
    rows = rows_of(items)
    if engine.progress is None or not rows:
        return [Step((item,), ticked=False) for item in items]
    t0 = engine.start.t0(rows[0].time, query.size, query.slide)
    starts = engine.progress.starts
    run = _Run(engine, engine.progress, query, t0, frontier=starts, judged=starts)
    steps: list[Step] = []
    for unit in _units(engine, items):
        steps += run.stable(unit) if isinstance(unit, Stable) else run.take(unit)
    return steps


def _units(engine: Engine, items: Iterable[Item]) -> Iterator[tuple[Row, ...] | Stable]:
    """Stables, and tuples as the engine takes them: one by one, or batch by batch."""
    batch: list[Row] = []
    for item in items:
        ends = isinstance(item, Stable) or engine.tick == "tuple"
        if batch and (ends or (isinstance(item, Row) and item.batch != batch[0].batch)):
            yield tuple(batch)
            batch = []
        if isinstance(item, Stable):
            yield item
        else:
            batch.append(item)
    if batch:
        yield tuple(batch)


@dataclass(slots=True)
class _Held:
    """One window: its tuples, what was last reported of it, and whether it has closed."""

    content: list[Row] = field(default_factory=list)
    reported: tuple[Row, ...] = ()
    shown: int = 0
    closed: bool = False


@dataclass(slots=True)
class _Run:
    """An engine at work."""

    engine: Engine
    progress: Progress
    query: Query
    t0: int
    held: dict[int, _Held] = field(default_factory=dict)
    greatest: int | None = None
    frontier: int | None = None
    judged: int | None = None
    """With `next`: the frontier by which late tuples are judged."""

    def take(self, rows: tuple[Row, ...]) -> list[Step]:
        """A tuple, or a batch of them."""
        known = self.progress.known
        moved = self._moved(rows)
        if known == "before":
            self.frontier = moved
        judge = self.judged if known == "next" else self.frontier
        touched, drops = self._place(rows, judge)
        visits = self._late(touched)
        if known == "after":
            self.frontier = moved
        visits += self._report(touched)
        steps = [Step(tuple(rows), ticked=True, visits=tuple(visits), drops=tuple(drops))]
        if known == "next":
            self.judged = self.frontier
            advanced = moved != self.frontier
            self.frontier = moved
            # Spark runs an empty batch only where it can let something go.
            if advanced and self.progress.idle_batches and self.progress.lateness is not None:
                self.judged = moved
                steps.append(Step((), ticked=True, visits=tuple(self._report([]))))
        return steps

    def stable(self, stable: Stable) -> list[Step]:
        """Time has reached that point."""
        time = int(stable.time)
        self.frontier = time if self.frontier is None else max(self.frontier, time)
        self.judged = self.frontier
        visits = self._report([]) if self.engine.report.window_close else []
        return [Step((stable,), ticked=True, visits=tuple(visits))]

    def _moved(self, rows: tuple[Row, ...]) -> int | None:
        """The frontier once these tuples are known."""
        top = max(row.time for row in rows)
        self.greatest = top if self.greatest is None else max(self.greatest, top)
        if self.progress.delay is None:
            return self.frontier
        reached = self.greatest - self.progress.delay
        return reached if self.frontier is None else max(self.frontier, reached)

    def _place(self, rows: tuple[Row, ...], judge: int | None) -> tuple[list[int], list[Drop]]:
        touched: dict[int, None] = {}
        drops: list[Drop] = []
        query = self.query
        for row in rows:
            starts = self.engine.start.starts(row.time, query.size, query.slide, self.t0)
            if not starts:
                drops.append(Drop(row, None, judge))
            for start in starts:
                if self._too_late(start + query.size, judge):
                    drops.append(Drop(row, self._window(start), judge))
                else:
                    self.held.setdefault(start, _Held()).content.append(row)
                    touched[start] = None
        return sorted(touched), drops

    def _too_late(self, end: int, judge: int | None) -> bool:
        lateness = self.progress.lateness
        if judge is None or lateness is None:
            return False
        limit = end + lateness
        return limit < judge or (limit == judge and not self.progress.late_at_limit)

    def _window(self, start: int) -> Scope:
        return Scope(start - 1, start - 1 + self.query.size)

    def _late(self, touched: list[int]) -> list[Visit]:
        """Windows that took a tuple after they had closed, or that such a tuple made."""
        if not self.engine.report.window_close:
            return []
        at_once = self.progress.known == "after"
        late = [
            start
            for start in touched
            if self.held[start].closed or (at_once and self._has_closed(start))
        ]
        if self.progress.latest_first:
            late.reverse()
        visits = [self._visit(start, closed=True, late=True) for start in late]
        for start in late:
            self.held[start].closed = True
        return visits

    def _report(self, touched: list[int]) -> list[Visit]:
        report = self.engine.report
        visits: list[Visit] = []
        if report.window_close:
            looked = [
                start
                for start, held in self.held.items()
                if not held.closed and (self._has_closed(start) or start in touched)
            ]
            for start in sorted(looked):
                closes = self._has_closed(start)
                visits.append(self._visit(start, closed=closes, late=False))
                self.held[start].closed = closes
        else:
            looked = touched if report.content_change else sorted(self.held)
            visits = [self._visit(start, closed=False, late=False) for start in looked]
        self._forget()
        return visits

    def _has_closed(self, start: int) -> bool:
        return self.frontier is not None and start + self.query.size <= self.frontier

    def _forget(self) -> None:
        """Drop the windows that take no tuple any more, and have nothing left to report."""
        judge = self.judged if self.progress.known == "next" else self.frontier
        if judge is None or self.progress.lateness is None:
            return
        closes, size = self.engine.report.window_close, self.query.size
        gone = [
            start
            for start, held in self.held.items()
            if (held.closed or not closes) and self._too_late(start + size, judge)
        ]
        for start in gone:
            del self.held[start]

    def _visit(self, start: int, *, closed: bool, late: bool) -> Visit:
        held = self.held[start]
        content = tuple(held.content)
        new = content[held.shown :] if self.progress.keeps == "discarding" else content
        failed = self.engine.report.failed(
            changed=content != held.reported, closed=closed, empty=not new, instant=0
        )
        instant = self.greatest if self.greatest is not None else start
        window = self._window(start)
        visit = Visit(instant, window, window, new, failed, held.reported, late, self.frontier)
        if not failed:
            held.reported, held.shown = content, len(content)
        return visit
