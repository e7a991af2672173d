"""Erratum D5 in every case: after a promotion the output is right outside the stretches."""

from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from merge_r4_driver import ReferenceR4, crowds
from open_driver import Opened
from ordered_driver import Reference
from policy_driver import Run

from anabranch.model.element import Element
from anabranch.model.history import History, replay
from anabranch.model.properties import MergeCase
from anabranch.model.time import FOREVER
from anabranch.operators.merge.policy import Policy
from anabranch.testing.strategies import histories, joiners, presentations

NAMES = ["r0", "r1", "r2"]
STRANGERS = {MergeCase.R3: 1, MergeCase.R4: 1}
"""Greatest number of events of a replica that end before its guarantee and never were true."""

GUARANTEES = st.sampled_from([None, None, 2, 5, 9, FOREVER])


def bags(lag, shrink_only):
    return ReferenceR4(shrink_only=shrink_only, stable_lag=lag, promote=True)


def ordered(case):
    def build(lag, _):
        return Reference(case, stable_lag=lag, promotes=True)

    return build


@dataclass
class ReferenceR3:
    """The element-by-element merge R3, and all of its output."""

    run: Run

    def attach(self, name, guarantee, attachment):
        self.run.note(self.run.merge.attach(name, guarantee=guarantee, attachment=attachment))

    def detach(self, name):
        self.run.note(self.run.merge.detach(name))

    def take(self, name, elements):
        for element in elements:
            self.run.take(name, element)

    @property
    def merge(self):
        return self.run.merge

    @property
    def output(self):
        return self.run.output


def keyed(lag, shrink_only):
    policy = Policy(stable_lag=lag, shrink_only=shrink_only, promote=True)
    return ReferenceR3(Run.of(policy, 0))


def opened(case):
    def build(lag, shrink_only):
        shrink_only = shrink_only and case in (MergeCase.R3, MergeCase.R4)
        policy = Policy(stable_lag=lag, shrink_only=shrink_only, promote=True)
        return Opened(case, policy)

    return build


MERGES = {
    "r3": (MergeCase.R3, keyed),
    "r4": (MergeCase.R4, bags),
    **{
        case.value: (case, ordered(case)) for case in (MergeCase.R0, MergeCase.R1, MergeCase.R2)
    },
    **{
        f"{truth.value} opened as {case.value}": (truth, opened(case))
        for truth, case in (
            *((one, one) for one in MergeCase),
            (MergeCase.R3, MergeCase.R4),
        )
    },
}


@dataclass
class Script:
    """Replicas that come with a guarantee, emit and go: the truth, and the elements of each."""

    data: st.DataObject
    case: MergeCase
    merge: object
    truth: History
    waiting: dict[str, list[Element]] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)

    def attach(self):
        """A replica is right about what ends at its guarantee or later, and only about that."""
        name, guarantee = self.data.draw(st.sampled_from(NAMES)), self.data.draw(GUARANTEES)
        if guarantee is None:
            shown = presentations(self.truth, case=self.case)
        else:
            shown = joiners(
                self.truth,
                guarantee=guarantee,
                case=self.case,
                strangers=STRANGERS.get(self.case, 0),
            )
        self.waiting[name] = self.data.draw(shown)
        self.numbers[name] = self.numbers.get(name, 0) + 1
        self.merge.attach(name, guarantee, self.numbers[name])

    def detach(self):
        name = self.data.draw(st.sampled_from(sorted(self.waiting)))
        del self.waiting[name]
        self.merge.detach(name)

    def push(self):
        name = self.data.draw(st.sampled_from(sorted(self.waiting)))
        count = self.data.draw(st.integers(1, 6))
        emitted, self.waiting[name] = self.waiting[name][:count], self.waiting[name][count:]
        if emitted:
            self.merge.take(name, emitted)
        if isinstance(self.merge, Opened) and self.data.draw(st.booleans()):
            self.merge.restart()

    def step(self):
        actions = [self.attach]
        if self.waiting:
            actions += [self.push] * 5 + [self.detach]
        self.data.draw(st.sampled_from(actions))()

    @property
    def stretches(self):
        is_reference = hasattr(self.merge, "merge")
        return (self.merge.merge if is_reference else self.merge.state).stretches


def alive(history, times):
    """Who is alive at each of these times; until when may still be open."""
    return Counter(
        (time, event.identity)
        for event in history
        for time in times
        if event.start <= time < event.end
    )


@pytest.mark.parametrize("name", MERGES)
@given(st.data())
def test_after_a_promotion_the_output_is_right_outside_the_stretches(name, data):
    case, build = MERGES[name]
    lag = data.draw(st.sampled_from([0, 0, 2]))
    merge = build(lag, data.draw(st.booleans()))
    truth = histories(case=case, max_events=5, max_time=10)
    truth = data.draw(st.one_of(truth, crowds) if case is MergeCase.R4 else truth)
    script = Script(data, case, merge, truth)
    for _ in range(data.draw(st.integers(1, 25))):
        before = len(merge.output)
        script.step()
        if len(merge.output) == before:
            continue  # the stretches only grow: what was right is right
        out = replay(merge.output)
        assert out.violations == ()
        sure = [
            time
            for time in range(-1, 14)
            if time < out.frontier
            and not any(one.start <= time < one.end for one in script.stretches)
        ]
        assert alive(out.history, sure) == alive(script.truth, sure)
