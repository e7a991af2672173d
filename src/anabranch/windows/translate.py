"""`translate`: the settings of another engine under which a query returns the same.

Candidates are the settings that a user of the target has: the slide (as it was, 1, or the
size) and, for an engine that keeps every window, those of offset, delay and lateness that
it has.  Each is held
against the source on all small streams with the given properties (`Inputs`).  Those without a
difference are in `same`, least change first; each other one has the smallest stream on which
it differs.

"The same" is the values in their order, as the paper prints them; with `compared="windows"`
the windows too.  It was looked at up to a bound, which is in `checked`; it is not proved.

Papers: SECRET C.

>>> found = translate(Query(3, 3, "sum"), "streambase", "flink")
>>> print(found.same[0])
flink, size 3, slide 3, delay 0, lateness 0, offset 0
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Literal

from anabranch.errors import InputError, UsageError
from anabranch.windows.engine import Engine
from anabranch.windows.inference.probes import rounded
from anabranch.windows.inputs import Checked, Inputs, Stream, checked, show_stream
from anabranch.windows.predict import Prediction, run_query, show_value
from anabranch.windows.profiles.known import engine as engine_named
from anabranch.windows.trace import Query

_MOST_OFFSETS = 12
_MOST_SHOWN = 12


@dataclass(frozen=True, slots=True)
class Setting:
    """An engine with its settings, and the query on it."""

    engine: Engine
    query: Query

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        query, progress = self.query, self.engine.progress
        found: dict[str, Any] = {
            "engine": self.engine.name,
            "size": query.size,
            "slide": query.slide,
        }
        if progress is not None:
            options = {
                "delay": progress.delay,
                "lateness": progress.lateness,
                "offset": self.engine.start.offset,
            }
            found |= {key: options[key] for key in options if key in self.engine.options}
        return found

    def __str__(self) -> str:
        shown = self.to_dict()
        name = shown.pop("engine")
        return ", ".join([name, *(f"{key} {_show(value)}" for key, value in shown.items())])


def _show(value: object) -> str:
    return "for ever" if value is None else str(value)


@dataclass(frozen=True, slots=True)
class CounterExample:
    """A setting that returns something else, and the smallest stream found that shows it."""

    setting: Setting
    tuples: Stream
    wanted: tuple[Any, ...]
    got: tuple[Any, ...]
    refused: str | None = None
    """Why the engine does not take the query at all."""

    def __str__(self) -> str:
        if self.refused is not None:
            return f"{self.setting}: {self.refused}"
        return (
            f"{self.setting}: on {show_stream(self.tuples)} it returns {_values(self.got)} "
            f"instead of {_values(self.wanted)}"
        )


def _values(values: Sequence[Any]) -> str:
    words = [show_value(value) for value in values[:_MOST_SHOWN]]
    return f"({', '.join([*words, *(['...'] if len(values) > _MOST_SHOWN else [])])})"


@dataclass(frozen=True, slots=True)
class Translation:
    """The settings that return the same as far as was looked at, and why others do not."""

    query: Query
    source: Engine
    same: tuple[Setting, ...]
    """Least change first."""
    differ: tuple[CounterExample, ...]
    inputs: Inputs
    checked: Checked

    @property
    def candidates(self) -> tuple[Setting, ...]:
        """All that was tried."""
        return (*self.same, *(one.setting for one in self.differ))

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "from": self.source.name,
            "size": self.query.size,
            "slide": self.query.slide,
            "agg": self.query.agg,
            "same": [one.to_dict() for one in self.same],
            "differ": [
                {
                    **one.setting.to_dict(),
                    "tuples": show_stream(one.tuples),
                    "wanted": list(one.wanted),
                    "got": list(one.got),
                    "refused": one.refused,
                }
                for one in self.differ
            ],
            "streams": self.checked.streams,
            "tuples": self.checked.tuples,
            "times": list(self.checked.times),
            "whole": self.checked.whole,
        }

    def __str__(self) -> str:
        asked = f"{self.source.name}, size {self.query.size}, slide {self.query.slide}"
        result = f"no difference on {self.checked}" if self.same else "no candidate is the same"
        same = [f"  {one}" for one in self.same]
        differ = [f"  {one}" for one in self.differ]
        parts = [f"{asked}: {result}", *same, *(["differ:", *differ] if differ else [])]
        return "\n".join(parts)


def translate(
    query: Query,
    from_: str | Engine,
    to: str | Engine | Iterable[str | Engine],
    *,
    inputs: Inputs | None = None,
    compared: Literal["values", "windows"] = "values",
    settings: Iterable[Setting] | None = None,
) -> Translation:
    """How to ask `to`, one engine or several, for what the query returns on `from_`.

    `settings` replaces the candidates that are tried otherwise.
    """
    given: object = query
    if not isinstance(given, Query):
        message = f"query is {given!r}; expected windows.Query(size, slide, agg)"
        raise UsageError(message)
    if compared not in {"values", "windows"}:
        message = f"compared is {compared!r}; expected values or windows"
        raise UsageError(message)
    source = engine_named(from_)
    inputs = inputs or Inputs()
    names = [to] if isinstance(to, str | Engine) else list(to)
    targets = [engine_named(name) for name in names]
    candidates = list(settings or ())
    if settings is None:
        candidates = _candidates(query, source, targets, inputs)
    if not candidates:
        message = "there is no candidate; name at least one engine in to="
        raise UsageError(message)
    streams = list(inputs.streams(query, max(0, source.start.offset)))
    same, differ = _tried(source, query, candidates, streams, compared)
    return Translation(query, source, same, differ, inputs, checked(inputs, streams))


def _candidates(
    query: Query, source: Engine, targets: Sequence[Engine], inputs: Inputs
) -> list[Setting]:
    slides = dict.fromkeys((query.slide, 1, query.size))
    return [
        Setting(engine, replace(query, slide=slide))
        for slide in slides
        for target in targets
        for engine in _variants(target, source, slide, inputs.late)
    ]


def _variants(target: Engine, source: Engine, slide: int, late: int) -> Iterator[Engine]:
    progress = target.progress
    if progress is None:
        yield target
        return
    delays: dict[int | None, None] = {progress.delay: None}
    latenesses: dict[int | None, None] = {progress.lateness: None}
    if late:
        known = source.progress or progress
        delays |= dict.fromkeys((known.delay, late))
        if progress.lateness is not None and "lateness" in target.options:
            latenesses |= dict.fromkeys((known.lateness, late))
    offsets = dict.fromkeys((source.start.offset % slide, *range(min(slide, _MOST_OFFSETS))))
    if "offset" not in target.options:
        offsets = {target.start.offset: None}
    for delay, lateness, offset in product(delays, latenesses, offsets):
        moved = replace(progress, delay=delay, lateness=lateness)
        yield replace(target, start=replace(target.start, offset=offset), progress=moved)


def _tried(
    source: Engine,
    query: Query,
    candidates: Sequence[Setting],
    streams: Sequence[Stream],
    compared: str,
) -> tuple[tuple[Setting, ...], tuple[CounterExample, ...]]:
    alive = dict.fromkeys(candidates)
    differ: dict[Setting, CounterExample] = {}
    for stream in streams:
        wanted = run_query(source, query, stream)
        for setting in list(alive):
            counter = _counter(setting, stream, wanted, compared)
            if counter is not None:
                differ[setting] = counter
                del alive[setting]
        if not alive:
            break
    in_order = tuple(differ[one] for one in dict.fromkeys(candidates) if one in differ)
    return tuple(alive), in_order


def _counter(
    setting: Setting, stream: Stream, wanted: Prediction, compared: str
) -> CounterExample | None:
    try:
        got = run_query(setting.engine, setting.query, stream)
    except (UsageError, InputError) as error:
        return CounterExample(setting, stream, wanted.values, (), str(error))
    if _seen(got, compared) == _seen(wanted, compared):
        return None
    return CounterExample(setting, stream, wanted.values, got.values)


def _seen(prediction: Prediction, compared: str) -> list[Any]:
    if compared == "values":
        return [rounded(value) for value in prediction.values]
    return [(rounded(one.value), one.start, one.end) for one in prediction.results]
