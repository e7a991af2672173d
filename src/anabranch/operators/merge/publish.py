"""New events on the output, as they are when the step ends: the first replica brings an event.

`publish_all` is the paper's Algorithm R3 (the default policy).  A bag gets as many events as
the fullest replica has; their ends are those of that replica, the first credited one before
the others (`publish_bags`).  Where a policy holds events back, `govern` decides instead.

The references are `reference.r3.MergeR3._insert` and `reference.r4.MergeR4._insert`.

Papers: LMerge IV-D and IV-E, Algorithms R3 and R4, lines 3 to 9.
"""

import numpy as np

from anabranch.batch.batch import Codes, Ints
from anabranch.batch.index import NOBODY, START
from anabranch.batch.kernel import kernel
from anabranch.operators.merge import codes
from anabranch.operators.merge.bag_reconcile import LACK, Scratch, compare, is_room
from anabranch.operators.merge.bags import (
    CREDIT,
    CREDITED_BY,
    CREDITED_END,
    OUT_BLOCK,
    Bags,
    change_output,
    has_end,
    total,
)
from anabranch.operators.merge.judge import Elements
from anabranch.operators.merge.layout import BAG, ENDS, OUT, RANK, SHOWN
from anabranch.operators.merge.reconcile import Deciders, Scope, is_unsure, pend_row
from anabranch.operators.state.events import ABSENT, FLAGS


@kernel
def publish_all(
    rows: Ints, new: Ints, credit: Ints, replica: Ints, first: int, brought: Ints, pends: Ints
) -> tuple[int, int]:
    """Put each new event that has credit on the output, with that replica's end.

    If that replica has taken it back meanwhile, the first replica that has it gives the end.
    The events are ranked from `first` on.  Returns how many came, and how many cells are
    earlier than the output's end.
    """
    came, pended = 0, 0
    for k in range(new.size):
        node = new[k]
        if credit[k] == NOBODY or rows[node, FLAGS] & BAG:
            continue
        start = rows[node, START]
        end = rows[node, ENDS + replica[credit[k]]]
        column = ENDS
        while end <= start:
            end = rows[node, column]
            column += 1
        rows[node, OUT], rows[node, RANK] = end, first + came
        brought[came] = node
        came += 1
        pended = pend_row(rows, node, ABSENT, end, pends, pended)
    return came, pended


@kernel
def pend_all(rows: Ints, elements: Elements, reasons: Codes, pends: Ints) -> int:
    """The cells that these elements made earlier than the end that readers have."""
    pended = 0
    for i in range(reasons.size):
        if reasons[i] not in (codes.KNOWN, codes.NOTED):
            continue
        node = elements.node[i]
        if rows[node, SHOWN] == ABSENT or rows[node, FLAGS] & BAG:
            continue
        end = rows[node, ENDS + elements.replica[i]]
        if end < rows[node, OUT]:
            pends[0, pended], pends[1, pended] = elements.replica[i], end
            pends[2, pended] = node
            pended += 1
    return pended


@kernel
def publish_bags(
    nodes: Ints,
    begin: int,
    scope: Scope,
    deciders: Deciders,
    rows: Ints,
    bags: Bags,
    scratch: Scratch,
) -> int:
    """Put credited events of bags on the output; returns where it had to stop, or how many.

    `scope` is the first move of this step, or has the time ABSENT.  Of what starts before it
    only events of the one decider are published: the rest would be removed at once, unless the
    decider was promoted and need not know it.
    """
    for k in range(begin, nodes.size):
        node, record = nodes[k], rows[nodes[k], OUT]
        if bags.records[record, CREDIT] == 0:
            continue
        start = rows[node, START]
        best = rows[node, ENDS + bags.records[record, CREDITED_BY]]
        decides = start < scope.time and not scope.gaps
        if decides and not is_unsure(start, deciders.guarantee[0], scope):
            best = rows[node, ENDS + deciders.replica[0]]
        else:
            for column in range(ENDS, rows.shape[1]):
                if total(bags, rows[node, column]) > total(bags, best):
                    best = rows[node, column]
        have, most = total(bags, bags.records[record, OUT_BLOCK]), total(bags, best)
        if not is_room(bags, scratch, have + most):
            return k
        first_end = bags.records[record, CREDITED_END]
        if most > have and has_end(bags, best, first_end):
            change_output(bags, record, ABSENT, first_end)
            have += 1
        if most > have:
            compare(bags, bags.records[record, OUT_BLOCK], best, scratch)
            for w in range(most - have):
                change_output(bags, record, ABSENT, scratch.bags[LACK, w])
    return nodes.size


def no_pends(events: int) -> Ints:
    """Room for so many pends: replica, time, event."""
    return np.empty((3, events), np.int64)
