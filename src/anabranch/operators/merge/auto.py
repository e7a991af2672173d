"""Merge of streams that declare nothing: as R3 while identities are unique, then as R4.

A stream of which nothing is promised needs R4, but nearly all streams have unique identities
most of the time, and R3 is faster.  So the merge begins as R3; before the step that meets a
second event of an identity in one replica, the state is carried over (`r4_carry`), and that
step and all later ones are taken as R4.  Nothing is lost, and the history is that of R4 from
the beginning.  There is no way back.

Looking ahead costs a sort of the starts of each step while the merge is R3, and one more hash
of the payloads that come behind their replica's greatest start, or twice at one start.

A policy has the choices of R4, and is carried over with the state: `stable_lag` is that of the
fast R3, `promote` that of R3 with a policy, and `shrink_only` is R4 from the start, for its
two forms differ in when an end is made right.

Papers: LMerge IV-G: properties that hold decide the algorithm; here, those that have held.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from anabranch.batch.schema import ElementSchema
from anabranch.model.properties import MergeCase
from anabranch.operators.merge import (
    r3_kernel,
    r3_policy_codec,
    r3_policy_kernel,
    r4_codec,
    r4_kernel,
)
from anabranch.operators.merge.contract import Arrival, Granularity, StepResult
from anabranch.operators.merge.members import Members, ReplicaStatus
from anabranch.operators.merge.policy import DEFAULT, Policy
from anabranch.operators.merge.r3_membership import Alarm, Stretch
from anabranch.operators.merge.r3_policy_state import R3PolicyState
from anabranch.operators.merge.r3_state import R3State
from anabranch.operators.merge.r4_carry import (
    Reached,
    from_r3,
    meets_duplicate,
    reached_by,
    suspects,
)
from anabranch.operators.merge.r4_state import R4State
from anabranch.operators.merge.support import require_support
from anabranch.operators.state_codec import kind_of
from anabranch.operators.state_parts import CONTROL, Saved


@dataclass(eq=False)
class AutoState:
    """The state of one lane, of whichever case it is; `step` changes it in place."""

    current: R3State | R3PolicyState | R4State
    reached: Reached | None = None
    """How far each attachment has inserted; None: to be found out. It is not written."""

    @classmethod
    def empty(cls, schema: ElementSchema, *, policy: Policy = DEFAULT) -> "AutoState":
        """Nobody is attached and nothing has happened.

        Violations are judged after each step (`verdict`), whatever the policy.
        """
        require_support(MergeCase.R4, policy)
        lag, promote = policy.stable_lag, policy.promote
        if policy.shrink_only:
            return cls(R4State.empty(schema, shrink_only=True, stable_lag=lag, promote=promote))
        if promote:
            return cls(R3PolicyState.empty(schema, policy=Policy(stable_lag=lag, promote=True)))
        return cls(R3State.empty(schema, stable_lag=lag))

    @property
    def case(self) -> MergeCase:
        """The case that the merge has come to."""
        return MergeCase.R4 if isinstance(self.current, R4State) else MergeCase.R3

    @property
    def members(self) -> Members:
        """The replicas in columns."""
        return self.current.members

    @property
    def alarm(self) -> Alarm | None:
        """Set while replicas are attached and none of them can move the output (D5)."""
        return self.current.alarm

    @property
    def stretches(self) -> tuple[Stretch, ...]:
        """Times at which the output may be wrong, because a replica had to be promoted."""
        return self.current.stretches

    @property
    def schema(self) -> ElementSchema:
        """The columns of its replicas."""
        return self.current.schema

    @property
    def frontier(self) -> int:
        """How far the output is final."""
        return self.current.frontier

    @property
    def conflicts(self) -> int:
        """How many promised events a deciding replica has denied."""
        return self.current.conflicts

    @property
    def live(self) -> int:
        """How many identities may still change."""
        return self.current.live

    @property
    def replicas(self) -> tuple[ReplicaStatus, ...]:
        """Who is attached, in order, with frontier and whether its stables count."""
        return self.current.replicas

    def attach(
        self, name: str, *, attachment: int = 1, guarantee: int | None = None
    ) -> StepResult:
        """Let a replica take part; what that changes on the output, if one is promoted."""
        found = self.current.attach(name, attachment=attachment, guarantee=guarantee)
        return found if isinstance(found, StepResult) else step(self, [])

    def detach(self, name: str) -> StepResult:
        """Forget what a replica said; what it brought to the output stays."""
        found = self.current.detach(name)
        return found if isinstance(found, StepResult) else step(self, [])

    def to_bytes(self) -> bytes:
        """The whole state, of its case."""
        return self.current.to_bytes()

    @classmethod
    def from_bytes(cls, data: bytes, schema: ElementSchema) -> "AutoState":
        """The state that was written, of whichever case; StateError if it is neither."""
        return cls(_kind(data).from_bytes(data, schema))

    def parts(self, *, since: int | None = None) -> Saved:
        """The state in parts, of its case; what the other case left behind is deleted."""
        return self.current.parts(since=since)

    @classmethod
    def from_parts(cls, parts: Mapping[str, bytes], schema: ElementSchema) -> "AutoState":
        """The state that was saved last, of whichever case; StateError if it is neither."""
        return cls(_kind(parts.get(CONTROL, b"")).from_parts(parts, schema))

    def check(self) -> None:
        """Assert what must always hold between steps."""
        self.current.check()


def _kind(data: bytes) -> type[R3State] | type[R3PolicyState] | type[R4State]:
    """Which state these bytes are; R3 refuses what is neither by name."""
    kinds: dict[str | None, type[R3PolicyState] | type[R4State]] = {
        r4_codec.KIND.name: R4State,
        r3_policy_codec.KIND.name: R3PolicyState,
    }
    return kinds.get(kind_of(data), R3State)


def step(
    state: AutoState, arrivals: Sequence[Arrival], *, granularity: Granularity = "batch"
) -> StepResult:
    """Take what arrived, change the state (perhaps its case), and return what came of it."""
    current = state.current
    if not isinstance(current, R4State):
        if not meets_duplicate(current, to_look_at(state, arrivals)):
            if isinstance(current, R3PolicyState):
                return r3_policy_kernel.step(current, arrivals, granularity=granularity).result
            return r3_kernel.step(current, arrivals, granularity=granularity)
        current = state.current = from_r3(current)
        state.reached = None
    return r4_kernel.step(current, arrivals, granularity=granularity)


def to_look_at(state: AutoState, arrivals: Sequence[Arrival]) -> Sequence[Arrival]:
    """What of a step may hold a second event of an identity; all of it where that is open."""
    names = [arrival.replica for arrival in arrivals]
    if not isinstance(state.current, R3State) or len(set(names)) < len(names):
        state.reached = None
        return arrivals
    if state.reached is None:
        state.reached = reached_by(state.current)
    return suspects(arrivals, state.reached)
