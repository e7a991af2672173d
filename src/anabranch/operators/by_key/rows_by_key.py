"""Rows by key and start: the common part of operators that look at all rows of a key together.

Such an operator reads rows: each has a start, and its end does not matter, so an element counts
if it brings a row or takes one away.  It gives every row a lifetime that depends on the other
rows of its key.  A step reads the rows of the keys that it touches, and those of keys with rows
that are final; other keys are not read.

What is saved are the rows; the lists by key are derived from them.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final, NamedTuple, Self

import numpy as np
import pyarrow as pa

from anabranch.batch.batch import ADJUST, FOREVER_UNITS, INSERT, Batch, Ints, Mask
from anabranch.batch.buffers import take
from anabranch.batch.events import inserts, nothing
from anabranch.operators.contract import INPUT, Operator
from anabranch.operators.state.blocks import Saved
from anabranch.operators.state.codec import StateKind
from anabranch.operators.state.groups import COUNT, Groups, distinct
from anabranch.operators.trusting import TrustingState, lost_event

_START, _ROW = range(2)
_NO_ROWS: Final[Ints] = np.empty((0, 2), np.int64)


class Listed(NamedTuple):
    """Rows by key and start: the number of the key, the start, and the number of the row."""

    key: Ints
    start: Ints
    row: Ints

    def take(self, rows: Ints | Mask) -> "Listed":
        """Some of them."""
        return Listed(self.key[rows], self.start[rows], self.row[rows])

    def with_more(self, more: "Listed") -> "Listed":
        """These and more of them, in order."""
        both = Listed(*(np.concatenate(pair) for pair in zip(self, more, strict=True)))
        return both.take(np.lexsort((both.row, both.start, both.key)))


class Touched(NamedTuple):
    """The rows of a step, by their numbers; how many equal ones there were, and are."""

    listed: Listed
    had: Ints
    has: Ints


class RowsByKeyState(TrustingState):
    """The rows of one lane, and for each key the list of its rows.

    A row's group in `rows` has an event for each copy of the row.
    """

    KIND: ClassVar[StateKind]

    def __init__(self, operator: Operator, keys: Sequence[str]) -> None:
        super().__init__(operator)
        self.plain = replace(operator.schema, has_seq=False, has_replica=False)
        self.names = list(keys)
        payload = self.plain.payload
        self.rows = Groups(payload, by_start=True, columns=("start", "end"))
        of_keys = pa.schema([payload.field(name) for name in keys])
        self.lists = Groups(of_keys, by_start=False, columns=("start", "row"))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.received}, {self.rows!r}, {self.lists!r})"

    @property
    def live(self) -> int:
        """How many rows are remembered."""
        return len(self.rows)

    @abstractmethod
    def differs(self, had: Ints, has: Ints) -> Mask:
        """Where the output depends on the number of equal rows, before and after."""

    @abstractmethod
    def compare(self, touched: Touched) -> Batch:
        """Update the lists of the keys of these rows; what changes on the output.

        `rows` are still as before.
        """

    @abstractmethod
    def due_of(self, listed: Listed) -> tuple[Ints, Ints]:
        """The keys of these rows, and when the first row of each can go."""

    def apply(self, batch: Batch) -> Batch:
        """Note which rows came and went; what changes on the output."""
        brings = (batch.kind == INSERT) & (batch.end > batch.start)
        takes = (batch.kind == ADJUST) & (batch.end == batch.start)
        takes &= batch.old_end > batch.start
        at = np.flatnonzero(brings | takes)
        if not len(at):
            return nothing(self.output)
        some, adds = batch.take(at), brings[at]
        found = self.rows.find(some, adds, self.mark)
        self._require_found(found >= 0, some)
        touched, first, of = np.unique(found, return_index=True, return_inverse=True)
        had = self.rows.table.rows[touched, COUNT].copy()
        has = had + np.bincount(of, np.where(adds, 1, -1), len(touched)).astype(np.int64)
        self._require_found((has >= 0)[of], some)
        changed = np.flatnonzero(self.differs(had, has))
        start = some.start[first]
        listed = Listed(
            self._keys_of(some.take(first[changed])), start[changed], touched[changed]
        )
        output = self.compare(Touched(listed, had[changed], has[changed]))
        self._keep(touched, start, has)
        return output

    def _keep(self, rows: Ints, start: Ints, copies: Ints) -> None:
        """Let these rows be there this number of times."""
        group = np.repeat(rows, copies)
        open_ends = np.full(len(group), FOREVER_UNITS, np.int64)
        events = np.stack([np.repeat(start, copies), open_ends], axis=1)
        never = np.full(len(rows), FOREVER_UNITS, np.int64)
        self.rows.write(rows, group, events, never, self.mark)

    def drop(self, keys: Ints, held: Listed, stays: Mask) -> None:
        """Forget rows of these keys that nothing can change; `held` are all of them."""
        gone = np.sort(held.row[~stays])
        self.write(keys, held.take(stays))
        never = np.full(len(gone), FOREVER_UNITS, np.int64)
        self.rows.write(gone, gone[:0], _NO_ROWS, never, self.mark)

    def read(self, keys: Ints) -> Listed:
        """The lists of these keys, one after the other."""
        key, numbers = self.lists.read(keys)
        return Listed(key, numbers[:, _START], numbers[:, _ROW])

    def write(self, keys: Ints, listed: Listed) -> None:
        """Let these keys have these lists, and be due when their first rows can go."""
        due = np.full(len(keys), FOREVER_UNITS, np.int64)
        found, times = self.due_of(listed)
        due[np.searchsorted(keys, found)] = times
        numbers = np.stack([listed.start, listed.row], axis=1)
        self.lists.write(keys, listed.key, numbers, due, self.mark)

    def _keys_of(self, batch: Batch) -> Ints:
        """The number of each row's key; a key that is not there yet is added."""
        payload = batch.payload.select(self.names)
        schema = replace(self.plain, payload=payload.schema)
        named = replace(batch, schema=schema, payload=payload, seq=None, hashes=None)
        return self.lists.find(named, np.ones(len(batch), np.bool_), self.mark)

    def _require_found(self, found: Mask, batch: Batch) -> None:
        if found.all():
            return
        at = np.flatnonzero(~found)[:1]
        row = take(batch.payload, at).to_pylist() or [{}]
        what = f"the row {row[0]} at {int(batch.start[at[0]])}"
        raise lost_event(self.operator.name, what)

    @property
    def settings(self) -> Mapping[str, str]:
        """What must not change between a save and a restart, beside columns and times."""
        return {}

    def parts(self, *, since: int | None = None) -> Saved:
        """The state in parts: all of them, or those that changed after a mark."""
        facts: dict[str, Any] = {"received": self.received[INPUT], **self.settings}
        return self.rows.parts(self.KIND, self.plain, since, mark=self.mark, facts=facts)

    def restore(self, parts: Mapping[str, bytes]) -> Self:
        """The same, filled with what was saved; StateError if of another kind or schema."""
        header = self.rows.restore(self.KIND, self.plain, parts)
        self.mark, self.received[INPUT] = int(header["mark"]), int(header["received"])
        self.require_settings(header)
        ids = self.rows.table.living()
        group, numbers = self.rows.all()
        start = numbers[np.searchsorted(group, ids), _START]
        payload = self.rows.payload(ids)
        batch = inserts(self.plain, start, np.full_like(start, FOREVER_UNITS), payload)
        key = self._keys_of(batch)
        listed = Listed(key, start, ids).take(np.lexsort((ids, start, key)))
        self.write(distinct(key), listed)
        return self

    def require_settings(self, header: Mapping[str, str]) -> None:
        """Refuse what other settings have left."""

    def check(self) -> None:
        """Assert every invariant."""
        self.rows.check()
        self.lists.table.check()
        self.lists.due.check()
        listed = self.read(self.lists.table.living())
        ids = self.rows.table.living()
        assert np.array_equal(np.sort(listed.row), ids), f"lists {listed.row} != rows {ids}"
        same = listed.key[1:] == listed.key[:-1]
        falls = np.diff(listed.start)[same] < 0
        assert not falls.any(), f"a list is not by start: {listed}"
