"""Frozen, half frozen, free: what a stable fixes of an event.

After `stable(t)` an event is

* `FROZEN` when `end < t`: it stays as it is;
* `HALF_FROZEN` when `start < t <= end`: it stays, its end may still move, but not to before t;
* `FREE` otherwise: all of it may change, or go.

`stable(FOREVER)` ends the stream, so under it every event is frozen, also one that ends at
FOREVER (erratum L15; the paper's strict inequality alone would leave it half frozen for ever).

Papers: LMerge III-C, fully frozen (FF), half frozen (HF), unfrozen (UF).

>>> status(3, 9, frontier=5), status(3, 9, frontier=9), status(3, 9, frontier=10)
(Status.HALF_FROZEN, Status.HALF_FROZEN, Status.FROZEN)
"""

from enum import Enum

from anabranch.model.time import FOREVER, Time


class Status(Enum):
    """How much of an event is fixed."""

    FREE = "free"
    HALF_FROZEN = "half_frozen"
    FROZEN = "frozen"

    def __repr__(self) -> str:
        return f"Status.{self.name}"


def status(start: Time, end: Time, *, frontier: Time) -> Status:
    """How much of the event `[start, end)` is fixed in a stream with this frontier."""
    if end < frontier or frontier == FOREVER:
        return Status.FROZEN
    return Status.HALF_FROZEN if start < frontier else Status.FREE


def may_insert(start: Time, *, frontier: Time) -> bool:
    """Whether an event may still appear at `start`.

    >>> may_insert(5, frontier=5), may_insert(4, frontier=5)
    (True, False)
    """
    return start >= frontier


def may_adjust(old_end: Time, end: Time, *, frontier: Time) -> bool:
    """Whether an end may still move from `old_end` to `end`.

    >>> may_adjust(9, 5, frontier=5), may_adjust(9, 4, frontier=5), may_adjust(4, 9, frontier=5)
    (True, False, False)
    """
    return old_end >= frontier and end >= frontier
