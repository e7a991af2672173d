"""How the stables of a merge arise that no row has: the clocks of DataFrames and of inboxes.

A DataFrame of plain rows has its own clock, or shares one.  All inboxes of a query have one
clock: its time is that of looks into their folders, and not that of a trigger, since files that
were found may wait in the control log.
"""

import logging
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from anabranch.batch.schema import TimeType
from anabranch.batch.times import show_span, to_seconds
from anabranch.errors import UsageError
from anabranch.sources.inbox import Inbox
from anabranch.spark.lane.heartbeats import LaneClock
from anabranch.spark.pack.beats import Beating
from anabranch.spark.pack.bounds import Asked
from anabranch.spark.pack.heartbeats import Heartbeat, of_inbox
from anabranch.spark.query.sources import are_named
from anabranch.spark.query.streams import Stream
from anabranch.spark.session.host import slots

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger(__name__)
EVERY_REPLICA: Final = "every replica"
"""How replicas are called that a column names."""
_OF_INBOXES: Final = "replicas of inboxes"
_SECOND: Final = 1_000_000
_USUAL: Final = 10 * _SECOND
"""The interval of ticks for clocks that need the time, and have no span of it."""


def beat_of(inboxes: Sequence[Inbox], time: TimeType, where: str) -> Heartbeat | None:
    """How the stables of all inboxes arise, if their rows are plain and have a clock."""
    given = [one for one in inboxes if one.beats is not None]
    if not given:
        return None
    first = given[0]
    for other in inboxes:
        if other.beats != first.beats:
            message = (
                f"{where}: {first.folder.path} and {other.folder.path}: one clock reads all "
                "inboxes of a query; give the same heartbeats(...) to each, put the folders of "
                "all replicas into one inbox, or read the files with spark.readStream"
            )
            raise UsageError(message)
    return of_inbox(Asked(**(first.beats or {})), time)


def lane_clocks(
    stream: Stream | None, beat: Heartbeat | None, frames: tuple[str, ...]
) -> tuple[LaneClock, ...]:
    """All clocks of a query; streams that were given one object share it.

    `frames` are the replicas of DataFrames, which the clock of inboxes does not serve.
    """
    shared: dict[tuple[int, tuple[str, ...]], list[tuple[str | None, Beating]]] = {}
    words = {} if stream is None else dict(stream.heartbeat_words)
    beating = () if stream is None else stream.beating
    _require_own_sources(beating)
    for name, how in beating:
        shared.setdefault((id(how.clock), how.by), []).append((name, how))
    found = [
        LaneClock(
            some[0][1].clock_in_lanes,
            tuple(name for name, _ in some if name is not None),
            by,
            is_timed=any(how.needs_time for _, how in some),
            has_arrival=any(how.has_arrival for _, how in some),
            words=words[some[0][0] or EVERY_REPLICA],
            groups=some[0][1].groups,
        )
        for (_, by), some in shared.items()
    ]
    if beat is not None:
        found.append(
            LaneClock(
                beat.how.clock_in_lanes,
                by=beat.how.by,
                has_arrival=True,
                words=beat.words,
                by_looks=True,
                but=frames,
                groups=beat.how.groups,
            )
        )
    return tuple(found)


def _require_own_sources(beating: Sequence[tuple[str | None, Beating]]) -> None:
    """Reject a clock with bounds between streams whose sources are not the streams.

    Each stream would have such a clock for itself, and wait for the sources of the others.
    """
    for name, how in beating:
        others = [one for one, other in beating if other.clock is how.clock and one != name]
        if others and how.by and how.clock.relates_sources:
            named = ", ".join(repr(one) for one in (name, *others))
            message = (
                f"heartbeats: the streams {named} have one clock (ab.clock), whose sources are "
                "the streams, but rows name sources of their own (source=, group=, or the "
                'partitions of order="kafka"), and bounds between sources of two streams are '
                "not supported; give the bounds to each stream: heartbeats(bounds, ...)"
            )
            raise UsageError(message)


@dataclass(frozen=True)
class Ticking:
    """Ticks for a query without a control log, and the name of the notes on what is due."""

    ticks: "DataFrame | None" = None
    notes: str | None = None


def ticking(stream: Stream | None, clocks: Sequence[LaneClock]) -> Ticking:
    """A source of ticks for a stream with clocks; none where no clock infers stables.

    It is there also if no clock needs the time: then it never ticks.  Spark refuses to go on
    with another number of sources, and bounds may change at a restart.
    """
    if stream is None or not clocks or not stream.is_streaming:
        return Ticking()
    from anabranch.spark.pack.tick_source import NAME, ticking

    spark = stream.df.sparkSession
    notes = None if slots(spark) is None else uuid.uuid4().hex
    frames = ",".join(name for name, _ in stream.copies)
    name = f"{NAME}_{sha256(frames.encode()).hexdigest()[:8]}" if are_named(stream) else None
    every = interval(clocks, parts=2 if notes is None else 4)
    return Ticking(ticking(spark, every, notes=notes, name=name), notes)


def interval(clocks: Sequence[LaneClock], *, parts: int) -> int:
    """Microseconds between two ticks: a part of the least span of the wall clock; 0: none."""
    needed = [one.clock for one in clocks if one.clock.needs_time]
    if not needed:
        return 0
    spans = [span for clock in needed for span in clock.spans]
    return max(_SECOND, min(spans, default=parts * _USUAL) // parts)


def warn_at_start(
    clocks: Sequence[LaneClock], beat: Heartbeat | None, *, interval: str | None
) -> None:
    """Log what the output may wait for; of DataFrames a warning came with `heartbeats`.

    `interval` is that of the triggers, if they go on.
    """
    if beat is not None and beat.waits:
        log.warning("%s", beat.waits)
    if interval is not None:
        warn_of_interval(clocks, interval)


def warn_of_interval(clocks: Sequence[LaneClock], interval: str) -> None:
    """Log that triggers are too far apart to see a silence as short as was asked for."""
    spans = [one.clock.idle_after for one in clocks if one.clock.idle_after is not None]
    if spans and to_seconds(interval, option="interval") * _SECOND >= min(spans):
        log.warning(
            "heartbeats: idle_after is %s, and triggers are %s apart: a source counts as idle "
            "when the second trigger in a row has no row of it; give an interval below "
            "idle_after, or a greater idle_after",
            show_span(min(spans)),
            interval,
        )


def in_words(stream: Stream | None, beat: Heartbeat | None) -> str:
    """How stables arise that no row has; empty if all have their own."""
    found: dict[str, list[str]] = {}
    for name, words in () if stream is None else stream.heartbeat_words:
        found.setdefault(words, []).append(name)
    if beat is not None:
        found.setdefault(beat.words, []).append(_OF_INBOXES if stream else EVERY_REPLICA)
    return "; ".join(f"{', '.join(names)}: {words}" for words, names in found.items())


def explain(words: str, clocks: Sequence[LaneClock]) -> list[str]:
    """Where stables come from, for `explain`."""
    found = [f"stables are inferred: {words}"] if words else []
    if any(one.clock.needs_time for one in clocks):
        found.append(
            "time passes also without rows, unless the query takes what is there and ends; "
            "rows that a source does not report as waiting count as not there"
        )
    named = [n for one in clocks for n in one.clock.rules.units() if not one.clock.groups]
    if named:
        names = ", ".join(dict.fromkeys(named))
        found.append(f"bounds are of {names}; rows of other sources move no clock")
    return found
