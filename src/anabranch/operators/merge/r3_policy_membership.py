"""Replicas that leave the compiled merge R3, and those that are promoted.

As `r3_membership` and `MergeR3._forget`, which say what is right.

Papers: LMerge V-B, with errata L8, L9 and D5.
"""

from typing import Any, Final

from anabranch.batch.batch import NEVER_UNITS
from anabranch.batch.kernel import kernel
from anabranch.operators.merge.contract import Reason
from anabranch.operators.merge.r3_nodes import ABSENT, ENDS, OUT
from anabranch.operators.merge.r3_policy_look import is_mute
from anabranch.operators.merge.r3_policy_said import drop, release
from anabranch.operators.merge.r3_policy_table import (
    ATTACHED,
    FREE,
    GUARANTEE,
    HAD_JOINED,
    HEAD,
    NEXT,
    OUTPUT,
    PROMOTED,
    SERIAL,
    SILENT,
    STRETCHES,
    VISITS,
    is_joined,
    touch,
)
from anabranch.operators.merge.slots import NOBODY

_ABANDONED: Final = Reason.ABANDONED.code


@kernel
def forget(table: Any, replica: Any) -> None:
    """Drop what an attachment said, and events that nobody else speaks of."""
    node = table.numbers[HEAD]
    while node != NOBODY:
        behind = table.book[node, NEXT]
        table.numbers[VISITS] += 1
        release(table, node, replica, _ABANDONED)
        if table.rows[node, ENDS + replica] != ABSENT:
            table.rows[node, ENDS + replica] = ABSENT
            touch(table, node)
        if table.rows[node, OUT] == ABSENT and is_mute(table, node):
            drop(table, node)
        node = behind
    table.control[replica, FREE] = table.control[replica, SILENT] = 0


@kernel
def promote(table: Any) -> None:
    """Let the replica with the smallest guarantee be joined, if nobody else is left."""
    first, joined = NOBODY, False
    for replica in range(table.control.shape[0]):
        if not table.control[replica, ATTACHED]:
            continue
        joined = joined or is_joined(table, replica)
        guarantee = table.control[replica, GUARANTEE]
        if first == NOBODY or guarantee < table.control[first, GUARANTEE]:
            first = replica
    if joined:
        table.numbers[HAD_JOINED] = 1
    if joined or first == NOBODY or not table.numbers[HAD_JOINED]:
        return
    at, guarantee = table.numbers[STRETCHES], table.control[first, GUARANTEE]
    table.stretches[at, 0], table.stretches[at, 1] = table.numbers[OUTPUT], guarantee
    table.stretches[at, 2] = table.control[first, SERIAL]
    table.numbers[STRETCHES] = at + 1
    table.control[first, GUARANTEE], table.control[first, PROMOTED] = NEVER_UNITS, guarantee
