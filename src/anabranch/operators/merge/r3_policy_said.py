"""The output of the compiled merge R3 with policies: what it says, and what it lets go.

As `r3_output.Output`, which says what is right: nothing appears or vanishes behind the output's
frontier, no end moves from or to there.

Papers: LMerge IV-D, OutputInsert, OutputAdjust and OutputStable; errata D8 and L14.
"""

from typing import Any, Final

from anabranch.batch.batch import ADJUST, INSERT, STABLE
from anabranch.batch.kernel import part
from anabranch.operators.merge.contract import Reason
from anabranch.operators.merge.r3_nodes import ABSENT, BORN, FLAGS, OUT
from anabranch.operators.merge.r3_policy_due import lower, take_out
from anabranch.operators.merge.r3_policy_table import (
    ADJUSTS,
    ALL,
    ALWAYS,
    END,
    EVENTS,
    FRONTIER,
    GONE,
    HALF_FROZEN,
    HELD,
    HELD_END,
    HELD_NODE,
    HELD_NUMBER,
    HELD_REASON,
    HELD_SERIAL,
    INSERTS,
    KIND,
    LISTED,
    NODE,
    NUMBER,
    NUMBER_BASE,
    OLD_END,
    OUTPUT,
    RESOLVED,
    SAID,
    SERIAL,
    SHRINK_ONLY,
    WITHDRAWN,
    stop_waiting,
    touch,
    unlink,
)
from anabranch.operators.merge.slots import NOBODY, START

_FIRST: Final = Reason.FIRST.code
_KNOWN: Final = Reason.KNOWN.code


@part
def say(table: Any, kind: Any, node: Any, end: Any, old_end: Any) -> None:
    """Put an element behind what was said."""
    at = table.numbers[SAID]
    table.said[at, KIND], table.said[at, NODE] = kind, node
    table.said[at, END], table.said[at, OLD_END] = end, old_end
    table.numbers[SAID] = at + 1


@part
def say_stable(table: Any, time: Any) -> None:
    """Move the frontier."""
    table.numbers[OUTPUT] = time
    say(table, STABLE, NOBODY, time, 0)


@part
def hold(table: Any, node: Any, replica: Any, end: Any, element: Any) -> None:
    """Keep an insert back."""
    number = table.numbers[NUMBER]
    table.held_by[number - table.numbers[NUMBER_BASE]] = element
    table.book[node, HELD + 2 * replica] = number
    table.book[node, HELD + 2 * replica + 1] = end
    table.numbers[NUMBER] = number + 1
    touch(table, node)


@part
def is_held(table: Any, node: Any, replica: Any) -> Any:
    """Whether an insert of this replica is kept back."""
    return table.book[node, HELD + 2 * replica] != NOBODY


@part
def first_held(table: Any, node: Any) -> Any:
    """The replica whose insert is kept back longest; NOBODY if there is none."""
    found = NOBODY
    least = table.numbers[NUMBER]
    for replica in range(table.control.shape[0]):
        number = table.book[node, HELD + 2 * replica]
        if number != NOBODY and number < least:
            found, least = replica, number
    return found


@part
def release(table: Any, node: Any, replica: Any, reason: Any) -> None:
    """An insert of this replica, if it was held, is no longer."""
    number = table.book[node, HELD + 2 * replica]
    if number == NOBODY:
        return
    table.book[node, HELD + 2 * replica] = NOBODY
    touch(table, node)
    since = number - table.numbers[NUMBER_BASE]
    if since >= 0:
        table.reasons[table.held_by[since]] = reason
        return
    at = table.numbers[RESOLVED]
    table.resolved[at, HELD_NUMBER], table.resolved[at, HELD_NODE] = number, node
    table.resolved[at, HELD_SERIAL] = table.control[replica, SERIAL]
    table.resolved[at, HELD_END] = table.book[node, HELD + 2 * replica + 1]
    table.resolved[at, HELD_REASON] = reason
    table.numbers[RESOLVED] = at + 1


@part
def release_all(table: Any, node: Any, reason: Any) -> None:
    """No insert of this event is held any more."""
    for replica in range(table.control.shape[0]):
        release(table, node, replica, reason)


@part
def show(table: Any, node: Any, end: Any, credit: Any) -> None:
    """Bring an event to the output; one held insert is emitted, the others are known."""
    say(table, INSERT, node, end, 0)
    table.rows[node, OUT] = end
    table.rows[node, FLAGS] &= ~WITHDRAWN
    stop_waiting(table, node)
    touch(table, node)
    if credit == NOBODY or not is_held(table, node, credit):
        credit = first_held(table, node)
    if credit != NOBODY:
        release(table, node, credit, _FIRST)
        release_all(table, node, _KNOWN)


@part
def may_remove(table: Any, node: Any) -> Any:
    """Whether this event may leave the output."""
    free = table.rows[node, START] >= table.numbers[OUTPUT]
    return free and table.choice[INSERTS] != HALF_FROZEN


@part
def change(table: Any, node: Any, end: Any) -> None:
    """Give an event that is on the output this end; its start removes it."""
    shown, start = table.rows[node, OUT], table.rows[node, START]
    if shown in (ABSENT, end):
        return
    if table.choice[SHRINK_ONLY] and end > shown and may_remove(table, node):
        say(table, ADJUST, node, start, shown)
        say(table, INSERT, node, end, 0)
    else:
        say(table, ADJUST, node, end, shown)
    table.rows[node, OUT] = ABSENT if end == start else end
    if end > start:
        lower(table, node, end)
    touch(table, node)


@part
def follow(table: Any, node: Any, end: Any, source: Any, lengthens: Any) -> None:
    """Give an event the end that this replica says, if that is possible before reconcile."""
    shown, start = table.rows[node, OUT], table.rows[node, START]
    if shown in (ABSENT, end):
        return
    free = may_remove(table, node)
    if end == start:
        if free:
            change(table, node, end)
            if table.choice[ADJUSTS] == ALWAYS:
                table.rows[node, FLAGS] |= WITHDRAWN
        return
    # A shorter end that its replica can still take back would have to be lengthened again.
    lasting = table.control[source, FRONTIER] > start and (end < shown or lengthens)
    if end >= table.numbers[OUTPUT] and (free or lasting or not table.choice[SHRINK_ONLY]):
        change(table, node, end)


@part
def drop(table: Any, node: Any) -> None:
    """The merge knows this event no more; its row goes when the step ends."""
    unlink(table, ALL, node)
    stop_waiting(table, node)
    take_out(table, node)
    table.numbers[EVENTS] -= 1
    table.rows[node, BORN] = ABSENT
    touch(table, node)
    if not table.rows[node, FLAGS] & LISTED:
        table.rows[node, FLAGS] |= LISTED
        table.gone[table.numbers[GONE]] = node
        table.numbers[GONE] += 1
