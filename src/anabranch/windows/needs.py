"""Needs of an application, each as a check of the results of a window engine.

A check gets a stream, the engine's results on it, and a way to ask for the results on a
beginning of it; it returns what is wrong, or None.  No check looks at an engine's settings, so
a need means the same for an engine that was inferred.

Papers: SECRET C names several of these, and which tick and report serve them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from anabranch.model import Stable
from anabranch.windows.predict import Result
from anabranch.windows.stream import Arrival


@dataclass(frozen=True, slots=True)
class Seen:
    """What an engine shows on a stream."""

    tuples: tuple[Arrival, ...]
    results: tuple[Result, ...]
    upto: Callable[[int], tuple[Result, ...]]
    """The results after `count` tuples and no stable."""

    def holding(self, result: Result) -> list[int]:
        """Numbers of the tuples whose time is in the window of a result."""
        return [
            number
            for number, one in enumerate(self.tuples, start=1)
            if result.start <= one.time < result.end
        ]


@dataclass(frozen=True, slots=True)
class Need:
    """One need: its name, its meaning, the streams that can show a lack, the check."""

    name: str
    meaning: str
    check: Callable[[Seen], str | None]
    streams: Literal["in order", "batches", "late"] = "in order"
    query: Literal["as given", "slide above size"] = "as given"


def _closed_only(seen: Seen) -> str | None:
    for one in seen.results:
        if list(one.content) != seen.holding(one):
            missing = set(seen.holding(one)) - set(one.content)
            return f"{_window(one)} is shown without tuple {min(missing, default=0)}"
    return None


def _no_empty(seen: Seen) -> str | None:
    for one in seen.results:
        if not one.content:
            return f"{_window(one)} is shown empty"
    return None


def _every_change(seen: Seen) -> str | None:
    newest = {max(one.content, default=0) for one in seen.results}
    for number in range(1, len(seen.tuples) + 1):
        if number not in newest:
            return f"no result shows tuple {number} before a later one came"
    return None


def _no_repeats(seen: Seen) -> str | None:
    shown: set[tuple[int, int, tuple[int, ...]]] = set()
    last: tuple[int, ...] | None = None
    for one in seen.results:
        key = (one.start, one.end, one.content)
        if one.content == last or key in shown:
            return f"the content of {_window(one)} is shown again unchanged"
        shown.add(key)
        last = one.content
    return None


def _once(seen: Seen) -> str | None:
    shown: set[tuple[int, int]] = set()
    for one in seen.results:
        if (one.start, one.end) in shown:
            return f"{_window(one)} is shown twice"
        shown.add((one.start, one.end))
    return None


def _soon(seen: Seen) -> str | None:
    for number in range(1, len(seen.tuples)):
        if not any(number in one.content for one in seen.upto(number + 1)):
            return f"tuple {number} is in no result when tuple {number + 1} has come"
    return None


def _together(seen: Seen) -> str | None:
    for one in seen.results:
        shown = {seen.tuples[number - 1].time for number in one.content}
        for number in seen.holding(one):
            if number not in one.content and seen.tuples[number - 1].time in shown:
                time = seen.tuples[number - 1].time
                return f"{_window(one)} is shown with some tuples of time {time} only"
    return None


def _batch_by_batch(seen: Seen) -> str | None:
    newest = {max(one.content, default=0) for one in seen.results}
    for number, one in enumerate(seen.tuples, start=1):
        last = number == len(seen.tuples) or seen.tuples[number].batch != one.batch
        if last and number not in newest:
            return f"no result shows batch {one.batch} before a later one came"
        if not last and number in newest:
            return f"a result shows batch {one.batch} in part"
    return None


def _late_counted(seen: Seen) -> str | None:
    for number, one in enumerate(seen.tuples, start=1):
        if not any(number in result.content for result in seen.results):
            return f"tuple {number}, of time {one.time}, is in no result"
    return None


def _late_corrected(seen: Seen) -> str | None:
    for number, one in enumerate(seen.tuples, start=1):
        for old in seen.upto(number - 1) if number > 1 else ():
            if old.start <= one.time < old.end and not any(
                (new.start, new.end) == (old.start, old.end) and number in new.content
                for new in seen.results
            ):
                return f"{_window(old)} was shown before tuple {number} came, and not again"
    return None


def _shows(_: Seen) -> str | None:
    """Nothing to check: the engine accepted the query, or gave a reason."""
    return None


def _window(result: Result) -> str:
    return f"the window [{result.start}, {result.end})"


_ALL: Final[Sequence[Need]] = (
    Need("closed-only", "a window is shown only with all its tuples", _closed_only),
    Need("no-empty", "no result is of an empty window", _no_empty),
    Need("every-change", "each tuple is shown before the next one changes it", _every_change),
    Need("no-repeats", "no content is shown again unchanged", _no_repeats),
    Need("once", "a window is shown at most once", _once),
    Need("soon", "a tuple is in a result when the next one comes", _soon),
    Need("simultaneous-together", "tuples of one time are shown together", _together),
    Need("batch-by-batch", "each batch is shown, and whole", _batch_by_batch, "batches"),
    Need("late-counted", "a late tuple is in some result", _late_counted, "late"),
    Need("late-corrected", "a late tuple corrects what was shown", _late_corrected, "late"),
    Need("slide-above-size", "windows can leave gaps", _shows, query="slide above size"),
)
NEEDS: Final[dict[str, Need]] = {need.name: need for need in _ALL}


def rows_in(stream: Sequence[Arrival | Stable]) -> tuple[Arrival, ...]:
    """The tuples of a stream, without its stables."""
    return tuple(one for one in stream if isinstance(one, Arrival))
