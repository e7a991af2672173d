"""From merge R3 to merge R4 in the middle of a stream, with nothing lost.

`from_r3` makes the R4 state of an R3 state: every bag has at most one event.  `meets_duplicate`
says, before a step is taken, whether it will meet a second insert of an event that is alive in
its replica: only R4 can take that step.  It plays the entries of the step's identities through,
by hash alone, and believes every element that an R3 merge may believe.  So it never misses a
duplicate; it may see one where an element breaks a promise, or where two payloads share 128
bits, and then R4 comes earlier than it had to.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from anabranch.batch.batch import ADJUST, INSERT, NEVER_UNITS, STABLE, Batch, Ints, concat
from anabranch.batch.columns import conform
from anabranch.batch.hashing import hash_columns
from anabranch.batch.kernel import frozen, kernel
from anabranch.batch.store import read_table
from anabranch.operators.merge.contract import Arrival
from anabranch.operators.merge.r3_nodes import CONFLICT, ENDS, FLAGS, OUT, ROW
from anabranch.operators.merge.r3_parts import blocks_of
from anabranch.operators.merge.r3_policy_state import R3PolicyState
from anabranch.operators.merge.r3_policy_table import HAD_JOINED
from anabranch.operators.merge.r3_state import R3State
from anabranch.operators.merge.r4_lists import ABSENT
from anabranch.operators.merge.r4_restore import Written, restore
from anabranch.operators.merge.r4_state import R4State
from anabranch.operators.merge.slots import HIGH, LOW, START, Asked, Slots

Reached: TypeAlias = dict[tuple[str, int], int]


def from_r3(state: R3State | R3PolicyState) -> R4State:
    """The same merge as R4; the R3 state must not be used any more.

    Nodes keep their numbers, so their payloads need not be saved again.  Of a policy only what
    both cases have can be carried over; who was promoted stays so.
    """
    if isinstance(state, R3PolicyState):
        policy, ids = state.policy, state.by_rank()
        known = R4State.empty(
            state.schema, stable_lag=policy.stable_lag, promote=policy.promote
        )
        state.members.had_joined = bool(state.numbers[HAD_JOINED])
    else:
        known, ids = R4State.empty(state.schema, stable_lag=state.stable_lag), state.in_order()
    known.frontier, known.conflicts = state.frontier, state.conflicts
    known.members, known.settled = state.members, state.settled
    known.mark = state.mark + 1
    blocks, events = blocks_of(state.nodes).copy(), state.nodes.rows[ids]
    blocks.changed = np.where(blocks.held > 0, known.mark, blocks.changed)
    ends = np.concatenate([events[:, [OUT]], events[:, ENDS:]], axis=1)
    node, column = np.nonzero(ends != ABSENT)
    end = ends[node, column]
    is_alive = (end > events[node, START]).astype(np.int64)
    rows = np.stack([node, column, end, is_alive], axis=1)
    names = events[:, [START, HIGH, LOW]]
    in_conflict = (events[:, FLAGS] & CONFLICT != 0).astype(np.int64)
    payload = state.nodes.take(events[:, ROW])
    written = Written(ids, names, np.arange(len(ids)), in_conflict, rows, payload)
    restore(known, written, blocks)
    return known


def suspects(arrivals: Sequence[Arrival], reached: Reached) -> list[Arrival]:
    """What must be looked at: elements at starts that a replica may insert at a second time.

    `reached` is the greatest start that each attachment has inserted at, and is moved on.  An
    insert beyond it, at a start that the replica has once in this step, is of a new event: no
    payload has to be hashed to know that.  Elements of different starts never meet.
    """
    found = []
    for arrival in arrivals:
        batch, who = arrival.batch, (arrival.replica, arrival.attachment)
        starts = batch.start[batch.kind == INSERT]
        if not len(starts):
            continue
        limit = reached.get(who, NEVER_UNITS)
        reached[who] = max(limit, int(starts.max()))
        ordered = np.sort(starts)
        again = ordered[1:][ordered[1:] == ordered[:-1]]
        behind = batch.start <= limit
        rows = behind if not len(again) else behind | np.isin(batch.start, again)
        if rows.any():
            found.append(replace(arrival, batch=batch.take(np.flatnonzero(rows))))
    return found


def reached_by(state: R3State) -> Reached:
    """The greatest start of a live event that each attachment has told; a look at each."""
    rows, members = state.nodes.rows[state.nodes.living()], state.members
    told = rows[:, ENDS:] != ABSENT
    return {
        (name, int(members.attachment[i])): int(rows[told[:, i], START].max())
        for i, name in enumerate(members.names)
        if told[:, i].any()
    }


def meets_duplicate(state: R3State | R3PolicyState, arrivals: Sequence[Arrival]) -> bool:
    """Whether this step may insert an event that its replica has already."""
    batches = [arrival.batch for arrival in arrivals if len(arrival.batch)]
    if not batches or any(batch.schema.payload != state.schema.payload for batch in batches):
        return False  # what does not fit is refused by the step itself
    replicas = list(dict.fromkeys(arrival.replica for arrival in arrivals))
    sizes = [len(arrival.batch) for arrival in arrivals]
    numbers = np.array([replicas.index(arrival.replica) for arrival in arrivals], np.int64)
    batch = concat(batches)
    known = _columns(state, arrivals, replicas)
    identity, ends = _entries(state, batch, known)
    consumed = [ABSENT if row is None else state.members.last_seq[row] for row in known]
    last_seq = np.array(consumed, np.int64)
    seq = np.empty(0, np.int64) if batch.seq is None else batch.seq
    columns = (batch.kind, batch.start, batch.end, batch.old_end, seq)
    elements = tuple(frozen(np.ascontiguousarray(column)) for column in columns)
    return bool(play(elements, np.repeat(numbers, sizes), identity, ends, last_seq))


def _columns(
    state: R3State | R3PolicyState, arrivals: Sequence[Arrival], replicas: Sequence[str]
) -> list[int | None]:
    """Of each replica its column of ends in the state; a new attachment has said nothing."""
    attachment = {arrival.replica: arrival.attachment for arrival in arrivals}
    columns: list[int | None] = []
    for name in replicas:
        row = state.members.find(name)
        is_known = row is not None and state.members.attachment[row] == attachment[name]
        columns.append(row if is_known else None)
    return columns


def _entries(
    state: R3State | R3PolicyState, batch: Batch, columns: Sequence[int | None]
) -> tuple[Ints, Ints]:
    """A number for each identity of the step, and the ends that the replicas give it."""
    hashes = hash_columns(read_table(conform(batch.payload, state.schema.payload)), len(batch))
    rows = np.flatnonzero(batch.kind != STABLE)
    start = np.ascontiguousarray(batch.start)
    names = np.empty((len(rows), LOW + 1), np.int64)
    slots, everything = Slots(), np.ones(len(batch), np.bool_)
    slots.make_room(len(rows), names)
    asked = Asked(start, hashes, everything, np.arange(len(rows)))
    first, _ = slots.search(asked, rows, names)
    ends = np.full((len(first), len(columns)), ABSENT, np.int64)
    known = Asked(start[first], hashes[first], ~everything[first], first[:0])
    _, found = state.nodes.slots.search(known, np.arange(len(first)), state.nodes.rows)
    for number, column in enumerate(columns):
        if column is not None:
            ends[found, number] = state.nodes.rows[known.id[found], ENDS + column]
    return asked.id, ends


@kernel
def play(elements: Any, replica: Any, identity: Any, ends: Any, last_seq: Any) -> Any:
    """Whether an insert comes to an identity that its replica has."""
    kind, start, end, old_end, seq = elements
    for i in range(kind.size):
        r, n = replica[i], identity[i]
        if seq.size > 0:
            if seq[i] <= last_seq[r]:
                continue
            last_seq[r] = seq[i]
        if kind[i] == INSERT and end[i] > start[i]:
            if ends[n, r] > start[i]:
                return True
            ends[n, r] = end[i]
        elif kind[i] == ADJUST and old_end[i] > start[i] and ends[n, r] == old_end[i]:
            ends[n, r] = max(end[i], start[i])
    return False
