"""The state of the aggregate: end points of groups, and a step over the ones it touches.

A step:

    find       the group of each element, by the key columns
    move       what changes at which end point (`points.moves`), and the chunks around them
    apply      the rows of these chunks with the moves; before and after are compared
    write      the net difference of the output's events; rows that are passed leave

A row leaves when the event that begins there is final: its end is before the frontier (an end
at the frontier may still move).  If the ends of the input are fixed (`final_at_start`), it is
final too when it ends at the frontier and an event of the input ends there: that event has
started before, so nothing can take the end point away.  So of what is before the frontier one
row per group stays, which holds the sum of everything that is alive across it.

Cost of a step: a sort of its elements, a search of each in the list of chunks, and the rows
of the chunks that it touches.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
import pyarrow as pa

from anabranch.batch.batch import ADJUST, FOREVER_UNITS, INSERT, NEVER_UNITS, Batch, Ints, Mask
from anabranch.batch.buffers import one_array, to_arrow
from anabranch.batch.equality import equal_rows
from anabranch.batch.events import inserts, nothing
from anabranch.batch.kernel import frozen
from anabranch.batch.schema import ElementSchema
from anabranch.errors import RunError
from anabranch.operators.aggregate.bag_store import BagStore
from anabranch.operators.aggregate.chunks import CHUNK, Chunks, Runs
from anabranch.operators.aggregate.points import (
    ALIVE,
    GROUP,
    NONE,
    SLOTS,
    TIME,
    apply,
    compare,
    first_due,
    moves,
)
from anabranch.operators.aggregate.saving import KIND, rows_of, save_state
from anabranch.operators.aggregate.segments import Lifetimes, Segments
from anabranch.operators.aggregate.slots import Slots, SumOverflowError
from anabranch.operators.contract import INPUT
from anabranch.operators.state.blocks import Saved
from anabranch.operators.state.codec import StateKind
from anabranch.operators.state.due_queue import DueQueue
from anabranch.operators.state.events import FLAGS, LIVE, OWN, Events
from anabranch.operators.state.groups import distinct
from anabranch.operators.state.pieces import find_piece, pieces
from anabranch.operators.trusting import TrustingState, lost_event
from anabranch.operators.unary import Changed, changes_nothing

if TYPE_CHECKING:
    from anabranch.operators.aggregate.operator import AggregateOperator

_DUE: Final = OWN
# Fewer stale entries of the queue than this are never cleaned up.
_SMALL: Final = 1_024


class AggregateState(TrustingState):
    """What the aggregate remembers for one lane."""

    kind: ClassVar[StateKind] = KIND

    def __init__(self, operator: "AggregateOperator") -> None:
        super().__init__(operator)
        self.spec = operator
        self.keys = ElementSchema(operator.schema.time, operator.key_schema)
        self.table = Events(operator.key_schema, width=OWN + 1)
        self.slots = Slots.empty(operator.invertible, operator.schema.payload)
        self.points = self.no_points()
        self.due = DueQueue()
        self.bags = BagStore.of(operator.by_value, operator.schema.payload, operator.name)

    def __repr__(self) -> str:
        return f"AggregateState(frontier {self.frontier}, {self.points!r}, {self.table!r})"

    def no_points(self) -> Chunks:
        """Empty chunks for end points with these slots."""
        return Chunks(2, SLOTS + self.slots.width)

    @property
    def described(self) -> str:
        """What must not change between a save and a restart, as text."""
        return ", ".join(f"{one.name}={one}" for one in self.spec.functions)

    @property
    def live(self) -> int:
        """How many end points are remembered."""
        return len(self.points)

    @property
    def facts(self) -> Mapping[str, Any]:
        """The number of groups, and of events that are kept for their values."""
        return {"groups": len(self.table), "events": 0 if self.bags is None else len(self.bags)}

    def take(self, batches: Mapping[str, Batch], before: int) -> Changed:
        """The net change of the output's events."""
        batch = batches[INPUT]
        no_news = changes_nothing(batch)
        if no_news.any():
            batch = batch.take(~no_news)
        frontier = self.received[INPUT]
        group = self._find(batch)
        due = self._pop_due(frontier) if frontier > before else np.empty(0, np.int64)
        if not len(batch) and not len(due):
            none = nothing(self.output)
            return Changed(none, none if self.spec.reports_final else None)
        some, touch = moves(batch, group, self._slots_of(batch))
        runs, places = self._touched(some, touch, self._ranges(batch, group, due, before))
        old_rows, after = self.points.read(runs), self.points.after(runs)
        new, touched, offsets = self._apply(old_rows, runs, places, some, touch)
        old, now = Segments.of(old_rows, runs.offsets, after), Segments.of(new, offsets, after)
        emitted = self._emitted(old, now, touched, before)
        output = self._difference(*emitted, batch, group)
        stays = self._stays(now, frontier)
        final = self._final(now, np.flatnonzero(~stays & (new[:, ALIVE] > 0)))
        self._advance(now, stays)
        kept = np.concatenate([[0], np.cumsum(stays)])
        self.points.write(runs, new[stays], kept[offsets], self.mark)
        self._settle(distinct(np.concatenate([group, due])))
        if self.bags is not None and frontier > before:
            self.bags.forget(frontier, self.mark)
        return Changed(output, final, {"rows": len(old_rows), "moves": len(some)})

    def _find(self, batch: Batch) -> Ints:
        """The group of each element; one that is adjusted must be there."""
        names = list(self.keys.payload.names)
        found = [np.empty(0, np.int64)]
        is_whole = names == batch.payload.column_names
        keyed = Batch(
            self.keys,
            batch.kind,
            batch.start,
            batch.end,
            batch.old_end,
            batch.payload.select(names),
            hashes=batch.hashes if is_whole else None,
        )
        for piece in pieces([keyed]) if len(batch) else ():
            count = len(piece.start)
            start, rows = np.zeros(count, np.int64), np.arange(count)
            asked, made = find_piece(
                self.table, piece, start, piece.kind == INSERT, rows, self.mark
            )
            self.table.rows[made, _DUE] = FOREVER_UNITS
            found.append(asked.id)
        group = np.concatenate(found)
        lost = np.flatnonzero(group < 0)
        if len(lost):
            raise self._lost(batch, int(lost[0]))
        return group

    def _lost(self, batch: Batch, row: int) -> Exception:
        what = f"{batch.payload.slice(row, 1).to_pylist()[0]} at {batch.start[row]}"
        return lost_event(self.operator.name, what)

    def _slots_of(self, batch: Batch) -> Ints:
        """The slots of each element; the layout becomes wider if they need it."""
        before, slots = self.slots, self.slots.fit(batch.payload)
        if slots is not before:
            rows = self.points.all()
            wide = slots.widen(rows[:, SLOTS:], before)
            self.points.widen(np.concatenate([rows[:, :SLOTS], wide], axis=1), self.mark)
            self.slots = slots
        return slots.of(batch.payload, len(batch))

    def _ranges(
        self, batch: Batch, group: Ints, due: Ints, before: int
    ) -> list[tuple[Ints, Ints, Ints]]:
        """The parts of groups that are needed beside those with moves: group, from, to."""
        del batch, group, before
        edges = np.array([[NEVER_UNITS], [self.received[INPUT]]], np.int64)
        return [(due, *np.repeat(edges, len(due), axis=1))]

    def _touched(
        self, some: Ints, touch: Ints, ranges: list[tuple[Ints, Ints, Ints]]
    ) -> tuple[Runs, Ints]:
        """The runs of chunks that moves and these ranges need; the place of each move."""
        count = len(self.points.order)
        edges = np.zeros(count + 1, np.int64)
        places = self.points.places(some[:, : TIME + 1])
        if count:
            np.add.at(edges, places, 1)
            last = places.copy()
            last[:-1] = np.where(np.cumsum(touch)[:-1] > 0, places[1:], places[:-1])
            np.add.at(edges, last + 1, -1)
            # A point that goes, or comes, changes the end of the event before it.
            is_head = (self.points.heads()[places, : TIME + 1] == some[:, : TIME + 1]).all(1)
            earlier = np.maximum(places[is_head] - 1, 0)
            np.add.at(edges, earlier, 1)
            np.add.at(edges, earlier + 1, -1)
            for group, low, high in ranges:
                np.add.at(edges, self.points.places(np.stack([group, low], axis=1)), 1)
                np.add.at(edges, self.points.places(np.stack([group, high], axis=1)) + 1, -1)
        return self.points.runs(np.cumsum(edges)[:-1] > 0), places

    def _apply(
        self, old: Ints, runs: Runs, places: Ints, some: Ints, touch: Ints
    ) -> tuple[Ints, Ints, Ints]:
        """The rows after the moves, where values may differ, and where runs begin."""
        new = np.empty((len(old) + len(some), self.points.width), np.int64)
        touched = np.empty(len(new), np.int64)
        offsets = np.zeros(len(runs) + 1, np.int64)
        some_runs = np.searchsorted(places, np.append(runs.first, len(self.points.order) + 1))
        width = self.slots.width
        scratch = np.empty(width, np.int64), np.empty(width, np.int64)
        wrong = int(
            apply(old, runs.offsets, some, touch, some_runs, scratch, new, touched, offsets)
        )
        if wrong >= 0:
            key = self._key(int(some[wrong, GROUP]))
            what = f"group {key} with an end point at {some[wrong, TIME]}"
            raise lost_event(self.operator.name, what)
        count = int(offsets[-1])
        return new[:count], touched[:count], offsets

    def _emitted(
        self, old: Segments, new: Segments, touched: Ints, before: int
    ) -> tuple[Segments, Segments, Ints]:
        """What the output has of the rows before and after: all of them."""
        del before
        return old, new, touched

    def _difference(
        self, old: Segments, new: Segments, touched: Ints, batch: Batch, group: Ints
    ) -> Batch:
        """The output's events that are others now: adjusts, removals and inserts."""
        found = np.empty((len(old.rows) + len(new.rows), 2), np.int64)
        count = int(compare(old.rows, old.end, new.rows, new.end, touched, found))
        was, now = found[:count, 0], found[:count, 1]
        is_old, is_new = was != NONE, now != NONE
        gone, values = self._events(old, was[is_old])
        if self.bags is not None:
            self.bags.apply(batch, group, self.mark)
        come, news = self._events(new, now[is_new])
        both = is_old & is_new
        pairs = (np.cumsum(is_old) - 1)[both], (np.cumsum(is_new) - 1)[both]
        same = equal_rows(values, pairs[0], news, pairs[1])
        moved = same & (gone.end[pairs[0]] != come.end[pairs[1]])
        removed = np.ones(len(gone.end), np.bool_)
        removed[pairs[0][same]] = False
        added = np.ones(len(come.end), np.bool_)
        added[pairs[1][same]] = False
        # Old events are adjusted to an end of the new one, or to their start.
        gone_at = np.flatnonzero(removed)
        adjusted = np.concatenate([pairs[0][moved], gone_at])
        ends = np.concatenate([come.end[pairs[1][moved]], gone.start[gone_at]])
        order = np.argsort(np.minimum(gone.end[adjusted], ends), kind="stable")
        adjusted, ends = adjusted[order], ends[order]
        inserted = np.flatnonzero(added)
        inserted = inserted[np.argsort(come.start[inserted], kind="stable")]
        picked = _picked(values, adjusted, news, inserted)
        return self._written(gone.take(adjusted), ends, come.take(inserted), picked)

    def _written(
        self, adjusted: Lifetimes, ends: Ints, inserted: Lifetimes, values: pa.Table
    ) -> Batch:
        """Adjusts to these ends, then inserts, with these values."""
        sizes = len(ends), len(inserted.end)
        groups = np.concatenate([adjusted.group, inserted.group])
        return Batch(
            self.output,
            np.repeat(np.array([ADJUST, INSERT], np.int8), sizes),
            np.concatenate([adjusted.start, inserted.start]),
            np.concatenate([ends, inserted.end]),
            np.concatenate([adjusted.end, np.zeros(sizes[1], np.int64)]),
            self._payload(groups, values),
        )

    def _events(self, of: Segments, at: Ints) -> tuple[Lifetimes, pa.Table]:
        """The lifetimes of some events, and the results of all functions for them."""
        times, slots = of.events(at)
        try:
            found = iter(self.slots.results(slots))
        except SumOverflowError as error:
            group, time = int(times.group[error.row]), int(times.start[error.row])
            raise self._overflow(error, group, time) from error
        points = times.group, times.start
        more = iter(() if self.bags is None else self.bags.results(*points))
        arrays = [next(found if one.is_invertible else more) for one in self.spec.functions]
        names = [one.name for one in self.spec.functions]
        return times, pa.Table.from_arrays(arrays, names=names)

    def _overflow(self, error: SumOverflowError, group: int, time: int) -> RunError:
        return RunError(
            f"{self.operator.name}: {error.function} of group {self._key(group)} at {time} is "
            f"beyond the range of {error.kind}; cast the column to a wider type, such as "
            "double or decimal(38, 0)"
        )

    def _payload(self, groups: Ints, values: pa.Table) -> pa.Table:
        """Keys and values side by side."""
        columns = [*self.table.payload(groups).columns, *values.columns]
        return pa.Table.from_arrays(columns, schema=self.output.payload)

    def _key(self, group: int) -> Any:
        rows = self.table.payload(np.array([group])).to_pylist()
        return rows[0] if rows else "()"

    def _stays(self, now: Segments, frontier: int) -> Mask:
        """Which rows are still needed: their events may change, or they hold the sum so far."""
        if frontier == FOREVER_UNITS:
            return np.zeros(len(now.rows), np.bool_)
        is_last = now.end == NEVER_UNITS
        final = ~is_last & (now.end < frontier)
        if self.spec.final_at_start:
            final |= (now.end == frontier) & now.end_is_fixed
        # Where nothing is alive, nothing is summed up; all rows before such a one leave too.
        is_empty = (now.rows[:, ALIVE] == 0) & (now.rows[:, TIME] < frontier)
        stays: Mask = ~(final | is_empty)
        return stays

    def _advance(self, now: Segments, stays: Mask) -> None:
        """Change rows that stay, once their events are emitted: none."""

    def _final(self, of: Segments, at: Ints) -> Batch | None:
        """The events that became final, as inserts by start."""
        if not self.spec.reports_final:
            return None
        at = at[np.argsort(of.rows[at, TIME], kind="stable")]
        times, values = self._events(of, at)
        payload = self._payload(times.group, values)
        return inserts(self.output, times.start, times.end, payload)

    def _pop_due(self, frontier: int) -> Ints:
        """The groups of which this frontier makes rows unnecessary."""
        return self._popped(frontier, frontier + 1 if self.spec.final_at_start else frontier)

    def _popped(self, frontier: int, until: int) -> Ints:
        """The groups that are due before `until`; all of them at the end of time."""
        if frontier == FOREVER_UNITS:
            self.due.pop_before(frontier)
            return self.table.living()
        ids, rows = distinct(self.due.pop_before(until)), self.table.rows
        due: Ints = ids[(rows[ids, FLAGS] & LIVE != 0) & (rows[ids, _DUE] < until)]
        rows[due, _DUE] = FOREVER_UNITS
        return due

    def _settle(self, groups: Ints) -> None:
        """When these groups are due; those without a point are removed."""
        due = self._due_of(groups)
        self.table.remove(groups[due == NEVER_UNITS], self.mark)
        has = due != NEVER_UNITS
        groups, due = groups[has], due[has]
        is_news = (due != self.table.rows[groups, _DUE]) & (due < FOREVER_UNITS)
        self.table.rows[groups, _DUE] = due
        self.due.push(due[is_news], groups[is_news])
        if len(self.due) > 2 * len(self.table) + _SMALL:
            ids = self.table.living()
            times = self.table.rows[ids, _DUE]
            self.due.rebuild(times[times < FOREVER_UNITS], ids[times < FOREVER_UNITS])

    def _due_of(self, groups: Ints) -> Ints:
        return self._due(groups, most=2, every=0)

    def _due(self, groups: Ints, *, most: int, every: int) -> Ints:
        due = np.full(len(groups), NEVER_UNITS, np.int64)
        points = self.points
        if len(groups) and len(points.order):
            asked = np.stack([groups, np.full(len(groups), NEVER_UNITS)], axis=1)
            places = points.places(asked)
            held = points.rows, points.order, points.size
            first_due(*held, CHUNK, frozen(groups), places, most, every, due)
        return due

    def parts(self, *, since: int | None = None) -> Saved:
        """The state in parts: all of them, or those that changed after a mark."""
        return save_state(self, since)

    def held(self) -> Mapping[str, Ints]:
        """What is saved of each group beside its key, by number."""
        return {}

    def restore_groups(self, ids: Ints, payload: pa.Table, rows: Sequence[pa.Table]) -> None:
        """Fill an empty table with these groups, and find out when they are due."""
        del rows
        self._restore(ids, payload, {})

    def _restore(self, ids: Ints, payload: pa.Table, own: Mapping[int, Ints]) -> None:
        rows, columns = rows_of(ids, payload, self.table.rows.shape[1])
        for column, numbers in own.items():
            rows[:, column] = numbers
        self.table.restore(ids, rows, columns, 0)
        self.table.rows[ids, _DUE] = due = self._due_of(ids)
        self.due.push(due[due < FOREVER_UNITS], ids[due < FOREVER_UNITS])

    def check(self) -> None:
        """Assert every invariant."""
        self._check_groups()
        rows = self.points.all()
        assert (rows[:, ALIVE] >= 0).all(), f"fewer than 0 events alive: {rows[:, ALIVE]}"
        last = np.append(np.diff(rows[:, GROUP]) != 0, True)[: len(rows)]
        left = rows[last][:, SLOTS:]
        assert not left.any(), f"sums behind the last point of a group: {left}"
        if self.bags is not None:
            self.bags.check()

    def _check_groups(self) -> None:
        """Assert that every group has rows, and is due when they are."""
        self.table.check()
        self.points.check()
        self.due.check()
        ids, groups = self.table.living(), distinct(self.points.all()[:, GROUP])
        due = self._due_of(ids)
        assert (due > NEVER_UNITS).all(), f"groups {ids} that nothing needs, due at {due}"
        assert np.isin(groups, ids).all(), f"groups with points {groups} not in {ids}"
        noted = self.table.rows[ids, _DUE]
        assert (due == noted).all(), f"groups are due at {due}, noted {noted}"
        times, entries = self.due.entries
        known = set(zip(times.tolist(), entries.tolist(), strict=True))
        for node, time in zip(ids.tolist(), due.tolist(), strict=True):
            assert time == FOREVER_UNITS or (time, node) in known, f"{node} not in the queue"


def _picked(one: pa.Table, rows: Ints, other: pa.Table, more: Ints) -> pa.Table:
    """These rows of a table, then those of another one."""
    at = to_arrow(np.concatenate([rows, more + one.num_rows]), pa.int64())
    pairs = zip(one.columns, other.columns, strict=True)
    both = [pa.concat_arrays([one_array(a), one_array(b)]).take(at) for a, b in pairs]
    return pa.Table.from_arrays(both, names=one.column_names)
