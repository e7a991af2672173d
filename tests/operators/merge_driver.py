"""Drives the reference and the kernel through one face, and judges every visible prefix.

Errata and pictures run on `testing.engine`.  This is for laws that compare what no engine
reports: alarms, uncertain stretches, conflicts, gaps and the work of each step.
"""

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import groupby

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from anabranch.batch.batch import ADJUST, FOREVER_UNITS, INSERT, NEVER_UNITS, STABLE, Batch
from anabranch.batch.codec import from_elements, to_elements
from anabranch.batch.schema import ElementSchema, TimeType
from anabranch.model.element import Element, Insert
from anabranch.model.equivalence import compatible
from anabranch.model.history import Reader, Replay, replay
from anabranch.model.time import FOREVER, NEVER, Time
from anabranch.operators.contract import (
    REASONS,
    Arrival,
    Bucket,
    Detach,
    Inputs,
    Reason,
    StepResult,
)
from anabranch.operators.merge.policy import DEFAULT, Policy
from anabranch.operators.merge.state import MergeState
from anabranch.operators.reference.r3 import MergeR3
from anabranch.operators.route import route
from anabranch.operators.state.blocks import Saved

DEEP = os.environ.get("ANABRANCH_PROFILE") == "deep"
SCHEMA = ElementSchema(TimeType.BIGINT, pa.schema({"p": pa.string()}))

Arrived = tuple[int, Element]
"""The number of the replica, and its next element."""


def units(time: Time | None) -> int | None:
    return time if time is None else FOREVER_UNITS if time == FOREVER else int(time)


def time_of(unit: int) -> Time:
    return FOREVER if unit == units(FOREVER) else NEVER if unit == NEVER_UNITS else unit


def batch_of(elements: Sequence[Element], *, seq: Sequence[int] | None = None) -> Batch:
    batch = from_elements(elements, SCHEMA)
    if seq is None:
        return batch
    numbers = np.array(seq, np.int64)
    times = (batch.start, batch.end, batch.old_end)
    return Batch(SCHEMA, batch.kind, *times, batch.payload, numbers)


def step(state: MergeState, arrivals: Sequence[Arrival]) -> StepResult:
    return state.step(Inputs(tuple(arrivals)))


@dataclass
class Reference:
    """The element-by-element merge."""

    merge: MergeR3 = field(default_factory=MergeR3)
    output: list[Element] = field(default_factory=list)
    reasons: list[Reason] = field(default_factory=list)

    def attach(self, name: str, guarantee: Time | None = None, attachment: int = 1) -> None:
        change = self.merge.attach(name, guarantee=guarantee, attachment=attachment)
        self.output.extend(change.output)

    def detach(self, name: str) -> None:
        self.output.extend(self.merge.detach(name).output)

    def take(self, name: str, elements: Iterable[Element]) -> list[Element]:
        before = len(self.output)
        for element in elements:
            outcome = self.merge.push(name, element)
            assert outcome.bucket is outcome.reason.bucket
            self.output.extend(outcome.output)
            self.reasons.append(outcome.reason)
        return self.output[before:]

    @property
    def live(self) -> int:
        return len(self.merge.nodes)

    @property
    def conflicts(self) -> int:
        return self.merge.conflicts

    @property
    def settled(self) -> int:
        return len(self.merge.settled)

    @property
    def missing(self) -> list[tuple[str, Time, object]]:
        return [(name, start, payload) for name, (start, payload) in self.merge.missing]


@dataclass
class Kernel:
    """The merge over batches: one step per `take`, saved and restored between any two."""

    policy: Policy = DEFAULT
    keyed: bool = True
    output: list[Element] = field(default_factory=list)
    reasons: list[Reason] = field(default_factory=list)
    numbers: dict[str, tuple[int | None, int]] = field(default_factory=dict)
    added_adjusts: int = 0
    added_inserts: int = 0
    missing: list[tuple[str, Time, object]] = field(default_factory=list)
    final: list[Insert] = field(default_factory=list)
    saved: dict[str, bytes] = field(default_factory=dict)
    saved_at: int | None = None
    reader: Reader = field(default_factory=Reader)

    def __post_init__(self) -> None:
        # As it is read back from text: quorum(1) is quorum(1.0) there.
        self.policy = Policy.from_dict(self.policy.to_dict())
        choices = {"keyed": self.keyed, "policy": self.policy}
        self.state = MergeState.empty(SCHEMA, reports_final=True, **choices)

    def attach(self, name: str, guarantee: Time | None = None, attachment: int = 1) -> None:
        self.numbers[name] = (units(guarantee), attachment)
        self.step([(name, [])])

    def detach(self, name: str) -> None:
        self.note([], self.state.step(Inputs(control=(Detach(name),))))
        self.numbers.pop(name, None)

    def take(self, name: str, elements: Iterable[Element]) -> list[Element]:
        before = len(self.output)
        self.step([(name, list(elements))])
        return self.output[before:]

    def step(self, arrived: Sequence[tuple[str, list[Element]]]) -> StepResult:
        arrivals = []
        for name, elements in arrived:
            guarantee, attachment = self.numbers.get(name, (None, 1))
            arrivals.append(Arrival(name, batch_of(elements), guarantee, attachment))
        result = self.state.step(Inputs(tuple(arrivals)))
        self.note(arrivals, result)
        return result

    def note(self, arrivals: Sequence[Arrival], result: StepResult) -> None:
        judge_accounts(arrivals, result, waited=self.policy.promote or not arrivals)
        for element in to_elements(result.output):
            self.output.append(element)
            self.reader.read(element)
        self.reasons.extend(REASONS[code] for codes in result.reasons for code in codes)
        self.added_adjusts += result.added_adjusts
        self.added_inserts += result.added_inserts
        assert len(result.gaps) == min(result.missing, 20)
        self.missing += [(gap.replica, gap.start, gap.payload) for gap in result.gaps]
        assert result.final is not None
        self.final += to_elements(result.final)
        judge_final(self.seen, self.final)
        if is_checked(len(self.reasons) + len(self.output)):
            self.state.check()

    def restart(self) -> None:
        """Go on from what a store has after a save of everything."""
        parts = self.state.parts()
        self.state = MergeState.from_parts(parts.written, SCHEMA)
        self.state.reports_final = True
        self.state.check()
        assert self.state.parts().written == parts.written

    def save(self) -> Saved:
        """Write what changed since the last time, as a state store would."""
        saved = self.state.parts(since=self.saved_at)
        self.saved |= saved.written
        for name in saved.deleted:
            self.saved.pop(name, None)
        self.saved_at = saved.mark
        return saved

    def restore(self) -> None:
        """Go back to what was saved last."""
        self.state = MergeState.from_parts(self.saved, SCHEMA)
        self.state.reports_final = True
        self.state.check()

    @property
    def seen(self) -> Replay:
        """What the output stands for."""
        return self.reader.replay()

    @property
    def live(self) -> int:
        return self.state.live

    @property
    def conflicts(self) -> int:
        return self.state.conflicts

    @property
    def settled(self) -> int:
        return len(self.state.final_names)


