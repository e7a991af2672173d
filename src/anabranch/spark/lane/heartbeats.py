"""Clocks in the lanes: from the lines of a trigger to stables, the same in every lane.

Every lane gets all lines of a trigger (`pack.beats`), folds them, and steps its clocks.  Lanes
thus agree bit by bit, also if a trigger is run again.  What a step shows takes effect at the
end of the trigger, behind its rows:

    stables    of each replica: the least heartbeat of its sources that count, plus one
    passed     replicas all of whose sources are idle or paused, or for which there are no
               bounds: the output goes on without them
    awaited    replicas that were passed over for that, and send again

If all replicas are idle, all have reached the greatest time that any of them has shown.

Time: a trigger's time is taken after its sources were polled, so that a row that arrived in
between may come with the next trigger.  All that arrived up to the time of the trigger *before*
has been polled: that is what a clock of DataFrames shows.  One of inboxes goes by looks: the
time of a look comes behind all files that it found, so what waits in the control log is no
silence.

Where rows have their arrival, rows that arrived long before are a backlog, of which more may
wait: the clock shows no later time than the arrival of the rows that were read, so that nothing
of them is due and nobody is idle before; and their sources are blocked.

Papers: Heartbeats 3, 3.4; the lanes are ours.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

import numpy as np

from anabranch.batch.batch import FOREVER_UNITS, NEVER_UNITS, Ints
from anabranch.clocks.beat import Beat, Report
from anabranch.clocks.clock import Clock
from anabranch.clocks.clock_state import ClockState
from anabranch.clocks.saved import write_state
from anabranch.clocks.states import State
from anabranch.clocks.summary import Summaries, fold
from anabranch.operators.contract import InputStatus
from anabranch.spark.clock_record import ClockRecord
from anabranch.spark.pack.beats import TIMELESS, from_table
from anabranch.spark.pack.parcels import CLOCK, Parcel
from anabranch.spark.pack.sources import Groups

EVERY: Final = "*"
"""The name of a clock of all replicas that a column names."""
_WORST: Final = 10
"""The number of sources that a record shows."""
FAR: Final = 60_000_000
"""Rows that arrived this number of microseconds before they could be read are a backlog."""
_SILENT: Final = [int(one) for one in State if not one.counts]


@dataclass(frozen=True)
class LaneClock:
    """A clock and the replicas that it serves; none are named: all but some.

    Those are replicas of which a column or the folders of inboxes have the names.  `by` are the
    columns in which the rows of each replica name their sources: each replica has a state of
    its own then; else the replicas are the sources of one.  `groups` have a heartbeat each.
    `is_timed`: triggers have times; `by_looks`: the times are those of looks into inboxes.
    `words` are the bounds as people read them.
    """

    clock: Clock
    replicas: tuple[str, ...] = ()
    by: tuple[str, ...] = ()
    is_timed: bool = True
    has_arrival: bool = False
    words: str = "given"
    by_looks: bool = False
    but: tuple[str, ...] = ()
    groups: Groups | None = None

    @property
    def by_source(self) -> bool:
        """Whether rows name their sources."""
        return bool(self.by)

    @property
    def is_simple(self) -> bool:
        """Whether the words have the bound: a disorder, a delay, or both."""
        return self.words.startswith(("disorder ", "delay "))

    def serves(self, replica: str) -> bool:
        """Whether the stables of this replica are inferred by this clock."""
        return replica in self.replicas if self.replicas else replica not in self.but

    def unit_of(self, source: str) -> str | None:
        """The source or group whose heartbeat holds for a source; None: it has no bounds."""
        group = source if self.groups is None else self.groups.group_of(source)
        return self.clock.unit_of(group)

    def key(self, replica: str) -> str:
        """The name of the state that a replica's lines go to."""
        if self.by_source:
            return replica
        return self.replicas[0] if self.replicas else EVERY


@dataclass(eq=False)
class Clocks:
    """What a lane keeps of its clocks: their states by name, or what was saved of them.

    `times` are those of the last triggers, the latest first, and `looks` those of looks into
    inboxes; `idle` are the replicas that the output goes on without since all their sources are
    silent.  `silenced` is what was declared of replicas, as `Silence` writes it; `latest` is by
    clock the greatest time at which one of its rows starts or ends.
    """

    states: dict[str, ClockState] = field(default_factory=dict)
    saved: dict[str, dict[str, bytes]] = field(default_factory=dict)
    times: tuple[int, ...] = ()
    looks: tuple[int, ...] = ()
    idle: tuple[str, ...] = ()
    silenced: dict[str, str] = field(default_factory=dict)
    latest: dict[str, int] = field(default_factory=dict)

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
        silenced = dict(self.silenced)
        latest = dict(self.latest)
        return Clocks({}, self.parts(), self.times, self.looks, self.idle, silenced, latest)

    @property
    def agreed(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[str, ...]]:
        """What must be the same in all lanes of a run."""
        return self.times, self.looks, self.idle

    def times_of(self, spec: LaneClock) -> tuple[int, ...]:
        """The last times that a clock goes by, the latest first."""
        return self.looks if spec.by_looks else self.times


