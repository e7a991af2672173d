"""Drives the compiled merge with a policy beside the reference, and compares them at each step.

A `Duel` takes the same steps on both sides.  By element all must be equal; by batch the readers
must see the same history, the account must add up, and the same inserts must be pending.
"""

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from hypothesis import strategies as st
from merge_driver import SCHEMA, Arrived, batch_of, quarrels, runs, units
from policy_driver import Run, policies

from anabranch.batch.batch import NEVER_UNITS
from anabranch.batch.codec import to_elements
from anabranch.model.element import Element
from anabranch.model.history import replay
from anabranch.model.time import FOREVER, NEVER, Time
from anabranch.operators.merge.account import MergeAccount
from anabranch.operators.merge.contract import (
    REASONS,
    Arrival,
    Bucket,
    Outcome,
    Reason,
    StepResult,
)
from anabranch.operators.merge.policy import Detach, Ignore, Policy
from anabranch.operators.merge.r3 import Change
from anabranch.operators.merge.r3_policy_kernel import step
from anabranch.operators.merge.r3_policy_state import R3PolicyState

Part = tuple[str, list[Element]]
"""The name of a replica, and its elements of a step."""


def time_of(unit: int) -> Time:
    return FOREVER if unit == units(FOREVER) else NEVER if unit == NEVER_UNITS else unit


@dataclass
class Duel:
    """Both merges, what came out of the compiled one, and where each element went."""

    policy: Policy
    granularity: str = "element"
    run: Run = field(init=False)
    state: R3PolicyState = field(init=False)
    output: list[Element] = field(default_factory=list)
    fates: list[tuple[str, Element, Reason]] = field(default_factory=list)
    missing: list[tuple[str, Hashable, int]] = field(default_factory=list)
    account: MergeAccount = field(default_factory=MergeAccount)
    numbers: dict[str, tuple[Time | None, int]] = field(default_factory=dict)
    saved: dict[str, bytes] = field(default_factory=dict)
    saved_at: int | None = None

    def __post_init__(self) -> None:
        self.run = Run.of(self.policy, 0)
        self.state = R3PolicyState.empty(SCHEMA, policy=self.policy)

    def attach(self, name: str, guarantee: Time | None = None, attachment: int = 1) -> None:
        self.numbers[name] = (guarantee, attachment)
        self.run.note(self.run.merge.attach(name, guarantee=guarantee, attachment=attachment))
        self.note(
            self.state.attach(
                name,
                attachment=attachment,
                guarantee=units(guarantee),
                granularity=self.granularity,
            )
        )

    def detach(self, name: str) -> None:
        if name in self.run.merge.replicas:
            self.run.note(self.run.merge.detach(name))
            self.note(self.state.detach(name, granularity=self.granularity))

    def take(self, parts: Sequence[Part]) -> StepResult:
        for name, _ in parts:
            self._announce(name)
        arrivals = []
        for name, elements in parts:
            guarantee, attachment = self.numbers.get(name, (None, 1))
            batch = batch_of(elements)
            arrivals.append(Arrival(name, batch, units(guarantee), attachment))
            for element in elements:
                self.run.take(name, element)
        result = step(self.state, arrivals, granularity=self.granularity).result
        for (name, elements), codes in zip(parts, result.reasons, strict=True):
            self.fates += [
                (name, e, REASONS[code]) for e, code in zip(elements, codes, strict=True)
            ]
        self.note(result, arrivals)
        return result

    def _announce(self, name: str) -> None:
        """A step attaches its replicas before the first element."""
        merge, (guarantee, number) = self.run.merge, self.numbers.get(name, (None, 1))
        if name not in merge.replicas and merge.members.expelled.get(name) != number:
            self.run.note(merge.attach(name, guarantee=guarantee, attachment=number))

    def note(self, result: StepResult, arrivals: Sequence[Arrival] = ()) -> None:
        for one in result.resolved:
            for element, code in zip(to_elements(one.batch), one.reasons, strict=True):
                # Told again, equal, after a removal: what was held first is decided first.
                at = self.fates.index((one.replica, element, Reason.HELD))
                self.fates[at] = (one.replica, element, REASONS[code])
        self.output += to_elements(result.output)
        self.missing += [(gap.replica, gap.payload, gap.start) for gap in result.gaps]
        assert len(result.gaps) == result.missing
        self.account.add(arrivals, result)
        self.state.check()
        self.compare()

    def compare(self) -> None:
        merge, state = self.run.merge, self.state
        assert time_of(state.frontier) == merge.frontier
        assert (state.conflicts, state.live) == (merge.conflicts, len(merge.nodes))
        assert len(state.settled) == len(merge.settled)
        assert state.expelled == merge.members.expelled
        assert [one.name for one in state.replicas] == list(merge.replicas)
        stretches = [(time_of(a), time_of(b), c) for a, b, c in state.stretches]
        assert stretches == list(merge.stretches)
        alarm = state.alarm and (state.alarm.replica, time_of(state.alarm.guarantee))
        assert alarm == (merge.alarm and merge.alarm[1:])
        assert self.missing == [(n, e.payload, e.start) for n, e in merge.missing]
        assert self.account.adds_up, self.account.to_dict()
        assert state.pending == merge.account.buckets()[Bucket.PENDING]
        if self.granularity == "element":
            assert self.output == self.run.output
            assert self.fates == self.run.fates
        else:
            mine, theirs = replay(self.output), replay(self.run.output)
            assert mine.violations == ()
            assert (mine.history, mine.frontier) == (theirs.history, theirs.frontier)
            held = [fate for fate in self.run.fates if fate[2] is Reason.HELD]
            assert [fate for fate in self.fates if fate[2] is Reason.HELD] == held

    def restart(self) -> None:
        self.state = R3PolicyState.from_bytes(self.state.to_bytes(), SCHEMA)
        self.state.check()
        assert self.state.policy == self.policy

    def save(self) -> None:
        """Write what changed since the last time, as a state store would, and go on from it."""
        saved = self.state.parts(since=self.saved_at)
        self.saved |= saved.written
        for name in saved.deleted:
            self.saved.pop(name, None)
        self.saved_at = saved.mark

    def restore(self) -> None:
        self.state = R3PolicyState.from_parts(self.saved, SCHEMA)
        self.state.check()