def is_checked(count: int) -> bool:
    """Whether a state asserts its invariants now: about one step of four, in deep runs all.

    Which ones depends on how many elements came and went, so that in some stream or other it is
    any step.
    """
    return DEEP or count % 4 == 0


def judge_final(out: Replay, final: Sequence[Insert]) -> None:
    """What was reported as final is what the output's stables have frozen, each event once."""
    frozen = [e for e in out.history if e.end < out.frontier or out.frontier == FOREVER]
    assert Counter((e.payload, e.start, e.end) for e in final) == Counter(
        (e.payload, e.start, e.end) for e in frozen
    )


def judge_accounts(
    arrivals: Sequence[Arrival], result: StepResult, *, waited: bool = False
) -> None:
    """Each element is in one bucket, and the output agrees with the buckets.

    Where replicas are promoted, a stable may come out that came in long before.
    """
    assert len(result.buckets) == len(result.reasons) == len(arrivals)
    emitted = corrected = leading = 0
    for arrival, buckets in zip(arrivals, result.buckets, strict=True):
        assert len(buckets) == len(arrival.batch)
        stables = arrival.batch.kind == STABLE
        assert set(buckets[stables]) <= {Bucket.EMITTED, Bucket.ABSORBED}
        emitted += int((buckets[~stables] == Bucket.EMITTED).sum())
        leading += int((buckets[stables] == Bucket.EMITTED).sum())
        corrected += int((buckets == Bucket.CORRECTED).sum())
    emitted += sum(int((one.buckets == Bucket.EMITTED).sum()) for one in result.resolved)
    kinds = result.output.kind.tolist()
    assert kinds.count(INSERT) == emitted + result.added_inserts
    assert kinds.count(ADJUST) == corrected + result.added_adjusts
    assert min(result.added_adjusts, result.added_inserts) >= 0
    assert (result.stable is not None) == (STABLE in kinds)
    assert leading <= kinds.count(STABLE) <= 1
    assert waited or leading == kinds.count(STABLE)
    assert STABLE not in kinds[:-1]


def runs(arrived: Sequence[Arrived]) -> list[tuple[str, list[Element]]]:
    """Consecutive elements of one replica together."""
    return [
        (f"r{number}", [element for _, element in group])
        for number, group in groupby(arrived, key=lambda one: one[0])
    ]


def prefixes(arrived: Sequence[Arrived], count: int) -> list[Replay]:
    """What each of the inputs stands for."""
    return [replay([e for number, e in arrived if number == i]) for i in range(count)]


def judge_prefix(output: Sequence[Element], arrived: Sequence[Arrived], count: int) -> None:
    """The output is valid, tight, and can follow its inputs."""
    out, inputs = replay(output), prefixes(arrived, count)
    assert out.violations == ()
    assert compatible(out, inputs)
    assert out.frontier == max(one.frontier for one in inputs)


def spread(state: list[MergeState], arrivals: Sequence[Arrival]) -> list[StepResult]:
    """One step of several lanes: data to one lane, stables to all."""
    lanes = [route(arrival.batch, len(state)) for arrival in arrivals]
    results = []
    for number, lane in enumerate(state):
        part = [
            Arrival(a.input, a.batch.take((to == number) | (to < 0)), a.guarantee, a.attachment)
            for a, to in zip(arrivals, lanes, strict=True)
        ]
        results.append(lane.step(Inputs(tuple(part))))
        lane.check()
    return results


@cache
def cuts(count: int) -> st.SearchStrategy[list[int]]:
    """Where steps end, among this many elements."""
    inner = st.lists(st.integers(0, count), max_size=5).map(sorted)
    return inner.map(lambda some: [*some, count])
