"""Random valid streams of rows with a key and values, for the laws of the aggregate."""

import math
import random

import pyarrow as pa

from anabranch.model.element import Adjust, Element, Event, Insert, Stable
from anabranch.model.time import FOREVER
from anabranch.operators.aggregate.functions import Aggregate

PAYLOAD = pa.schema({"k": pa.string(), "x": pa.int64(), "y": pa.float64()})
INVERTIBLE = [
    Aggregate("count", None, "n"),
    Aggregate("count", "x", "known"),
    Aggregate("sum", "x", "total"),
    Aggregate("avg", "y", "mean"),
    Aggregate("stddev", "y", "spread"),
]
BY_VALUE = [
    Aggregate("min", "x", "least"),
    Aggregate("max", "y", "most"),
    Aggregate("min", "k", "first"),
    Aggregate("count_distinct", "x", "distinct"),
    Aggregate("collect", "y", "all"),
    Aggregate("quantile", "x", "median", p=0.5),
]
DOUBLES = [1.5, -0.0, 0.0, 1e300, -1e300, 5e-324, math.nan, math.inf, -math.inf, None, 0.1, 0.2]


def stream(chance: random.Random, count: int, *, fixed_ends: bool = False) -> list[Element]:
    """Elements that keep their promises; `fixed_ends`: ends change by removals alone."""
    live: list[Event] = []
    frontier, made = -3, []
    for _ in range(count):
        word = chance.random()
        free = [e for e in live if (e.start if fixed_ends else e.end) >= frontier]
        if word < 0.15:
            frontier += chance.randint(0, 4)
            made.append(Stable(frontier))
        elif word < 0.6 or not free:
            start = frontier + chance.randint(0, 6)
            end = chance.choice([FOREVER, start + chance.randint(0, 8)])
            made.append(Insert(row(chance), start, end))
            live += [Event(*made[-1].event)] if end > start else []
        else:
            event = chance.choice(free)
            live.remove(event)
            end = event.start if fixed_ends else _end(chance, event, frontier)
            made.append(Adjust(event.payload, event.start, event.end, end))
            live += [Event(event.payload, event.start, end)] if end > event.start else []
    return [*made, Stable(FOREVER)] if chance.random() < 0.2 else made


def row(chance: random.Random) -> tuple[str, int | None, float | None]:
    return chance.choice("aaab"), chance.choice([None, 1, 2, 3]), chance.choice(DOUBLES)


def _end(chance: random.Random, event: Event, frontier: int) -> float:
    ends = [*range(max(frontier, event.start), event.start + 12), FOREVER, event.end]
    return chance.choice([*ends, *[event.start] * (3 if event.start >= frontier else 0)])
