"""Merge as an operator of a pipeline: which case, with which policy, fixed for a run's life.

R3 and R4 are routed by identity: all elements of an event reach one lane.  R0, R1 and R2
compare the events of one start, so there the start alone decides the lane; a lane sees some of
the starts of each replica, in their order, and the promises of the case hold for it.  What
several lanes do not have is one current start: their common output is valid, but not in the
order of starts.  With one lane it is.

All that a policy decides by stables and membership (who leads, who votes, who is promoted, how
far the output stays behind) is the same in every lane, for these reach every lane.  A violation
is seen by one lane: so no lane detaches by itself.  `raise` fails the step; `detach` names the
replica as a violator, and the caller detaches it in all lanes before the next step.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from anabranch.batch.schema import ElementSchema
from anabranch.model.properties import MergeCase
from anabranch.operators.contract import (
    Attach,
    ControlEntry,
    Inputs,
    InputStatus,
    Route,
    StepResult,
)
from anabranch.operators.merge.choose import Choice
from anabranch.operators.merge.merge import Merge, from_parts, open_merge
from anabranch.operators.merge.ordered_state import CASES
from anabranch.operators.merge.policy import DEFAULT, Policy, require_choice, require_support
from anabranch.operators.merge.verdict import violators
from anabranch.operators.state.blocks import Saved


@dataclass(frozen=True)
class MergeOperator:
    """The case and the policy; with `reports_final` results have what each step made final.

    Of the policy `violations` may change between two starts.
    """

    schema: ElementSchema
    case: MergeCase
    policy: Policy = DEFAULT
    reports_final: bool = False

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

    @property
    def _in_lane(self) -> Policy:
        """The policy within a lane: all but what becomes of violations."""
        return replace(self.policy, violations=DEFAULT.violations)

    def reporting_final(self) -> "MergeOperator | None":
        """The same with `final` in its results; R0 to R2 keep no event that they emitted."""
        return None if self.case in CASES else replace(self, reports_final=True)

    def empty(self) -> "MergeInLane":
        """No replica is attached and nothing has happened."""
        merge = open_merge(
            self.case, self.schema, self._in_lane, reports_final=self.reports_final
        )
        return MergeInLane(merge, self.policy)

    def from_parts(self, parts: Mapping[str, bytes]) -> "MergeInLane":
        """The merge that was saved; StateError if of another case, policy or schema."""
        merge = from_parts(
            parts, self.case, self.schema, self._in_lane, reports_final=self.reports_final
        )
        return MergeInLane(merge, self.policy)


@dataclass(eq=False)
class MergeInLane:
    """What a merge remembers for one lane."""

    merge: Merge
    policy: Policy

    @property
    def frontier(self) -> int:
        """How far the output is final."""
        return self.merge.frontier

    @property
    def live(self) -> int:
        """How many events may still change, or are held back."""
        return self.merge.live

    @property
    def inputs(self) -> Sequence[InputStatus]:
        """The attached replicas, in order."""
        return self.merge.replicas

    @property
    def facts(self) -> Mapping[str, Any]:
        """The case, the alarm if nothing can progress, where the output may be wrong."""
        alarm = self.merge.alarm
        return {
            "case": self.merge.case.value,
            "alarm": alarm and [alarm.replica, int(alarm.guarantee)],
            "stretches": [
                [int(one.start), int(one.end), one.replica] for one in self.merge.stretches
            ],
        }

    def step(self, inputs: Inputs) -> StepResult:
        """Take control entries or elements; one step has one of the two, or neither.

        An entry that changes the output is a step of its own, so each comes alone.
        """
        if inputs.control:
            (entry,) = inputs.control
            assert not inputs.arrivals, f"a control entry beside elements: {entry}"
            return self._apply(entry)
        result = self.merge.step(inputs.arrivals)
        return replace(result, violators=violators(self.policy, inputs.arrivals, result))

    def _apply(self, entry: ControlEntry) -> StepResult:
        members = self.merge.members
        row = members.find(entry.input)
        if not isinstance(entry, Attach):
            return self.merge.step(()) if row is None else self.merge.detach(entry.input)
        if row is not None and members.attachment[row] == entry.attachment:
            return self.merge.guarantee(entry.input, entry.guarantee)
        return self.merge.attach(
            entry.input, attachment=entry.attachment, guarantee=entry.guarantee
        )

    def parts(self, *, since: int | None = None) -> Saved:
        """The state in parts: all of them, or those that changed after a mark."""
        return self.merge.parts(since=since)

    def check(self) -> None:
        """Assert what must always hold between steps."""
        self.merge.check()
