"""What became of each element that was believed: the buckets of a step, after its net change.

`judge` has said which elements break a promise, come again or come too late.  The others did
what only the end of the step shows: brought an event, corrected one, or made no difference.

* The credited insert of an event that is new on the output is `emitted`.
* The last adjust of a decider to the end that the output was adjusted to is `corrected`.
* An element of an event that the decider never had, and that its own replica still has, is
  `late`: behind the frontier now, and not on the output.
* All others are `absorbed`.

By element there is nothing to add: `judge` knows all, and every adjust is owed to a stable.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from anabranch.batch.batch import Codes, Mask
from anabranch.batch.kernel import frozen, kernel, part
from anabranch.operators.merge.contract import Reason
from anabranch.operators.merge.r3_loop import NEWBORN, Elements, Ledger
from anabranch.operators.merge.r3_nodes import (
    ABSENT,
    CREDITED,
    DONE,
    ENDS,
    FLAGS,
    OUT,
    SHOWN,
    TOLD,
)
from anabranch.operators.merge.slots import NOBODY

_FIRST: Final = Reason.FIRST.code
_KNOWN: Final = Reason.KNOWN.code
_NOTED: Final = Reason.NOTED.code
_CORRECTED: Final = Reason.CORRECTED.code
_MISSED: Final = Reason.MISSED.code
_SUPERSEDED: Final = Reason.SUPERSEDED.code


@dataclass(frozen=True, eq=False)
class StepEnd:
    """Who decided (in order), and who is joined after the step."""

    leaders: Sequence[int]
    joined: Mask


def explain(elements: Elements, ledger: Ledger, end: StepEnd, reasons: Codes) -> int:
    """Give the final reasons, in place; returns how many adjusts are `corrected`."""
    decided = np.zeros(len(end.joined), np.bool_)
    decided[list(end.leaders)] = True
    corrected = int(explain_all(ledger.rows, elements, frozen(decided), reasons))
    count = int(ledger.numbers[NEWBORN])
    newborn, credit = ledger.newborn[:count], ledger.credit[:count]
    brought = (credit != NOBODY) & (ledger.rows[:, OUT][newborn] != ABSENT)
    reasons[credit[brought]] = _FIRST
    _explain_stables(ledger, end, reasons)
    return corrected


def _explain_stables(ledger: Ledger, end: StepEnd, reasons: Codes) -> None:
    """The last stable of a replica counts, or waits for its replica to be joined."""
    moved = ledger.last_stable != NOBODY
    reasons[ledger.last_stable[moved & ~end.joined]] = Reason.JOINING.code
    # The first decider has moved in this step; one that has just joined may have moved before.
    in_step = [leader for leader in end.leaders if moved[leader]]
    reasons[ledger.last_stable[in_step[-1:]]] = Reason.LEADS.code


@kernel
def explain_all(rows: Any, elements: Any, decided: Any, reasons: Any) -> Any:
    """The reasons of inserts and adjusts; backwards, since the last adjust has the credit."""
    corrected = 0
    for k in range(reasons.size):
        i = reasons.size - 1 - k
        reason = reasons[i]
        if reason not in (_KNOWN, _NOTED):
            continue
        node = elements.node[i]
        out = rows[node, OUT]
        if reason == _NOTED and decided[elements.replica[i]]:
            shown, flags = rows[node, SHOWN], rows[node, FLAGS]
            target = elements.start[i] if out == ABSENT else out
            changes = shown not in (ABSENT, out) and not flags & CREDITED
            if changes and elements.end[i] == target:
                rows[node, FLAGS] = flags | CREDITED
                reasons[i] = _CORRECTED
                corrected += 1
                continue
        if out == ABSENT:
            reasons[i] = absent(rows, elements, node, i)
    return corrected


@part
def absent(rows: Any, elements: Any, node: Any, i: Any) -> Any:
    """Why the event of this element is not on the output."""
    has_it = rows[node, ENDS + elements.replica[i]] > elements.start[i]
    if has_it and rows[node, FLAGS] & (DONE | TOLD) == DONE:
        return _MISSED
    return _SUPERSEDED
