"""Sessions, and aggregates by session, one element at a time, over a plain history.

At every prefix the output's history is `model.operators.session` of the input's, computed again
from all rows of the key of every element: slow, and obvious.  Its stable is
`model.operators.session_stable`.

`operators.session` and `operators.aggregate.sessions` do the same over batches and are compared
with this.

>>> from anabranch.model.element import Insert
>>> sessions = SessionByElement(("user",), 10, ("user",))
>>> sessions.push(Insert("a", 3, 4))
(Insert(payload=('a', (3, 13)), start=3, end=13),)
>>> for element in sessions.push(Insert("a", 1, 2)):
...     print(element)
Adjust(payload=('a', (3, 13)), start=3, old_end=13, end=3)
Insert(payload=('a', (1, 13)), start=1, end=13)
Insert(payload=('a', (1, 13)), start=1, end=13)
"""

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Any, Final, TypeAlias

import pyarrow as pa

from anabranch.model.element import Adjust, Element, Event, Insert, Stable
from anabranch.model.history import History
from anabranch.model.net_change import difference_of
from anabranch.model.operators import session, session_stable
from anabranch.model.time import NEVER, Time
from anabranch.operators.aggregate.functions import Aggregate
from anabranch.operators.grid_windows import WINDOW
from anabranch.operators.reference.aggregate import AggregateByElement
from anabranch.operators.trusting import lost_event

NAME: Final = "session"
Columns: TypeAlias = tuple[Any, ...]


class SessionByElement:
    """The state of the reference: the rows of open sessions, by key.

    `columns` are the payload columns; with one column a payload is its value.
    """

    def __init__(self, columns: Sequence[str], gap: int, by: Sequence[str]) -> None:
        self.columns, self.gap, self.by = tuple(columns), gap, tuple(by)
        self.received: Time = NEVER
        self.frontier: Time = NEVER
        self.rows: dict[Columns, Counter[Event]] = {}

    def push(self, element: Element) -> tuple[Element, ...]:
        """Take the next element of the input; what comes out at once."""
        if isinstance(element, Stable):
            return self._stable(element)
        removes = isinstance(element, Adjust) and element.is_removal
        if element.changes_nothing or not (removes or isinstance(element, Insert)):
            return ()
        row = Event(self._row(element.payload), element.start, element.start + 1)
        key = self._key(row.payload)
        before = self._output(key)
        own = self.rows.setdefault(key, Counter())
        own[row] += -1 if removes else 1
        if own[row] < 0:
            raise lost_event(NAME, f"the row {element.payload!r} at {element.start}")
        self.rows[key] = +own
        return tuple(difference_of(before, self._output(key)))

    def _stable(self, element: Stable) -> tuple[Element, ...]:
        self.received = max(self.received, element.time)
        rows = History.from_events(row for own in self.rows.values() for row in own.elements())
        time = session_stable(rows, self.gap, self._key, self.received)
        for key, own in self.rows.items():
            self.rows[key] = Counter({row: n for row, n in own.items() if self._is_open(row)})
        if time <= self.frontier:
            return ()
        self.frontier = time
        return (Stable(time),)

    def _is_open(self, row: Event) -> bool:
        """Whether its session may still change: alone, it holds the stable back."""
        lives = self._output(self._key(row.payload))
        mine = History.from_events(e for e in lives if e.start <= row.start < e.end)
        return any(self.received <= e.end for e in mine)

    def _output(self, key: Columns) -> History:
        """The output's events of a key."""
        own = self.rows.get(key, Counter())
        return session(History.from_events(own.elements()), self.gap, self._key)

    def _key(self, row: Any) -> Columns:
        return tuple(row[self.columns.index(name)] for name in self.by)

    def _row(self, payload: Hashable) -> Columns:
        row = payload if len(self.columns) > 1 else (payload,)
        assert isinstance(row, tuple), f"{payload!r} is no row of {self.columns}"
        return row

    @property
    def live(self) -> int:
        """The rows of open sessions."""
        return sum(own.total() for own in self.rows.values())


class SessionsByElement:
    """The references of sessions and of the aggregate by them, one behind the other.

    `payload` has the columns before the sessions; `keys` name the column `window`.
    """

    def __init__(
        self,
        payload: pa.Schema,
        gap: int,
        by: Sequence[str],
        keys: Sequence[str],
        functions: Sequence[Aggregate],
    ) -> None:
        with_window = payload.append(pa.field(WINDOW, pa.null()))
        self.sessions = SessionByElement(payload.names, gap, by)
        self.aggregate = AggregateByElement(with_window.names, keys, functions, with_window)

    @property
    def live(self) -> int:
        """The rows of open sessions."""
        return self.sessions.live

    def push(self, element: Element) -> tuple[Element, ...]:
        """Take the next element of the input; what comes out at once, as a net change."""
        made = self.sessions.push(element)
        output = [out for one in made for out in self.aggregate.push(one)]
        events: Counter[Event] = Counter()
        for one in output:
            if isinstance(one, Adjust):
                events[one.old_event] -= 1
            if not isinstance(one, Stable) and not one.event.is_empty:
                events[one.event] += 1
        gone, new = (History.from_events(some.elements()) for some in (-events, +events))
        stables = [one for one in output if isinstance(one, Stable)]
        return (*difference_of(gone, new), *stables)
