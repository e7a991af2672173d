"""Inserts that a policy holds back, until the step in which their fate is known.

Of each event and replica at most one insert is held: its number in the order of arrival and the
end that it had.  It is `pending` while it is held; when a step ends it is

    emitted     if its event comes to the output and it is the one insert that brings it
    absorbed    if another one does, or its replica takes it back
    late        if the deciding replica passes its event by, or its own replica leaves

An insert of this step gets its reason directly, one of an earlier step is `resolved`.

The reference is `reference.r4.MergeR4`, `_apply` and `_release`.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from anabranch.batch.batch import Codes, Ints
from anabranch.batch.events import inserts
from anabranch.batch.index import NOBODY, START
from anabranch.batch.kernel import kernel, part
from anabranch.batch.schema import ElementSchema
from anabranch.operators.contract import Resolved
from anabranch.operators.merge import codes
from anabranch.operators.merge.bags import Nodes
from anabranch.operators.merge.govern import BRINGER_BITS
from anabranch.operators.merge.judge import Elements
from anabranch.operators.merge.layout import CREDITED, DONE, OUT, RANK, REMOVED, SHOWN
from anabranch.operators.state.events import ABSENT, FLAGS, LIVE, ROW

NUMBER: Final = 0
END: Final = 1
PER_REPLICA: Final = 2
"""The columns of `held`, for each replica."""

_REPLICA: Final = 0
_NUMBER: Final = 1
_END: Final = 2
_NODE: Final = 3
_REASON: Final = 4
_RELEASED: Final = 5


class Holding(NamedTuple):
    """The held inserts by row and replica, and what becomes of them in one step.

    `base` is the number of the step's first element.  `released` has the inserts of earlier
    steps that are held no longer, `taken` how many these are.
    """

    held: Ints
    base: int
    reasons: Codes
    released: Ints
    taken: Ints


def holding(held: Ints, base: int, reasons: Codes, room: int) -> Holding:
    """The beginning of a step, with room for so many inserts that are held no longer."""
    released = np.empty((room, _RELEASED), np.int64)
    return Holding(held, base, reasons, released, np.zeros(1, np.int64))


@part
def release(holding: Holding, node: int, replica: int, reason: int) -> None:
    """An insert of this replica, if it was held, is held no longer."""
    at = PER_REPLICA * replica
    number = holding.held[node, at + NUMBER]
    if number == NOBODY:
        return
    holding.held[node, at + NUMBER] = NOBODY
    if number >= holding.base:
        holding.reasons[number - holding.base] = reason
        return
    row, k = holding.released, holding.taken[0]
    row[k, _REPLICA], row[k, _NUMBER] = replica, number
    row[k, _END], row[k, _NODE] = holding.held[node, at + END], node
    row[k, _REASON] = reason
    holding.taken[0] = k + 1


@kernel
def hold_all(elements: Elements, holding: Holding) -> None:
    """Hold each insert that was believed, until its replica takes it back."""
    for i in range(holding.reasons.size):
        node, replica = elements.node[i], elements.replica[i]
        if holding.reasons[i] == codes.KNOWN:
            at = PER_REPLICA * replica
            holding.held[node, at + NUMBER] = holding.base + i
            holding.held[node, at + END] = elements.end[i]
        elif holding.reasons[i] == codes.NOTED and elements.end[i] == elements.start[i]:
            release(holding, node, replica, codes.SUPERSEDED)


@kernel
def abandon(rows: Ints, used: int, replica: int, holding: Holding) -> None:
    """A replica leaves, and what is held of it is not decided any more."""
    for node in range(used):
        if rows[node, FLAGS] & LIVE:
            release(holding, node, replica, codes.ABANDONED)


@kernel
def settle_held(nodes: Ints, rows: Ints, holding: Holding) -> None:
    """Decide what is held of these events, as far as the end of the step decides it."""
    replicas = holding.held.shape[1] // PER_REPLICA
    for k in range(nodes.size):
        node = nodes[k]
        flags = rows[node, FLAGS]
        if rows[node, OUT] == ABSENT:
            if flags & DONE:
                reason = codes.SUPERSEDED if flags & REMOVED else codes.MISSED
                for replica in range(replicas):
                    release(holding, node, replica, reason)
            continue
        if rows[node, SHOWN] == ABSENT:
            credit = credited(rows, node, holding.held)
            if credit != NOBODY:
                release(holding, node, credit, codes.FIRST)
                rows[node, FLAGS] = flags | CREDITED
        for replica in range(replicas):
            release(holding, node, replica, codes.KNOWN)


@part
def credited(rows: Ints, node: int, held: Ints) -> int:
    """Whose held insert brings this event to the output; NOBODY if none is held."""
    asked = int(rows[node, RANK] >> BRINGER_BITS) - 1
    one = int(rows[node, RANK] & ((1 << BRINGER_BITS) - 1))
    if asked >= 0 and held[node, PER_REPLICA * asked] != NOBODY:
        return asked
    if held[node, PER_REPLICA * one] != NOBODY:
        return one
    first = NOBODY
    for replica in range(held.shape[1] // PER_REPLICA):
        number = held[node, PER_REPLICA * replica]
        if number != NOBODY and (first == NOBODY or number < held[node, PER_REPLICA * first]):
            first = replica
    return first


def resolved_of(
    schema: ElementSchema, nodes: Nodes, names: Sequence[str], holding: Holding
) -> tuple[Resolved, ...]:
    """What was pending before this step and is no longer, per replica in order of arrival."""
    rows = holding.released[: holding.taken[0]]
    rows = rows[np.argsort(rows[:, _NUMBER])]
    found = []
    for replica in np.unique(rows[:, _REPLICA]).tolist():
        mine = rows[rows[:, _REPLICA] == replica]
        facts = nodes.rows[mine[:, _NODE]]
        batch = inserts(schema, facts[:, START], mine[:, _END], nodes.take(facts[:, ROW]))
        found.append(Resolved(names[replica], batch, mine[:, _REASON].astype(np.int8)))
    return tuple(found)
