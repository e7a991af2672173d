"""Drives the reference and the kernel of merge R4 through one face."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from hypothesis import strategies as st
from merge_driver import SCHEMA, Arrived, batch_of, units

from anabranch.batch.batch import STABLE
from anabranch.batch.codec import to_elements
from anabranch.model.element import Adjust, Element, Insert, Stable
from anabranch.model.history import History
from anabranch.model.properties import MergeCase
from anabranch.model.time import FOREVER, Time
from anabranch.operators.merge.contract import REASONS, Arrival, Bucket, Reason, StepResult
from anabranch.operators.merge.r4 import MergeR4
from anabranch.operators.merge.r4_kernel import step
from anabranch.operators.merge.r4_state import R4State
from anabranch.testing.strategies import histories, interleavings, presentations, replicas


@dataclass
class ReferenceR4:
    """The element-by-element merge."""

    shrink_only: bool = False
    output: list[Element] = field(default_factory=list)
    reasons: list[Reason] = field(default_factory=list)
    stable_lag: int = 0
    promote: bool = False

    def __post_init__(self) -> None:
        self.merge = MergeR4(
            shrink_only=self.shrink_only, stable_lag=self.stable_lag, promote=self.promote
        )

    def attach(self, name: str, guarantee: Time | None = None, attachment: int = 1) -> None:
        self.output += self.merge.attach(name, guarantee=guarantee, attachment=attachment)

    def detach(self, name: str) -> None:
        self.output += self.merge.detach(name)

    def take(self, name: str, elements: Iterable[Element]) -> list[Element]:
        before = len(self.output)
        for element in elements:
            outcome = self.merge.push(name, element)
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
class KernelR4:
    """The merge over batches: one step per `take`, checked after each."""

    shrink_only: bool = False
    granularity: str = "batch"
    output: list[Element] = field(default_factory=list)
    reasons: list[Reason] = field(default_factory=list)
    numbers: dict[str, tuple[int | None, int]] = field(default_factory=dict)
    added_adjusts: int = 0
    added_inserts: int = 0
    missing: list[tuple[str, Time, object]] = field(default_factory=list)
    stable_lag: int = 0
    promote: bool = False

    def __post_init__(self) -> None:
        choices = {"stable_lag": self.stable_lag, "promote": self.promote}
        self.state = R4State.empty(SCHEMA, shrink_only=self.shrink_only, **choices)

    def attach(self, name: str, guarantee: Time | None = None, attachment: int = 1) -> None:
        self.numbers[name] = (units(guarantee), attachment)
        self.step([(name, [])])

    def detach(self, name: str) -> None:
        self.state.detach(name)
        self.state.check()
        self.step([])

    def take(self, name: str, elements: Iterable[Element]) -> list[Element]:
        return to_elements(self.step([(name, list(elements))]).output)

    def step(self, arrived: Sequence[tuple[str, list[Element]]]) -> StepResult:
        arrivals = []
        for name, elements in arrived:
            guarantee, attachment = self.numbers.get(name, (None, 1))
            arrivals.append(Arrival(name, batch_of(elements), guarantee, attachment))
        result = self.advance(arrivals)
        self.state.check()
        each = self.granularity == "element"
        judge_accounts_r4(arrivals, result, each=each, waited=self.promote)
        self.output.extend(to_elements(result.output))
        self.reasons.extend(REASONS[code] for codes in result.reasons for code in codes)
        self.added_adjusts += result.added_adjusts
        self.added_inserts += result.added_inserts
        self.missing += [(gap.replica, gap.start, gap.payload) for gap in result.gaps]
        return result

    def advance(self, arrivals: Sequence[Arrival]) -> StepResult:
        return step(self.state, arrivals, granularity=self.granularity)

    def restart(self) -> None:
        data = self.state.to_bytes()
        self.state = type(self.state).from_bytes(data, SCHEMA)
        self.state.check()
        # Whoever saves in parts must write all of them after this.
        self.state.mark -= 1
        assert self.state.to_bytes() == data
        self.state.mark += 1

    @property
    def live(self) -> int:
        return self.state.live

    @property
    def conflicts(self) -> int:
        return self.state.conflicts

    @property
    def settled(self) -> int:
        return len(self.state.settled)


def judge_accounts_r4(
    arrivals: Sequence[Arrival], result: StepResult, *, each: bool, waited: bool = False
) -> None:
    """Each element is in one bucket, and the output is what the buckets say.

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
    elements = to_elements(result.output)
    kinds = [type(element) for element in elements]
    assert kinds.count(Insert) == emitted + result.added_inserts
    assert kinds.count(Adjust) == corrected + result.added_adjusts
    assert min(result.added_adjusts, result.added_inserts) >= 0
    assert len(result.gaps) == min(result.missing, 20)
    stables = [element.time for element in elements if isinstance(element, Stable)]
    assert units(stables[-1] if stables else None) == result.stable
    if waited:
        assert leading <= len(stables)
    elif each:
        assert bool(leading) == bool(stables)
    else:
        assert len(stables) == leading == (result.stable is not None)
        assert Stable not in kinds[:-1]


_ends = st.one_of(st.integers(-1, 8), st.just(FOREVER))
_garbage = st.one_of(
    st.builds(Insert, st.sampled_from("ab"), st.integers(-1, 6), _ends),
    st.builds(Adjust, st.sampled_from("ab"), st.integers(-1, 6), _ends, _ends),
    st.builds(Stable, _ends),
)


@st.composite
def quarrels_r4(draw: st.DrawFn) -> list[Arrived]:
    """Three replicas of bags that tell different histories, and break a promise or two."""
    bags = histories(
        case=MergeCase.R4, max_events=5, max_time=5, payloads=st.sampled_from("ab")
    )
    stream = replicas(case=MergeCase.R4, max_inputs=1, history=bags)
    streams = [draw(stream)[0] for _ in range(3)]
    # Without the end of the stream, after which nothing can happen any more.
    arrived = draw(interleavings([one[:-1] for one in streams]))
    wrong = st.tuples(st.integers(0, len(arrived)), st.integers(0, 2), _garbage)
    for position, number, element in draw(st.lists(wrong, max_size=3)):
        arrived.insert(position, (number, element))
    return arrived


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
    """Whether the end of an event may be told after this."""
    if isinstance(other, Stable):
        return other.time <= element.end
    return not isinstance(other, Adjust) or other.old_end != element.end
