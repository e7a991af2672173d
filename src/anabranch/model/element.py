"""The three elements of a physical stream, and the event of a history.

* `Insert(payload, start, end)`: a new event with lifetime `[start, end)`.
* `Adjust(payload, start, old_end, end)`: an event that ended at `old_end` ends at `end`; with
  `end == start` it is removed.
* `Stable(time)`: afterwards no insert with `start < time`, no adjust with `old_end < time` or
  `end < time`.  `Stable(FOREVER)` ends the stream.

A payload is any hashable value.  Whether an element keeps its stream's promises is not the
element's business: see `anabranch.model.history`.

Papers: LMerge III-C, Example 5; CEDR calls an adjust a retraction and a stable a CTI.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from anabranch.model.lifetime import Lifetime
from anabranch.model.time import Time


class Identity(NamedTuple):
    """What stays the same of an event while its end is adjusted; may name several events."""

    start: Time
    payload: Hashable


class Event(NamedTuple):
    """One row of a history: a payload that is true during `[start, end)`."""

    payload: Hashable
    start: Time
    end: Time

    @property
    def identity(self) -> Identity:
        """Start and payload."""
        return Identity(self.start, self.payload)

    @property
    def lifetime(self) -> Lifetime:
        """When it is true."""
        return Lifetime(self.start, self.end)

    @property
    def is_empty(self) -> bool:
        """Whether it is never true."""
        return self.end == self.start


@dataclass(frozen=True, slots=True)
class Insert:
    """A new event."""

    payload: Hashable
    start: Time
    end: Time

    @property
    def event(self) -> Event:
        """The event that is true afterwards."""
        return Event(self.payload, self.start, self.end)

    @property
    def changes_nothing(self) -> bool:
        """Whether its lifetime is empty: absorbed, whatever the frontier."""
        return self.end == self.start


@dataclass(frozen=True, slots=True)
class Adjust:
    """A new end for an event that is there; `end == start` removes it."""

    payload: Hashable
    start: Time
    old_end: Time
    end: Time

    @property
    def is_removal(self) -> bool:
        """Whether nothing is left of the event."""
        return self.end == self.start

    @property
    def old_event(self) -> Event:
        """The event that must be there before."""
        return Event(self.payload, self.start, self.old_end)

    @property
    def event(self) -> Event:
        """The event that is true afterwards (empty if this is a removal)."""
        return Event(self.payload, self.start, self.end)

    @property
    def changes_nothing(self) -> bool:
        """Whether the end stays what it was: absorbed, whatever the frontier."""
        return self.end == self.old_end


@dataclass(frozen=True, slots=True)
class Stable:
    """A promise: nothing before `time` changes any more."""

    time: Time


Element: TypeAlias = Insert | Adjust | Stable
