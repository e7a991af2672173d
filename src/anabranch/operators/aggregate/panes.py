"""Aggregates by key and window, computed by panes: rows are not copied into their windows.

The meaning is that of `grid_windows` followed by `aggregate` by the keys and the window: one
event per key and window that has a row, which is its lifetime, with the values of the functions
over the rows that start in it.  Ends of the input do not matter: only inserts and removals
change anything.

Windows are cut into panes, at all their starts and ends; a row is added to one pane.  A step
adds its rows up by key and pane, and compares, before and after, the sums of the windows that
contain a pane that changed.  Sums are exact, so what leaves a window is subtracted, and results
are bit-equal to those of the copying plan.

Functions must be invertible, and not read the window: see `fits`.

The output's frontier is the start of the first window that ends after the input's.  A window is
final, and reported, in the step in which the input's frontier reaches its end; panes leave with
the last of their windows.  With `emit` "passed" it is emitted in that step, once; "ordered" is
not for panes.

Cost of a step: a sort of its elements, the panes within one window size of those that it
touches, and the windows that contain one.  Papers: none; panes are those of Li et al., "No
pane, no gain" (2005).  The reference is `operators.reference.panes`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, Final

import numpy as np
import pyarrow as pa

from anabranch.batch.batch import ADJUST, FOREVER_UNITS, NEVER_UNITS, Batch, Ints, Mask
from anabranch.batch.buffers import take, to_arrow
from anabranch.batch.equality import equal_rows
from anabranch.batch.events import inserts, nothing
from anabranch.batch.kernel import frozen
from anabranch.batch.schema import ElementSchema
from anabranch.errors import UsageError
from anabranch.model.emission import Emit
from anabranch.model.lifetimes import GridWindows
from anabranch.operators.aggregate.chunks import CHUNK, Runs
from anabranch.operators.aggregate.functions import Aggregate, check
from anabranch.operators.aggregate.operator import AggregateOperator
from anabranch.operators.aggregate.pane_kernels import (
    Grid,
    add_panes,
    first_panes,
    merge_panes,
    sum_windows,
)
from anabranch.operators.aggregate.points import ALIVE, GROUP, TIME
from anabranch.operators.aggregate.saving import open_state
from anabranch.operators.aggregate.slots import SumOverflowError
from anabranch.operators.aggregate.state import AggregateState
from anabranch.operators.contract import INPUT
from anabranch.operators.grid_windows import WINDOW, GridWindowOperator
from anabranch.operators.state.codec import StateKind
from anabranch.operators.state.groups import distinct
from anabranch.operators.stateless import require_room, time_of, units_of
from anabranch.operators.trusting import lost_event, written
from anabranch.operators.unary import Changed

_KIND: Final = StateKind("anabranch panes", version=1)


def fits(functions: Sequence[Aggregate]) -> bool:
    """Whether these functions can be computed by panes."""
    return all(one.is_invertible and one.column != WINDOW for one in functions)


@dataclass(frozen=True)
class PaneAggregateOperator(AggregateOperator):
    """Aggregate functions per group of equal keys and window.

    `schema` has the columns before the windows; `keys` name the column `window` too, at the
    place that it has in the output.
    """

    windows: GridWindows = field(kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_window", True)
        super().__post_init__()
        if self.emit is Emit.ORDERED:
            message = (
                f"{self.name}: emit='ordered' leaves ends open, and windows by panes have the "
                "ends of their grid; copy the rows into their windows"
            )
            raise UsageError(message)
        if WINDOW not in self.keys or not fits(self.functions):
            shown = ", ".join(map(str, self.functions))
            message = (
                f"{self.name}: {shown} by {self.keys} cannot be computed by panes; name the "
                "key 'window', and use count, sum, avg and stddev of other columns"
            )
            raise UsageError(message)

    @property
    def route_columns(self) -> Sequence[str]:
        """The keys but the window: rows have none yet."""
        return [key for key in self.keys if key != WINDOW]

    @cached_property
    def output(self) -> ElementSchema:
        """The keys and the window, then a column for each function."""
        rows = GridWindowOperator(self.schema, self.windows).output
        payload = check(self.functions, self.keys, rows.payload, where=self.name)
        return ElementSchema(self.schema.time, payload)

    @property
    def key_schema(self) -> pa.Schema:
        """The columns of the keys that rows have."""
        return pa.schema([self.schema.payload.field(key) for key in self.route_columns])

    @property
    def output_final_at_start(self) -> bool:
        """A window is its events' lifetime, so ends do not change."""
        return True

    def empty(self) -> "PaneState":
        """Nothing has happened."""
        return PaneState(self)

    def from_parts(self, parts: Mapping[str, bytes]) -> AggregateState:
        """The state that was saved; StateError if of another kind, version or schema."""
        return open_state(self.empty(), parts)


