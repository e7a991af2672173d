"""Rules that give events new lifetimes: a closed set, so that each is checked when it is built.

* `AlterLifetime(start, duration)`: a start rule and a duration rule, one event per event.
* `Hop(size, slide)`: the papers' hopping window, one event per event (erratum D15).
* `GridWindows(size, slide, offset)`: Spark's windows, one event per window that contains the
  start.

Each rule offers `lifetimes(start, end)`, the new lifetimes of an event, and `stable(time)`: the
stable that the output may have once the input has `stable(time)`.  An event without lifetime is
removed, and has no new lifetime either: a removal stays a removal.  An adjust that leaves the
new end as it was is suppressed by who emits it (erratum C26).

A combination is rejected if some output stable would be untrue (erratum C27).  With f for the
start rule and d for the duration, after `stable(t)` an end may change from or to any time
e >= t.  The output has `stable(f(t))`, so wherever d depends on the end there,
`f(start) + d(start, e) >= f(e)` must hold.

Papers: CEDR *operators*, Definition 6 and 4.2, without its absolute values: with negative times
they are not monotone.

>>> tumbling = AlterLifetime(StartRounded(10), DurationConstant(10))
>>> tumbling.lifetimes(17, 18), tumbling.stable(17)
([[10, 20)], 10)
>>> Hop(6, 4).lifetimes(5, 9)
[[8, 12)]
>>> GridWindows(6, 4).lifetimes(5, 9)
[[0, 6), [4, 10)]
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isinf
from typing import TypeAlias

from anabranch.errors import UsageError
from anabranch.model.lifetime import Lifetime
from anabranch.model.time import FOREVER, Time, show


@dataclass(frozen=True, slots=True)
class StartKept:
    """The start stays."""

    def of(self, start: Time) -> Time:
        """The new start."""
        return start


@dataclass(frozen=True, slots=True)
class StartShifted:
    """The start moves by a constant, later or (`by < 0`) earlier."""

    by: int

    def __post_init__(self) -> None:
        _whole("alter_lifetime", "by", self.by)

    def of(self, start: Time) -> Time:
        """The new start."""
        return start + self.by


@dataclass(frozen=True, slots=True)
class StartRounded:
    """The start becomes the last of the times `k * step + offset` that is not later."""

    step: int
    offset: int = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        _positive("alter_lifetime", "step", self.step)
        _whole("alter_lifetime", "offset", self.offset)

    def of(self, start: Time) -> Time:
        """The new start."""
        return round_down(start, self.step, self.offset)


@dataclass(frozen=True, slots=True)
class DurationConstant:
    """All events live equally long; `FOREVER` leaves ends open."""

    size: Time

    def __post_init__(self) -> None:
        if self.size != FOREVER:
            _positive("alter_lifetime", "size", self.size)

    def of(self, duration: Time) -> Time:
        """The new duration of an event that lives at all."""
        del duration
        return self.size


@dataclass(frozen=True, slots=True)
class DurationKept:
    """An event lives as long as before."""

    def of(self, duration: Time) -> Time:
        """The new duration of an event that lives at all."""
        return duration


@dataclass(frozen=True, slots=True)
class DurationLengthened:
    """An event lives `by` units longer.

    It cannot live shorter by a constant: an end would move behind the stable that passed it.
    """

    by: int

    def __post_init__(self) -> None:
        _whole("alter_lifetime", "by", self.by)
        if self.by < 0:
            message = (
                f"alter_lifetime: a duration that is kept plus {self.by} can be negative, and "
                "an event could end before a stable that was passed on; add 0 or more, or "
                "limit durations with DurationCapped"
            )
            raise UsageError(message)

    def of(self, duration: Time) -> Time:
        """The new duration of an event that lives at all."""
        return duration + self.by


@dataclass(frozen=True, slots=True)
class DurationCapped:
    """An event lives as long as before, but at most `at` units."""

    at: int

    def __post_init__(self) -> None:
        _positive("alter_lifetime", "at", self.at)

    def of(self, duration: Time) -> Time:
        """The new duration of an event that lives at all."""
        return min(duration, self.at)


StartRule: TypeAlias = StartKept | StartShifted | StartRounded
DurationRule: TypeAlias = DurationConstant | DurationKept | DurationLengthened | DurationCapped


@dataclass(frozen=True, slots=True)
class AlterLifetime:
    """A new start and a new duration; combinations that break output stables are rejected.

    Kept and shifted starts go with every duration: an end that changes keeps its distance to
    the start, so the new end is the rule of the old one, or later.  A rounded start may move
    the end before the rounded stable by up to `step - 1` units: only durations that never
    change, or that are lengthened by at least this, make up for it.
    """

    start: StartRule = StartKept()
    duration: DurationRule = DurationKept()

    def __post_init__(self) -> None:
        if not self._keeps_stables:
            message = (
                f"alter_lifetime: {self.start} with {self.duration} lets an end change before "
                "a stable that was passed on; with a rounded start use DurationConstant, or "
                f"DurationLengthened by at least {self._lost} units"
            )
            raise UsageError(message)

    @property
    def _lost(self) -> int:
        """By how much an end can move to the left of the rule's own image of it."""
        return self.start.step - 1 if isinstance(self.start, StartRounded) else 0

    @property
    def _keeps_stables(self) -> bool:
        """Whether `f(start) + d(start, end) >= f(end)` wherever the end may still change."""
        if isinstance(self.duration, DurationLengthened):
            return self.duration.by >= self._lost
        # Capped at one unit, every event lives one unit: a constant.
        return self._lost == 0 or self.ends_by_start_alone

    @property
    def ends_by_start_alone(self) -> bool:
        """Whether no adjust but a removal changes the output."""
        duration = self.duration
        capped_at_unit = isinstance(duration, DurationCapped) and duration.at == 1
        return isinstance(duration, DurationConstant) or capped_at_unit

    def lifetimes(self, start: Time, end: Time) -> list[Lifetime]:
        """The one new lifetime; none if the event is removed."""
        if end <= start:
            return []
        begin = self.start.of(start)
        return [Lifetime(begin, begin + self.duration.of(end - start))]

    def stable(self, time: Time) -> Time:
        """The stable of the output; emit it only if it advances."""
        return self.start.of(time)


