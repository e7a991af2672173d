"""When the files of one replica appear, in seconds after the start: lag, bursts and a silence.

A replica that is held up does not slow down: what it produced meanwhile appears at once when it
goes on, as from a queue.  So a timetable is the undisturbed one, with some times put off and
nothing overtaking.

Papers: LMerge VI-E (bursty streams: random delays and compensating spikes; congestion).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anabranch.errors import UsageError

Seconds = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """What disturbs a replica.

    * `lag`: seconds that all of it comes later.
    * `silence`: from and to, as fractions of the replica's own undisturbed run; nothing appears
      between them.
    * `burst`: chance that a file is held up, by about `hold` seconds.
    """

    lag: float = 0.0
    silence: tuple[float, float] | None = None
    burst: float = 0.0
    hold: float = 2.0

    def __post_init__(self) -> None:
        if not (self.lag >= 0 and self.hold >= 0 and 0 <= self.burst <= 1):
            message = (
                f"lag {self.lag} and hold {self.hold} are seconds, from 0; burst {self.burst} "
                "is a chance, from 0 to 1"
            )
            raise UsageError(message)
        if self.silence is not None and not 0 <= self.silence[0] <= self.silence[1] <= 1:
            message = (
                f"silence {self.silence[0]} to {self.silence[1]} is not a part of a run; give "
                "two fractions from 0 to 1, the smaller one first"
            )
            raise UsageError(message)


def timetable(undisturbed: Seconds, schedule: Schedule, rng: np.random.Generator) -> Seconds:
    """When each file appears, given when it would; never before, and in the same order."""
    due = undisturbed + schedule.lag
    if schedule.silence is not None and len(due):
        begin, until = (schedule.lag + part * undisturbed[-1] for part in schedule.silence)
        due = np.where((due >= begin) & (due < until), until, due)
    held = rng.random(len(due)) < schedule.burst
    holds = rng.normal(schedule.hold, schedule.hold / 4, len(due)).clip(0)
    return np.maximum.accumulate(due + held * holds)
