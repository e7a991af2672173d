"""Normalise over batches: the net change of the normal form, in columns.

A step looks at the payloads that its elements touch and at nothing else:

    find       the payload of each element, and what is held of those payloads
    settle     let go what has been frozen since they were last touched
    judge      replay the elements after the held events; broken promises change nothing
    compare    the runs before and after: adjusts, then inserts by start, then the stable

Whatever the cut into steps, the history at their ends is the normal form of the input's.  Cost:
a sort of the held events of the touched payloads and of the batch.  So a payload with very many
live events makes every step slow that touches it; many payloads do not.

Remembered per input event that is not frozen: its start, its end, and in `run` its start or, if
it is half frozen, the start of one of the runs that go on across the frontier (there are as
many of them as half-frozen events; which goes with which makes no difference).  A payload that
is not touched any more is settled when half of what is stored is waste.

Papers: none; see `anabranch.operators.normalise`, which is the reference.
"""

import numpy as np
import pyarrow as pa

from anabranch.batch.batch import (
    ADJUST,
    FOREVER_UNITS,
    INSERT,
    STABLE,
    Batch,
    Ints,
)
from anabranch.operators.normalise_runs import Changes, Runs, changes, runs
from anabranch.operators.unary import UnaryResult
from anabranch.operators.unary_codec import StateFormat
from anabranch.operators.unary_judge import Judged, judge
from anabranch.operators.unary_live import data_payload
from anabranch.operators.unary_state import UnaryState

_START, _END, _RUN = range(3)


class NormaliseState(UnaryState):
    """What normalise remembers for one lane; `step` changes it in place."""

    FORMAT = StateFormat.of("normalise", ("start", "end", "run"))
    BY_START = False

    def __repr__(self) -> str:
        return f"NormaliseState(frontier {self.frontier}, {self.live!r})"

    def settle(self) -> None:
        """Let go everything that is frozen, and all waste."""
        self.mark += 1
        group, rows, _ = _settle(*self.live.all(), self.frontier)
        self.live.keep(group, rows, self.mark)

    def to_bytes(self) -> bytes:
        """The whole state, versioned; settled before."""
        self.settle()
        return super().to_bytes()

    def check(self) -> None:
        """Assert what must always hold between steps."""
        self.live.check()
        group, rows = self.live.all()
        same = np.diff(group) == 0
        assert (np.diff(rows[:, _RUN])[same] >= 0).all(), f"runs are not in order: {self!r}"
        assert (rows[:, _RUN] <= rows[:, _START]).all(), f"a run began late: {self!r}"
        if self.frontier == FOREVER_UNITS:
            assert len(rows) == 0, f"the stream has ended: {self!r}"


def step(state: NormaliseState, batch: Batch) -> UnaryResult:
    """Take a batch, change the state, and return the net change of the normal form."""
    state.mark += 1
    data = np.flatnonzero(batch.is_data)
    found = state.live.find(batch.start[data], data_payload(batch, data))
    touched = np.unique(found)
    group, rows, before = _settle(*state.live.rows(touched), state.frontier)
    groups = np.full(len(batch), -1, np.int64)
    groups[data] = found
    held = (group, rows[:, _START], rows[:, _END])
    judged = judge(held, groups, batch, state.frontier)
    run = _carry(judged, rows, state.frontier)
    after = runs(judged.group, run, judged.end)
    output = _write(state, changes(before, after), judged.frontier)
    kept = np.stack([judged.start, judged.end, run], axis=1)
    state.live.write(touched, judged.group, kept, state.mark)
    state.frontier = judged.frontier
    if state.live.is_wasteful or state.frontier == FOREVER_UNITS:
        state.settle()
    return UnaryResult(output, judged.positions, judged.reasons)


def _settle(group: Ints, rows: Ints, frontier: int) -> tuple[Ints, Ints, Runs]:
    """The events that are not frozen, and the runs that are not; all are sorted by group."""
    found = runs(group, rows[:, _RUN], rows[:, _END])
    if frontier == FOREVER_UNITS:
        return group[:0], rows[:0], found.take(slice(0))
    found = found.take(found.end >= frontier)
    stays = rows[:, _END] >= frontier
    group, rows = group[stays], rows[stays]
    # As many runs go on across the frontier as events do, in every group.
    rows[rows[:, _START] < frontier, _RUN] = found.start[found.start < frontier]
    return group, rows, found


def _carry(judged: Judged, rows: Ints, frontier: int) -> Ints:
    """Where the run of each event began; a step changes no event that is half frozen before it.

    (Except for its end; so the half-frozen events of a group are as many before and after.)
    """
    run = judged.start.copy()
    run[judged.start < frontier] = rows[rows[:, _START] < frontier, _RUN]
    return run


def _write(state: NormaliseState, found: Changes, frontier: int) -> Batch:
    """The adjusts, the inserts in the order of their starts, and the stable if it is news."""
    adjusted, inserted = found.adjusted, found.inserted
    # An input without adjusts whose starts rise gives an output whose starts rise.
    inserted = inserted.take(np.argsort(inserted.start, kind="stable"))
    stables = int(frontier > state.frontier)
    sizes = [len(adjusted), len(inserted), stables]
    none = np.zeros(stables, np.int64)
    times = [np.full(stables, frontier), none]
    payload = state.live.payload(np.concatenate([adjusted.group, inserted.group]))
    nulls = [pa.nulls(stables, field.type) for field in state.schema.payload]
    if nulls:
        payload = pa.concat_tables([payload, pa.table(nulls, schema=payload.schema)])
    return Batch(
        state.schema,
        np.repeat(np.array([ADJUST, INSERT, STABLE], np.int8), sizes),
        np.concatenate([adjusted.start, inserted.start, times[0]]),
        np.concatenate([adjusted.end, inserted.end, none]),
        np.concatenate([found.old_end, np.zeros(sizes[1] + stables, np.int64)]),
        payload,
    )
