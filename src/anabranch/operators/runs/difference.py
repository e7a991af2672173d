"""Difference: of each payload as many events as left has more than right, as `exceptAll`.

At the end of every step the output's history is `model.operators.difference` of the inputs':
for each payload the normal form of `max(0, left - right)` of the numbers of its live events.
The frontier is the least of both inputs, and stables pass.  Only the difference of the two
numbers is remembered, so an adjust of an event that was never there is not noticed.

Papers: CEDR *theory* 3.1, as a bag, in maximal runs instead of the cuts of erratum D16.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from anabranch.batch.schema import ElementSchema
from anabranch.model.properties import StreamProperties
from anabranch.operators.contract import Port, Route
from anabranch.operators.runs.levels import ANY, LevelsState
from anabranch.operators.state.codec import StateKind


@dataclass(frozen=True)
class DifferenceOperator:
    """The events of the left input without those of the right one; both have one schema."""

    schema: ElementSchema
    name: str = "difference"
    route: Route = Route.PAYLOAD
    route_columns: Sequence[str] = ()

    @property
    def ports(self) -> Mapping[str, Port]:
        """What stays, and what is taken away."""
        port = Port(self.schema, Route.PAYLOAD)
        return {"left": port, "right": port}

    @property
    def output(self) -> ElementSchema:
        """Elements with the columns of the inputs."""
        return replace(self.schema, has_seq=False, has_replica=False)

    def properties(self, *inputs: StreamProperties) -> StreamProperties:
        """Nothing: where an event of the right side ends, several left ones may appear."""
        del inputs
        return StreamProperties()

    def empty(self) -> LevelsState:
        """Nothing has happened."""
        kind = StateKind("anabranch difference", version=1)
        return LevelsState(self, kind, {"left": 1, "right": -1}, most=ANY)

    def from_parts(self, parts: Mapping[str, bytes]) -> LevelsState:
        """The state that was saved; StateError if of another kind, version or schema."""
        state = self.empty()
        state.restore(parts)
        return state
