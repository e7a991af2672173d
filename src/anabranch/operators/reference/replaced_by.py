"""Rows that live until the next row of their key, one element at a time.

After each element the lifetimes of the key's rows are computed again, and what differs is
emitted.  Of rows that start together the one with the greatest payload counts.

`operators.replaced_by` does the same over batches and is compared with this.

>>> from anabranch.model.element import Insert
>>> latest = ReplacedBy(lambda payload: payload[0])
>>> latest.push(Insert(("k", 1), 5, 6))
(Insert(payload=('k', 1), start=5, end=inf),)
>>> for element in latest.push(Insert(("k", 2), 8, 9)):
...     print(element)
Adjust(payload=('k', 1), start=5, old_end=inf, end=8)
Insert(payload=('k', 2), start=8, end=inf)
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from itertools import groupby

from anabranch.batch.row_order import sort_key
from anabranch.model.element import Adjust, Element, Event, Identity, Stable
from anabranch.model.history import History, Violation
from anabranch.model.time import FOREVER, NEVER, Time
from anabranch.operators.reference.normalise import difference
from anabranch.operators.trusting import lost_event


def lifetimes(rows: Iterable[Identity]) -> History:
    """The events of the rows of one key."""
    found = sorted(set(rows), key=lambda row: (row.start, sort_key(row.payload)))
    last = [list(same)[-1] for _, same in groupby(found, key=lambda row: row.start)]
    ends: list[Time] = [row.start for row in last[1:]]
    return History.from_events(
        Event(row.payload, row.start, end)
        for row, end in zip(last, [*ends, FOREVER][: len(last)], strict=True)
    )


class ReplacedBy:
    """The state of the reference; `push` is the only step."""

    def __init__(self, key_of: Callable[[Hashable], Hashable]) -> None:
        self.key_of = key_of
        self.frontier: Time = NEVER
        self.rows: dict[Hashable, Counter[Identity]] = {}
        self.violations: list[Violation] = []

    @property
    def waiting(self) -> Counter[Identity]:
        """All rows that are remembered."""
        return sum(self.rows.values(), Counter())

    def push(self, element: Element) -> tuple[Element, ...]:
        """Take the next element of the input; what comes out at once."""
        if isinstance(element, Stable):
            return self._stable(element)
        removes = isinstance(element, Adjust) and element.is_removal
        if element.changes_nothing or (isinstance(element, Adjust) and not removes):
            return ()
        own = self.rows.setdefault(self.key_of(element.payload), Counter())
        row = element.event.identity
        before = lifetimes(own)
        own[row] += -1 if removes else 1
        if own[row] < 0:
            name, what = "replaced_by", f"the row {element.payload!r} at {element.start}"
            raise lost_event(name, what)
        if not own[row]:
            del own[row]
        return tuple(difference(before, lifetimes(own)))

    def _stable(self, element: Stable) -> tuple[Element, ...]:
        if element.time <= self.frontier:
            return ()
        self.frontier = element.time
        for key, own in self.rows.items():
            ends = {event.identity: event.end for event in lifetimes(own)}
            kept = {row: n for row, n in own.items() if self._is_open(row, ends.get(row))}
            self.rows[key] = Counter(kept)
        return (element,)

    def _is_open(self, row: Identity, end: Time | None) -> bool:
        """Whether it may come or go, or its end may move."""
        if self.frontier == FOREVER:
            return False
        return row.start >= self.frontier or (end is not None and end >= self.frontier)

    def check(self) -> None:
        """Assert that at most one row of a key is before the frontier."""
        for key, own in self.rows.items():
            past = sorted(row.start for row in own if row.start < self.frontier)
            assert len(past) <= 1, f"rows of {key!r} before {self.frontier}: {past}"
            assert all(count > 0 for count in own.values()), f"rows of {key!r}: {own}"
