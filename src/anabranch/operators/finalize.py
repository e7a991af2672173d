"""Finalize: report each event once, when it cannot change any more.

The input is a stream of elements; `final` of a step are the events that its stables freeze, as
inserts, by start and payload.  Nothing is ever taken back, so any sink that can append can take
it.  At every prefix it is exactly the frozen events of the input's history (`model.frozen`).
The output has no elements: these inserts come behind the stable that freezes them.

Remembered: every event that is not frozen.  A step looks at the events that it touches and at
those that it freezes, not at the others.

Compare `anabranch.operators.cleanse`, which waits longer, for an order that replicas share.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from anabranch.batch.batch import Batch
from anabranch.batch.events import nothing
from anabranch.batch.schema import ElementSchema
from anabranch.operators.contract import Route
from anabranch.operators.state.codec import StateKind
from anabranch.operators.state.groups import first_ends, is_frozen
from anabranch.operators.state.reshape import Reshape
from anabranch.operators.unary import END, Changed, UnaryState
from anabranch.operators.unary_judge import Judged


@dataclass(frozen=True)
class FinalizeOperator:
    """Report events when they are final."""

    schema: ElementSchema
    name: str = "finalize"
    route: Route = Route.IDENTITY
    route_columns: Sequence[str] = ()

    @property
    def output(self) -> ElementSchema:
        """Elements with the columns of the input."""
        return replace(self.schema, has_seq=False, has_replica=False)

    def empty(self) -> "FinalizeState":
        """Nothing has happened."""
        return FinalizeState(self.schema)

    def from_parts(self, parts: Mapping[str, bytes]) -> "FinalizeState":
        """The state that was saved; StateError if of another kind, version or schema."""
        return FinalizeState.from_parts(parts, self.schema)

    def split(
        self, state: "FinalizeState", lanes: int, by: Route, reshape: Reshape | None = None
    ) -> list["FinalizeState"]:
        """What a state of one lane remembers, by the lane that it belongs to from now on."""
        mine = state.groups.by_lane(lanes, by, reshape)
        return [FinalizeState.of_shares([state], [ids]) for ids in mine]

    def unite(
        self, states: Sequence["FinalizeState"], reshape: Reshape | None = None
    ) -> "FinalizeState":
        """One lane's shares of the states of all former lanes as one state."""
        every = [one.groups.table.living() for one in states]
        return FinalizeState.of_shares(states, every, reshape)


class FinalizeState(UnaryState):
    """What finalize remembers for one lane."""

    KIND = StateKind("anabranch finalize", version=1)

    def take(self, batch: Batch) -> tuple[Judged, Changed]:
        """Note what came, and report what its stables freeze."""
        groups, touched = self.find(batch)
        judged = self.judge(batch, groups, self.groups.read(touched))
        rows = np.stack([judged.start, judged.end], axis=1)
        self.groups.write_until_final(touched, judged.group, rows, self.mark)
        if judged.frontier == self.received:
            return judged, Changed(nothing(self.schema), nothing(self.schema))
        self.received = judged.frontier
        final, visits = self.groups.release(self.schema, self.received, self.mark)
        return judged, Changed(nothing(self.schema), final, {"visits": visits})

    def restored(self) -> None:
        """All events are due at their ends."""
        self.groups.schedule(*first_ends(*self.groups.all()))

    def check(self) -> None:
        """Assert every invariant."""
        super().check()
        _, rows = self.groups.all()
        frozen = is_frozen(rows[:, END], self.received)
        assert not frozen.any(), f"ends < frontier {self.received} in the state: {rows[frozen]}"
