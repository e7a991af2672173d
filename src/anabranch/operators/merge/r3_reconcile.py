"""What the output owes before its frontier moves: to agree with the replica that moves it.

`publish` puts new events on the output, `reconcile` corrects them on behalf of one deciding
replica.  Both change columns in place and emit nothing: a step compares the output's ends
before and after, so that only the net change of a step is visible (erratum D21).

When a decider goes from `frontier` to `time`, an event that starts before `time`

* is alive until `end` in the decider: it ends at max(end, frontier) on the output, if that or
  its end on the output is before `time` (else there is no hurry);
* is removed or unknown there, and starts before `frontier`: stays, for it was promised (L4);
* is removed or unknown there, and does not: leaves the output.

Events whose end on the output is then before `time` are frozen and leave the state; under
stable(FOREVER) all do (L15).  One pass over all events: the cost that issue 3 removes.

Papers: LMerge IV-D, Algorithm R3, lines 15 to 29, with errata L3, L4 and L15.
"""

from dataclasses import dataclass

import numpy as np

from anabranch.batch.batch import FOREVER_UNITS, Ints, Mask
from anabranch.operators.merge.r3_loop import ABSENT, NOBODY


@dataclass(frozen=True, eq=False)
class Events:
    """The events of a step as columns, one row per node, and what reconciling finds out.

    `done`: leaves the state after the step.  `told`: of those, the decider removed it itself.
    """

    start: Ints
    ends: Ints
    output_end: Ints
    in_conflict: Mask
    done: Mask
    told: Mask

    def __len__(self) -> int:
        return len(self.start)


def publish(events: Events, credit: Ints, replica: Ints) -> None:
    """Put each event that has a credited insert on the output, with that replica's end.

    If that replica has taken it back meanwhile, the first replica that has it gives the end.
    """
    new = np.flatnonzero(credit != NOBODY)
    start = events.start[new]
    end = events.ends[new, replica[credit[new]]]
    lost = np.flatnonzero(end <= start)
    if len(lost):
        alive = events.ends[new[lost]] > start[lost, None]
        end[lost] = events.ends[new[lost], alive.argmax(axis=1)]
    events.output_end[new] = end


def reconcile(events: Events, decider: int, *, frontier: int, time: int) -> None:
    """Make the output agree with the decider wherever it could not be done after `time`."""
    rows = np.flatnonzero((events.start < time) & ~events.done)
    start, said, shown = events.start[rows], events.ends[rows, decider], events.output_end[rows]
    alive = said > start
    wanted = np.maximum(said, frontier)
    follow = alive & ((wanted < time) | (shown < time))
    leave = ~alive & (start >= frontier)
    after = np.where(follow, wanted, np.where(leave, ABSENT, shown))
    # A replica that denies what the output promised, or cuts it shorter than it may be cut.
    events.in_conflict[rows] |= (start < frontier) & (~alive | (said < frontier))
    events.output_end[rows] = after
    events.done[rows] = (after < time) | (time == FOREVER_UNITS)
    events.told[rows] = leave & (said == start)
