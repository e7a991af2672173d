"""Rows that break an inferred promise: counted and explained, never a violation of the source.

A source that sends plain rows promised nothing; the clock inferred it.  So a row behind the
heartbeat of its own source is *behind*, and still in time as long as it is not behind the
stable that was emitted.  Only a row behind the stable is *late*.  Each row is in exactly one
bucket.

Papers: Heartbeats 2 (bounds with a confidence), with D6 (late is relative to the heartbeat
that the query has got).

>>> found = sort_out(["a", "a", "a"], [5, 8, 20], heartbeats={"a": 9}, stable=7)
>>> [Timeliness(code).word for code in found.codes], found.counts
(['late', 'behind', 'in_time'], {'in_time': 1, 'behind': 1, 'late': 1})
>>> found.reason(0)
'a: time 5 is 2 behind the stable 7, and 5 at or below the heartbeat 9 of its source'
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np

from anabranch.batch.batch import NEVER_UNITS, Codes, Ints
from anabranch.errors import UsageError


class Timeliness(IntEnum):
    """Where a row is, seen from what was promised before it came."""

    IN_TIME = 0
    BEHIND = 1
    LATE = 2

    @property
    def word(self) -> str:
        """The name in reports."""
        return self.name.lower()


@dataclass(frozen=True, eq=False)
class Sorted:
    """The bucket of each row, with what it was compared with."""

    sources: Sequence[str]
    times: Ints
    codes: Codes
    heartbeat: Ints
    stable: int | None

    @property
    def counts(self) -> dict[str, int]:
        """How many rows are in each bucket."""
        found = np.bincount(self.codes, minlength=len(Timeliness))
        return {one.word: int(found[one]) for one in Timeliness}

    def reason(self, row: int) -> str:
        """Why a row is in its bucket: source, distance, bound."""
        source, time, beat = self.sources[row], int(self.times[row]), int(self.heartbeat[row])
        own = f"{beat - time + 1} at or below the heartbeat {beat} of its source"
        parts = []
        if self.stable is not None and time < self.stable:
            parts.append(f"{self.stable - time} behind the stable {self.stable}")
        if beat != NEVER_UNITS and time <= beat:
            parts.append(own)
        return f"{source}: time {time} is {', and '.join(parts) or 'in time'}"


def sort_out(
    sources: Sequence[str],
    times: Any,
    *,
    heartbeats: Mapping[str, int | None],
    stable: int | None,
) -> Sorted:
    """Compare rows of a step with heartbeats and stable of the step *before* it."""
    time = np.asarray(times, np.int64)
    if len(time) != len(sources):
        message = f"sources and times have different lengths: {len(sources)}, {len(time)}"
        raise UsageError(message)
    known = {name: NEVER_UNITS if one is None else one for name, one in heartbeats.items()}
    beats = (known.get(name, NEVER_UNITS) for name in sources)
    heartbeat = np.fromiter(beats, np.int64, len(sources))
    codes = np.where(time <= heartbeat, Timeliness.BEHIND, Timeliness.IN_TIME).astype(np.int8)
    codes[(heartbeat == NEVER_UNITS)] = Timeliness.IN_TIME
    if stable is not None:
        codes[time < stable] = Timeliness.LATE
    return Sorted(sources, time, codes, heartbeat, stable)
