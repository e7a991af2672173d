"""Rows that live until the next row of their key, over batches.

The input are rows in any order of arrival: each has a start, and its end does not matter.  At
every prefix the output has each row from its start to the start of the next row of its key, or
without end if there is none.  Of rows of a key that start together the greatest payload counts
(`batch.row_order`, columns by name), so that copies of a stream agree which one it is; the
others have no event.  A row that arrives between two others, or is removed, moves the end of
the row before it.

Stables pass: after `stable(t)` rows come and go at t or later, so no end before t moves.

Remembered per key: the rows that start at the frontier or later, and the last one before it.
A step looks at the keys that it touches and at those with rows that it makes final.  What is
saved are the rows; the lists by key are derived from them.

Papers: none; `ab.events(replaced_by=)` of a batch means the same.  The reference is
`anabranch.operators.reference.replaced_by`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from anabranch.batch.batch import ADJUST, FOREVER_UNITS, INSERT, Batch, Ints, Mask
from anabranch.batch.buffers import take
from anabranch.batch.events import inserts, nothing
from anabranch.batch.row_order import row_order
from anabranch.batch.schema import ElementSchema
from anabranch.errors import UsageError
from anabranch.model.properties import StreamProperties, shared
from anabranch.operators.contract import INPUT, Route
from anabranch.operators.state.blocks import Saved
from anabranch.operators.state.codec import StateKind
from anabranch.operators.state.groups import COUNT, Groups, distinct
from anabranch.operators.trusting import TrustingState, lost_event, written
from anabranch.operators.unary import Changed

_START, _ROW = range(2)
_KIND = StateKind("anabranch replaced_by", version=1)


@dataclass(frozen=True)
class ReplacedByOperator:
    """Let each row live until the next one of its key; without keys all rows have one."""

    schema: ElementSchema
    keys: tuple[str, ...]
    name: str = "replaced_by"
    route: Route = Route.KEY

    def __post_init__(self) -> None:
        unknown = [name for name in self.keys if name not in self.schema.payload.names]
        if unknown:
            message = (
                f"replaced_by: no column {unknown[0]!r} among {self.schema.payload.names}; "
                "name columns of the rows"
            )
            raise UsageError(message)

    @property
    def route_columns(self) -> Sequence[str]:
        """All rows of a key are in one lane."""
        return self.keys

    @property
    def output(self) -> ElementSchema:
        """Elements with the columns of the input."""
        return replace(self.schema, has_seq=False, has_replica=False)

    def properties(self, *inputs: StreamProperties) -> StreamProperties:
        """Keyed: of a key one row begins at a time.  Rows that come in order, go out so."""
        known = shared(inputs)
        in_order = known.insert_only and known.ordered
        strictly = known.insert_only and known.strictly_increasing
        return StreamProperties(keyed=True, ordered=in_order, strictly_increasing=strictly)

    def empty(self) -> "ReplacedByState":
        """Nothing has happened."""
        return ReplacedByState(self)

    def from_parts(self, parts: Mapping[str, bytes]) -> "ReplacedByState":
        """The state that was saved; StateError if of another kind, version or schema."""
        return ReplacedByState.restored(parts, self)


class Listed(NamedTuple):
    """Rows by key and start: the number of the key, the start, and the number of the row."""

    key: Ints
    start: Ints
    row: Ints

    def take(self, rows: Ints | Mask) -> "Listed":
        """Some of them."""
        return Listed(self.key[rows], self.start[rows], self.row[rows])


class ReplacedByState(TrustingState):
    """The rows of one lane, and for each key the list of its rows.

    A row's group in `rows` has an event for each copy of the row.
    """

    def __init__(self, operator: ReplacedByOperator) -> None:
        super().__init__(operator)
        payload = self.output.payload
        self.names = list(operator.keys)
        self.rows = Groups(payload, by_start=True, columns=("start", "end"))
        self.lists = self._no_lists()

    def __repr__(self) -> str:
        return f"ReplacedByState(frontier {self.frontier}, {self.rows!r}, {self.lists!r})"

    @property
    def live(self) -> int:
        """How many rows are remembered."""
        return len(self.rows)

    def take(self, batches: Mapping[str, Batch], before: int) -> Changed:
        """Note which rows came and went, and compare the lists of their keys."""
        output = self._apply(batches[INPUT])
        visits = self._forget() if min(self.received.values()) > before else 0
        return Changed(output, counts={"visits": visits})

    def _apply(self, batch: Batch) -> Batch:
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
        changed = np.flatnonzero((had > 0) != (has > 0))
        news = has[changed] > 0
        key = self._keys_of(some.take(first[changed]))
        start = some.start[first]
        output = self._compare(Listed(key, start[changed], touched[changed]), news)
        group = np.repeat(touched, has)
        open_ends = np.full(len(group), FOREVER_UNITS, np.int64)
        events = np.stack([np.repeat(start, has), open_ends], axis=1)
        never = np.full(len(touched), FOREVER_UNITS, np.int64)
        self.rows.write(touched, group, events, never, self.mark)
        return output

    def _keys_of(self, batch: Batch) -> Ints:
        """The number of each row's key; a key that is not there yet is added."""
        payload = batch.payload.select(self.names)
        schema = replace(self.output, payload=payload.schema)
        named = replace(batch, schema=schema, payload=payload, seq=None, hashes=None)
        return self.lists.find(named, np.ones(len(batch), np.bool_), self.mark)

    def _compare(self, changed: Listed, news: Mask) -> Batch:
        """Update the lists of the keys of these rows; what changes on the output."""
        keys = distinct(changed.key)
        held = self._read(keys)
        stays = ~np.isin(held.row, changed.row[~news])
        added = changed.take(news)
        joined = (np.concatenate(pair) for pair in zip(held.take(stays), added, strict=True))
        after = Listed(*joined)
        after = after.take(np.lexsort((after.row, after.start, after.key)))
        old, new = self._lifetimes(held), self._lifetimes(after)
        output = self._difference(old, new)
        self._write(keys, after)
        return output

    def _lifetimes(self, listed: Listed) -> tuple[Listed, Ints]:
        """The rows that count, by key and start, and where each ends."""
        counts = listed.take(self._greatest(listed))
        end = np.full(len(counts.key), FOREVER_UNITS, np.int64)
        same = counts.key[1:] == counts.key[:-1]
        end[:-1][same] = counts.start[1:][same]
        return counts, end

    def _greatest(self, listed: Listed) -> Mask:
        """Of rows of a key that start together the one with the greatest payload."""
        together = (listed.key[1:] == listed.key[:-1]) & (listed.start[1:] == listed.start[:-1])
        if not together.any():
            return np.ones(len(listed.key), np.bool_)
        tied = np.flatnonzero(np.append(together, False) | np.append(False, together))
        payload = self.rows.payload(listed.row[tied])
        order = row_order(payload.select(sorted(payload.column_names)), len(tied))
        rank = np.zeros(len(listed.key), np.int64)
        rank[tied[order]] = np.arange(len(tied))
        place = np.lexsort((rank, listed.start, listed.key))
        is_last = np.append(~together, True)
        greatest = np.zeros(len(listed.key), np.bool_)
        greatest[place[is_last]] = True
        return greatest

    def _difference(self, old: tuple[Listed, Ints], new: tuple[Listed, Ints]) -> Batch:
        """From the lifetimes before to those after: adjusts and inserts."""
        (was, was_end), (now, now_end) = old, new
        order = np.argsort(now.row)
        at = np.searchsorted(now.row, was.row, sorter=order)
        at = order[np.minimum(at, len(order) - 1)] if len(order) else at
        stays = now.row[at] == was.row if len(order) else np.zeros(len(at), np.bool_)
        end = was.start.copy()
        end[stays] = now_end[at[stays]]
        moved = np.flatnonzero(end != was_end)
        fresh = np.flatnonzero(~np.isin(now.row, was.row))
        return written(
            self.output,
            (was.start[moved], was_end[moved], end[moved]),
            (now.start[fresh], now_end[fresh]),
            self.rows.payload(np.concatenate([was.row[moved], now.row[fresh]])),
        )

    def _forget(self) -> int:
        """Drop the rows that nothing can change; how many keys had some."""
        frontier = min(self.received.values())
        due = self.lists.pop_due(frontier)
        held = self._read(due)
        past = held.start < frontier
        # Of what is before the frontier the last that counts stays: its end may move.
        counts = np.flatnonzero(self._greatest(held) & past)
        is_last = np.append(np.diff(held.key[counts]) != 0, True)[: len(counts)]
        stays = ~past
        stays[counts[is_last]] = True
        if frontier == FOREVER_UNITS:
            stays[:] = False
        gone = np.sort(held.row[~stays])
        none = np.empty((0, 2), np.int64)
        never = np.full(len(gone), FOREVER_UNITS, np.int64)
        self._write(due, held.take(stays))
        self.rows.write(gone, none[:, 0], none, never, self.mark)
        return len(due)

    def _read(self, keys: Ints) -> Listed:
        """The lists of these keys, one after the other."""
        key, numbers = self.lists.read(keys)
        return Listed(key, numbers[:, _START], numbers[:, _ROW])

    def _write(self, keys: Ints, listed: Listed) -> None:
        """Let these keys have these lists.

        A key is due when its first row can go: when its second start is passed, or its first
        one if several rows share it.
        """
        first = np.searchsorted(listed.key, keys)
        size = np.searchsorted(listed.key, keys, side="right") - first
        due = np.full(len(keys), FOREVER_UNITS, np.int64)
        several = size > 1
        due[several] = listed.start[first[several] + 1]
        numbers = np.stack([listed.start, listed.row], axis=1)
        self.lists.write(keys, listed.key, numbers, due, self.mark)

    def _require_found(self, found: Mask, batch: Batch) -> None:
        if found.all():
            return
        at = np.flatnonzero(~found)[:1]
        row = take(batch.payload, at).to_pylist() or [{}]
        what = f"the row {row[0]} at {int(batch.start[at[0]])}"
        raise lost_event(self.operator.name, what)

    def _no_lists(self) -> Groups:
        schema = pa.schema([self.output.payload.field(name) for name in self.names])
        return Groups(schema, by_start=False, columns=("start", "row"))

    def parts(self, *, since: int | None = None) -> Saved:
        """The state in parts: all of them, or those that changed after a mark."""
        facts = {"received": self.received[INPUT]}
        return self.rows.parts(_KIND, self.output, since, mark=self.mark, facts=facts)

    @classmethod
    def restored(
        cls, parts: Mapping[str, bytes], operator: ReplacedByOperator
    ) -> "ReplacedByState":
        """The state that was saved; StateError if of another kind, version or schema."""
        state = cls(operator)
        header = state.rows.restore(_KIND, state.output, parts)
        state.mark, state.received[INPUT] = int(header["mark"]), int(header["received"])
        state._derive_lists()
        return state

    def _derive_lists(self) -> None:
        """The rows by key and start, as they were when all was saved."""
        ids = self.rows.table.living()
        group, numbers = self.rows.all()
        start = numbers[np.searchsorted(group, ids), _START]
        payload = self.rows.payload(ids)
        batch = inserts(self.output, start, np.full_like(start, FOREVER_UNITS), payload)
        key = self._keys_of(batch)
        listed = Listed(key, start, ids).take(np.lexsort((ids, start, key)))
        self._write(distinct(key), listed)

    def check(self) -> None:
        """Assert every invariant."""
        self.rows.check()
        self.lists.table.check()
        keys = self.lists.table.living()
        listed = self._read(keys)
        ids = self.rows.table.living()
        assert np.array_equal(np.sort(listed.row), ids), f"lists {listed.row} != rows {ids}"
        same = listed.key[1:] == listed.key[:-1]
        falls = np.diff(listed.start)[same] < 0
        assert not falls.any(), f"a list is not by start: {listed}"
        frontier = min(self.received.values())
        past = listed.key[listed.start < frontier]
        assert len(np.unique(past)) == len(past), f"final rows at {frontier}: {listed}"
