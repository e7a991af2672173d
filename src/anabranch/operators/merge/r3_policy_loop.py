"""Merge R3 with a policy, compiled: element by element what `MergeR3` says, in one loop.

`run` takes the elements of a step in order, `regroup` what follows when replicas came or left.
Each function is that of the reference with the same name; both are raced in the tests.

An element costs a look at its replicas; what stables and changes of the view look at is said in
`r3_policy_due` and `r3_policy_look`, and counted as VISITS.

Papers: LMerge IV-D, Algorithm R3; V-A, V-B.
"""

from typing import Any, Final

from anabranch.batch.batch import FOREVER_UNITS, INSERT, NEVER_UNITS, STABLE
from anabranch.batch.kernel import kernel, part
from anabranch.operators.merge.contract import Reason
from anabranch.operators.merge.r3_nodes import (
    ABSENT,
    BORN,
    CONFLICT,
    DONE,
    ENDS,
    FLAGS,
    OUT,
    TOLD,
)
from anabranch.operators.merge.r3_policy_due import lower, push
from anabranch.operators.merge.r3_policy_look import (
    attached,
    best_of,
    count_free,
    count_silent,
    look,
)
from anabranch.operators.merge.r3_policy_membership import forget, promote
from anabranch.operators.merge.r3_policy_reconcile import reconcile
from anabranch.operators.merge.r3_policy_said import (
    first_held,
    hold,
    is_held,
    release,
    say_stable,
)
from anabranch.operators.merge.r3_policy_table import (
    ALL,
    ATTACHED,
    DETACH,
    EVENTS,
    FRONTIER,
    HIGHEST,
    LAG,
    LAST_SEQ,
    OUTPUT,
    PROMOTE,
    RAISE,
    RANK,
    SLOWEST,
    STOPPED,
    VIOLATIONS,
    WAITING,
    WAITS,
    WITHDRAWN,
    has_room,
    is_joined,
    is_known,
    lagging,
    link,
    touch,
)
from anabranch.operators.merge.slots import NOBODY, START

_FIRST: Final = Reason.FIRST.code
_LEADS: Final = Reason.LEADS.code
_KNOWN: Final = Reason.KNOWN.code
_NOTED: Final = Reason.NOTED.code
_NO_CHANGE: Final = Reason.NO_CHANGE.code
_REDELIVERY: Final = Reason.REDELIVERY.code
_SETTLED: Final = Reason.SETTLED.code
_SUPERSEDED: Final = Reason.SUPERSEDED.code
_FOLLOWS: Final = Reason.FOLLOWS.code
_JOINING: Final = Reason.JOINING.code
_CORRECTED: Final = Reason.CORRECTED.code
_LATE: Final = Reason.LATE.code
_BACKWARDS: Final = Reason.BACKWARDS.code
_BEHIND_STABLE: Final = Reason.BEHIND_STABLE.code
_NO_SUCH_EVENT: Final = Reason.NO_SUCH_EVENT.code
_SECOND_INSERT: Final = Reason.SECOND_INSERT.code
_HELD: Final = Reason.HELD.code
_EXPELLED: Final = Reason.EXPELLED.code


@kernel
def run(elements: Any, table: Any, begin: Any) -> Any:
    """Take the elements from `begin` on; returns where the loop stopped.

    That is behind the last element, or before one for which there is no room, or at one that
    breaks a promise, if that is to stop the merge.
    """
    for i in range(begin, elements.kind.size):
        if not has_room(table):
            return i
        replica = elements.replica[i]
        if not attached(table, replica):
            table.reasons[i] = _EXPELLED
            continue
        if elements.seq.size > 0:
            if elements.seq[i] <= table.control[replica, LAST_SEQ]:
                table.reasons[i] = _REDELIVERY
                continue
            table.control[replica, LAST_SEQ] = elements.seq[i]
        if elements.kind[i] == STABLE:
            reason = take_stable(table, elements.start[i], replica)
        elif elements.kind[i] == INSERT:
            reason = take_insert(elements, table, i)
        else:
            reason = take_adjust(elements, table, i)
        table.reasons[i] = reason
        if reason in (_BACKWARDS, _BEHIND_STABLE, _NO_SUCH_EVENT, _SECOND_INSERT):
            if table.choice[VIOLATIONS] == RAISE:
                table.numbers[STOPPED] = 1
                return i
            if table.choice[VIOLATIONS] == DETACH:
                table.control[replica, ATTACHED] = 0
                forget(table, replica)
                regroup(table)
    return elements.kind.size


