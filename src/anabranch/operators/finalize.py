"""Only what is final: an event comes out once, when nothing can change it any more.

The input is a stream of elements; the output is the events that its stables freeze, each in the
step whose stable freezes it, in no particular order.  Nothing is ever taken back, so any sink
that can append can take it.  At every prefix the output has exactly the frozen events of the
input's history (`model.frozen`).

Remembered: every event that is not frozen.  A step looks at the events that it touches, and at
the times of all others if the frontier moved.

Compare `anabranch.operators.cleanse`, which waits longer, for an order that replicas share.
"""

import numpy as np

from anabranch.batch.batch import FOREVER_UNITS, INSERT, Batch, Ints, Mask
from anabranch.operators.unary_codec import StateFormat
from anabranch.operators.unary_judge import judge
from anabranch.operators.unary_live import data_payload
from anabranch.operators.unary_state import UnaryState

_START, _END = range(2)


class FinalizeState(UnaryState):
    """What finalize remembers for one lane; `step` changes it in place."""

    FORMAT = StateFormat.of("finalize", ("start", "end"))
    BY_START = True

    def __repr__(self) -> str:
        return f"FinalizeState(frontier {self.frontier}, {self.live!r})"

    def check(self) -> None:
        """Assert what must always hold between steps."""
        self.live.check()
        _, rows = self.live.all()
        assert not _is_frozen(rows[:, _END], self.frontier).any(), f"was not let go: {self!r}"


def step(state: FinalizeState, batch: Batch) -> Batch:
    """Take a batch of a valid stream; the events that are final from now on, as inserts."""
    state.mark += 1
    data = np.flatnonzero(batch.is_data)
    found = state.live.find(batch.start[data], data_payload(batch, data))
    touched = np.unique(found)
    group, rows = state.live.rows(touched)
    groups = np.full(len(batch), -1, np.int64)
    groups[data] = found
    judged = judge((group, rows[:, _START], rows[:, _END]), groups, batch, state.frontier)
    held = np.stack([judged.start, judged.end], axis=1)
    state.live.write(touched, judged.group, held, state.mark)
    moved = judged.frontier > state.frontier
    state.frontier = judged.frontier
    output = _release(state, *(state.live.all() if moved else (group[:0], rows[:0])))
    if state.live.is_wasteful:
        state.live.keep(*state.live.all(), state.mark)
    return output


def _release(state: FinalizeState, group: Ints, rows: Ints) -> Batch:
    frozen = _is_frozen(rows[:, _END], state.frontier)
    some = np.unique(group[frozen])
    stays = np.isin(group, some) & ~frozen
    state.live.write(some, group[stays], rows[stays], state.mark)
    start, end = rows[frozen, _START], rows[frozen, _END]
    kind = np.full(len(start), INSERT, np.int8)
    payload = state.live.payload(group[frozen])
    return Batch(state.schema, kind, start, end, np.zeros(len(start), np.int64), payload)


def _is_frozen(end: Ints, frontier: int) -> Mask:
    frozen: Mask = (end < frontier) | (frontier == FOREVER_UNITS)
    return frozen
