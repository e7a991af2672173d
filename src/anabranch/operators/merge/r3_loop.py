"""The elements of a step, one after the other, against their own replica's promises.

Each element gets one reason code and, if it is believed, changes its replica's entry for its
event, or its replica's frontier.  An element that breaks a promise changes nothing.

By batch, nothing here looks at what another replica says, and nothing changes the output: that
is `r3_reconcile`'s, after the last element.  By element, an event comes to the output with its
first insert, and the loop stops behind a stable that moves the output's frontier, so that the
adjusts which are owed come before the next element.

Papers: LMerge IV-D, Algorithm R3, lines 3 to 14.
"""

from typing import Any, Final, NamedTuple

import numpy as np

from anabranch.batch.batch import FOREVER_UNITS, INSERT, NEVER_UNITS, STABLE, Codes, Ints, Mask
from anabranch.batch.kernel import kernel, part
from anabranch.operators.merge.contract import Reason
from anabranch.operators.merge.r3_nodes import (
    ABSENT,
    BLOCK_BITS,
    BORN,
    CONFLICT,
    DONE,
    ENDS,
    FLAGS,
    HALF_FROZEN,
    OUT,
    SHOWN,
    TOLD,
)
from anabranch.operators.merge.slots import NOBODY, START

_FIRST: Final = Reason.FIRST.code
_KNOWN: Final = Reason.KNOWN.code
_NOTED: Final = Reason.NOTED.code
_NO_CHANGE: Final = Reason.NO_CHANGE.code
_REDELIVERY: Final = Reason.REDELIVERY.code
_SETTLED: Final = Reason.SETTLED.code
_FOLLOWS: Final = Reason.FOLLOWS.code
_LEADS: Final = Reason.LEADS.code
_JOINING: Final = Reason.JOINING.code
_LATE: Final = Reason.LATE.code
_BACKWARDS: Final = Reason.BACKWARDS.code
_BEHIND_STABLE: Final = Reason.BEHIND_STABLE.code
_NO_SUCH_EVENT: Final = Reason.NO_SUCH_EVENT.code
_SECOND_INSERT: Final = Reason.SECOND_INSERT.code


class Elements(NamedTuple):
    """All elements of a step as columns; `seq` is empty if the streams have none.

    `node` is the number of the element's event, or NOBODY for a stable and for an event that
    the output will never hear of; `settled_end` is, in the latter case, the end with which the
    output settled it, if it did.
    """

    kind: Codes
    start: Ints
    end: Ints
    old_end: Ints
    seq: Ints
    replica: Ints
    node: Ints
    settled_end: Ints


class Ledger(NamedTuple):
    """What the elements change: rows of nodes, control per replica, and the lists below.

    `newborn[k]` is an event that is not on the output and got an insert in this step,
    `credit[k]` the element that brings it there; a node's BORN is k while it is in this list.
    `last_stable` is, per replica, the element of this step that moved its frontier; `missing`
    is Agenda's.  `numbers` are the scalars of the loop, by the names below.
    """

    rows: Ints
    changed: Ints
    frontier: Ints
    last_seq: Ints
    last_stable: Ints
    joined: Mask
    missing: Ints
    newborn: Ints
    credit: Ints
    numbers: Ints


NEWBORN: Final = 0
"""How many newborn there are."""
FRONTIER: Final = 1
"""The output's."""
SLOWEST: Final = 2
"""The smallest frontier of a replica: what ends before it has been forgotten."""
MARK: Final = 3
"""What changes in this step is marked with."""
NEXT_BORN: Final = 4
"""The rank of the next event that comes to the output."""
BY_ELEMENT: Final = 5
"""1 if each element has its own output, 0 if the step has."""
LAG: Final = 6
"""How far the output's frontier stays behind the leader's."""


@kernel
def judge(elements: Any, ledger: Any, begin: Any, reasons: Any) -> Any:
    """Give each element from `begin` on its reason; returns where the loop stopped.

    That is behind the last element or, by element, behind a stable of which the reason is
    LEADS: the output's frontier must be moved before the next element.
    """
    for i in range(begin, elements.kind.size):
        replica = elements.replica[i]
        if elements.seq.size > 0:
            if elements.seq[i] <= ledger.last_seq[replica]:
                reasons[i] = _REDELIVERY
                continue
            ledger.last_seq[replica] = elements.seq[i]
        if elements.kind[i] == STABLE:
            reasons[i] = judge_stable(elements.start[i], replica, i, ledger)
            if reasons[i] == _LEADS:
                return i + 1
        elif elements.kind[i] == INSERT:
            reasons[i] = judge_insert(elements, ledger, i)
        else:
            reasons[i] = judge_adjust(elements, ledger, i)
    return elements.kind.size


