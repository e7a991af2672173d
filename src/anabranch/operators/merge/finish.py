"""The end of a step: every element's bucket, the net change, what is final, and what is freed.

`step` has judged the elements and moved the frontier; `StepWork` is what it has written down.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from anabranch.batch.batch import Batch, Codes, Ints, Mask
from anabranch.batch.index import LOW
from anabranch.batch.kernel import frozen
from anabranch.operators.contract import (
    BUCKET_OF,
    Arrival,
    Reason,
    Resolved,
    StepResult,
)
from anabranch.operators.merge.bag_reconcile import Scratch, scratch_for
from anabranch.operators.merge.bags import dissolve, settle_bags
from anabranch.operators.merge.emit import Output, final_events, name_gaps, net_of_bags
from anabranch.operators.merge.explain import explain, explain_bags, explain_stables
from anabranch.operators.merge.hold import (
    Holding,
    explain_governed,
    resolved_of,
)
from anabranch.operators.merge.judge import (
    Elements,
    Ledger,
)
from anabranch.operators.merge.layout import (
    BAG,
    CREDITED,
    TOUCHED,
)
from anabranch.operators.merge.policy import Adjusts
from anabranch.operators.merge.reconcile import (
    list_final,
    list_unreferenced,
)
from anabranch.operators.merge.state import MergeState
from anabranch.operators.state.events import FLAGS

_NONE: Ints = np.empty(0, np.int64)


@dataclass(eq=False)
class StepWork:
    """One step: its elements, what it writes down, and what it has done so far.

    `bags` are those that were touched or visited; `changed` are single events whose end on the
    output may be another one now; `brought` are those that came to it.
    """

    frontier: int
    elements: Elements
    ledger: Ledger
    created: Ints
    reasons: Codes
    output: Output
    brought: Ints = field(default_factory=lambda: _NONE)
    mentioned: Ints = field(default_factory=lambda: _NONE)
    changed: list[Ints] = field(default_factory=list)
    bags: list[Ints] = field(default_factory=list)
    done: list[Ints] = field(default_factory=list)
    leaders: list[int] = field(default_factory=list)
    gaps: list[tuple[int, Ints]] = field(default_factory=list)
    conflicts: int = 0
    corrected: int = 0
    visits: int = 0
    scratch: Scratch = field(default_factory=lambda: scratch_for(0))


def explain_step(
    state: MergeState, work: StepWork, held: Holding | None
) -> tuple[Resolved, ...]:
    """Give every element its last reason, and write down the net change."""
    nodes, elements, reasons = state.nodes, work.elements, work.reasons
    decided: Mask = np.zeros(len(state.members), np.bool_)
    decided[work.leaders] = True
    resolved = (*state.abandoned,)
    state.abandoned = []
    if held is None:
        work.corrected = explain(elements, work.ledger, decided, reasons)
    else:
        follows = state.policy.adjusts is not Adjusts.ON_STABLE
        rows = nodes.rows
        work.corrected = int(explain_governed(elements, rows, held, decided, follows))
        resolved += resolved_of(state.schema, nodes, state.members.names, held)
        pending = int(np.count_nonzero(reasons == Reason.HELD.code))
        state.pending += pending - int(held.taken[0])
        nodes.rows[work.mentioned, FLAGS] &= ~(TOUCHED | CREDITED)
    explain_stables(work.ledger, work.leaders, state.members.joined(state.frontier), reasons)
    work.output.add_adjusts(nodes, np.concatenate([_NONE, *work.changed]))
    work.output.add_new(nodes, work.brought)
    if work.bags:
        _explain_bags(state, work, decided)
    if work.leaders:
        work.output.add_stable(state.frontier)
    return resolved


def _explain_bags(state: MergeState, work: StepWork, decided: Mask) -> None:
    nodes, shrink_only = state.nodes, state.policy.shrink_only
    work.bags = [np.unique(np.concatenate(work.bags))]
    net = net_of_bags(nodes, work.bags[0], work.frontier, shrink_only=shrink_only)
    scope = (decided, state.frontier, work.reasons)
    corrected = explain_bags(work.elements, nodes.rows, nodes.bags, net, *scope)
    work.corrected += corrected
    work.output.add_net(nodes, net)
    settle_bags(nodes.bags, nodes.rows, frozen(work.bags[0]))


def result_of(
    state: MergeState,
    arrivals: Sequence[Arrival],
    work: StepWork,
    resolved: tuple[Resolved, ...],
) -> StepResult:
    """What the caller gets; rows and bags are still as the step leaves them."""
    nodes, output = state.nodes, work.output
    first = Reason.FIRST.code
    emitted = int(np.count_nonzero(work.reasons == first))
    emitted += sum(int(np.count_nonzero(one.reasons == first)) for one in resolved)
    cuts = np.cumsum([len(arrival.batch) for arrival in arrivals])[:-1]
    reasons = tuple(np.split(work.reasons, cuts)) if arrivals else ()
    return StepResult(
        output.batch(nodes, state.schema),
        tuple(BUCKET_OF.take(codes) for codes in reasons),
        reasons,
        state.frontier,
        final=_final(state, work) if state.reports_final else None,
        resolved=resolved,
        added_adjusts=output.adjusts - work.corrected,
        added_inserts=output.inserts - emitted,
        conflicts=work.conflicts,
        missing=sum(len(ids) for _, ids in work.gaps),
        gaps=name_gaps(nodes, state.members.names, work.gaps),
        counts={"visits": work.visits},
    )


def _final(state: MergeState, work: StepWork) -> Batch:
    done = np.concatenate([_NONE, *work.done])
    singles = done[state.nodes.rows[:, FLAGS][done] & BAG == 0]
    span = (work.frontier, state.frontier)
    bags = work.bags[0] if work.bags and work.leaders else _NONE
    return final_events(state.nodes, state.schema, singles, bags, span)


def settle(state: MergeState, work: StepWork) -> None:
    """Remember the names of what is final, free what is not needed, tidy up."""
    nodes, slowest = state.nodes, state.members.slowest
    done = np.concatenate([_NONE, *work.done])
    if work.bags:
        dissolve(nodes.bags, nodes.rows, done[nodes.rows[done, FLAGS] & BAG != 0])
    # What every replica has left behind is forgotten before it is remembered.
    names, ends = np.empty((len(done), LOW + 1), np.int64), np.empty(len(done), np.int64)
    count = int(list_final(nodes.rows, frozen(done), slowest, names, ends))
    state.final_names.forget(slowest, state.mark)
    state.final_names.remember(names[:count], ends[:count], state.mark)
    free = np.empty(len(work.created), np.int64)
    free = free[: int(list_unreferenced(nodes.rows, frozen(work.created), free))]
    nodes.remove(np.concatenate([done, free]), state.mark)
    state.agenda.tidy(nodes, state.frontier)
    state.conflicts += work.conflicts
    state.elements += len(work.reasons)
