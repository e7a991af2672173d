"""The first k rows of each group, at every time.

At the end of every step the output's history is `model.operators.top_k` of the input's: the
normal form (one event per maximal run of a row, and per multiplicity) of the k rows that rank
first among those that are alive.  Equal rows count as often as they are there.  Ties are broken
by the whole row (`batch.row_order`), so the result depends on the bag alone.  Stables pass.

State is that of `operators.levels`, points per row and not events, with OPEN for a run of the
*output* that goes on across the frontier; all rows of a group are settled at one frontier.  The
members of a group (its rows) are found by an index that is derived, and not saved.

Cost: a step ranks all rows of the groups that it touches, and walks along all their points, so
a group with very many live rows makes every step slow that touches it; many groups do not.  At
each time the walk looks at no more than k rows, and moves those behind one that comes or goes.

Papers: CEDR (operators), Rank; normal form instead of cuts, erratum D12.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa

from anabranch.batch.batch import FOREVER_UNITS, Batch, Ints
from anabranch.batch.events import inserts
from anabranch.batch.hashing import hash_rows
from anabranch.batch.kernel import frozen, kernel, part
from anabranch.batch.row_order import check_order, ranks
from anabranch.batch.schema import ElementSchema
from anabranch.errors import SchemaError, StateError, UsageError
from anabranch.model.properties import StreamProperties
from anabranch.operators.contract import INPUT, Route
from anabranch.operators.runs.levels import (
    ANY,
    OPEN,
    POINT,
    ROW,
    TIME,
    WEIGHT,
    LevelsState,
    added,
    due_at,
    moves,
    nested,
    settled,
)
from anabranch.operators.runs.normalise_runs import Changes, Runs, changes
from anabranch.operators.state.blocks import Saved
from anabranch.operators.state.codec import StateKind
from anabranch.operators.state.groups import Groups, distinct
from anabranch.operators.unary import Changed

_KIND: Final = StateKind("anabranch top_k", version=1)

# Rows of the scratch arrays of `choose`, by rank: how many are alive, how many are shown; then
# lists: the ranks that are alive, in order, and those that are shown.
_COUNT: Final = 0
_SHOWN: Final = 1
_ALIVE: Final = 2
_TOP: Final = 3


@dataclass(frozen=True)
class TopKOperator:
    """The first `k` rows per group of equal `keys`, ranked by columns (name, ascending)."""

    schema: ElementSchema
    keys: tuple[str, ...]
    k: int
    by: tuple[tuple[str, bool], ...]
    name: str = "top_k"

    def __post_init__(self) -> None:
        object.__setattr__(self, "keys", tuple(self.keys))
        object.__setattr__(self, "by", tuple((name, bool(up)) for name, up in self.by))
        if self.k < 1:
            message = f"{self.name}: k is {self.k}; it must be 1 or more"
            raise UsageError(message)
        names = self.schema.payload.names
        for key in self.keys:
            if key not in names:
                message = f"{self.name}: there is no key column '{key}'; there are {names}"
                raise SchemaError(message)
        check_order(self.schema.payload, self.by, where=self.name)

    @property
    def route(self) -> Route:
        """All elements of a group are in one lane."""
        return Route.KEY

    @property
    def route_columns(self) -> Sequence[str]:
        """The keys."""
        return self.keys

    @property
    def output(self) -> ElementSchema:
        """Elements with the columns of the input."""
        return replace(self.schema, has_seq=False, has_replica=False)

    @property
    def key_schema(self) -> ElementSchema:
        """The columns of the keys."""
        fields = [self.schema.payload.field(key) for key in self.keys]
        return ElementSchema(self.schema.time, pa.schema(fields))

    @property
    def output_final_at_start(self) -> bool:
        """Whether output events are final when they start: no, a later start may cut them."""
        return False

    def properties(self, *inputs: StreamProperties) -> StreamProperties:
        """Equal rows may come into view together, so it is keyed only if there is one row."""
        del inputs
        return StreamProperties(keyed=self.k == 1)

    def empty(self) -> "TopKState":
        """Nothing has happened."""
        return TopKState(self)

    def from_parts(self, parts: Mapping[str, bytes]) -> "TopKState":
        """The state that was saved; StateError if of another kind, version, schema or order."""
        state = self.empty()
        state.restore(parts)
        return state


@dataclass(frozen=True, eq=False)
class Rows:
    """Different rows of some groups: their numbers ascend; the group and rank of each."""

    id: Ints
    key: Ints
    rank: Ints

    def of_ranks(self, found: Runs) -> Runs:
        """Runs of ranks as runs of rows."""
        by_rank = np.empty_like(self.id)
        by_rank[self.rank] = self.id
        return Runs(by_rank[found.group], found.start, found.end)


class TopKState(LevelsState):
    """The points of each row, and the rows of each group."""

    def __init__(self, operator: TopKOperator) -> None:
        super().__init__(operator, _KIND, {INPUT: 1}, most=ANY)
        self.spec = operator
        keys = operator.key_schema.payload
        self.members = Groups(keys, by_start=False, columns=("row",))

    def take(self, batches: Mapping[str, Batch], before: int) -> Changed:
        """The net change of the first rows."""
        batch, frontier = batches[INPUT], min(self.received.values())
        output, visits = self._change(batch)
        if frontier > before:
            visits += self._settle_due(frontier)
        return Changed(output, counts={"visits": visits})

    def _change(self, batch: Batch) -> tuple[Batch, int]:
        """Apply the elements; what changes, and how many points were read."""
        none = np.empty(0, np.int64)
        touched = key = none
        if len(batch):
            every = np.ones(len(batch), np.bool_)
            touched = self.groups.find(batch, every, self.mark)
            key = self.members.find(self._keyed(batch), every, self.mark)
        rows = self._rows(distinct(key), touched, key)
        old_id, old = self.groups.read(rows.id)
        at, points = moves(batch, 1)
        new_id, new = added(old_id, old, touched[at], points)
        found = changes(self._shown(rows, old_id, old), self._shown(rows, new_id, new))
        adjusted, inserted = rows.of_ranks(found.adjusted), rows.of_ranks(found.inserted)
        output = self._written(Changes(adjusted, found.old_end, inserted))
        # Rows that no element touched are as they were, and are not saved again.
        ids = distinct(touched)
        is_touched = np.isin(new_id, ids)
        self._write(ids, new_id[is_touched], new[is_touched])
        self._index(distinct(key), rows, new_id, new)
        return output, len(old) + len(new)

    def _keyed(self, batch: Batch) -> Batch:
        """The elements with their keys alone."""
        names = list(self.spec.keys)
        hashes = batch.hashes if names == batch.payload.column_names else None
        times = batch.start, batch.end, batch.old_end
        keys = batch.payload.select(names)
        return Batch(self.spec.key_schema, batch.kind, *times, keys, hashes=hashes)

    def _rows(self, keys: Ints, more: Ints, more_key: Ints) -> Rows:
        """All rows of these groups; `more` may not be in the index yet."""
        key, members = self.members.read(keys)
        own = np.concatenate([members[:, 0], more])
        ids = distinct(own)
        key_of = np.empty_like(ids)
        key_of[np.searchsorted(ids, own)] = np.concatenate([key, more_key])
        rank = np.empty(0, np.int64)
        if len(ids):
            rank = ranks(self.groups.payload(ids), len(ids), self.spec.by)
        return Rows(ids, key_of, rank)

    def _shown(self, rows: Rows, ids: Ints, points: Ints) -> Runs:
        """The output's runs of these rows with these points, by rank."""
        at = np.searchsorted(rows.id, ids)
        key, rank = rows.key[at], rows.rank[at]
        order = np.lexsort((rank, points[:, TIME], key))
        weight = np.abs(points[:, WEIGHT]) * (points[:, ROW] == POINT)
        # An event more or less lets no more than one row come, and one go.
        size = 2 * int(weight.sum()) + int(np.count_nonzero(points[:, ROW] == OPEN))
        found = np.zeros((size, 4), np.int64)
        scratch = np.zeros((4, len(rows.id)), np.int64)
        some = frozen(key[order]), frozen(points[order]), frozen(rank[order])
        count, lost = choose(*some, self.spec.k, scratch, found)
        if lost >= 0:
            row = order[int(lost)]
            raise self.lost(int(ids[row]), int(points[row, TIME]))
        found = found[: int(count)]
        found = found[np.lexsort((found[:, TIME], found[:, 3]))]
        group, steps = np.ascontiguousarray(found[:, 3]), np.ascontiguousarray(found[:, :3])
        return nested(group, steps, ANY)[0]

    def _write(self, ids: Ints, group: Ints, points: Ints) -> None:
        """Remember these points of these rows; what is due are groups, not rows."""
        due = np.full(len(ids), FOREVER_UNITS, np.int64)
        self.groups.write(ids, group, points, due, self.mark)

    def _index(self, keys: Ints, rows: Rows, ids: Ints, points: Ints) -> None:
        """Let these groups have the rows that have points, and be due when half are over."""
        stays = np.isin(rows.id, ids)
        key, member = rows.key[stays], rows.id[stays]
        order = np.argsort(key, kind="stable")
        of = rows.key[np.searchsorted(rows.id, ids)]
        by_time = np.lexsort((points[:, TIME], of))
        due = due_at(keys, of[by_time], points[by_time])
        self.members.write(keys, key[order], member[order, None], due, self.mark)

    def _settle_due(self, frontier: int) -> int:
        """Forget what is over of the groups of which half is; how many points these had."""
        keys = self.members.pop_due(frontier)
        none = np.empty(0, np.int64)
        rows = self._rows(keys, none, none)
        ids, points = self.groups.read(rows.id)
        visits = len(points)
        if frontier == FOREVER_UNITS:
            ids, points = ids[:0], points[:0]
        elif visits:
            shown = rows.of_ranks(self._shown(rows, ids, points))
            ids, points = settled(rows.id, ids, points, shown, frontier)
        self._write(rows.id, ids, points)
        self._index(keys, rows, ids, points)
        return visits

    @property
    def _order(self) -> str:
        return json.dumps([self.spec.keys, self.spec.k, self.spec.by])

    def parts(self, *, since: int | None = None) -> Saved:
        """The state in parts: all of them, or those that changed after a mark."""
        received = json.dumps(self.received)
        facts: dict[str, int | str] = {"received": received, "order": self._order}
        schema = self.operator.schema
        return self.groups.parts(self.kind, schema, since, mark=self.mark, facts=facts)

    def restored(self, header: Mapping[str, str]) -> None:
        """Find the rows of each group again; refuse what another order has left."""
        if header["order"] != self._order:
            message = (
                f"{self.operator.name}: the state has keys, k and order {header['order']}, the "
                f"query has {self._order}; those of a running query cannot change; start with "
                "a new checkpoint and output folder"
            )
            raise StateError(message)
        living, none = self.groups.table.living(), np.empty(0, np.int64)
        if not len(living):
            return
        time = np.zeros(len(living), np.int64)
        batch = self._keyed(
            inserts(self.operator.schema, time, time, self.groups.payload(living))
        )
        key = self.members.find(batch, np.ones(len(living), np.bool_), self.mark)
        ids, points = self.groups.read(living)
        self._index(distinct(key), Rows(living, key, none), ids, points)

    def check(self) -> None:
        """Assert every invariant."""
        super().check()
        self.members.table.check()
        self.members.due.check()
        key, members = self.members.all()
        living = self.groups.table.living()
        indexed = np.sort(members[:, 0])
        assert np.array_equal(indexed, living), f"rows {living}, in the index {indexed}"
        if self.spec.keys:
            own = self.groups.payload(members[:, 0]).select(list(self.spec.keys))
            same = hash_rows(own, len(key)) == hash_rows(self.members.payload(key), len(key))
            assert same.all(), f"rows in a group of other keys: {key}, {members[:, 0]}"


