"""Drives the compiled merge with a policy beside the reference.

A `Duel` gives the compiled merge one element per step: then all must be equal.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from hypothesis import strategies as st
from merge_driver import Arrived, Kernel, batch_of, runs, time_of, units
from policy_driver import Run, policies

from anabranch.batch.codec import to_elements
from anabranch.model.element import Element
from anabranch.model.time import FOREVER, Time
from anabranch.operators.contract import (
    REASONS,
    Arrival,
    Attach,
    Bucket,
    Detach,
    Inputs,
    Outcome,
    Reason,
    StepResult,
)
from anabranch.operators.merge.policy import Policy
from anabranch.operators.merge.state import MergeState
from anabranch.operators.reference.membership import Change
from anabranch.testing.strategies import conflicting_arrivals

Part = tuple[str, list[Element]]
"""The name of a replica, and its elements of a step."""


@dataclass
class Duel:
    """The reference and the compiled merge, which takes one element per step: they agree.

    `fates` is where each element went according to the compiled merge.
    """

    policy: Policy
    run: Run = field(init=False)
    kernel: Kernel = field(init=False)
    fates: list[tuple[str, Element, Reason]] = field(default_factory=list)
    numbers: dict[str, tuple[Time | None, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.run = Run.of(self.policy, 0)
        self.kernel = Kernel(self.policy)

    @property
    def state(self) -> MergeState:
        return self.kernel.state

    @property
    def output(self) -> list[Element]:
        return self.kernel.output

    def attach(self, name: str, guarantee: Time | None = None, attachment: int = 1) -> None:
        self.numbers[name] = (guarantee, attachment)
        self.run.note(self.run.merge.attach(name, guarantee=guarantee, attachment=attachment))
        entry = Attach(name, attachment, units(guarantee))
        self.note(self.state.step(Inputs(control=(entry,))))

    def detach(self, name: str) -> None:
        if name in self.run.merge.replicas:
            self.run.note(self.run.merge.detach(name))
            self.note(self.state.step(Inputs(control=(Detach(name),))))

    def change(self, policy: Policy) -> None:
        """Both go on with another policy; policies with one text are one policy."""
        self.policy = Policy.parse(str(policy))
        self.run.note(self.run.merge.change(self.policy))
        self.note(self.state.change(self.policy))

    def take(self, parts: Sequence[Part]) -> None:
        for name, elements in parts:
            if name not in self.run.merge.replicas:
                self.attach(name, *self.numbers.get(name, (None, 1)))
            for element in elements:
                self.run.take(name, element)
                guarantee, attachment = self.numbers[name]
                arrival = Arrival(name, batch_of([element]), units(guarantee), attachment)
                result = self.state.step(Inputs((arrival,)))
                self.fates.append((name, element, REASONS[result.reasons[0][0]]))
                self.note(result, [arrival])

    def note(self, result: StepResult, arrivals: Sequence[Arrival] = ()) -> None:
        settle_fates(self.fates, result)
        self.kernel.note(arrivals, result)
        self.compare()

    def compare(self) -> None:
        merge, state = self.run.merge, self.state
        assert time_of(state.frontier) == merge.frontier
        assert (state.conflicts, state.live) == (merge.conflicts, len(merge.nodes))
        assert len(state.final_names) == len(merge.settled)
        assert [one.name for one in state.inputs] == list(merge.replicas)
        stretches = [(time_of(a), time_of(b), c) for a, b, c in state.stretches]
        assert stretches == list(merge.stretches)
        alarm = state.alarm and (state.alarm.replica, time_of(state.alarm.guarantee))
        assert alarm == (merge.alarm and merge.alarm[1:])
        missing = [(name, start, payload) for name, (start, payload) in merge.missing]
        assert Counter(self.kernel.missing) == Counter(missing)
        assert state.pending == self.run.buckets()[Bucket.PENDING]
        assert self.fates == self.run.fates
        mine, theirs = self.kernel.seen, self.run.seen
        assert mine.violations == ()
        assert (mine.history, mine.frontier) == (theirs.history, theirs.frontier)

    def restart(self) -> None:
        self.kernel.restart()
        assert self.state.policy == self.policy

    def save(self) -> None:
        self.kernel.save()

    def restore(self) -> None:
        self.kernel.restore()


def settle_fates(fates: list[tuple[str, Element, Reason]], result: StepResult) -> None:
    """Give elements that were pending the reasons that a step resolved them with."""
    for one in result.resolved:
        for element, code in zip(to_elements(one.batch), one.reasons, strict=True):
            # Inserted again, equal, after a removal: what was held first is decided first.
            at = fates.index((one.replica, element, Reason.HELD))
            fates[at] = (one.replica, element, REASONS[code])


class Both(Run):
    """A run of the reference that the compiled merge goes along with, one element per step."""

    kernel: Kernel

    def take(self, number: int | str, element: Element) -> Outcome:
        name = number if isinstance(number, str) else f"r{number}"
        outcome = super().take(name, element)
        result = self.kernel.step([(name, [element])])
        assert REASONS[result.reasons[0][0]] is outcome.reason
        self._agree(result, outcome)
        return outcome

    def note(self, change: Change) -> Change:
        if not hasattr(self, "kernel"):
            self.kernel = Kernel(self.merge.policy)
        super().note(change)
        theirs, mine = self.merge.replicas, self.kernel.state.members.names
        for name in [name for name in mine if name not in theirs]:
            result = self.kernel.state.step(Inputs(control=(Detach(name),)))
            self.kernel.note([], result)
            self._agree(result, change)
        for name in [name for name in theirs if name not in mine]:
            entry = Attach(name, guarantee=units(theirs[name].guarantee))
            result = self.kernel.state.step(Inputs(control=(entry,)))
            self.kernel.note([], result)
            self._agree(result, change)
        return change

    def _agree(self, result: StepResult, theirs: Outcome | Change) -> None:
        mine = [
            (one.replica, element, REASONS[code])
            for one in result.resolved
            for element, code in zip(to_elements(one.batch), one.reasons, strict=True)
        ]
        assert Counter(mine) == Counter(tuple(one) for one in theirs.resolved)
        ours, output = self.kernel.seen, self.seen
        assert (ours.history, ours.frontier) == (output.history, output.frontier)


@st.composite
def any_policies(draw: st.DrawFn) -> Policy:
    """Every choice but `violations`, which is a verdict on a step that has been taken."""
    policy = draw(policies())
    return Policy(
        adjusts=policy.adjusts,
        inserts=policy.inserts,
        stable_lag=policy.stable_lag,
        shrink_only=policy.shrink_only,
        promote=draw(st.booleans()),
    )


@dataclass(frozen=True)
class Move:
    """What happens between two steps: a replica leaves or comes (back), or all is written."""

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
    """Conflicting arrivals cut into steps, with moves between some."""
    arrived = draw(conflicting_arrivals())
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
