"""What an operator or its state can do besides the contract, as protocols.

A host asks by `isinstance`, never by the name of an operator: one that has the attributes of a
protocol keeps its promise.
"""

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from anabranch.operators.contract import Operator, Route, State
from anabranch.operators.state.reshape import Reshape


@runtime_checkable
class TakesAnyLane(Protocol):
    """An operator that may look at each element by itself, so that any lane may take it."""

    @property
    def any_lane(self) -> bool:
        """Whether it does; its `route` is then a habit, not a need."""


@runtime_checkable
class HasForms(Protocol):
    """An operator of several forms with states of their own, such as the cases of a merge."""

    @property
    def label(self) -> str:
        """The form, as a run and its checkpoint record it."""


@runtime_checkable
class ReportsFinal(Protocol):
    """An operator that may know by itself which events become final."""

    def reporting_final(self) -> Operator | None:
        """The same operator with `final` in its results; None if it keeps too little for it."""


@runtime_checkable
class KnowsEnds(Protocol):
    """An operator that states whether the ends of its output are known."""

    @property
    def output_final_at_start(self) -> bool:
        """Whether events change by removal alone, before the frontier passes their start."""


@runtime_checkable
class Forgets(Protocol):
    """A state that stops to recognise final events before all inputs have passed them."""

    @property
    def forgotten(self) -> int:
        """What ended before this time cannot come to the output a second time."""


@runtime_checkable
class Redistributes(Protocol):
    """An operator whose states can be laid out for another number of lanes.

    All states of a run, split and united, remember what they did before, each event in the
    lane that the route gives it now.  What every lane knows stays in every lane, and what lanes
    count (pending elements, conflicts) has the same sum.  If payload columns come and go
    (`reshape`), shares go to the lanes of the payloads after it, as they were before; who
    unites them changes them, for two events of two lanes may become equal.
    """

    def split(
        self, state: Any, lanes: int, by: Route, reshape: Reshape | None = None
    ) -> Sequence[State]:
        """What a state of one lane remembers, by the lane that it belongs to from now on.

        `by` is the route of the first operator of the pipeline, which decides for all.
        """

    def unite(self, states: Sequence[Any], reshape: Reshape | None = None) -> State:
        """One lane's shares of the states of all former lanes, in their order, as one state."""


@runtime_checkable
class Paced(Protocol):
    """An operator that goes by how far the whole query is, and not by its own lane.

    If `is_paced`, its host hands it `contract.Reached` in the last step of each trigger.
    """

    @property
    def is_paced(self) -> bool:
        """Whether it needs that at all."""

    @property
    def needs_time(self) -> bool:
        """Whether it needs the time of the trigger too."""


@runtime_checkable
class Leveled(Paced, Protocol):
    """An operator whose waits follow the query's level of consistency.

    If `is_leveled`, its host hands it `contract.NewSettings` with the text of another level
    (`waiting.level`), in the same step as `contract.Reached` and before it.
    """

    @property
    def is_leveled(self) -> bool:
        """Whether its level may change while it runs."""


@runtime_checkable
class Wakes(Protocol):
    """A state that has something to do at a time of the wall clock, also without rows."""

    @property
    def due(self) -> int | None:
        """The time, in microseconds; None: it waits for nothing."""


@runtime_checkable
class MovesTime(Protocol):
    """A state that maps times of its input to times of its output, as for frontiers."""

    def passed(self, received: int) -> int:
        """The greatest stable that is true of the output, if the input has this one."""


@runtime_checkable
class KeepsPayload(Protocol):
    """An operator that compares events of one payload, and leaves payloads as they are.

    So the lanes of a key of the payload serve it, and what it emits stays in them.
    """

    @property
    def keeps_payload(self) -> bool:
        """Whether that is so."""


def label_of(operator: Operator) -> str:
    """What a run records of an operator: its form, or its name if it has one form only."""
    return operator.label if isinstance(operator, HasForms) else operator.name