class Both(Run):
    """A run of the reference that the compiled merge goes along with, step for element."""

    state: R3PolicyState

    def take(self, number: int | str, element: Element) -> Outcome:
        name = number if isinstance(number, str) else f"r{number}"
        outcome = super().take(name, element)
        arrival = Arrival(name, batch_of([element]))
        result = step(self.state, [arrival], granularity="element").result
        assert REASONS[result.reasons[0][0]] is outcome.reason
        self._agree(result, outcome)
        return outcome

    def note(self, change: Change) -> Change:
        if not hasattr(self, "state"):
            self.state = R3PolicyState.empty(SCHEMA, policy=self.merge.policy)
        super().note(change)
        theirs, mine = self.merge.replicas, self.state.members.names
        for name in [name for name in mine if name not in theirs]:
            self._agree(self.state.detach(name, granularity="element"), change)
        for name in [name for name in theirs if name not in mine]:
            guarantee = units(theirs[name].guarantee)
            result = self.state.attach(name, guarantee=guarantee, granularity="element")
            self._agree(result, change)
        return change

    def _agree(self, result: StepResult, said: Outcome | Change) -> None:
        assert tuple(to_elements(result.output)) == said.output
        mine = [
            (one.replica, element, REASONS[code])
            for one in result.resolved
            for element, code in zip(to_elements(one.batch), one.reasons, strict=True)
        ]
        assert Counter(mine) == Counter(tuple(one) for one in said.resolved)
        self.state.check()


@st.composite
def any_policies(draw: st.DrawFn) -> Policy:
    """Every choice but `violations=raise`."""
    policy = draw(policies())
    return Policy(
        adjusts=policy.adjusts,
        inserts=policy.inserts,
        stable_lag=policy.stable_lag,
        shrink_only=policy.shrink_only,
        violations=draw(st.sampled_from([Ignore(), Ignore(), Detach()])),
        promote=draw(st.booleans()),
    )


@dataclass(frozen=True)
class Move:
    """What happens between two steps: somebody leaves or comes (back), or all is written."""

    word: str
    replica: str = "r0"
    guarantee: Time | None = None


_moves = st.one_of(
    st.sampled_from([Move("restart"), Move("save")]),
    st.builds(
        Move,
        st.sampled_from(["detach", "detach", "attach", "attach"]),
        st.sampled_from(["r0", "r1", "r2"]),
        st.sampled_from([None, None, 0, 3, 6, FOREVER]),
    ),
)


@st.composite
def scripts(draw: st.DrawFn) -> list[list[Arrived] | Move]:
    """Quarrels cut into steps, with moves between some."""
    arrived = draw(quarrels())
    cuts = sorted(draw(st.lists(st.integers(0, len(arrived)), max_size=6)))
    script: list[list[Arrived] | Move] = []
    for begin, end in zip([0, *cuts], [*cuts, len(arrived)], strict=True):
        script += draw(st.lists(_moves, max_size=2))
        script.append(arrived[begin:end])
    return script


def play(duel: Duel, script: Sequence[list[Arrived] | Move]) -> None:
    for one in script:
        if not isinstance(one, Move):
            duel.take(runs(one))
        elif one.word == "restart":
            duel.restart()
        elif one.word == "save":
            duel.save()
            duel.restore()
        elif one.word == "detach":
            duel.detach(one.replica)
        else:
            _, number = duel.numbers.get(one.replica, (None, 1))
            duel.attach(one.replica, one.guarantee, number + 1)
