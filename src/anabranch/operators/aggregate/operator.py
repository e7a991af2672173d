"""The grouped snapshot aggregate: what holds at each time, per group, as events.

For each group the output has one event between neighbouring end points (starts and ends) of the
group's input events, with the values of the functions over the events that are alive there, and
none where nothing is alive.  So at every time the snapshot of the output is the relational
aggregate of the snapshot of the input.

* Equal neighbours are not joined: the end points are those of the input (`normalise` joins).
* Stables pass unchanged.  An end point that disappears lengthens the event before it, whose old
  end is not before the frontier.
* `emit` is when an event is emitted, `cut_every` a grid of further end points
  (`anabranch.model.emission`).  Only for "passed" the stable is held back.
* The net difference of a step is emitted: an event with the same start and value but another
  end is adjusted; one with another value is removed and inserted.

Functions that are invertible need no events: end points and sums are kept.  The others
(`functions.BY_VALUE`) keep the events of the input that are not passed.

Papers: CEDR *theory* 3.4 and 3.5, with errata C1 to C9, C12, C29 and decisions D10, D12; the
reference is `operators.reference.aggregate`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import pyarrow as pa

from anabranch.batch.schema import ElementSchema
from anabranch.errors import UsageError
from anabranch.model.emission import Emit
from anabranch.model.properties import StreamProperties, shared
from anabranch.operators.aggregate.emitting import EmittingState
from anabranch.operators.aggregate.functions import Aggregate, check
from anabranch.operators.aggregate.promises import Emission, Results, after_aggregate
from anabranch.operators.aggregate.saving import open_state
from anabranch.operators.aggregate.state import AggregateState
from anabranch.operators.contract import Route


@dataclass(frozen=True)
class AggregateOperator:
    """Aggregate functions per group of equal keys, at every time.

    `final_at_start`: the ends of input events are known when they start to be final; events are
    only removed, and only while their start is not final.  `by_window`: all events of a group
    have one lifetime, a window of a grid, and the input's frontier is the start of the first
    window that may still change.  `name` is the step, for messages.
    """

    schema: ElementSchema
    keys: tuple[str, ...]
    functions: tuple[Aggregate, ...]
    final_at_start: bool = False
    name: str = "aggregate"
    reports_final: bool = False
    emit: Emit = field(default=Emit.AT_ONCE, kw_only=True)
    cut_every: int | None = field(default=None, kw_only=True)
    by_window: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "keys", tuple(self.keys))
        object.__setattr__(self, "functions", tuple(self.functions))
        assert self.output is not None
        self._require_grid()

    def _require_grid(self) -> None:
        """Refuse a grid that cuts nothing, or that would cut windows."""
        if self.cut_every is None:
            return
        if self.cut_every < 1:
            message = (
                f"{self.name}: cut_every={self.cut_every} must be at least 1 unit; give a "
                "duration, or leave it out"
            )
            raise UsageError(message)
        if self.by_window:
            message = (
                f"{self.name}: cut_every={self.cut_every} would cut windows into pieces; leave "
                "it out: after windows the frontier waits for nothing but their ends"
            )
            raise UsageError(message)

    @property
    def route(self) -> Route:
        """All elements of a group are in one lane."""
        return Route.KEY

    @property
    def route_columns(self) -> Sequence[str]:
        """The keys."""
        return self.keys

    @cached_property
    def output(self) -> ElementSchema:
        """The keys, then a column for each function; SchemaError if they do not fit."""
        payload = check(self.functions, self.keys, self.schema.payload, where=self.name)
        return ElementSchema(self.schema.time, payload)

    @property
    def key_schema(self) -> pa.Schema:
        """The columns of the keys."""
        return pa.schema([self.schema.payload.field(key) for key in self.keys])

    @property
    def invertible(self) -> tuple[Aggregate, ...]:
        """The functions of which a removal can be subtracted."""
        return tuple(one for one in self.functions if one.is_invertible)

    @property
    def by_value(self) -> tuple[Aggregate, ...]:
        """The functions that need the values."""
        return tuple(one for one in self.functions if not one.is_invertible)

    @property
    def holds_stables(self) -> bool:
        """Whether the stable waits for a result that is not emitted yet."""
        return self.emit is Emit.PASSED and not self.by_window

    @property
    def output_final_at_start(self) -> bool:
        """Whether output events are final when they start: no, a later start may cut them."""
        return False

    def properties(self, *inputs: StreamProperties) -> StreamProperties:
        """One event per group and time, corrected unless time has passed it: keyed.

        With panes the group has the window as well.  Windows are emitted when a stable passes
        them, and so in the order of their starts.
        """
        known, passed = shared(inputs), self.emit is Emit.PASSED
        if passed and self.by_window:
            emission = Emission.WHEN_STABLE
            return after_aggregate(known, Results.GROUPED, emission=emission, in_order=True)
        results = Results.GROUPED if self.keys else Results.ONE
        emission = Emission.WHEN_PASSED if passed else Emission.AT_ONCE
        return after_aggregate(known, results, emission=emission)

    def reporting_final(self) -> "AggregateOperator":
        """The same operator with the events that become final in its results."""
        return replace(self, reports_final=True)

    def empty(self) -> AggregateState:
        """Nothing has happened."""
        is_plain = self.emit is Emit.AT_ONCE and self.cut_every is None
        return AggregateState(self) if is_plain else EmittingState(self)

    def from_parts(self, parts: Mapping[str, bytes]) -> AggregateState:
        """The state that was saved; StateError if of another kind, version or schema."""
        return open_state(self.empty(), parts)