def lifetime_rule(given: Mapping[str, int], *, offset: int = 0) -> AlterLifetime:
    """The rule of `alter_lifetime`, of which one for starts and one for durations is given."""
    start: StartRule = StartKept()
    if "shift" in given:
        start = StartShifted(given["shift"])
    elif "round_to" in given:
        start = StartRounded(given["round_to"], offset=offset)
    duration: DurationRule = DurationKept()
    if "lifetime" in given:
        duration = DurationConstant(given["lifetime"])
    elif "longer_by" in given:
        duration = DurationLengthened(given["longer_by"])
    elif "at_most" in given:
        duration = DurationCapped(given["at_most"])
    if isinstance(start, StartRounded) and "lifetime" not in given:
        lost = start.step - 1
        if given.get("longer_by", 0) < lost:
            message = (
                f"alter_lifetime: round_to={start.step} moves starts back by up to {lost} "
                "units, so an end could change before a stable that was passed on; give "
                f"lifetime= too, or longer_by= of at least {lost} units"
            )
            raise UsageError(message)
    return AlterLifetime(start, duration)


@dataclass(frozen=True, slots=True)
class Hop:
    """The papers' hopping window: alive at the hops `k * slide` in `[start, start + size)`.

    The lifetime is `[up(start), up(start + size))`, where `up` gives the first hop that is not
    earlier: the snapshot at a hop has the events that started less than `size` before it.
    An event that no hop meets has no lifetime.  Ends of the input do not matter.
    """

    size: int
    slide: int

    def __post_init__(self) -> None:
        _positive("hop", "size", self.size)
        _positive("hop", "slide", self.slide)

    def lifetimes(self, start: Time, end: Time) -> list[Lifetime]:
        """The one new lifetime; none if the event is removed or no hop meets it."""
        if end <= start:
            return []
        begin, finish = self.stable(start), self.stable(start + self.size)
        return [Lifetime(begin, finish)] if begin < finish else []

    def stable(self, time: Time) -> Time:
        """The stable of the output; emit it only if it advances."""
        return -round_down(-time, self.slide, 0)


@dataclass(frozen=True, slots=True)
class GridWindows:
    """Spark's windows: `[k * slide + offset, + size)`, every one that contains the start.

    Windows that tumble have a slide equal to their size.  A greater slide leaves gaps, in which
    events have no window: `gaps_between` must ask for them.  Ends of the input do not matter.
    """

    size: int
    slide: int
    offset: int = field(default=0, kw_only=True)
    gaps_between: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        _positive("window", "size", self.size)
        _positive("window", "slide", self.slide)
        _whole("window", "offset", self.offset)
        if self.slide > self.size and not self.gaps_between:
            message = (
                f"window: slide={self.slide} is greater than size={self.size}, so events "
                "between two windows are in none; set gaps_between=True if this is meant"
            )
            raise UsageError(message)

    def lifetimes(self, start: Time, end: Time) -> list[Lifetime]:
        """The windows that contain the start, earliest first; none if the event is removed."""
        if end <= start:
            return []
        last = round_down(start, self.slide, self.offset)
        begins = []
        while last + self.size > start:
            begins.append(last)
            last -= self.slide
        return [Lifetime(begin, begin + self.size) for begin in reversed(begins)]

    def stable(self, time: Time) -> Time:
        """The first window that may still change: the first that ends after the input's stable.

        Emit it only if it advances.  It may be later than `time`, where that is in a gap.
        """
        return round_down(time - self.size, self.slide, self.offset) + self.slide


LifetimeRule: TypeAlias = AlterLifetime | Hop | GridWindows


def sliding(size: int) -> AlterLifetime:
    """The window `[start, start + size)`.

    >>> sliding(5).lifetimes(3, 4)
    [[3, 8)]
    """
    _positive("window", "size", size)
    return AlterLifetime(StartKept(), DurationConstant(size))


def round_down(time: Time, step: int, offset: int) -> Time:
    """The last of the times `k * step + offset` that is not later; FOREVER and NEVER stay.

    >>> round_down(-1, 10, 0), round_down(23, 10, 5)
    (-10, 15)
    """
    return time if isinf(time) else (time - offset) // step * step + offset


def _whole(call: str, name: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        message = f"{call}: {name}={value!r} is not a whole number of units; give an int"
        raise UsageError(message)


def _positive(call: str, name: str, value: Time) -> None:
    _whole(call, name, value)
    if value <= 0:
        message = f"{call}: {name}={show(value)} must be at least 1 unit"
        raise UsageError(message)
