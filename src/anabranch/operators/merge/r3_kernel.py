"""Merge for case R3 over batches: the net change of a step, in columns.

A step takes the elements of any number of replicas, each in its own order, and returns the net
change of the output: each event at most once, then the stable if the frontier moved.  Whatever
the cut into steps, the history is that of the element-by-element form (`r3`).

    locate     which event each element is about
    judge      each element against its own replica's promises, in order
    publish    events that nobody had brought before
    reconcile  on behalf of the replica that moves the frontier; again, if that lets a joining
               replica join which is further still
    compare    the output's ends before and after: the net change, and every element's bucket

A lane sees all stables and a part of the data (`route`), so every lane has the same frontier.

Papers: LMerge IV-D, Algorithm R3; V-B, V-C; erratum D21 for the net change.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from anabranch.batch.batch import ADJUST, INSERT, STABLE, Batch, Codes, Ints, concat
from anabranch.batch.buffers import take
from anabranch.operators.merge.contract import BUCKET_OF, Arrival, Reason, StepResult
from anabranch.operators.merge.r3_account import StepEnd, explain
from anabranch.operators.merge.r3_admit import admit
from anabranch.operators.merge.r3_index import Keys, Located, hash_rows, locate
from anabranch.operators.merge.r3_loop import ABSENT, NOBODY, Elements, Ledger, judge
from anabranch.operators.merge.r3_reconcile import Events, publish, reconcile
from anabranch.operators.merge.r3_state import R3State


@dataclass(frozen=True, eq=False)
class _Work:
    """One step: its elements, its events, and the output's ends before it."""

    batch: Batch
    located: Located
    elements: Elements
    ledger: Ledger
    events: Events
    before: Ints
    reasons: Codes


def step(state: R3State, arrivals: Sequence[Arrival]) -> StepResult:
    """Take what arrived, change the state, and return the net change of the output."""
    admit(state, arrivals)
    replica = [state.members.names.index(arrival.replica) for arrival in arrivals]
    sizes = [len(arrival.batch) for arrival in arrivals]
    batch = _gather(state, arrivals)
    work = _judge(state, batch, np.repeat(np.array(replica, np.int64), sizes))
    conflicts = -int(work.events.in_conflict.sum())
    publish(work.events, work.ledger.credit, work.elements.replica)
    leaders = _decide(state, work.events)
    conflicts += int(work.events.in_conflict.sum())
    stable = state.frontier if leaders else None
    output = _net_change(state, work, leaders)
    step_end = StepEnd(work.before, leaders, state.members.joined(state.frontier))
    corrected = explain(work.elements, work.ledger, work.events, step_end, work.reasons)
    added = int((output.kind == ADJUST).sum()) - corrected
    _settle(state, work)
    state.conflicts += conflicts
    reasons = tuple(np.split(work.reasons, np.cumsum(sizes)[:-1])) if arrivals else ()
    buckets = tuple(BUCKET_OF[codes] for codes in reasons)
    return StepResult(output, buckets, reasons, stable, added, conflicts)


def _gather(state: R3State, arrivals: Sequence[Arrival]) -> Batch:
    """The elements of all arrivals, one after the other; those of a replica in their order."""
    batches = [arrival.batch for arrival in arrivals if len(arrival.batch)]
    if batches:
        return concat(batches)
    none, no_codes = np.empty(0, np.int64), np.empty(0, np.int8)
    return Batch(state.schema, no_codes, none, none, none, state.payload.slice(0, 0))


