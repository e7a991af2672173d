"""`compare`: where engines differ on the same tuples, and by which dimension.

Engines with the same values are one class.  For each further class a `Difference` names the
first place where it parts from the first class, and the dimensions that explain it: give the
one engine these of the other, and it returns the same.  The fewest that do are named.

Papers: SECRET 4 (the three experiments differ in scope, report and tick).

>>> tuples = [(30, 10), (31, 20), (36, 30), (37, 40)]
>>> print(compare(["stream", "coral8", "streambase"], 5, 1, tuples, "avg"))
stream, coral8: (10), (15), (20), (30)
streambase: (10), (15), (15), (15), (15), (20), (30)
stream and streambase differ from result 3 on (20, 15), by report
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, Literal, TypeAlias

from anabranch.errors import UsageError
from anabranch.windows.engine import Engine
from anabranch.windows.predict import Prediction, run_query, show_value
from anabranch.windows.profiles.known import engine as engine_named
from anabranch.windows.stream import Given
from anabranch.windows.trace import Query

Dimension: TypeAlias = Literal["scope", "report", "tick", "windows"]
"""`windows` is one window or every window, with what is late; content follows from the rest."""

_PARTS: dict[Dimension, tuple[str, ...]] = {
    "scope": ("start",),
    "report": ("report",),
    "tick": ("tick",),
    "windows": ("windows", "progress"),
}


@dataclass(frozen=True, slots=True)
class Difference:
    """Two engines, the first result in which they differ, and what explains it."""

    left: str
    right: str
    place: int
    """Counted from 1."""
    left_value: Any
    """None also where there is no such result."""
    right_value: Any
    dimensions: tuple[Dimension, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "left": self.left,
            "right": self.right,
            "place": self.place,
            "left_value": self.left_value,
            "right_value": self.right_value,
            "dimensions": list(self.dimensions),
        }

    def __str__(self) -> str:
        values = f"{show_value(self.left_value)}, {show_value(self.right_value)}"
        why = " and ".join(self.dimensions)
        return (
            f"{self.left} and {self.right} differ from result {self.place} on ({values}), "
            f"by {why}"
        )


@dataclass(frozen=True, slots=True)
class Comparison:
    """What each engine returns, which return the same, and why others do not."""

    predictions: tuple[Prediction, ...]
    classes: tuple[tuple[str, ...], ...]
    differences: tuple[Difference, ...]

    @property
    def equal(self) -> bool:
        """Whether all engines return the same."""
        return len(self.classes) == 1

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "predictions": [one.to_dict() for one in self.predictions],
            "classes": [list(names) for names in self.classes],
            "differences": [one.to_dict() for one in self.differences],
        }

    def __str__(self) -> str:
        values = {one.engine.name: one.values for one in self.predictions}
        lines = [
            f"{', '.join(names)}: {', '.join(f'({show_value(v)})' for v in values[names[0]])}"
            for names in self.classes
        ]
        return "\n".join([*lines, *map(str, self.differences)])


def compare(
    engines: Sequence[str | Engine],
    size: int,
    slide: int,
    tuples: Iterable[Given],
    agg: str = "count",
    *,
    by: Literal["time", "rows", "arrival"] = "time",
) -> Comparison:
    """What these engines return for the same query and the same tuples."""
    found = [engine_named(one) for one in engines]
    names = [one.name for one in found]
    if not names or len(set(names)) < len(names):
        message = (
            f"engines to compare need names of their own, got {' | '.join(names) or 'none'}; "
            "dataclasses.replace(engine, name=...) gives another name"
        )
        raise UsageError(message)
    query, kept = Query(size, slide, agg, by), list(tuples)
    predictions = tuple(run_query(one, query, kept) for one in found)
    classes: dict[tuple[Any, ...], list[Prediction]] = {}
    for one in predictions:
        classes.setdefault(one.values, []).append(one)
    heads = [members[0] for members in classes.values()]
    return Comparison(
        predictions,
        tuple(tuple(one.engine.name for one in members) for members in classes.values()),
        tuple(_difference(heads[0], other, kept) for other in heads[1:]),
    )


def _difference(left: Prediction, right: Prediction, tuples: Sequence[Given]) -> Difference:
    pairs = zip(left.values, right.values, strict=False)
    same = [ours == theirs for ours, theirs in pairs]
    place = same.index(False) if False in same else len(same)
    return Difference(
        left.engine.name,
        right.engine.name,
        place + 1,
        left.values[place] if place < len(left.values) else None,
        right.values[place] if place < len(right.values) else None,
        responsible(left, right, tuples),
    )


def responsible(
    left: Prediction, right: Prediction, tuples: Sequence[Given]
) -> tuple[Dimension, ...]:
    """The fewest dimensions of the right engine that make the left one return the same."""
    differing = [
        name
        for name, parts in _PARTS.items()
        if any(getattr(left.engine, p) != getattr(right.engine, p) for p in parts)
    ]
    for count in range(1, len(differing) + 1):
        for chosen in combinations(differing, count):
            parts = [part for name in chosen for part in _PARTS[name]]
            swapped = {part: getattr(right.engine, part) for part in parts}
            try:
                mixed = replace(left.engine, **swapped)
                values = run_query(mixed, left.query, tuples).values
            except UsageError:  # no such engine can be: this mixture explains nothing
                continue
            if values == right.values:
                return chosen
    return tuple(differing)
