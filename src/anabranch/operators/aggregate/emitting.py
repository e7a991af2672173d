"""The state of an aggregate that does not emit everything at once, or cuts events on a grid.

At the end of every step the output's history is what `anabranch.model.emission` shows of the
table of each group.  The state is that of the aggregate, and of each group the greatest start
that it has seen: a group that has lost all its events is kept until the frontier has passed
that start.

With a grid, the first row of a group moves along it with the frontier.  So a long event costs
one row, its results become final piece by piece, and the stable of "passed", which is held at
the first row that starts before the frontier, is less than one step of the grid behind it.

After windows of a grid (`by_window`) all events of a group have one lifetime.  The frontier of
the windows is the start of the first one that may still change, so a group is complete when the
frontier has passed its start; nothing else has to be remembered.

Cost of a step: that of the aggregate, the rows that time has passed since the step before, and
the pieces that differ.

Papers: CEDR *theory* 3.2 to 3.5 with errata C2, C8, C9 and decision D11; the reference is
`operators.reference.aggregate`, the paper's algorithms are in `operators.reference.snapshots`.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from anabranch.batch.batch import (
    FOREVER_UNITS,
    INSERT,
    NEVER_UNITS,
    STABLE,
    Batch,
    Ints,
    Mask,
)
from anabranch.batch.kernel import frozen
from anabranch.errors import RunError
from anabranch.model.emission import Emit
from anabranch.operators.aggregate import emit_kernels
from anabranch.operators.aggregate.chunks import Chunks
from anabranch.operators.aggregate.points import ALIVE, GROUP, SLOTS, TIME
from anabranch.operators.aggregate.segments import Segments
from anabranch.operators.aggregate.state import AggregateState
from anabranch.operators.contract import INPUT, Arrival
from anabranch.operators.state.blocks import BLOCK_BITS
from anabranch.operators.state.codec import column_of
from anabranch.operators.state.events import OWN, Events
from anabranch.operators.state.groups import distinct

if TYPE_CHECKING:
    from anabranch.operators.aggregate.operator import AggregateOperator

_SEEN: Final = OWN + 1
"""The greatest start of an event that a group has seen."""

_HOW: Final = {
    Emit.AT_ONCE: emit_kernels.AT_ONCE,
    Emit.ORDERED: emit_kernels.ORDERED,
    Emit.PASSED: emit_kernels.PASSED,
}

MOST_PIECES: Final = 10_000_000
"""More pieces than this of the events of one step are refused."""


class EmittingState(AggregateState):
    """What the aggregate remembers for one lane, with the greatest start of each group."""

    def __init__(self, operator: "AggregateOperator") -> None:
        super().__init__(operator)
        self.table = Events(operator.key_schema, width=_SEEN + 1)
        self.how, self.every = _HOW[operator.emit], operator.cut_every or 0
        self.until = int(NEVER_UNITS)
        self._news = (self.table.living(), self.table.living())

    def no_points(self) -> Chunks:
        """Chunks that know their least time, where the stable is held."""
        return Chunks(2, SLOTS + self.slots.width, least=(TIME,))

    @property
    def described(self) -> str:
        """The functions, and when results are emitted."""
        cut = f", cut every {self.spec.cut_every}" if self.spec.cut_every else ""
        return f"{super().described}, emit {self.spec.emit.value}{cut}"

    @property
    def frontier(self) -> int:
        """How far the output is final: not beyond the first event that may still change."""
        received = self.received[INPUT]
        if not self.spec.holds_stables or not len(self.points):
            return received
        return min(received, int(self.points.least[self.points.order].min()))

    def _joined(self, name: str, arrivals: Sequence[Arrival]) -> Batch:
        """The data of the input; notes its last stable but that of the end."""
        joined = super()._joined(name, arrivals)
        for one in arrivals if self.every else ():
            times = one.batch.start[one.batch.kind == STABLE]
            self.until = max(
                self.until, int(times[times < FOREVER_UNITS].max(initial=self.until))
            )
        return joined

    def _ranges(
        self, batch: Batch, group: Ints, due: Ints, before: int
    ) -> list[tuple[Ints, Ints, Ints]]:
        """The parts of groups in which the output may change without a move."""
        ranges = super()._ranges(batch, group, due, before)
        if self.spec.by_window:
            return ranges
        starts = np.flatnonzero(batch.kind == INSERT)
        groups = distinct(group[starts])
        seen = self.table.rows[groups, _SEEN].copy()
        np.maximum.at(seen, np.searchsorted(groups, group[starts]), batch.start[starts])
        self._news = groups, seen
        low = np.maximum(self.table.rows[groups, _SEEN], before)
        has = seen > low
        return [*ranges, (groups[has], low[has], seen[has])]

    def _emitted(
        self, old: Segments, new: Segments, touched: Ints, before: int
    ) -> tuple[Segments, Segments, Ints]:
        """What the output has of these rows before and after, as far as it differs."""
        was = self._limits(old, before, before)
        self._note_seen()
        now = self._limits(new, self.received[INPUT], self.until)
        same = np.zeros(len(was), np.bool_), np.zeros(len(now), np.bool_)
        emit_kernels.mark_same(old.rows, was, new.rows, now, touched, self.how, same)
        one, other = np.flatnonzero(~same[0]), np.flatnonzero(~same[1])
        olds, _ = self._pieces(old.take(one), was[one], self.how)
        news, rows = self._pieces(new.take(other), now[other], self.how)
        # Behind the first piece of a row there may have been an end point that is gone.
        is_inner = news.rows[:, TIME] > new.rows[other, TIME][rows]
        return olds, news, touched[other][rows] | is_inner

    def _limits(self, of: Segments, frontier: int, until: int) -> Ints:
        """Of each row the end, how far time has passed, and how far it may be cut."""
        limits = np.empty((len(of.rows), 3), np.int64)
        limits[:, 0] = of.end
        if self.spec.by_window:
            start = of.rows[:, TIME]
            limits[:, 1] = np.where(start < frontier, FOREVER_UNITS, start)
            limits[:, 2] = NEVER_UNITS
        else:
            seen = self.table.rows[of.rows[:, GROUP], _SEEN]
            limits[:, 1] = np.maximum(seen, frontier)
            limits[:, 2] = np.maximum(seen, until)
        return limits

    def _note_seen(self) -> None:
        """Remember the greatest starts of this step."""
        groups, seen = self._news
        news = groups[seen > self.table.rows[groups, _SEEN]]
        self.table.rows[groups, _SEEN] = seen
        self.table.changed[news >> BLOCK_BITS] = self.mark
        self._news = groups[:0], seen[:0]

    def _pieces(self, of: Segments, limits: Ints, how: int) -> tuple[Segments, Ints]:
        """The pieces of some rows as rows of their own, and the row of each."""
        none = np.empty((0, 3), np.int64)
        numbers = how, self.every, MOST_PIECES
        passed, until = frozen(limits[:, 1].copy()), frozen(limits[:, 2].copy())
        count = int(emit_kernels.list_pieces(of.rows, of.end, passed, until, *numbers, none))
        if count < 0:
            raise self._too_many(of)
        found = np.empty((count, 3), np.int64)
        if count:
            emit_kernels.list_pieces(of.rows, of.end, passed, until, *numbers, found)
        rows = found[:, 0].copy()
        pieces = of.rows[rows]
        pieces[:, TIME] = found[:, 1]
        is_fixed = of.end_is_fixed[rows] & (found[:, 2] == of.end[rows])
        return Segments(pieces, found[:, 2].copy(), is_fixed), rows

    def _too_many(self, of: Segments) -> RunError:
        length = np.where(of.rows[:, ALIVE] > 0, of.end - of.rows[:, TIME], 0)
        length[of.end == FOREVER_UNITS] = 0
        row = int(length.argmax())
        key = self._key(int(of.rows[row, GROUP]))
        return RunError(
            f"{self.operator.name}: cut_every={self.every} cuts the results of one step into "
            f"more than {MOST_PIECES:,} pieces; group {key} has one of {length[row]:,} units "
            f"that starts at {of.rows[row, TIME]}; give a greater cut_every, or leave ends "
            "that are not known open"
        )

    def _stays(self, now: Segments, frontier: int) -> Mask:
        """Which rows are still needed; the first row of each group moves along the grid."""
        stays = super()._stays(now, frontier)
        if self.spec.by_window:
            stays &= (now.rows[:, ALIVE] == 0) | (now.rows[:, TIME] >= frontier)
        return stays

    def _advance(self, now: Segments, stays: Mask) -> None:
        """Move the first row of each group along the grid."""
        frontier = self.received[INPUT]
        if self.every and NEVER_UNITS < frontier < FOREVER_UNITS:
            emit_kernels.advance(now.rows, now.end, frontier, self.every, stays)

    def _final(self, of: Segments, at: Ints) -> Batch | None:
        """The events that became final, as inserts by start: on a grid, pieces of them."""
        if not self.every or not self.spec.reports_final:
            return super()._final(of, at)
        frontier = self.received[INPUT]
        limits = self._limits(of, frontier, self.until)
        limits[:, 1] = frontier
        pieces, _ = self._pieces(of, limits, emit_kernels.PASSED)
        final = pieces.end < frontier
        if frontier == FOREVER_UNITS or frontier % self.every == 0:
            final[:] = True
        elif self.spec.final_at_start:
            final |= pieces.end_is_fixed
        return super()._final(pieces, np.flatnonzero(final))

    def _pop_due(self, frontier: int) -> Ints:
        """The groups of which time has passed an end point, or a time on the grid."""
        return self._popped(frontier, min(frontier, FOREVER_UNITS - 1) + 1)

    def _due_of(self, groups: Ints) -> Ints:
        """A group without points is due when the frontier reaches its greatest start."""
        due = self._due(groups, most=1 if self.spec.by_window else 2, every=self.every)
        seen, frontier = self.table.rows[groups, _SEEN], self.received[INPUT]
        waits = (due == NEVER_UNITS) & (seen > frontier) & (frontier < FOREVER_UNITS)
        due[waits] = seen[waits]
        return due

    def held(self) -> Mapping[str, Ints]:
        """What is saved of each group, by number: the greatest start that it has seen."""
        return {"seen": self.table.rows[:, _SEEN]}

    def restore_groups(self, ids: Ints, payload: pa.Table, rows: Sequence[pa.Table]) -> None:
        """Fill an empty table with these groups, and find out when they are due."""
        received = self.received[INPUT]
        self.until = received if received < FOREVER_UNITS else int(NEVER_UNITS)
        seen = [column_of(one, "seen") for one in rows]
        self._restore(ids, payload, {_SEEN: np.concatenate([np.empty(0, np.int64), *seen])})

    def check(self) -> None:
        """Assert every invariant."""
        super().check()
        rows, frontier = self.points.all(), self.received[INPUT]
        old = rows[rows[:, TIME] < frontier]
        assert (old[:, ALIVE] > 0).all(), f"nothing is alive at {old}, before {frontier}"
        first = len(distinct(old[:, GROUP]))
        assert first == len(old), f"{len(old)} rows before {frontier} of {first} groups"
        lags = frontier - old[:, TIME] if self.every else old[:0, TIME]
        assert (lags < self.every).all(), f"rows {lags} behind, on a grid of {self.every}"
        assert self.frontier <= frontier, f"frontier {self.frontier} > received {frontier}"