@part
def put(found: Ints, made: int, time: int, weight: int, rank: int) -> int:
    """One more change; how many there are."""
    found[made, TIME], found[made, WEIGHT], found[made, 3] = time, weight, rank
    return made + 1


@part
def count(scratch: Ints, alive: int, one: int, weight: int) -> int:
    """More or fewer rows of a rank are alive; how many ranks are."""
    before = scratch[_COUNT, one]
    after = before + weight
    scratch[_COUNT, one] = after
    if before <= 0 and after > 0:
        j = alive
        while j > 0 and scratch[_ALIVE, j - 1] > one:
            scratch[_ALIVE, j] = scratch[_ALIVE, j - 1]
            j -= 1
        scratch[_ALIVE, j] = one
        return alive + 1
    if before > 0 and after <= 0:
        j = alive - 1
        moved = scratch[_ALIVE, j]
        while moved != one:
            j -= 1
            following = scratch[_ALIVE, j]
            scratch[_ALIVE, j] = moved
            moved = following
        return alive - 1
    return alive


@part
def show(
    scratch: Ints, alive: int, top: int, k: int, now: int, made: int, found: Ints
) -> tuple[int, int]:
    """Let the first k of those alive be shown; how many changes, and ranks shown, there are."""
    room, size, last = k, 0, -1
    while size < alive and room > 0:
        last = scratch[_ALIVE, size]
        wanted = min(scratch[_COUNT, last], room)
        if wanted != scratch[_SHOWN, last]:
            made = put(found, made, now, wanted - scratch[_SHOWN, last], last)
            scratch[_SHOWN, last] = wanted
        room -= wanted
        size += 1
    for j in range(top):
        one = scratch[_TOP, j]
        if scratch[_COUNT, one] <= 0 or one > last:
            made = put(found, made, now, -scratch[_SHOWN, one], one)
            scratch[_SHOWN, one] = 0
    for j in range(size):
        scratch[_TOP, j] = scratch[_ALIVE, j]
    return made, size


