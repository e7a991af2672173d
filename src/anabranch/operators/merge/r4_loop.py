"""The elements of a step, one after the other, against their own replica's promises.

Each element gets one reason code and, if it is believed, changes its replica's bag for its
identity, or its replica's frontier.  An insert that gives its replica more events than the
output has is FIRST: with `each` it goes to the output at once, otherwise it is credited, and
`publish` decides when all elements have been read.  With `each` the loop stops at a stable that
moves the output's frontier; it also stops when there is no room for another block of cells.
An element that breaks a promise changes nothing.

Papers: LMerge IV-E, Algorithm R4, lines 3 to 15, with erratum L10.
"""

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from anabranch.batch.batch import FOREVER_UNITS, INSERT, NEVER_UNITS, STABLE, Codes, Ints
from anabranch.batch.kernel import kernel, part
from anabranch.operators.merge.contract import Reason
from anabranch.operators.merge.r4_lists import (
    ABSENT,
    OUTPUT,
    Lists,
    add_end,
    has_room,
    remove_end,
    total,
)
from anabranch.operators.merge.r4_nodes import BORN, CREDIT, DEAD, DUE, NOT_BORN, STATUS

FRONTIER: Final = 0
SLOWEST: Final = 1
NEXT_BORN: Final = 2
LOGGED: Final = 3
PUSHED: Final = 4
WAITING: Final = 5
CREDITED: Final = 6
STOPPED: Final = 7
LAG: Final = 8
"""What is counted in `control`, and how far the output's frontier stays behind."""

_FIRST: Final = Reason.FIRST.code
_KNOWN: Final = Reason.KNOWN.code
_NOTED: Final = Reason.NOTED.code
_NO_CHANGE: Final = Reason.NO_CHANGE.code
_REDELIVERY: Final = Reason.REDELIVERY.code
_SETTLED: Final = Reason.SETTLED.code
_FOLLOWS: Final = Reason.FOLLOWS.code
_JOINING: Final = Reason.JOINING.code
_LATE: Final = Reason.LATE.code
_BACKWARDS: Final = Reason.BACKWARDS.code
_BEHIND_STABLE: Final = Reason.BEHIND_STABLE.code
_NO_SUCH_EVENT: Final = Reason.NO_SUCH_EVENT.code


class Elements(NamedTuple):
    """All elements of a step as columns; `seq` is empty if the streams have none.

    `node` is NOBODY for a stable and for an identity that the output will not hear of;
    `settled` is the end by which the final output knows it in that case, else ABSENT.
    """

    kind: Codes
    start: Ints
    end: Ints
    old_end: Ints
    seq: Ints
    column: Ints
    node: Ints
    settled: Ints


class Promises(NamedTuple):
    """What is known of each replica; `last_stable` is its last stable of this step, or -1."""

    guarantee: Ints
    frontier: Ints
    last_seq: Ints
    last_stable: Ints


class Work(NamedTuple):
    """What kernels change: the nodes, and what they have to tell, counted in `control`.

    `log` has a row (kind, node, old_end, end) for each change of the output, `pushed` the nodes
    with a new DUE, `waiting` rows (node, number, column), `credited` rows (node, column, end):
    the first insert of a node that brings an event to the output.
    """

    facts: Ints
    lists: Lists
    waits: NDArray[np.bool_]
    control: Ints
    log: Ints
    pushed: Ints
    waiting: Ints
    credited: Ints


@kernel
def judge_some(
    elements: Any, promises: Any, work: Any, reasons: Any, first: Any, each: Any
) -> Any:
    """Read the elements from `first` on; returns the one where it had to stop, or how many."""
    has_seq = elements.seq.size > 0
    for i in range(first, elements.kind.size):
        replica = elements.column[i] - 1
        if not has_room(work.lists, 1):
            return i
        if has_seq:
            if elements.seq[i] <= promises.last_seq[replica]:
                reasons[i] = _REDELIVERY
                continue
            promises.last_seq[replica] = elements.seq[i]
        if elements.kind[i] == STABLE:
            if elements.start[i] <= promises.frontier[replica]:
                reasons[i] = _FOLLOWS
                continue
            reasons[i] = _take_stable(promises, work.control, replica, elements.start[i])
            promises.last_stable[replica] = i
            reached = elements.start[i]
            if reached != FOREVER_UNITS:
                reached = max(reached, NEVER_UNITS + work.control[LAG]) - work.control[LAG]
            leads = reached > work.control[FRONTIER] and reasons[i] == _FOLLOWS
            if each and leads:
                work.control[STOPPED] = 1
                return i
        elif elements.kind[i] == INSERT:
            reasons[i] = _judge_insert(elements, promises.frontier[replica], work, i, each)
        else:
            reasons[i] = _judge_adjust(elements, promises.frontier[replica], work, i)
    return elements.kind.size


