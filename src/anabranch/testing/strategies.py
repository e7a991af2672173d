"""Random histories, and random physical streams that stand for them.

* `histories()`: a history that streams of the asked merge case can present.
* `presentations(history)`: a physical stream of that history, with disorder, provisional ends
  that are adjusted later, removals, phantom events, elements that change nothing, and stables
  of its own.  It is valid at every prefix; at its end it has the history (unless it was asked
  to have gaps, or to be truncated).
* `replicas()`: several such streams of one history.
* `joiners(history, guarantee=t)`: such a stream of a replica that attaches late.
* `interleavings(streams)`: one order in which the elements of several streams may arrive.
* `conflicting_arrivals()`: arrivals of streams that disagree and may contain violations.

A stable is placed only where everything that follows keeps its promise.  All shrinks towards
ordered streams without revisions.  Needs Hypothesis: `pip install hypothesis`.

Hypothesis validates every strategy object at its first draw, which costs more than the draw.
So strategies are cached here, and what depends on a drawn value is drawn without flatmap.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import pairwise
from typing import Final, TypeAlias, TypeVar

from anabranch.errors import SetupError
from anabranch.model.element import Adjust, Element, Event, Insert, Stable
from anabranch.model.history import History
from anabranch.model.properties import MergeCase
from anabranch.model.time import FOREVER, Time

try:
    from hypothesis import strategies as st
    from hypothesis.strategies import DrawFn, SearchStrategy
except ModuleNotFoundError as error:
    message = (
        "anabranch.testing: the strategies need Hypothesis, which is not installed; "
        "install it with: pip install hypothesis"
    )
    raise SetupError(message) from error

Data: TypeAlias = Insert | Adjust
T = TypeVar("T")

_KEYED: Final = (MergeCase.R2, MergeCase.R3)
_INSERT_ONLY: Final = (MergeCase.R0, MergeCase.R1, MergeCase.R2)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shape:
    case: MergeCase
    disorder: int
    revisions: int
    phantoms: int
    gaps: bool
    closed: bool
    truncated: bool
    payloads: SearchStrategy[Hashable]


def histories(
    *,
    case: MergeCase = MergeCase.R3,
    max_events: int = 6,
    max_time: int = 12,
    payloads: SearchStrategy[Hashable] | None = None,
) -> SearchStrategy[History]:
    """Histories that streams of this case can present; some ends are FOREVER.

    For R0 starts are unique, for R2 and R3 identities are, for R1 and R4 nothing is: there
    about every second event has the identity of the one before.
    """
    return _histories(case, max_events, max_time, _LETTERS if payloads is None else payloads)


@lru_cache(maxsize=256)
def _histories(
    case: MergeCase, max_events: int, max_time: int, payloads: SearchStrategy[Hashable]
) -> SearchStrategy[History]:
    events = _events(max_time, payloads)
    if case is MergeCase.R0:
        bags = st.lists(events, max_size=max_events, unique_by=lambda event: event.start)
    elif case in _KEYED:
        bags = st.lists(events, max_size=max_events, unique_by=lambda event: event.identity)
    else:
        twins = st.tuples(events, st.booleans())
        bags = st.lists(twins, max_size=max_events).map(
            lambda some: _with_twins(some, max_time)
        )
    return bags.map(History.from_events)


def presentations(
    history: History,
    *,
    case: MergeCase = MergeCase.R3,
    disorder: int = 4,
    revisions: int = 2,
    phantoms: int = 2,
    gaps: bool = False,
    closed: bool = True,
    truncated: bool = False,
    payloads: SearchStrategy[Hashable] | None = None,
) -> SearchStrategy[list[Element]]:
    """Physical streams of this history that keep every promise of their own stables.

    `disorder` is the greatest delay of an element in units of time; `revisions` the greatest
    number of provisional ends per event; `phantoms` the greatest number of events that come and
    go.  With `gaps` some events may be left out; `closed` streams end with stable(FOREVER);
    `truncated` ones stop anywhere.  For R0 to R2 there is neither disorder nor revision: only
    the stables differ and, for R2, the order within one start.  R1 and R4 repeat identities.
    """
    shape = _Shape(
        case=case,
        disorder=disorder,
        revisions=revisions,
        phantoms=phantoms,
        gaps=gaps,
        closed=closed,
        truncated=truncated,
        payloads=_LETTERS if payloads is None else payloads,
    )
    return _presentations(history, shape)


def replicas(
    *,
    case: MergeCase = MergeCase.R3,
    min_inputs: int = 1,
    max_inputs: int = 3,
    history: SearchStrategy[History] | None = None,
    disorder: int = 4,
    revisions: int = 2,
    phantoms: int = 2,
    gaps: bool = False,
    closed: bool = True,
    truncated: bool = False,
    payloads: SearchStrategy[Hashable] | None = None,
) -> SearchStrategy[list[list[Element]]]:
    """Several physical streams of one random history; options as for `presentations`."""
    shape = _Shape(
        case=case,
        disorder=disorder,
        revisions=revisions,
        phantoms=phantoms,
        gaps=gaps,
        closed=closed,
        truncated=truncated,
        payloads=_LETTERS if payloads is None else payloads,
    )
    known = histories(case=case, payloads=payloads) if history is None else history
    return _replicas(known, shape, _integers(min_inputs, max_inputs))


def joiners(
    history: History,
    *,
    guarantee: Time,
    case: MergeCase = MergeCase.R3,
    strangers: int = 0,
    disorder: int = 4,
    revisions: int = 2,
    phantoms: int = 2,
    closed: bool = True,
    payloads: SearchStrategy[Hashable] | None = None,
) -> SearchStrategy[list[Element]]:
    """Streams of a replica that attaches late: right about what ends at `guarantee` or later.

    Of what ends before, it has some events and omits others, also of identities of which it has
    a later one.  It has at most `strangers` events that end before and that never were true.
    The other options are those of `presentations`.
    """
    shape = _Shape(
        case=case,
        disorder=disorder,
        revisions=revisions,
        phantoms=phantoms,
        gaps=False,
        closed=closed,
        truncated=False,
        payloads=_LETTERS if payloads is None else payloads,
    )
    return _joiners(history, guarantee, strangers, shape)


def interleavings(
    streams: Sequence[Sequence[Element]],
) -> SearchStrategy[list[tuple[int, Element]]]:
    """Orders of arrival: (number of the stream, element), each stream in its own order."""
    turns = [number for number, stream in enumerate(streams) for _ in stream]

    def deal(order: Sequence[int]) -> list[tuple[int, Element]]:
        waiting = [iter(stream) for stream in streams]
        numbers = [turns[place] for place in order]
        return [(number, next(waiting[number])) for number in numbers]

    return _orders(len(turns)).map(deal)


def conflicting_arrivals(
    *,
    case: MergeCase = MergeCase.R3,
    inputs: int = 3,
    wrong: int = 3,
    history: SearchStrategy[History] | None = None,
) -> SearchStrategy[list[tuple[int, Element]]]:
    """Arrivals of streams with different histories, with up to `wrong` invalid elements.

    The streams do not end: after that nothing could happen any more.  Independent random
    elements would nearly all be violations, and never lead to a conflict.
    """
    known = histories(case=case, max_events=4, max_time=7) if history is None else history
    return _conflicting(replicas(case=case, max_inputs=1, history=known), inputs, wrong)


@cache
def _integers(least: int, greatest: int) -> SearchStrategy[int]:
    return st.integers(least, greatest)


@cache
def _orders(count: int) -> SearchStrategy[list[int]]:
    return st.permutations(range(count))


@cache
def _ends(start: int, max_time: int) -> SearchStrategy[Time]:
    return st.one_of(_integers(start + 1, max(max_time, start + 1)), st.just(FOREVER))


@cache
def _provisional_ends(start: int, max_time: int, count: int) -> SearchStrategy[list[Time]]:
    return st.lists(_ends(start, max_time), max_size=count)


_BOOLEANS: Final = st.booleans()
_LETTERS: Final[SearchStrategy[Hashable]] = st.sampled_from("abc")
_SLACKS: Final = st.sampled_from([None, None, 0, 0, 1, 4])
_STARTS: Final = st.integers(-1, 6)
_WRONG_ENDS: Final = st.one_of(st.integers(-1, 8), st.just(FOREVER))
_GARBAGE: Final[SearchStrategy[Element]] = st.one_of(
    st.builds(Insert, _LETTERS, _STARTS, _WRONG_ENDS),
    st.builds(Adjust, _LETTERS, _STARTS, _WRONG_ENDS, _WRONG_ENDS),
    st.builds(Stable, _WRONG_ENDS),
)


def _event(draw: DrawFn, max_time: int, payloads: SearchStrategy[Hashable]) -> Event:
    start = draw(_integers(0, max_time - 1))
    return Event(draw(payloads), start, draw(_ends(start, max_time)))


_events = st.composite(_event)


def _with_twins(drawn: Sequence[tuple[Event, bool]], max_time: int) -> list[Event]:
    """Each event that is a twin gets the identity of the one before, and keeps its duration."""
    events: list[Event] = []
    for event, is_twin in drawn:
        if is_twin and events:
            payload, start, _ = events[-1]
            end = start + (event.end - event.start)
            events.append(Event(payload, start, end if end == FOREVER else min(end, max_time)))
        else:
            events.append(event)
    return events


@lru_cache(maxsize=256)
@st.composite
def _replicas(
    draw: DrawFn, known: SearchStrategy[History], shape: _Shape, counts: SearchStrategy[int]
) -> list[list[Element]]:
    history = draw(known)
    return [_present(draw, history, shape) for _ in range(draw(counts))]


@lru_cache(maxsize=256)
@st.composite
def _conflicting(
    draw: DrawFn, stream: SearchStrategy[list[list[Element]]], inputs: int, wrong: int
) -> list[tuple[int, Element]]:
    arrived = draw(interleavings([draw(stream)[0][:-1] for _ in range(inputs)]))
    for _ in range(draw(_integers(0, wrong))):
        position, number = draw(_integers(0, len(arrived))), draw(_integers(0, inputs - 1))
        arrived.insert(position, (number, draw(_GARBAGE)))
    return arrived


@st.composite
def _joiners(
    draw: DrawFn, history: History, guarantee: Time, strangers: int, shape: _Shape
) -> list[Element]:
    """Strangers are such as the case permits."""
    case = shape.case
    events = [e for e in history.events() if e.end >= guarantee or draw(_BOOLEANS)]
    horizon = 12 if guarantee == FOREVER else int(guarantee) - 1
    for _ in range(draw(_integers(0, strangers)) if horizon > 0 else 0):
        start = draw(_integers(0, horizon - 1))
        one = Event(draw(shape.payloads), start, draw(_integers(start + 1, horizon)))
        is_taken = (case in _KEYED and any(e.identity == one.identity for e in events)) or (
            case is MergeCase.R0 and any(e.start == start for e in events)
        )
        if not is_taken:
            events.append(one)
    return _present(draw, History.from_events(events), shape)


def _present(draw: DrawFn, history: History, shape: _Shape) -> list[Element]:
    if shape.case in _INSERT_ONLY:
        data = _in_order(draw, history, shape)
    else:
        data = _revised(draw, history, shape)
    stream = _with_stables(draw, data, shape)
    return stream[: draw(_integers(0, len(stream)))] if shape.truncated else stream


_presentations = st.composite(_present)


def _in_order(draw: DrawFn, history: History, shape: _Shape) -> list[Data]:
    events = _kept(draw, history, shape)
    if shape.case is MergeCase.R2:
        events = sorted(_shuffled(draw, events), key=lambda event: event.start)
    return [Insert(*event) for event in events]


def _revised(draw: DrawFn, history: History, shape: _Shape) -> list[Data]:
    """Each event's own elements in their order, shuffled together within the disorder."""
    horizon = max([12, *(int(event.start) + 2 for event in history)])
    lives = [_life(draw, event, shape, horizon) for event in _kept(draw, history, shape)]
    for _ in range(draw(_integers(0, shape.phantoms))):
        event = _event(draw, horizon, shape.payloads)
        phantom = _phantom(draw, event, shape, horizon)
        namesake = next(
            (life for life in lives if life[0].event.identity == event.identity), []
        )
        if shape.case is MergeCase.R3 and namesake:
            # Where identities name one event, a phantom must be gone before its namesake comes.
            namesake[:0] = phantom
        else:
            lives.append(phantom)
    timed = [step for life in _shuffled(draw, lives) for step in _timed(draw, life, shape)]
    return [element for _, element in sorted(timed, key=lambda step: step[0])]


