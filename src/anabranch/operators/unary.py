"""What an operator of one input owes its caller: valid output, and every broken promise named.

Contract of `push(element)` and of `step(state, batch)`; the law tests assert all but the last:

* Accounted: an element that breaks a promise of its own stream changes nothing and is reported,
  for the reason and at the position that `model.history.replay` gives.
* Sealed: the output keeps its own promises, whatever comes in.
* Deterministic: the same state and the same elements give the same result.
* Any cut: however the input is cut into steps, the history is the same at every common end.
* Bounded: state is what can still change the output; each operator says what that is.

The output of a step is its net change: data first, then one stable if the frontier moved.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from anabranch.batch.batch import Batch, Codes, Ints
from anabranch.model.element import Adjust, Event, Insert
from anabranch.model.frozen import may_adjust, may_insert
from anabranch.model.history import Reason
from anabranch.model.time import Time


@dataclass(frozen=True, eq=False)
class UnaryResult:
    """The net change of one step, and which elements of the batch broke a promise.

    `positions` are rows of the batch, rising; `reasons` are codes, by which
    `anabranch.batch.history.REASONS` gives the reason.
    """

    output: Batch
    positions: Ints
    reasons: Codes


def refuse(
    element: Insert | Adjust, live: Mapping[Event, int], *, frontier: Time
) -> Reason | None:
    """The promise that an element breaks, as `model.history.replay` has it.

    `live` needs to hold only what is not frozen: an adjust of anything else is behind.
    """
    if element.end < element.start:
        return Reason.BACKWARDS
    if element.changes_nothing:
        return None
    if isinstance(element, Insert):
        return None if may_insert(element.start, frontier=frontier) else Reason.BEHIND_STABLE
    if not may_adjust(element.old_end, element.end, frontier=frontier):
        return Reason.BEHIND_STABLE
    there = not element.old_event.is_empty and live.get(element.old_event, 0) > 0
    return None if there else Reason.NO_SUCH_EVENT
