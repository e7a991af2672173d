"""Merge of streams that declare nothing: as R3 while identities are unique, then as R4.

A stream of which nothing is promised needs R4, but nearly all streams have unique identities
most of the time, and R3 is faster.  So the merge begins as R3; before the step that meets a
second event of an identity in one replica, the state is carried over (`r4_carry`), and that
step and all later ones are taken as R4.  Nothing is lost, and the history is that of R4 from
the beginning.  There is no way back.

Looking ahead costs one more hash of the payloads of each step while the merge is R3.

Papers: LMerge IV-G: properties that hold decide the algorithm; here, those that have held.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from anabranch.batch.schema import ElementSchema
from anabranch.model.properties import MergeCase
from anabranch.operators.merge import r3_kernel, r4_codec, r4_kernel
from anabranch.operators.merge.contract import Arrival, Granularity, StepResult
from anabranch.operators.merge.members import ReplicaStatus
from anabranch.operators.merge.r3_state import R3State
from anabranch.operators.merge.r4_carry import from_r3, meets_duplicate
from anabranch.operators.merge.r4_state import R4State
from anabranch.operators.state_codec import kind_of
from anabranch.operators.state_parts import CONTROL, Saved


@dataclass(eq=False)
class AutoState:
    """The state of one lane, of whichever case it is; `step` changes it in place."""

    current: R3State | R4State

    @classmethod
    def empty(cls, schema: ElementSchema, *, shrink_only: bool = False) -> "AutoState":
        """Nobody is attached and nothing has happened; `shrink_only` is R4 from the start."""
        if shrink_only:
            return cls(R4State.empty(schema, shrink_only=True))
        return cls(R3State.empty(schema))

    @property
    def case(self) -> MergeCase:
        """The case that the merge has come to."""
        return MergeCase.R3 if isinstance(self.current, R3State) else MergeCase.R4

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

    def attach(self, name: str, *, attachment: int = 1, guarantee: int | None = None) -> int:
        """The number of this attachment; a new one starts from nothing (erratum L8)."""
        return self.current.attach(name, attachment=attachment, guarantee=guarantee)

    def detach(self, name: str) -> None:
        """Forget what a replica said; what it brought to the output stays."""
        self.current.detach(name)

    def to_bytes(self) -> bytes:
        """The whole state, of its case."""
        return self.current.to_bytes()

    @classmethod
    def from_bytes(cls, data: bytes, schema: ElementSchema) -> "AutoState":
        """The state that was written, of whichever case; StateError if it is neither."""
        if kind_of(data) == r4_codec.KIND.name:
            return cls(R4State.from_bytes(data, schema))
        return cls(R3State.from_bytes(data, schema))

    def parts(self, *, since: int | None = None) -> Saved:
        """The state in parts, of its case; what the other case left behind is deleted."""
        return self.current.parts(since=since)

    @classmethod
    def from_parts(cls, parts: Mapping[str, bytes], schema: ElementSchema) -> "AutoState":
        """The state that was saved last, of whichever case; StateError if it is neither."""
        if kind_of(parts.get(CONTROL, b"")) == r4_codec.KIND.name:
            return cls(R4State.from_parts(parts, schema))
        return cls(R3State.from_parts(parts, schema))

    def check(self) -> None:
        """Assert what must always hold between steps."""
        self.current.check()


def step(
    state: AutoState, arrivals: Sequence[Arrival], *, granularity: Granularity = "batch"
) -> StepResult:
    """Take what arrived, change the state (perhaps its case), and return what came of it."""
    if isinstance(state.current, R3State):
        if not meets_duplicate(state.current, arrivals):
            return r3_kernel.step(state.current, arrivals, granularity=granularity)
        state.current = from_r3(state.current)
    return r4_kernel.step(state.current, arrivals, granularity=granularity)
