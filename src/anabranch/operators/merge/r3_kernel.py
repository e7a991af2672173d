"""Merge for case R3 over batches: what the elements of a step do to the output, in columns.

A step takes the elements of any number of replicas, each in its own order.

By `batch`, it returns the net change of the output: each event at most once, then the stable if
the frontier moved.  Whatever the cut into steps, the history is that of the element-by-element
form (`r3`).  By `element`, it returns the output elements of that form, in its order.

    locate     which event each element is about
    judge      each element against its own replica's promises, in order
    publish    events that nobody had brought before
    reconcile  on behalf of the replica that moves the frontier; again, if that lets a joining
               replica join which is further still
    emit       what readers have not seen yet, and every element's bucket

A step costs what its elements and the events it freezes or corrects cost, however many events
are alive; `R3State.work` counts it.  Attaching and detaching look at every event.

A lane sees all stables and a part of the data (`route`), so every lane has the same frontier.

Papers: LMerge IV-D, Algorithm R3; V-B, V-C; erratum D21 for the net change.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from anabranch.batch.batch import Batch, Codes, Ints
from anabranch.batch.kernel import frozen
from anabranch.errors import UsageError
from anabranch.operators.merge.admit import admit
from anabranch.operators.merge.contract import BUCKET_OF, Arrival, Granularity, StepResult
from anabranch.operators.merge.r3_account import StepEnd, explain
from anabranch.operators.merge.r3_emit import Output, name_gaps
from anabranch.operators.merge.r3_index import Located, locate
from anabranch.operators.merge.r3_loop import (
    BY_ELEMENT,
    FRONTIER,
    LAG,
    MARK,
    NEWBORN,
    NEXT_BORN,
    SLOWEST,
    Elements,
    Ledger,
    judge,
)
from anabranch.operators.merge.r3_reconcile import (
    enqueue,
    list_final,
    list_unspoken,
    pend,
    publish,
    reconcile,
)
from anabranch.operators.merge.r3_state import R3State
from anabranch.operators.merge.slots import LOW, NOBODY


@dataclass(eq=False)
class _Work:
    """One step: its elements, what it writes down, and what it has done so far."""

    elements: Elements
    ledger: Ledger
    created: Ints
    reasons: Codes
    output: Output
    done: list[Ints] = field(default_factory=list)
    leaders: list[int] = field(default_factory=list)
    gaps: list[tuple[int, Ints]] = field(default_factory=list)
    conflicts: int = 0
    queued: int = 0


def step(
    state: R3State, arrivals: Sequence[Arrival], *, granularity: Granularity = "batch"
) -> StepResult:
    """Take what arrived, change the state, and return what the output has to say."""
    if granularity not in ("batch", "element"):
        message = f"merge: granularity '{granularity}' is neither 'batch' nor 'element'"
        raise UsageError(message)
    admit(state, arrivals)
    state.mark += 1
    work = _begin(state, arrivals, by_element=granularity == "element")
    corrected = 0
    if granularity == "element":
        _run_by_element(state, work)
    else:
        corrected = _run_by_batch(state, work)
    output, gaps = work.output.batch(state), name_gaps(state, work.gaps)
    _settle(state, work)
    cuts = np.cumsum([len(arrival.batch) for arrival in arrivals])[:-1]
    reasons = tuple(np.split(work.reasons, cuts)) if arrivals else ()
    return StepResult(
        output,
        tuple(BUCKET_OF.take(codes) for codes in reasons),
        reasons,
        state.frontier if work.leaders else None,
        work.output.adjusts - corrected,
        work.conflicts,
        missing=sum(len(nodes) for _, nodes in work.gaps),
        gaps=gaps,
    )


def _begin(state: R3State, arrivals: Sequence[Arrival], *, by_element: bool) -> _Work:
    """Find the event of each element, and lay out what the loops read and write."""
    batches = [arrival.batch for arrival in arrivals if len(arrival.batch)]
    located = locate(
        state.nodes, state.settled, batches, frontier=state.frontier, mark=state.mark
    )
    columns = [state.members.names.index(arrival.replica) for arrival in arrivals]
    sizes = [len(arrival.batch) for arrival in arrivals]
    elements = _elements(batches, located, np.repeat(np.array(columns, np.int64), sizes))
    members, count = state.members, len(elements.kind)
    ledger = Ledger(
        state.nodes.rows,
        state.nodes.changed,
        frontier=members.frontier,
        last_seq=members.last_seq,
        last_stable=np.full(len(members), NOBODY, np.int64),
        joined=members.joined(state.frontier),
        missing=state.agenda.missing,
        newborn=np.empty(count, np.int64),
        credit=np.empty(count, np.int64),
        numbers=_numbers(state, by_element=by_element),
    )
    return _Work(elements, ledger, located.created, np.empty(count, np.int8), Output())


def _numbers(state: R3State, *, by_element: bool) -> Ints:
    numbers = np.zeros(LAG + 1, np.int64)
    numbers[FRONTIER], numbers[SLOWEST] = state.frontier, state.members.slowest
    numbers[MARK], numbers[NEXT_BORN] = state.mark, state.next_born
    numbers[BY_ELEMENT], numbers[LAG] = by_element, state.stable_lag
    return numbers


def _elements(batches: Sequence[Batch], located: Located, replica: Ints) -> Elements:
    """The columns of all arrivals, one after the other; those of a replica in their order."""
    numbers = np.empty(0, np.int64)
    times = [
        np.concatenate([numbers, *(getattr(batch, name) for batch in batches)])
        for name in ("start", "end", "old_end")
    ]
    kind = np.concatenate([np.empty(0, np.int8), *(batch.kind for batch in batches)])
    seqs = [batch.seq for batch in batches if batch.seq is not None]
    columns = (kind, *times, np.concatenate([numbers, *seqs]), replica)
    return Elements(*map(frozen, (*columns, located.node, located.settled_end)))


def _run_by_batch(state: R3State, work: _Work) -> int:
    """All elements, then one decision; returns how many adjusts have an input to thank."""
    nodes, agenda, count = state.nodes, state.agenda, len(work.reasons)
    judge(work.elements, work.ledger, 0, work.reasons)
    brought = publish(nodes, agenda, work.ledger, work.elements.replica, state.next_born)
    state.next_born += len(brought)
    pend(nodes, agenda, work.elements, work.reasons, 0, count)
    changed = _decide(state, work)
    end = StepEnd(work.leaders, state.members.joined(state.frontier))
    corrected = explain(work.elements, work.ledger, end, work.reasons)
    work.output.add_adjusts(nodes, np.concatenate([brought[:0], *changed]))
    work.output.add_new(nodes, brought)
    if work.leaders:
        work.output.add_stable(state.frontier)
    return corrected


def _run_by_element(state: R3State, work: _Work) -> None:
    """Elements up to a stable that leads, then the decision, and so on."""
    at, count = 0, len(work.reasons)
    while at < count:
        begin, at = at, int(judge(work.elements, work.ledger, at, work.reasons))
        pend(state.nodes, state.agenda, work.elements, work.reasons, begin, at)
        work.output.add_inserts(state.nodes, work.elements, work.reasons, begin, at)
        state.next_born = int(work.ledger.numbers[NEXT_BORN])
        _decide(state, work, by_element=True)


def _decide(state: R3State, work: _Work, *, by_element: bool = False) -> list[Ints]:
    """Move the frontier as far as the joined replicas allow; the events whose end changed.

    More than one decides only if a stable lets a joining replica join that is further still.
    What that replica never promised to know must be decided by the one before it (L9).
    """
    members, lag, changed = state.members, state.stable_lag, []
    count = int(work.ledger.numbers[NEWBORN])
    newborn, work.queued = work.ledger.newborn[work.queued : count], count
    while (leader := members.leader(state.frontier, lag=lag)) is not None:
        time = int(members.lagging(lag)[leader])
        scope = {"frontier": state.frontier, "time": time, "mark": state.mark}
        decision = reconcile(state.nodes, state.agenda, newborn, leader, **scope)
        newborn = newborn[:0]
        state.frontier = time
        work.leaders.append(leader)
        work.done.append(decision.done)
        work.gaps.append((leader, decision.gaps))
        work.conflicts += decision.conflicts
        changed.append(decision.changed)
        if by_element:
            work.output.add_adjusts(state.nodes, decision.changed)
            work.output.add_stable(time)
            work.ledger.numbers[FRONTIER] = time
            work.ledger.joined[:] = members.joined(time)
    enqueue(state.nodes, state.agenda, newborn)
    return changed


def _settle(state: R3State, work: _Work) -> None:
    """Remember the names of what is final, let go what is not needed, tidy up."""
    nodes, slowest = state.nodes, state.members.slowest
    done = np.concatenate([np.empty(0, np.int64), *work.done])
    # What every replica has left behind is forgotten before it is remembered.
    names, ends = np.empty((len(done), LOW + 1), np.int64), np.empty(len(done), np.int64)
    count = int(list_final(nodes.rows, frozen(done), slowest, names, ends))
    state.settled.forget(slowest, state.mark)
    state.settled.remember(names[:count], ends[:count], state.mark)
    unspoken = np.empty(len(work.created), np.int64)
    unspoken = unspoken[: int(list_unspoken(nodes.rows, frozen(work.created), unspoken))]
    nodes.remove(np.concatenate([done, unspoken]), state.mark)
    state.agenda.tidy(nodes, state.frontier)
    state.conflicts += work.conflicts
    state.elements += len(work.reasons)
