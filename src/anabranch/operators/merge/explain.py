"""What became of each element that was believed: the buckets of a step, after its net change.

`judge` has given the reasons of elements that break a promise, come again or come too late.
The others did what only the end of the step shows: brought an event, corrected one, or made no
difference.

* The credited insert of an event that is new on the output is `emitted`; of a bag as many
  credited inserts as the net change inserts.
* The last adjust of a decider to the end that the output was adjusted to is `corrected`.
* An element of an event that the decider never had, and that its own replica still has, is
  `late`: behind the frontier now, and not on the output.
* All others are `absorbed`.

Where a policy holds inserts back, `hold` explains instead.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from anabranch.batch.batch import ADJUST, INSERT, Codes, Ints, Mask
from anabranch.batch.index import NOBODY
from anabranch.batch.kernel import frozen, kernel, part
from anabranch.operators.contract import Reason
from anabranch.operators.merge.bags import CREDIT, OUT_BLOCK, Bags, total
from anabranch.operators.merge.emit import END, KIND, NODE
from anabranch.operators.merge.judge import NEW, Elements, Ledger
from anabranch.operators.merge.layout import BAG, CREDITED, DONE, ENDS, OUT, REMOVED, SHOWN
from anabranch.operators.state.events import ABSENT, FLAGS

_FIRST: Final = Reason.FIRST.code
_KNOWN: Final = Reason.KNOWN.code
_NOTED: Final = Reason.NOTED.code
_CORRECTED: Final = Reason.CORRECTED.code
_MISSED: Final = Reason.MISSED.code
_SUPERSEDED: Final = Reason.SUPERSEDED.code


def explain(elements: Elements, ledger: Ledger, decided: Mask, reasons: Codes) -> int:
    """Give the final reasons of single events, in place; how many adjusts are `corrected`."""
    corrected = int(explain_all(ledger.rows, elements, frozen(decided), reasons))
    count = int(ledger.numbers[NEW])
    new, credit = ledger.new[:count], ledger.credit[:count]
    is_single = ledger.rows[:, FLAGS][new] & BAG == 0
    brought = is_single & (credit != NOBODY) & (ledger.rows[:, OUT][new] != ABSENT)
    reasons[credit[brought]] = _FIRST
    return corrected


def explain_stables(
    ledger: Ledger, leaders: Sequence[int], joined: Mask, reasons: Codes
) -> None:
    """The last stable of a replica counts, or waits for its replica to be joined."""
    moved = ledger.last_stable != NOBODY
    reasons[ledger.last_stable[moved & ~joined]] = Reason.JOINING.code
    # The first decider has moved in this step; one that has just joined may have moved before.
    in_step = [leader for leader in leaders if moved[leader]]
    reasons[ledger.last_stable[in_step[-1:]]] = Reason.LEADS.code


@kernel
def explain_all(rows: Ints, elements: Elements, decided: Mask, reasons: Codes) -> int:
    """The reasons of inserts and adjusts; backwards, since the last adjust has the credit."""
    corrected = 0
    for k in range(reasons.size):
        i = reasons.size - 1 - k
        reason = reasons[i]
        if reason not in (_KNOWN, _NOTED):
            continue
        node = elements.node[i]
        out, flags = rows[node, OUT], rows[node, FLAGS]
        if flags & BAG:
            continue
        if reason == _NOTED and decided[elements.replica[i]]:
            shown = rows[node, SHOWN]
            target = elements.start[i] if out == ABSENT else out
            changes = shown not in (ABSENT, out) and not flags & CREDITED
            if changes and elements.end[i] == target:
                rows[node, FLAGS] = flags | CREDITED
                reasons[i] = _CORRECTED
                corrected += 1
                continue
        if out == ABSENT:
            reasons[i] = absent(rows, elements, node, i)
    return corrected


@part
def absent(rows: Ints, elements: Elements, node: int, i: int) -> int:
    """Why the event of this element is not on the output."""
    has_it = rows[node, ENDS + elements.replica[i]] > elements.start[i]
    if has_it and rows[node, FLAGS] & (DONE | REMOVED) == DONE:
        return _MISSED
    return _SUPERSEDED


def explain_bags(
    elements: Elements,
    rows: Ints,
    bags: Bags,
    net: Ints,
    decided: Mask,
    frontier: int,
    reasons: Codes,
) -> int:
    """Give the final reasons of elements of bags; how many adjusts are `corrected`."""
    is_bag = elements.node != NOBODY
    is_bag[is_bag] = rows[:, FLAGS][elements.node[is_bag]] & BAG != 0
    ids = np.flatnonzero(is_bag)
    adjusts = ids[(reasons[ids] == _NOTED) & decided[elements.replica[ids]]]
    explain_credit(frozen(ids), elements, net, rows, bags, frontier, reasons)
    corrected = _corrected(elements, net, adjusts)
    reasons[corrected] = _CORRECTED
    return len(corrected)


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
    for k in range(ids.size):
        records[rows[elements.node[ids[k]], OUT], CREDIT] = 0
    for k in range(net.shape[0]):
        if net[k, KIND] == INSERT:
            records[rows[net[k, NODE], OUT], CREDIT] += 1
    for k in range(ids.size):
        i = ids[k]
        if reasons[i] not in (_FIRST, _KNOWN, _NOTED):
            continue
        node = elements.node[i]
        record = rows[node, OUT]
        shown = total(bags, records[record, OUT_BLOCK])
        if reasons[i] == _FIRST:
            if records[record, CREDIT] > 0:
                records[record, CREDIT] -= 1
                continue
        elif shown > 0:
            continue
        has_more = total(bags, rows[node, ENDS + elements.replica[i]]) > shown
        is_passed = elements.start[i] < frontier and not rows[node, FLAGS] & REMOVED
        reasons[i] = _MISSED if has_more and is_passed else _SUPERSEDED


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
