"""Which merge the lanes of a run take, and its state: the one seam to kernels and policies.

R3 and R4 are routed by identity: all that is said of an event reaches one lane.  R0, R1 and R2
compare the events of one start, so there the start alone decides the lane; a lane sees some of
the starts of each replica, in their order, and the promises of the case hold for it.  What
several lanes do not have is one current start: their common output is valid, but not in the
order of starts.  With one lane it is.

A merge of undeclared streams begins as R3 in every lane and goes on as R4 in the lane that
meets an identity twice.  Lanes may so be in different cases; no identity is in two of them,
and all have the same frontier, so the history is that of one lane.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from anabranch.batch.schema import ElementSchema
from anabranch.model.properties import MergeCase
from anabranch.operators.merge import auto, ordered_kernel, r3_kernel, r4_kernel
from anabranch.operators.merge.auto import AutoState
from anabranch.operators.merge.choose import Choice
from anabranch.operators.merge.contract import Arrival, StepResult
from anabranch.operators.merge.ordered_state import OrderedState
from anabranch.operators.merge.policy import DEFAULT, Policy
from anabranch.operators.merge.r3_policy_kernel import PolicyStep
from anabranch.operators.merge.r3_state import R3State
from anabranch.operators.merge.r4_state import R4State
from anabranch.spark.lane_policy import guilty, require_policy

LaneState: TypeAlias = R3State | R4State | AutoState | OrderedState

ORDERED: Final = (MergeCase.R0, MergeCase.R1, MergeCase.R2)


@dataclass(frozen=True)
class LaneCase:
    """The case, the case that a lane begins with, and the policy; fixed for a run's life."""

    case: MergeCase
    first: MergeCase
    policy: Policy = DEFAULT

    @classmethod
    def of(cls, choice: Choice, policy: Policy = DEFAULT) -> "LaneCase":
        """The chosen case; a policy that its kernel has not is refused by name."""
        require_policy(policy)
        return cls(choice.case, choice.first, policy)

    @classmethod
    def named(cls, name: str, policy: Policy = DEFAULT) -> "LaneCase":
        """The case of a run that recorded this name."""
        require_policy(policy)
        first, _, then = name.partition(" then ")
        return cls(MergeCase(then or first), MergeCase(first), policy)

    @property
    def by_start(self) -> bool:
        """Whether the start alone decides the lane."""
        return self.case in ORDERED

    @property
    def name(self) -> str:
        """How a run records it."""
        case, first = self.case.value, self.first.value
        return case if self.case is self.first else f"{first} then {case}"

    def empty(self, schema: ElementSchema) -> LaneState:
        """Nobody is attached and nothing has happened."""
        if self.case in ORDERED:
            return OrderedState.empty(self.case, schema)
        if self.case is not self.first:
            return AutoState.empty(schema)
        return R3State.empty(schema) if self.case is MergeCase.R3 else R4State.empty(schema)

    def step(self, state: LaneState, arrivals: Sequence[Arrival]) -> PolicyStep:
        """Take what arrived; whom the policy detaches before the next step."""
        result = _plain_step(state, arrivals)
        return PolicyStep(result, guilty(self.policy, arrivals, result))

    def from_parts(self, parts: Mapping[str, bytes], schema: ElementSchema) -> LaneState:
        """The state that was saved last; StateError if it is another case or payload."""
        if self.case in ORDERED:
            return OrderedState.from_parts(parts, self.case, schema)
        if self.case is not self.first:
            return AutoState.from_parts(parts, schema)
        kind = R3State if self.case is MergeCase.R3 else R4State
        return kind.from_parts(parts, schema)


def _plain_step(state: LaneState, arrivals: Sequence[Arrival]) -> StepResult:
    if isinstance(state, AutoState):
        return auto.step(state, arrivals)
    if isinstance(state, OrderedState):
        return ordered_kernel.step(state, arrivals)
    if isinstance(state, R4State):
        return r4_kernel.step(state, arrivals)
    return r3_kernel.step(state, arrivals)


def members_of(state: LaneState) -> Any:
    """The replicas of a state: rows of names, attachments, guarantees and frontiers."""
    return state.current.members if isinstance(state, AutoState) else state.members


def live_of(state: LaneState) -> int:
    """How many events are remembered because they may still change, or are held back."""
    if isinstance(state, OrderedState):
        return len(state.held)
    return state.live


def case_of(state: LaneState) -> MergeCase:
    """The case that a lane has come to."""
    if isinstance(state, AutoState | OrderedState):
        return state.case
    return MergeCase.R3 if isinstance(state, R3State) else MergeCase.R4
