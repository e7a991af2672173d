"""Merge R3-, the baseline of LMerge VI: the net change of a step, one index per replica.

A baseline for measurements, not for use: history and frontier are those of R3, memory grows
with the number of replicas (each has its own payloads), and a stable looks at every live event,
as the paper's listings do.  Simpler than R3 in its account: elements that break a promise, come
again or come too late are left out, and counted together as `refused`; replicas are complete
from the beginning, and stay.

Papers: LMerge VI-B, LMR3-.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from anabranch.batch.batch import (
    ADJUST,
    FOREVER_UNITS,
    INSERT,
    NEVER_UNITS,
    STABLE,
    Batch,
    Ints,
    Mask,
)
from anabranch.batch.buffers import take
from anabranch.batch.intern import Interner
from anabranch.batch.kernel import frozen, kernel
from anabranch.batch.schema import ElementSchema
from anabranch.batch.store import grown
from anabranch.operators.contract import Arrival

ABSENT: Final = int(NEVER_UNITS)
"""Not in this index; the start itself marks that the event was removed."""

_ROOM: Final = 1024
_ID_BYTES: Final = 2 * 8 + 8 + 2 * 8 + 8
"""Of an event in an index: its hash, start, slots and end."""


class Index:
    """The end that one stream gives each event, and the payloads of those events."""

    def __init__(self, payload: pa.Schema) -> None:
        self._schema = payload
        self.interner = Interner(payload)
        self._end: Ints = np.empty(0, np.int64)

    @property
    def end(self) -> Ints:
        """The end of each event, by id; may be written to."""
        return self._end[: len(self.interner)]

    @property
    def nbytes(self) -> int:
        """What it holds, about: payloads and numbers."""
        return int(self.interner.payload.nbytes) + _ID_BYTES * len(self.interner)

    def find(self, start: Ints, payload: pa.Table) -> Ints:
        """The ids of these events; those that are not here have the end ABSENT."""
        known = len(self.interner)
        ids = self.interner.intern(start, payload)
        self._end = grown(self._end, len(self.interner))
        self._end[known : len(self.interner)] = ABSENT
        return ids

    def keep(self, rows: Mask) -> None:
        """Forget the others, if they are more than half."""
        ids = np.flatnonzero(rows)
        if len(self.interner) <= 2 * len(ids) + _ROOM:
            return
        end, start, payload = self.end[ids], self.interner.start[ids], self.interner.take(ids)
        self.interner, self._end = Interner(self._schema), np.empty(0, np.int64)
        kept = self.find(start, payload)
        self.end[kept] = end


@dataclass(eq=False)
class Source:
    """One replica: its index, its frontier and the last seq that it used."""

    index: Index
    frontier: int = ABSENT
    last_seq: int = ABSENT


@dataclass(eq=False)
class SeparateState:
    """All indexes, and the output's frontier; `step` changes it in place.

    `visits` counts the events that stables looked at, as `Work` does for R3.
    """

    schema: ElementSchema
    output: Index
    sources: dict[str, Source] = field(default_factory=dict)
    frontier: int = ABSENT
    visits: int = 0

    @classmethod
    def empty(cls, schema: ElementSchema) -> "SeparateState":
        """Nobody is attached and nothing has happened."""
        plain = replace(schema, has_seq=False, has_replica=False)
        return cls(plain, Index(plain.payload))

    @property
    def live(self) -> int:
        """How many events may still change."""
        return int((self.output.end != ABSENT).sum())

    @property
    def nbytes(self) -> int:
        """What all indexes hold, about."""
        return sum(index.nbytes for index in self._indexes())

    def _indexes(self) -> list[Index]:
        return [self.output, *(source.index for source in self.sources.values())]

    def check(self) -> None:
        """Assert what must always hold between steps."""
        for index in self._indexes():
            index.interner.check()
            assert len(index.end) == len(index.interner), "an event without an entry"
        end, start = self.output.end, self.output.interner.start
        shown = end != ABSENT
        assert (end[shown] > start[shown]).all(), "an empty event on the output"
        assert (end[shown] >= self.frontier).all(), "a final event was kept"
        for source in self.sources.values():
            assert source.frontier <= self.frontier, "the output runs behind its leader"


@dataclass(frozen=True, eq=False)
class SeparateResult:
    """The net change of one step, and how many elements were left out of it."""

    output: Batch
    refused: int


def step(state: SeparateState, arrivals: Sequence[Arrival]) -> SeparateResult:
    """Take what arrived, change the state, and return the net change of the output."""
    before = state.output.end.copy()
    refused = sum(_enter(state, arrival) for arrival in arrivals)
    leader = max(state.sources.values(), key=lambda one: one.frontier, default=None)
    if leader is None or leader.frontier <= state.frontier:
        return SeparateResult(_net_change(state, before, stables=0), refused)
    _reconcile(state, leader)
    state.frontier = leader.frontier
    output = _net_change(state, before, stables=1)
    _settle(state)
    return SeparateResult(output, refused)


def _enter(state: SeparateState, arrival: Arrival) -> int:
    """Enter the elements of a replica in its index, and bring what is new to the output."""
    source = state.sources.get(arrival.input)
    if source is None:
        source = state.sources[arrival.input] = Source(Index(state.schema.payload))
    batch = arrival.batch
    data = np.flatnonzero(batch.is_data)
    start, payload = batch.start[data], take(batch.payload, data)
    here, there = (index.find(start, payload) for index in (source.index, state.output))
    ids = np.full(len(batch), -1, np.int64)
    ids[data] = here
    is_open = np.ones(len(batch), np.bool_)
    is_open[data] = (start >= state.frontier) | (state.output.end[there] != ABSENT)
    control = np.array([source.frontier, source.last_seq, 0])
    seq = np.empty(0, np.int64) if batch.seq is None else batch.seq
    times = frozen(batch.start), frozen(batch.end), frozen(batch.old_end)
    found = frozen(seq), frozen(ids), frozen(is_open)
    enter(frozen(batch.kind), *times, *found, source.index.end, control)
    source.frontier, source.last_seq = int(control[0]), int(control[1])
    ends = source.index.end[here]
    new = is_open[data] & (ends > start) & (state.output.end[there] == ABSENT)
    state.output.end[there[new]] = ends[new]
    return int(control[2])


@kernel
def enter(
    kind: Any,
    start: Any,
    end: Any,
    old_end: Any,
    seq: Any,
    ids: Any,
    is_open: Any,
    entry: Any,
    control: Any,
) -> None:
    """Enter the elements of one replica; `control` is its frontier, last seq, and refusals."""
    for i in range(kind.size):
        if seq.size > 0:
            if seq[i] <= control[1]:
                control[2] += 1
                continue
            control[1] = seq[i]
        if kind[i] == STABLE:
            control[0] = max(control[0], start[i])
            continue
        own = ids[i]
        if kind[i] == INSERT:
            changes = end[i] != start[i]
            allowed = start[i] >= control[0] and entry[own] <= start[i]
        else:
            changes = end[i] != old_end[i]
            allowed = min(old_end[i], end[i]) >= control[0]
            allowed = allowed and old_end[i] > start[i] and entry[own] == old_end[i]
        if end[i] < start[i] or (changes and not (allowed and is_open[i])):
            control[2] += 1
        elif changes:
            entry[own] = end[i]


def _reconcile(state: SeparateState, leader: Source) -> None:
    """Let the output agree with the leader about what its frontier would freeze wrongly."""
    time, output = leader.frontier, state.output
    rows = np.flatnonzero((output.end != ABSENT) & (output.interner.start < time))
    start, shown = output.interner.start[rows], output.end[rows]
    state.visits += len(rows)
    here = leader.index.find(start, output.interner.take(rows))
    ends = leader.index.end[here]
    end = np.maximum(ends, state.frontier)
    agreed = np.where(np.minimum(end, shown) >= time, shown, end)
    # What the leader does not have goes, unless it was promised (erratum L4).
    denied = np.where(start >= state.frontier, ABSENT, shown)
    output.end[rows] = np.where(ends > start, agreed, denied)


def _net_change(state: SeparateState, before: Ints, *, stables: int) -> Batch:
    """The adjusts, then the inserts, then the stable that turn the old output into the new."""
    after, start = state.output.end, state.output.interner.start
    before = np.append(before, np.full(len(after) - len(before), ABSENT))
    changed = np.flatnonzero((before != ABSENT) & (before != after))
    brought = np.flatnonzero((before == ABSENT) & (after != ABSENT))
    rows, none = np.append(changed, brought), np.zeros(stables, np.int64)
    payload = state.output.interner.take(rows)
    nulls = [pa.nulls(stables, column.type) for column in payload.schema]
    if nulls:
        payload = pa.concat_tables([payload, pa.table(nulls, schema=payload.schema)])
    kinds, sizes = (ADJUST, INSERT, STABLE), (len(changed), len(brought), stables)
    return Batch(
        state.schema,
        np.repeat(np.array(kinds, np.int8), sizes),
        np.concatenate([start[rows], none + state.frontier]),
        np.concatenate([np.where(after[rows] == ABSENT, start[rows], after[rows]), none]),
        np.concatenate([before[changed], np.zeros(len(brought) + stables, np.int64)]),
        payload,
    )


def _settle(state: SeparateState) -> None:
    """Forget what is final, in every index."""
    output = state.output
    final = (output.end < state.frontier) | (state.frontier == FOREVER_UNITS)
    output.end[final] = ABSENT
    for source in state.sources.values():
        index, start = source.index, source.index.interner.start
        is_open = (index.end != ABSENT) & (start >= state.frontier)
        passed = np.flatnonzero((index.end != ABSENT) & ~is_open)
        there = output.find(start[passed], index.interner.take(passed))
        is_open[passed] = output.end[there] != ABSENT
        index.keep(is_open)
    output.keep(output.end != ABSENT)
