"""Report what is final: each event once, when it cannot change any more.

The input is a stream of elements; `final` of a step are the events that its stables freeze, as
inserts, by start and payload.  Nothing is ever taken back, so any sink that can append can take
it.  At every prefix it is exactly the frozen events of the input's history (`model.frozen`).
The output has no elements: these inserts come after the stable that freezes them.

With `final_at_start` ends are known: an event changes only by its removal, and only while a
stable has not passed its start.  Then it is final as soon as its start is before the frontier.
A window is reported so in the step in which the input's frontier reaches its end.  What has no
end is reported when the stream ends, by stable(FOREVER), and never before.

Remembered: every event that is not final.  A step looks at the events that it touches and at
those that it makes final, not at the others.

Compare `anabranch.operators.cleanse`, which waits longer, for an order that replicas share.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from anabranch.batch.batch import Batch
from anabranch.batch.events import nothing
from anabranch.batch.schema import ElementSchema
from anabranch.model.properties import StreamProperties, shared
from anabranch.operators.contract import Route
from anabranch.operators.state.codec import StateKind
from anabranch.operators.state.groups import final_by, first_ends, is_frozen
from anabranch.operators.state.reshape import Reshape
from anabranch.operators.unary import END, START, Changed, UnaryState
from anabranch.operators.unary_judge import Judged


@dataclass(frozen=True)
class ReportFinalOperator:
    """Report events when they are final."""

    schema: ElementSchema
    name: str = "final"
    route: Route = Route.IDENTITY
    route_columns: Sequence[str] = ()
    final_at_start: bool = field(default=False, kw_only=True)

    @property
    def output(self) -> ElementSchema:
        """Elements with the columns of the input."""
        return replace(self.schema, has_seq=False, has_replica=False)

    def properties(self, *inputs: StreamProperties) -> StreamProperties:
        """Of what is reported: no adjusts; where ends are known it comes by start and value."""
        known, in_order = shared(inputs), self.final_at_start
        return StreamProperties(
            insert_only=True,
            ordered=in_order,
            strictly_increasing=in_order and known.strictly_increasing,
            ties_in_same_order=in_order,
            keyed=known.keyed,
        )

    def empty(self) -> "ReportFinalState":
        """Nothing has happened."""
        return self._kind(self.schema)

    def from_parts(self, parts: Mapping[str, bytes]) -> "ReportFinalState":
        """The state that was saved; StateError if of another kind, version or schema."""
        return self._kind.from_parts(parts, self.schema)

    def split(
        self, state: "ReportFinalState", lanes: int, by: Route, reshape: Reshape | None = None
    ) -> list["ReportFinalState"]:
        """What a state of one lane remembers, by the lane that it belongs to from now on."""
        mine = state.groups.by_lane(lanes, by, reshape)
        return [self._kind.of_shares([state], [ids]) for ids in mine]

    def unite(
        self, states: Sequence["ReportFinalState"], reshape: Reshape | None = None
    ) -> "ReportFinalState":
        """One lane's shares of the states of all former lanes as one state."""
        every = [one.groups.table.living() for one in states]
        return self._kind.of_shares(states, every, reshape)

    @property
    def _kind(self) -> "type[ReportFinalState]":
        return FinalAtStartState if self.final_at_start else ReportFinalState


class ReportFinalState(UnaryState):
    """What it remembers for one lane; `FINAL_BY` is the time that the frontier must pass."""

    KIND = StateKind("anabranch final", version=1)
    FINAL_BY = END

    def take(self, batch: Batch) -> tuple[Judged, Changed]:
        """Note what came, and report what its stables make final."""
        groups, touched = self.find(batch)
        judged = self.judge(batch, groups, self.groups.read(touched))
        rows = np.stack([judged.start, judged.end], axis=1)
        by = self.FINAL_BY
        self.groups.write_until_final(touched, judged.group, rows, self.mark, by=by)
        if judged.frontier == self.received:
            return judged, Changed(nothing(self.schema), nothing(self.schema))
        self.received = judged.frontier
        final, visits = self.groups.release(self.schema, self.received, self.mark, by=by)
        return judged, Changed(nothing(self.schema), final, {"visits": visits})

    def restored(self) -> None:
        """All events are due at their ends, or starts."""
        self.groups.schedule(*first_ends(*self.groups.all(), by=self.FINAL_BY))

    def check(self) -> None:
        """Assert every invariant."""
        super().check()
        _, rows = self.groups.all()
        final = is_frozen(final_by(rows, self.FINAL_BY), self.received)
        assert not final.any(), f"final at {self.received}, in the state: {rows[final]}"


class FinalAtStartState(ReportFinalState):
    """The state where ends are known."""

    KIND = StateKind("anabranch final at start", version=1)
    FINAL_BY = START
