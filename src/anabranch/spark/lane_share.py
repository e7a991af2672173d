"""The share of each lane in a trigger: a key with very many rows shows in its lane."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


class HasShare(Protocol):
    """The record of a lane: which one, what it took, and what its steps remember."""

    @property
    def stage(self) -> int:
        """The stage of the lane, from 0."""

    @property
    def lane(self) -> int:
        """The number of the lane in its stage."""

    @property
    def taken(self) -> int:
        """Inserts and adjusts that came to the lane."""

    @property
    def remembered(self) -> int:
        """What all steps of the lane remember."""


@dataclass(frozen=True, kw_only=True)
class LaneShare:
    """One lane of one stage in one trigger.

    `rows` are the inserts and adjusts that it took; `share` is their share of those of its
    stage, None where the stage took none.  `live` is what its steps remember.
    """

    stage: int
    lane: int
    rows: int
    share: float | None
    live: int


def shares(records: Sequence[HasShare]) -> list[LaneShare]:
    """Of each lane, by stage and lane."""
    sums: dict[int, int] = {}
    for one in records:
        sums[one.stage] = sums.get(one.stage, 0) + one.taken
    return [
        LaneShare(
            stage=one.stage,
            lane=one.lane,
            rows=one.taken,
            share=round(one.taken / sums[one.stage], 3) if sums[one.stage] else None,
            live=one.remembered,
        )
        for one in sorted(records, key=lambda one: (one.stage, one.lane))
    ]
