"""Merge for the cases R0, R1 and R2 over batches.

A step takes the elements of any number of replicas, arrival after arrival, and decides each
just as the element-by-element forms do (`r0`, `r1`, `r2`): the same inserts are on the output,
whatever the cut into steps.

    scan       times: who breaks a promise, is late, is held back, opens a new start.  Current
               start and frontier do not depend on payloads, so this is exact
    settle     payloads, only among inserts with one start: new on the output, or known
    show       the inserts, then one stable if the frontier moved

Of the stables that moved the frontier in one step only the last is `emitted`; the others are
`absorbed`.  With one element per step every reason is that of the element-by-element forms.

Papers: LMerge IV-A to IV-C, V-B, V-C; erratum D21 for the one stable.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from anabranch.batch.batch import (
    ADJUST,
    FOREVER_UNITS,
    INSERT,
    NEVER_UNITS,
    STABLE,
    Batch,
    Codes,
    Ints,
    concat,
)
from anabranch.batch.events import inserts
from anabranch.batch.index import NOBODY
from anabranch.batch.kernel import frozen, kernel, part
from anabranch.model.properties import MergeCase
from anabranch.operators.contract import BUCKET_OF, Arrival, Reason, Resolved, StepResult
from anabranch.operators.merge import codes
from anabranch.operators.merge.ordered_group import (
    FINAL,
    JOINS,
    MOVES,
    OPENS,
    Candidates,
    Payloads,
)
from anabranch.operators.merge.ordered_state import Held, OrderedState

# Places in `clock`.
FRONTIER: Final = 0
CURRENT: Final = 1
LENGTH: Final = 2
LEADER: Final = 3
VISITS: Final = 4
LAG: Final = 5
CLOCK_SIZE: Final = 6


class Rows(NamedTuple):
    """The rows of a step as columns; `seq` is empty if the streams have none."""

    kind: Codes
    start: Ints
    end: Ints
    seq: Ints
    replica: Ints


class Control(NamedTuple):
    """What is known of each replica, changed in place; `oldest` and `newest` held row."""

    guarantee: Ints
    frontier: Ints
    last_seq: Ints
    last_start: Ints
    oldest: Ints
    newest: Ints


class Found(NamedTuple):
    """What the scan writes: of each row a reason and the next row of a chain; and the output.

    `what` and `row` are what it may show, in order: inserts that open a start or are at the
    current one, and every stable.  Rows that were held back before the step come first; a
    replica's held rows are a chain (`following`), oldest first.
    """

    reasons: Codes
    following: Ints
    what: Codes
    row: Ints


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
        members.binding({one.input for one in arrivals if one.inferred}),
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
    np.maximum(members.frontier, control.frontier, out=members.frontier)
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


@kernel
def scan(
    rows: Rows, control: Control, found: Found, clock: Ints, held: int, starts_increase: int
) -> None:
    """Judge every row; the first `held` rows were held back before."""
    # What was held comes first: it is older than all that came with this step.
    for i in range(held):
        hold(rows, control, found, i)
    # A replica may have joined or left since: decide what that alone decides.
    advance(rows, control, found, clock)
    has_seq = rows.seq.size > 0
    for i in range(held, rows.kind.size):
        replica = rows.replica[i]
        if has_seq:
            if rows.seq[i] <= control.last_seq[replica]:
                found.reasons[i] = codes.REDELIVERY
                continue
            control.last_seq[replica] = rows.seq[i]
        if rows.kind[i] == STABLE:
            judge_stable(rows, control, found, clock, i)
        elif rows.kind[i] == ADJUST:
            found.reasons[i] = codes.NOT_INSERT_ONLY
        else:
            judge_insert(rows, control, found, clock, i, starts_increase)
    clock[VISITS] += rows.kind.size - held


@part
def judge_insert(
    rows: Rows, control: Control, found: Found, clock: Ints, i: int, starts_increase: int
) -> None:
    """Against its replica's promises first, then against the output."""
    start, end, replica = rows.start[i], rows.end[i], rows.replica[i]
    if end <= start:
        found.reasons[i] = codes.BACKWARDS if end < start else codes.NO_CHANGE
    elif start < control.frontier[replica]:
        found.reasons[i] = codes.BEHIND_STABLE
    elif start < control.last_start[replica]:
        found.reasons[i] = codes.OUT_OF_ORDER
    elif starts_increase and start == control.last_start[replica]:
        found.reasons[i] = codes.SAME_START
    else:
        control.last_start[replica] = start
        # One that is still joining may have events that nobody else has: they wait, but for
        # what can only be known or late.
        is_joined = control.guarantee[replica] <= clock[FRONTIER]
        if is_joined or start < max(clock[FRONTIER], clock[CURRENT]):
            decide(rows, found, clock, i)
        else:
            hold(rows, control, found, i)


