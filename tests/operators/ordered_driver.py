"""Drives the references and the kernels of R0, R1 and R2 through one face.

Errata and pictures run on `testing.engine`.  This is for laws that compare what no engine
reports or does: alarms, uncertain stretches, promotion by hand, and an attachment that replaces
another one without a detach between them.
"""

from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache

from hypothesis import strategies as st
from merge_driver import SCHEMA, Arrived, batch_of, is_checked, units

from anabranch.batch.batch import ADJUST, INSERT, STABLE
from anabranch.batch.codec import to_elements
from anabranch.model.element import Element
from anabranch.model.properties import MergeCase
from anabranch.model.time import Time
from anabranch.operators.contract import (
    REASONS,
    Arrival,
    Bucket,
    Reason,
    Released,
    StepResult,
)
from anabranch.operators.merge.ordered_state import CASES, OrderedState
from anabranch.operators.merge.policy import Policy
from anabranch.operators.reference.ordered import MergeR0, MergeR1, MergeR2, OrderedMerge
from anabranch.testing.strategies import conflicting_arrivals, histories

REFERENCES: dict[MergeCase, type[OrderedMerge]] = {
    MergeCase.R0: MergeR0,
    MergeCase.R1: MergeR1,
    MergeCase.R2: MergeR2,
}

cases = st.sampled_from(CASES)


class Account:
    """The reason of every element so far, in order; what was pending is written over."""

    def __init__(self) -> None:
        self.reasons: list[Reason] = []
        self._elements: list[Element] = []
        self._waiting: dict[str, deque[int]] = defaultdict(deque)

    def add(self, name: str, element: Element, reason: Reason) -> None:
        if reason.bucket is Bucket.PENDING:
            self._waiting[name].append(len(self.reasons))
        self.reasons.append(reason)
        self._elements.append(element)

    def resolve(self, name: str, element: Element, reason: Reason) -> None:
        assert reason.bucket is not Bucket.PENDING
        at = self._waiting[name].popleft()
        assert self._elements[at] == element
        self.reasons[at] = reason

    @property
    def pending(self) -> int:
        return sum(map(len, self._waiting.values()))

    def buckets(self, kind: type[Element]) -> list[Bucket]:
        both = zip(self._elements, self.reasons, strict=True)
        return [reason.bucket for element, reason in both if isinstance(element, kind)]


@dataclass
class Reference:
    """The element-by-element merge."""

    case: MergeCase
    output: list[Element] = field(default_factory=list)
    account: Account = field(default_factory=Account)
    stable_lag: int = 0
    promotes: bool = False

    def __post_init__(self) -> None:
        choices = {"stable_lag": self.stable_lag, "promote": self.promotes}
        self.merge = REFERENCES[self.case](**choices)

    def attach(self, name: str, guarantee: Time | None = None, attachment: int = 1) -> None:
        change = self.merge.attach(name, guarantee=guarantee, attachment=attachment)
        self._note(change.output, change.resolved)

    def detach(self, name: str) -> None:
        change = self.merge.detach(name)
        self._note(change.output, change.resolved)

    def promote(self, name: str) -> None:
        self.merge.promote(name)

    def _note(self, output: Iterable[Element], resolved: Iterable[Released]) -> None:
        self.output.extend(output)
        for released in resolved:
            # Nothing is held and released by one element, so order does not matter here.
            self.account.resolve(*released)

    def take(self, name: str, elements: Iterable[Element]) -> list[Element]:
        before = len(self.output)
        for element in elements:
            outcome = self.merge.push(name, element)
            self._note(outcome.output, outcome.resolved)
            self.account.add(name, element, outcome.reason)
        return self.output[before:]

    @property
    def reasons(self) -> list[Reason]:
        return self.account.reasons

    @property
    def conflicts(self) -> int:
        return self.merge.conflicts


