"""`wait_wall`: how long a copy with gaps may hold the output back, in wall-clock time.

The output waits for the slowest copy.  One that has held it back for `limit` seconds is passed
over: the driver writes that into the control log, so all lanes do it in the same trigger, also
when the trigger is repeated.  The merge waits for it again when it has caught up.

A copy holds the output back from the moment at which another one has promised more than it has
now: a copy that is always a second behind does so for a second.  Time counts only while the
query looks, and while no rows of the copy wait to be read: what we delay is not its fault.
"""

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Final

from anabranch.spark.progress import ReplicaTotals, Totals
from anabranch.spark.step_record import place

WAIT_WALL: Final = 300.0
"""Seconds that a copy may hold the output back, unless another number is asked for."""

LONGEST_LOOK: Final = 10.0
"""Seconds between two looks that count; if there were more, the machine was asleep."""


@dataclass
class _Waiting:
    """One replica: how long the output has waited for it, and since when it is behind."""

    clock: float = 0.0
    ahead: list[tuple[float, float]] = field(default_factory=list)


@dataclass
class Patience:
    """Selects replicas to pass over; `look` is called at an interval."""

    limit: float
    _copies: dict[str, _Waiting] = field(default_factory=dict)
    _last: float | None = None

    def look(
        self, now: float, totals: Totals, unread: Callable[[], Collection[str]]
    ) -> list[str]:
        """The copies to pass over now.

        `unread` returns those with rows that wait to be read.  It asks Spark, which costs: it
        is called only while a copy holds the output back.
        """
        seconds = 0.0 if self._last is None else min(now - self._last, LONGEST_LOOK)
        self._last = now
        awaited = {name: one for name, one in totals.replicas.items() if _is_awaited(one)}
        self._copies = {name: self._copies.get(name, _Waiting()) for name in awaited}
        furthest = max((place(one.frontier) for one in awaited.values()), default=-math.inf)
        found = []
        holds = any(one.ahead for one in self._copies.values())
        blocked = unread() if holds else ()
        for name, one in awaited.items():
            waiting = self._copies[name]
            waiting.clock += 0.0 if name in blocked else seconds
            if self._is_too_long(waiting, place(one.frontier), furthest):
                found.append(name)
                del self._copies[name]
        return found

    def _is_too_long(self, waiting: _Waiting, at: float, furthest: float) -> bool:
        if not waiting.ahead or furthest > waiting.ahead[-1][1]:
            waiting.ahead.append((waiting.clock, furthest))
        waiting.ahead = [one for one in waiting.ahead if one[1] > at]
        return bool(waiting.ahead) and waiting.clock - waiting.ahead[0][0] >= self.limit


def _is_awaited(one: ReplicaTotals) -> bool:
    """Whether the output waits for this copy, or may come to."""
    return one.standing in ("leader", "joined", "ended")
