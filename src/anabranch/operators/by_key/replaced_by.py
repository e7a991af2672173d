"""Rows that live until the next row of their key, over batches.

The input are rows in any order of arrival: each has a start, and its end does not matter.  At
every prefix the output has each row from its start to the start of the next row of its key, or
without end if there is none.  Of rows of a key that start together the greatest payload counts
(`batch.row_order`, columns by name), so that copies of a stream agree which one it is; the
others have no event.  A row that arrives between two others, or is removed, moves the end of
the row before it.

Stables pass: after `stable(t)` rows come and go at t or later, so no end before t moves.

Remembered per key: the rows that start at the frontier or later, and the last one before it.
A step looks at the keys that it touches and at those with rows that it makes final.

Papers: none; `ab.events(replaced_by=)` of a batch means the same.  The reference is
`anabranch.operators.reference.replaced_by`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from anabranch.batch.batch import FOREVER_UNITS, Batch, Ints, Mask
from anabranch.batch.row_order import row_order
from anabranch.batch.schema import ElementSchema
from anabranch.errors import UsageError
from anabranch.model.properties import StreamProperties, shared
from anabranch.operators.by_key.rows_by_key import Listed, RowsByKeyState, Touched
from anabranch.operators.contract import INPUT, Route
from anabranch.operators.state.codec import StateKind
from anabranch.operators.state.groups import distinct
from anabranch.operators.trusting import written
from anabranch.operators.unary import Changed


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
        return self.empty().restore(parts)


class ReplacedByState(RowsByKeyState):
    """The rows of one lane, and for each key the list of its rows."""

    KIND = StateKind("anabranch replaced_by", version=1)

    def __init__(self, operator: ReplacedByOperator) -> None:
        super().__init__(operator, operator.keys)

    def take(self, batches: Mapping[str, Batch], before: int) -> Changed:
        """Note which rows came and went, and compare the lists of their keys."""
        output = self.apply(batches[INPUT])
        visits = self._forget() if min(self.received.values()) > before else 0
        return Changed(output, counts={"visits": visits})

    def differs(self, had: Ints, has: Ints) -> Mask:
        """Equal rows are one."""
        differs: Mask = (had > 0) != (has > 0)
        return differs

    def compare(self, touched: Touched) -> Batch:
        """Update the lists of the keys of these rows; what changes on the output."""
        changed, news = touched.listed, touched.has > 0
        keys = distinct(changed.key)
        held = self.read(keys)
        stays = ~np.isin(held.row, changed.row[~news])
        after = held.take(stays).with_more(changed.take(news))
        output = self._difference(self._lifetimes(held), self._lifetimes(after))
        self.write(keys, after)
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

    def due_of(self, listed: Listed) -> tuple[Ints, Ints]:
        """A first row can go when the next start is passed, be it the same or a later one."""
        keys, first, size = np.unique(listed.key, return_index=True, return_counts=True)
        several = size > 1
        return keys[several], listed.start[first[several] + 1]

    def _forget(self) -> int:
        """Drop the rows that nothing can change; how many keys had some."""
        frontier = min(self.received.values())
        due = self.lists.pop_due(frontier)
        held = self.read(due)
        past = held.start < frontier
        # Of what is before the frontier the last that counts stays: its end may move.
        counts = np.flatnonzero(self._greatest(held) & past)
        is_last = np.append(np.diff(held.key[counts]) != 0, True)[: len(counts)]
        stays = ~past
        stays[counts[is_last]] = True
        if frontier == FOREVER_UNITS:
            stays[:] = False
        self.drop(due, held, stays)
        return len(due)

    def check(self) -> None:
        """Assert every invariant."""
        super().check()
        listed = self.read(self.lists.table.living())
        frontier = min(self.received.values())
        past = listed.key[listed.start < frontier]
        assert len(np.unique(past)) == len(past), f"final rows at {frontier}: {listed}"
