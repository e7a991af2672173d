"""`Stream.heartbeats`: how stables of plain rows arise, as a user states it.

What is given becomes a `clocks.Clock` (bounds, idleness) and how rows are summarised for it
(`beats.Beating`).  All of it is validated here; errors name the argument.
"""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from anabranch.batch.schema import TimeType
from anabranch.batch.times import show_span, to_units
from anabranch.clocks.bounds import AnyBounds, Bounds
from anabranch.clocks.clock import Clock
from anabranch.clocks.learn import Learning
from anabranch.clocks.settings import time_of
from anabranch.errors import SchemaError, UsageError
from anabranch.spark.frames import quoted, with_columns
from anabranch.spark.pack.beats import ARRIVAL, Beating
from anabranch.spark.pack.bounds import (
    ADAPTIVE,
    GUARD,
    RESOLUTION,
    WHERE,
    Asked,
    bounds_of,
    grouped,
    require_times,
    span,
    text_of,
)
from anabranch.spark.pack.sources import Groups, can_name

if TYPE_CHECKING:
    from anabranch.spark.pack.row_stream import RowStream

_KAFKA_TIME: Final = "timestamp"

Streamed = TypeVar("Streamed", bound="RowStream")
"""A stream of rows, whatever else it can do."""


@dataclass(frozen=True)
class Heartbeat:
    """How the stables of one stream arise, and the same in words.

    `waits` is what they wait for, for people, if nothing is assumed of silence.
    """

    how: Beating
    words: str
    waits: str = ""


def clock(
    bounds: "str | Path | AnyBounds | Learning",
    *,
    idle_after: str | None = None,
    resolution: str = "1 second",
    jump: int | None = None,
) -> Clock:
    """A clock that serves one or several streams of a query: `heartbeats(CLOCK)`.

    Streams that are given the same clock are its sources: bounds between them hold.

    Args:
        bounds: `ab.clocks.Bounds` or `Alike`, `ab.clocks.Learning`, or the path of a TOML file.
        idle_after: How long, by the wall clock, a source may send nothing before the clock
            goes on without it.
        resolution: The unit of the wall clock in which arrivals are counted.
        jump: For bigint times: a time that is more than this above all before moves nothing.
            Timestamps are guarded by `heartbeats(CLOCK, guard=)`, by default of an hour.
    """
    asked = Asked(bounds, idle_after=idle_after, resolution=resolution)
    is_file = isinstance(bounds, str | Path) and bounds != ADAPTIVE
    times = time_of(text_of(str(bounds)), where=str(bounds)) if is_file else None
    return replace(_clock(asked, times), jump=jump, times=times)


def with_heartbeats(stream: Streamed, asked: Asked) -> Streamed:
    """The stream with a clock; a batch needs none, but its arrivals are no payload either."""
    _require_plain(stream, asked)
    made, guard = _guarded(asked, stream.schema.time, is_ntz=stream.is_ntz)
    by = asked.by
    stream = _with_columns(stream, by, asked.arrival)
    if not stream.is_streaming:
        return stream
    if waits := _waits(made, asked):
        warnings.warn(waits, UserWarning, stacklevel=3)
    how = Beating(made, _by(stream, by), asked.arrival is not None, guard, _groups(asked, made))
    return replace(stream, heartbeat=Heartbeat(how, _words(asked, by, how)))


def of_inbox(asked: Asked, time: TimeType) -> Heartbeat:
    """How the stables of inboxes arise: times of arrival are recorded in the control log."""
    _require_one_name(asked)
    made, guard = _guarded(asked, time, is_ntz=False)
    by = asked.by
    how = Beating(
        made, (by,) if by else (), asked.arrival is not None, guard, _groups(asked, made)
    )
    if made.rules.counts_rows:
        message = f"{WHERE}: bounds that count rows are not for an inbox, which comes in files"
        raise UsageError(message)
    return Heartbeat(how, _words(asked, by, how), _waits(made, asked))


def _guarded(asked: Asked, time: TimeType, *, is_ntz: bool) -> tuple[Clock, int | None]:
    """The clock, and how far ahead of its arrival a time is believed."""
    made = _clock(asked, time)
    require_times(made.bounds, time, is_ntz=is_ntz)
    guard = _guard(asked, time, is_ntz=is_ntz)
    if guard is None or time is TimeType.TIMESTAMP:
        return made, guard
    if isinstance(asked.bounds, Clock):
        message = (
            f"{WHERE}: guard={asked.guard!r} beside a clock: for bigint times all streams of "
            f"a clock have one guard; give it to the clock: ab.clock(..., jump={guard})"
        )
        raise UsageError(message)
    return replace(made, jump=guard), None


def _require_plain(stream: "RowStream", asked: Asked) -> None:
    if not stream.is_plain:
        message = (
            f"{WHERE}: these elements have stables of their own; heartbeats are for plain "
            "rows (ab.events)"
        )
        raise UsageError(message)
    if stream.heartbeat is not None:
        message = f"{WHERE}: this stream has heartbeats already; state them once"
        raise UsageError(message)
    _require_one_name(asked)


def _require_one_name(asked: Asked) -> None:
    if asked.source is not None and isinstance(asked.group, str):
        message = (
            f"{WHERE}: source='{asked.source}' and group='{asked.group}': rows are counted by "
            "group, which needs no source; leave source= out"
        )
        raise UsageError(message)


def _clock(asked: Asked, time: TimeType | None) -> Clock:
    """The clock of what was given, for a stream of such times."""
    if isinstance(asked.bounds, Clock):
        return _shared(asked, asked.bounds, time)
    groups: tuple[tuple[str, str], ...] = ()
    bounds = bounds_of(asked, time)
    if asked.group is not None:
        bounds, groups = grouped(bounds, asked.group)
    resolution = span(asked.resolution, "resolution")
    idle = None if asked.idle_after is None else span(asked.idle_after, "idle_after")
    return Clock(bounds, idle_after=idle, resolution=resolution or 1, groups=groups)


