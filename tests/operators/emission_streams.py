"""Random streams in order, and aggregates in each way to emit as functions of streams."""

import random
from collections.abc import Callable, Sequence
from itertools import pairwise

import pyarrow as pa

from anabranch.batch.codec import from_elements, to_elements
from anabranch.batch.schema import ElementSchema, TimeType
from anabranch.model.element import Adjust, Element, Event, Insert, Stable
from anabranch.model.emission import Emit, cut_on_grid
from anabranch.model.history import History
from anabranch.model.operators import aggregate
from anabranch.model.time import FOREVER
from anabranch.operators.aggregate.functions import Aggregate
from anabranch.operators.aggregate.operator import AggregateOperator
from anabranch.operators.contract import Arrival, Inputs
from anabranch.operators.reference.aggregate import AggregateByElement

SCHEMA = ElementSchema(TimeType.BIGINT, pa.schema({"x": pa.int64()}))
COUNT = Aggregate("count", None, "n")

Made = Callable[[Sequence[Element]], list[Element]]


def in_order(chance: random.Random, count: int, *, perfect: bool = False) -> list[Element]:
    """Elements whose sync times never fall; perfect ones are inserts and stables alone."""
    now, live, made = chance.randint(-3, 3), [], []
    for _ in range(count):
        word = chance.random()
        changing = [e for e in live if e.end >= now]
        if word < 0.2:
            now += chance.randint(0, 4)
            made.append(Stable(now))
        elif word < 0.65 or perfect or not changing:
            now += chance.randint(0, 3)
            end = chance.choice([FOREVER, now + chance.randint(1, 9)])
            made.append(Insert(chance.randint(0, 2), now, end))
            live.append(made[-1].event)
        else:
            event = chance.choice(changing)
            end = chance.choice([max(now, event.start), max(now, event.start) + 3, FOREVER])
            if end == event.end:
                continue
            live.remove(event)
            made.append(Adjust(event.payload, event.start, event.end, end))
            live += [made[-1].event] if end > event.start else []
            now = max(now, min(event.end, end))
    return made


def counted(history: History) -> History:
    """The table of a count of all events."""
    return aggregate(history, lambda _: (), lambda alive: (len(alive),))


def by_element(emit: Emit, cut_every: int | None = None) -> Made:
    """The reference as a function of streams; its payloads are those of `counted`."""

    def made(stream: Sequence[Element]) -> list[Element]:
        state = AggregateByElement(["x"], (), (COUNT,), emit=emit, cut_every=cut_every)
        return columns([out for element in stream for out in state.push(element)])

    return made


def by_kernel(emit: Emit, cut_every: int | None = None) -> Made:
    """The kernel as a function of streams, in steps of one element."""
    operator = AggregateOperator(SCHEMA, (), (COUNT,), emit=emit, cut_every=cut_every)

    def made(stream: Sequence[Element]) -> list[Element]:
        state = operator.empty()
        found = [out for element in stream for out in step(state, [element])]
        state.check()
        return columns(found)

    return made


def step(state, elements: Sequence[Element], schema: ElementSchema = SCHEMA) -> list[Element]:
    """What a state emits for these elements in one step."""
    result = state.step(Inputs((Arrival("input", from_elements(elements, schema)),)))
    return to_elements(result.output)


def columns(elements: Sequence[Element]) -> list[Element]:
    """Payloads as tuples of columns, as the model has them."""
    return [
        one if isinstance(one, Stable) else type(one)((one.payload,), *times(one))
        for one in elements
    ]


def times(one: Insert | Adjust) -> tuple[float, ...]:
    """All times of an element, in their order."""
    return (
        (one.start, one.end) if isinstance(one, Insert) else (one.start, one.old_end, one.end)
    )


def adversary(prefix: Sequence[Element], event: Event) -> Insert:
    """An insert that a perfect stream may go on with, and that makes an event untrue.

    It starts where time has passed to, within the event: it ends the event there, or changes
    how many events are counted.
    """
    passed = max(one.time if isinstance(one, Stable) else one.start for one in prefix)
    assert event.end > passed, f"{event} has passed at {passed}"
    return Insert(9, max(passed, event.start), FOREVER)


def final_table(stream: Sequence[Element], cut_every: int | None = None) -> History:
    """The table of a count at the end of a stream of one group."""
    table = counted(History.of(stream))
    if cut_every is None:
        return table
    seen = [one.start for one in stream if isinstance(one, Insert) and not one.changes_nothing]
    stables = [e.time for e in stream if isinstance(e, Stable) and e.time < FOREVER]
    return cut_on_grid(table, cut_every, until=max([*seen, *stables], default=0))


def cuts_of(chance: random.Random, count: int) -> list[tuple[int, int]]:
    """Some steps that make up a stream of this length."""
    inner = sorted(chance.randint(0, count) for _ in range(chance.randint(0, 5)))
    return list(pairwise([0, *inner, count]))
