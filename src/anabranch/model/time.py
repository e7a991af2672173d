"""Application time: whole units on a line that has no end.

A time is an `int`.  `FOREVER` is the one special time: an open end, later than every
int.  `NEVER` is the frontier of a stream that has not promised anything yet, earlier than every
int; it is never written into an element.

Papers: LMerge and CEDR write ∞ and -∞.

>>> 10**30 < FOREVER and NEVER < -(10**30)
True
"""

import math
from typing import Final, TypeAlias

Time: TypeAlias = float
"""An `int`, `FOREVER` or `NEVER`.  (Python's ints compare exactly with infinities.)"""

FOREVER: Final[Time] = math.inf
NEVER: Final[Time] = -math.inf


def show(time: Time) -> str:
    """The text of a time: `forever`, `never` or the number.

    >>> show(FOREVER), show(7)
    ('forever', '7')
    """
    if time == FOREVER:
        return "forever"
    if time == NEVER:
        return "never"
    return str(int(time))
