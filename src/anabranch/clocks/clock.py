"""A clock over many sources, as a frozen specification: bounds, and what silence means.

A `Clock` pickles, travels to workers and is the same in every lane.  It makes a `ClockState`
(`clock_state`), which takes summaries of rows and gives heartbeats and one stable.

Papers: Heartbeats 3, 3.4, 5, with erratum H18.

>>> from anabranch.clocks.builders import disorder
>>> Clock(disorder(10), idle_after=60).spans
[60]
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING

from anabranch.batch.schema import TimeType
from anabranch.clocks.bounds import Alike, AnyBounds, Bounds, counts_rows
from anabranch.clocks.groups import group_rules
from anabranch.clocks.learn import Learning
from anabranch.clocks.pairs import MOST, Pairs
from anabranch.clocks.rules import AlikeRules, MatrixRules, Rules
from anabranch.errors import UsageError

if TYPE_CHECKING:
    from anabranch.clocks.clock_state import ClockState


@dataclass(frozen=True)
class Clock:
    """How heartbeats arise: the bounds, and what silence and odd times mean.

    `idle_after` is a span of the wall clock; without it nothing is assumed of silent sources.
    `groups` names the group of each source: of those of `Bounds` all, of learned bounds any; a
    group learns from all rows of its members as from one source.  `jump` guards times that
    have no relation to the wall clock: a time more than that above all that was seen before
    moves nothing (timestamps are guarded where they are summarised).  `times` are those that
    the distances of the bounds are of, if that is known.  `source` is what names a source (a
    column): a state in which other names were given forgets them.
    """

    bounds: AnyBounds | Learning
    idle_after: int | None = None
    jump: int | None = None
    resolution: int = 1
    groups: tuple[tuple[str, str], ...] = ()
    times: TimeType | None = None
    source: str = ""

    def __post_init__(self) -> None:
        for what, units in (("idle_after", self.idle_after), ("jump", self.jump)):
            if units is not None and not 1 <= units <= MOST:
                message = f"{what} is {units}; expected 1 to {MOST} units, or nothing"
                raise UsageError(message)
        if not 1 <= self.resolution <= MOST:
            message = f"the resolution of a clock is {self.resolution}; expected 1 to {MOST}"
            raise UsageError(message)
        if self.groups and not isinstance(self.bounds, Bounds | Learning):
            message = "groups name the sources of Bounds; for sources alike use group_alike"
            raise UsageError(message)

    @cached_property
    def rules(self) -> Rules:
        """The bounds as they are used."""
        if isinstance(self.bounds, Bounds):
            if self.groups:
                return group_rules(self.bounds, dict(self.groups))
            return MatrixRules(self.bounds)
        # Learned bounds promise when they are read, not when a row comes.
        return AlikeRules(Alike() if isinstance(self.bounds, Learning) else self.bounds)

    @cached_property
    def digest(self) -> str:
        """A name for the bounds: promises that others made are not kept."""
        text = repr((self.bounds, self.groups))
        return sha256(text.encode()).hexdigest()[:16]

    @property
    def needs_time(self) -> bool:
        """Whether heartbeats depend on the wall clock, and not on the rows' times alone."""
        if self.spans or isinstance(self.bounds, Learning):
            return True
        latency = self.bounds.latency
        has_latency = any([latency] if isinstance(latency, int) else latency)
        return has_latency or counts_rows(self.bounds)

    @property
    def spans(self) -> list[int]:
        """The spans of the wall clock after which something may change without a row."""
        bounds = self.bounds
        found = [] if self.idle_after is None else [self.idle_after]
        if isinstance(bounds, Learning):
            return [*found, *(wait for wait in bounds.waits if wait)]
        found += [one for one in (bounds.delay, bounds.timeout) if one is not None]
        sets: list[Pairs] = [bounds.own, bounds.others] if isinstance(bounds, Alike) else []
        latency = bounds.latency if isinstance(bounds, Alike) else max(bounds.latency)
        if isinstance(bounds, Bounds):
            sets = [pairs for row in bounds.pairs for pairs in row]
        waits = {pair.wait + latency for pairs in sets for pair in pairs}
        return [*found, *(waits - {0})]

    @property
    def relates_sources(self) -> bool:
        """Whether there are bounds from one source to another, or of named sources."""
        if isinstance(self.bounds, Learning):
            return self.bounds.across
        return isinstance(self.bounds, Bounds) or bool(self.bounds.others)

    @property
    def needs_histogram(self) -> bool:
        """Whether summaries for it must have histograms."""
        learned = isinstance(self.bounds, Learning) and self.bounds.target_loss is not None
        return learned or self.jump is not None

    def unit_of(self, source: str) -> str | None:
        """The source or group whose heartbeat holds for a source; None: it has no bounds."""
        if not self.rules.knows(source):
            return None
        if isinstance(self.bounds, Learning):
            return dict(self.groups).get(source, source)
        return self.rules.unit_of(source)

    def empty(self) -> "ClockState":
        """A state to which nothing has happened."""
        from anabranch.clocks.clock_state import ClockState

        return ClockState(self)

    def from_parts(self, parts: Mapping[str, bytes]) -> "ClockState":
        """The state that was saved; StateError if it is another kind or incomplete."""
        from anabranch.clocks.saved import read_state

        return read_state(self, parts)
