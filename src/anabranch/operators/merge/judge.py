"""Validates the elements of a step against the promises of their own replica.

Each element gets one reason code and, if it is believed, changes its replica's cell for its
event, or its replica's frontier.  An element that breaks a promise changes nothing.

Nothing here looks at what another replica has, and nothing changes the output: `publish` and
`reconcile` do, after the last element.

A second insert of an identity that its replica has already is a violation under R3; under R4 it
turns the row into a bag (`bags`).  That is the only difference between the two.

Papers: LMerge IV-D and IV-E, Algorithms R3 and R4, lines 3 to 14.
"""

from typing import Final, NamedTuple

import numpy as np

from anabranch.batch.batch import FOREVER_UNITS, INSERT, STABLE, Codes, Ints
from anabranch.batch.index import NOBODY, START
from anabranch.batch.kernel import kernel, part
from anabranch.operators.merge import codes
from anabranch.operators.merge.bags import (
    CREDIT,
    CREDITED_BY,
    CREDITED_END,
    OUT_BLOCK,
    Bags,
    add_end,
    has_room,
    make_bag,
    remove_end,
    total,
    touch_bag,
)
from anabranch.operators.merge.layout import BAG, CONFLICT, ENDS, HALF_FROZEN, OUT, RANK
from anabranch.operators.state.blocks import BLOCK_BITS
from anabranch.operators.state.events import ABSENT, FLAGS


class Elements(NamedTuple):
    """All elements of a step as columns; `seq` is empty if the streams have none.

    `node` is the row of the element's event, or NOBODY for a stable and for an event that can
    no longer reach the output; `final_end` is, in the latter case, the end with which the
    output made it final, if it did.
    """

    kind: Codes
    start: Ints
    end: Ints
    old_end: Ints
    seq: Ints
    replica: Ints
    node: Ints
    final_end: Ints


class Ledger(NamedTuple):
    """What the elements change: rows, the replicas' control columns, and the lists below.

    `new[k]` is an event that is not on the output and got an insert in this step, `credit[k]`
    the element that brings it there; a row's RANK is k while it is in this list.
    `last_stable` is, per replica, the element of this step that moved its frontier; `missing`
    is the agenda's.  `touched` are the bags of which an element was believed.  `repeated` is,
    per replica, how many inserts were of an event that it has already.  `numbers` are the
    scalars of the loop, by the names below.
    """

    rows: Ints
    changed: Ints
    frontier: Ints
    last_seq: Ints
    last_stable: Ints
    missing: Ints
    new: Ints
    credit: Ints
    touched: Ints
    repeated: Ints
    numbers: Ints


NEW: Final = 0
"""How many events are new."""
TOUCHED_BAGS: Final = 1
"""How many bags are touched."""
FRONTIER: Final = 2
"""The output's."""
SLOWEST: Final = 3
"""What ends before this has been forgotten: the smallest frontier of a replica, or later."""
MARK: Final = 4
"""What changes in this step is marked with."""
KEYED: Final = 5
"""1 if identities are unique in each replica (R3), 0 if not (R4)."""
NUMBERS: Final = 6


@kernel
def judge(elements: Elements, ledger: Ledger, bags: Bags, begin: int, reasons: Codes) -> int:
    """Give each element from `begin` on its reason; returns where the loop stopped.

    That is behind the last element, or before one for which the bags may have no room.
    """
    keyed = ledger.numbers[KEYED] == 1
    for i in range(begin, elements.kind.size):
        # Only bags allocate; the caller makes room and resumes at this element.
        if not keyed and not has_room(bags, ledger.rows.shape[1]):
            return i
        replica = elements.replica[i]
        # A redelivery is no news of any kind: it must not even move a frontier.
        if elements.seq.size > 0:
            if elements.seq[i] <= ledger.last_seq[replica]:
                reasons[i] = codes.REDELIVERY
                continue
            ledger.last_seq[replica] = elements.seq[i]
        if elements.kind[i] == STABLE:
            # Which stable leads is known when the step ends; until then all follow.
            reasons[i] = codes.FOLLOWS
            if elements.start[i] > ledger.frontier[replica]:
                ledger.frontier[replica] = elements.start[i]
                ledger.last_stable[replica] = i
        elif elements.kind[i] == INSERT:
            reasons[i] = judge_insert(elements, ledger, bags, i, reasons)
        else:
            reasons[i] = judge_adjust(elements, ledger, bags, i)
    return elements.kind.size