@part
def judge_stable(rows: Rows, control: Control, found: Found, clock: Ints, i: int) -> None:
    """A stable that moves the output's frontier may let replicas join."""
    time, replica = rows.start[i], rows.replica[i]
    found.reasons[i] = codes.FOLLOWS
    if time > control.frontier[replica]:
        control.frontier[replica] = time
        # Until it is joined its stable promises nothing about the output.
        if control.guarantee[replica] > clock[FRONTIER]:
            found.reasons[i] = codes.JOINING
        elif behind(time, clock) > clock[FRONTIER]:
            found.reasons[i] = codes.LEADS
            clock[LEADER] = i
            advance(rows, control, found, clock)


@part
def advance(rows: Rows, control: Control, found: Found, clock: Ints) -> None:
    """Move the frontier as far as the joined replicas allow, and decide what was held."""
    while True:
        # A replica that joins releases what it held; of others what starts before the frontier
        # can only be known or late, so it need not wait either.
        for replica in range(control.guarantee.size):
            is_joined = control.guarantee[replica] <= clock[FRONTIER]
            until = FOREVER_UNITS if is_joined else clock[FRONTIER]
            release(rows, control, found, clock, replica, until)
        time = clock[FRONTIER]
        for replica in range(control.guarantee.size):
            if control.guarantee[replica] <= clock[FRONTIER]:
                time = max(time, behind(control.frontier[replica], clock))
        # Until nothing moves: a further frontier lets more replicas join, and these may lead.
        if time == clock[FRONTIER]:
            break
        clock[FRONTIER] = time
        put(found, clock, MOVES, time)


@part
def behind(time: int, clock: Ints) -> int:
    """How far the output may be when a replica is here; FOREVER passes at once."""
    lag = clock[LAG]
    return time if time == FOREVER_UNITS else max(time, NEVER_UNITS + lag) - lag


@part
def release(
    rows: Rows, control: Control, found: Found, clock: Ints, replica: int, until: int
) -> None:
    """Decide a replica's held rows that start before this time, oldest first."""
    i = control.oldest[replica]
    while i != NOBODY and rows.start[i] < until:
        decide(rows, found, clock, i)
        clock[VISITS] += 1
        i = found.following[i]
    control.oldest[replica] = i


@part
def hold(rows: Rows, control: Control, found: Found, i: int) -> None:
    """Add a row to the end of its replica's chain."""
    replica = rows.replica[i]
    found.reasons[i] = codes.HELD
    found.following[i] = NOBODY
    if control.oldest[replica] == NOBODY:
        control.oldest[replica] = i
    else:
        found.following[control.newest[replica]] = i
    control.newest[replica] = i


@part
def decide(rows: Rows, found: Found, clock: Ints, i: int) -> None:
    """An insert of a joined replica, or one that can only be known."""
    start = rows.start[i]
    # Not remembered: only the events of the current start are.
    if start < clock[CURRENT]:
        found.reasons[i] = codes.PASSED
    elif start == clock[CURRENT]:
        found.reasons[i] = codes.KNOWN
        # Payloads decide whether it is new; only `settle` sees them.
        put(found, clock, JOINS if start >= clock[FRONTIER] else FINAL, i)
    elif start < clock[FRONTIER]:
        found.reasons[i] = codes.LATE
    else:
        found.reasons[i] = codes.FIRST
        clock[CURRENT] = start
        put(found, clock, OPENS, i)


@part
def put(found: Found, clock: Ints, what: int, row: int) -> None:
    """The next of the sequence."""
    found.what[clock[LENGTH]] = what
    found.row[clock[LENGTH]] = row
    clock[LENGTH] += 1
