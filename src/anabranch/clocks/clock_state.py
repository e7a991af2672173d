"""A clock over many sources, in columns: summaries in, heartbeats and one stable out.

A `Clock` (`clock`) makes a `ClockState`, which a lane keeps, saves in parts (`saved`) and
changes in place:

    step(summaries, now, paused=, blocked=, present=) -> Beat

`now` is a time of the wall clock that is handed in; it never goes back.  The caller promises
that every row that arrived up to `now`, of a source that is not blocked, is in this step or an
earlier one.  The step takes all rows first, then makes what is due at `now` take effect (H5).

* The same summaries and times give the same state, bit by bit: lines are folded in the order
  of tick and source, whatever tasks they came from.
* A heartbeat and the stable never go back, also if the bounds change at a restart.
* A heartbeat is never above that of `reference.Heartbeats`, and equal to it if every instant
  is a step, except that rows of one tick do not count as a sequence.
* State is one line per unit (source or group) and the promises that are pending.

Papers: Heartbeats 3, 3.4, 5, with errata H2 to H6, H18, H19; D3, D8, D13.

>>> from anabranch.clocks.builders import disorder
>>> from anabranch.clocks.clock import Clock
>>> from anabranch.clocks.summary import summarise
>>> state = Clock(disorder(10)).empty()
>>> beat = state.step(summarise(["a", "b"], [100, 90], [1, 1]), now=1)
>>> beat.stable, str(beat.holder)
(80, 'b (active): its rows move its heartbeat')
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from anabranch.batch.batch import FOREVER_UNITS, NEVER_UNITS, Codes, Ints, Mask
from anabranch.clocks.beat import Beat, with_holder
from anabranch.clocks.bounds import Bounds
from anabranch.clocks.clock import Clock
from anabranch.clocks.forget import forget_silent
from anabranch.clocks.learn import Learner, Learning
from anabranch.clocks.pairs import Pairs
from anabranch.clocks.promises import Count, Counts, Promises
from anabranch.clocks.rules import AlikeRules
from anabranch.clocks.states import State, decide_all
from anabranch.clocks.summary import Summaries, only, renamed
from anabranch.clocks.units import less
from anabranch.errors import UsageError

Names: TypeAlias = tuple[Collection[str], ...]
"""Sources that are paused, blocked, present and behind."""


class ClockState:
    """What a clock remembers; `step` changes it in place."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.names: list[str] = []
        self._place: dict[str, int] = {}
        self.heartbeat = np.empty(0, np.int64)
        self.greatest = np.empty(0, np.int64)
        self.silent_since = np.empty(0, np.int64)
        self.excused = np.empty(0, np.int64)
        self.changed = np.empty(0, np.int64)
        self.promises = Promises()
        self.counts = Counts()
        spec = clock.bounds
        self.learner = Learner(spec) if isinstance(spec, Learning) else None
        self.now = NEVER_UNITS
        self.last = NEVER_UNITS
        self.overall = NEVER_UNITS
        self.mark = self.blocks = 0
        groups = dict(clock.groups)
        named = clock.groups and isinstance(spec, Bounds)
        self._members = {name: at for at, name in enumerate(groups)} if named else None
        self._grouped = {} if named else groups
        self.add_units(clock.rules.units())

    def __repr__(self) -> str:
        return f"ClockState({len(self.names)} units, {len(self.promises)} promises, {self.now})"

    def __len__(self) -> int:
        return len(self.names)

    @property
    def stable(self) -> int | None:
        """The time up to which nothing more comes; None: nothing is promised yet."""
        return None if self.overall == NEVER_UNITS else self.overall + 1

    @property
    def pending(self) -> int:
        """How many promises wait for their time, or for rows."""
        return len(self.promises) + len(self.counts)

    def bounds_of(self, unit: str) -> Pairs:
        """The bounds of a source or group on itself, as they are now; none: not learned yet."""
        if self.learner is not None:
            return self.learner.bounds_of(unit)
        return self.clock.rules.own(unit)

    def step(
        self,
        summaries: Summaries,
        now: int,
        *,
        paused: Collection[str] = (),
        blocked: Collection[str] = (),
        present: Collection[str] = (),
        behind: Collection[str] = (),
        polled: int | None = None,
    ) -> Beat:
        """Take what arrived, let the clock show `now`, return what holds from then on.

        `present` are sources that are there, perhaps without rows; a source that is `paused`
        and was never seen is none.  Of those `behind` rows came that arrived long before: `now`
        is as late as that, and they are shown as blocked.  Rows may have arrived after `now`,
        up to `polled`: they promise what they do without any wait, and end a silence.  Rows of
        a source for which there are no bounds move nothing; the beat counts them.
        """
        if now < self.now:
            message = f"the wall clock shows {now}, after {self.now}; hand in one that rises"
            raise UsageError(message)
        named: Names = (paused, blocked, present, behind)
        unknown: dict[str, int] = {}
        if self.clock.rules.units():  # bounds of named sources
            summaries, named, unknown = self._bounded(summaries, named)
        if self._grouped:  # a group learns as one source
            summaries = renamed(summaries, self._grouped)
        units, declared = self._placed(summaries.names, named, now)
        off, held, there, late = [self._mask(places) for places in declared]
        received = np.full(len(self.names), NEVER_UNITS, np.int64)
        ahead = np.zeros(len(self.names), np.int64)
        before = self.heartbeat.copy(), self.silent_since.copy()
        believed = self._take(summaries, units, received, ahead)
        came = received != NEVER_UNITS
        self._at_once(np.flatnonzero(came & (held | (received > now))))
        changes = self.learner.learn(believed) if self.learner else []
        self._settle(now, held)
        self._silence(now, received, held, now if polled is None else max(now, polled))
        idle_after, shown = self.clock.idle_after, held | late
        states = decide_all(
            self.silent_since, now, paused=off, blocked=shown, idle_after=idle_after
        )
        moved, holder = self._overall(states)
        self.mark += 1
        other = (self.heartbeat != before[0]) | (self.silent_since != before[1])
        self.changed[other | came] = self.mark
        self.now = now
        greatest, since = self.greatest.copy(), self.silent_since.copy()
        beat = Beat(
            now, self.stable, moved, tuple(self.names), self.heartbeat.copy(), greatest,
            states, since, ahead, off, idle_after, None, tuple(changes), unknown,
            None if self.learner is None else self.learner.unready,
        )  # fmt: skip
        forget_silent(self, states, off | held | there)
        return with_holder(beat, holder)

    def check(self) -> None:
        """Assert every invariant."""
        lengths = (len(self.names), len(self._place), len(self.heartbeat))
        assert len(set(lengths)) == 1, f"numbers of names, places, heartbeats differ: {lengths}"
        self.promises.check(self.heartbeat)
        assert all(self.counts.by_unit.values()), (
            f"an empty list of counts: {self.counts.by_unit}"
        )
        assert (self.changed <= self.mark).all(), f"changed {self.changed} > mark {self.mark}"

    def has_unit(self, name: str) -> bool:
        """Whether there is such a source or group."""
        return name in self._place

    def place_of(self, name: str) -> int:
        """The place of a unit in the columns."""
        return self._place[name]

    def rename(self, names: Sequence[str]) -> None:
        """The units are these, in this order; their columns follow."""
        self.names = list(names)
        self._place = {name: at for at, name in enumerate(self.names)}

    def add_units(self, names: Sequence[str], now: int = NEVER_UNITS) -> None:
        """New units, which have been silent since now, or since the first step."""
        for name in names:
            self._place[name] = len(self.names)
            self.names.append(name)
        new = np.full(len(names), NEVER_UNITS, np.int64)
        self.heartbeat = np.concatenate([self.heartbeat, new])
        self.greatest = np.concatenate([self.greatest, new])
        since = np.full(len(names), now, np.int64)
        self.silent_since = np.concatenate([self.silent_since, since])
        self.excused = np.concatenate([self.excused, np.zeros(len(names), np.int64)])
        mark = np.full(len(names), self.mark + 1, np.int64)
        self.changed = np.concatenate([self.changed, mark])

    def _known_units(self, sources: Sequence[str], now: int) -> dict[str, int]:
        """The unit of each source, by its place; units that are new are added, in order."""
        unit_of = self.clock.rules.unit_of
        units = {name: unit_of(name) for name in dict.fromkeys(sources)}
        new = sorted({unit for unit in units.values() if unit not in self._place})
        if new:
            self.add_units(new, now)
        return {name: self._place[unit] for name, unit in units.items()}

    def _placed(
        self, sources: Sequence[str], named: Names, now: int
    ) -> tuple[dict[str, int], list[list[int]]]:
        """The unit of each source of a step by its place, and those of each of `named`."""
        paused, *others = self._grouped_names(named)
        units = self._known_units([*sources, *(name for some in others for name in some)], now)
        unit_of, place = self.clock.rules.unit_of, self._place
        off = [unit for name in paused if (unit := unit_of(name)) in place]
        places = [[units[name] for name in some] for some in others]
        return units, [[place[unit] for unit in off], *places]

    def _bounded(
        self, rows: Summaries, named: Names
    ) -> tuple[Summaries, Names, dict[str, int]]:
        """Rows and names of sources that have bounds; and how many rows each other one has."""
        knows = self.clock.rules.knows
        kept, others = only(rows, knows)
        unknown = {name: 0 for some in named for name in some if not knows(name)}
        known = tuple([name for name in some if knows(name)] for some in named)
        return kept, known, unknown | others

    def _grouped_names(self, named: Names) -> Names:
        """The names of sources that are paused and so on, or of their groups that learn."""
        paused, *others = named
        found, of = (self._wholly(paused), *others), self._grouped
        return tuple({of.get(name, name) for name in some} for some in found) if of else found

    def _wholly(self, paused: Collection[str]) -> Collection[str]:
        """The sources that are paused with all others of their group."""
        if not self.clock.groups:
            return paused
        awake = {group for name, group in self.clock.groups if name not in paused}
        group_of = dict(self.clock.groups)
        return [name for name in paused if group_of.get(name) not in awake]

    def _mask(self, places: Sequence[int]) -> Mask:
        mask = np.zeros(len(self.names), np.bool_)
        mask[list(places)] = True
        return mask

    def _take(
        self, rows: Summaries, units: Mapping[str, int], received: Ints, ahead: Ints
    ) -> Summaries:
        """All rows of the step, tick by tick: they promise, count, and are received.

        Returns the rows without the times that are not believed.
        """
        if not len(rows):
            return rows
        unit = np.array([units[name] for name in rows.names], np.int64)[rows.source]
        greatest = self._guarded(rows, unit, ahead)
        count = np.where(greatest == NEVER_UNITS, 0, rows.count)
        believed = replace(rows, greatest=greatest, count=count)
        np.add.at(ahead, unit, rows.ahead)
        order = np.lexsort((rows.source, rows.upto))
        order = order[(rows.count[order] > 0) & (greatest[order] != NEVER_UNITS)]
        upto, unit, greatest = rows.upto[order], unit[order], greatest[order]
        np.maximum.at(received, unit, upto)
        np.maximum.at(self.greatest, unit, greatest)
        key, names = unit, self.names
        if self._members is not None:
            names = list(self._members)
            key = np.array([self._members[name] for name in rows.names], np.int64)
            key = key[rows.source][order]
        self.promises.add(*self.clock.rules.promises(key, upto, greatest, names))
        if self.clock.rules.counts_rows:
            self._count_rows(rows, order, unit, greatest)
        if len(upto):
            self.last = max(self.last, int(upto.max()))
        return believed

    def _guarded(self, rows: Summaries, unit: Ints, ahead: Ints) -> Ints:
        """The greatest time of each line that is believed."""
        greatest = rows.greatest.copy()
        if self.clock.jump is None or not len(self.greatest):
            return greatest
        seen = self.greatest[unit]
        seen = np.where(seen == NEVER_UNITS, self.greatest.max(), seen)
        far = (seen != NEVER_UNITS) & (greatest != NEVER_UNITS)
        far &= greatest.astype(np.float64) - seen > self.clock.jump
        for line in np.flatnonzero(far).tolist():
            greatest[line], over = rows.below(line, int(seen[line]) + self.clock.jump)
            ahead[unit[line]] += over
        return greatest

    def _count_rows(self, rows: Summaries, order: Ints, unit: Ints, greatest: Ints) -> None:
        """Promises that count rows: first these rows count, then they promise."""
        rules = {
            int(one): self.clock.rules.row_rules(self.names[one], self.names)
            for one in np.unique(unit)
        }
        due: list[tuple[int, int, int]] = []
        for line, one, time in zip(
            order.tolist(), unit.tolist(), greatest.tolist(), strict=True
        ):
            after, upto = int(rows.after[line]), int(rows.upto[line])
            found = self.counts.see(one, after, upto, int(rows.count[line]))
            due += [(one, when, value) for when, value in found]
            for rule in rules[one]:
                value = max(time - rule.distance, NEVER_UNITS)
                count = Count(upto + rule.before, rule.rows, value, rule.latency)
                self.counts.add(rule.unit, count)
        if due:
            self.promises.add(*np.array(due, np.int64).T)

    def _at_once(self, units: Ints) -> None:
        """What a source promises about itself with the rows that were read, however late.

        These are taken as a sequence: what waits comes behind them (H10).
        """
        rules = self.clock.rules
        if isinstance(rules, AlikeRules):  # the same for all of them
            distance = rules.at_once("")
            if distance is not None:
                values = less(self.greatest[units], distance)
                self.heartbeat[units] = np.maximum(self.heartbeat[units], values)
            return
        for one in units.tolist():
            distance = rules.at_once(self.names[one])
            if distance is not None:
                value = int(self.greatest[one]) - distance
                self.heartbeat[one] = max(int(self.heartbeat[one]), value)

    def _settle(self, now: int, held: Mask) -> None:
        """What is due at `now` takes effect, except for sources whose rows wait."""
        rules, free = self.clock.rules, ~held
        if rules.delay is not None:
            self.heartbeat[free] = np.maximum(self.heartbeat[free], now - rules.delay)
        silent = rules.timeout is not None and self.last != NEVER_UNITS and free.all()
        if silent and now - self.last >= (rules.timeout or 0):
            np.maximum(self.heartbeat, self.greatest.max(), out=self.heartbeat)
        if self.learner is not None:
            self.learner.raise_heartbeats(self.heartbeat, self.place_of, now, held)
        self.promises.settle(self.heartbeat, now, held)
        self.counts.settle(self.heartbeat, now // self.clock.resolution * self.clock.resolution)

    def _silence(self, now: int, received: Ints, held: Mask, polled: int) -> None:
        """Silence begins with the last arrival, or where nobody had looked for too long.

        That is excused once in each silence: a source that is found empty twice is silent,
        also if looks are always far apart.
        """
        idle_after = self.clock.idle_after
        self.silent_since[self.silent_since == NEVER_UNITS] = now
        if idle_after is not None and self.now != NEVER_UNITS and now - self.now > idle_after:
            first = self.excused == 0
            self.silent_since[first] = now
            self.excused[first] = 1
        self.silent_since[held] = now
        came = received != NEVER_UNITS
        self.silent_since[came] = np.minimum(
            np.maximum(received[came], self.silent_since[came]), polled
        )
        self.excused[came | held] = 0

    def _overall(self, states: Codes) -> tuple[bool, int | None]:
        """Raise the stable as far as all that count allow; did it move, and who holds it."""
        if not len(states):
            return False, None
        counts = (states == State.ACTIVE) | (states == State.BLOCKED)
        holder: int | None = None
        if counts.any():
            limited = np.where(counts, self.heartbeat, FOREVER_UNITS)
            holder = int(np.argmin(limited))
            reached = int(limited[holder])
        else:
            reached = int(self.greatest.max())
        moved = reached > self.overall
        self.overall = max(self.overall, reached)
        return moved, holder
