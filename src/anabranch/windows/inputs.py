"""All small streams with given properties, smallest first: what `translate` and `choose` try.

A law about engines is looked at on every stream of an `Inputs` up to a bound, so a difference
that is found is as small as any, and "none" means none up to that bound: no proof.

Each stream ends with a `Stable` after the last window, so that all there is is shown.  Values
are powers of two, so that a sum identifies the tuples; for min and max they also come in
falling order.

Papers: SECRET C: which input properties make engines alike.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations_with_replacement, islice, pairwise, product
from typing import Literal, TypeAlias

from anabranch.errors import UsageError
from anabranch.model import Stable
from anabranch.windows.stream import Arrival, whole
from anabranch.windows.trace import Query

Stream: TypeAlias = tuple[Arrival | Stable, ...]
_MOST_CUTS = 6


@dataclass(frozen=True, slots=True)
class Inputs:
    """What streams may have, and how many of them are tried."""

    gaps: bool = True
    """Whether an instant between the first and the last tuple may be without one."""
    simultaneous: bool = True
    """Whether tuples may have the same time."""
    late: int = 0
    """How far behind the greatest time so far a tuple may be; 0: in order."""
    batches: Literal["tuple", "time", "any"] = "tuple"
    """A batch is one tuple, all tuples of one time, or any run of tuples; runs have one time
    as long as tuples come in order (Definition 3)."""
    tuples: int = 4
    """The most tuples; streams without gaps have as many as their instants need."""
    instants: int = 9
    """The most times to choose from: all of them, or those at the borders of windows."""
    most: int = 3_000
    """The most streams."""

    def __post_init__(self) -> None:
        for value, name in (
            (self.tuples, "tuples"),
            (self.instants, "instants"),
            (self.most, "most"),
        ):
            whole(value, name, 1)
        whole(self.late, "late", 0)
        if self.batches not in {"tuple", "time", "any"}:
            message = f"batches is {self.batches!r}; expected tuple, time or any"
            raise UsageError(message)
        if not self.gaps and self.late:
            message = "streams without gaps come in order here; give gaps=True, or late=0"
            raise UsageError(message)

    def times(self, query: Query) -> list[int]:
        """The times to choose from."""
        size, slide = query.size, query.slide
        span = size + slide + 1
        if span <= self.instants:
            return list(range(span))
        borders = {0, 1, slide - 1, slide, slide + 1, size - 1, size, size + 1, size + slide}
        return sorted(borders)[: self.instants]

    def streams(self, query: Query, later: int = 0) -> Iterator[Stream]:
        """All of them, smallest first, at most `most`; all times that much later."""
        return islice(self._all(query, later), self.most)

    def _all(self, query: Query, later: int) -> Iterator[Stream]:
        found = self._with_gaps(query) if self.gaps else self._without_gaps(query)
        for early in found:
            times = tuple(time + later for time in early)
            for cuts in self._cuts(times):
                for falling in (False, True) if query.agg in {"min", "max"} else (False,):
                    yield _stream(times, cuts, query, falling=falling)

    def _with_gaps(self, query: Query) -> Iterator[tuple[int, ...]]:
        choice = self.times(query)
        for count in range(1, self.tuples + 1):
            every = (
                product(choice, repeat=count)
                if self.late
                else combinations_with_replacement(choice, count)
            )
            yield from (times for times in every if self._allowed(times))

    def _allowed(self, times: tuple[int, ...]) -> bool:
        if not self.simultaneous and len(set(times)) < len(times):
            return False
        return all(
            max(times[:place]) - time <= self.late for place, time in enumerate(times) if place
        )

    def _without_gaps(self, query: Query) -> Iterator[tuple[int, ...]]:
        size, slide = query.size, query.slide
        lengths = {1, 2, 3, size - 1, size, size + 1, size + slide, size + 2 * slide}
        for length in sorted(length for length in lengths if length > 0):
            for first in range(min(slide, self.instants)):
                run = range(first, first + length)
                yield tuple(run)
                if self.simultaneous:
                    doubled = run if length <= self.instants else (run[0], run[-1])
                    for more in (1, 2):
                        for again in combinations_with_replacement(
                            dict.fromkeys(doubled), more
                        ):
                            yield tuple(sorted([*run, *again]))

    def _cuts(self, times: tuple[int, ...]) -> Iterator[tuple[bool, ...]]:
        """Between which tuples a new batch starts."""
        pairs = list(pairwise(times))
        if self.batches == "tuple":
            yield (True,) * len(pairs)
        elif self.batches == "time":
            yield tuple(left != right for left, right in pairs)
        else:
            free = [place for place, (a, b) in enumerate(pairs) if a == b or self.late]
            for chosen in product((True, False), repeat=min(len(free), _MOST_CUTS)):
                cut = dict(zip(free, chosen, strict=False))
                yield tuple(cut.get(place, True) for place in range(len(pairs)))


def _stream(
    times: tuple[int, ...], cuts: tuple[bool, ...], query: Query, *, falling: bool
) -> Stream:
    batch = 1
    found: list[Arrival | Stable] = []
    for number, time in enumerate(times):
        batch += bool(number) and cuts[number - 1]
        place = len(times) - 1 - number if falling else number
        found.append(Arrival(time, 2**place, batch=batch))
    # After the end of every window that holds a tuple, also with a leading empty one.
    found.append(Stable(max(times) + query.size + 2 * query.slide + 1))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Checked:
    """How far something was looked at: what holds was seen so far, and not proved."""

    streams: int
    tuples: int
    """The most in one stream."""
    times: tuple[int, ...]
    whole: bool
    """Whether these were all streams within the bounds."""

    def __str__(self) -> str:
        cut = "" if self.whole else ", and there are more within these bounds"
        return (
            f"{self.streams} streams of up to {self.tuples} tuples over {len(self.times)} "
            f"instants{cut}"
        )


def checked(inputs: Inputs, streams: list[Stream]) -> Checked:
    """What a look at these streams was worth."""
    sizes = [sum(isinstance(one, Arrival) for one in stream) for stream in streams]
    times = {one.time for stream in streams for one in stream if isinstance(one, Arrival)}
    return Checked(
        len(streams), max(sizes, default=0), tuple(sorted(times)), len(streams) < inputs.most
    )


def show_stream(stream: Stream) -> str:
    """The tuples as `time:value`, batches of several in brackets."""
    words: list[str] = []
    tuples = [one for one in stream if isinstance(one, Arrival)]
    for number, one in enumerate(tuples):
        opens = number + 1 < len(tuples) and tuples[number + 1].batch == one.batch
        inside = number > 0 and tuples[number - 1].batch == one.batch
        left = "[" if opens and not inside else ""
        right = "]" if inside and not opens else ""
        words.append(f"{left}{one.time}:{one.value}{right}")
    return " ".join(words)