@part
def too_late(elements: Elements, ledger: Ledger, i: int) -> int:
    """Whether the final output knows the event of this element, and a replica may name it."""
    end, slowest = elements.final_end[i], ledger.numbers[SLOWEST]
    if end != ABSENT and end >= slowest and slowest != FOREVER_UNITS:
        return codes.SETTLED
    return codes.LATE


@part
def judge_insert(  # noqa: PLR0911
    elements: Elements,
    ledger: Ledger,
    bags: Bags,
    i: int,
    reasons: Codes,
) -> int:
    """Note the replica's end."""
    start, end, replica = elements.start[i], elements.end[i], elements.replica[i]
    if end <= start:
        return codes.BACKWARDS if end < start else codes.NO_CHANGE
    # Its own promises first: what breaks one changes nothing, whatever is known of its event.
    if start < ledger.frontier[replica]:
        return codes.BEHIND_STABLE
    node, rows = elements.node[i], ledger.rows
    if node == NOBODY:
        return too_late(elements, ledger, i)
    # From here on the element is believed; it changes the cell of its own replica only.
    before, flags = rows[node, ENDS + replica], rows[node, FLAGS]
    if flags & BAG:
        return insert_in_bag(elements, ledger, bags, i)
    # The replica has this event already: a broken promise, or a second event.
    if before > start:
        if ledger.numbers[KEYED] == 1:
            return codes.SECOND_INSERT
        become_bag(elements, ledger, bags, node, reasons)
        return insert_in_bag(elements, ledger, bags, i)
    # It had never mentioned an event that the output promised: missed no more.
    if before == ABSENT and flags & HALF_FROZEN and not flags & CONFLICT:
        ledger.missing[replica] -= 1
    rows[node, ENDS + replica] = end
    ledger.changed[node >> BLOCK_BITS] = ledger.numbers[MARK]
    # The output changes at the end of the step, when all have spoken.
    if rows[node, OUT] == ABSENT:
        list_new(ledger, node, i)
    return codes.KNOWN


@part
def list_new(ledger: Ledger, node: int, i: int) -> None:
    """List an event that is not on the output as new; its first insert has the credit."""
    count, k = ledger.numbers[NEW], ledger.rows[node, RANK]
    # RANK is a leftover of another step unless the list confirms it.
    if not (0 <= k < count and ledger.new[k] == node):
        k = count
        ledger.rows[node, RANK] = k
        ledger.new[k] = node
        ledger.credit[k] = NOBODY
        ledger.numbers[NEW] = count + 1
    # The first insert that is not taken back brings the event.
    if ledger.credit[k] == NOBODY:
        ledger.credit[k] = i


@part
def become_bag(
    elements: Elements, ledger: Ledger, bags: Bags, node: int, reasons: Codes
) -> None:
    """Turn a row into a bag; who had the credit for bringing its one event keeps it."""
    rows, k = ledger.rows, ledger.rows[node, RANK]
    is_new = rows[node, OUT] == ABSENT
    make_bag(bags, rows, node)
    # A bag keeps its credit in its record, so what was listed moves there.
    if is_new:
        by, record = ledger.credit[k], rows[node, OUT]
        bags.records[record, CREDIT] = 1
        bags.records[record, CREDITED_BY] = elements.replica[by]
        bags.records[record, CREDITED_END] = elements.end[by]
        reasons[by] = codes.FIRST


