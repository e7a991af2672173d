"""What a merge of case R3 or R4 remembers of its live events, to look at."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from anabranch.batch.batch import Ints, Mask
from anabranch.batch.index import HIGH, LOW, START
from anabranch.operators.merge.bags import ends_of
from anabranch.operators.merge.layout import BAG, CONFLICT, ENDS, OUT, RANK
from anabranch.operators.merge.state import MergeState
from anabranch.operators.state.events import ABSENT, FLAGS, ROW


@dataclass(frozen=True, eq=False)
class LiveEvents:
    """The identities that may still change, as columns, in the order in which they came.

    `output_end` and `ends` (one column per replica) are ABSENT where there is none; of an
    identity with several events they are the greatest end.  `high` and `low` are the two words
    of the payload's hash, as `hash_columns` gives them: low first.
    """

    start: Ints
    high: Ints
    low: Ints
    output_end: Ints
    ends: Ints
    in_conflict: Mask
    payload: pa.Table

    def __len__(self) -> int:
        return len(self.start)


def live_events(state: MergeState) -> LiveEvents:
    """The identities that may still change, by rank; those not on the output come last."""
    ids = state.nodes.living()
    out, rank = state.nodes.rows[ids, OUT], state.nodes.rows[ids, RANK]
    ids = ids[np.lexsort((np.where(out == ABSENT, 0, rank), out == ABSENT))]
    rows = state.nodes.rows[ids]
    bags = np.flatnonzero(rows[:, FLAGS] & BAG)
    columns = np.append(OUT, np.arange(ENDS, rows.shape[1]))
    for i, j, end, _ in ends_of(state.nodes.bags, state.nodes.rows, ids[bags], columns):
        # Ends of a bag come ascending: the last one counts.
        rows[bags[i], columns[j]] = end
    return LiveEvents(
        rows[:, START],
        rows[:, HIGH],
        rows[:, LOW],
        rows[:, OUT],
        rows[:, ENDS:],
        rows[:, FLAGS] & CONFLICT != 0,
        state.nodes.take(rows[:, ROW]),
    )
