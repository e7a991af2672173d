"""Clocks in the lanes: from the lines of a trigger to stables, the same in every lane.

Every lane gets all lines of a trigger (`pack.beats`), folds them, and steps its clocks.  Lanes
thus agree bit by bit, also if a trigger is run again.  What a step shows takes effect at the
end of the trigger, behind its rows:

    stables    of each replica: the least heartbeat of its sources that count, plus one
    passed     replicas all of whose sources are idle or paused: the output goes on without them
    awaited    replicas that were passed over for that, and send again

If all replicas are idle, all have reached the greatest time that any of them has shown.

Time: a trigger's time is taken after its sources were polled, so that a row that arrived in
between may come with the next trigger.  All that arrived up to the time of the trigger *before*
has been polled: that is what a clock shows.

Papers: Heartbeats 3, 3.4; the lanes are ours.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from anabranch.batch.batch import FOREVER_UNITS, NEVER_UNITS, Ints
from anabranch.batch.schema import TimeType
from anabranch.batch.times import show_span, show_time
from anabranch.clocks.clock import Beat, Clock, ClockState
from anabranch.clocks.saved import write_state
from anabranch.clocks.states import State
from anabranch.clocks.summary import Summaries, fold
from anabranch.operators.contract import InputStatus
from anabranch.spark.pack.beats import TIMELESS, from_table
from anabranch.spark.pack.parcels import Parcel

EVERY: Final = "*"
"""The name of a clock of all replicas that a column names."""
_SILENT: Final = [int(one) for one in State if not one.counts]


@dataclass(frozen=True)
class LaneClock:
    """A clock and the replicas that it serves; none are named: all that a column names.

    `by` are the columns in which the rows of each replica name their sources: each replica has
    a state of its own then; else the replicas are the sources of one.  `is_timed`: triggers
    have times.  `words` are the bounds as people read them.
    """

    clock: Clock
    replicas: tuple[str, ...] = ()
    by: tuple[str, ...] = ()
    is_timed: bool = True
    has_arrival: bool = False
    words: str = "given"

    @property
    def by_source(self) -> bool:
        """Whether rows name their sources."""
        return bool(self.by)

    def serves(self, replica: str) -> bool:
        """Whether the stables of this replica are inferred by this clock."""
        return not self.replicas or replica in self.replicas

    def key(self, replica: str) -> str:
        """The name of the state that a replica's lines go to."""
        if self.by_source:
            return replica
        return self.replicas[0] if self.replicas else EVERY


@dataclass(eq=False)
class Clocks:
    """What a lane keeps of its clocks: their states by name, or what was saved of them.

    `times` are those of the last triggers, the latest first; `idle` are the replicas that the
    output goes on without since all their sources are silent.
    """

    states: dict[str, ClockState] = field(default_factory=dict)
    saved: dict[str, dict[str, bytes]] = field(default_factory=dict)
    times: tuple[int, ...] = ()
    idle: tuple[str, ...] = ()

    def open(self, name: str, clock: Clock) -> ClockState:
        """The state of a clock; one with other bounds goes on with the heartbeats it had."""
        state = self.states.get(name)
        if state is not None and state.clock != clock:
            self.saved[name] = dict(write_state(state).written)
            state = None
        if state is None:
            saved = self.saved.pop(name, None)
            state = clock.empty() if saved is None else clock.from_parts(saved)
            self.states[name] = state
        return state

    def parts(self) -> dict[str, dict[str, bytes]]:
        """All states in parts."""
        return self.saved | {n: dict(write_state(s).written) for n, s in self.states.items()}

    def copy(self) -> "Clocks":
        """The same for another lane, from what would be saved."""
        return Clocks({}, self.parts(), self.times, self.idle)


@dataclass(frozen=True)
class Pace:
    """What the clocks of a trigger showed, by replica; `beats` by the name of the state."""

    stables: Mapping[str, int] = field(default_factory=dict)
    passed: tuple[str, ...] = ()
    awaited: tuple[str, ...] = ()
    beats: Mapping[str, Beat] = field(default_factory=dict)


def advance(
    clocks: Clocks,
    specs: Sequence[LaneClock],
    parcels: Sequence[Parcel],
    inputs: Sequence[InputStatus],
) -> Pace:
    """Step all clocks with the lines of a trigger; nothing happens without any."""
    if not parcels:
        return Pace()
    time = max(one.at or TIMELESS for one in parcels)
    time = max([time, *clocks.times[:1]])  # a clock that was set back stands still
    beats: dict[str, Beat] = {}
    of: dict[str, Beat] = {}
    for spec in specs:
        served = [one.name for one in inputs if spec.serves(one.name)]
        mine = [one for one in parcels if one.lines is not None and spec.serves(one.input)]
        for name in sorted({spec.key(n) for n in [*served, *(one.input for one in mine)]}):
            lines = [one for one in mine if spec.key(one.input) == name]
            present = [] if spec.by_source else [n for n in served if spec.key(n) == name]
            beats[name] = _step(clocks, spec, name, lines, present, time)
        of |= {n: beats[spec.key(n)] for n in served if spec.key(n) in beats}
    clocks.times = (time, *clocks.times[:1])
    return replace(_paced(clocks, specs, inputs, of), beats=beats)


