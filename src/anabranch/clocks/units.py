"""Sums and differences of times that stay within a column, whatever the times are.

A difference below all times is no promise (`NEVER_UNITS`), a sum above all is never due
(`FOREVER_UNITS`).  Spans are 0 to `pairs.MOST`.

>>> less(np.array([5, -(2**62)]), 2**62).tolist() == [5 - 2**62, NEVER_UNITS]
True
"""

import numpy as np

from anabranch.batch.batch import FOREVER_UNITS, NEVER_UNITS, Ints
from anabranch.clocks.pairs import MOST


def less(times: Ints, span: int) -> Ints:
    """Each time less a span."""
    return np.where(times < NEVER_UNITS + span, NEVER_UNITS, times - span)


def more(times: Ints, span: int) -> Ints:
    """Each time and a span."""
    return np.where(times > FOREVER_UNITS - span, FOREVER_UNITS, times + span)


def behind(greatest: int, times: Ints) -> Ints:
    """How far times must be behind one, at least, for a bound to hold: 1 for the same time."""
    apart = (np.int64(greatest) - times).view(np.uint64)
    found = np.minimum(apart, np.uint64(MOST - 1)).astype(np.int64) + 1
    return np.where(times > greatest, 0, found)
