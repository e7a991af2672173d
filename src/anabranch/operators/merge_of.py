"""Merge inside a query: its ports are replicas of one stream, made by other plans of the query.

The history of the output is that of the replicas, at the end of every step in which they agree.
The case is the cheapest that the properties of the ports permit (`chosen`): they follow from
the plan, and with them the state and its cost.

* The replicas are there from the beginning and never leave.
* Elements were validated where they entered the query.  So an element that breaks a promise of
  its replica shows a defect of the program: the step fails, and names what was promised.
* What a slower replica still revises where the output is final is `absorbed` (SURPASSED).  It
  is not late: no row of the input is lost.
* `conflicts` counts events that the deciding replica denies: replicas of one history have none.

Everything else is as in `operators.merge`, which does the work.

Papers: LMerge III-C and IV-G, with errata X3 and D20.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from anabranch.batch.batch import Codes
from anabranch.batch.codec import to_elements
from anabranch.batch.schema import ElementSchema
from anabranch.errors import StateError, UsageError
from anabranch.model.notation import show_element
from anabranch.model.properties import (
    REQUIRED,
    MergeCase,
    StreamProperties,
    cheapest,
    missing_for,
    shared,
)
from anabranch.operators.contract import (
    BUCKET_OF,
    REASONS,
    Arrival,
    Attach,
    Bucket,
    Inputs,
    InputStatus,
    Port,
    Reason,
    Route,
    StepResult,
)
from anabranch.operators.merge.choose import ORDERED, listed
from anabranch.operators.merge.lane import MergeLane
from anabranch.operators.merge.merge import MergeOperator, after_merge
from anabranch.operators.merge.policy import DEFAULT, Policy, unsupported
from anabranch.operators.state.blocks import Saved


@dataclass(frozen=True)
class MergeOfOperator:
    """The replicas `names` as one stream.

    `case` None: not chosen yet.  `asked`: the case that the user named.  The lanes are by
    identity in every case: R0 to R2 compare the events of one start, but in the lane of a
    replica those are a part that is the same in all of them.
    """

    schema: ElementSchema
    names: tuple[str, ...]
    case: MergeCase | None = None
    asked: MergeCase | None = None
    policy: Policy = DEFAULT
    final_at_start: bool = False
    reports_final: bool = False
    name: str = "merge"
    route: Route = Route.IDENTITY
    route_columns: Sequence[str] = ()

    @property
    def output(self) -> ElementSchema:
        """Elements with the columns of the replicas."""
        return replace(self.schema, has_seq=False, has_replica=False)

    @property
    def ports(self) -> Mapping[str, Port]:
        """All are alike."""
        return {name: Port(self.schema, self.route) for name in self.names}

    @property
    def output_final_at_start(self) -> bool:
        """Whether the ends of the output are known: as those of the replicas are."""
        return self.final_at_start

    def properties(self, *inputs: StreamProperties) -> StreamProperties:
        """What its case emits; if none is chosen, the one for these inputs."""
        return after_merge(shared(inputs), self.case or self.case_for(*inputs))

    def case_for(self, *inputs: StreamProperties) -> MergeCase:
        """The case that was asked for, else the cheapest one that has the policy."""
        known = shared(inputs)
        case = self.asked or cheapest(known)
        if self.asked is None and case in ORDERED and self._lacks(case):
            return MergeCase.R3 if known.keyed else MergeCase.R4
        return case

    def chosen(self, *inputs: StreamProperties) -> "MergeOfOperator":
        """The same with its case; UsageError if the ports or the policy do not permit it."""
        case = self.case_for(*inputs)
        for name, known in zip(self.names, inputs, strict=True):
            missing = missing_for(known, case)
            if missing:
                message = (
                    f"ab.merge: case {case.name} was asked for and needs "
                    f"{listed(REQUIRED[case])}; the plan of replica '{name}' does not promise "
                    f"{listed(missing)} (its explain() shows what each step promises); leave "
                    "the choice to auto"
                )
                raise UsageError(message)
        lacks = self._lacks(case)
        if lacks:
            message = (
                f"ab.merge: case {case.name} has no {', '.join(lacks)}; the case follows from "
                "the plans of these replicas (explain() shows why); leave that policy out"
            )
            raise UsageError(message)
        return replace(self, case=case)

    def explain(self, *inputs: StreamProperties) -> str:
        """Why the merge has its case, if this is promised of its ports.

        >>> import pyarrow as pa
        >>> from anabranch.batch.schema import TimeType
        >>> known = StreamProperties(keyed=True)
        >>> schema = ElementSchema(TimeType.BIGINT, pa.schema({"p": pa.string()}))
        >>> MergeOfOperator(schema, ("one", "two")).explain(known, known)
        'case R3: every plan promises keyed (R2 needs insert_only and ordered too)'
        """
        case = self.case or self.case_for(*inputs)
        lacks = [n for n, one in zip(self.names, inputs, strict=True) if not one.keyed]
        if self.asked is not None:
            reason = "it was asked for, and every plan permits it"
        elif case is MergeCase.R4 and lacks:
            reason = f"the plan of {', '.join(map(repr, lacks))} does not promise keyed"
        elif case is not cheapest(shared(inputs)):
            reason = "a cheaper case does not have the policy"
        else:
            reason = f"every plan promises {listed(REQUIRED[case])}"
        cheaper = [*MergeCase][: [*MergeCase].index(case)]
        needed = [(one.name, missing_for(shared(inputs), one)) for one in reversed(cheaper)]
        more = [f" ({name} needs {listed(some)} too)" for name, some in needed if some]
        return f"case {case.name}: {reason}{more[0] if more else ''}"

    def _lacks(self, case: MergeCase) -> tuple[str, ...]:
        """What a case does not have of the policy."""
        return unsupported(case, self._policy(case))

    def _policy(self, case: MergeCase) -> Policy:
        """R0 to R2 remember no events, so that there is nothing to limit."""
        return replace(self.policy, remember=None) if case in ORDERED else self.policy

    @property
    def inner(self) -> MergeOperator:
        """The merge that does the work."""
        assert self.case is not None, f"merge of {self.names}: no case is chosen"
        policy = self._policy(self.case)
        final = self.reports_final
        return MergeOperator(self.schema, self.case, policy, final, self.final_at_start)

    def reporting_final(self) -> "MergeOfOperator | None":
        """The same with `final` in its results; R0 to R2 keep no event that they emitted."""
        return None if self.case in ORDERED else replace(self, reports_final=True)

    def empty(self) -> "MergeOfState":
        """All replicas are attached, and nothing has happened."""
        merge = self.inner.empty()
        merge.step(Inputs(control=tuple(Attach(name) for name in self.names)))
        return MergeOfState(self, merge)

    def from_parts(self, parts: Mapping[str, bytes]) -> "MergeOfState":
        """The state that was saved; StateError if of another kind, version or case."""
        return MergeOfState(self, self.inner.from_parts(parts))


class MergeOfState:
    """What the merge remembers for one lane."""

    def __init__(self, operator: MergeOfOperator, merge: MergeLane) -> None:
        self.operator = operator
        self.merge = merge

    @property
    def frontier(self) -> int:
        """How far the output is final: as far as the fastest replica."""
        return self.merge.frontier

    @property
    def live(self) -> int:
        """How many events may still change, or are held back."""
        return self.merge.live

    @property
    def inputs(self) -> Sequence[InputStatus]:
        """They do not come and go."""
        return ()

    @property
    def facts(self) -> Mapping[str, Any]:
        """The case, how far each replica is, who leads, and how often one was denied."""
        reached = {one.name: one.frontier for one in self.merge.inputs}
        return {
            "case": self.merge.case.value,
            "reached": reached,
            "leads": max(reached, key=lambda name: reached[name]),
            "conflicts": self.merge.conflicts,
        }

    def step(self, inputs: Inputs) -> StepResult:
        """Take what arrived, change the state, return the net change."""
        result = self.merge.step(inputs)
        self._require_promises(inputs.arrivals, result)
        reasons = tuple(_without_late(codes) for codes in result.reasons)
        resolved = tuple(
            replace(one, reasons=_without_late(one.reasons)) for one in result.resolved
        )
        buckets = tuple(BUCKET_OF[codes] for codes in reasons)
        return replace(result, reasons=reasons, buckets=buckets, resolved=resolved)

    def _require_promises(self, arrivals: Sequence[Arrival], result: StepResult) -> None:
        for arrival, buckets, codes in zip(
            arrivals, result.buckets, result.reasons, strict=True
        ):
            wrong = np.flatnonzero(buckets == Bucket.VIOLATION)
            if len(wrong):
                (element,) = to_elements(arrival.batch.take(wrong[:1]))
                raise broken_promise(self.merge.case, arrival.input, element, codes[wrong[0]])

    def parts(self, *, since: int | None = None) -> Saved:
        """Those of the merge."""
        return self.merge.parts(since=since)

    def check(self) -> None:
        """Assert every invariant."""
        self.merge.check()
        names = tuple(one.name for one in self.merge.inputs)
        assert names == self.operator.names, f"replicas {names} != {self.operator.names}"
        joined = all(one.joined for one in self.merge.inputs)
        assert joined, f"replicas that are not joined: {self.merge.inputs}"


def broken_promise(case: MergeCase, replica: str, element: Any, code: int) -> StateError:
    """The error for an element that its replica must not send."""
    needs = listed(REQUIRED[case]) if REQUIRED[case] else "nothing more"
    return StateError(
        f"merge: replica '{replica}' sent '{show_element(element)}', which is wrong: "
        f"{REASONS[code].text}; its plan promises valid elements and, for case {case.name}, "
        f"{needs}. A filter or column before it is probably not deterministic, or a property "
        "that a source declares is not true; correct it, and start with a new checkpoint"
    )


def _without_late(codes: Codes) -> Codes:
    """The reasons, where the output is final for what other replicas sent."""
    surpassed = np.int8(Reason.SURPASSED.code)
    return np.where(BUCKET_OF[codes] == Bucket.LATE, surpassed, codes)