@part
def _take_stable(promises: Any, control: Any, replica: Any, time: Any) -> Any:
    was_slowest = promises.frontier[replica] == control[SLOWEST]
    promises.frontier[replica] = time
    if was_slowest:
        slowest = np.int64(FOREVER_UNITS)
        for other in promises.frontier:
            slowest = min(slowest, other)
        control[SLOWEST] = slowest
    return _FOLLOWS if promises.guarantee[replica] <= control[FRONTIER] else _JOINING


@part
def _judge_insert(elements: Any, promised: Any, work: Any, i: Any, each: Any) -> Any:
    start, end = elements.start[i], elements.end[i]
    if end <= start:
        return _BACKWARDS if end < start else _NO_CHANGE
    if start < promised:
        return _BEHIND_STABLE
    node, column, facts = elements.node[i], elements.column[i], work.facts
    if not _is_there(facts, node):
        if start < work.control[FRONTIER]:
            return _too_late(elements, work, i)
        facts[node, BORN] = work.control[NEXT_BORN]
        work.control[NEXT_BORN] += 1
        push(work, node, start)
    add_end(work.lists, node, column, start, end)
    if start < work.control[FRONTIER]:
        _watch(work, node, column, end)
    shown = total(work.lists, node, OUTPUT, start) + facts[node, CREDIT]
    if total(work.lists, node, column, start) <= shown:
        return _KNOWN
    if start < work.control[FRONTIER]:
        return _LATE
    if each:
        add_end(work.lists, node, OUTPUT, start, end)
        put(work, INSERT, node, 0, end)
    else:
        if facts[node, CREDIT] == 0:
            at = work.control[CREDITED]
            work.credited[at, 0], work.credited[at, 1] = node, column
            work.credited[at, 2] = end
            work.control[CREDITED] += 1
        facts[node, CREDIT] += 1
    return _FIRST


@part
def _judge_adjust(elements: Any, promised: Any, work: Any, i: Any) -> Any:
    start, end, old_end = elements.start[i], elements.end[i], elements.old_end[i]
    if end < start:
        return _BACKWARDS
    if end == old_end:
        return _NO_CHANGE
    if min(old_end, end) < promised:
        return _BEHIND_STABLE
    node, column, is_there = elements.node[i], elements.column[i], False
    if _is_there(work.facts, node):
        is_there = remove_end(work.lists, node, column, start, old_end)
    elif start < work.control[FRONTIER]:
        return _too_late(elements, work, i)
    if not is_there:
        return _NO_SUCH_EVENT
    if end > start:
        add_end(work.lists, node, column, start, end)
        if start < work.control[FRONTIER]:
            _watch(work, node, column, end)
    return _NOTED


@part
def _is_there(facts: Any, node: Any) -> Any:
    """Whether an insert has made this node, and no stable has ended it."""
    return node >= 0 and facts[node, BORN] != NOT_BORN and facts[node, STATUS] & DEAD == 0


@part
def _too_late(elements: Any, work: Any, i: Any) -> Any:
    """The output is final here; whether it knows this identity, and anybody may mention it."""
    node, end = elements.node[i], elements.settled[i]
    if node >= 0:
        end = work.facts[node, DUE] if work.facts[node, STATUS] & DEAD != 0 else ABSENT
    slowest = work.control[SLOWEST]
    may_mention = end >= slowest and slowest != FOREVER_UNITS
    return _SETTLED if end != ABSENT and may_mention else _LATE


@part
def _watch(work: Any, node: Any, column: Any, end: Any) -> None:
    """A replica has a new end for a half-frozen node: see that it is looked at in time."""
    if end < work.control[FRONTIER]:
        wait(work, node, column)
    elif end < work.facts[node, DUE]:
        push(work, node, end)


@part
def push(work: Any, node: Any, time: Any) -> None:
    """A node is due at another time."""
    work.facts[node, DUE] = time
    at = work.control[PUSHED]
    work.pushed[at, 0], work.pushed[at, 1] = time, node
    work.control[PUSHED] += 1


@part
def wait(work: Any, node: Any, column: Any) -> None:
    """A column wants an end that is behind the output's frontier."""
    if not work.waits[node, column]:
        work.waits[node, column] = True
        at = work.control[WAITING]
        work.waiting[at, 0], work.waiting[at, 1] = node, work.facts[node, BORN]
        work.waiting[at, 2] = column
        work.control[WAITING] += 1


@part
def put(work: Any, kind: Any, node: Any, old_end: Any, end: Any) -> None:
    """Note a change of the output; there is room."""
    at = work.control[LOGGED]
    work.log[at, 0], work.log[at, 1] = kind, node
    work.log[at, 2], work.log[at, 3] = old_end, end
    work.control[LOGGED] += 1
