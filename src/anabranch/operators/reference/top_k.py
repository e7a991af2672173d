"""The first k rows of each group, one element at a time, over a plain history.

At every prefix the output's history is `model.operators.top_k` of the input's, computed again
from all events of the group of every element: slow, and obvious.  Stables pass.

Rows rank by the given columns, then by all columns; null is before every value and NaN after
every number, and the other way round in a column that goes down.

`operators.top_k` does the same over batches and is compared with this.

>>> from anabranch.model.element import Insert
>>> first = TopKByElement(("x",), (), 1, (("x", False),))
>>> first.push(Insert(7, 1, 5))
(Insert(payload=7, start=1, end=5),)
>>> first.push(Insert(8, 3, 9))
(Adjust(payload=7, start=1, old_end=5, end=3), Insert(payload=8, start=3, end=9))
"""

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Any, Final, TypeAlias

from anabranch.model.element import Adjust, Element, Event, Stable
from anabranch.model.history import History
from anabranch.model.net_change import difference_of
from anabranch.model.operators import top_k
from anabranch.model.time import FOREVER, NEVER, Time
from anabranch.operators.trusting import lost_event

NAME: Final = "top_k"
Columns: TypeAlias = tuple[Any, ...]


class TopKByElement:
    """The state of the reference: all events of the input, by group.

    `columns` are the payload columns; with one column a payload is its value.
    """

    def __init__(
        self,
        columns: Sequence[str],
        keys: Sequence[str],
        k: int,
        by: Sequence[tuple[str, bool]],
    ) -> None:
        self.columns, self.keys, self.k, self.by = tuple(columns), tuple(keys), k, tuple(by)
        self.frontier: Time = NEVER
        self.events: dict[Columns, Counter[Event]] = {}

    def push(self, element: Element) -> tuple[Element, ...]:
        """Take the next element of the input; what comes out at once."""
        if isinstance(element, Stable):
            if element.time <= self.frontier:
                return ()
            self.frontier = element.time
            return (element,)
        row = self._row(element.payload)
        key = tuple(row[self.columns.index(name)] for name in self.keys)
        before = self.output(key)
        own = self.events.setdefault(key, Counter())
        if isinstance(element, Adjust):
            if own[element.old_event] < 1:
                raise lost_event(NAME, f"{element}")
            own[element.old_event] -= 1
        if not element.event.is_empty:
            own[element.event] += 1
        return tuple(difference_of(before, self.output(key)))

    def output(self, key: Columns) -> History:
        """The output's events of a group."""
        own = self.events.get(key, Counter()).elements()
        # Rows are compared as tuples: NaN equals itself there.
        rows = History.from_events(Event(self._row(e.payload), e.start, e.end) for e in own)
        found = top_k(rows, lambda _: (), self.k, self.rank)
        if len(self.columns) > 1:
            return found
        return History.from_events(Event(_only(e.payload), e.start, e.end) for e in found)

    def rank(self, row: Columns) -> tuple["Place", ...]:
        """What rows are compared by."""
        asked = [Place(row[self.columns.index(name)], ascends) for name, ascends in self.by]
        return (*asked, *(Place(value) for value in row))

    @property
    def live(self) -> int:
        """The events that may still change."""
        held = (event for own in self.events.values() for event in own.elements())
        return sum(self.frontier != FOREVER and e.end >= self.frontier for e in held)

    def _row(self, payload: Hashable) -> Columns:
        row = payload if len(self.columns) > 1 else (payload,)
        assert isinstance(row, tuple), f"{payload!r} is no row of {self.columns}"
        return row


def _only(row: Hashable) -> Hashable:
    """The value of a row with one column."""
    assert isinstance(row, tuple), f"{row!r} is no row"
    value: Hashable = row[0]
    return value


class Place:
    """Where a value is in the order of a column."""

    def __init__(self, value: Any, ascends: bool = True) -> None:  # noqa: FBT001, FBT002
        is_nan = value != value  # noqa: PLR0124
        group = 0 if value is None else 2 if is_nan else 1
        self.at = (group, value if group == 1 else 0)
        self.ascends = ascends

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Place) and self.at == other.at

    def __hash__(self) -> int:
        return hash(self.at)

    def __lt__(self, other: "Place") -> bool:
        return self.at < other.at if self.ascends else other.at < self.at