@kernel
def insert_in_bag(elements: Elements, ledger: Ledger, bags: Bags, i: int) -> int:
    """One event more; it has credit if its replica now has more than the output will have."""
    node, replica, rows = elements.node[i], elements.replica[i], ledger.rows
    start, end, numbers = elements.start[i], elements.end[i], ledger.numbers
    touch(ledger, bags, node)
    flags, at = rows[node, FLAGS], rows[node, ENDS + replica]
    if at == ABSENT and flags & HALF_FROZEN and not flags & CONFLICT:
        ledger.missing[replica] -= 1
    # The block may have moved to a wider one.
    at = rows[node, ENDS + replica] = add_end(bags, at, end)
    if total(bags, at) > 1:
        ledger.repeated[replica] += 1
    # As many events belong on the output as the fullest replica has: only an insert beyond
    # what is there, or is credited already, can bring one.
    record, records = rows[node, OUT], bags.records
    shown = total(bags, records[record, OUT_BLOCK])
    if total(bags, at) <= shown + records[record, CREDIT]:
        return codes.KNOWN
    if start < numbers[FRONTIER]:
        return codes.LATE
    # The identity itself is new on the output and needs a rank.
    if shown == 0:
        list_new(ledger, node, i)
    if records[record, CREDIT] == 0:
        records[record, CREDITED_BY], records[record, CREDITED_END] = replica, end
    records[record, CREDIT] += 1
    return codes.FIRST


@part
def touch(ledger: Ledger, bags: Bags, node: int) -> None:
    """A bag has changed."""
    numbers = ledger.numbers
    ledger.changed[node >> BLOCK_BITS] = numbers[MARK]
    numbers[TOUCHED_BAGS] = touch_bag(
        bags, ledger.rows, node, numbers[MARK], ledger.touched, numbers[TOUCHED_BAGS]
    )


@part
def judge_adjust(elements: Elements, ledger: Ledger, bags: Bags, i: int) -> int:  # noqa: PLR0911
    """Note the replica's new end."""
    start, end, old_end = elements.start[i], elements.end[i], elements.old_end[i]
    replica = elements.replica[i]
    if end < start:
        return codes.BACKWARDS
    if end == old_end:
        return codes.NO_CHANGE
    # An adjust touches both its ends, so neither may be behind its own stable.
    if min(old_end, end) < ledger.frontier[replica]:
        return codes.BEHIND_STABLE
    node, rows = elements.node[i], ledger.rows
    if node == NOBODY:
        return too_late(elements, ledger, i)
    if rows[node, FLAGS] & BAG:
        return adjust_in_bag(elements, ledger, bags, i)
    # A replica may only adjust what it has, with the end that it gave before.
    if old_end <= start or rows[node, ENDS + replica] != old_end:
        return codes.NO_SUCH_EVENT
    rows[node, ENDS + replica] = end
    ledger.changed[node >> BLOCK_BITS] = ledger.numbers[MARK]
    if end == start and rows[node, OUT] == ABSENT and not is_alive(rows, node):
        # No replica has it any more: the next insert, if there is one, brings it.
        k = rows[node, RANK]
        if 0 <= k < ledger.numbers[NEW] and ledger.new[k] == node:
            ledger.credit[k] = NOBODY
    return codes.NOTED


@kernel
def adjust_in_bag(elements: Elements, ledger: Ledger, bags: Bags, i: int) -> int:
    """Another end for one event of the replica, or one event less."""
    node, rows = elements.node[i], ledger.rows
    column = ENDS + elements.replica[i]
    # One of its events has this end, no matter which: they are equal.
    if not remove_end(bags, rows[node, column], elements.old_end[i]):
        return codes.NO_SUCH_EVENT
    if elements.end[i] > elements.start[i]:
        rows[node, column] = add_end(bags, rows[node, column], elements.end[i])
    touch(ledger, bags, node)
    return codes.NOTED


@part
def is_alive(rows: Ints, node: int) -> bool:
    """Whether some replica has the one event of this row."""
    for column in range(ENDS, rows.shape[1]):  # noqa: SIM110 - kernels have no generators
        if rows[node, column] > rows[node, START]:
            return True
    return False


def numbers_of(frontier: int, slowest: int, mark: int, *, keyed: bool) -> Ints:
    """The scalars of the loop before the first element."""
    numbers = np.zeros(NUMBERS, np.int64)
    numbers[FRONTIER], numbers[SLOWEST] = frontier, slowest
    numbers[MARK], numbers[KEYED] = mark, keyed
    return numbers
