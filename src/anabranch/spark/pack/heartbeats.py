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
from anabranch.clocks import builders
from anabranch.clocks.bounds import Alike, AnyBounds, Bounds
from anabranch.clocks.clock import Clock
from anabranch.clocks.groups import group_alike
from anabranch.clocks.learn import Learning
from anabranch.clocks.settings import from_toml
from anabranch.errors import SchemaError, UsageError
from anabranch.spark.frames import quoted, with_columns
from anabranch.spark.pack.beats import ARRIVAL, SOURCE, Beating

if TYPE_CHECKING:
    from anabranch.spark.pack.row_stream import RowStream

ADAPTIVE: Final = "adaptive"
_WHERE: Final = "heartbeats"
_GUARD: Final = "1 hour"
_KAFKA_TIME: Final = "timestamp"


Streamed = TypeVar("Streamed", bound="RowStream")
"""A stream of rows, whatever else it can do."""


@dataclass(frozen=True)
class Heartbeat:
    """How the stables of one stream arise, and the same in words."""

    how: Beating
    words: str


@dataclass(frozen=True)
class Asked:
    """The arguments of `Stream.heartbeats`, as the user wrote them."""

    bounds: "str | Path | AnyBounds | Learning | Clock | None" = None
    disorder: str | int | None = None
    delay: str | None = None
    idle_after: str | None = None
    timeout: str | None = None
    source: str | None = None
    group: str | Mapping[str, str] | None = None
    arrival: str | None = None
    resolution: str = "1 second"
    guard: str | int | None = _GUARD
    target_loss: float | None = None


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
    return replace(_clock(asked, TimeType.TIMESTAMP), jump=jump)


def with_heartbeats(stream: Streamed, asked: Asked) -> Streamed:
    """The stream with a clock; a batch needs none, but its arrivals are no payload either."""
    _require_plain(stream, asked)
    made, guard = _guarded(asked, stream.schema.time, is_ntz=stream.is_ntz)
    by = asked.group if isinstance(asked.group, str) else asked.source
    stream = _with_columns(stream, by, asked.arrival)
    if not stream.is_streaming:
        return stream
    _warn_of_waiting(made, asked)
    how = Beating(made, _by(stream, by), asked.arrival is not None, guard)
    return replace(stream, heartbeat=Heartbeat(how, _words(asked, by, how)))


def of_inbox(asked: Asked, time: TimeType) -> Heartbeat:
    """How the stables of inboxes arise: times of arrival are recorded in the control log."""
    _require_one_name(asked)
    made, guard = _guarded(asked, time, is_ntz=False)
    by = asked.group if isinstance(asked.group, str) else asked.source
    how = Beating(made, (SOURCE,) if by else (), asked.arrival is not None, guard)
    if made.rules.counts_rows:
        message = f"{_WHERE}: bounds that count rows are not for an inbox, which comes in files"
        raise UsageError(message)
    return Heartbeat(how, _words(asked, by, how))


def _guarded(asked: Asked, time: TimeType, *, is_ntz: bool) -> tuple[Clock, int | None]:
    """The clock, and how far ahead of its arrival a time is believed."""
    made = _clock(asked, time)
    guard = _guard(asked, time, is_ntz=is_ntz)
    if guard is None or time is TimeType.TIMESTAMP:
        return made, guard
    if isinstance(asked.bounds, Clock):
        message = (
            f"{_WHERE}: guard={asked.guard!r} beside a clock: for bigint times all streams of "
            f"a clock have one guard; give it to the clock: ab.clock(..., jump={guard})"
        )
        raise UsageError(message)
    return replace(made, jump=guard), None


