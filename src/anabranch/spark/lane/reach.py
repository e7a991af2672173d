"""How far the whole query is, for the steps of a lane that go by it (`optional.Paced`).

Packers send the greatest start of their rows to every lane, so all lanes know the same.  A step
gets it as its input has it: behind a step that moves times it is moved as frontiers are.  The
lanes of a stage send it on with their elements.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from anabranch.batch.batch import NEVER_UNITS
from anabranch.operators.abilities import MovesTime, Paced
from anabranch.operators.contract import Inputs, Reached, State
from anabranch.operators.pipeline import Edge, Pipeline
from anabranch.spark.pack.parcels import Parcel


@dataclass
class Reach:
    """The greatest start of a trigger behind each stream and step, and the trigger's time."""

    at: dict[str, int] = field(default_factory=dict)
    time: int | None = None

    @classmethod
    def of(cls, parcels: Sequence[Parcel], names: Sequence[str]) -> "Reach":
        """What the parcels of a trigger report, for these entries or streams."""
        at = {}
        for name in names:
            mine = [one.greatest for one in parcels if one.input == name]
            at[name] = _greatest(mine)
        return cls(at, _time(parcels))

    @classmethod
    def of_rows(cls, parcels: Sequence[Parcel], entries: Sequence[str]) -> "Reach":
        """What packers report: the greatest start of all rows counts for every entry."""
        greatest = _greatest([one.greatest for one in parcels])
        return cls(dict.fromkeys(entries, greatest), _time(parcels))

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
                entry = Reached(at, self.time)
                made[one.id] = replace(own, control=(*own.control, entry))
        return made


def _moved(state: State, time: int) -> int:
    """The time behind a step, as it moves frontiers."""
    is_time = time != NEVER_UNITS
    return state.passed(time) if is_time and isinstance(state, MovesTime) else time


def _greatest(found: Sequence[int | None]) -> int:
    return max((one for one in found if one is not None), default=int(NEVER_UNITS))


def _time(parcels: Sequence[Parcel]) -> int | None:
    times = [time for one in parcels for time in (one.at, one.look) if time]
    return max(times, default=None)
