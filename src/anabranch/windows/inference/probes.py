"""The probes of `infer`, and the answers that the model predicts for an engine.

A probe is one query on one small stream.  The value of the n-th tuple is the n-th power of
two, so that a sum identifies the tuples of a window.  Streams have gaps, simultaneous tuples,
batches and, if asked for, late tuples; they end with two tuples far ahead, because an engine
shows a result only when time goes on (errata S8, S15).

An answer is what can be compared: values rounded to twelve digits (two engines need not divide
alike in the last bit), with their windows and steps where the engine shows them.  Within one
step the order of results is not defined, so with steps it is not compared.

Papers: SECRET B.3 lists the irregularities that a probe should have.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from random import Random
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from anabranch.errors import InputError, UsageError
from anabranch.model import Stable
from anabranch.windows.aggregate import aggregate
from anabranch.windows.engine import Engine
from anabranch.windows.predict import read_for, trace
from anabranch.windows.stream import Arrival, Item
from anabranch.windows.trace import Query

FIELDS: Final = ("value", "start", "end", "step")
_DIGITS: Final = 12
_LATE_SHARE: Final = 0.3
_MOST_SHOWN: Final = 24


@dataclass(frozen=True, slots=True)
class Probe:
    """One query on one stream."""

    size: int
    slide: int
    tuples: tuple[Arrival | Stable, ...]

    def __str__(self) -> str:
        shown = ", ".join(_show(one) for one in self.tuples[:_MOST_SHOWN])
        if len(self.tuples) > _MOST_SHOWN:
            shown += f" ... and {len(self.tuples) - _MOST_SHOWN:,} more"
        return f"size {self.size}, slide {self.slide}, tuples (time value batch) {shown}"


def _show(one: Arrival | Stable) -> str:
    if isinstance(one, Stable):
        return f"stable {one.time}"
    return f"{one.time} {one.value} {one.batch}"


@dataclass(frozen=True, slots=True)
class Kinds:
    """What the streams of probes may have."""

    batches: bool = True
    """Batches of several tuples; otherwise each tuple is a batch of its own."""
    late: bool = False
    """Tuples out of order, and batches with several times."""
    stables: bool = False
    by: Literal["time", "rows"] = "time"


def make_probe(random: Random, kinds: Kinds) -> Probe:
    """A probe by chance: the same for the same state of `random`."""
    size = random.randint(1, 6)
    slide = random.choice([1, size, random.randint(1, size), random.randint(1, size + 3)])
    time = random.randint(0, 2 * size)
    times = [time]
    for _ in range(random.randint(2, 6)):
        steps = [0, 0, 1, 1, 2, slide, size, size + slide + 1]
        time += random.choice(steps)
        behind = kinds.late and random.random() < _LATE_SHARE
        # Not before 0, where some engines start their clock (Spark: 1970).
        times.append(max(0, time - (random.randint(1, size + 4) if behind else 0)))
    last = max(times) + size + slide + random.randint(1, 12)
    tuples = _in_batches(random, kinds, times)
    if kinds.stables and random.random() < 0.5:
        tuples.append(Stable(last))
    batch = len(times) + 1
    for ahead, when in enumerate((last, last + random.choice([0, 1, size + slide]))):
        tuples.append(Arrival(when, 2 ** (len(times) + ahead), batch=batch + ahead))
    return Probe(size, slide, tuple(tuples))


def is_irregular(probe: Probe) -> bool:
    """Whether tuples are out of order, or a batch has several times."""
    tuples = [one for one in probe.tuples if isinstance(one, Arrival)]
    return any(
        late.time < one.time or (late.batch == one.batch and late.time != one.time)
        for one, late in pairwise(tuples)
    )


def regular(probe: Probe) -> Probe:
    """The same query on the same times in order, each tuple a batch of its own."""
    times = sorted(one.time for one in probe.tuples if isinstance(one, Arrival))
    tuples = [Arrival(time, 2**n, batch=n + 1) for n, time in enumerate(times)]
    return Probe(probe.size, probe.slide, tuple(tuples))


def _in_batches(random: Random, kinds: Kinds, times: Sequence[int]) -> "list[Arrival | Stable]":
    found: list[Arrival | Stable] = []
    batch = 1
    for number, time in enumerate(times):
        if number:
            same = kinds.batches and (kinds.late or time == times[number - 1])
            batch += not (same and random.random() < 0.5)
        found.append(Arrival(time, 2**number, batch=batch))
    return found


class Shown(NamedTuple):
    """One result as an engine shows it; None for a field that it does not show."""

    value: Any
    start: int | None = None
    end: int | None = None
    step: int | None = None


def foretold(
    engine: Engine, probe: Probe, agg: str, by: Literal["time", "rows"]
) -> tuple[Shown, ...] | None:
    """The model's answer to a probe; None where it has none.

    It takes late tuples and mixed batches only with every window, and there an offset only
    below the slide.
    """
    query = Query(probe.size, probe.slide, agg, by)
    try:
        steps = trace(engine, query, _items(query, probe.tuples))
    except (InputError, UsageError):
        return None
    compute = aggregate(agg)
    return tuple(
        Shown(
            rounded(compute([row.value for row in visit.content])),
            visit.window.after + 1,
            visit.window.upto + 1,
            number,
        )
        for number, step in enumerate(steps, start=1)
        for visit in step.visits
        if visit.reported
    )


@lru_cache(maxsize=256)
def _items(query: Query, tuples: tuple[Arrival | Stable, ...]) -> list[Item]:
    """The tuples of a probe as its query sees them: the same for every engine."""
    return read_for(query, tuples)


predicted = lru_cache(maxsize=30_000)(foretold)
"""Cached, since the same probe is predicted for many engines."""


def rounded(value: Any) -> Any:
    """The value as it is compared: a whole number is one, whatever its type."""
    if isinstance(value, list | tuple):
        return tuple(rounded(one) for one in value)
    if not isinstance(value, float) or not math.isfinite(value):
        return value
    near = float(f"{value:.{_DIGITS}g}")
    return int(near) if near.is_integer() else near


Seen: TypeAlias = tuple[Any, ...]
"""What of an answer is compared."""


def answer_of(shown: Sequence[Shown], fields: frozenset[str]) -> Seen:
    """What is compared: the fields that the engine shows, results of one step in any order."""
    plain = [
        tuple(getattr(one, name) for name in FIELDS[:3] if name in fields) for one in shown
    ]
    if "step" not in fields:
        return tuple(plain)
    groups: list[list[Any]] = []
    last: int | None = None
    for one, result in zip(shown, plain, strict=True):
        if one.step != last or not groups:
            groups.append([])
        groups[-1].append(result)
        last = one.step
    return tuple(tuple(sorted(group, key=repr)) for group in groups)
