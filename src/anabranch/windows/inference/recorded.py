"""Runs that were written down: what an engine got and what it showed, as answers for `infer`.

A recording rules out the settings that would have shown something else, as a probe does, and
those that have no answer to such an input: the engine accepted it.  Its tuples were not chosen,
and it may be long.  What an engine shows for the first tuples does not depend on those after
them, so each setting is fed part by part: most are gone after a few tuples, and only those left
look at the whole.

Engines that answer at every instant, or at every few, are not considered where times go over
more than `MOST_INSTANTS`: with timestamps that would be every microsecond.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from typing import Any, Final, TypeAlias

from anabranch.errors import InputError, UsageError
from anabranch.model import Stable
from anabranch.windows.engine import Engine
from anabranch.windows.inference.answers import read_results
from anabranch.windows.inference.probes import Probe, Seen, Shown, answer_of, foretold, rounded
from anabranch.windows.machine.machine import Machine
from anabranch.windows.predict import unfit
from anabranch.windows.stream import (
    Arrival,
    Given,
    Row,
    read,
    require_order,
    require_plain_batches,
)
from anabranch.windows.trace import Query

MOST_INSTANTS: Final = 20_000
_FIRST = 8


@dataclass(frozen=True, slots=True)
class Recorded:
    """One run: the query, the tuples in the order of arrival, and the results as shown.

    A result is a value, or a mapping with `value` and, if known, `start`, `end` and `step`;
    see `anabranch.windows.inference.answers`.
    """

    size: int
    slide: int
    tuples: Sequence[Given]
    results: Iterable[Any]

    def read(self, number: int) -> tuple[Probe, tuple[Shown, ...]]:
        """The input as a probe, and the answer to it, both checked."""
        items = read(self.tuples)
        if not any(isinstance(item, Row) for item in items):
            message = f"recording {number} has no tuples; give what the engine got"
            raise InputError(message)
        tuples = tuple(
            item
            if isinstance(item, Stable)
            else Arrival(item.time, item.value, item.arrived, item.batch)
            for item in items
        )
        results: object = self.results
        if results is None or isinstance(results, str | bytes):
            message = f"recording {number}: results is {results!r}; expected a list of results"
            raise UsageError(message)
        return Probe(self.size, self.slide, tuples), read_results(
            self.results, f"recording {number}"
        )


def agreeing(
    engines: Sequence[Engine],
    probe: Probe,
    shown: Sequence[Shown],
    fields: frozenset[str],
    query: Query,
) -> list[Engine]:
    """Those that take such a run and would have shown the same."""
    wanted = answer_of(shown, fields)
    silent = Silent(probe, query)
    parts = list(_parts(probe.tuples))
    return [
        engine
        for engine in engines
        if silent.why(engine) is None and _would_show(engine, query, parts, wanted, fields)
    ]


def _ceaseless(engine: Engine) -> bool:
    """Whether it answers again while nothing happens."""
    report = engine.report
    return engine.windows == "active" and not (report.content_change or report.window_close)


class Silent:
    """Which engines have no answer to a probe, and why."""

    def __init__(self, probe: Probe, query: Query) -> None:
        items = read(probe.tuples)
        times = [int(one.time) for one in probe.tuples]
        self._query = query
        self._disordered = _refused(lambda: require_order(items, "it"))
        self._mixed = _refused(lambda: require_plain_batches(items))
        self._long = query.by == "time" and max(times) - min(times) > MOST_INSTANTS

    def why(self, engine: Engine) -> str | None:
        """Why this one has no answer; None if it has one."""
        lacks = unfit(engine, self._query)
        if lacks is not None:
            return f"it {lacks[0]}"
        if engine.windows != "active":
            return None
        if self._disordered:
            return "it shows one window at a time, which needs tuples in order of time"
        if self._mixed and engine.tick == "batch":
            return "it ticks by batch, which needs one time in each batch"
        if self._long and _ceaseless(engine):
            return f"it answers at every instant, of which there are over {MOST_INSTANTS:,}"
        return None


def _refused(check: Callable[[], None]) -> bool:
    try:
        check()
    except (InputError, UsageError):
        return True
    return False


Items: TypeAlias = Sequence[Arrival | Stable]


def _parts(tuples: Items) -> Iterator[Items]:
    """The input in parts, each several times as long as all before it, cut between batches."""
    part: list[Arrival | Stable] = []
    wanted = _FIRST
    for _, batch in groupby(tuples, key=_batch):
        part += batch
        if len(part) >= wanted:
            yield part
            part, wanted = [], 4 * wanted
    if part:
        yield part


def _batch(one: Arrival | Stable) -> object:
    return one if isinstance(one, Stable) else one.batch


def _would_show(
    engine: Engine, query: Query, parts: Sequence[Items], wanted: Seen, fields: frozenset[str]
) -> bool:
    if query.by != "time":
        probe = Probe(query.size, query.slide, tuple(chain.from_iterable(parts)))
        predicted = foretold(engine, probe, query.agg, "rows")
        return predicted is not None and answer_of(predicted, fields) == wanted
    machine = Machine(engine, query)
    results: list[Shown] = []
    seen: Seen = ()
    for part in parts:
        results += (
            Shown(rounded(one.value), one.start, one.end, one.step)
            for one in machine.feed(part).shown
        )
        seen = answer_of(results, fields)
        if seen != wanted[: len(seen)]:
            return False
    return seen == wanted
