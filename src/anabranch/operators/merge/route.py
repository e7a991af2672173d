"""Which lane an element goes to: a function of its identity alone, fixed for ever.

All elements of an event, from every replica, reach one lane.  Lane numbers are written into
checkpoints, so this function may never change; a test holds it to known values.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from anabranch.batch.batch import STABLE, Batch, Ints
from anabranch.errors import UsageError
from anabranch.operators.merge.r3_index import hash_rows

EVERY_LANE: Final = -1
"""Stables go to every lane."""


def route(batch: Batch, lanes: int, *, by_start: bool = False) -> Ints:
    """The lane of each element, from 0; EVERY_LANE for a stable.

    `by_start`: the start alone decides, for cases that compare the events of one start.
    """
    if lanes < 1:
        message = f"merge: {lanes} lanes; there must be at least one"
        raise UsageError(message)
    mixed = _mix(batch.start.view(np.uint64))
    if not by_start:
        mixed = _mix(hash_rows(batch.payload, len(batch))[0] ^ mixed)
    lane = (mixed % np.uint64(lanes)).astype(np.int64)
    lane[batch.kind == STABLE] = EVERY_LANE
    return lane


def _mix(bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of SplitMix64: every input bit reaches every output bit."""
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))
