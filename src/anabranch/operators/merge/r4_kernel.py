"""Merge for case R4 over batches: the change of the output that a step makes, in columns.

A step takes the elements of any number of replicas, each in its own order.  With the
granularity `element` its output is, element for element, that of the reference (`r4`).  With
`batch` all data is read first, then the greatest stable counts (again, if that lets a joining
replica join which is further still), and only the net change is shown: each event at most once,
then the stable.

    locate     which node each element is about
    judge      each element against its own replica's promises, in order
    publish    events that the output lacks (granularity `batch`)
    visit      what the stable that moves the frontier freezes or corrects, nothing else
    explain    the buckets, from what the output has become (granularity `batch`)

A lane sees all stables and a part of the data (`route`), so every lane has the same frontier.

Papers: LMerge IV-E, Algorithm R4; V-B, V-C; erratum D21 for the net change.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from anabranch.batch.batch import ADJUST, INSERT, NEVER_UNITS, STABLE, Batch, Ints, concat
from anabranch.batch.buffers import take
from anabranch.batch.values import to_payloads
from anabranch.operators.merge.admit import admit
from anabranch.operators.merge.contract import (
    BUCKET_OF,
    GAPS_SHOWN,
    Arrival,
    Gap,
    Granularity,
    Reason,
    StepResult,
)
from anabranch.operators.merge.r4_account import explain, explain_stables
from anabranch.operators.merge.r4_locate import Located, locate
from anabranch.operators.merge.r4_net import END, KIND, NODE, OLD_END, net_change
from anabranch.operators.merge.r4_nodes import ROW
from anabranch.operators.merge.r4_pass import Pass
from anabranch.operators.merge.r4_state import R4State
from anabranch.operators.merge.slots import START


def step(
    state: R4State, arrivals: Sequence[Arrival], *, granularity: Granularity = "batch"
) -> StepResult:
    """Take what arrived, change the state, and return the change of the output."""
    admit(state, arrivals)
    state.mark += 1
    names = state.members.names
    sizes = [len(arrival.batch) for arrival in arrivals]
    replica = np.array([names.index(arrival.replica) for arrival in arrivals], np.int64)
    batch, frontier = _gather(state, arrivals), state.frontier
    probes = state.probes
    located = locate(state, batch)
    work = Pass(state, batch, np.repeat(replica, sizes) + 1, located)
    if granularity == "element":
        work.run_each()
        log = work.log
    else:
        work.run()
        log = _net(state, work, frontier)
    output = _output(state, log)
    added = int((log[:, KIND] == ADJUST).sum()) - int(
        (work.reasons == Reason.CORRECTED.code).sum()
    )
    inserts = int((log[:, KIND] == INSERT).sum()) - int(
        (work.reasons == Reason.FIRST.code).sum()
    )
    gaps = _gaps(state, work)
    state.conflicts += work.conflicts
    _settle(state, work, located)
    reasons = tuple(np.split(work.reasons, np.cumsum(sizes)[:-1])) if arrivals else ()
    return StepResult(
        output,
        tuple(BUCKET_OF.take(codes) for codes in reasons),
        reasons,
        state.frontier if work.deciders else None,
        added,
        work.conflicts,
        counts={"visits": work.visits, "probes": state.probes - probes},
        added_inserts=inserts,
        missing=len(work.missing),
        gaps=gaps,
    )


def _gather(state: R4State, arrivals: Sequence[Arrival]) -> Batch:
    """The elements of all arrivals, one after the other; those of a replica in their order."""
    batches = [arrival.batch for arrival in arrivals if len(arrival.batch)]
    if batches:
        return concat(batches)
    none, no_codes = np.empty(0, np.int64), np.empty(0, np.int8)
    return Batch(state.schema, no_codes, none, none, none, state.schema.payload.empty_table())


def _net(state: R4State, work: Pass, frontier: int) -> Ints:
    """The net change, with the stable behind it; the elements get their reasons from it."""
    nodes = state.nodes
    log = net_change(work.log, nodes.facts, frontier=frontier, shrink_only=state.shrink_only)
    deciders = [leader + 1 for leader in work.deciders]
    explain(
        work.elements, (nodes.facts, nodes.lists), log, deciders, state.frontier, work.reasons
    )
    joined = state.members.joined(state.frontier)
    explain_stables(work.promises, work.deciders, joined, work.reasons)
    if work.deciders:
        log = np.concatenate([log, [[STABLE, 0, 0, state.frontier]]])
    return log


def _output(state: R4State, log: Ints) -> Batch:
    """The rows of a log as elements."""
    is_data = log[:, KIND] != STABLE
    facts = state.nodes.facts[log[is_data, NODE]]
    start, end = log[:, END].copy(), np.where(is_data, log[:, END], 0)
    start[is_data] = facts[:, START]
    kind = log[:, KIND].astype(np.int8)
    payload = state.nodes.payloads.take(facts[:, ROW])
    if payload.num_columns and not is_data.all():
        # Each stable has a row of nulls: the one behind all payloads.
        nulls = pa.Table.from_arrays(
            [pa.nulls(1, each.type) for each in payload.schema], schema=payload.schema
        )
        at = np.where(is_data, np.cumsum(is_data) - 1, len(facts))
        payload = take(pa.concat_tables([payload, nulls]), at)
    return Batch(state.schema, kind, start, end, log[:, OLD_END].copy(), payload)


def _gaps(state: R4State, work: Pass) -> tuple[Gap, ...]:
    """The first identities that a decider never mentioned, for people to look at."""
    shown = work.missing[:GAPS_SHOWN]
    nodes = np.array([node for _, node in shown], np.int64)
    facts = state.nodes.facts[nodes]
    payloads = to_payloads(state.nodes.payloads.take(facts[:, ROW]), len(nodes))
    return tuple(
        Gap(state.members.names[leader], int(start), payload)
        for (leader, _), start, payload in zip(shown, facts[:, START], payloads, strict=True)
    )


def _settle(state: R4State, work: Pass, located: Located) -> None:
    """Remember the names of what is final, let go what will never change again."""
    ended = work.ended
    names, final = state.nodes.facts[ended, :3], work.final
    is_known = final != NEVER_UNITS
    state.settled.remember(names[is_known], final[is_known], state.mark)
    state.settled.forget(state.members.slowest, state.mark)
    unborn = located.unborn(state.nodes)
    born = np.setdiff1d(located.fresh, unborn, assume_unique=True)
    state.nodes.note(born, work.touched, ended, state.mark)
    state.nodes.forget(np.append(ended, unborn))
