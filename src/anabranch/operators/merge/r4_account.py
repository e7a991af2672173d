"""What became of each element that was believed: the buckets of a step, after its net change.

The loop has said which elements break a promise, come again, come too late or were credited.
What they did to the output only the end of the step shows:

* Of the credited inserts of an identity, as many are `emitted` as the net change inserts.
* An adjust of a decider is `corrected` if the net change adjusts an event to its end: the last
  ones first, each adjust of the output for one of them.
* An element of an identity of which nothing is on the output after the step, and a credited
  insert that was not emitted, is `late` if the output's frontier has passed it and its own
  replica still has more events than the output; unless the decider itself removed them.
* All others are `absorbed`.
"""

from typing import Any, Final

import numpy as np

from anabranch.batch.batch import ADJUST, INSERT, Codes, Ints, Mask
from anabranch.batch.kernel import kernel
from anabranch.operators.merge.contract import Reason
from anabranch.operators.merge.r4_lists import OUTPUT, Lists, total
from anabranch.operators.merge.r4_loop import Elements, Promises
from anabranch.operators.merge.r4_net import END, KIND, NODE
from anabranch.operators.merge.r4_nodes import CREDIT, STATUS, TOLD

_FIRST: Final = Reason.FIRST.code
_KNOWN: Final = Reason.KNOWN.code
_NOTED: Final = Reason.NOTED.code
_SUPERSEDED: Final = Reason.SUPERSEDED.code
_MISSED: Final = Reason.MISSED.code


def explain(
    elements: Elements,
    nodes: tuple[Ints, Lists],
    net: Ints,
    deciders: list[int],
    frontier: int,
    reasons: Codes,
) -> None:
    """Give the final reasons of data elements, in place; no credit is left open."""
    adjusts = [np.flatnonzero((reasons == _NOTED) & (elements.column == d)) for d in deciders]
    explain_all(elements, net, *nodes, frontier, reasons)
    if deciders:
        corrected = _corrected(elements, net, np.sort(np.concatenate(adjusts)))
        reasons[corrected] = Reason.CORRECTED.code


@kernel
def explain_all(
    elements: Any, net: Any, facts: Any, lists: Any, frontier: Any, reasons: Any
) -> None:
    """Keep as many credits as there are inserts; see what of the rest is on no output."""
    for i in range(reasons.size):
        if reasons[i] == _FIRST:
            facts[elements.node[i], CREDIT] = 0
    for k in range(net.shape[0]):
        if net[k, KIND] == INSERT:
            facts[net[k, NODE], CREDIT] += 1
    for i in range(reasons.size):
        if reasons[i] != _FIRST and reasons[i] != _KNOWN and reasons[i] != _NOTED:
            continue
        node, start = elements.node[i], elements.start[i]
        shown = total(lists, node, OUTPUT, start)
        if reasons[i] == _FIRST:
            if facts[node, CREDIT] > 0:
                facts[node, CREDIT] -= 1
                continue
        elif shown > 0:
            continue
        has_more = total(lists, node, elements.column[i], start) > shown
        is_missed = has_more and start < frontier and facts[node, STATUS] & TOLD == 0
        reasons[i] = _MISSED if is_missed else _SUPERSEDED
    for k in range(net.shape[0]):
        if net[k, KIND] == INSERT:
            facts[net[k, NODE], CREDIT] = 0


def _corrected(elements: Elements, net: Ints, rows: Ints) -> Ints:
    """Of these adjusts those that have the credit for one of the output."""
    wanted = net[net[:, KIND] == ADJUST][:, [NODE, END]]
    rows = rows[::-1]
    asked = np.stack([elements.node[rows], elements.end[rows]], axis=1)
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
    found: Ints = rows[order[has_credit] - len(wanted)]
    return found


def explain_stables(
    promises: Promises, deciders: list[int], joined: Mask, reasons: Codes
) -> None:
    """The last stable of a decider leads; that of a replica that joined meanwhile follows."""
    moved = promises.last_stable >= 0
    reasons[promises.last_stable[moved & joined]] = Reason.FOLLOWS.code
    in_step = [leader for leader in deciders if moved[leader]]
    reasons[promises.last_stable[in_step[-1:]]] = Reason.LEADS.code