def _judge(state: R3State, batch: Batch, replica: Ints) -> _Work:
    """Find the event of each element, and hold each element against its replica's promises."""
    high, low = hash_rows(batch.payload, len(batch))
    asked = Keys(high, low, batch.start, np.zeros(len(batch), np.int64))
    data = np.flatnonzero(batch.kind != STABLE)
    held, free = (state.payload, state.row), batch.start >= state.frontier
    located = locate(state.keys, held, asked, batch.payload, data, free)
    behind = data[located.node[data] == NOBODY]
    fate = np.full(len(batch), Reason.LATE.code, np.int8)
    fate[behind[state.settled.knows(high[behind], low[behind], batch.start[behind])]] = (
        Reason.SETTLED.code
    )
    seq = np.empty(0, np.int64) if batch.seq is None else batch.seq
    times = (batch.start, batch.end, batch.old_end)
    elements = Elements(batch.kind, *times, seq, replica, located.node, fate)
    more = len(located.first)
    events = Events(
        located.keys.start,
        np.concatenate([state.ends, np.full((more, len(state.members)), ABSENT, np.int64)]),
        np.append(state.output_end, np.full(more, ABSENT, np.int64)),
        np.append(state.in_conflict, np.zeros(more, np.bool_)),
        done=np.zeros(len(located.keys), np.bool_),
        told=np.zeros(len(located.keys), np.bool_),
    )
    ledger = Ledger(
        events.ends,
        events.output_end,
        credit=np.full(len(events), NOBODY, np.int64),
        frontier=state.members.frontier,
        last_seq=state.members.last_seq,
        last_stable=np.full(len(state.members), NOBODY, np.int64),
    )
    before = events.output_end.copy()
    return _Work(batch, located, elements, ledger, events, before, judge(elements, ledger))


def _decide(state: R3State, events: Events) -> list[int]:
    """Move the frontier as far as the joined replicas allow; who decided, in order.

    More than one decides only if a stable lets a joining replica join that is further still.
    What that replica never promised to know must be decided by the one before it (L9).
    """
    leaders = []
    while (leader := state.members.leader(state.frontier)) is not None:
        time = int(state.members.frontier[leader])
        reconcile(events, leader, frontier=state.frontier, time=time)
        state.frontier = time
        leaders.append(leader)
    return leaders


def _net_change(state: R3State, work: _Work, leaders: list[int]) -> Batch:
    """The adjusts, then the inserts, then the stable that turn the old output into the new."""
    before, after, start = work.before, work.events.output_end, work.events.start
    changed = np.flatnonzero((before != ABSENT) & (before != after))
    brought = np.flatnonzero((before == ABSENT) & (after != ABSENT))
    nodes = np.append(changed, brought)
    kind = np.full(len(nodes) + bool(leaders), STABLE, np.int8)
    kind[: len(changed)], kind[len(changed) : len(nodes)] = ADJUST, INSERT
    new_start, end, old_end = np.zeros((3, len(kind)), np.int64)
    new_start[: len(nodes)], new_start[len(nodes) :] = start[nodes], state.frontier
    end[: len(nodes)] = np.where(after[nodes] == ABSENT, start[nodes], after[nodes])
    old_end[: len(changed)] = before[changed]
    payload = _payload(state, work, nodes, len(kind))
    return Batch(state.schema, kind, new_start, end, old_end, payload)


def _payload(state: R3State, work: _Work, nodes: Ints, count: int) -> pa.Table:
    """The payloads of these events (known ones come first), and nulls up to `count`."""
    schema = state.schema.payload
    if not schema.names:
        return state.payload
    known, new = nodes[nodes < state.live], nodes[nodes >= state.live] - state.live
    nulls = [pa.nulls(count - len(nodes), field.type) for field in schema]
    return pa.concat_tables(
        [
            take(state.payload, state.row[known]),
            take(work.batch.payload, work.located.first[new]),
            pa.Table.from_arrays(nulls, schema=schema),
        ]
    )


def _settle(state: R3State, work: _Work) -> None:
    """Keep what may still change, remember the names of what is final, let the rest go."""
    events, keys = work.events, work.located.keys
    shown = events.output_end != ABSENT
    final = np.flatnonzero(events.done & (shown | events.told))
    end = np.where(shown, events.output_end, events.start)[final]
    state.settled.remember(keys.high[final], keys.low[final], keys.start[final], end)
    state.settled.forget(state.members.slowest)
    # An adjust of nothing made an event that nobody speaks of.
    stays = ~events.done & (shown | (events.ends != ABSENT).any(axis=1))
    fresh = work.located.first[stays[state.live :]]
    row = np.zeros(len(events), np.int64)
    row[: state.live] = state.row
    row[state.live :][stays[state.live :]] = state.payload.num_rows + np.arange(len(fresh))
    if state.payload.num_columns and len(fresh):
        state.payload = pa.concat_tables([state.payload, take(work.batch.payload, fresh)])
    state.keys, state.row = keys, row
    state.output_end, state.ends = events.output_end, events.ends
    state.in_conflict = events.in_conflict
    state.keep(stays)