@kernel
def choose(
    key: Ints, points: Ints, rank: Ints, k: int, scratch: Ints, found: Ints
) -> tuple[int, int]:
    """Where the first k change: rows (time, weight, POINT, rank); a point below 0, or -1.

    Points are sorted by key, time and rank.  Returns how many rows of `found` are filled.
    """
    made, i = 0, 0
    while i < key.size:
        own, alive, top = key[i], 0, 0
        while i < key.size and key[i] == own:
            now, is_point = points[i, TIME], False
            while i < key.size and key[i] == own and points[i, TIME] == now:
                one = rank[i]
                # Shown when the frontier passed, and shown on until something changes that.
                if points[i, ROW] == OPEN:
                    if scratch[_SHOWN, one] == 0:
                        scratch[_TOP, top] = one
                        top += 1
                    scratch[_SHOWN, one] += 1
                    made = put(found, made, now, 1, one)
                is_point |= points[i, ROW] == POINT
                alive = count(scratch, alive, one, points[i, WEIGHT])
                if scratch[_COUNT, one] < 0:
                    return made, i
                i += 1
            # Once per time: what changes at one time changes together.
            if is_point:
                made, top = show(scratch, alive, top, k, now, made, found)
        # Only what was used is cleared: the scratch has a place for each row of all keys.
        for j in range(alive):
            scratch[_COUNT, scratch[_ALIVE, j]] = 0
        for j in range(top):
            scratch[_SHOWN, scratch[_TOP, j]] = 0
    return made, -1
