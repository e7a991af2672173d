"""Align: a stream with its inserts in the order of starts, over batches.

An event is released when the frontier has passed its start, as it is then; later changes of its
end follow as adjusts.  So the output waits exactly as long as an order of starts demands, and a
reader that needs rows in the order of their times can read it as it comes.  Without align
streams are unordered, with stables: most operators need no order, and answer earlier.

Where all events of a start and payload have one end (`final_at_start`), an event is final when
it is released: then the final events come in the order of starts as well, and align reports
them itself.  Else an event is final by its end, in the order that ends allow.

A step looks at the events that it touches, and at those that are due: at their start, to be
released, then at their end, to be forgotten.

Remembered: every event that is not frozen.

Papers: Heartbeats 2, decision D7; the reference is `anabranch.operators.reference.align`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from anabranch.batch.batch import ADJUST, FOREVER_UNITS, INSERT, STABLE, Batch, Ints, Mask
from anabranch.batch.buffers import take
from anabranch.batch.events import with_stable
from anabranch.batch.schema import ElementSchema
from anabranch.model.properties import StreamProperties, shared
from anabranch.operators.cleanse import release_order
from anabranch.operators.contract import Route
from anabranch.operators.runs.normalise_runs import Changes, Runs, changes
from anabranch.operators.state.codec import StateKind
from anabranch.operators.state.groups import distinct, first_ends, is_frozen
from anabranch.operators.unary import END, START, Changed, UnaryState
from anabranch.operators.unary_judge import Judged


@dataclass(frozen=True)
class AlignOperator:
    """Release events in the order of their starts.

    In several lanes each has an order of its own: run it in one.  `final_at_start`: ends are
    known from the start, so that `reports_final` reports an event when it is released.
    """

    schema: ElementSchema
    final_at_start: bool = False
    reports_final: bool = False
    name: str = "align"
    route: Route = Route.IDENTITY
    route_columns: Sequence[str] = ()

    @property
    def output(self) -> ElementSchema:
        """Elements with the columns of the input."""
        return replace(self.schema, has_seq=False, has_replica=False)

    def reporting_final(self) -> "AlignOperator | None":
        """The same with `final` in its results, if what is released is final."""
        return replace(self, reports_final=True) if self.final_at_start else None

    def properties(self, *inputs: StreamProperties) -> StreamProperties:
        """In order; ties by value, all of a start at once, where ends do not change."""
        known = shared(inputs)
        fixed = known.insert_only or self.final_at_start
        return replace(known, insert_only=fixed, ordered=True, ties_in_same_order=fixed)

    def empty(self) -> "AlignState":
        """Nothing has happened."""
        return self._reporting(AlignState(self.schema))

    def from_parts(self, parts: Mapping[str, bytes]) -> "AlignState":
        """The state that was saved; StateError if of another kind, version or schema."""
        return self._reporting(AlignState.from_parts(parts, self.schema))

    def _reporting(self, state: "AlignState") -> "AlignState":
        state.reports_final = self.reports_final
        return state


class AlignState(UnaryState):
    """What align remembers for one lane: events that start before `received` are released."""

    KIND = StateKind("anabranch align", version=1)
    reports_final = False

    def take(self, batch: Batch) -> tuple[Judged, Changed]:
        """Note what came, adjust what is released, release what the frontier passes."""
        groups, touched = self.find(batch)
        group, rows = self.groups.read(touched)
        judged = self.judge(batch, groups, (group, rows))
        before = _released(group, rows[:, START], rows[:, END], self.received)
        after = _released(judged.group, judged.start, judged.end, self.received)
        found, passed = changes(before, after), self.received
        kept = np.stack([judged.start, judged.end], axis=1)
        self.groups.write(
            touched, judged.group, kept, self._due(touched, judged.group, kept), self.mark
        )
        if judged.frontier == passed:
            return judged, self._changed(self._write(found, *_nothing(), None), 0)
        self.received = judged.frontier
        due = self.groups.pop_due(self.received)
        group, rows = self.groups.read(due)
        is_new = (rows[:, START] >= passed) & (rows[:, START] < self.received)
        output = self._write(found, group[is_new], rows[is_new], self.received)
        stays = ~is_frozen(rows[:, END], self.received)
        group, rows = group[stays], rows[stays]
        self.groups.write(due, group, rows, self._due(due, group, rows), self.mark)
        return judged, self._changed(output, len(due))

    def _changed(self, output: Batch, visits: int) -> Changed:
        """The output, and its inserts as what became final, if that is so."""
        final = None
        if self.reports_final:
            final = output.take(np.flatnonzero(output.kind == INSERT))
        return Changed(output, final, {"visits": visits})

    def _due(self, groups: Ints, group: Ints, rows: Ints) -> Ints:
        """Groups are due at their start until they are released, then at their first end."""
        due = np.full(len(groups), FOREVER_UNITS, np.int64)
        found, ends = first_ends(group, rows)
        start = rows[np.flatnonzero(np.diff(group, prepend=-1)), START]
        times = np.where(start >= self.received, start, ends)
        due[np.searchsorted(groups, found)] = times
        return due

    def _write(self, found: Changes, group: Ints, rows: Ints, stable: int | None) -> Batch:
        """Adjusts of what was released before, the events by start, and the stable."""
        adjusted = found.adjusted
        order = self.groups.order(adjusted.group, adjusted.start, adjusted.end)
        adjusted, old_end = adjusted.take(order), found.old_end[order]
        payload = self.groups.payload(group)
        in_order = release_order(rows[:, START], payload, rows[:, END])
        rows, payload = rows[in_order], take(payload, in_order)
        stables = np.array([] if stable is None else [stable], np.int64)
        sizes = [len(adjusted), len(rows), len(stables)]
        none = np.zeros_like(stables)
        payload = pa.concat_tables([self.groups.payload(adjusted.group), payload])
        return Batch(
            self.schema,
            np.repeat(np.array([ADJUST, INSERT, STABLE], np.int8), sizes),
            np.concatenate([adjusted.start, rows[:, START], stables]),
            np.concatenate([adjusted.end, rows[:, END], none]),
            np.concatenate([old_end, np.zeros(sizes[1] + sizes[2], np.int64)]),
            with_stable(payload, self.schema, len(stables)),
        )

    def restored(self) -> None:
        """What was released is due at its end, the rest at its start."""
        group, rows = self.groups.all()
        ids = distinct(group)
        self.groups.schedule(ids, self._due(ids, group, rows))

    def check(self) -> None:
        """Assert every invariant."""
        super().check()
        _, rows = self.groups.all()
        frozen = is_frozen(rows[:, END], self.received)
        assert not frozen.any(), f"frozen events are kept: {rows[frozen]} in {self!r}"


def _released(group: Ints, start: Ints, end: Ints, frontier: int) -> Runs:
    """The events that were released, sorted as `changes` compares them."""
    is_out: Mask = start < frontier
    group, start, end = group[is_out], start[is_out], end[is_out]
    order = np.lexsort((-end, group))
    return Runs(group[order], start[order], end[order])


def _nothing() -> tuple[Ints, Ints]:
    return np.empty(0, np.int64), np.empty((0, 2), np.int64)
