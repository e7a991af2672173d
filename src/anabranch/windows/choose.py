"""`choose`: which engines fit what an application needs.

Needs are names of `NEEDS`, or `Need` values of your own.  Each engine is tried on all small
streams that can show a lack (`Inputs`; for needs about late tuples or batches, streams that
have them).  One that never lacks anything fits, as far as was looked at; each other one is
listed with the first need that it lacks, why, and the smallest stream that shows it.

Papers: SECRET C.

>>> choice = choose(["no-repeats", "soon"], engines=["stream", "coral8", "streambase"])
>>> [engine.name for engine in choice.fits]
['coral8']
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

from anabranch.errors import InputError, UsageError
from anabranch.windows.engine import Engine
from anabranch.windows.inputs import Checked, Inputs, Stream, checked, show_stream
from anabranch.windows.needs import NEEDS, Need, Seen, rows_in
from anabranch.windows.predict import Result, run_query, show_value
from anabranch.windows.profiles.known import ENGINES
from anabranch.windows.profiles.known import engine as engine_named
from anabranch.windows.trace import Query


@dataclass(frozen=True, slots=True)
class Lack:
    """A need that an engine does not meet, and the smallest stream found that shows it."""

    engine: Engine
    need: Need
    why: str
    tuples: Stream
    shown: tuple[Any, ...]
    """The values that the engine returns on it."""

    def __str__(self) -> str:
        shown = ", ".join(show_value(value) for value in self.shown)
        return (
            f"{self.engine.name} lacks {self.need.name}: {self.why} "
            f"(tuples {show_stream(self.tuples)}; shown: {shown or 'nothing'})"
        )


@dataclass(frozen=True, slots=True)
class Choice:
    """The engines that fit, and why others do not."""

    query: Query
    needs: tuple[Need, ...]
    fits: tuple[Engine, ...]
    lacks: tuple[Lack, ...]
    """One for each engine that does not fit."""
    checked: tuple[Checked, ...]
    """How far it was looked at, for each need."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "size": self.query.size,
            "slide": self.query.slide,
            "needs": [need.name for need in self.needs],
            "fits": [engine.name for engine in self.fits],
            "lacks": [
                {
                    "engine": one.engine.name,
                    "need": one.need.name,
                    "why": one.why,
                    "tuples": show_stream(one.tuples),
                    "shown": list(one.shown),
                }
                for one in self.lacks
            ],
            "streams": [one.streams for one in self.checked],
        }

    def __str__(self) -> str:
        names = ", ".join(engine.name for engine in self.fits) or "none"
        return "\n".join([f"fits: {names}", *map(str, self.lacks)])


def choose(
    needs: Iterable[str | Need],
    *,
    engines: Iterable[str | Engine] | None = None,
    size: int = 3,
    slide: int = 2,
    late: int = 2,
    inputs: Inputs | None = None,
) -> Choice:
    """The engines, of those given or of all that we know, that meet all needs.

    `late` is how far a late tuple is behind, for the needs about them; `inputs` selects which
    streams come, if fewer than all small ones do (such as streams without gaps).
    """
    wanted = tuple(_need(one) for one in ([needs] if isinstance(needs, str) else needs))
    if not wanted:
        message = f"there are no needs; choose from {', '.join(NEEDS)}"
        raise UsageError(message)
    tried = [engine_named(one) for one in (ENGINES if engines is None else engines)]
    query = Query(size, slide, "sum")
    given = inputs or Inputs()
    looks = [(_query(need, query), _inputs(need, given, late)) for need in wanted]
    streams = [list(asked.streams(on)) for on, asked in looks]
    lacks: list[Lack] = []
    fits: list[Engine] = []
    for engine in tried:
        lack = next(
            (
                found
                for need, (on, _), some in zip(wanted, looks, streams, strict=True)
                if (found := _lack(engine, need, on, some)) is not None
            ),
            None,
        )
        if lack is None:
            fits.append(engine)
        else:
            lacks.append(lack)
    looked = tuple(
        checked(asked, some) for (_, asked), some in zip(looks, streams, strict=True)
    )
    return Choice(query, wanted, tuple(fits), tuple(lacks), looked)


def _need(name: str | Need) -> Need:
    if isinstance(name, Need):
        return name
    if name in NEEDS:
        return NEEDS[name]
    near = get_close_matches(str(name), NEEDS, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    message = f"unknown need {name!r}; {hint}known are {', '.join(NEEDS)}"
    raise UsageError(message)


def _query(need: Need, query: Query) -> Query:
    if need.query == "slide above size":
        return replace(query, slide=max(query.slide, query.size + 1))
    return query


def _inputs(need: Need, inputs: Inputs, late: int) -> Inputs:
    if need.streams == "late":
        return replace(inputs, gaps=True, late=max(inputs.late, late))
    if need.streams == "batches":
        return replace(inputs, late=0, batches="any")
    return inputs


def _lack(engine: Engine, need: Need, query: Query, streams: Sequence[Stream]) -> Lack | None:
    for stream in streams:
        tuples = rows_in(stream)

        def upto(count: int, tuples: tuple[Any, ...] = tuples) -> tuple[Result, ...]:
            return run_query(engine, query, tuples[:count]).results

        try:
            shown = run_query(engine, query, stream)
            why = need.check(Seen(tuples, shown.results, upto))
        except (UsageError, InputError) as error:
            return Lack(engine, need, f"it does not take this: {error}", stream, ())
        if why is not None:
            return Lack(engine, need, why, stream, shown.values)
    return None
