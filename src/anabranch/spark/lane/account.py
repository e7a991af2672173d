"""The progress record of one lane and trigger: every element in exactly one bucket.

Data elements are counted by the lane that they are routed to, stables and refused rows by one
lane alone: the sum over all lanes counts every row once.  An element that was held back
(`pending`) and is decided now moves from that bucket to its final one.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from anabranch.batch.batch import STABLE
from anabranch.operators.contract import (
    Bucket,
    Inputs,
    InputStatus,
    Reason,
    State,
    StepResult,
)
from anabranch.operators.pipeline import PipelineStep
from anabranch.sources.channels import ELEMENTS, FINAL, LATE, VIOLATIONS
from anabranch.spark.lane.receive import Received
from anabranch.spark.pack.parcels import Facts
from anabranch.spark.progress import COUNTS, ReplicaCounts, shown, shown_facts
from anabranch.spark.step_record import Described, OperatorRecord

_COUNTED: Final = ("added_adjusts", "added_inserts", "conflicts", "missing")
"""What a step counts by itself."""

_SECOND: Final = tuple(
    one.code for one in (Reason.SECOND_INSERT, Reason.SECOND_OF_KEY, Reason.DUPLICATE)
)
"""Why a row is not taken that repeats an event of its replica."""


class Account:
    """Counts of one lane over the steps of a trigger."""

    def __init__(self, *, counting: bool) -> None:
        self._counting = counting
        self._rows: dict[str, dict[str, int]] = {}
        self._violators: dict[str, None] = {}
        self._taken: Counter[str] = Counter()
        self._made: Counter[str] = Counter()
        self.frame_bytes = 0
        self.output = dict.fromkeys((ELEMENTS, FINAL, LATE, VIOLATIONS, *_COUNTED), 0)

    @property
    def violators(self) -> tuple[str, ...]:
        """The inputs that the policy detaches."""
        return tuple(self._violators)

    def add(
        self, taken: Sequence[Received], result: StepResult, attached: Sequence[InputStatus]
    ) -> None:
        """One step of the operator that takes the inputs: where each element went."""
        for status in attached:
            self._of(status.name)
        for item, reasons in zip(taken, result.reasons, strict=True):
            self._of(item.input)["duplicates"] += int(np.isin(reasons, _SECOND).sum())
        for name, count in result.repeated.items():
            self._of(name)["duplicates"] += count
        for item, buckets in zip(taken, result.buckets, strict=True):
            mine = buckets if self._counting else buckets[item.batch.kind != STABLE]
            for bucket in Bucket:
                self._of(item.input)[bucket.word] += int((mine == bucket).sum())
        for held in result.resolved:
            counts = self._of(held.replica)
            counts[Bucket.PENDING.word] -= len(held.reasons)
            for bucket in Bucket:
                counts[bucket.word] += int((held.buckets == bucket).sum())
        for what, found in (("lacks", result.lacks), ("alone", result.alone)):
            for name, count in found.items():
                self._of(name)[what] += count
        self._violators |= dict.fromkeys(result.violators)

    def add_counts(self, result: StepResult, *, takes_inputs: bool) -> None:
        """One step of any operator: what it did not take, and what it counted.

        What an operator adds that takes the output of another one corrects no input.
        """
        late = sum(int((b == Bucket.LATE).sum()) for b in result.buckets)
        late += sum(int((held.buckets == Bucket.LATE).sum()) for held in result.resolved)
        broken = sum(int((b == Bucket.VIOLATION).sum()) for b in result.buckets)
        # Of replicas that are queries, too: they deny events only if their histories differ.
        made = {LATE: late, VIOLATIONS: broken, "conflicts": result.conflicts}
        if takes_inputs:
            made |= {one: getattr(result, one) for one in _COUNTED}
        for name, count in made.items():
            self.output[name] += count

    def add_flow(self, step: str, inputs: Inputs, result: StepResult) -> None:
        """What one step of any operator read and emitted: inserts and adjusts."""
        self._taken[step] += sum(int(one.batch.is_data.sum()) for one in inputs.arrivals)
        self._made[step] += int(result.output.is_data.sum())

    def operator(
        self, step: PipelineStep, state: State, described: Mapping[str, Described]
    ) -> OperatorRecord:
        """One operator after the trigger; what all lanes know of it, one of them adds.

        `described` are the steps of a plan; others only observe.
        """
        more: dict[str, Any] = {}
        if self._counting:
            known = described.get(step.id, Described())
            more = {
                "reads": known.reads,
                "label": known.label,
                "withholds": bool(getattr(step.operator, "holds_stables", False)),
                "inputs": [o.name for o in state.inputs if o.frontier == state.frontier],
            }
        return OperatorRecord(
            operator=step.operator.name,
            frontier=shown(state.frontier),
            live=state.live,
            facts=shown_facts(state.facts),
            taken=self._taken[step.id],
            made=self._made[step.id],
            observes=step.observes or bool(described and step.id not in described),
            **more,
        )

    def add_left(self, replica: str, count: int) -> None:
        """Elements of a replica that came after it left."""
        self._of(replica)["violation"] += count
        self.output[VIOLATIONS] += count

    def add_facts(self, replica: str, facts: Facts) -> None:
        """What a packer read: rows, and those that are not elements."""
        counts = self._of(replica)
        counts["rows"] += facts.rows
        self.frame_bytes += facts.size
        counts["violation"] += len(facts.refused)
        self.output[VIOLATIONS] += len(facts.refused)

    def replicas(self, attached: Sequence[InputStatus]) -> dict[str, ReplicaCounts]:
        """The rows of each replica by bucket, and how far those are that are attached."""
        by_name = {status.name: status for status in attached}
        for name in by_name:
            self._of(name)
        return {
            name: ReplicaCounts(
                **counts,
                frontier=shown(by_name[name].frontier) if name in by_name else None,
                joined=name in by_name and by_name[name].joined,
                passed_over=name in by_name and by_name[name].passed_over,
                attached=name in by_name,
            )
            for name, counts in self._rows.items()
        }

    def _of(self, replica: str) -> dict[str, int]:
        return self._rows.setdefault(replica, dict.fromkeys(COUNTS, 0))


def leader(attached: Sequence[InputStatus]) -> str | None:
    """The joined input with the greatest frontier; of equals the first."""
    joined = [status for status in attached if status.joined]
    found = max(joined, key=lambda one: one.frontier, default=None)
    return found.name if found else None
