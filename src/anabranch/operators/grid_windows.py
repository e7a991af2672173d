"""Spark's windows over batches: one event per window that contains the start of an event.

A window `[k * slide + offset, + size)` is the lifetime of its events, and their last column
`window`, a struct of its start and end.  The size need not be a multiple of the slide.  Where
the slide is greater there are gaps between windows, and what starts in one has no event.

Ends of the input do not matter: only inserts and removals change the output.  Once the input
has `stable(t)`, windows that end at t or before stay as they are.  So the output's frontier is
the start of the first window that ends after t, which is the greatest that is true, and events
are final as soon as their start is before it: in the step in which the input's frontier reaches
the end of the window.

Rows are copied, once per window.  A group-by after this computes panes instead.

Papers: none; these are the windows of Spark and of SECRET's time-based scope.  The reference is
`anabranch.operators.reference.lifetimes`.
"""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa

from anabranch.batch.batch import INSERT, Batch, Ints
from anabranch.batch.buffers import to_arrow
from anabranch.batch.schema import ElementSchema, TimeType
from anabranch.errors import UsageError
from anabranch.model.lifetimes import GridWindows
from anabranch.model.properties import StreamProperties, shared
from anabranch.operators.lifetimes import StartChange, after_alter_lifetime, round_down
from anabranch.operators.stateless import (
    Images,
    StatelessOperator,
    emitted,
    images,
    net,
    require_room,
    time_of,
    units_of,
)

WINDOW: Final = "window"
"""The column that has the window."""


def window_type(time: TimeType) -> pa.DataType:
    """The type of the column with the window, for these times."""
    return pa.struct([("start", time.arrow), ("end", time.arrow)])


@dataclass(frozen=True)
class GridWindowOperator(StatelessOperator):
    """Put every event into the windows that contain its start."""

    windows: GridWindows

    def __post_init__(self) -> None:
        if WINDOW in (name.lower() for name in self.schema.payload.names):
            message = (
                f"window: the stream has a column '{WINDOW}' already; rename it, or drop it "
                "with select, before this step"
            )
            raise UsageError(message)

    @property
    def name(self) -> str:
        """As the call that makes it."""
        return "window"

    @property
    def output(self) -> ElementSchema:
        """Elements with one more column."""
        column = pa.field(WINDOW, window_type(self.schema.time))
        payload = self.schema.payload.append(column)
        return replace(self.schema, payload=payload, has_seq=False, has_replica=False)

    @property
    def output_final_at_start(self) -> bool:
        """A window is its events' lifetime, so ends do not change."""
        return True

    def properties(self, *inputs: StreamProperties) -> StreamProperties:
        """Order, where a row is in one window at most; else rows come again in a later one."""
        alone = self.windows.size <= self.windows.slide
        change = StartChange.NON_DECREASING if alone else StartChange.ANY
        return after_alter_lifetime(shared(inputs), start=change)

    def moved(self, start: Ints, end: Ints) -> tuple[Ints, Ints]:
        """A lifetime of one unit, so that adjusts which only move an end change nothing."""
        del end
        rule = self.windows
        require_room(self.name, rule.size + 2 * rule.slide + abs(rule.offset), start)
        return start, start + 1

    def passed(self, received: int) -> int:
        """The first window that may still change."""
        return units_of(self.windows.stable(time_of(received)))

    def change(self, batch: Batch) -> Batch:
        """The net change of the rows, then of their windows."""
        rows = net(replace(self.schema, has_seq=False), batch, *images(batch, self))
        is_insert = rows.kind == INSERT
        inserted = self._windows(rows, np.flatnonzero(is_insert))
        removed = self._windows(rows, np.flatnonzero(~is_insert))
        removals = removed._replace(end=removed.start)
        plain = emitted(
            rows.schema, replace(rows, hashes=None), removals, removed.end, inserted
        )
        return self._with_window(plain)

    def _windows(self, batch: Batch, rows: Ints) -> Images:
        """The windows of these rows: of each row the earliest first."""
        rule = self.windows
        start = batch.start[rows]
        last = round_down(start, rule.slide, rule.offset)
        count = (last - start + rule.size - 1) // rule.slide + 1
        of = np.repeat(rows, count)
        # The number of the window, counted from the row's last one back.
        back = np.repeat(np.cumsum(count), count) - np.arange(len(of)) - 1
        begin = np.repeat(last, count) - back * rule.slide
        return Images(of, begin, begin + rule.size)

    def _with_window(self, batch: Batch) -> Batch:
        """The same elements with the column; a removal's window is that of its old event."""
        time = self.schema.time.arrow
        finish = batch.start + self.windows.size
        column = pa.StructArray.from_arrays(
            [to_arrow(batch.start, time), to_arrow(finish, time)], names=["start", "end"]
        )
        columns = [*batch.payload.columns, column]
        payload = pa.Table.from_arrays(columns, schema=self.output.payload)
        return replace(batch, schema=self.output, payload=payload)
