"""Streams for operators of one input: valid ones, broken ones, and fragments of one truth."""

from collections.abc import Sequence
from itertools import pairwise

import pyarrow as pa
from hypothesis import strategies as st

from anabranch.batch.codec import from_elements
from anabranch.batch.schema import ElementSchema, TimeType
from anabranch.model.element import Adjust, Element, Event, Insert, Stable
from anabranch.model.history import History, Violation
from anabranch.model.history import Reason as Broken
from anabranch.model.properties import MergeCase
from anabranch.model.time import FOREVER
from anabranch.operators.contract import REASONS, Arrival, Bucket, Inputs, StepResult
from anabranch.testing.step_account import StepAccount
from anabranch.testing.strategies import histories, presentations

SCHEMA = ElementSchema(TimeType.BIGINT, pa.schema({"p": pa.string()}))

_PAYLOADS = st.sampled_from("ab")
_TIMES = st.integers(-1, 9)
_ENDS = st.one_of(_TIMES, st.just(FOREVER))
_GARBAGE = st.one_of(
    st.builds(Insert, _PAYLOADS, _TIMES, _ENDS),
    st.builds(Adjust, _PAYLOADS, _TIMES, _ENDS, _ENDS),
    st.builds(Stable, _ENDS),
)


def batch_of(elements: Sequence[Element]):
    return from_elements(elements, SCHEMA)


def step(state, batch) -> StepResult:
    """One step of an operator of one input; what it says is accounted for."""
    arrival = Arrival("input", batch)
    result = state.step(Inputs((arrival,)))
    account = StepAccount()
    account.add([arrival], result)
    assert account.adds_up, account
    assert result.frontier == state.frontier
    return result


def violations(result, elements) -> list[Violation]:
    """The elements that broke a promise, as the model names them."""
    (codes,) = result.reasons
    return [
        Violation(position, element, Broken[REASONS[code].name])
        for position, (element, code) in enumerate(zip(elements, codes, strict=True))
        if REASONS[code].bucket is Bucket.VIOLATION
    ]


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


def cuts(count: int):
    """Where steps end, among this many elements."""
    inner = st.lists(st.integers(0, count), max_size=5).map(sorted)
    return inner.map(lambda some: [*some, count])