def _require_plain(stream: "RowStream", asked: Asked) -> None:
    if not stream.is_plain:
        message = (
            f"{_WHERE}: these elements have stables of their own; heartbeats are for plain "
            "rows (ab.events)"
        )
        raise UsageError(message)
    if stream.heartbeat is not None:
        message = f"{_WHERE}: this stream has heartbeats already; state them once"
        raise UsageError(message)
    if asked.delay is not None and stream.is_ntz:
        message = (
            f"{_WHERE}: delay compares a row's time with the clock, which needs timestamps "
            "with a zone; cast the column to timestamp, or give disorder"
        )
        raise UsageError(message)
    _require_one_name(asked)


def _require_one_name(asked: Asked) -> None:
    if asked.source is not None and isinstance(asked.group, str):
        message = (
            f"{_WHERE}: source='{asked.source}' and group='{asked.group}': rows are counted by "
            "group, which needs no source; leave source= out"
        )
        raise UsageError(message)


def _clock(asked: Asked, time: TimeType) -> Clock:
    """The clock of what was given."""
    if isinstance(asked.bounds, Clock):
        others = ("disorder", "delay", "idle_after", "timeout", "target_loss", "group")
        given = [name for name in others if getattr(asked, name) is not None]
        if given:
            message = (
                f"{_WHERE}: {', '.join(given)} beside a clock, which has its own; give them to "
                "ab.clock, or leave the clock out"
            )
            raise UsageError(message)
        return asked.bounds
    groups: tuple[tuple[str, str], ...] = ()
    bounds = _bounds(asked, time)
    if asked.group is not None:
        bounds, groups = _grouped(bounds, asked.group)
    resolution = _span(asked.resolution, "resolution")
    idle = None if asked.idle_after is None else _span(asked.idle_after, "idle_after")
    return Clock(bounds, idle_after=idle, resolution=resolution or 1, groups=groups)


def _bounds(asked: Asked, time: TimeType) -> AnyBounds | Learning:
    given = asked.bounds
    simple = asked.disorder is not None or asked.delay is not None
    if (given is not None) == simple:
        message = (
            f"{_WHERE}: give disorder= (how far rows come out of order), delay= (how late they "
            f"arrive), bounds, or '{ADAPTIVE}'; one of these ways"
        )
        raise UsageError(message)
    if given == ADAPTIVE:
        return _learning(asked.target_loss)
    if asked.target_loss is not None:
        message = f"{_WHERE}: target_loss is for '{ADAPTIVE}' bounds"
        raise UsageError(message)
    if isinstance(given, str | Path):
        return from_toml(Path(given).read_text(), where=str(given))
    if given is not None:
        assert not isinstance(given, Clock), "a clock has its bounds"
        return given
    timeout = None if asked.timeout is None else _span(asked.timeout, "timeout")
    apart = None if asked.disorder is None else _distance(asked.disorder, time)
    if asked.delay is None:
        assert apart is not None, "disorder or delay is given"
        return builders.disorder(apart, timeout=timeout)
    if time is TimeType.BIGINT:
        message = f"{_WHERE}: delay needs timestamps: it compares a row's time with the clock"
        raise UsageError(message)
    return builders.delay(_span(asked.delay, "delay"), disorder=apart, timeout=timeout)


def _learning(target_loss: float | None) -> Learning:
    if target_loss is None:
        return Learning(adapts=True)
    return Learning(target_loss=target_loss, window=max(1000, round(10 / target_loss)))


def _grouped(
    bounds: AnyBounds | Learning, group: str | Mapping[str, str]
) -> tuple[AnyBounds | Learning, tuple[tuple[str, str], ...]]:
    if isinstance(bounds, Bounds) and isinstance(group, Mapping):
        return bounds, tuple(group.items())
    if isinstance(bounds, Alike) and isinstance(group, str):
        return (group_alike(bounds) if bounds.others else bounds), ()
    if isinstance(bounds, Learning) and isinstance(group, str):
        return bounds, ()
    message = (
        f"{_WHERE}: group= is a column for sources that are alike, and a mapping from source "
        "to group for bounds of named sources"
    )
    raise UsageError(message)


