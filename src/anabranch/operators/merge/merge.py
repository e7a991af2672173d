"""One face of all merges: a caller names case and policy, and needs to know no state or kernel.

`open_merge` begins, `from_parts` goes on from what was saved; the rest is asked of the `Merge`:

    step             take what arrived; the result names whom the policy detaches
    attach, detach   who takes part; what that changes on the output, to be written too
    guarantee        another guarantee of a replica that is attached; likewise
    parts            what changed since the last save

R0, R1 and R2 have one state (`ordered_state`), R3 and R4 with every policy another (`state`).

A state belongs to its policy: another one is refused by name.  Only `violations` may change
between two runs, for nothing that is remembered depends on it.

`reports_final` lets the results of R3 and R4 have the events that each step made final.  R0 to
R2 keep nothing of an event that they have emitted, so they cannot: `can_report_final` is False,
and whoever wants final events puts `operators.finalize` behind them.

>>> import pyarrow as pa
>>> from anabranch.batch.schema import TimeType
>>> schema = ElementSchema(TimeType.BIGINT, pa.schema({"p": pa.string()}))
>>> merge = open_merge(MergeCase.R3, schema, Policy.parse("inserts=half_frozen"))
>>> len(merge.attach("east", guarantee=7).output), merge.alarm.replica
(0, 'east')
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from anabranch.batch.schema import ElementSchema
from anabranch.errors import StateError
from anabranch.model.properties import MergeCase
from anabranch.operators.contract import (
    Arrival,
    Attach,
    Detach,
    Inputs,
    InputStatus,
    StepResult,
)
from anabranch.operators.merge import ordered_kernel
from anabranch.operators.merge.members import Members
from anabranch.operators.merge.ordered_state import CASES, OrderedState
from anabranch.operators.merge.policy import DEFAULT, Policy, require_support
from anabranch.operators.merge.state import MergeState
from anabranch.operators.merge.verdict import violators
from anabranch.operators.reference.membership import Alarm, Stretch
from anabranch.operators.state.blocks import Saved

State: TypeAlias = OrderedState | MergeState


@dataclass(eq=False)
class Merge:
    """A merge of one lane, whatever its case and policy; all its methods change it in place."""

    state: State
    policy: Policy = DEFAULT

    @property
    def case(self) -> MergeCase:
        """What its replicas need to promise."""
        return self.state.case

    @property
    def schema(self) -> ElementSchema:
        """The columns of its replicas."""
        return self.state.schema

    @property
    def members(self) -> Members:
        """The replicas in columns."""
        return self.state.members

    @property
    def replicas(self) -> tuple[InputStatus, ...]:
        """Who is attached, in order, with frontier and whether its stables count."""
        return self.members.status(self.frontier)

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
        state = self.state
        return len(state.held) if isinstance(state, OrderedState) else state.pending

    @property
    def alarm(self) -> Alarm | None:
        """Set while replicas are attached and none of them can move the output (D5)."""
        return self.members.alarm(self.frontier)

    @property
    def stretches(self) -> tuple[Stretch, ...]:
        """Times at which the output may be wrong, because a replica had to be promoted."""
        return tuple(self.members.stretches)

    @property
    def can_report_final(self) -> bool:
        """Whether results may have the events that a step made final."""
        return isinstance(self.state, MergeState)

    def attach(
        self, name: str, *, attachment: int = 1, guarantee: int | None = None
    ) -> StepResult:
        """Let a replica take part, or replace its old attachment by a new one."""
        if isinstance(self.state, MergeState):
            return self.state.step(Inputs(control=(Attach(name, attachment, guarantee),)))
        self.state.attach(name, attachment=attachment, guarantee=guarantee)
        return ordered_kernel.step(self.state, [])

    def detach(self, name: str) -> StepResult:
        """Drop what a replica has; what it brought to the output stays."""
        if isinstance(self.state, MergeState):
            return self.state.step(Inputs(control=(Detach(name),)))
        self.state.detach(name)
        return ordered_kernel.step(self.state, [])

    def guarantee(self, name: str, guarantee: int | None) -> StepResult:
        """An attached replica has this guarantee from now on; None: it is complete."""
        row = self.members.row_of(name, "given a guarantee")
        number = int(self.members.attachment[row])
        if isinstance(self.state, MergeState):
            return self.attach(name, attachment=number, guarantee=guarantee)
        self.state.mark += 1
        self.members.tell(name, guarantee)
        if self.policy.promote:
            self.members.succeed(self.frontier)
        return ordered_kernel.step(self.state, [])

    def step(self, arrivals: Sequence[Arrival]) -> StepResult:
        """Take what arrived; detach the violators from all lanes before the next step.

        With `violations=raise` go back to the state that was saved before the step.
        """
        if isinstance(self.state, MergeState):
            result = self.state.step(Inputs(tuple(arrivals)))
        else:
            result = ordered_kernel.step(self.state, arrivals)
        found = violators(self.policy, arrivals, result)
        return replace(result, violators=found) if found else result

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
    reports_final: bool = False,
) -> Merge:
    """A merge to which nothing has happened; a policy that the case has not is refused."""
    require_support(case, policy)
    if case in CASES:
        lag, promote = policy.stable_lag, policy.promote
        ordered = OrderedState.empty(case, schema, stable_lag=lag, promote=promote)
        return Merge(ordered, policy)
    keyed = case is MergeCase.R3
    plain = replace(policy, violations=_NONE)
    state = MergeState.empty(schema, keyed=keyed, policy=plain, reports_final=reports_final)
    return Merge(state, policy)


def from_parts(
    parts: Mapping[str, bytes],
    case: MergeCase,
    schema: ElementSchema,
    policy: Policy = DEFAULT,
    *,
    reports_final: bool = False,
) -> Merge:
    """The merge that was saved last; StateError if it is of another case, policy or payload."""
    require_support(case, policy)
    state: State
    if case in CASES:
        state = OrderedState.from_parts(parts, case, schema)
        begun = Policy(stable_lag=state.stable_lag, promote=state.promotes)
    else:
        state = MergeState.from_parts(parts, schema)
        begun = state.policy
        state.reports_final = reports_final
    asked = replace(policy, violations=_NONE)
    if (state.case, begun) != (case, asked):
        message = (
            f"merge: this state was begun as case {state.case.name} with the policy {begun}, "
            f"now it is asked to go on as {case.name} with {asked}; keep both as they were "
            "(violations may change), or start anew"
        )
        raise StateError(message)
    return Merge(state, policy)


_NONE: Final = DEFAULT.violations
