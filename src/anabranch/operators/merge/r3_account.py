"""What became of each element that was believed: the buckets of a step, after its net change.

`judge` has said which elements break a promise, come again or come too late.  The others did
what only the end of the step shows: brought an event, corrected one, or made no difference.

* The credited insert of an event that is new on the output is `emitted`.
* The last adjust of a decider to the end that the output was adjusted to is `corrected`.
* An element of an event that the decider never had, and that its own replica still has, is
  `late`: behind the frontier now, and not on the output.
* All others are `absorbed`.
"""

from dataclasses import dataclass

import numpy as np

from anabranch.batch.batch import Codes, Ints, Mask
from anabranch.operators.merge.contract import Reason
from anabranch.operators.merge.r3_loop import ABSENT, NOBODY, Elements, Ledger
from anabranch.operators.merge.r3_reconcile import Events


@dataclass(frozen=True, eq=False)
class StepEnd:
    """The output's ends before the step, who decided (in order), and who is joined after it."""

    before: Ints
    leaders: list[int]
    joined: Mask


def explain(
    elements: Elements, ledger: Ledger, events: Events, end: StepEnd, reasons: Codes
) -> int:
    """Give the final reasons, in place; returns how many adjusts are `corrected`."""
    noted = np.flatnonzero(reasons == Reason.NOTED.code)
    _explain_absent(elements, events, reasons)
    brought = (end.before == ABSENT) & (events.output_end != ABSENT)
    reasons[ledger.credit[brought]] = Reason.FIRST.code
    corrected = _corrected(elements, events, end, noted)
    reasons[corrected] = Reason.CORRECTED.code
    _explain_stables(ledger, end, reasons)
    return len(corrected)


def _explain_absent(elements: Elements, events: Events, reasons: Codes) -> None:
    """Elements that were believed, of events that are not on the output after the step."""
    believed = (reasons == Reason.KNOWN.code) | (reasons == Reason.NOTED.code)
    rows = np.flatnonzero(believed)
    rows = rows[events.output_end[elements.node[rows]] == ABSENT]
    node = elements.node[rows]
    has_it = events.ends[node, elements.replica[rows]] > elements.start[rows]
    missed = events.done[node] & ~events.told[node] & has_it
    reasons[rows] = np.where(missed, Reason.MISSED.code, Reason.SUPERSEDED.code)


def _corrected(elements: Elements, events: Events, end: StepEnd, noted: Ints) -> Ints:
    """The last adjust of a decider for each event whose end the output took from it."""
    rows = noted[np.isin(elements.replica[noted], end.leaders)]
    node = elements.node[rows]
    after, before = events.output_end[node], end.before[node]
    target = np.where(after == ABSENT, elements.start[rows], after)
    agrees = (before != ABSENT) & (before != after) & (elements.end[rows] == target)
    rows, node = rows[agrees][::-1], node[agrees][::-1]
    last: Ints = rows[np.unique(node, return_index=True)[1]]
    return last


def _explain_stables(ledger: Ledger, end: StepEnd, reasons: Codes) -> None:
    """The last stable of a replica counts, or waits for its replica to be joined."""
    moved = ledger.last_stable != NOBODY
    reasons[ledger.last_stable[moved & ~end.joined]] = Reason.JOINING.code
    # The first decider has moved in this step; one that has just joined may have moved before.
    in_step = [leader for leader in end.leaders if moved[leader]]
    reasons[ledger.last_stable[in_step[-1:]]] = Reason.LEADS.code
