"""Normalise: a stream whose history is the normal form of its input's, over batches.

A step looks at the payloads that its elements touch, and at those that are due:

    find       the payload of each element, and what is held of those payloads
    settle     drop what has been frozen since they were last touched
    judge      replay the elements after the held events; broken promises change nothing
    compare    the runs before and after: adjusts, then inserts by start, then the stable

However the input is cut into steps, the history at their ends is the normal form of the
input's.  Cost: a sort of the held events of the touched payloads and of the batch.  So a
payload with very many live events makes every step slow that touches it; many payloads do not.

Remembered per input event that is not frozen: its start, its end, and in `run` its start or, if
it is half frozen, the start of one of the runs that continue across the frontier (there are as
many of them as half-frozen events; which goes with which makes no difference).  A payload that
is not touched any more is settled when half of its events are frozen, so at most about half of
what is held is.

Papers: none; the reference is `anabranch.operators.reference.normalise`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from anabranch.batch.batch import ADJUST, FOREVER_UNITS, INSERT, STABLE, Batch, Ints
from anabranch.batch.events import with_stable
from anabranch.batch.schema import ElementSchema
from anabranch.errors import UsageError
from anabranch.model.properties import StreamProperties, shared
from anabranch.operators.contract import Route
from anabranch.operators.runs.normalise_runs import Changes, Runs, changes, runs
from anabranch.operators.state.codec import StateKind
from anabranch.operators.unary import END, START, Changed, UnaryState
from anabranch.operators.unary_judge import Judged, order_by

_RUN = 2


def after_normalise(
    properties: StreamProperties, *, max_multiplicity: int | None = None
) -> StreamProperties:
    """What holds of the output, for each replica, if this holds of the input.

    Fragments that meet are joined by adjusts, also if the input has none.  Where several events
    of one payload start together, their levels have one identity; this cannot be if the input
    is keyed, or if no payload is ever alive twice at one time.

    `max_multiplicity` is a promise about every prefix: no more events of one payload are alive
    at one time, provisional ends included.

    >>> after_normalise(StreamProperties(ordered=True)).keyed
    False
    >>> after_normalise(StreamProperties(), max_multiplicity=1).keyed
    True
    """
    if max_multiplicity is not None and max_multiplicity < 1:
        message = (
            f"normalise: max_multiplicity is {max_multiplicity}; it must be 1 or more, or None "
            "if nothing is known; leave it out, or give the greatest number of equal payloads"
        )
        raise UsageError(message)
    return StreamProperties(keyed=properties.keyed or max_multiplicity == 1)


@dataclass(frozen=True)
class NormaliseOperator:
    """Give a stream the normal form of its history."""

    schema: ElementSchema
    name: str = "normalise"
    route: Route = Route.PAYLOAD
    route_columns: Sequence[str] = ()

    @property
    def output(self) -> ElementSchema:
        """Elements with the columns of the input."""
        return replace(self.schema, has_seq=False, has_replica=False)

    def properties(self, *inputs: StreamProperties) -> StreamProperties:
        """Keyed, if the input is."""
        return after_normalise(shared(inputs))

    def empty(self) -> "NormaliseState":
        """Nothing has happened."""
        return NormaliseState(self.schema)

    def from_parts(self, parts: Mapping[str, bytes]) -> "NormaliseState":
        """The state that was saved; StateError if of another kind, version or schema."""
        return NormaliseState.from_parts(parts, self.schema)


class NormaliseState(UnaryState):
    """What normalise remembers for one lane."""

    KIND = StateKind("anabranch normalise", version=1)
    COLUMNS = ("start", "end", "run")
    BY_START = False

    def take(self, batch: Batch) -> tuple[Judged, Changed]:
        """The net change of the normal form."""
        groups, touched = self.find(batch)
        group, rows, before = _settle(*self.groups.read(touched), self.received)
        judged = self.judge(batch, groups, (group, rows))
        run = _carry(judged, rows, self.received)
        found = changes(before, runs(judged.group, run, judged.end))
        output = self._write(found, judged.frontier)
        kept = np.stack([judged.start, judged.end, run], axis=1)
        due = _due(touched, judged.group, judged.end)
        self.groups.write(touched, judged.group, kept, due, self.mark)
        moved = judged.frontier > self.received
        self.received = judged.frontier
        visits = self._settle_due() if moved else 0
        return judged, Changed(output, counts={"visits": visits})

    def _settle_due(self) -> int:
        """Drop what is frozen of the payloads of which half is; how many these were."""
        due = self.groups.pop_due(self.received)
        group, rows, _ = _settle(*self.groups.read(due), self.received)
        self.groups.write(due, group, rows, _due(due, group, rows[:, END]), self.mark)
        return len(due)

    def _write(self, found: Changes, frontier: int) -> Batch:
        """The adjusts, the inserts by start, and the stable if it is news."""
        adjusted, inserted = found.adjusted, found.inserted
        order = self.groups.order(adjusted.group, adjusted.start, adjusted.end)
        adjusted, old_end = adjusted.take(order), found.old_end[order]
        # An input without adjusts whose starts rise gives an output whose starts rise.
        inserted = inserted.take(
            self.groups.order(inserted.group, inserted.start, inserted.end)
        )
        stables = int(frontier > self.received)
        sizes = [len(adjusted), len(inserted), stables]
        none = np.zeros(stables, np.int64)
        payload = self.groups.payload(np.concatenate([adjusted.group, inserted.group]))
        return Batch(
            self.schema,
            np.repeat(np.array([ADJUST, INSERT, STABLE], np.int8), sizes),
            np.concatenate([adjusted.start, inserted.start, none + frontier]),
            np.concatenate([adjusted.end, inserted.end, none]),
            np.concatenate([old_end, np.zeros(sizes[1] + stables, np.int64)]),
            with_stable(payload, self.schema, stables),
        )

    def restored(self) -> None:
        """Payloads are due when half of their events end."""
        group, rows = self.groups.all()
        ids = self.groups.table.living()
        self.groups.schedule(ids, _due(ids, group, rows[:, END]))

    def check(self) -> None:
        """Assert every invariant."""
        super().check()
        group, rows = self.groups.all()
        same = np.diff(group) == 0
        runs, starts = rows[:, _RUN], rows[:, START]
        assert (np.diff(runs)[same] >= 0).all(), f"runs of a group are not sorted: {runs}"
        assert (runs <= starts).all(), f"run starts {runs} > event starts {starts}"
        if self.received == FOREVER_UNITS:
            assert len(rows) == 0, f"{len(rows)} events held after stable(FOREVER), expected 0"


def _due(groups: Ints, group: Ints, end: Ints) -> Ints:
    """When each of these groups is due: when half of its events have ended."""
    due = np.full(len(groups), FOREVER_UNITS, np.int64)
    first = np.searchsorted(group, groups)
    size = np.searchsorted(group, groups, side="right") - first
    held = size > 0
    if len(group) > np.count_nonzero(held):
        end = end[order_by(group, end)]
    due[held] = end[(first + (size - 1) // 2)[held]]
    return due


def _settle(group: Ints, rows: Ints, frontier: int) -> tuple[Ints, Ints, Runs]:
    """The events that are not frozen, and the runs that are not; all are sorted by group."""
    found = runs(group, rows[:, _RUN], rows[:, END])
    if frontier == FOREVER_UNITS:
        return group[:0], rows[:0], found.take(slice(0))
    found = found.take(found.end >= frontier)
    stays = rows[:, END] >= frontier
    group, rows = group[stays], rows[stays]
    # As many runs go on across the frontier as events do, in every group.
    rows[rows[:, START] < frontier, _RUN] = found.start[found.start < frontier]
    return group, rows, found


def _carry(judged: Judged, rows: Ints, frontier: int) -> Ints:
    """Where the run of each event began; a step changes no event that is half frozen before it.

    (Except for its end; so the half-frozen events of a group are as many before and after.)
    """
    run = judged.start.copy()
    run[judged.start < frontier] = rows[rows[:, START] < frontier, _RUN]
    return run