@dataclass
class Kernel:
    """The merge over batches: one step per `take`, or with `each` one per element."""

    case: MergeCase
    each: bool = False
    output: list[Element] = field(default_factory=list)
    account: Account = field(default_factory=Account)
    numbers: dict[str, tuple[int | None, int]] = field(default_factory=dict)
    stable_lag: int = 0
    promotes: bool = False

    def __post_init__(self) -> None:
        choices = {"stable_lag": self.stable_lag, "promote": self.promotes}
        self.state = OrderedState.empty(self.case, SCHEMA, Policy(**choices))

    def attach(self, name: str, guarantee: Time | None = None, attachment: int = 1) -> None:
        self.numbers[name] = (units(guarantee), attachment)
        self._note(
            [], self.state.attach(name, attachment=attachment, guarantee=units(guarantee))
        )
        self.state.check()

    def detach(self, name: str) -> None:
        self.numbers.pop(name, None)
        self._note([], self.state.detach(name))
        self.state.check()

    def promote(self, name: str) -> None:
        self.state.promote(name)

    def take(self, name: str, elements: Iterable[Element]) -> list[Element]:
        before = len(self.output)
        self.step([(name, list(elements))])
        return self.output[before:]

    def step(self, arrived: Sequence[tuple[str, list[Element]]]) -> None:
        # A step announces all that arrive in it.
        self._step([(name, []) for name, _ in arrived] if self.each else arrived)
        if self.each:
            for name, element in [(name, e) for name, some in arrived for e in some]:
                self._step([(name, [element])])

    def _step(self, arrived: Sequence[tuple[str, list[Element]]]) -> None:
        arrivals = []
        for name, elements in arrived:
            guarantee, attachment = self.numbers.get(name, (None, 1))
            arrivals.append(Arrival(name, batch_of(elements), guarantee, attachment))
        result = self.state.step(arrivals)
        self._note(arrivals, result)
        for (name, elements), codes in zip(arrived, result.reasons, strict=True):
            for element, code in zip(elements, codes, strict=True):
                self.account.add(name, element, REASONS[code])
        assert self.account.pending == len(self.state.held)
        if is_checked(len(self.reasons) + len(self.output)):
            self.state.check()

    def _note(self, arrivals: Sequence[Arrival], result: StepResult) -> None:
        self._judge(arrivals, result)
        self.output.extend(to_elements(result.output))
        for one in result.resolved:
            for element, code in zip(to_elements(one.batch), one.reasons, strict=True):
                self.account.resolve(one.replica, element, REASONS[code])

    def _judge(self, arrivals: Sequence[Arrival], result: StepResult) -> None:
        """Each element is in one bucket, and the output agrees with the buckets."""
        emitted = leading = 0
        for arrival, buckets in zip(arrivals, result.buckets, strict=True):
            assert len(buckets) == len(arrival.batch)
            stables = arrival.batch.kind == STABLE
            assert set(buckets[stables]) <= {Bucket.EMITTED, Bucket.ABSORBED}
            emitted += int((buckets[~stables] == Bucket.EMITTED).sum())
            leading += int((buckets[stables] == Bucket.EMITTED).sum())
        for one in result.resolved:
            assert not (one.buckets == Bucket.PENDING).any()
            emitted += int((one.buckets == Bucket.EMITTED).sum())
        kinds = result.output.kind.tolist()
        assert kinds.count(INSERT) == emitted
        assert kinds.count(ADJUST) == result.added_adjusts == 0
        assert (STABLE in kinds) == (result.stable is not None)
        # A stable of a replica that was joining is absorbed, and may count later.
        assert leading <= kinds.count(STABLE)
        assert STABLE not in kinds[:-1]
        assert result.counts["visits"] >= sum(len(a.batch) for a in arrivals)

    def restart(self) -> None:
        saved = self.state.parts().written
        self.state = OrderedState.from_parts(saved, self.case, SCHEMA)
        self.state.check()
        assert self.state.parts().written == saved

    @property
    def reasons(self) -> list[Reason]:
        return self.account.reasons

    @property
    def conflicts(self) -> int:
        return self.state.conflicts


@cache
def ordered_conflicts(case: MergeCase) -> st.SearchStrategy[list[Arrived]]:
    """Three replicas that have different histories, and now and then break a promise."""
    return conflicting_arrivals(case=case, history=histories(case=case), wrong=4)
