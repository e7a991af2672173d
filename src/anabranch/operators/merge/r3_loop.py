"""The elements of a step, one after the other, against their own replica's promises.

Each element gets one reason code and, if it is believed, changes its replica's entry for its
event, or its replica's frontier.  Nothing here looks at what another replica says, and nothing
changes the output: that is `r3_reconcile`'s.  An element that breaks a promise changes nothing.

An entry is the end that a replica gives an event: `ABSENT` if it never spoke of it, the start
itself if it removed it (a tombstone), anything greater if the event is alive in the replica.

Papers: LMerge IV-D, Algorithm R3, lines 3 to 14.
"""

from typing import Final, NamedTuple

import numpy as np
from numba import njit

from anabranch.batch.batch import INSERT, NEVER_UNITS, STABLE, Codes, Ints
from anabranch.operators.merge.contract import Reason

ABSENT: Final = int(NEVER_UNITS)
"""Not on the output; never mentioned by this replica."""

NOBODY: Final = -1
"""No node (behind the output's frontier), or no element that gets the credit."""

_KNOWN: Final = Reason.KNOWN.code
_NOTED: Final = Reason.NOTED.code
_NO_CHANGE: Final = Reason.NO_CHANGE.code
_REDELIVERY: Final = Reason.REDELIVERY.code
_FOLLOWS: Final = Reason.FOLLOWS.code
_BACKWARDS: Final = Reason.BACKWARDS.code
_BEHIND_STABLE: Final = Reason.BEHIND_STABLE.code
_NO_SUCH_EVENT: Final = Reason.NO_SUCH_EVENT.code
_SECOND_INSERT: Final = Reason.SECOND_INSERT.code


class Elements(NamedTuple):
    """All elements of a step as columns; `seq` is empty if the streams have none.

    `node` is the number of the element's event, or NOBODY for a stable and for an event that
    the output will never hear of; `fate` is the reason code in the latter case.
    """

    kind: Codes
    start: Ints
    end: Ints
    old_end: Ints
    seq: Ints
    replica: Ints
    node: Ints
    fate: Codes


class Ledger(NamedTuple):
    """What the elements change: entries per event and replica, and control per replica.

    `credit` is, per event that is not on the output, the element that brings it there;
    `last_stable` is, per replica, the element of this step that moved its frontier.
    """

    ends: Ints
    output_end: Ints
    credit: Ints
    frontier: Ints
    last_seq: Ints
    last_stable: Ints


def judge(elements: Elements, ledger: Ledger) -> Codes:
    """The reason code of each element; the ledger is changed in place."""
    reasons = np.empty(len(elements.kind), np.int8)
    _judge_all(elements, ledger, reasons)
    return reasons


@njit(cache=True)
def _judge_all(elements, ledger, reasons):  # type: ignore[no-untyped-def]
    has_seq = len(elements.seq) > 0
    for i in range(len(elements.kind)):
        replica = elements.replica[i]
        if has_seq:
            if elements.seq[i] <= ledger.last_seq[replica]:
                reasons[i] = _REDELIVERY
                continue
            ledger.last_seq[replica] = elements.seq[i]
        if elements.kind[i] == STABLE:
            reasons[i] = _FOLLOWS
            if elements.start[i] > ledger.frontier[replica]:
                ledger.frontier[replica] = elements.start[i]
                ledger.last_stable[replica] = i
        elif elements.kind[i] == INSERT:
            reasons[i] = _judge_insert(elements, ledger, i)
        else:
            reasons[i] = _judge_adjust(elements, ledger, i)


@njit(cache=True)
def _judge_insert(elements, ledger, i):  # type: ignore[no-untyped-def]
    start, end, replica = elements.start[i], elements.end[i], elements.replica[i]
    if end <= start:
        return _BACKWARDS if end < start else _NO_CHANGE
    if start < ledger.frontier[replica]:
        return _BEHIND_STABLE
    node = elements.node[i]
    if node == NOBODY:
        return elements.fate[i]
    if ledger.ends[node, replica] > start:
        return _SECOND_INSERT
    ledger.ends[node, replica] = end
    if ledger.output_end[node] == ABSENT and ledger.credit[node] == NOBODY:
        ledger.credit[node] = i
    return _KNOWN


@njit(cache=True)
def _judge_adjust(elements, ledger, i):  # type: ignore[no-untyped-def]
    start, end, old_end = elements.start[i], elements.end[i], elements.old_end[i]
    replica = elements.replica[i]
    if end < start:
        return _BACKWARDS
    if end == old_end:
        return _NO_CHANGE
    if min(old_end, end) < ledger.frontier[replica]:
        return _BEHIND_STABLE
    node = elements.node[i]
    if node == NOBODY:
        return elements.fate[i]
    if old_end <= start or ledger.ends[node, replica] != old_end:
        return _NO_SUCH_EVENT
    ledger.ends[node, replica] = end
    if end == start and not _is_alive(ledger.ends[node], start):
        ledger.credit[node] = NOBODY
    return _NOTED


@njit(cache=True)
def _is_alive(entries, start):  # type: ignore[no-untyped-def]
    for end in entries:  # noqa: SIM110 - a loop that returns compiles to a scan, any() does not
        if end > start:
            return True
    return False
