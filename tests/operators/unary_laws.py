"""Streams for operators of one input, and the laws that hold of each such operator.

A law is written once: `judge` returns what the output must be after a prefix of the input.
"""

from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise

from hypothesis import strategies as st

from anabranch import testing
from anabranch.model.element import Adjust, Element, Event, Insert, Stable
from anabranch.model.history import History, Replay, replay
from anabranch.model.properties import MergeCase
from anabranch.model.time import FOREVER
from anabranch.operators.contract import Bucket, Reason
from anabranch.testing.strategies import histories, presentations

Judge = Callable[[testing.Engine, Replay], None]

_PAYLOADS = st.sampled_from("ab")
_TIMES = st.integers(-1, 9)
_ENDS = st.one_of(_TIMES, st.just(FOREVER))
_GARBAGE = st.one_of(
    st.builds(Insert, _PAYLOADS, _TIMES, _ENDS),
    st.builds(Adjust, _PAYLOADS, _TIMES, _ENDS, _ENDS),
    st.builds(Stable, _ENDS),
)


def whole(engine: testing.Engine, stream: Sequence[Element]) -> list[Element]:
    """The output for a stream in one step."""
    with engine:
        engine.push("input", stream)
        engine.cut()
        return list(engine.output)


def by_element(engine: testing.Engine, stream: Sequence[Element]) -> list[Element]:
    """The output for a stream in steps of one element."""
    with engine:
        for element in stream:
            engine.push("input", [element])
            engine.cut()
        return list(engine.output)


def judge_violations(engine: testing.Engine, seen: Replay, count: int) -> None:
    """What broke a promise is reported as the model does; lanes report how many."""
    wrong = [(one.position, one.reason.name) for one in seen.violations]
    if engine.reasons is not None:
        codes = enumerate(engine.reasons)
        violations = [one for one in codes if Reason[one[1]].bucket is Bucket.VIOLATION]
        assert violations == wrong
    buckets = engine.account.get("input", {})
    assert sum(buckets.values()) == count
    assert buckets.get("violation", 0) == len(wrong)


def any_cut_any_restart(operator: str, data: st.DataObject, judge: Judge, **options) -> None:
    """However a stream is cut, on every engine: `judge` agrees at the end of each step."""
    stream = data.draw(broken_streams())
    ends = data.draw(cuts(len(stream)))
    restarts = data.draw(st.lists(st.booleans(), min_size=len(ends), max_size=len(ends)))
    seen = cache(lambda end: replay(stream[:end]))
    # A step in lanes costs ten times that of the kernel: they take every third example.
    names = (
        ("reference", "kernel", "lanes") if len(stream) % 3 == 0 else ("reference", "kernel")
    )
    for name in names:
        with testing.engine(name, operator, check_every=2, **options) as engine:
            for (begin, end), again in zip(pairwise([0, *ends]), restarts, strict=True):
                engine.push("input", stream[begin:end])
                engine.restart() if again else engine.cut()
                judge_violations(engine, seen(end), end)
                judge(engine, seen(end))


def element_by_element(
    operator: str, stream: Sequence[Element], judge: Judge, *, same_live: bool = False
) -> None:
    """The kernel emits what the reference emits, and `judge` agrees at every prefix."""
    reference = testing.engine("reference", operator)
    kernel = testing.engine("kernel", operator)
    with reference, kernel:
        for count, element in enumerate(stream, start=1):
            for engine in (reference, kernel):
                engine.push("input", [element])
            assert reference.cut() == kernel.cut()
            assert not same_live or reference.counts["live"] == kernel.counts["live"]
            judge(reference, replay(stream[:count]))
        assert reference.reasons == kernel.reasons
        judge_violations(reference, replay(stream), len(stream))


def bags(case: MergeCase = MergeCase.R4):
    """Histories in which payloads meet themselves often."""
    return histories(case=case, max_events=7, max_time=9, payloads=_PAYLOADS)


@st.composite
def streams(draw, case: MergeCase = MergeCase.R4):
    """A valid stream of such a history."""
    return draw(presentations(draw(bags(case)), case=case, payloads=_PAYLOADS))


@st.composite
def broken_streams(draw):
    """A stream that breaks a promise now and then, and does not end."""
    stream = draw(streams())[:-1]
    for position, element in draw(
        st.lists(st.tuples(st.integers(0, len(stream)), _GARBAGE), max_size=4)
    ):
        stream.insert(position, element)
    return stream


@st.composite
def fragments(draw, truth: History, *, keyed: bool = False):
    """A history with the same snapshots: events cut in pieces at random."""
    pieces, taken = [], set(truth.identities())
    for event in truth:
        last = event.start + 4 if event.end == FOREVER else event.end
        inner = st.integers(int(event.start) + 1, max(int(event.start) + 1, int(last) - 1))
        cuts = sorted(c for c in draw(st.sets(inner, max_size=3)) if c < event.end)
        if keyed:  # no two pieces of a payload may start together
            cuts = [c for c in cuts if (c, event.payload) not in taken]
            taken |= {(c, event.payload) for c in cuts}
        bounds = pairwise([event.start, *cuts, event.end])
        pieces += [Event(event.payload, start, end) for start, end in bounds]
    return History.from_events(pieces)


@cache
def cuts(count: int):
    """Where steps end, among this many elements."""
    inner = st.lists(st.integers(0, count), max_size=5).map(sorted)
    return inner.map(lambda some: [*some, count])