@part
def judge_stable(time: Any, replica: Any, i: Any, ledger: Any) -> Any:
    """Move the replica's frontier."""
    if time <= ledger.frontier[replica]:
        return _FOLLOWS
    ledger.frontier[replica] = time
    ledger.last_stable[replica] = i
    if ledger.numbers[BY_ELEMENT] == 0:
        return _FOLLOWS
    slowest = np.int64(FOREVER_UNITS)
    for other in range(ledger.frontier.size):
        slowest = min(slowest, ledger.frontier[other])
    ledger.numbers[SLOWEST] = slowest
    if not ledger.joined[replica]:
        return _JOINING
    lag = ledger.numbers[LAG]
    reached = time if time == FOREVER_UNITS else max(time, NEVER_UNITS + lag) - lag
    return _LEADS if reached > ledger.numbers[FRONTIER] else _FOLLOWS


@part
def is_gone(rows: Any, node: Any, frontier: Any) -> Any:
    """Whether the output can hear of this node no more (only by element, within a step)."""
    if rows[node, FLAGS] & DONE:
        return True
    return rows[node, OUT] == ABSENT and rows[node, START] < frontier


@part
def too_late(elements: Any, ledger: Any, i: Any) -> Any:
    """Whether the final output knows the event of this element."""
    node, slowest = elements.node[i], ledger.numbers[SLOWEST]
    end = elements.settled_end[i]
    if node != NOBODY:
        end = ledger.rows[node, OUT]
        if end == ABSENT and ledger.rows[node, FLAGS] & TOLD:
            end = ledger.rows[node, START]
    if end != ABSENT and end >= slowest and slowest != FOREVER_UNITS:
        return _SETTLED
    return _LATE


@part
def judge_insert(elements: Any, ledger: Any, i: Any) -> Any:  # noqa: PLR0911
    """Note the replica's end; by element, bring the event to the output."""
    start, end, replica = elements.start[i], elements.end[i], elements.replica[i]
    if end <= start:
        return _BACKWARDS if end < start else _NO_CHANGE
    if start < ledger.frontier[replica]:
        return _BEHIND_STABLE
    node, rows = elements.node[i], ledger.rows
    if node == NOBODY or is_gone(rows, node, ledger.numbers[FRONTIER]):
        return too_late(elements, ledger, i)
    said = rows[node, ENDS + replica]
    if said > start:
        return _SECOND_INSERT
    flags = rows[node, FLAGS]
    if said == ABSENT and flags & HALF_FROZEN and not flags & CONFLICT:
        ledger.missing[replica] -= 1
    rows[node, ENDS + replica] = end
    ledger.changed[node >> BLOCK_BITS] = ledger.numbers[MARK]
    if rows[node, OUT] != ABSENT:
        return _KNOWN
    bear(ledger, node, i)
    if ledger.numbers[BY_ELEMENT] == 0:
        return _KNOWN
    rows[node, OUT] = rows[node, SHOWN] = end
    rows[node, BORN] = ledger.numbers[NEXT_BORN]
    ledger.numbers[NEXT_BORN] += 1
    return _FIRST


@part
def bear(ledger: Any, node: Any, i: Any) -> None:
    """Put a node that is not on the output among the newborn; the first insert has credit."""
    count, k = ledger.numbers[NEWBORN], ledger.rows[node, BORN]
    if not (0 <= k < count and ledger.newborn[k] == node):
        k = count
        ledger.rows[node, BORN] = k
        ledger.newborn[k] = node
        ledger.credit[k] = NOBODY
        ledger.numbers[NEWBORN] = count + 1
    if ledger.credit[k] == NOBODY:
        ledger.credit[k] = i


@part
def judge_adjust(elements: Any, ledger: Any, i: Any) -> Any:
    """Note the replica's new end."""
    start, end, old_end = elements.start[i], elements.end[i], elements.old_end[i]
    replica = elements.replica[i]
    if end < start:
        return _BACKWARDS
    if end == old_end:
        return _NO_CHANGE
    if min(old_end, end) < ledger.frontier[replica]:
        return _BEHIND_STABLE
    node, rows = elements.node[i], ledger.rows
    if node == NOBODY or is_gone(rows, node, ledger.numbers[FRONTIER]):
        return too_late(elements, ledger, i)
    if old_end <= start or rows[node, ENDS + replica] != old_end:
        return _NO_SUCH_EVENT
    rows[node, ENDS + replica] = end
    ledger.changed[node >> BLOCK_BITS] = ledger.numbers[MARK]
    if end == start and rows[node, OUT] == ABSENT and not is_alive(rows, node):
        # Nobody has it any more: the next insert, if there is one, brings it anew.
        ledger.credit[rows[node, BORN]] = NOBODY
    return _NOTED


@part
def is_alive(rows: Any, node: Any) -> Any:
    """Whether some replica has this event."""
    for column in range(ENDS, rows.shape[1]):  # noqa: SIM110 - kernels have no generators
        if rows[node, column] > rows[node, START]:
            return True
    return False