def _shared(asked: Asked, made: Clock, time: TimeType | None) -> Clock:
    """A clock that was given; nothing beside it repeats what it has."""
    others = ("disorder", "delay", "idle_after", "timeout", "target_loss", "group")
    given = [name for name in others if getattr(asked, name) is not None]
    given += ["resolution"] if asked.resolution != RESOLUTION else []
    if given:
        message = (
            f"{WHERE}: {', '.join(given)} beside a clock, which has its own; give them to "
            "ab.clock, or leave the clock out"
        )
        raise UsageError(message)
    if time is not None and made.times is not None and made.times is not time:
        message = (
            f"{WHERE}: the bounds of this clock are for {made.times.value} times, and those of "
            f"the stream are {time.value}; give a clock with bounds for {time.value} times"
        )
        raise UsageError(message)
    return made


def _guard(asked: Asked, time: TimeType, *, is_ntz: bool) -> int | None:
    """How far ahead a time is believed; without a zone it is compared with nothing."""
    if asked.guard is None:
        return None
    if time is TimeType.BIGINT:
        usual = asked.guard == GUARD
        option = f"{WHERE}: guard"
        return None if usual else to_units(str(asked.guard), TimeType.BIGINT, option=option)
    return None if is_ntz else span(str(asked.guard), "guard")


def _groups(asked: Asked, made: Clock) -> Groups | None:
    """The groups into which packers put sources; those of named sources are in the clock."""
    if not isinstance(asked.group, Mapping) or isinstance(made.bounds, Bounds):
        return None
    return Groups.of(asked.group)


def _by(stream: "RowStream", by: str | None) -> tuple[str, ...]:
    """The columns that name a source; of Kafka each partition is one."""
    if by is not None:
        return (by,)
    return stream.order[:2] if stream.has_positions else ()


def _with_columns(stream: Streamed, by: str | None, arrival: str | None) -> Streamed:
    """The stream with its arrival, which is no payload; columns that it lacks are rejected."""
    from pyspark.sql import functions as F  # noqa: N812

    schema = stream.schema
    for option, name in (("source", by), ("arrival", arrival)):
        if name is not None and name not in schema.payload.names:
            message = (
                f"{WHERE}: {option}: there is no column '{name}'; the events have "
                f"{schema.payload.names}; check the name"
            )
            raise SchemaError(message)
    if by is not None and (by == arrival or not can_name(schema.payload.field(by).type)):
        message = (
            f"{WHERE}: source: column '{by}' cannot name sources: it is the arrival, or its "
            "type is not plain; give a column of text, numbers or times"
        )
        raise SchemaError(message)
    if arrival is None:
        return stream
    if stream.key is not None and arrival in stream.key.columns:
        message = f"{WHERE}: arrival='{arrival}' is a column of the key; it names no event"
        raise UsageError(message)
    kind = stream.df.schema[arrival].dataType.typeName()
    if not kind.startswith("timestamp"):
        message = (
            f"{WHERE}: arrival='{arrival}' is a column of type {kind}, expected timestamp; "
            "cast it"
        )
        raise SchemaError(message)
    if stream.has_positions and arrival == _KAFKA_TIME:
        warnings.warn(
            f"{WHERE}: arrival='{arrival}': Kafka's timestamp is the time of arrival only if "
            "the topic has message.timestamp.type=LogAppendTime; CreateTime, the default, is "
            "set by the sender",
            UserWarning,
            stacklevel=4,
        )
    df = with_columns(stream.df, {ARRIVAL: F.col(quoted(arrival)).cast("timestamp")})
    df = df.select(*(quoted(name) for name in df.columns if name != arrival))
    payload = schema.payload.remove(schema.payload.get_field_index(arrival))
    return replace(stream, df=df, schema=replace(schema, payload=payload))


def _waits(made: Clock, asked: Asked) -> str:
    """What the output waits for if nothing is assumed of silence; empty if for nothing."""
    bounds = made.bounds
    if made.idle_after is not None:
        return ""
    if isinstance(bounds, Learning):
        what, instead = f"nothing is final before {bounds.warm_up} rows of each source came", ""
    elif bounds.needs_timeout():
        apart = "" if asked.disorder is None else f" ({asked.disorder})"
        what = f"the newest rows of a source{apart} are not final until its next row arrives"
        instead = ", or delay="
    else:
        return ""
    return (
        f"{WHERE}: {what}, and a source that sends nothing holds the output back; give "
        f"idle_after= (such as '1 minute') to go on without it{instead}"
    )


def _words(asked: Asked, by: str | None, how: Beating) -> str:
    """What a run records and `explain` shows."""
    named = ("disorder", "delay", "timeout", "target_loss")
    given = [(name, value) for name in named if (value := getattr(asked, name)) is not None]
    parts = [f"{name} {value}" for name, value in given]
    clock, kafka = how.clock, "a source is a Kafka partition"
    if asked.bounds is not None:
        kind = "learned" if isinstance(clock.bounds, Learning) else "given"
        parts.append(f"{kind} bounds {clock.digest}")
    if clock.idle_after is not None:
        parts.append(f"idle after {show_span(clock.idle_after)}")
    if asked.guard != GUARD:
        parts.append(f"guard {asked.guard or 'none'}")
    if how.by:
        parts.append(kafka if by is None else f"a source is a value of {by}")
    if asked.arrival is not None:
        parts.append(f"arrival by {asked.arrival}")
    return ", ".join(parts)
