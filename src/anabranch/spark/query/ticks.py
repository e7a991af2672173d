"""When clocks must be read although no row comes, and whose rows wait to be read.

A trigger that nothing arrives for does not happen.  So the driver writes an entry into the
control log when something is due: a promise that waited, a source that may be idle by now, or
time that passes by itself (`delay`) while events wait for it.  The entry has no time: that of
its trigger counts, which Spark records with its offsets.  A clock shows the time of the trigger
before, so that what is due needs two such triggers.

When nothing is due, nothing is written: an idle query has no triggers.

A replica whose source reports rows that were not read is *blocked*: its silence is ours.
"""

import json
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import Final

from anabranch.spark.lane.heartbeats import ALL, LaneClock, Silence
from anabranch.spark.progress import Totals
from anabranch.spark.query.control_log import ControlLog

INTERVAL: Final = 0.5
"""Seconds between two looks."""

_MICROSECONDS: Final = 1_000_000


@dataclass
class Ticker:
    """Writes what clocks need into the control log; `look` is called at an interval.

    `unread` returns the replicas of which rows wait that a trigger left behind.
    """

    log: ControlLog
    clocks: tuple[LaneClock, ...]
    unread: Callable[[], Collection[str]]
    _waiting: frozenset[str] = field(default=frozenset())

    def look(self, now: float, totals: Totals) -> None:
        """Write what is due now, in seconds since the epoch."""
        if any(one.clock.needs_time for one in self.clocks):
            self._block(totals)
        if self.is_due(now, totals) and not self.log.waiting(totals.log):
            self.log.tick()

    @staticmethod
    def is_due(now: float, totals: Totals) -> bool:
        """Whether a clock may show something new."""
        clock = totals.clock
        if clock is None or not clock.time:
            return False
        times = [] if clock.due is None else [clock.due]
        if clock.every is not None and totals.live:
            times.append(clock.time + max(clock.every, _MICROSECONDS))
        return any(time <= now * _MICROSECONDS for time in times)

    def _block(self, totals: Totals) -> None:
        """State whose rows wait, if two looks agree: a trigger may just be reading them."""
        unread = frozenset(self.unread())
        sure, self._waiting = unread & self._waiting, unread
        for name in sorted(totals.replicas):
            if not any(one.serves(name) for one in self.clocks):
                continue
            known = declared(self.log, name)
            blocked = (ALL,) if name in sure else () if name not in unread else known.blocked
            if blocked != known.blocked:
                self.log.silence(name, replace(known, blocked=blocked).to_json())


def declared(log: ControlLog, replica: str) -> Silence:
    """What the log states of a replica."""
    return Silence.from_json(log.silenced.get(replica, json.dumps({})))


def pause(log: ControlLog, replica: str, source: str | None, *, paused: bool) -> bool:
    """Declare a source, or all sources of a replica, paused or not; False if that is known."""
    known, which = declared(log, replica), ALL if source is None else source
    others = tuple(one for one in known.paused if one != which)
    then = tuple(sorted({*others, which})) if paused else others
    return log.silence(replica, replace(known, paused=then).to_json())