@kernel
def take_insert(elements: Any, table: Any, i: Any) -> Any:
    """Note the replica's end, and let the policy see it."""
    start, end, replica = elements.start[i], elements.end[i], elements.replica[i]
    if end <= start:
        return _BACKWARDS if end < start else _NO_CHANGE
    if start < table.control[replica, FRONTIER]:
        return _BEHIND_STABLE
    node, rows = elements.node[i], table.rows
    if is_known(table, node) and rows[node, ENDS + replica] > start:
        return _SECOND_INSERT
    table.control[replica, HIGHEST] = max(table.control[replica, HIGHEST], start)
    if not is_known(table, node):
        if start < table.numbers[OUTPUT]:
            look(table, NOBODY, NOBODY, 0, 0)
            return too_late(elements, table, i)
        meet(table, node)
    note_end(table, node, replica, end)
    if rows[node, OUT] != ABSENT:
        look(table, node, replica, 0, 0)
        return _KNOWN
    hold(table, node, replica, end, i)
    look(table, node, replica, 0, 0)
    return _HELD if is_held(table, node, replica) else table.reasons[i]


@part
def note_end(table: Any, node: Any, replica: Any, end: Any) -> None:
    """The replica says this end of an event that the merge knows."""
    count_free(table, node, replica, -1)
    count_silent(table, node, replica, -1)
    table.rows[node, ENDS + replica] = end
    count_free(table, node, replica, 1)
    count_silent(table, node, replica, 1)
    if end > table.rows[node, START]:
        lower(table, node, end)
    touch(table, node)


@part
def meet(table: Any, node: Any) -> None:
    """The merge knows this event from now on."""
    table.rows[node, BORN] = table.numbers[RANK]
    table.rows[node, FLAGS] &= ~(WITHDRAWN | CONFLICT)
    table.rows[node, FLAGS] |= WAITS
    table.numbers[RANK] += 1
    table.numbers[EVENTS] += 1
    link(table, ALL, node)
    link(table, WAITING, node)
    push(table, node, table.rows[node, START])


@kernel
def take_adjust(elements: Any, table: Any, i: Any) -> Any:  # noqa: PLR0911
    """Note the replica's new end, and let the policy see it."""
    start, end, old_end = elements.start[i], elements.end[i], elements.old_end[i]
    replica, node, rows = elements.replica[i], elements.node[i], table.rows
    if end < start:
        return _BACKWARDS
    if end == old_end:
        return _NO_CHANGE
    if min(old_end, end) < table.control[replica, FRONTIER]:
        return _BEHIND_STABLE
    known = is_known(table, node)
    if not known and start < table.numbers[OUTPUT]:
        return too_late(elements, table, i)
    if not known or old_end <= start or rows[node, ENDS + replica] != old_end:
        return _NO_SUCH_EVENT
    note_end(table, node, replica, end)
    if end == start:
        release(table, node, replica, _SUPERSEDED)
    before, held = rows[node, OUT], first_held(table, node) != NOBODY
    look(table, node, replica, old_end, end)
    if before != ABSENT:
        return _NOTED if rows[node, OUT] == before else _CORRECTED
    if end == start:
        return _SUPERSEDED
    return _NOTED if rows[node, OUT] == ABSENT or held else _FIRST


@part
def too_late(elements: Any, table: Any, i: Any) -> Any:
    """Whether the final output knows the event of this element."""
    node, slowest, end = elements.node[i], table.numbers[SLOWEST], elements.settled_end[i]
    if node != NOBODY and table.rows[node, FLAGS] & DONE:
        end = table.rows[node, OUT]
        if end == ABSENT and table.rows[node, FLAGS] & TOLD:
            end = table.rows[node, START]
    if end != NEVER_UNITS and end >= slowest and slowest != FOREVER_UNITS:
        return _SETTLED
    return _LATE


@kernel
def take_stable(table: Any, time: Any, replica: Any) -> Any:
    """Move the replica's frontier, and the output's as far as it may."""
    if time <= table.control[replica, FRONTIER]:
        return _FOLLOWS
    table.control[replica, FRONTIER] = time
    joined = is_joined(table, replica)
    moved = advance(table)
    look(table, NOBODY, NOBODY, 0, 0)
    if moved:
        return _LEADS
    return _FOLLOWS if joined else _JOINING


@kernel
def advance(table: Any) -> Any:
    """Move the output's frontier as far as the joined replicas allow; whether it moved."""
    before = table.numbers[OUTPUT]
    # One stable may let a joining replica join, whose pending stable then counts as well.
    while True:
        leader = best_of(table, FRONTIER, NOBODY)
        if leader == NOBODY:
            break
        time = lagging(table.control[leader, FRONTIER], table.choice[LAG])
        if time <= table.numbers[OUTPUT]:
            break
        reconcile(table, leader, time)
        say_stable(table, time)
    slowest = FOREVER_UNITS
    for replica in range(table.control.shape[0]):
        if table.control[replica, ATTACHED]:
            slowest = min(slowest, table.control[replica, FRONTIER])
    table.numbers[SLOWEST] = slowest
    return table.numbers[OUTPUT] > before


@kernel
def regroup(table: Any) -> None:
    """After replicas came or left: who leads now, and what follows from that."""
    if table.choice[PROMOTE]:
        promote(table)
    advance(table)
    look(table, NOBODY, NOBODY, 0, 0)