class PaneState(AggregateState):
    """The panes of each key that are in a window which is not final."""

    kind: ClassVar[StateKind] = _KIND

    def __init__(self, operator: PaneAggregateOperator) -> None:
        super().__init__(operator)
        self.windows = operator.windows
        self.grid = Grid(operator.windows)

    @property
    def described(self) -> str:
        """The functions, the windows, and when these are emitted."""
        rule, emit = self.windows, self.spec.emit
        when = "" if emit is Emit.AT_ONCE else f", emit {emit.value}"
        return f"{super().described} by {rule.size}, {rule.slide}, {rule.offset}{when}"

    def passed(self, received: int) -> int:
        """The first window that may still change."""
        return units_of(self.windows.stable(time_of(received)))

    def take(self, batches: Mapping[str, Batch], before: int) -> Changed:
        """The net change of the output's events."""
        old_frontier, frontier = self.passed(before), self.frontier
        batch, sign = self._counted(batches[INPUT])
        group = self._find(batch)
        due = np.empty(0, np.int64)
        if frontier > old_frontier:
            due = distinct(np.concatenate([self._pop_due(frontier), group]))
        if not len(batch) and not len(due):
            none = nothing(self.output)
            return Changed(none, none if self.spec.reports_final else None)
        some = self._summed(batch, group, sign)
        runs, some_runs = self._around(some, due, frontier)
        old = self.points.read(runs)
        new, offsets = self._merged(old, runs, some, some_runs)
        closed = self._closed(new, due, old_frontier, frontier)
        at_once = self.spec.emit is Emit.AT_ONCE
        output = self._change(old, new, some) if at_once else closed
        final = closed if self.spec.reports_final else None
        stays = new[:, TIME] >= frontier
        kept = np.concatenate([[0], np.cumsum(stays)])
        self.points.write(runs, new[stays], kept[offsets], self.mark)
        self._settle(distinct(np.concatenate([group, due])))
        return Changed(output, final, {"rows": len(old), "moves": len(some)})

    def _counted(self, batch: Batch) -> tuple[Batch, Ints]:
        """The elements that bring (1) or take away (-1) a row of some window."""
        rule = self.windows
        room = rule.size + 2 * rule.slide + abs(rule.offset)
        require_room(GridWindowOperator(self.spec.schema, rule).name, room, batch.start)
        is_old = (batch.kind == ADJUST) & (batch.old_end > batch.start)
        sign = (batch.end > batch.start).astype(np.int64) - is_old
        if rule.slide > rule.size:
            sign[~self.grid.panes(batch.start)[1]] = 0
        counts = sign != 0
        return (batch, sign) if counts.all() else (batch.take(counts), sign[counts])

    def _summed(self, batch: Batch, group: Ints, sign: Ints) -> Ints:
        """The change of each pane, sorted."""
        slots, pane = self._slots_of(batch), self.grid.panes(batch.start)[0]
        out = np.empty((len(batch), self.points.width), np.int64)
        order = _order(group, pane)
        count = add_panes(group, pane, sign, frozen(slots), order, out)
        return out[: int(count)]

    def _around(self, some: Ints, due: Ints, frontier: int) -> tuple[Runs, Ints]:
        """The runs of chunks around these panes and for due groups; the panes of each run."""
        count, size = len(self.points.order), self.windows.size
        places = self.points.places(some[:, : TIME + 1])
        edges = np.zeros(count + 1, np.int64)
        if count:
            begins = np.flatnonzero(np.diff(some[:, GROUP], prepend=-1))
            ends = np.flatnonzero(np.diff(some[:, GROUP], append=-1))
            least = np.full(len(due), NEVER_UNITS, np.int64)
            most = np.full(len(due), min(frontier, FOREVER_UNITS - size) + size, np.int64)
            group = np.concatenate([some[begins, GROUP], due])
            low = np.concatenate([some[begins, TIME] - size, least])
            high = np.concatenate([some[ends, TIME] + size, most])
            np.add.at(edges, self.points.places(np.stack([group, low], axis=1)), 1)
            np.add.at(edges, self.points.places(np.stack([group, high], axis=1)) + 1, -1)
        runs = self.points.runs(np.cumsum(edges)[:-1] > 0)
        return runs, np.searchsorted(places, np.append(runs.first, count + 1))

    def _merged(self, old: Ints, runs: Runs, some: Ints, some_runs: Ints) -> tuple[Ints, Ints]:
        """The rows after the changes, and where runs begin."""
        new = np.empty((len(old) + len(some), self.points.width), np.int64)
        offsets = np.zeros(len(runs) + 1, np.int64)
        wrong = int(merge_panes(old, runs.offsets, some, some_runs, new, offsets))
        if wrong >= 0:
            key = self._key(int(some[wrong, GROUP]))
            what = f"group {key} that starts at {some[wrong, TIME]} or soon after"
            raise lost_event(self.operator.name, what)
        return new[: int(offsets[-1])], offsets

    def _change(self, old: Ints, new: Ints, some: Ints) -> Batch:
        """The windows that have other values, or come or go."""
        windows = self.grid.containing(some, int(NEVER_UNITS), int(FOREVER_UNITS))
        was, now = self._sums(old, windows), self._sums(new, windows)
        is_old, is_new = was[:, 0] > 0, now[:, 0] > 0
        values = self._values(was[is_old], windows[is_old])
        news = self._values(now[is_new], windows[is_new])
        both = is_old & is_new
        pairs = (np.cumsum(is_old) - 1)[both], (np.cumsum(is_new) - 1)[both]
        same = np.zeros(len(windows), np.bool_)
        same[both] = equal_rows(values, pairs[0], news, pairs[1])
        gone, come = is_old & ~same, is_new & ~same
        removed = self._payload_of(windows[gone], _where(values, gone[is_old]))
        added = self._payload_of(windows[come], _where(news, come[is_new]))
        begin, start = windows[gone, 1], windows[come, 1]
        size = self.windows.size
        payload = pa.concat_tables([removed, added])
        lives = start, start + size
        return written(self.output, (begin, begin + size, begin), lives, payload)

    def _sums(self, rows: Ints, windows: Ints) -> Ints:
        out = np.empty((len(windows), self.slots.width), np.int64)
        total = np.zeros(self.slots.width, np.int64)
        sum_windows(rows, windows, self.windows.size, total, out)
        return out

    def _values(self, sums: Ints, windows: Ints) -> pa.Table:
        """The results of all functions for these sums."""
        try:
            arrays = self.slots.results(sums)
        except SumOverflowError as error:
            group, start = windows[error.row].tolist()
            raise self._overflow(error, group, start) from error
        names = [one.name for one in self.spec.functions]
        return pa.Table.from_arrays(arrays, names=names)

    def _payload_of(self, windows: Ints, values: pa.Table) -> pa.Table:
        """Keys, windows and values side by side."""
        time = self.output.time.arrow
        start = np.ascontiguousarray(windows[:, 1])
        sides = [to_arrow(start, time), to_arrow(start + self.windows.size, time)]
        keys = dict(zip(self.spec.route_columns, self._keys_of(windows), strict=True))
        keys[WINDOW] = pa.StructArray.from_arrays(sides, names=["start", "end"])
        columns = [*(keys[name] for name in self.spec.keys), *values.columns]
        return pa.Table.from_arrays(columns, schema=self.output.payload)

    def _keys_of(self, windows: Ints) -> list[pa.ChunkedArray]:
        columns: list[pa.ChunkedArray] = self.table.payload(windows[:, 0]).columns
        return columns

    @property
    def _notes_ends(self) -> bool:
        """Whether windows are emitted, or reported, when they are over."""
        return self.spec.reports_final or self.spec.emit is Emit.PASSED

    def _closed(self, new: Ints, due: Ints, before: int, frontier: int) -> Batch:
        """The windows that nothing can change any more, as inserts by start, if noted."""
        if not self._notes_ends or not len(due):
            return nothing(self.output)
        windows = self.grid.containing(new[np.isin(new[:, GROUP], due)], before, frontier)
        sums = self._sums(new, windows)
        order = np.argsort(windows[:, 1], kind="stable")
        windows = windows[order]
        payload = self._payload_of(windows, self._values(sums[order], windows))
        start = windows[:, 1]
        return inserts(self.output, start, start + self.windows.size, payload)

    def _pop_due(self, frontier: int) -> Ints:
        """The groups with panes that leave, or windows that become final."""
        return self._popped(frontier, frontier)

    def _due_of(self, groups: Ints) -> Ints:
        """The first window of each group that is not final yet, or its first pane."""
        due = np.full(len(groups), NEVER_UNITS, np.int64)
        points = self.points
        if len(groups) and len(points.order):
            asked = np.stack([groups, np.full(len(groups), NEVER_UNITS)], axis=1)
            places = points.places(asked)
            first_panes(
                points.rows, points.order, points.size, CHUNK, frozen(groups), places, due
            )
        if self._notes_ends:
            has = due != NEVER_UNITS
            due[has] = np.maximum(self.grid.first_window(due[has]), self.frontier)
        return due

    def check(self) -> None:
        """Assert every invariant."""
        self._check_groups()
        rows = self.points.all()
        assert (rows[:, ALIVE] > 0).all(), f"panes without rows: {rows[:, ALIVE]}"
        assert (rows[:, TIME] >= self.frontier).all(), f"panes before {self.frontier}: {rows}"
        panes = self.grid.panes(rows[:, TIME])[0]
        assert (panes == rows[:, TIME]).all(), f"no pane begins at {rows[:, TIME]}"


def _order(group: Ints, pane: Ints) -> Ints:
    """The positions by group and pane; equal ones in any order."""
    if not len(group):
        return group
    first, last, most = int(pane.min()), int(pane.max()), int(group.max())
    if (last - first + 1) * (most + 1) < 1 << 62:
        return np.argsort(group * (last - first + 1) + (pane - first))
    order: Ints = np.lexsort((pane, group))
    return order


def _where(values: pa.Table, wanted: Mask) -> pa.Table:
    """Some rows of a table."""
    return values if wanted.all() else take(values, np.flatnonzero(wanted))
