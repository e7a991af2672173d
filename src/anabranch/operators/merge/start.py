"""One face of all merges: a caller names case and policy, and needs to know no state or kernel.

`open_merge` begins, `from_parts` goes on from what was saved; the rest is asked of the `Merge`:

    step             take what arrived; its result, and whom the policy detaches
    attach, detach   who takes part; what that changes on the output, to be written too
    tell             another guarantee of a replica that is attached; likewise
    parts            what changed since the last save

Which state is behind it follows from case and policy: R0, R1 and R2 have one; R3 has a fast one
for `violations` and `stable_lag`, and one for all policies; R4 has one; a merge that begins as
R3 and goes on as R4 (`first`) has them in turn.

A state belongs to its policy: another one is refused by name.  Only `violations` may change
between two runs, for nothing that is remembered depends on it.

>>> import pyarrow as pa
>>> from anabranch.batch.schema import TimeType
>>> schema = ElementSchema(TimeType.BIGINT, pa.schema({"p": pa.string()}))
>>> merge = open_merge(MergeCase.R3, schema, Policy.parse("inserts=half_frozen"))
>>> type(merge.state).__name__
'R3PolicyState'
>>> len(merge.attach("east", guarantee=7).output), merge.alarm.replica
(0, 'east')
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from anabranch.batch.schema import ElementSchema
from anabranch.errors import StateError
from anabranch.model.properties import MergeCase
from anabranch.operators.merge import (
    auto,
    ordered_kernel,
    r3_kernel,
    r3_policy_codec,
    r3_policy_kernel,
    r4_kernel,
)
from anabranch.operators.merge.auto import AutoState
from anabranch.operators.merge.contract import Arrival, Granularity, StepResult
from anabranch.operators.merge.members import Members, ReplicaStatus
from anabranch.operators.merge.ordered_state import CASES, OrderedState
from anabranch.operators.merge.policy import DEFAULT, Policy
from anabranch.operators.merge.r3_membership import Alarm, Stretch
from anabranch.operators.merge.r3_policy_kernel import PolicyStep
from anabranch.operators.merge.r3_policy_state import R3PolicyState
from anabranch.operators.merge.r3_state import R3State
from anabranch.operators.merge.r4_state import R4State
from anabranch.operators.merge.support import require_support
from anabranch.operators.merge.verdict import guilty
from anabranch.operators.state_codec import kind_of
from anabranch.operators.state_parts import CONTROL, Saved

State: TypeAlias = OrderedState | R3State | R3PolicyState | R4State | AutoState

_FAST: Final = ("violations", "stable_lag")
"""The choices that R3 has without looking at every element's event anew."""


@dataclass(eq=False)
class Merge:
    """A merge of one lane, whatever its case and policy; all its methods change it in place."""

    state: State
    policy: Policy = DEFAULT

    @property
    def case(self) -> MergeCase:
        """The case that the merge has come to."""
        if isinstance(self.state, OrderedState | AutoState):
            return self.state.case
        return MergeCase.R4 if isinstance(self.state, R4State) else MergeCase.R3

    @property
    def schema(self) -> ElementSchema:
        """The columns of its replicas."""
        return self.state.schema

    @property
    def members(self) -> Members:
        """The replicas in columns."""
        return self.state.members

    @property
    def replicas(self) -> tuple[ReplicaStatus, ...]:
        """Who is attached, in order, with frontier and whether its stables count."""
        return self.state.replicas

    @property
    def frontier(self) -> int:
        """How far the output is final."""
        return self.state.frontier

    @property
    def conflicts(self) -> int:
        """How many promised events a deciding replica has denied."""
        return self.state.conflicts

    @property
    def live(self) -> int:
        """How many events may still change, or are held back."""
        return self.state.live

    @property
    def pending(self) -> int:
        """How many inserts are held back."""
        if isinstance(self.state, R3PolicyState):
            return self.state.pending
        return len(self.state.held) if isinstance(self.state, OrderedState) else 0

    @property
    def alarm(self) -> Alarm | None:
        """Set while replicas are attached and none of them can move the output (D5)."""
        return self.state.alarm

    @property
    def stretches(self) -> tuple[Stretch, ...]:
        """Times at which the output may be wrong, because a replica had to be promoted."""
        return self.state.stretches

    def attach(
        self, name: str, *, attachment: int = 1, guarantee: int | None = None
    ) -> StepResult:
        """Let a replica take part, or replace its old attachment by a new one."""
        found = self.state.attach(name, attachment=attachment, guarantee=guarantee)
        return found if isinstance(found, StepResult) else self._plain_step([], "batch")

    def detach(self, name: str) -> StepResult:
        """Forget what a replica said; what it brought to the output stays."""
        found = self.state.detach(name)
        return found if isinstance(found, StepResult) else self._plain_step([], "batch")

    def tell(self, name: str, guarantee: int | None) -> StepResult:
        """An attached replica has this guarantee from now on; None: it is complete."""
        if isinstance(self.state, AutoState):
            return Merge(self.state.current, self.policy).tell(name, guarantee)
        if isinstance(self.state, R3PolicyState):
            return self.state.tell(name, guarantee)
        self.state.mark += 1
        self.members.tell(name, guarantee)
        if self.policy.promote:
            self.members.succeed(self.frontier)
        return self._plain_step([], "batch")

    def step(
        self, arrivals: Sequence[Arrival], *, granularity: Granularity = "batch"
    ) -> PolicyStep:
        """Take what arrived; detach the guilty from all lanes before the next step.

        With `violations=raise` go back to the state that was saved before the step.
        """
        if isinstance(self.state, R3PolicyState):
            return r3_policy_kernel.step(self.state, arrivals, granularity=granularity)
        result = self._plain_step(arrivals, granularity)
        return PolicyStep(result, guilty(self.policy, arrivals, result))

    def _plain_step(self, arrivals: Sequence[Arrival], granularity: Granularity) -> StepResult:
        state = self.state
        if isinstance(state, OrderedState):
            return ordered_kernel.step(state, arrivals, granularity=granularity)
        if isinstance(state, R3State):
            return r3_kernel.step(state, arrivals, granularity=granularity)
        if isinstance(state, R4State):
            return r4_kernel.step(state, arrivals, granularity=granularity)
        if isinstance(state, AutoState):
            return auto.step(state, arrivals, granularity=granularity)
        return r3_policy_kernel.step(state, arrivals, granularity=granularity).result

    def parts(self, *, since: int | None = None) -> Saved:
        """The state in parts: all of them, or those that changed after a mark."""
        return self.state.parts(since=since)

    def check(self) -> None:
        """Assert what must always hold between steps."""
        self.state.check()