def _distance(value: str | int, time: TimeType) -> int:
    units = to_units(str(value), time, option=f"{_WHERE}: disorder")
    if units < 0:
        message = f"{_WHERE}: disorder is {value!r}; expected 0 or more"
        raise UsageError(message)
    return units


def _span(text: str, option: str) -> int:
    """A span of the wall clock in microseconds; 0 needs no unit."""
    if str(text).strip() == "0":
        return 0
    return to_units(str(text), TimeType.TIMESTAMP, option=f"{_WHERE}: {option}")


def _guard(asked: Asked, time: TimeType, *, is_ntz: bool) -> int | None:
    """How far ahead a time is believed; without a zone it is compared with nothing."""
    if asked.guard is None:
        return None
    if time is TimeType.BIGINT:
        usual = asked.guard == _GUARD
        option = f"{_WHERE}: guard"
        return None if usual else to_units(str(asked.guard), TimeType.BIGINT, option=option)
    return None if is_ntz else _span(str(asked.guard), "guard")


def _by(stream: "RowStream", by: str | None) -> tuple[str, ...]:
    """The columns that name a source; of Kafka each partition is one."""
    if by is not None:
        return (SOURCE,)
    return stream.order[:2] if stream.has_positions else ()


def _with_columns(stream: Streamed, by: str | None, arrival: str | None) -> Streamed:
    """The stream with a copy of its source, and with its arrival, which is no payload."""
    from pyspark.sql import functions as F  # noqa: N812

    schema = stream.schema
    for option, name in (("source", by), ("arrival", arrival)):
        if name is not None and name not in schema.payload.names:
            message = (
                f"{_WHERE}: {option}: there is no column '{name}'; the events have "
                f"{schema.payload.names}; check the name"
            )
            raise SchemaError(message)
    more = {} if by is None else {SOURCE: F.col(quoted(by)).cast("string")}
    if arrival is None:
        return replace(stream, df=with_columns(stream.df, more)) if more else stream
    if stream.key is not None and arrival in stream.key.columns:
        message = f"{_WHERE}: arrival='{arrival}' is a column of the key; it names no event"
        raise UsageError(message)
    kind = stream.df.schema[arrival].dataType.typeName()
    if not kind.startswith("timestamp"):
        message = (
            f"{_WHERE}: arrival='{arrival}' is a column of type {kind}, expected timestamp; "
            "cast it"
        )
        raise SchemaError(message)
    if stream.has_positions and arrival == _KAFKA_TIME:
        warnings.warn(
            f"{_WHERE}: arrival='{arrival}': Kafka's timestamp is the time of arrival only if "
            "the topic has message.timestamp.type=LogAppendTime; CreateTime, the default, is "
            "set by the sender",
            UserWarning,
            stacklevel=4,
        )
    more[ARRIVAL] = F.col(quoted(arrival)).cast("timestamp")
    df = with_columns(stream.df, more)
    df = df.select(*(quoted(name) for name in df.columns if name != arrival))
    payload = schema.payload.remove(schema.payload.get_field_index(arrival))
    return replace(stream, df=df, schema=replace(schema, payload=payload))


def _warn_of_waiting(made: Clock, asked: Asked) -> None:
    """Nothing is assumed of silence: the last rows wait for the next one."""
    bounds = made.bounds
    if made.idle_after is not None or isinstance(bounds, Learning):
        return
    if bounds.needs_timeout():
        apart = "" if asked.disorder is None else f" ({asked.disorder})"
        warnings.warn(
            f"{_WHERE}: the latest rows of a source{apart} stay open until its next row comes, "
            "and a source that sends nothing holds the output back; give idle_after= (such as "
            "'1 minute') to go on without it, or delay=",
            UserWarning,
            stacklevel=4,
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
    if how.by:
        parts.append(kafka if by is None else f"a source is a value of {by}")
    if asked.arrival is not None:
        parts.append(f"arrival by {asked.arrival}")
    return ", ".join(parts)
