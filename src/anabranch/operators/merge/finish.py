"""The end of a step: the bucket of every element, the net change, final events, freed rows.

`step` has judged the elements and moved the frontier; `StepWork` is what it has written down.
`judge` has given the reasons of elements that break a promise, come again or come too late.
The others did what only the end of the step shows: brought an event, corrected one, or made no
difference.

* The credited insert of an event that is new on the output is `emitted`; of a bag as many
  credited inserts as the net change inserts.
* The last adjust of a deciding replica to the end that the output was adjusted to is
  `corrected`.
* An element of an event that the deciding replica never had, and that its own replica still
  has, is `late`: behind the frontier now, and not on the output.
* All others are `absorbed`.

Where a policy holds inserts back, `govern` gives those of inserts instead.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

import numpy as np

from anabranch.batch.batch import (
    ADJUST,
    FOREVER_UNITS,
    INSERT,
    NEVER_UNITS,
    Batch,
    Codes,
    Ints,
    Mask,
)
from anabranch.batch.index import LOW, NOBODY, START
from anabranch.batch.kernel import frozen, kernel, part
from anabranch.operators.contract import (
    BUCKET_OF,
    GAPS_SHOWN,
    Arrival,
    Resolved,
    StepResult,
)
from anabranch.operators.merge import codes
from anabranch.operators.merge.bag_reconcile import Scratch, scratch_for
from anabranch.operators.merge.bags import (
    CREDIT,
    OUT_BLOCK,
    Bags,
    Nodes,
    dissolve,
    settle_bags,
    total,
)
from anabranch.operators.merge.emit import (
    END,
    KIND,
    NODE,
    Output,
    final_events,
    name_gaps,
    net_of_bags,
)
from anabranch.operators.merge.govern import PER_REPLICA, Holding, resolved_of
from anabranch.operators.merge.judge import NEW, Elements, Ledger
from anabranch.operators.merge.layout import (
    BAG,
    CREDITED,
    DONE,
    ENDS,
    OUT,
    REMOVED,
    SHOWN,
    TOUCHED,
)
from anabranch.operators.merge.policy import Adjusts
from anabranch.operators.merge.reconcile import (
    ALONE,
    GAPS,
    LACKS,
    Deciding,
    Found,
    Scope,
    list_final,
    list_unreferenced,
)
from anabranch.operators.merge.state import MergeState
from anabranch.operators.state.events import ABSENT, FLAGS

_NONE: Ints = np.empty(0, np.int64)


@dataclass(eq=False)
class StepWork:
    """One step: its elements, what it writes down, and what it has done so far.

    `bags` are those that were touched or visited; `changed` are single events whose end on the
    output may be another one now; `brought` are those that came to it.  `done` left, `passes`
    became half frozen.
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
    passes: list[Ints] = field(default_factory=list)
    leaders: list[int] = field(default_factory=list)
    decided: Mask = field(default_factory=lambda: np.zeros(0, np.bool_))
    gaps: list[tuple[int, Ints]] = field(default_factory=list)
    missing: int = 0
    gap_counts: Ints = field(default_factory=lambda: np.zeros((2, 0), np.int64))
    conflicts: int = 0
    corrected: int = 0
    visits: int = 0
    scratch: Scratch = field(default_factory=lambda: scratch_for(0))

    def add_gaps(self, nodes: Nodes, scope: Scope, deciding: Deciding, found: Found) -> None:
        """What one move found missing, and in which replica."""
        ids = found.listed(GAPS)
        if not scope.gaps:
            self.missing += len(ids)
            self.gaps.append((int(deciding.replica[0]), ids))
            return
        self.missing += int(found.gaps[LACKS].sum())
        self.gap_counts = self.gap_counts + found.gaps
        ids = ids[:GAPS_SHOWN]
        for replica, reached in zip(deciding.replica, deciding.reached, strict=True):
            cells = nodes.rows[ids, ENDS + replica]
            lacks = (cells == ABSENT) & (nodes.rows[ids, START] < reached)
            self.gaps.append((int(replica), ids[lacks]))


