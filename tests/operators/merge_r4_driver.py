"""Drives the reference and the kernel of merge R4 through one face.

Errata and pictures run on `testing.engine`.  This is for laws that compare what no engine
reports: alarms, uncertain stretches, names that are remembered after they are final, and an
attachment that replaces another one without a detach between them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from hypothesis import strategies as st
from merge_driver import Kernel

from anabranch.model.element import Adjust, Element, Event, Insert, Stable
from anabranch.model.history import History, replay
from anabranch.model.properties import MergeCase
from anabranch.model.time import FOREVER, Time
from anabranch.operators.contract import Reason
from anabranch.operators.merge.policy import Policy
from anabranch.operators.reference.r4 import MergeR4
from anabranch.testing.strategies import (
    conflicting_arrivals,
    histories,
    joiners,
    presentations,
)


@dataclass
class ReferenceR4:
    """The element-by-element merge."""

    shrink_only: bool = False
    output: list[Element] = field(default_factory=list)
    reasons: list[Reason] = field(default_factory=list)
    stable_lag: int = 0
    promote: bool = False

    def __post_init__(self) -> None:
        chosen = {"stable_lag": self.stable_lag, "promote": self.promote}
        self.merge = MergeR4(policy=Policy(shrink_only=self.shrink_only, **chosen))

    def attach(self, name: str, guarantee: Time | None = None, attachment: int = 1) -> None:
        change = self.merge.attach(name, guarantee=guarantee, attachment=attachment)
        self.output += change.output

    def detach(self, name: str) -> None:
        self.output += self.merge.detach(name).output

    def take(self, name: str, elements: Iterable[Element]) -> list[Element]:
        before = len(self.output)
        for element in elements:
            outcome = self.merge.push(name, element)
            self.output.extend(outcome.output)
            self.reasons.append(outcome.reason)
        return self.output[before:]

    def step(self, arrived: Sequence[tuple[str, list[Element]]]) -> None:
        for name, elements in arrived:
            self.take(name, elements)

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


def KernelR4(  # noqa: N802 - it reads like the class that it makes
    shrink_only: bool = False, *, stable_lag: int = 0, promote: bool = False
) -> Kernel:
    """The merge over batches, of streams that promise nothing."""
    policy = Policy(shrink_only=shrink_only, stable_lag=stable_lag, promote=promote)
    return Kernel(policy, keyed=False)


_later = st.one_of(st.integers(2, 9), st.just(FOREVER))
_alike = st.builds(Event, st.just("a"), st.integers(0, 1), _later)
crowds = st.lists(_alike, min_size=1, max_size=5).map(History.from_events)
"""Histories of one or two identities that have several events each."""

_bags = histories(case=MergeCase.R4, max_events=5, max_time=5, payloads=st.sampled_from("ab"))
conflicting_r4 = conflicting_arrivals(case=MergeCase.R4, history=_bags)
"""Three replicas of bags that have different histories, and break a promise or two."""


@st.composite
def shrinking(draw: st.DrawFn) -> list[list[Element]]:
    """Replicas of one history that shorten and remove, but never lengthen."""
    bags = histories(case=MergeCase.R4, max_events=5, max_time=6, payloads=st.just("a"))
    history = draw(bags)
    return [_shrunk(draw, history) for _ in range(draw(st.integers(1, 3)))]


def _shrunk(draw: st.DrawFn, history: History) -> list[Element]:
    stream = draw(presentations(history, case=MergeCase.R4, revisions=0))
    for position in reversed(range(len(stream))):
        element = stream[position]
        if not isinstance(element, Insert) or element.changes_nothing or draw(st.booleans()):
            continue
        longer = element.end + draw(st.sampled_from([1, 2, FOREVER]))
        if longer > element.end:
            limit = position + 1
            while limit < len(stream) and _may_wait(stream[limit], element):
                limit += 1
            shorten = Adjust(element.payload, element.start, longer, element.end)
            stream.insert(draw(st.integers(position + 1, limit)), shorten)
            stream[position] = Insert(element.payload, element.start, longer)
    return stream


def _may_wait(other: Element, element: Insert) -> bool:
    """Whether the end of an event may be emitted after this."""
    if isinstance(other, Stable):
        return other.time <= element.end
    return not isinstance(other, Adjust) or other.old_end != element.end


def judge_going_on_alone(merge: ReferenceR4 | Kernel, data: st.DataObject) -> None:
    """LMerge V-B: once it is joined, all others may fail; it attaches at any time (L9)."""
    truth = data.draw(crowds)
    stream = data.draw(presentations(truth, case=MergeCase.R4))
    guarantee = data.draw(st.integers(2, 7))
    late = data.draw(joiners(truth, guarantee=guarantee, case=MergeCase.R4, strangers=1))
    cut = data.draw(st.integers(0, len(stream)))
    merge.take("first", stream[:cut])
    merge.attach("late", guarantee)
    while replay(merge.output).frontier < guarantee:
        merge.take("first", [stream[cut]])
        cut += 1
    merge.detach("first")
    for element in late:
        merge.take("late", [element])
        assert replay(merge.output).violations == ()
    assert merge.conflicts == 0
    assert History.of(merge.output) == truth
