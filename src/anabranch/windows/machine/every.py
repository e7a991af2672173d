"""The incremental form of `every`: engines that keep every window.

A window is one accumulator, so a tuple costs one addition for each window it is in, and the
state holds one entry per open window (with `collect`: its values).  A content only grows, so
it has changed exactly when a tuple came in since it was last shown.

Papers: SECRET 3.2.1 (2), errata D18, D19.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Any

from anabranch.model import Stable
from anabranch.windows.aggregate import require_arrival
from anabranch.windows.engine import Engine, Progress
from anabranch.windows.machine.accumulate import Growing, share
from anabranch.windows.machine.reported import Fed, Late, Reason, Reported
from anabranch.windows.stream import Arrival, BatchNumbers
from anabranch.windows.trace import Query


@dataclass(slots=True)
class _Held:
    """One window: its aggregate, how many tuples came since it was shown, if it has closed."""

    sums: Growing
    fresh: int = 0
    closed: bool = False


class EveryMachine:
    """One engine with one query, at some point of the stream."""

    def __init__(self, engine: Engine, query: Query) -> None:
        self.engine, self.query = engine, query
        self.progress: Progress = engine.progress or Progress()
        self.batches = BatchNumbers()
        self.steps = 0
        self._t0: int | None = None
        self._held: dict[int, _Held] = {}
        # Starts of held windows, least first: those not yet closed, and all.
        self._open: list[int] = []
        self._all: list[int] = []
        self._greatest: int | None = None
        self._frontier: int | None = self.progress.starts
        self._judged: int | None = self.progress.starts
        self._pending: list[Arrival] = []
        self._shown: list[Reported] = []
        self._late: list[Late] = []

    def feed(self, items: Iterable[Arrival | Stable], *, more: bool = False) -> Fed:
        """Take these; with `more` the last batch may go on."""
        for item in items:
            if isinstance(item, Stable):
                self._flush()
                self._stable(int(item.time))
                continue
            require_arrival(self.query.agg, item)
            before = self.batches.number
            batch = self.batches.take(item.batch)
            if self._pending and (batch != before or self.engine.tick == "tuple"):
                self._flush()
            self._pending.append(item)
        if not more:
            self._flush()
        fed = Fed(tuple(self._shown), tuple(self._late))
        self._shown, self._late = [], []
        return fed

    def _flush(self) -> None:
        if self._pending:
            rows, self._pending = self._pending, []
            self._take(rows)

    def _take(self, rows: list[Arrival]) -> None:
        known = self.progress.known
        self.steps += 1
        moved = self._moved(rows)
        if known == "before":
            self._frontier = moved
        touched = self._place(rows, self._judge())
        self._show_late(touched)
        if known == "after":
            self._frontier = moved
        self._report(touched)
        if known == "next":
            self._judged = self._frontier
            advanced = moved != self._frontier
            self._frontier = moved
            if advanced and self.progress.idle_batches and self.progress.lateness is not None:
                self._judged = moved
                self.steps += 1
                self._report([])

    def _judge(self) -> int | None:
        return self._judged if self.progress.known == "next" else self._frontier

    def _stable(self, time: int) -> None:
        self.steps += 1
        self._frontier = time if self._frontier is None else max(self._frontier, time)
        self._judged = self._frontier
        if self.engine.report.window_close:
            self._report([])

    def _moved(self, rows: list[Arrival]) -> int | None:
        top = max(row.time for row in rows)
        self._greatest = top if self._greatest is None else max(self._greatest, top)
        if self.progress.delay is None:
            return self._frontier
        reached = self._greatest - self.progress.delay
        return reached if self._frontier is None else max(self._frontier, reached)

    def _place(self, rows: list[Arrival], judge: int | None) -> list[int]:
        start_of, query = self.engine.start, self.query
        if self._t0 is None:
            self._t0 = start_of.t0(rows[0].time, query.size, query.slide)
        touched: dict[int, None] = {}
        for row in rows:
            starts = start_of.starts(row.time, query.size, query.slide, self._t0)
            added = share(query.agg, row.value)
            if not starts:
                self._late.append(Late(row.time, row.value, self.steps, "in no window"))
            for start in starts:
                end = start + query.size
                if self._too_late(end, judge):
                    why: Reason = "too late for this window"
                    late = Late(row.time, row.value, self.steps, why, start, end)
                    self._late.append(late)
                else:
                    self._window(start).sums.add(row.value, added)
                    self._held[start].fresh += 1
                    touched[start] = None
        return sorted(touched)

    def _window(self, start: int) -> _Held:
        held = self._held.get(start)
        if held is None:
            held = self._held[start] = _Held(Growing(self.query.agg))
            heappush(self._all, start)
            if self.engine.report.window_close:
                heappush(self._open, start)
        return held

    def _too_late(self, end: int, judge: int | None) -> bool:
        lateness = self.progress.lateness
        if judge is None or lateness is None:
            return False
        limit = end + lateness
        return limit < judge or (limit == judge and not self.progress.late_at_limit)

    def _has_closed(self, start: int) -> bool:
        return self._frontier is not None and start + self.query.size <= self._frontier

    def _show_late(self, touched: list[int]) -> None:
        """Windows that took a tuple after they had closed, or that such a tuple made."""
        if not self.engine.report.window_close:
            return
        at_once = self.progress.known == "after"
        late = [
            start
            for start in touched
            if self._held[start].closed or (at_once and self._has_closed(start))
        ]
        for start in reversed(late) if self.progress.latest_first else late:
            self._visit(start, closed=True, late=True)
        for start in late:
            self._held[start].closed = True

    def _report(self, touched: list[int]) -> None:
        report = self.engine.report
        if report.window_close:
            while self._open and self._has_closed(self._open[0]):
                start = heappop(self._open)
                held = self._held.get(start)
                if held is not None and not held.closed:
                    self._visit(start, closed=True, late=False)
                    held.closed = True
        else:
            for start in touched if report.content_change else sorted(self._held):
                self._visit(start, closed=False, late=False)
        self._forget()

    def _forget(self) -> None:
        """Drop the windows that can receive no more tuples, the oldest first."""
        judge, waits = self._judge(), self.engine.report.window_close
        while self._all and self._too_late(self._all[0] + self.query.size, judge):
            if waits and not self._held[self._all[0]].closed:
                return
            del self._held[heappop(self._all)]

    def _visit(self, start: int, *, closed: bool, late: bool) -> None:
        held = self._held[start]
        discarding = self.progress.keeps == "discarding"
        failed = self.engine.report.failed(
            changed=held.fresh > 0, closed=closed, empty=not held.sums.count, instant=0
        )
        if failed:
            return
        instant = self._greatest if self._greatest is not None else start
        value, count = held.sums.value(), held.sums.count
        end = start + self.query.size
        self._shown.append(Reported(value, start, end, instant, self.steps, count, late))
        held.fresh = 0
        if discarding:
            held.sums = Growing(self.query.agg)

    def to_state(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "steps": self.steps,
            "batches": self.batches.to_state(),
            "t0": self._t0,
            "frontiers": [self._greatest, self._frontier, self._judged],
            "pending": [[row.time, row.value] for row in self._pending],
            "held": [
                [start, held.fresh, held.closed, held.sums.to_state()]
                for start, held in sorted(self._held.items())
            ],
        }

    def from_state(self, state: dict[str, Any]) -> None:
        """Restore the result of `to_state`."""
        self.steps, self._t0 = state["steps"], state["t0"]
        self.batches = BatchNumbers.from_state(state["batches"])
        self._greatest, self._frontier, self._judged = state["frontiers"]
        self._pending = [Arrival(time, value) for time, value in state["pending"]]
        self._held = {
            start: _Held(Growing.from_state(self.query.agg, sums), fresh, closed)
            for start, fresh, closed, sums in state["held"]
        }
        self._all = list(self._held)
        self._open = [start for start, held in self._held.items() if not held.closed]
        if not self.engine.report.window_close:
            self._open = []
        heapify(self._all)
        heapify(self._open)