def explain_step(
    state: MergeState, work: StepWork, held: Holding | None
) -> tuple[Resolved, ...]:
    """Give every element its last reason, and write down the net change."""
    nodes, elements, reasons = state.nodes, work.elements, work.reasons
    decided = work.decided
    resolved = (*state.abandoned,)
    state.abandoned = []
    follows, base = state.policy.adjusts is not Adjusts.ON_STABLE, held.base if held else 0
    asked = (frozen(decided), state.held, base, follows)
    work.corrected = int(explain_all(nodes.rows, elements, *asked, reasons))
    if held is None:
        count = int(work.ledger.numbers[NEW])
        new, credit = work.ledger.new[:count], work.ledger.credit[:count]
        brought = (credit != NOBODY) & (nodes.rows[:, OUT][new] != ABSENT)
        if work.bags:
            brought &= nodes.rows[:, FLAGS][new] & BAG == 0
        reasons[credit[brought]] = codes.FIRST
    else:
        resolved += resolved_of(state.schema, nodes, state.members.names, held)
        pending = int(np.count_nonzero(reasons == codes.HELD))
        state.pending += pending - int(held.taken[0])
        nodes.rows[work.mentioned, FLAGS] &= ~(TOUCHED | CREDITED)
    _explain_stables(work.ledger, work.leaders, state.members.joined(state.frontier), reasons)
    work.output.add_adjusts(nodes, np.concatenate([_NONE, *work.changed]))
    work.output.add_new(nodes, work.brought)
    if work.bags:
        _explain_bags(state, work, decided)
    if work.leaders:
        work.output.add_stable(state.frontier)
    return resolved


def _explain_bags(state: MergeState, work: StepWork, decided: Mask) -> None:
    """Give the last reasons of elements of bags, and write down the net change of these."""
    nodes, elements, reasons = state.nodes, work.elements, work.reasons
    rows, shrink_only = nodes.rows, state.policy.shrink_only
    work.bags = [np.unique(np.concatenate(work.bags))]
    net = net_of_bags(nodes, work.bags[0], work.frontier, shrink_only=shrink_only)
    is_bag = elements.node != NOBODY
    is_bag[is_bag] = rows[:, FLAGS][elements.node[is_bag]] & BAG != 0
    ids = np.flatnonzero(is_bag)
    adjusts = ids[(reasons[ids] == codes.NOTED) & decided[elements.replica[ids]]]
    explain_credit(frozen(ids), elements, net, rows, nodes.bags, state.frontier, reasons)
    corrected = _corrected(elements, net, adjusts)
    reasons[corrected] = codes.CORRECTED
    work.corrected += len(corrected)
    work.output.add_net(nodes, net)
    settle_bags(nodes.bags, rows, frozen(work.bags[0]))


def result_of(
    state: MergeState,
    arrivals: Sequence[Arrival],
    work: StepWork,
    resolved: tuple[Resolved, ...],
) -> StepResult:
    """What the caller gets; rows and bags are still as the step leaves them."""
    nodes, output = state.nodes, work.output
    first = codes.FIRST
    emitted = int(np.count_nonzero(work.reasons == first))
    emitted += sum(int(np.count_nonzero(one.reasons == first)) for one in resolved)
    ends = accumulate(len(arrival.batch) for arrival in arrivals)
    cuts = pairwise((0, *ends))
    reasons = tuple(work.reasons[begin:end] for begin, end in cuts)
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
        missing=work.missing,
        gaps=name_gaps(nodes, state.members.names, work.gaps),
        lacks=_by_name(state, work.gap_counts[LACKS]),
        alone=_by_name(state, work.gap_counts[ALONE]),
        repeated=_by_name(state, work.ledger.repeated),
        counts={"visits": work.visits},
    )


