"""The incremental form of `active`: engines that show one window at a time.

It keeps the tuples that have not left the open window that started first, and the two ends of
the content that was reported last: contents are runs of consecutive tuples.  Both ends of the
content it looks at only move on, so that each tuple comes in once and leaves once, however many
windows it is in.

Papers: SECRET 3.2.
"""

from bisect import bisect_right
from collections.abc import Iterable
from typing import Any

from anabranch.errors import InputError
from anabranch.model import Stable
from anabranch.windows.active import answerable
from anabranch.windows.aggregate import require_arrival
from anabranch.windows.engine import Engine
from anabranch.windows.machine.accumulate import Sliding
from anabranch.windows.machine.reported import Fed, Late, Reason, Reported
from anabranch.windows.scope import Scope, Shape
from anabranch.windows.stream import Arrival, BatchNumbers, Item, Row
from anabranch.windows.tick import LastTick, calls
from anabranch.windows.trace import Query


class ActiveMachine:
    """One engine with one query, at some point of the stream."""

    def __init__(self, engine: Engine, query: Query) -> None:
        self.engine, self.query = engine, query
        self.batches = BatchNumbers()
        self.steps = 0
        self._reached: int | None = None
        self._shape: Shape | None = None
        self._last: LastTick | None = None
        self._batch_time: int | None = None
        # Open tuples; `_gone` came before them. `_low` and `_high` are the ends of `_run`.
        self._times: list[int] = []
        self._values: list[Any] = []
        self._gone = 0
        self._low = self._high = 0
        self._run = Sliding(query.agg)
        self._reported = (0, 0)

    def feed(self, items: Iterable[Arrival | Stable], *, more: bool = False) -> Fed:  # noqa: ARG002
        """Take these; whether a batch goes on makes no difference here."""
        shown: list[Reported] = []
        late: list[Late] = []
        for item in items:
            if self._reached is not None and int(item.time) < self._reached:
                if isinstance(item, Arrival):
                    why: Reason = "earlier than what was there"
                    late.append(Late(item.time, item.value, self.steps, why))
                continue
            self._reached = int(item.time)
            self.steps += 1
            if isinstance(item, Stable):
                shown += self._arrive(item)
                continue
            require_arrival(self.query.agg, item)
            number = self._gone + len(self._times) + 1
            shape = self._begun(item.time)
            shown += self._arrive(Row(number, item.time, item.value, number, self._batch(item)))
            self._times.append(item.time)
            self._values.append(None if self.query.agg == "count" else item.value)
            if item.time <= shape.t0 or (item.time - shape.t0 - 1) % shape.slide >= shape.size:
                late.append(Late(item.time, item.value, self.steps, "in no window"))
        return Fed(tuple(shown), tuple(late))

    def _begun(self, first: int) -> Shape:
        """All windows; they start at the first tuple."""
        if self._shape is None:
            query = self.query
            t0 = self.engine.start.t0(first, query.size, query.slide)
            self._shape = Shape(t0, query.size, query.slide)
            self._last = LastTick.before(first, t0)
        return self._shape

    def _batch(self, item: Arrival) -> int:
        before = self.batches.number
        batch = self.batches.take(item.batch)
        if self.engine.tick == "batch" and batch == before and item.time != self._batch_time:
            message = (
                f"batch {batch} holds time {self._batch_time} and time {item.time}; all "
                "tuples of a SECRET batch have one time: use windows.split_batches"
            )
            raise InputError(message)
        self._batch_time = item.time
        return batch

    def _arrive(self, item: Item) -> list[Reported]:
        """What one arrival makes visible: the tuples before it are what there is."""
        shape, last = self._shape, self._last
        if shape is None or last is None:  # a stable before all tuples
            return []
        called = calls(self.engine.tick, last, item)
        shown: list[Reported] = []
        if called is not None:
            instants = answerable(
                called, shape, self.engine.report, self._times, len(self._times)
            )
            for instant in instants:
                shown += self._visit(shape, item, instant)
        self._last = last.after(item, called)
        if called is not None:
            self._forget(shape, self._last.time)
        return shown

    def _visit(self, shape: Shape, item: Item, instant: int) -> list[Reported]:
        scope, window = shape.scope(instant), shape.window(instant)
        self._move(scope)
        content = (0, 0)
        if self._run.count:
            content = (self._gone + self._low, self._gone + self._high)
        report = self.engine.report
        failed = report.failed(
            changed=content != self._reported,
            closed=scope is not None and scope.length == shape.size and instant < item.time,
            empty=not self._run.count,
            instant=instant,
        )
        if failed:
            return []
        self._reported = content
        start, end, count = window.after + 1, window.upto + 1, self._run.count
        return [Reported(self._run.value(), start, end, instant, self.steps, count)]

    def _move(self, scope: Scope | None) -> None:
        """Let the run be the content of this scope."""
        low = high = self._low
        if scope is not None:
            low = bisect_right(self._times, scope.after, self._low)
            high = bisect_right(self._times, scope.upto, self._low)
        for index in range(self._high, high):
            self._run.add(self._values[index])
        self._high = max(self._high, high)
        for index in range(self._low, min(low, self._high)):
            self._run.drop(self._values[index])
        # Between two windows `low` may be beyond `high`: those tuples were never in.
        self._low, self._high = low, max(self._high, low)

    def _forget(self, shape: Shape, reached: int) -> None:
        """Drop the tuples that no later window contains, in one call."""
        gone = min(bisect_right(self._times, shape.window(reached).after), self._low)
        if gone > len(self._times) // 2:
            self._cut(gone)

    def _cut(self, gone: int) -> None:
        del self._times[:gone], self._values[:gone]
        self._gone += gone
        self._low, self._high = self._low - gone, self._high - gone

    def to_state(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        shape, last = self._shape, self._last
        skip = 0
        if shape is not None and last is not None:
            skip = bisect_right(self._times, shape.window(last.time).after)
        return {
            "steps": self.steps,
            "batches": self.batches.to_state(),
            "batch_time": self._batch_time,
            "reached": self._reached,
            "t0": None if shape is None else shape.t0,
            "last": None if last is None else [last.time, last.batch],
            "gone": self._gone + skip,
            "times": self._times[skip:],
            "values": [] if self.query.agg == "count" else self._values[skip:],
            "reported": list(self._reported),
        }

    def from_state(self, state: dict[str, Any]) -> None:
        """Restore the result of `to_state`."""
        self.steps, self._reached = state["steps"], state["reached"]
        self.batches = BatchNumbers.from_state(state["batches"])
        self._batch_time, self._gone = state["batch_time"], state["gone"]
        self._times = state["times"]
        self._values = state["values"] or [None] * len(self._times)
        first, last = state["reported"]
        self._reported = (first, last)
        if state["t0"] is not None:
            self._shape = Shape(state["t0"], self.query.size, self.query.slide)
            time, batch = state["last"]
            self._last = LastTick(time, batch, state["t0"])
