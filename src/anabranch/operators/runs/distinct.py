"""Distinct: each payload once, in maximal runs while at least one of its events is alive.

At the end of every step the output's history is `model.operators.distinct` of the input's, and
stables pass.  An event that bridges two runs lengthens the first and removes the second.

Papers: none; CEDR's snapshot semantics, as maximal runs instead of the cuts of erratum D16.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from anabranch.batch.schema import ElementSchema
from anabranch.model.properties import StreamProperties, shared
from anabranch.operators.aggregate.promises import Emission, Results, after_aggregate
from anabranch.operators.contract import INPUT, Route
from anabranch.operators.runs.levels import LevelsState
from anabranch.operators.state.codec import StateKind


def after_distinct(
    properties: StreamProperties,
    *,
    emission: Emission = Emission.AT_ONCE,
    in_order: bool = False,
) -> StreamProperties:
    """Each payload once while it is alive: a grouped aggregate whose group is the payload.

    A payload is alive in disjoint runs, so its start identifies a run; runs of different
    payloads finish at different times, as groups do.
    """
    return after_aggregate(properties, Results.GROUPED, emission=emission, in_order=in_order)


@dataclass(frozen=True)
class DistinctOperator:
    """Each payload at most once at any time."""

    schema: ElementSchema
    name: str = "distinct"
    route: Route = Route.PAYLOAD
    route_columns: Sequence[str] = ()

    @property
    def output(self) -> ElementSchema:
        """Elements with the columns of the input."""
        return replace(self.schema, has_seq=False, has_replica=False)

    def properties(self, *inputs: StreamProperties) -> StreamProperties:
        """Runs of one payload are disjoint: keyed."""
        return after_distinct(shared(inputs))

    def empty(self) -> LevelsState:
        """Nothing has happened."""
        kind = StateKind("anabranch distinct", version=1)
        return LevelsState(self, kind, {INPUT: 1}, most=1)

    def from_parts(self, parts: Mapping[str, bytes]) -> LevelsState:
        """The state that was saved; StateError if of another kind, version or schema."""
        state = self.empty()
        state.restore(parts)
        return state