def _by_name(state: MergeState, counts: Ints) -> dict[str, int]:
    found = zip(state.members.names, counts.tolist(), strict=False)
    return {name: count for name, count in found if count}


def _final(state: MergeState, work: StepWork) -> Batch:
    if state.final_at_start:
        return _final_at_start(state, work)
    done = np.concatenate([_NONE, *work.done])
    singles = done[state.nodes.rows[:, FLAGS][done] & BAG == 0]
    span = (work.frontier, state.frontier)
    bags = work.bags[0] if work.bags and work.leaders else _NONE
    return final_events(state.nodes, state.schema, singles, bags, span)


def _final_at_start(state: MergeState, work: StepWork) -> Batch:
    """What the frontier passed: with an end that is known nothing of it can change."""
    rows = state.nodes.rows
    ids = np.unique(np.concatenate([_NONE, *work.passes, *work.done]))
    ids = ids[rows[ids, START] >= work.frontier]
    is_bag = rows[ids, FLAGS] & BAG != 0
    every_end = (int(NEVER_UNITS), int(FOREVER_UNITS))
    return final_events(state.nodes, state.schema, ids[~is_bag], ids[is_bag], every_end)


def settle(state: MergeState, work: StepWork) -> None:
    """Remember the names of what is final, free what is not needed, tidy up."""
    state.limit_memory()
    nodes, oldest = state.nodes, state.oldest
    done = np.concatenate([_NONE, *work.done])
    if work.bags:
        dissolve(nodes.bags, nodes.rows, done[nodes.rows[done, FLAGS] & BAG != 0])
    # What every replica has left behind, or is too old, is forgotten before it is remembered.
    names, ends = np.empty((len(done), LOW + 1), np.int64), np.empty(len(done), np.int64)
    count = int(list_final(nodes.rows, frozen(done), oldest, names, ends))
    state.final_names.forget(oldest, state.mark)
    state.final_names.remember(names[:count], ends[:count], state.mark)
    free = np.empty(len(work.created), np.int64)
    free = free[: int(list_unreferenced(nodes.rows, frozen(work.created), free))]
    nodes.remove(np.concatenate([done, free]), state.mark)
    state.agenda.tidy(nodes, state.frontier)
    state.conflicts += work.conflicts
    state.elements += len(work.reasons)


def _explain_stables(
    ledger: Ledger, leaders: Sequence[int], joined: Mask, reasons: Codes
) -> None:
    """The last stable of a replica counts, or waits for its replica to be joined."""
    moved = ledger.last_stable != NOBODY
    reasons[ledger.last_stable[moved & ~joined]] = codes.JOINING
    # The first deciding replica has moved in this step; one that has just joined may have moved
    # before.
    in_step = [leader for leader in leaders if moved[leader]]
    reasons[ledger.last_stable[in_step[-1:]]] = codes.LEADS


@kernel
def explain_all(
    rows: Ints,
    elements: Elements,
    decided: Mask,
    held: Ints,
    base: int,
    follows: bool,  # noqa: FBT001
    reasons: Codes,
) -> int:
    """The reasons of inserts and adjusts; backwards, since the last adjust has the credit.

    Returns how many adjusts are `corrected`: those of a deciding replica, or if a policy
    `follows` other ends, of any replica.  A policy that holds inserts back has `held`; `base`
    is the number of the first element.
    """
    corrected, governed = 0, held.size > 0
    for k in range(reasons.size):
        i = reasons.size - 1 - k
        reason = reasons[i]
        if reason not in (codes.KNOWN, codes.NOTED):
            continue
        node, replica = elements.node[i], elements.replica[i]
        out, flags = rows[node, OUT], rows[node, FLAGS]
        # Credits of bags are counted, not assigned: `explain_credit`.
        if flags & BAG:
            continue
        # Decided already (`settle_held`), unless it is the very insert that is still held.
        if governed and reason == codes.KNOWN:
            if held[node, PER_REPLICA * replica] == base + i:
                reasons[i] = codes.HELD
            continue
        if reason == codes.NOTED and not flags & CREDITED:
            shown = rows[node, SHOWN]
            if governed and shown == ABSENT and out != ABSENT:
                # Nothing was held: this adjust brings back what another one took away.
                rows[node, FLAGS] = flags | CREDITED
                reasons[i] = codes.FIRST
                continue
            # The end for which an adjust gets the credit; a removal asks for the start.
            target = elements.start[i] if out == ABSENT else out
            # Nobody corrected what readers do not know, or know as it is.
            changes = shown not in (ABSENT, out) and elements.end[i] == target
            if changes and (follows or decided[replica]):
                rows[node, FLAGS] = flags | CREDITED
                reasons[i] = codes.CORRECTED
                corrected += 1
                continue
        if out == ABSENT and (
            not governed or flags & DONE or elements.end[i] == elements.start[i]
        ):
            reasons[i] = absent(rows, elements, node, i)
    return corrected