def _step(
    clocks: Clocks,
    spec: LaneClock,
    name: str,
    parcels: Sequence[Parcel],
    present: Sequence[str],
    time: int,
) -> Beat:
    """One clock: the rows of this trigger, at the time of the one before."""
    state = clocks.open(name, spec.clock)
    lines = fold([from_table(one.lines) for one in parcels if one.lines is not None])
    before = clocks.times
    if not spec.is_timed:
        return state.step(lines, max(TIMELESS, state.now), present=present)
    if not spec.has_arrival and len(lines):
        # They arrived after the poll of the trigger before, which followed the one before it.
        lines = _since(lines, before[1] if len(before) > 1 else TIMELESS)
    now = max(before[0] if before else TIMELESS, state.now)
    return state.step(lines, now, present=present, polled=time)


def _since(lines: Summaries, after: int) -> Summaries:
    return replace(lines, after=np.full(len(lines), after, np.int64))


def _paced(
    clocks: Clocks,
    specs: Sequence[LaneClock],
    inputs: Sequence[InputStatus],
    of: Mapping[str, Beat],
) -> Pace:
    """Stables and silence of the attached replicas."""
    stables: dict[str, int] = {}
    silent, greatest = [], int(NEVER_UNITS)
    by_source = {n for n in of for spec in specs if spec.serves(n) and spec.by_source}
    for one in inputs:
        beat = of.get(one.name)
        if beat is None or not len(beat.names):
            continue
        places = _places(beat, one.name, by_source=one.name in by_source)
        greatest = max(greatest, int(beat.greatest[places].max(initial=NEVER_UNITS)))
        counting = places[~np.isin(beat.states[places], _SILENT)]
        if len(places) and not len(counting):
            silent.append(one.name)
            continue
        reached = int(beat.heartbeat[counting].min(initial=FOREVER_UNITS))
        if len(counting) and reached != NEVER_UNITS:
            stables[one.name] = reached + 1
    moving = [one.name for one in inputs if one.frontier != FOREVER_UNITS]
    all_idle = bool(silent) and set(moving) <= set(silent)
    if all_idle and greatest != NEVER_UNITS:
        stables |= dict.fromkeys(silent, greatest + 1)
    was, idle = set(clocks.idle), () if all_idle else tuple(sorted(silent))
    clocks.idle = idle
    found = {one.name: one.frontier for one in inputs}
    return Pace(
        {name: time for name, time in stables.items() if time > found[name]},
        tuple(name for name in idle if name not in was),
        tuple(sorted(was - set(silent) & set(found))),
    )


def _places(beat: Beat, replica: str, *, by_source: bool) -> Ints:
    if by_source:
        return np.arange(len(beat.names))
    return np.array([beat.names.index(replica)] if replica in beat.names else [], np.int64)


@dataclass(frozen=True)
class Behind:
    """Rows of one input that are behind the output's frontier: their sources and times."""

    input: str
    sources: Sequence[str]
    times: Sequence[int]
    frontier: int
    time: TimeType


def explain_late(clocks: Clocks, specs: Sequence[LaneClock], rows: Behind) -> list[str]:
    """Source, distance and bound of each row: why it is late."""
    spec = next(one for one in specs if one.serves(rows.input))
    state = clocks.open(spec.key(rows.input), spec.clock)
    texts = []
    for source, time in zip(rows.sources, rows.times, strict=True):
        unit = spec.clock.rules.unit_of(source)
        beat = int(state.heartbeat[state.place_of(unit)]) if state.has_unit(unit) else None
        parts = [f"source {source}"]
        if time < rows.frontier:
            at = show_time(rows.frontier, rows.time)
            parts.append(f"{_span(rows.frontier - time, rows.time)} behind the frontier {at}")
        if beat is not None and beat != NEVER_UNITS and time <= beat:
            at = show_time(beat, rows.time)
            parts.append(f"{_span(beat - time + 1, rows.time)} behind its heartbeat {at}")
        texts.append(", ".join([*parts, f"bound: {spec.words}"]))
    return texts


def _span(units: int, time: TimeType) -> str:
    return show_span(units) if time is TimeType.TIMESTAMP else str(units)
