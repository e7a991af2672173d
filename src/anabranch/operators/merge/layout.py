"""The columns and flags by which a merge keeps events in the table of `state.events`.

    RANK            the order in which it came to the output: the order of adjusts
    SHOWN, OUT      its end on the output as readers have it, and as the step makes it
    ENDS + r        its end in replica r: ABSENT if the replica never mentioned it, its start if
                    the replica removed it (a tombstone)

A row with the flag BAG has several events of one identity.  There OUT and SHOWN hold the number
of its record in `bags`, and ENDS + r the block with the ends of replica r; see `bags`.

Every column and every flag bit of a merge is handed out here, and only here.
"""

from typing import Final

from anabranch.operators.state.events import OWN

RANK: Final = OWN
SHOWN: Final = OWN + 1
OUT: Final = OWN + 2
ENDS: Final = OWN + 3

CONFLICT: Final = 2
"""A deciding replica denied it although the output had promised it; counted once."""
HALF_FROZEN: Final = 4
"""It starts before the output's frontier, and is in the agenda's list of passed events."""
DONE: Final = 8
"""It leaves the state when the step ends."""
REMOVED: Final = 16
"""It is done because the deciding replica itself removed it."""
CREDITED: Final = 32
"""An adjust of this step has the credit for its new end."""
SEEN: Final = 64
"""Within one look at a list: it was there before."""
BAG: Final = 128
"""Its cells are blocks of ends."""
WITHDRAWN: Final = 256
"""An adjust took it off the output; the next replica that mentions it brings it back."""
TOUCHED: Final = 512
"""An element of this step was believed about it."""