@part
def absent(rows: Ints, elements: Elements, node: int, i: int) -> int:
    """Why the event of this element is not on the output."""
    has_it = rows[node, ENDS + elements.replica[i]] > elements.start[i]
    # Its replica still has it, and the deciding one let it pass without removing it.
    if has_it and rows[node, FLAGS] & (DONE | REMOVED) == DONE:
        return codes.MISSED
    return codes.SUPERSEDED


@kernel
def explain_credit(
    ids: Ints,
    elements: Elements,
    net: Ints,
    rows: Ints,
    bags: Bags,
    frontier: int,
    reasons: Codes,
) -> None:
    """Keep as many credits as there are inserts; see what of the rest is on no output."""
    records = bags.records
    # Credit from here on: how many inserts the net change has.
    for k in range(ids.size):
        records[rows[elements.node[ids[k]], OUT], CREDIT] = 0
    for k in range(net.shape[0]):
        if net[k, KIND] == INSERT:
            records[rows[net[k, NODE], OUT], CREDIT] += 1
    for k in range(ids.size):
        i = ids[k]
        if reasons[i] not in (codes.FIRST, codes.KNOWN, codes.NOTED):
            continue
        node = elements.node[i]
        record = rows[node, OUT]
        shown = total(bags, records[record, OUT_BLOCK])
        if reasons[i] == codes.FIRST:
            if records[record, CREDIT] > 0:
                records[record, CREDIT] -= 1
                continue
        # Known or noted, and of an identity that is on the output: absorbed as it was.
        elif shown > 0:
            continue
        has_more = total(bags, rows[node, ENDS + elements.replica[i]]) > shown
        is_passed = elements.start[i] < frontier and not rows[node, FLAGS] & REMOVED
        reasons[i] = codes.MISSED if has_more and is_passed else codes.SUPERSEDED


def _corrected(elements: Elements, net: Ints, ids: Ints) -> Ints:
    """Of these adjusts those that have the credit for one of the output."""
    wanted = net[net[:, KIND] == ADJUST][:, [NODE, END]]
    ids = ids[::-1]
    asked = np.stack([elements.node[ids], elements.end[ids]], axis=1)
    # Both sides are numbered among their equals; who has the same number is a pair.
    sides = np.repeat(np.array([0, 1]), [len(wanted), len(asked)])
    pairs = np.concatenate([wanted, asked])
    order = np.lexsort((np.arange(len(pairs)), sides, pairs[:, 1], pairs[:, 0]))
    pairs, sides = pairs[order], sides[order]
    is_new = np.append(True, (pairs[1:] != pairs[:-1]).any(axis=1))[: len(pairs)]
    group = np.cumsum(is_new) - 1
    offers = np.bincount(group, weights=1 - sides).astype(np.int64)
    first = np.flatnonzero(is_new)
    rank = np.arange(len(pairs)) - first[group] - offers[group]
    has_credit = (sides == 1) & (rank < offers[group])
    found: Ints = ids[order[has_credit] - len(wanted)]
    return found