def _shuffled(draw: DrawFn, items: Sequence[T]) -> list[T]:
    return [items[place] for place in draw(_orders(len(items)))]


def _kept(draw: DrawFn, history: History, shape: _Shape) -> list[Event]:
    events = history.events()
    gaps = draw(st.sets(_integers(0, len(events)))) if shape.gaps else set()
    return [event for number, event in enumerate(events) if number not in gaps]


def _life(draw: DrawFn, event: Event, shape: _Shape, horizon: int) -> list[Data]:
    """An insert with a provisional end, adjusts, and in the end the event as it is."""
    provisional = _provisional_ends(int(event.start), horizon, shape.revisions)
    ends = [*draw(provisional), event.end]
    adjusts = [Adjust(event.payload, event.start, old, new) for old, new in pairwise(ends)]
    return [Insert(event.payload, event.start, ends[0]), *adjusts]


def _phantom(draw: DrawFn, event: Event, shape: _Shape, horizon: int) -> list[Data]:
    """An event that is removed again, or an insert that never was one."""
    if draw(_BOOLEANS):
        return [Insert(event.payload, event.start, event.start)]
    removal = Adjust(event.payload, event.start, event.end, event.start)
    return [*_life(draw, event, shape, horizon), removal]


def _timed(draw: DrawFn, life: Sequence[Data], shape: _Shape) -> list[tuple[Time, Data]]:
    """When each element arrives: not before its start, nor before the one it follows."""
    steps: list[tuple[Time, Data]] = []
    time = life[0].start
    for element in life:
        time += draw(_integers(0, shape.disorder))
        steps.append((time, element))
    return steps


def _with_stables(draw: DrawFn, data: Sequence[Data], shape: _Shape) -> list[Element]:
    """Between any two elements perhaps a stable: the greatest that is true, or a smaller."""
    bounds = [FOREVER]
    for element in reversed(data):
        bounds.append(min(bounds[-1], _greatest_stable(element)))
    bounds.reverse()
    ends = (element.end for element in data if element.end < FOREVER)
    horizon = max([0, *(element.start + 1 for element in data), *(end + 1 for end in ends)])
    stream: list[Element] = []
    for number, bound in enumerate(bounds):
        slack = draw(_SLACKS)
        if slack is not None:
            stream.append(Stable(min(bound, horizon) - slack))
        stream.extend(data[number : number + 1])
    return [*stream, Stable(FOREVER)] if shape.closed else stream


def _greatest_stable(element: Data) -> Time:
    """The greatest stable that this element may follow."""
    if element.changes_nothing:
        return FOREVER
    return element.start if isinstance(element, Insert) else min(element.old_end, element.end)
