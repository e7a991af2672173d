"""When clocks must be read although no row comes, and whose rows wait to be read.

A trigger that nothing arrives for does not happen.  So the driver writes an entry into the
control log when something is due: a promise that waited, a source that may be idle by now,
time that passes by itself (`delay`) while events wait for it, or a wait of an align by the wall
clock.  The entry has no time: that of its trigger counts, which Spark records with its offsets.
A clock shows the time of the trigger before, so that what is due needs two such triggers.

When nothing is due, nothing is written: an idle query has no triggers.

A replica whose source reports rows that were not read is *blocked*: its silence is ours.
Spark is asked for its report after each trigger, and seldom while no trigger runs: a report
costs more than all else that an idle query does.
"""

import json
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import Final

from anabranch.spark.checkpoint.control_log import ControlLog
from anabranch.spark.lane.heartbeats import ALL, LaneClock, Silence
from anabranch.spark.progress import Totals
from anabranch.spark.run.unread import Unread

INTERVAL: Final = 0.5
"""Seconds between two looks."""

REST: Final = 10.0
"""Seconds after a trigger from which on Spark's report is read only once in this time."""

_MICROSECONDS: Final = 1_000_000


@dataclass
class Ticker:
    """Writes what clocks need into the control log; `look` is called at an interval.

    `unread` returns the replicas of DataFrames of which rows wait that a trigger left behind,
    with their sources; None before Spark has reported a trigger.  `ticks`: where there are
    inboxes, looks into them write the entry.
    """

    log: ControlLog
    clocks: tuple[LaneClock, ...]
    unread: Callable[[], Unread | None]
    ticks: bool = True
    _trigger: int = field(default=-1, init=False)
    _since: float = field(default=0.0, init=False)
    _read: float = field(default=0.0, init=False)

    def begin(self, replicas: Collection[str]) -> None:
        """Block those that time alone moves, until it is known that none of their rows wait.

        What arrived while nobody read is not late by `delay`.
        """
        for one in self.clocks:
            if one.clock.rules.delay is not None and not one.by_looks:
                for name in filter(one.serves, sorted(replicas)):
                    self._declare(name, (ALL,))

    def look(self, now: float, totals: Totals) -> None:
        """Write what is due now, in seconds since the epoch."""
        needs_time = any(one.clock.needs_time for one in self.clocks)
        if needs_time and self._is_news(now, totals):
            self._block(totals, now)
        if self.ticks and is_due(now, totals, self.log):
            self.log.tick()

    def _is_news(self, now: float, totals: Totals) -> bool:
        """Whether Spark may report other rows that wait than when it was asked last."""
        if totals.next_trigger != self._trigger:
            self._trigger, self._since = totals.next_trigger, now
        return now - self._since < REST or now - self._read >= REST

    def _block(self, totals: Totals, now: float) -> None:
        """State whose rows wait; a trigger that reads them just now is blocked for nothing."""
        waiting = self.unread()
        if waiting is None:  # the first report is read as soon as it is there
            return
        self._read = now
        for name in sorted(totals.replicas):
            if any(one.serves(name) and not one.by_looks for one in self.clocks):
                self._declare(name, waiting.get(name, ()))

    def _declare(self, replica: str, blocked: tuple[str, ...]) -> None:
        known = declared(self.log, replica)
        if blocked != known.blocked:
            self.log.silence(replica, replace(known, blocked=blocked).to_json())


def is_due(now: float, totals: Totals, log: ControlLog) -> bool:
    """Whether an entry shows something new, by a clock or a wait, and none is on its way."""
    clock, micros = totals.clock, now * _MICROSECONDS
    due = clock is not None and clock.is_due(micros, totals.live)
    held = None if totals.last is None else totals.last.due
    due = due or (held is not None and held <= micros)
    return due and not log.waiting(totals.log)


def declared(log: ControlLog, replica: str) -> Silence:
    """What the log states of a replica."""
    return Silence.from_json(log.silenced.get(replica, json.dumps({})))


def pause(log: ControlLog, replica: str, source: str | None, *, paused: bool) -> bool:
    """Declare a source, or all sources of a replica, paused or not; False if that is known."""
    known, which = declared(log, replica), ALL if source is None else source
    others = tuple(one for one in known.paused if one != which)
    then = tuple(sorted({*others, which})) if paused else others
    return log.silence(replica, replace(known, paused=then).to_json())
