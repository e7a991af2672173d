"""Merge as an operator of a pipeline: which case, fixed for a run's life, and which policy.

`MergeOperator` is what a pipeline runs; `open_merge` and `from_parts` are for use by hand.
R0, R1 and R2 have one state (`ordered_state`), R3 and R4 with every policy another (`state`);
both are a `MergeLane`.

R3 and R4 are routed by identity: all elements of an event reach one lane.  R0, R1 and R2
compare the events of one start, so there the start alone decides the lane; a lane sees some of
the starts of each replica, in their order, and the promises of the case hold for it.  What
several lanes do not have is one current start: their common output is valid, but not in the
order of starts.  With one lane it is.

All that a policy decides by stables and membership (who leads, who votes, who is promoted, how
far the output stays behind) is the same in every lane, for these reach every lane.

A state belongs to its policy: the operator's is that of a state to which nothing has happened.
`Change` replaces it at a step, in all lanes; only `violations` is always the operator's, for
nothing that is remembered depends on it.

`reports_final` lets the results of R3 and R4 have the events that each step made final.  R0 to
R2 keep nothing of an event that they have emitted, so they cannot: whoever wants final events
puts `operators.report_final` behind them.

>>> import pyarrow as pa
>>> from anabranch.batch.schema import TimeType
>>> schema = ElementSchema(TimeType.BIGINT, pa.schema({"p": pa.string()}))
>>> merge = open_merge(MergeCase.R3, schema, Policy.parse("inserts=half_frozen"))
>>> len(merge.attach("east", guarantee=7).output), merge.alarm.replica
(0, 'east')
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from anabranch.batch.schema import ElementSchema
from anabranch.errors import StateError
from anabranch.model.properties import MergeCase, StreamProperties, shared
from anabranch.operators.contract import Route
from anabranch.operators.merge import codec, ordered_codec
from anabranch.operators.merge.choose import Choice
from anabranch.operators.merge.ordered_state import CASES, OrderedState
from anabranch.operators.merge.policy import DEFAULT, Policy, require_choice, require_support
from anabranch.operators.merge.state import MergeState
from anabranch.operators.state.reshape import Reshape


def after_merge(properties: StreamProperties, case: MergeCase) -> StreamProperties:
    """The merge of such replicas by this case, as a replica of other such merges.

    R0 to R2 emit only what starts at or after all they emitted, as it came: in order, without
    adjusts; R1 by position, so that ties stay; R2 in the order of arrival.  R3
    and R4 correct ends, and remove what the deciding replica lacks; R4 may repeat an event.
    """
    if case is MergeCase.R0:
        return StreamProperties(insert_only=True, strictly_increasing=True)
    if case in (MergeCase.R1, MergeCase.R2):
        return StreamProperties(
            insert_only=True,
            ordered=True,
            ties_in_same_order=case is MergeCase.R1,
            keyed=properties.keyed or case is MergeCase.R2,
        )
    return StreamProperties(keyed=case is MergeCase.R3)


@dataclass(frozen=True)
class MergeOperator:
    """The case and the policy; with `reports_final` results have what each step made final.

    `final_at_start`: all events of a start and payload have one end, so that an event is
    reported when the frontier has passed its start; else when it has passed its end.
    """

    schema: ElementSchema
    case: MergeCase
    policy: Policy = DEFAULT
    reports_final: bool = False
    final_at_start: bool = False

    @classmethod
    def of(
        cls, schema: ElementSchema, choice: Choice, policy: Policy = DEFAULT
    ) -> "MergeOperator":
        """The chosen case; a policy that it does not support is rejected by name."""
        require_choice(choice, policy)
        return cls(schema, choice.case, policy)

    @classmethod
    def named(
        cls, schema: ElementSchema, label: str, policy: Policy = DEFAULT
    ) -> "MergeOperator":
        """The case of a run that recorded this label."""
        require_support(MergeCase(label), policy)
        return cls(schema, MergeCase(label), policy)

    @property
    def name(self) -> str:
        """The word for it in messages and records."""
        return "merge"

    @property
    def label(self) -> str:
        """The case, as a run and its checkpoint record it."""
        return self.case.value

    @property
    def output(self) -> ElementSchema:
        """Elements with the columns of the inputs, without seq and replica."""
        return replace(self.schema, has_seq=False, has_replica=False)

    @property
    def route(self) -> Route:
        """By start where a case compares the events of one start, else by identity."""
        return Route.START if self.case in CASES else Route.IDENTITY

    @property
    def route_columns(self) -> Sequence[str]:
        """None: identity and start are no columns."""
        return ()

    def properties(self, *inputs: StreamProperties) -> StreamProperties:
        """As a replica of other merges: what its case needs."""
        return after_merge(shared(inputs), self.case)

    def reporting_final(self) -> "MergeOperator | None":
        """The same with `final` in its results; R0 to R2 keep no event that they emitted."""
        return None if self.case in CASES else replace(self, reports_final=True)

    def empty(self) -> OrderedState | MergeState:
        """No replica is attached and nothing has happened."""
        require_support(self.case, self.policy)
        if self.case in CASES:
            return OrderedState.empty(self.case, self.schema, self.policy)
        keyed, final = self.case is MergeCase.R3, self.reports_final
        state = MergeState.empty(
            self.schema, keyed=keyed, policy=self.policy, reports_final=final
        )
        state.final_at_start = self.final_at_start
        return state

    def from_parts(self, parts: Mapping[str, bytes]) -> OrderedState | MergeState:
        """The merge that was saved, with its policy; StateError if of another case."""
        require_support(self.case, self.policy)
        state: OrderedState | MergeState
        if self.case in CASES:
            state = OrderedState.from_parts(parts, self.case, self.schema)
        else:
            state = MergeState.from_parts(parts, self.schema)
            state.reports_final = self.reports_final
            state.final_at_start = self.final_at_start
        if state.case is not self.case:
            message = (
                f"merge: this state was started as case {state.case.name}, but this merge is "
                f"{self.case.name}; keep the case as it was, or start a new run"
            )
            raise StateError(message)
        state.policy = replace(state.policy, violations=self.policy.violations)
        return state

    def split(
        self,
        state: OrderedState | MergeState,
        lanes: int,
        by: Route,  # noqa: ARG002
        reshape: Reshape | None = None,
    ) -> Sequence[OrderedState | MergeState]:
        """What a state of one lane remembers, by the lane that it belongs to from now on."""
        if isinstance(state, OrderedState):
            return ordered_codec.split(state, lanes)
        return codec.split(state, lanes, reshape)

    def unite(
        self, states: Sequence[OrderedState | MergeState], reshape: Reshape | None = None
    ) -> OrderedState | MergeState:
        """One lane's shares of the states of all former lanes as one state."""
        ordered = [one for one in states if isinstance(one, OrderedState)]
        if ordered:
            return ordered_codec.unite(ordered, reshape)
        found = [one for one in states if isinstance(one, MergeState)]
        return codec.unite(found, reshape)


def open_merge(
    case: MergeCase,
    schema: ElementSchema,
    policy: Policy = DEFAULT,
    *,
    reports_final: bool = False,
) -> OrderedState | MergeState:
    """A merge to which nothing has happened; a policy that the case has not is refused."""
    return MergeOperator(schema, case, policy, reports_final).empty()


def from_parts(
    parts: Mapping[str, bytes],
    case: MergeCase,
    schema: ElementSchema,
    policy: Policy = DEFAULT,
    *,
    reports_final: bool = False,
) -> OrderedState | MergeState:
    """The merge that was saved last; StateError if it is of another case, policy or payload."""
    return MergeOperator(schema, case, policy, reports_final).from_parts(parts)
