"""The bounds of `Stream.heartbeats`, as a user states them: arguments, values, or a file.

What is given is validated against the times of the stream; nothing that was given is left out.
Errors name the argument.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, TypeAlias

from anabranch.batch.schema import TimeType
from anabranch.batch.times import to_units
from anabranch.clocks import builders
from anabranch.clocks.bounds import Alike, AnyBounds, Bounds, with_timeout
from anabranch.clocks.clock import Clock
from anabranch.clocks.groups import group_alike
from anabranch.clocks.learn import Learning
from anabranch.clocks.settings import from_toml
from anabranch.errors import FileError, UsageError

ADAPTIVE: Final = "adaptive"
WHERE: Final = "heartbeats"
GUARD: Final = "1 hour"
RESOLUTION: Final = "1 second"
Given: TypeAlias = AnyBounds | Learning


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
    resolution: str = RESOLUTION
    guard: str | int | None = GUARD
    target_loss: float | None = None

    @property
    def by(self) -> str | None:
        """The column that names the source of a row, or its group."""
        return self.group if isinstance(self.group, str) else self.source


def bounds_of(asked: Asked, time: TimeType | None) -> Given:
    """The bounds that were given, for a stream of such times; None: that is not known yet."""
    given = asked.bounds
    simple = asked.disorder is not None or asked.delay is not None
    if (given is not None) == simple:
        message = (
            f"{WHERE}: give disorder= (how far rows come out of order), delay= (how late they "
            f"arrive), bounds, or '{ADAPTIVE}'; one of these ways"
        )
        raise UsageError(message)
    if asked.target_loss is not None and given != ADAPTIVE:
        message = f"{WHERE}: target_loss is for '{ADAPTIVE}' bounds"
        raise UsageError(message)
    if simple:
        assert time is not None, "distances are given beside a stream"
        return _simple(asked, time)
    return _with_timeout(_given(given, asked.target_loss, time), asked.timeout)


def _simple(asked: Asked, time: TimeType) -> Alike:
    """Bounds of a disorder, a delay, or both."""
    timeout = None if asked.timeout is None else span(asked.timeout, "timeout")
    apart = None if asked.disorder is None else distance(asked.disorder, time)
    if asked.delay is not None:
        delay = span(asked.delay, "delay")
        return builders.delay(delay, disorder=apart, timeout=timeout)
    assert apart is not None, "disorder or delay is given"
    return builders.disorder(apart, timeout=timeout)


def _given(given: Any, target_loss: float | None, time: TimeType | None) -> Given:
    if given == ADAPTIVE:
        if target_loss is None:
            return Learning(adapts=True)
        return Learning(target_loss=target_loss, window=max(1000, round(10 / target_loss)))
    if isinstance(given, str | Path):
        return from_toml(text_of(given), where=str(given), time=time)
    if isinstance(given, Bounds | Alike | Learning):
        return given
    message = (
        f"{WHERE}: bounds={given!r} is {type(given).__name__}; expected ab.clocks.Bounds, "
        f"Alike or Learning, the path of a TOML file, ab.clock(...), or '{ADAPTIVE}'"
    )
    raise UsageError(message)


def text_of(path: str | Path) -> str:
    """The text of a file of bounds."""
    try:
        return Path(path).read_text()
    except FileNotFoundError as error:
        near = get_close_matches(str(path), [ADAPTIVE], n=1)
        hint = f"; did you mean '{ADAPTIVE}'?" if near else "; give the path of a TOML file"
        message = f"{WHERE}: bounds='{path}': there is no such file{hint}"
        raise FileError(message) from error
    except (OSError, UnicodeDecodeError) as error:
        message = f"{WHERE}: bounds='{path}' cannot be read as text: {error}; give a TOML file"
        raise FileError(message) from error


def _with_timeout(bounds: Given, timeout: str | None) -> Given:
    """The bounds with what was given beside them."""
    if timeout is None:
        return bounds
    if isinstance(bounds, Learning):
        message = (
            f"{WHERE}: timeout='{timeout}' beside learned bounds, which have none; give "
            "idle_after= to go on without a silent source"
        )
        raise UsageError(message)
    if bounds.timeout is not None:
        message = f"{WHERE}: timeout='{timeout}' beside bounds that have a timeout; give one"
        raise UsageError(message)
    return with_timeout(bounds, span(timeout, "timeout"))


def require_times(bounds: Given, time: TimeType, *, is_ntz: bool) -> None:
    """Reject bounds that compare a time with the wall clock if it cannot be."""
    if isinstance(bounds, Learning) or bounds.delay is None:
        return
    if time is TimeType.BIGINT or is_ntz:
        which = "bigint" if time is TimeType.BIGINT else "without a zone"
        message = (
            f"{WHERE}: delay needs timestamps: it compares a row's time with the clock, and "
            f"these times are {which}; cast the column to timestamp, or give disorder"
        )
        raise UsageError(message)


def grouped(
    bounds: Given, group: str | Mapping[str, str]
) -> tuple[Given, tuple[tuple[str, str], ...]]:
    """The bounds of groups, and the group of each source that has a name."""
    if isinstance(bounds, Alike):
        return (group_alike(bounds) if bounds.others else bounds), ()
    if isinstance(bounds, Learning):
        return bounds, ()
    if isinstance(group, Mapping):
        return bounds, tuple(group.items())
    message = (
        f"{WHERE}: group='{group}' is a column, but these bounds name their sources; give a "
        "mapping from source to group"
    )
    raise UsageError(message)


def distance(value: str | int, time: TimeType) -> int:
    """A disorder in units of application time."""
    units = to_units(str(value), time, option=f"{WHERE}: disorder")
    if units < 0:
        message = f"{WHERE}: disorder is {value!r}; expected 0 or more"
        raise UsageError(message)
    return units


def span(text: str, option: str) -> int:
    """A span of the wall clock in microseconds; 0 needs no unit."""
    if str(text).strip() == "0":
        return 0
    return to_units(str(text), TimeType.TIMESTAMP, option=f"{WHERE}: {option}")
