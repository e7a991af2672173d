"""Merge for the cases R0, R1 and R2 over batches.

A step takes the elements of any number of replicas, arrival after arrival, and decides each
just as the element-by-element forms do (`r0`, `r1`, `r2`): the same inserts are on the output,
whatever the cut into steps.

    scan       times: who breaks a promise, is late, is held back, opens a new start
    settle     payloads, only among inserts with one start: new on the output, or known
    show       the inserts, then one stable if the frontier moved

Of the stables that moved the frontier in one step only the last is `emitted`; the others are
`absorbed`.  With one element per step every reason is that of the element-by-element forms.

Papers: LMerge IV-A to IV-C, V-B, V-C; erratum D21 for the one stable.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from anabranch.batch.batch import INSERT, Batch, Codes, Ints, concat
from anabranch.batch.events import inserts
from anabranch.batch.kernel import frozen
from anabranch.model.properties import MergeCase
from anabranch.operators.contract import BUCKET_OF, Arrival, Reason, Resolved, StepResult
from anabranch.operators.merge.ordered_group import Candidates, Payloads
from anabranch.operators.merge.ordered_scan import (
    CLOCK_SIZE,
    CURRENT,
    FRONTIER,
    LAG,
    LEADER,
    LENGTH,
    MOVES,
    NOBODY,
    VISITS,
    Control,
    Found,
    Rows,
    scan,
)
from anabranch.operators.merge.ordered_state import Held, OrderedState


@dataclass(frozen=True, eq=False)
class _Work:
    """One step: what was held and what came as rows, where their payloads are, what was found.

    `what` and `row` are what the output may show, in order.
    """

    rows: Rows
    held: int
    place: Ints
    payloads: Payloads
    reasons: Codes
    what: Codes
    row: Ints
    leader: int


def take(state: OrderedState, arrivals: Sequence[Arrival]) -> StepResult:
    """Take what arrived, change the state, and return the net change."""
    counts, conflicts = state.counts, state.conflicts
    work = _scan(state, arrivals)
    _settle(state, work)
    leads = np.flatnonzero(work.reasons == Reason.LEADS.code)
    work.reasons[leads[leads != work.leader]] = Reason.FOLLOWS.code
    output = _show(state, work)
    resolved = _hold(state, work)
    sizes = [len(arrival.batch) for arrival in arrivals]
    found = work.reasons[work.held :]
    reasons = tuple(np.split(found, np.cumsum(sizes)[:-1])) if arrivals else ()
    return StepResult(
        output,
        buckets=tuple(BUCKET_OF.take(codes) for codes in reasons),
        reasons=reasons,
        frontier=state.frontier,
        conflicts=state.conflicts - conflicts,
        resolved=resolved,
        counts={name: count - counts[name] for name, count in state.counts.items()},
    )


def _scan(state: OrderedState, arrivals: Sequence[Arrival]) -> _Work:
    """All that times decide; frontier and current start of the state move."""
    rows, place, payloads = _lay_out(state, arrivals)
    held, count, members = len(state.held), len(place), state.members
    control = Control(
        members.guarantee,
        members.frontier,
        members.last_seq,
        state.last_start,
        *np.full((2, len(members)), NOBODY, np.int64),
    )
    # One stable may be followed by those of all replicas that it lets join.
    room = count + len(members) + 1
    found = Found(
        np.empty(count, np.int8),
        np.empty(count, np.int64),
        np.empty(room, np.int8),
        np.empty(room, np.int64),
    )
    clock = np.zeros(CLOCK_SIZE, np.int64)
    clock[FRONTIER], clock[CURRENT], clock[LEADER] = state.frontier, state.current, NOBODY
    clock[LAG] = state.policy.stable_lag
    scan(rows, control, found, clock, held, int(state.case is MergeCase.R0))
    state.frontier, state.current = int(clock[FRONTIER]), int(clock[CURRENT])
    state.visits += int(clock[VISITS])
    sequence = found.what[: clock[LENGTH]], found.row[: clock[LENGTH]]
    return _Work(rows, held, place, payloads, found.reasons, *sequence, int(clock[LEADER]))


def _lay_out(state: OrderedState, arrivals: Sequence[Arrival]) -> tuple[Rows, Ints, Payloads]:
    """What was held, then the elements of all arrivals, one after the other."""
    held = state.held
    batches = [arrival.batch for arrival in arrivals if len(arrival.batch)]
    names = [state.members.names.index(a.input) for a in arrivals if len(a.batch)]
    replica = np.repeat(np.array(names, np.int64), [len(batch) for batch in batches])
    batch = concat(batches) if batches else held.batch(state.schema, np.arange(0))
    seq = np.empty(0, np.int64) if batch.seq is None else batch.seq
    payloads = Payloads([held.payload, *(batch.payload for batch in batches)])
    place = held.payload.num_rows + np.arange(len(batch))
    if not len(held):
        return _freeze(batch.kind, batch.start, batch.end, seq, replica), place, payloads
    rows = _freeze(
        np.append(np.full(len(held), INSERT, np.int8), batch.kind),
        np.append(held.start, batch.start),
        np.append(held.end, batch.end),
        np.append(np.zeros(len(held), np.int64), seq) if len(seq) else seq,
        np.append(held.replica, replica),
    )
    return rows, np.append(held.place, place), payloads


def _freeze(kind: Codes, start: Ints, end: Ints, seq: Ints, replica: Ints) -> Rows:
    return Rows(frozen(kind), frozen(start), frozen(end), frozen(seq), frozen(replica))


def _settle(state: OrderedState, work: _Work) -> None:
    """All that payloads decide."""
    inserts = work.what != MOVES
    row = work.row[inserts]
    columns = work.rows.start[row], work.rows.end[row], work.rows.replica[row]
    some = Candidates(work.what[inserts], *columns, work.place[row])
    reasons = state.group.settle(some, work.payloads)
    work.reasons[row] = reasons
    state.conflicts += int(np.count_nonzero(reasons == Reason.OTHER_EVENT.code))


def _show(state: OrderedState, work: _Work) -> Batch:
    """The inserts that are new on the output, and the last of the stables."""
    is_move = work.what == MOVES
    row, time = work.row[~is_move], work.row[is_move][-1:]
    row = row[work.reasons[row] == Reason.FIRST.code]
    payload, stable = work.payloads.take(work.place[row]), int(time[0]) if len(time) else None
    return inserts(state.schema, work.rows.start[row], work.rows.end[row], payload, stable)


def _hold(state: OrderedState, work: _Work) -> tuple[Resolved, ...]:
    """Keep what still waits; returns what no longer does."""
    held, count = state.held, work.held
    decided = np.flatnonzero(work.reasons[:count] != Reason.HELD.code)
    resolved, state.abandoned = state.abandoned, []
    for replica in np.unique(held.replica[decided]):
        rows = decided[held.replica[decided] == replica]
        batch, reasons = held.batch(state.schema, rows), work.reasons[rows]
        resolved.append(Resolved(state.members.names[replica], batch, reasons))
    waits = np.flatnonzero(work.reasons == Reason.HELD.code)
    if len(decided) or len(waits) > count:
        new, payload = waits[waits >= count], held.payload
        place = np.append(
            held.place[waits[waits < count]], payload.num_rows + np.arange(len(new))
        )
        if len(new) and payload.num_columns:
            # A copy: a slice would keep the whole batch that it is cut from.
            fresh = work.payloads.take(work.place[new]).combine_chunks()
            payload = pa.concat_tables([payload, fresh])
        number = np.append(held.number[waits[waits < count]], state.number(len(new)))
        state.blocks.remove(held.number[decided], state.mark)
        columns = work.rows.replica[waits], work.rows.start[waits], work.rows.end[waits]
        state.held = Held(*columns, place, number, payload).compact()
    return tuple(resolved)
