"""What the output owes before its frontier moves: to agree with the replica that moves it.

`publish` puts new events on the output, `reconcile` corrects events on behalf of one deciding
replica.  When a decider goes from `frontier` to `time`, an event that starts before `time`

* is alive until `end` in the decider: it ends at max(end, frontier) on the output, if that or
  its end on the output is before `time` (else there is no hurry);
* is removed or unknown there, and starts before `frontier`: stays, for it was promised (L4);
* is removed or unknown there, and does not: leaves the output.

Events whose end on the output is then before `time` are frozen and leave the state; under
stable(FOREVER) all do (L15).  Only the events that `Agenda` names are visited.

Papers: LMerge IV-D, Algorithm R3, lines 15 to 29, with errata L3, L4 and L15.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from anabranch.batch.batch import FOREVER_UNITS, Codes, Ints
from anabranch.batch.kernel import frozen, frozen_rows, kernel, part
from anabranch.operators.merge.contract import Reason
from anabranch.operators.merge.r3_agenda import Agenda
from anabranch.operators.merge.r3_loop import NEWBORN, Elements, Ledger
from anabranch.operators.merge.r3_nodes import (
    ABSENT,
    BLOCK_BITS,
    BORN,
    CONFLICT,
    DONE,
    ENDS,
    FLAGS,
    HALF_FROZEN,
    LIVE,
    OUT,
    SHOWN,
    TOLD,
    Nodes,
)
from anabranch.operators.merge.slots import LOW, NOBODY, START

_FIRST: Final = Reason.FIRST.code
_KNOWN: Final = Reason.KNOWN.code
_NOTED: Final = Reason.NOTED.code

# What a visit finds, by position in `counts`.
_CHANGED: Final = 0
_DONE: Final = 1
_STAYS: Final = 2
_PASSES: Final = 3
_GAPS: Final = 4
_PENDS: Final = 5
_CONFLICTS: Final = 6
_VISITS: Final = 7


@dataclass(frozen=True, eq=False)
class Decision:
    """On behalf of one replica: whose end changed, who leaves, how many new conflicts.

    `gaps` are events that it never mentioned, and that became half frozen or were frozen.
    """

    changed: Ints
    done: Ints
    gaps: Ints
    conflicts: int


def publish(nodes: Nodes, agenda: Agenda, ledger: Ledger, replica: Ints, first: int) -> Ints:
    """Put each newborn that has a credited insert on the output, with that replica's end.

    If that replica has taken it back meanwhile, the first replica that has it gives the end.
    The newborn are ranked from `first` on.  Returns those that came to the output.
    """
    count = int(ledger.numbers[NEWBORN])
    newborn, credit = ledger.newborn[:count], ledger.credit[:count]
    pends = np.empty((3, count * len(agenda.pending)), np.int64)
    brought = np.empty(count, np.int64)
    credited = (frozen(newborn), frozen(credit), frozen(replica))
    came, pended = publish_all(nodes.rows, credited, first, brought, pends)
    agenda.pend(*pends[:, :pended])
    return brought[:came]


def pend(
    nodes: Nodes, agenda: Agenda, elements: Elements, reasons: Codes, begin: int, end: int
) -> None:
    """Note which of these elements gave their replica an earlier end than the output has."""
    firsts = np.count_nonzero(reasons[begin:end] == _FIRST)
    pends = np.empty((3, end - begin + firsts * len(agenda.pending)), np.int64)
    bounds = (begin, end)
    pended = pend_all(nodes.rows, elements, frozen(reasons), bounds, pends)
    agenda.pend(*pends[:, :pended])


def reconcile(
    nodes: Nodes,
    agenda: Agenda,
    newborn: Ints,
    decider: int,
    *,
    frontier: int,
    time: int,
    mark: int,
) -> Decision:
    """Make the output agree with the decider wherever it could not be done after `time`.

    `newborn` are events that are on no list yet.
    """
    if time == FOREVER_UNITS:
        queued, noted = nodes.living(), newborn[:0]
    else:
        # A column first, then its rows: NumPy takes a third of the time of both at once.
        start = nodes.rows[:, START][newborn]
        enqueue(nodes, agenda, newborn[start >= time])
        queued = np.concatenate([newborn[start < time], agenda.due.pop_before(time)])
        pending = agenda.pending[decider].pop_before(time)
        noted = np.concatenate([pending, agenda.unheard(decider)])
    ids = frozen_rows(np.concatenate([queued, noted]))
    found = np.empty((5, len(ids)), np.int64)
    pends = np.empty((3, len(ids) * len(agenda.pending)), np.int64)
    counts = np.zeros(8, np.int64)
    scope = (decider, frontier, time, len(queued), mark)
    visit_all(ids, scope, nodes.rows, nodes.changed, agenda.missing, found, pends, counts)
    changed, done, stays, passes, gaps = (
        row[:n] for row, n in zip(found, counts, strict=False)
    )
    agenda.due.push(nodes.rows[:, OUT][stays], stays)
    agenda.pass_by(passes)
    agenda.looked(decider)
    agenda.pend(*pends[:, : counts[_PENDS]])
    agenda.visits += int(counts[_VISITS])
    return Decision(changed, done, gaps, int(counts[_CONFLICTS]))


def enqueue(nodes: Nodes, agenda: Agenda, newborn: Ints) -> None:
    """Put events that start at or behind the frontier on the list of what is due."""
    agenda.due.push(nodes.rows[:, START][newborn], newborn)


@kernel
def publish_all(rows: Any, credited: Any, first: Any, brought: Any, pends: Any) -> Any:
    """Set OUT and the rank of each newborn that has credit.

    Returns how many these are, and how many entries are earlier than OUT.
    """
    newborn, credit, replica = credited
    came, pended = 0, 0
    for k in range(newborn.size):
        node = newborn[k]
        if credit[k] == NOBODY:
            continue
        start = rows[node, START]
        end = rows[node, ENDS + replica[credit[k]]]
        column = ENDS
        while end <= start:
            end = rows[node, column]
            column += 1
        rows[node, OUT], rows[node, BORN] = end, first + came
        brought[came] = node
        came += 1
        pended = pend_node(rows, node, ABSENT, end, pends, pended)
    return came, pended


@part
def pend_node(rows: Any, node: Any, least: Any, out: Any, pends: Any, pended: Any) -> Any:
    """Note the entries of a node from `least` on that are earlier than `out`."""
    for column in range(ENDS, rows.shape[1]):
        said = rows[node, column]
        if said != ABSENT and least <= said < out:
            pends[0, pended], pends[1, pended], pends[2, pended] = column - ENDS, said, node
            pended += 1
    return pended


@kernel
def pend_all(rows: Any, elements: Any, reasons: Any, bounds: Any, pends: Any) -> Any:
    """The entries that these elements made earlier than the output's end."""
    pended = 0
    for i in range(bounds[0], bounds[1]):
        reason, node = reasons[i], elements.node[i]
        if reason == _FIRST:
            # Another replica may have removed it before.
            pended = pend_node(rows, node, ABSENT, rows[node, OUT], pends, pended)
        elif reason in (_KNOWN, _NOTED) and rows[node, SHOWN] != ABSENT:
            said = rows[node, ENDS + elements.replica[i]]
            if said < rows[node, OUT]:
                pends[0, pended], pends[1, pended] = elements.replica[i], said
                pends[2, pended] = node
                pended += 1
    return pended