def open_merge(
    case: MergeCase,
    schema: ElementSchema,
    policy: Policy = DEFAULT,
    *,
    first: MergeCase | None = None,
) -> Merge:
    """A merge to which nothing has happened; `first` is the case that it begins with.

    A policy that the case has not is refused by name.
    """
    require_support(case, policy)
    lag, promote = policy.stable_lag, policy.promote
    if case in CASES:
        ordered = OrderedState.empty(case, schema, stable_lag=lag, promote=promote)
        return Merge(ordered, policy)
    if case is MergeCase.R3:
        if _is_fast(policy):
            return Merge(R3State.empty(schema, stable_lag=lag), policy)
        return Merge(R3PolicyState.empty(schema, policy=policy), policy)
    if first is MergeCase.R3:
        return Merge(AutoState.empty(schema, policy=policy), policy)
    shrink_only = policy.shrink_only
    bags = R4State.empty(schema, shrink_only=shrink_only, stable_lag=lag, promote=promote)
    return Merge(bags, policy)


def from_parts(
    parts: Mapping[str, bytes],
    case: MergeCase,
    schema: ElementSchema,
    policy: Policy = DEFAULT,
    *,
    first: MergeCase | None = None,
) -> Merge:
    """The merge that was saved last; StateError if it is of another case, policy or payload."""
    require_support(case, policy)
    state = _read(parts, case, schema, first)
    begun = replace(_policy_of(state), violations=policy.violations)
    if begun != policy:
        message = (
            f"merge: this state was begun with the policy {replace(begun, violations=_NONE)}, "
            f"now it is asked to go on with {replace(policy, violations=_NONE)}; keep the "
            "policy as it was (violations may change), or start anew"
        )
        raise StateError(message)
    if isinstance(state, R3PolicyState):
        state.policy = policy
    return Merge(state, policy)


_NONE: Final = DEFAULT.violations


def _read(
    parts: Mapping[str, bytes],
    case: MergeCase,
    schema: ElementSchema,
    first: MergeCase | None,
) -> State:
    """The state of these parts, which says itself what it is."""
    if case in CASES:
        return OrderedState.from_parts(parts, case, schema)
    if case is MergeCase.R3:
        is_with_policy = kind_of(parts.get(CONTROL, b"")) == r3_policy_codec.KIND.name
        return (R3PolicyState if is_with_policy else R3State).from_parts(parts, schema)
    kind = AutoState if first is MergeCase.R3 else R4State
    return kind.from_parts(parts, schema)


def _is_fast(policy: Policy) -> bool:
    default = DEFAULT.to_dict()
    return all(
        choice in _FAST or value == default[choice]
        for choice, value in policy.to_dict().items()
    )


def _policy_of(state: State) -> Policy:
    """The choices that a state was begun with; what is judged after steps is none of them."""
    if isinstance(state, AutoState):
        return _policy_of(state.current)
    if isinstance(state, R3PolicyState):
        return state.policy
    if isinstance(state, R3State):
        return Policy(stable_lag=state.stable_lag)
    if isinstance(state, OrderedState):
        return Policy(stable_lag=state.stable_lag, promote=state.promotes)
    lag, promote = state.stable_lag, state.promote
    return Policy(stable_lag=lag, promote=promote, shrink_only=state.shrink_only)
