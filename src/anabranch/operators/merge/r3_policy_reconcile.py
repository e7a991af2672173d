"""What the compiled merge R3 with policies owes before its frontier moves.

As `MergeR3._reconcile`, which says what is right: every event that starts before the stable is
made to agree with the deciding replica, if that could not be done later.  Whatever the policy
holds back or shows, this comes first.  Only what is due is looked at (`r3_policy_due`).

Papers: LMerge IV-D, Algorithm R3, lines 15 to 29; V-B; errata L3, L4, L14, L15 and D5.
"""

from typing import Any, Final

from anabranch.batch.batch import FOREVER_UNITS
from anabranch.batch.kernel import kernel, part
from anabranch.operators.merge.contract import Reason
from anabranch.operators.merge.r3_nodes import ABSENT, CONFLICT, DONE, ENDS, FLAGS, OUT, TOLD
from anabranch.operators.merge.r3_policy_due import find_due, key_of, push, take_out
from anabranch.operators.merge.r3_policy_look import (
    count_free,
    count_silent,
    first_having,
    has,
)
from anabranch.operators.merge.r3_policy_said import (
    change,
    drop,
    may_remove,
    release_all,
    say,
    show,
)
from anabranch.operators.merge.r3_policy_table import (
    CONFLICTS,
    GAP,
    HEAD,
    NEXT,
    OUTPUT,
    PROMOTED,
    SERIAL,
    SHRINK_ONLY,
    SILENT,
    VISITS,
    touch,
)
from anabranch.operators.merge.slots import NOBODY, START

_SUPERSEDED: Final = Reason.SUPERSEDED.code
_MISSED: Final = Reason.MISSED.code


@kernel
def reconcile(table: Any, leader: Any, time: Any) -> None:
    """Say what is owed before the output's frontier moves to `time`."""
    doubts = table.control[leader, SILENT] > 0
    # One that was promoted cuts what it does not know, whoever denied it before.
    doubts = doubts or table.control[leader, PROMOTED] > table.numbers[OUTPUT]
    if not doubts and time != FOREVER_UNITS:
        count = find_due(table, time)
        for k in range(count):
            settle(table, table.due[k], leader, time)
        return
    node = table.numbers[HEAD]
    while node != NOBODY:
        # The event may leave, and its place in the row with it.
        behind = table.book[node, NEXT]
        if table.rows[node, START] < time:
            take_out(table, node)
            settle(table, node, leader, time)
        node = behind


@part
def settle(table: Any, node: Any, leader: Any, time: Any) -> None:
    """Make one event, which is not on the heap, agree; let it go if it is final then."""
    table.numbers[VISITS] += 1
    start, said = table.rows[node, START], table.rows[node, ENDS + leader]
    for replica in range(table.control.shape[0]):
        count_free(table, node, replica, -1)
        count_silent(table, node, replica, -1)
    if said == ABSENT and is_gap(table, node, leader, time):
        say(table, GAP, node, table.control[leader, SERIAL], 0)
    end = agreed_end(table, node, leader, time)
    if table.rows[node, OUT] == ABSENT and end > start:
        show(table, node, end, leader)
    else:
        change(table, node, end)
    if end < time or time == FOREVER_UNITS:
        told = said != ABSENT
        release_all(table, node, _SUPERSEDED if told else _MISSED)
        table.rows[node, FLAGS] |= DONE | (TOLD if told else 0)
        drop(table, node)
        return
    push(table, node, key_of(table, node, time))
    if not table.rows[node, FLAGS] & CONFLICT:
        for replica in range(table.control.shape[0]):
            if not has(table, node, replica):
                table.control[replica, SILENT] += 1


@part
def agreed_end(table: Any, node: Any, leader: Any, time: Any) -> Any:
    """The end on the output when its frontier is at `time`; the start: not there."""
    rows, frontier = table.rows, table.numbers[OUTPUT]
    start, said, shown = rows[node, START], rows[node, ENDS + leader], rows[node, OUT]
    if shown == ABSENT:
        return start if said == ABSENT else said
    if said > start:
        end = max(said, frontier)
        if end > said:
            note_conflict(table, node)
        if table.choice[SHRINK_ONLY] and shown < end and may_remove(table, node):
            return end
        return shown if min(end, shown) >= time else end
    promoted_from = table.control[leader, PROMOTED]
    is_unsure = max(start, frontier) < promoted_from
    if is_unsure and (said == ABSENT or not may_remove(table, node)):
        # It need not know what ends before its guarantee, and denies what ends later.
        return min(shown, promoted_from)
    if may_remove(table, node):
        return start
    note_conflict(table, node)
    return shown


@part
def is_gap(table: Any, node: Any, leader: Any, time: Any) -> Any:
    """Whether the leader should know this event, and the output cannot wait for it."""
    start, shown = table.rows[node, START], table.rows[node, OUT]
    frontier = table.numbers[OUTPUT]
    if max(start, frontier) < table.control[leader, PROMOTED]:
        return False
    if start < frontier:
        return shown != ABSENT and shown < time
    return shown != ABSENT or first_having(table, node) != NOBODY


@part
def note_conflict(table: Any, node: Any) -> None:
    """The decider denies what the output has promised; counted once."""
    if not table.rows[node, FLAGS] & CONFLICT:
        table.rows[node, FLAGS] |= CONFLICT
        table.numbers[CONFLICTS] += 1
        touch(table, node)
