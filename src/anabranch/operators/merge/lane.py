"""The common part of the states of all merge cases: membership of replicas, and verdicts.

A step takes control entries, then elements.  All that can be refused is refused before any
change.  An entry that changes the output is part of the step's result, like elements are.

`violations` of a policy is a verdict on a step that has been taken.  A violation has changed
nothing in the state, but other elements of the step have.  So `raise` raises after the step: go
back to the state that was saved before it.  `detach` names the violators, and the caller
detaches them in all lanes before the next step, and takes nothing from them until they attach
with a greater number: a violation is seen by one lane, so no lane detaches by itself.

Papers: LMerge V-A, V-B, with errata L7 and L8 (each attachment starts from nothing) and D5.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from anabranch.batch.batch import NEVER_UNITS
from anabranch.batch.codec import to_elements
from anabranch.batch.schema import ElementSchema
from anabranch.errors import SchemaError, UsageError, ViolationError
from anabranch.model.properties import MergeCase
from anabranch.operators.contract import (
    REASONS,
    Arrival,
    Attach,
    Await,
    Bucket,
    Detach,
    Inputs,
    InputStatus,
    NewSettings,
    PassOver,
    Resolved,
    StepResult,
)
from anabranch.operators.merge.members import Members
from anabranch.operators.merge.policy import DEFAULT, Policy, Violations, require_support
from anabranch.operators.reference.membership import Alarm, Stretch
from anabranch.operators.reference.r4 import accuse
from anabranch.operators.state.blocks import Saved
from anabranch.operators.unary import require_schema


class MergeLane(ABC):
    """A merge of one lane, whatever its case and policy; its methods change it in place.

    `mark` counts the changes of the state.  `parts(since=mark)` writes what changed after a
    mark; a restored state goes on from the mark that was written with it.  `conflicts` counts
    the promised events that a deciding replica has denied, `pending` the inserts held back.
    `abandoned` are those whose replica left; the step in which it leaves reports them.
    """

    case: MergeCase
    schema: ElementSchema
    policy: Policy
    members: Members
    frontier: int
    conflicts: int
    mark: int
    abandoned: list[Resolved]

    @property
    def lasting_policy(self) -> Policy:
        """All but `violations`, on which nothing that is remembered depends."""
        return replace(self.policy, violations=DEFAULT.violations)

    @property
    def inputs(self) -> tuple[InputStatus, ...]:
        """Who is attached, in order, with frontier and whether its stables count."""
        return self.members.status(self.frontier)

    @property
    def alarm(self) -> Alarm | None:
        """Set while replicas are attached and none of them can move the output (D5)."""
        return self.members.alarm(self.frontier)

    @property
    def stretches(self) -> tuple[Stretch, ...]:
        """Times at which the output may be wrong, because a replica had to be promoted."""
        return tuple(self.members.stretches)

    @property
    def facts(self) -> Mapping[str, Any]:
        """Case and policy, the alarm if nothing can progress, where output may be wrong."""
        alarm = self.alarm
        return {
            "case": self.case.value,
            "policy": str(self.lasting_policy),
            "alarm": alarm and [alarm.replica, int(alarm.guarantee)],
            "stretches": [
                [int(one.start), int(one.end), one.replica] for one in self.stretches
            ],
        }

    def attach(
        self, name: str, *, attachment: int = 1, guarantee: int | None = None
    ) -> StepResult:
        """A step that lets a replica take part, or replaces its old attachment by a new one."""
        return self.step(Inputs(control=(Attach(name, attachment, guarantee),)))

    def detach(self, name: str) -> StepResult:
        """A step that drops what a replica has; what it brought to the output stays."""
        self.members.row_of(name, "detached")
        return self.step(Inputs(control=(Detach(name),)))

    def guarantee(self, name: str, guarantee: int | None) -> StepResult:
        """A step that gives an attached replica this guarantee; None: it is complete."""
        row = self.members.row_of(name, "given a guarantee")
        attachment = int(self.members.attachment[row])
        return self.attach(name, attachment=attachment, guarantee=guarantee)

    def step(self, inputs: Inputs | Sequence[Arrival]) -> StepResult:
        """Take what arrived, change the state, return the net change.

        A sequence of arrivals is taken as inputs without control entries.
        """
        if not isinstance(inputs, Inputs):
            inputs = Inputs(tuple(inputs))
        arrivals = inputs.arrivals
        require_arrivals(self.schema, self.members, arrivals)
        changes = [
            Policy.parse(e.settings) for e in inputs.control if isinstance(e, NewSettings)
        ]
        for policy in changes:
            require_support(self.case, policy)
        self.mark += 1
        for entry in inputs.control:
            if isinstance(entry, NewSettings):
                self.change_policy(changes.pop(0))
                continue
            if isinstance(entry, Attach):
                row = self.members.row_of_attachment(entry.input, entry.attachment)
                if row is None:
                    self.add_replica(entry.input, entry.attachment, entry.guarantee)
                else:
                    self.members.set_guarantee(row, entry.guarantee)
                    self._promote()
                continue
            row = self.members.find(entry.input)
            if row is not None and isinstance(entry, PassOver):
                self.members.pass_over(row)
            elif isinstance(entry, Await):
                if row is not None:
                    self.members.await_again(row)
            elif row is not None:
                self.remove_replica(entry.input)
        for arrival in arrivals:
            self.add_replica(arrival.input, arrival.attachment, arrival.guarantee)
        result = self._take(arrivals)
        found = violators(self.policy, arrivals, result)
        return replace(result, violators=found) if found else result

    def change(self, policy: Policy) -> StepResult:
        """A step from which on another policy decides; `violations` stays as it is."""
        return self.step(Inputs(control=(NewSettings(str(policy)),)))

    def change_policy(self, policy: Policy) -> None:
        """Let another policy decide from the next element on, and about all that waits."""
        before = self.policy
        self.policy = replace(policy, violations=before.violations)
        # Without `promote` nobody noted who had joined; only such a one moves the frontier.
        self.members.had_joined |= self.frontier > NEVER_UNITS
        self._follow_policy(before)
        self._promote()

    def add_replica(self, name: str, attachment: int = 1, guarantee: int | None = None) -> None:
        """Let a replica take part from the next element on, if this attachment is new."""
        if self.members.row_of_attachment(name, attachment) is not None:
            return
        if name in self.members.names:
            self._remove(name)
        self.members.add(name, attachment=attachment, guarantee=guarantee)
        self._add_column()
        self._promote()

    def remove_replica(self, name: str) -> None:
        """Drop what a replica has, from the next element on."""
        self._remove(name)
        self._promote()

    def _remove(self, name: str) -> None:
        self._drop_column(self.members.row_of(name, "detached"))

    def _promote(self) -> None:
        if self.policy.promote:
            self.members.succeed(self.frontier)

    @property
    @abstractmethod
    def live(self) -> int:
        """How many events may still change, or are held back."""

    @abstractmethod
    def _take(self, arrivals: Sequence[Arrival]) -> StepResult:
        """Take elements of replicas that are attached."""

    @abstractmethod
    def _follow_policy(self, before: Policy) -> None:
        """Make what is remembered fit the policy, which was another one before."""

    @abstractmethod
    def _add_column(self) -> None:
        """Make room for what the new last replica will have."""

    @abstractmethod
    def _drop_column(self, row: int) -> None:
        """Drop this replica, and what it has."""

    @abstractmethod
    def parts(self, *, since: int | None = None) -> Saved:
        """The state in parts: all of them, or those that changed after a mark."""

    @abstractmethod
    def check(self) -> None:
        """Assert what must always hold between steps."""


def require_arrivals(
    schema: ElementSchema, members: Members, arrivals: Sequence[Arrival]
) -> None:
    """Refuse arrivals with other columns, two attachments of a replica, or seq in part."""
    attachments: dict[str, int] = {}
    require_schema("merge", schema, arrivals)
    for arrival in arrivals:
        members.row_of_attachment(arrival.input, arrival.attachment)
        number = attachments.setdefault(arrival.input, arrival.attachment)
        if number != arrival.attachment:
            message = (
                f"merge: replica '{arrival.input}' arrives with the attachments {number} and "
                f"{arrival.attachment} in one step; a step has one attachment of a replica, "
                "give the second one in a step of its own"
            )
            raise UsageError(message)
    if len({arrival.batch.seq is None for arrival in arrivals if len(arrival.batch)}) > 1:
        without = [a.input for a in arrivals if len(a.batch) and a.batch.seq is None]
        message = (
            f"merge: the replicas {without} have no seq and the others of this step have; "
            "give all of them a seq, or none"
        )
        raise SchemaError(message)


def violators(
    policy: Policy, arrivals: Sequence[Arrival], result: StepResult
) -> tuple[str, ...]:
    """The replicas with a violation in this step that are to be detached; or raise."""
    if policy.violations is Violations.IGNORE:
        return ()
    names: dict[str, None] = {}
    for arrival, buckets, reasons in zip(arrivals, result.buckets, result.reasons, strict=True):
        wrong = np.flatnonzero(buckets == Bucket.VIOLATION)
        if len(wrong) == 0:
            continue
        if policy.violations is Violations.RAISE:
            (element,) = to_elements(arrival.batch.take(wrong[:1]))
            raise ViolationError(accuse(arrival.input, element, REASONS[reasons[wrong[0]]]))
        names[arrival.input] = None
    return tuple(names)
