"""One step of a merge of case R3 or R4, under any policy, over batches.

A step takes the elements of any number of replicas, each in its own order, and returns the net
change of the output: each event at most once, then the stable if the frontier moved.  Whatever
the cut into steps, the history is that of the element-by-element form (`reference.r3`,
`reference.r4`).  `lane` has let replicas come and go before.

    locate     which event each element is about: found by the hash of its name, and decided by
               value; one that is not there becomes a new row if it may still start
    judge      each element against its own replica's promises, in order
    publish    events that nobody had brought before
    reconcile  on behalf of the replica that moves the frontier, or where there are gaps of all
               that joined; again, if that lets a joining replica join which is further still
    govern     instead of publish, after reconcile, if the policy asks for more than the default
    emit       what readers have not seen yet, and every element's bucket

A step costs what its elements and the events it freezes or corrects cost, however many events
are alive; `MergeState.work` counts it.  Attaching and detaching look at every event, and so
does a policy when it asks another replica than before.

A lane sees all stables and a part of the data (`route`), so every lane has the same frontier.

Papers: LMerge IV-D, IV-E, Algorithms R3 and R4; V-A, V-B, V-C; erratum D21 for the net change.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from anabranch.batch.batch import (
    FOREVER_UNITS,
    INSERT,
    NEVER_UNITS,
    STABLE,
    Batch,
    Ints,
)
from anabranch.batch.index import NOBODY, START
from anabranch.batch.kernel import frozen, frozen_rows
from anabranch.operators.contract import BUCKET_OF, Arrival, Bucket, Reason, StepResult
from anabranch.operators.merge import codes, govern, judge, reconcile
from anabranch.operators.merge.bag_reconcile import publish_bags, scratch_for, visit_bags
from anabranch.operators.merge.bags import block_of, total
from anabranch.operators.merge.emit import Output
from anabranch.operators.merge.finish import StepWork, explain_step, result_of, settle
from anabranch.operators.merge.layout import ENDS, HALF_FROZEN, OUT, RANK, SHOWN
from anabranch.operators.merge.members import Members, lagged
from anabranch.operators.merge.policy import Quorum
from anabranch.operators.merge.state import MergeState
from anabranch.operators.state.blocks import BLOCK_BITS
from anabranch.operators.state.events import ABSENT, FLAGS, Events
from anabranch.operators.state.final_names import UNKNOWN, FinalNames
from anabranch.operators.state.pieces import Piece, find_piece, pieces

_NONE: Ints = np.empty(0, np.int64)


@dataclass(frozen=True, eq=False)
class Located:
    """Of each element the node (or NOBODY) and the end it is final with (or UNKNOWN).

    `created` are the nodes that were made for these elements, in their order.
    """

    node: Ints
    final_end: Ints
    created: Ints


def take(state: MergeState, arrivals: Sequence[Arrival]) -> StepResult:
    """Take what arrived, change the state, and return the net change of the output."""
    work = _begin(state, arrivals)
    _judge(state, work)
    held = _hold(state, work) if state.is_governed else None
    if held is None:
        _publish(state, work)
    _pend(state, work)
    _publish_bags(state, work)
    _decide(state, work)
    if held is not None:
        _govern(state, work)
        _settle_held(state, work, held)
    resolved = explain_step(state, work, held)
    result = result_of(state, arrivals, work, resolved)
    settle(state, work)
    if state.asks_all:
        state.end_change()
    return result


def _begin(state: MergeState, arrivals: Sequence[Arrival]) -> StepWork:
    """Find the event of each element, and lay out what the loops read and write."""
    batches = [arrival.batch for arrival in arrivals if len(arrival.batch)]
    located = locate(
        state.nodes, state.final_names, batches, frontier=state.frontier, mark=state.mark
    )
    members = state.members
    columns = [members.names.index(arrival.input) for arrival in arrivals]
    sizes = [len(arrival.batch) for arrival in arrivals]
    elements = _elements(batches, located, np.repeat(np.array(columns, np.int64), sizes))
    count = len(elements.kind)
    ledger = judge.Ledger(
        state.nodes.rows,
        state.nodes.changed,
        frontier=members.binding({one.input for one in arrivals if one.inferred}),
        last_seq=members.last_seq,
        last_stable=np.full(len(members), NOBODY, np.int64),
        missing=state.agenda.missing,
        new=np.empty(count, np.int64),
        credit=np.empty(count, np.int64),
        touched=np.empty(0 if state.keyed else count, np.int64),
        repeated=np.zeros(len(members), np.int64),
        numbers=judge.numbers_of(state.frontier, state.oldest, state.mark, keyed=state.keyed),
    )
    splits = state.policy.shrink_only and not govern.keeps(state.policy)
    output = Output(state.frontier, splits=splits)
    reasons = np.empty(count, np.int8)
    work = StepWork(state.frontier, elements, ledger, located.created, reasons, output)
    work.decided = np.zeros(len(members), np.bool_)
    work.gap_counts = np.zeros((2, len(members)), np.int64)
    return work


def _elements(batches: Sequence[Batch], located: Located, replica: Ints) -> judge.Elements:
    """The columns of all arrivals, one after the other; those of a replica in their order."""
    times = [
        np.concatenate([_NONE, *(getattr(batch, name) for batch in batches)])
        for name in ("start", "end", "old_end")
    ]
    kind = np.concatenate([np.empty(0, np.int8), *(batch.kind for batch in batches)])
    seqs = [batch.seq for batch in batches if batch.seq is not None]
    columns = (kind, *times, np.concatenate([_NONE, *seqs]), replica)
    return judge.Elements(*map(frozen, (*columns, located.node, located.final_end)))


def _judge(state: MergeState, work: StepWork) -> None:
    """Give every element its first reason; make room for bags where the loop stops."""
    at, count, nodes = 0, len(work.reasons), state.nodes
    while True:
        at = int(judge.judge(work.elements, work.ledger, nodes.bags, at, work.reasons))
        if at == count:
            break
        nodes.make_room_in_bags()
    if state.forgotten != NEVER_UNITS:
        # Only what is on no list came too late; a loop of its own, for few merges need it.
        is_old = (work.elements.node == NOBODY) & (work.elements.start < state.forgotten)
        work.reasons[is_old & (work.reasons == codes.LATE)] = codes.FORGOTTEN
    reached = work.ledger.frontier
    np.maximum(state.members.frontier, reached, out=state.members.frontier)
    touched = int(work.ledger.numbers[judge.TOUCHED_BAGS])
    if touched:
        work.bags.append(work.ledger.touched[:touched])


def _publish(state: MergeState, work: StepWork) -> None:
    """Bring each new event to the output that has a credited insert."""
    nodes, ledger = state.nodes, work.ledger
    count = int(ledger.numbers[judge.NEW])
    pends = np.empty((3, count * len(state.members)), np.int64)
    brought = np.empty(count, np.int64)
    new, credit = frozen(ledger.new[:count]), frozen(ledger.credit[:count])
    replica, first = work.elements.replica, state.next_rank
    came, pended = reconcile.publish_all(
        nodes.rows, new, credit, replica, first, brought, pends
    )
    state.agenda.pend(*pends[:, :pended])
    work.brought = brought[:came]
    state.next_rank += came


def _pend(state: MergeState, work: StepWork) -> None:
    """Note which elements gave their replica an earlier end than readers have."""
    pends = np.empty((3, len(work.reasons)), np.int64)
    pended = reconcile.pend_all(state.nodes.rows, work.elements, frozen(work.reasons), pends)
    state.agenda.pend(*pends[:, :pended])


def _publish_bags(state: MergeState, work: StepWork) -> None:
    """Bring the credited events of bags to the output, and list what is half frozen."""
    if not work.bags:
        return
    nodes, ids = state.nodes, frozen_rows(work.bags[0])
    scope, deciding = _move(state) or _no_move(state)

    def publish(at: int) -> int:
        scratch = work.scratch
        return int(publish_bags(ids, at, scope, deciding, nodes.rows, nodes.bags, scratch))

    _with_room(state, work, ids, publish)
    state.agenda.schedule_bags(nodes, ids, state.frontier)


def _move(state: MergeState) -> tuple[reconcile.Scope, reconcile.Deciding] | None:
    """How far the frontier may move now, and on whose behalf; None if it cannot."""
    members, policy, frontier = state.members, state.policy, state.frontier
    if policy.gaps:
        members.catch_up(frontier)
        rows = members.furthest_first(frontier)
        reach = np.array([members.reach(frontier, wait=policy.wait)])
        time = int(lagged(reach, policy.stable_lag)[0])
        if time <= frontier:
            return None
    else:
        leader = members.leader(frontier, lag=policy.stable_lag)
        if leader is None:
            return None
        rows, time = np.array([leader]), int(members.lagging(policy.stable_lag)[leader])
    return _scope(state, time), _deciding(members, rows)


def _no_move(state: MergeState) -> tuple[reconcile.Scope, reconcile.Deciding]:
    return _scope(state, ABSENT), _deciding(state.members, _NONE)


def _scope(state: MergeState, time: int) -> reconcile.Scope:
    policy, needed = state.policy, 1
    if policy.gaps and isinstance(policy.inserts, Quorum):
        needed = policy.inserts.needed(int(state.members.joined(state.frontier).sum()))
    rules = (policy.shrink_only, govern.keeps(policy), policy.gaps, needed)
    return reconcile.Scope(state.frontier, time, state.mark, *rules)


def _deciding(members: Members, rows: Ints) -> reconcile.Deciding:
    guarantee = np.maximum(members.guarantee, members.promoted)[rows]
    decides = np.zeros(len(members), np.bool_)
    decides[rows] = True
    return reconcile.Deciding(*map(frozen, (rows, guarantee, members.frontier[rows], decides)))


def _with_room(
    state: MergeState, work: StepWork, ids: Ints, visit: Callable[[int], int]
) -> None:
    """Visit these bags, and make room for one at which the visits had to stop."""
    at, nodes = 0, state.nodes
    columns = (OUT, *range(ENDS, nodes.rows.shape[1]))
    while (at := visit(at)) < len(ids):
        blocks = [int(block_of(nodes.bags, nodes.rows, ids[at], one)) for one in columns]
        events = sum(int(total(nodes.bags, block)) for block in blocks)
        nodes.make_room_in_bags(events)
        work.scratch = scratch_for(2 * events)


def _decide(state: MergeState, work: StepWork) -> None:
    """Move the frontier as far as the joined replicas allow.

    More than one move is made only if a stable lets a joining replica join that is further
    still.  What that replica never promised to know must be decided by those before it (L9).
    """
    new = work.ledger.new[: int(work.ledger.numbers[judge.NEW])]
    while (move := _move(state)) is not None:
        scope, deciding = move
        found = _reconcile(state, work, scope, deciding, new)
        new = new[:0]
        work.leaders.append(_mover(state, work, deciding))
        work.decided[deciding.replica] = True
        state.frontier = scope.time
        work.done.append(found.listed(reconcile.ENDED))
        work.passes.append(found.listed(reconcile.PASSES))
        work.add_gaps(state.nodes, scope, deciding, found)
        work.changed.append(found.listed(reconcile.CHANGED))
        work.conflicts += int(found.counts[reconcile.CONFLICTS])
        work.visits += int(found.counts[reconcile.VISITS])
    _enqueue(state, new)


def _mover(state: MergeState, work: StepWork, deciding: reconcile.Deciding) -> int:
    """Whose stable moved the frontier: where it waits for all, the slowest that came now."""
    came = work.ledger.last_stable[deciding.replica] != NOBODY
    is_awaited = state.members.awaited(state.frontier)[deciding.replica]
    movers = deciding.replica[came & is_awaited]
    return int(movers[-1] if len(movers) else deciding.replica[0])


def _enqueue(state: MergeState, new: Ints) -> None:
    """Put events that start at or behind the frontier on the list of what is due."""
    state.agenda.due.push(state.nodes.rows[:, START][new], new)


def _reconcile(
    state: MergeState,
    work: StepWork,
    scope: reconcile.Scope,
    deciding: reconcile.Deciding,
    new: Ints,
) -> reconcile.Found:
    """Make the output agree with who decides wherever it could not be done later.

    `new` are events that are on no list yet.
    """
    nodes, agenda, time = state.nodes, state.agenda, scope.time
    is_promoted = bool(deciding.guarantee[0] > scope.frontier)
    if time == FOREVER_UNITS:
        queued, noted = nodes.living(), new[:0]
    else:
        # A column first, then its rows: NumPy takes a third of the time of both at once.
        start = nodes.rows[:, START][new]
        _enqueue(state, new[start >= time])
        if is_promoted:
            # A promoted replica cuts what it does not know, due or not.
            queued = nodes.living()
        else:
            queued = np.concatenate([new[start < time], agenda.due.pop_before(time)])
        noted = _noted(state, scope, deciding, queued, is_promoted=is_promoted)
    ids = frozen_rows(np.concatenate([queued, noted]))
    found = reconcile.nothing_found(len(ids), len(agenda.pending))
    scope = scope._replace(queued=len(queued))
    rows, changed = nodes.rows, nodes.changed
    reconcile.visit_all(ids, scope, deciding, rows, changed, agenda.missing, nodes.bags, found)
    if found.counts[reconcile.BAGS]:
        _visit_bags(state, work, scope, deciding, found)
    stays = found.listed(reconcile.STAYS)
    agenda.due.push(nodes.rows[:, OUT][stays], stays)
    agenda.pass_by(found.listed(reconcile.PASSES))
    if not scope.gaps and (not is_promoted or time == FOREVER_UNITS):
        # What a promoted replica need not know yet is to be looked at again.
        agenda.looked(int(deciding.replica[0]))
    agenda.pend(*found.pends[:, : found.counts[reconcile.PENDS]])
    agenda.visits += int(found.counts[reconcile.VISITS])
    return found


def _noted(
    state: MergeState,
    scope: reconcile.Scope,
    deciding: reconcile.Deciding,
    queued: Ints,
    *,
    is_promoted: bool,
) -> Ints:
    """The events that are not due, on which a deciding replica contradicts the output."""
    agenda, leader = state.agenda, int(deciding.replica[0])
    if scope.gaps:
        pending = [agenda.pending[row].pop_before(scope.time) for row in deciding.replica]
        # Each once: a visit lists every deciding replica again that still contradicts.
        found: Ints = np.setdiff1d(np.concatenate(pending), queued)
        return found
    if is_promoted:
        return queued[:0]
    pending = [agenda.pending[leader].pop_before(scope.time), agenda.unmentioned(leader)]
    return np.concatenate(pending)


def _visit_bags(
    state: MergeState,
    work: StepWork,
    scope: reconcile.Scope,
    deciding: reconcile.Deciding,
    found: reconcile.Found,
) -> None:
    nodes, missing = state.nodes, state.agenda.missing
    ids = np.unique(found.listed(reconcile.BAGS))
    asked = (scope, deciding, nodes.rows, nodes.changed, missing)

    def visit(at: int) -> int:
        return int(visit_bags(frozen(ids), at, *asked, nodes.bags, work.scratch, found))

    _with_room(state, work, ids, visit)
    work.bags.append(ids)
    state.agenda.schedule_bags(nodes, ids, scope.time)


def _hold(state: MergeState, work: StepWork) -> govern.Holding:
    """Hold every insert until the end of the step; record the events that the policy needs."""
    nodes, elements, reasons = state.nodes, work.elements, work.reasons
    if len(state.held) < len(nodes.rows):
        more = (len(nodes.rows) - len(state.held), state.held.shape[1])
        state.held = np.concatenate([state.held, np.full(more, NOBODY, np.int64)])
    held = govern.holding(state.held, state.next_number, reasons, state.pending)
    state.next_number += len(reasons)
    # As in the reference, an insert that comes too late counts as well.
    absorbed = (Bucket.ABSORBED, Bucket.LATE)
    came = (elements.kind == INSERT) & np.isin(BUCKET_OF[reasons], absorbed)
    came &= ~np.isin(reasons, (Reason.REDELIVERY.code, Reason.NO_CHANGE.code))
    np.maximum.at(state.highest, elements.replica[came], elements.start[came])
    govern.hold_all(elements, held)
    govern.mark_touched(elements, reasons, nodes.rows)
    return held


def _govern(state: MergeState, work: StepWork) -> None:
    """Ask the policy about the events of this step; if its view changed, of all that wait."""
    nodes, members, agenda = state.nodes, state.members, state.agenda
    before, frontier = state.view, state.frontier
    seen = (members, nodes, state.highest)
    state.view = govern.look(state.policy, *seen, frontier=frontier, before=before)
    rules = govern.rules_of(state.policy, state.view, members, state.frontier)
    asks_all = state.asks_all or state.view != before
    events = len(work.reasons) + (nodes.used if asks_all else 0)
    found = reconcile.nothing_found(events, len(members))
    if asks_all:
        govern.govern_rest(nodes.rows, nodes.used, rules, found)
    govern.govern_touched(work.elements, work.reasons, nodes.rows, rules, found)
    changed = np.unique(np.append(found.listed(reconcile.CHANGED), state.withdrawn))
    nodes.changed[changed >> BLOCK_BITS] = state.mark
    work.changed.append(changed)
    agenda.pend(*found.pends[:, : found.counts[reconcile.PENDS]])
    flags, out = nodes.rows[changed, FLAGS], nodes.rows[changed, OUT]
    is_due = (flags & HALF_FROZEN != 0) & (out != ABSENT)
    agenda.due.push(out[is_due], changed[is_due])
    work.visits += int(found.counts[reconcile.VISITS])
    agenda.visits += int(found.counts[reconcile.VISITS])


def _settle_held(state: MergeState, work: StepWork, held: govern.Holding) -> None:
    """Decide the inserts that the end of the step decides, and rank what came."""
    nodes, elements = state.nodes, work.elements
    mentioned = elements.node[elements.node != NOBODY]
    ids = np.unique(np.concatenate([mentioned, *work.changed, *work.done]))
    work.mentioned = ids
    govern.settle_held(frozen(ids), nodes.rows, held)
    moved = np.unique(np.concatenate([_NONE, *work.changed]))
    moved = moved[nodes.rows[moved, OUT] != ABSENT]
    nodes.rows[moved, RANK] = state.next_rank + np.arange(len(moved))
    state.next_rank += len(moved)
    work.brought = moved[nodes.rows[moved, SHOWN] == ABSENT]


def locate(
    nodes: Events, names: FinalNames, batches: Sequence[Batch], *, frontier: int, mark: int
) -> Located:
    """Find the node of each element, or make one if it starts at the frontier or later."""
    found = [_locate_piece(nodes, names, piece, frontier, mark) for piece in pieces(batches)]
    if len(found) == 1:
        return found[0]
    return Located(
        np.concatenate([_NONE, *(piece.node for piece in found)]),
        np.concatenate([_NONE, *(piece.final_end for piece in found)]),
        np.concatenate([_NONE, *(piece.created for piece in found)]),
    )


def _locate_piece(
    nodes: Events, names: FinalNames, piece: Piece, frontier: int, mark: int
) -> Located:
    is_data, start = piece.kind != STABLE, piece.start
    rows, may_add = np.flatnonzero(is_data), is_data & (start >= frontier)
    asked, created = find_piece(nodes, piece, start, may_add, rows, mark)
    final_end = np.full(len(start), UNKNOWN, np.int64)
    behind = rows[asked.id[rows] == NOBODY]
    if len(behind):
        hashes = np.stack((asked.low[behind], asked.high[behind]), axis=1)
        final_end[behind] = names.ends(start[behind], hashes.view(np.uint64))
    return Located(asked.id, final_end, created)