@kernel
def visit_all(
    ids: Any,
    scope: Any,
    rows: Any,
    changed: Any,
    missing: Any,
    found: Any,
    pends: Any,
    counts: Any,
) -> None:
    """Visit these nodes; the first `queued` of them came from the list of what is due."""
    decider, frontier, time, queued, mark = scope
    for k in range(ids.size):
        node = ids[k]
        counts[_VISITS] += 1
        flags, start, out = rows[node, FLAGS], rows[node, START], rows[node, OUT]
        if flags & (LIVE | DONE) != LIVE or start >= time:
            continue
        said = rows[node, ENDS + decider]
        after = agreed(start, said, out, frontier, time)
        # By element, what only an adjust of nothing named is here too when the stream ends.
        promised = start < frontier and out != ABSENT
        if promised and said < frontier and not flags & CONFLICT:
            flags |= CONFLICT
            counts[_CONFLICTS] += 1
            count_missing(rows, node, missing, -1)
        if said == ABSENT and out != ABSENT and (start >= frontier or out < time):
            put(found, counts, _GAPS, node)
        if after != out:
            put(found, counts, _CHANGED, node)
            if after > out:
                counts[_PENDS] = pend_node(rows, node, out, after, pends, counts[_PENDS])
        if after < time or time == FOREVER_UNITS:
            if flags & HALF_FROZEN and not flags & CONFLICT:
                count_missing(rows, node, missing, -1)
            flags |= DONE | (TOLD if after == ABSENT and said == start else 0)
            put(found, counts, _DONE, node)
        else:
            if not flags & HALF_FROZEN:
                flags |= HALF_FROZEN
                put(found, counts, _PASSES, node)
                count_missing(rows, node, missing, 1)
            if k < queued:
                put(found, counts, _STAYS, node)
        if after != out or (flags ^ rows[node, FLAGS]) & CONFLICT:
            changed[node >> BLOCK_BITS] = mark
        rows[node, OUT], rows[node, FLAGS] = after, flags


@kernel
def list_final(rows: Any, done: Any, slowest: Any, names: Any, ends: Any) -> Any:
    """The names and last ends of what left, if the output knew it and a replica may name it."""
    count = 0
    for k in range(done.size):
        node = done[k]
        out, told = rows[node, OUT], rows[node, FLAGS] & TOLD != 0
        end = rows[node, START] if out == ABSENT else out
        if (out != ABSENT or told) and end >= slowest and slowest != FOREVER_UNITS:
            for column in range(LOW + 1):
                names[count, column] = rows[node, column]
            ends[count] = end
            count += 1
    return count


@kernel
def list_unspoken(rows: Any, created: Any, unspoken: Any) -> Any:
    """The new nodes of which nobody speaks: an adjust of nothing made them."""
    count = 0
    for k in range(created.size):
        node = created[k]
        is_mute = rows[node, SHOWN] == ABSENT and rows[node, FLAGS] & DONE == 0
        for column in range(ENDS, rows.shape[1]):
            is_mute = is_mute and rows[node, column] == ABSENT
        if is_mute:
            unspoken[count] = node
            count += 1
    return count


@part
def put(found: Any, counts: Any, what: Any, node: Any) -> None:
    """Add a node to one of the lists."""
    found[what, counts[what]] = node
    counts[what] += 1


@part
def agreed(start: Any, said: Any, out: Any, frontier: Any, time: Any) -> Any:
    """The end that an event has on the output when this decider has spoken."""
    if said > start:
        wanted = max(said, frontier)
        return wanted if wanted < time or out < time else out
    return out if start < frontier else np.int64(ABSENT)


@part
def count_missing(rows: Any, node: Any, missing: Any, more: Any) -> None:
    """Count this node, once more or less, for the replicas that never spoke of it."""
    for replica in range(missing.size):
        if rows[node, ENDS + replica] == ABSENT:
            missing[replica] += more