@dataclass(frozen=True)
class Silence:
    """What was declared of a replica: sources that are paused, or rows that were not read.

    `paused` and `blocked` are sources; ALL of them, where a replica is meant.
    """

    paused: tuple[str, ...] = ()
    blocked: tuple[str, ...] = ()

    def to_json(self) -> str:
        """The text of an entry of the control log."""
        given = {name: list(value) for name, value in asdict(self).items() if value}
        return json.dumps(given, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> "Silence":
        """What such a text declares."""
        return cls(**{name: tuple(value) for name, value in json.loads(text).items()})


ALL: Final = "*"
"""All sources of a replica."""


@dataclass(frozen=True)
class Pace:
    """What the clocks of a trigger showed, by replica.

    `beats` are by the name of the state, and so are the clocks that were `used`.
    """

    stables: Mapping[str, int] = field(default_factory=dict)
    passed: tuple[str, ...] = ()
    awaited: tuple[str, ...] = ()
    beats: Mapping[str, Beat] = field(default_factory=dict)
    used: Mapping[str, LaneClock] = field(default_factory=dict)


def advance(
    clocks: Clocks,
    specs: Sequence[LaneClock],
    parcels: Sequence[Parcel],
    inputs: Sequence[InputStatus],
) -> Pace:
    """Step all clocks with the lines of a trigger; nothing happens without any."""
    for one in sorted(parcels, key=lambda parcel: parcel.log):
        if one.entry == CLOCK and one.settings is not None:
            clocks.silenced[one.input] = one.settings
    if not parcels:
        return Pace()
    # A clock that was set back stands still.
    time = max([*(one.at or TIMELESS for one in parcels), *clocks.times[:1]])
    look = max([*(one.look or TIMELESS for one in parcels), *clocks.looks[:1]])
    beats: dict[str, Beat] = {}
    of: dict[str, Beat] = {}
    used: dict[str, LaneClock] = {}
    for spec in specs:
        served = [one.name for one in inputs if spec.serves(one.name)]
        mine = [one for one in parcels if one.lines is not None and spec.serves(one.input)]
        for name in sorted({spec.key(n) for n in [*served, *(one.input for one in mine)]}):
            lines = [one for one in mine if spec.key(one.input) == name]
            present = [] if spec.by_source else [n for n in served if spec.key(n) == name]
            now = look if spec.by_looks else time
            beats[name] = _step(clocks, spec, name, lines, present, now)
            used[name] = spec
        of |= {n: beats[spec.key(n)] for n in served if spec.key(n) in beats}
    clocks.times = (time, *clocks.times[:1])
    clocks.looks = (look, *clocks.looks[:1])
    return replace(_paced(clocks, specs, inputs, of), beats=beats, used=used)


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
    latest = [one.latest for one in parcels if one.latest is not None]
    if latest:
        clocks.latest[name] = max([*latest, clocks.latest.get(name, NEVER_UNITS)])
    lines = fold([from_table(one.lines) for one in parcels if one.lines is not None])
    before = clocks.times_of(spec)
    paused, blocked = (_declared(clocks, spec, name, what) for what in ("paused", "blocked"))
    if not spec.is_timed:
        polled, now = None, max(TIMELESS, state.now)
    else:
        polled, now = time, max(before[0] if before else TIMELESS, state.now)
    behind: tuple[str, ...] = ()
    since = before[1] if len(before) > 1 else TIMELESS
    if spec.is_timed and not spec.has_arrival and len(lines):
        # They arrived after the poll of the trigger before, which followed the one before it.
        lines = _since(lines, since)
    if spec.has_arrival and not spec.by_looks and len(lines):
        read, behind = _backlog(lines, since, together=spec.by_source)
        now = max(state.now, min(now, read))
    return state.step(
        lines,
        now,
        paused=paused,
        blocked=blocked,
        present=present,
        behind=behind,
        polled=polled,
    )


def _backlog(lines: Summaries, since: int, *, together: bool) -> tuple[int, tuple[str, ...]]:
    """Up to which arrival all rows were read, and the sources whose rows are far behind that.

    Rows that arrived before the time `since`, of the trigger before the last one, were there
    when the last trigger read: others may wait as well.  Sources `together` are read as one,
    others each by itself.
    """
    latest = np.full(len(lines.names), NEVER_UNITS, np.int64)
    np.maximum.at(latest, lines.source, lines.after)
    read = int(latest.max() if together else latest.min())
    far = latest < since - FAR
    if together:
        far &= read < since - FAR
    return read, tuple(lines.names[at] for at in np.flatnonzero(far).tolist())


def _declared(clocks: Clocks, spec: LaneClock, name: str, what: str) -> list[str]:
    """The sources of a clock that were declared paused, or blocked."""
    found: dict[str, None] = {}
    for replica, text in sorted(clocks.silenced.items()):
        if not spec.serves(replica) or spec.key(replica) != name:
            continue
        sources = getattr(Silence.from_json(text), what)
        if not spec.by_source:
            found |= dict.fromkeys([replica] if sources else [])
        else:
            every = clocks.states[name].names
            found |= dict.fromkeys(every if ALL in sources else ())
            others = [one for one in sources if one != ALL]
            # Rows wait at a partition of Kafka: it may be one of another replica.
            found |= dict.fromkeys(o for o in others if what == "paused" or o in every)
    return list(found)


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
    for one in inputs:
        beat = of.get(one.name)
        if beat is None or not len(beat.names):
            continue
        spec = next(spec for spec in specs if spec.serves(one.name))
        if not spec.by_source and spec.unit_of(one.name) is None:
            silent.append(one.name)  # no bounds: it has no clock to be waited for
            continue
        places = _places(beat, one.name, spec)
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


def _places(beat: Beat, replica: str, spec: LaneClock) -> Ints:
    if spec.by_source:
        return np.arange(len(beat.names))
    unit = spec.unit_of(replica)
    return np.array([beat.names.index(unit)] if unit in beat.names else [], np.int64)


def record_of(clocks: Clocks, pace: Pace, *, keeps_ends: bool = False) -> ClockRecord:
    """What the progress shows of the clocks after a step.

    `keeps_ends`: no event of the output ends after the row from which it comes, so that time
    passes in vain when all rows have ended.
    """
    counts = dict.fromkeys((state.word for state in State), 0)
    held, found, dues, every = {}, [], [], []
    unknown: Counter[str] = Counter()
    ahead: Counter[str] = Counter()
    changes: list[dict[str, Any]] = []
    for name, beat in pace.beats.items():
        for word, count in beat.counts.items():
            counts[word] += count
        if beat.holder is not None:
            held[name] = str(beat.holder)
        unknown.update(beat.unknown)
        ahead.update(beat.ahead_of)
        changes += [{"clock": name, **asdict(one)} for one in beat.changes]
        state = clocks.states[name]
        found += [{"clock": name, **_shown(one, state)} for one in beat.worst(_WORST)]
    for name, spec in pace.used.items():
        dues += _dues(clocks.states[name], pace.beats[name], clocks.times_of(spec)[0])
        passes = spec.clock.rules.delay is not None
        if passes and not (keeps_ends and _is_over(clocks, pace.beats[name], name)):
            every.append(spec.clock.resolution)
    found.sort(key=lambda one: (one["heartbeat"] is not None, one["heartbeat"] or 0))
    return ClockRecord(
        time=max(clocks.times[0], clocks.looks[0]),
        states=counts,
        held_by=held,
        due=min(dues, default=None),
        every=min(every, default=None),
        ahead=ahead.total(),
        ahead_of=ahead,
        sources=found[:_WORST],
        unknown=unknown,
        changed=len(changes),
        changes=changes,
    )


def _is_over(clocks: Clocks, beat: Beat, name: str) -> bool:
    """Whether all rows of a clock have ended, or will never, for all sources that count."""
    latest = clocks.latest.get(name)
    counting = ~np.isin(beat.states, _SILENT)
    return latest is not None and bool((beat.heartbeat[counting] >= latest).all())


def _shown(one: Report, state: ClockState) -> dict[str, Any]:
    """What a record has of a source: the report, and its bound as it is now."""
    pairs = state.bounds_of(one.name)
    bound = [{"rows" if p.rows else "wait": p.wait, "distance": p.distance} for p in pairs]
    delay = state.clock.rules.delay
    bound += [] if delay is None else [{"delay": delay}]
    return asdict(one) | {"state": one.state.word, "bound": bound}


def _dues(state: ClockState, beat: Beat, time: int) -> list[int]:
    """The times at which a clock shows something new although no row comes.

    Silence counts only between looks that are not far apart, so that it needs one in between.
    """
    rules, found = state.clock.rules, [int(one) for one in state.promises.due]
    idle_after = state.clock.idle_after
    active = beat.states == State.ACTIVE
    if idle_after is not None and active.any():
        silent = int(state.silent_since[active].min())
        found.append(min(silent + idle_after, time + idle_after // 2))
    seen = state.last != NEVER_UNITS
    if rules.timeout is not None and seen and (state.heartbeat < state.greatest.max()).any():
        found.append(state.last + rules.timeout)
    if state.learner is not None and state.last > beat.now:
        found.append(state.last + max(state.learner.spec.waits))
    return found
