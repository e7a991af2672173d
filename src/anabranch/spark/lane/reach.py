"""How far the whole query is, for the steps of a lane that go by it (`optional.Paced`).

Packers send the greatest start of their rows to every lane, so all lanes know the same.  A step
gets it as its input has it: behind a step that moves times it is moved as frontiers are.  The
lanes of a stage send it on with their elements.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from anabranch.batch.batch import NEVER_UNITS
from anabranch.operators.abilities import Leveled, MovesTime, Paced
from anabranch.operators.contract import (
    ControlEntry,
    Inputs,
    NewSettings,
    Operator,
    Reached,
    State,
)
from anabranch.operators.pipeline import Edge, Pipeline
from anabranch.spark.pack.parcels import LEVEL, Parcel


@dataclass
class Reach:
    """The greatest start of a trigger behind each stream and step, and the trigger's time.

    `level` is the level of consistency that counts from this trigger on, if it is another one.
    """

    at: dict[str, int] = field(default_factory=dict)
    time: int | None = None
    level: str | None = None

    @classmethod
    def of(cls, parcels: Sequence[Parcel], names: Sequence[str]) -> "Reach":
        """What the parcels of a trigger report, for these entries or streams."""
        at = {}
        for name in names:
            mine = [one.greatest for one in parcels if one.input == name]
            at[name] = _greatest(mine)
        return cls(at, _time(parcels), _level(parcels))

    @classmethod
    def of_rows(cls, parcels: Sequence[Parcel], entries: Sequence[str]) -> "Reach":
        """What packers report: the greatest start of all rows counts for every entry."""
        greatest = _greatest([one.greatest for one in parcels])
        levels = [one for one in parcels if one.entry == LEVEL]
        return cls(dict.fromkeys(entries, greatest), _time(parcels), _level(levels))

    def given(
        self, pipeline: Pipeline, states: Mapping[str, State], inputs: Mapping[str, Inputs]
    ) -> dict[str, Inputs]:
        """What the steps are given, with how far the query is for those that go by it."""
        made, last = dict(inputs), next(iter(inputs))
        for one in pipeline:
            at = self.at.get(one.id)
            if at is None:
                at = min(self.at[edge.of] for edge in one.reads or (Edge(last),))
            last = last if one.observes else one.id
            self.at[one.id] = _moved(states[one.id], at)
            operator = one.operator
            if isinstance(operator, Paced) and operator.is_paced:
                own = made.get(one.id, Inputs())
                entries = (*self._settings(operator), Reached(at, self.time))
                made[one.id] = replace(own, control=(*own.control, *entries))
        return made

    def _settings(self, operator: Operator) -> tuple[ControlEntry, ...]:
        """The level, for an operator that follows it."""
        follows = isinstance(operator, Leveled) and operator.is_leveled
        return (NewSettings(self.level),) if self.level is not None and follows else ()


def _moved(state: State, time: int) -> int:
    """The time behind a step, as it moves frontiers."""
    is_time = time != NEVER_UNITS
    return state.passed(time) if is_time and isinstance(state, MovesTime) else time


def _greatest(found: Sequence[int | None]) -> int:
    return max((one for one in found if one is not None), default=int(NEVER_UNITS))


def _level(parcels: Sequence[Parcel]) -> str | None:
    """The last level that was set in the trigger; stages send it on with all that they send."""
    found = [one for one in parcels if one.settings is not None]
    return max(found, key=lambda one: one.log).settings if found else None


def _time(parcels: Sequence[Parcel]) -> int | None:
    times = [time for one in parcels for time in (one.at, one.look) if time]
    return max(times, default=None)
