"""What a step of a clock showed: heartbeats, states, the stable, and the reasons."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from anabranch.batch.batch import NEVER_UNITS, Codes, Ints, Mask
from anabranch.clocks.learn import Change
from anabranch.clocks.states import Look, State, decide


@dataclass(frozen=True, slots=True)
class Holder:
    """The source that the stable waits for, and why."""

    name: str
    state: State
    reason: str

    def __str__(self) -> str:
        return f"{self.name} ({self.state.word}): {self.reason}"


@dataclass(frozen=True, slots=True)
class Report:
    """What a progress record shows of one unit."""

    name: str
    state: State
    reason: str
    heartbeat: int | None
    greatest: int | None
    silent_since: int


@dataclass(frozen=True, eq=False)
class Beat:
    """What a step showed: heartbeats, the stable, and the reasons.

    `stable` is None until every source that counts has a heartbeat; then one more than the
    least of them, never less than before.  `moved`: it is higher than after the step before.
    `ahead` are rows of this step that were too far in the future to move anything; `changes`
    are the bounds that it taught.  `unready`: why a source that counts promises nothing.
    `unknown` counts the rows of sources for which there are no
    bounds; they move nothing.
    """

    now: int
    stable: int | None
    moved: bool
    names: Sequence[str]
    heartbeat: Ints
    greatest: Ints
    states: Codes
    silent_since: Ints
    ahead: Ints
    paused: Mask
    idle_after: int | None
    holder: Holder | None
    changes: tuple[Change, ...] = ()
    unknown: Mapping[str, int] = field(default_factory=dict)
    unready: Callable[[str], str] | None = None

    @property
    def heartbeats(self) -> dict[str, int | None]:
        """The heartbeat of each source or group; None: it promises nothing yet."""
        values = map(_known, self.heartbeat.tolist())
        return dict(zip(self.names, values, strict=True))

    @property
    def ahead_of(self) -> dict[str, int]:
        """The rows of each source that were too far in the future, where there were some."""
        return {
            self.names[at]: int(self.ahead[at]) for at in np.flatnonzero(self.ahead).tolist()
        }

    @property
    def counts(self) -> dict[str, int]:
        """How many sources are in each state."""
        found = np.bincount(self.states, minlength=len(State))
        return {state.word: int(found[state]) for state in State}

    def report(self, at: int, show: Callable[[int], str] = str) -> Report:
        """One unit, by its place."""
        state = State(int(self.states[at]))
        since = int(self.silent_since[at])
        look = Look(
            since,
            self.now,
            paused=bool(self.paused[at]),
            blocked=state is State.BLOCKED,
            ahead=int(self.ahead[at]),
        )
        _, reason = decide(look, idle_after=self.idle_after, show=show)
        beat, greatest = int(self.heartbeat[at]), int(self.greatest[at])
        if beat == NEVER_UNITS and state is State.ACTIVE:
            name = self.names[at]
            reason = "promises nothing yet" if self.unready is None else self.unready(name)
        return Report(self.names[at], state, reason, _known(beat), _known(greatest), since)

    def worst(self, most: int = 10) -> list[Report]:
        """Those that are farthest behind, first those that the stable waits for."""
        counts = np.isin(self.states, [state for state in State if state.counts])
        order = np.lexsort((np.arange(len(self.names)), self.heartbeat, ~counts))
        return [self.report(int(at)) for at in order[:most]]


def _known(units: int) -> int | None:
    return None if units == NEVER_UNITS else units


def with_holder(beat: Beat, at: int | None) -> Beat:
    """The beat with the unit at this place as the one that the stable waits for."""
    if at is None:
        return beat
    report = beat.report(at)
    fields = {name: getattr(beat, name) for name in Beat.__dataclass_fields__}
    return Beat(**fields | {"holder": Holder(report.name, report.state, report.reason)})
