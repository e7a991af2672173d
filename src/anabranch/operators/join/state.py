"""What a join remembers for one lane: the events of both sides that may still matter.

    keys            the values of the key columns; null has none
    left, right     payloads; of a side whose columns are not in the result the key alone
    trees           for each key the events of both sides and, unless `how` is inner, the
                    runs in which a right event is alive; see `state.interval_trees`

Payloads of an inner join have no names before the first adjust of their side: each event has
a number of its own then, and only keys are looked up.  From that adjust on equal payloads have
one number (`_name`).

Of an inner join an event is forgotten when the frontier of the other side has passed its end:
that side changes nothing before its frontier.  Its own side may still adjust it, and then an
adjust has its start and its old end, and the partners that it gains or loses are kept, since
they end behind its own side's frontier.  So a side without stables keeps the other one only.

Of the other joins an event is forgotten when both frontiers have passed its end.  Whether a
right event ends a run depends on others that are over, and a part without partner begins where
a run ended that is over.  A run is forgotten then as well, but for the last one of a key with
left events.  A left event with null as key has no partner: nothing of it is kept.

Cost: for each element O(log n) of its key's events, and one step for each partner whose shared
time it changes; for a frontier that moves, O(log n) for each event that it makes final.  A
step never looks at all live events.  `counts` has the `visits` of nodes.

Papers: CEDR *operators* 5; the reference is `anabranch.operators.reference.join`.
"""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from anabranch.batch.batch import ADJUST, FOREVER_UNITS, INSERT, NEVER_UNITS, Batch, Ints
from anabranch.batch.buffers import to_arrow, valid
from anabranch.batch.kernel import frozen, frozen_rows
from anabranch.batch.schema import ElementSchema
from anabranch.batch.store import grown
from anabranch.errors import StateError
from anabranch.operators.join.forget import expire, is_due, without_nodes, without_trees
from anabranch.operators.join.kernel import (
    AT,
    DONE,
    EVENTS,
    LEFT_EVENTS,
    LOST,
    NEED,
    NO_FOUND,
    NO_NODES,
    NO_OUT,
    OUT,
    PAIRS,
    REFS,
    RUNS,
    TOUCHED,
    TREES,
    UNUSED,
    WITH_GAPS,
    WITH_RUNS,
    Elements,
    Room,
    take_left,
    take_right,
)
from anabranch.operators.join.net import Net, in_order, net_of
from anabranch.operators.join.pairs import take_pairs
from anabranch.operators.state.blocks import CONTROL, Blocks, Saved, part_of
from anabranch.operators.state.codec import StateKind, to_table, write_tables
from anabranch.operators.state.due_queue import DueQueue
from anabranch.operators.state.interned import Interned
from anabranch.operators.state.interval_kernels import COUNT, END, MARK, NONE, OWNER, TREE
from anabranch.operators.state.interval_trees import IntervalTrees
from anabranch.operators.trusting import TrustingState, lost_event
from anabranch.operators.unary import Changed

if TYPE_CHECKING:
    from anabranch.operators.join.operator import JoinOperator

_KIND: Final = StateKind("anabranch join", version=2)
_LEFT: Final = "left"
_RIGHT: Final = "right"
_WHAT: Final = {
    "inner": PAIRS,
    "left": PAIRS | WITH_GAPS,
    "semi": WITH_RUNS,
    "anti": WITH_GAPS,
}
_SMALL: Final = 1_024
_MIX: Final = np.int64(-7046029254386353131)

# A payload's column with its key: 0 if not known yet, 1 for null, else its number and 2.
_KEY: Final = REFS + 1


class JoinState(TrustingState):
    """The events of both sides, and what they have in common."""

    operator: "JoinOperator"

    def __init__(self, operator: "JoinOperator") -> None:
        super().__init__(operator)
        self.what = _WHAT[operator.how]
        time, left, right = operator.left.time, operator.left.payload, operator.right.payload
        key = pa.schema([left.field(name) for name in operator.left_keys])
        if not self.what & PAIRS:
            right = pa.schema([right.field(name) for name in operator.right_keys])
        self.keys = Interned(ElementSchema(time, key), own=0)
        # Payloads get names when the first adjust of their side looks for one.
        named = self.what != PAIRS
        self.sides = {
            _LEFT: Interned(ElementSchema(time, left), own=2, is_named=named),
            _RIGHT: Interned(ElementSchema(time, right), own=2, is_named=named),
        }
        self.passed_ends = self._passed_ends()
        self.trees = IntervalTrees()
        self.due = {_LEFT: DueQueue(), _RIGHT: DueQueue()}
        none = np.empty((0, 2), np.int64)
        progress = np.zeros(TOUCHED + 1, np.int64)
        self._room = Room(np.empty((0, 5), np.int64), none[:, 0], none, none, progress)

    def __repr__(self) -> str:
        return f"JoinState({self.live} events of {len(self.keys)} keys, {self.trees!r})"

    @property
    def live(self) -> int:
        """The events of both sides that are remembered."""
        return int(self._room.progress[EVENTS])

    def take(self, batches: Mapping[str, Batch], before: int) -> Changed:
        """The net change of the joined history."""
        del before
        self.trees.arrays.numbers[MARK] = self.mark
        self._room.progress[[OUT, UNUSED]] = 0
        for name, batch in batches.items():
            if not self.sides[name].is_named and (batch.kind == ADJUST).any():
                self._name(name)
        some = {name: self._elements(name, batch) for name, batch in batches.items()}
        self.trees.make_room(
            sum(len(one.kind) for one in some.values()), TREES * len(self.keys.rows)
        )
        self._run(_LEFT, some[_LEFT])
        of_left = self.trees.made
        self._run(_RIGHT, some[_RIGHT])
        passed, self.passed_ends = self.passed_ends, self._passed_ends()
        rows = self._room.out[: int(self._room.progress[OUT])]
        sizes = [self.sides[name].table.used for name in (_LEFT, _RIGHT)]
        output = self._written(net_of(rows, sizes[0], sizes[1]))
        made = self.trees.take_made()
        self._schedule({_LEFT: made[:of_left], _RIGHT: made[of_left:]})
        touched = {name: one.payload for name, one in some.items()}
        keys = [one.key[one.key != NONE] for one in some.values()]
        if min(self.received.values()) == FOREVER_UNITS:
            self._clear()
        else:
            gone = {name: self._expire(name, passed[name]) for name in self.sides}
            self._forget(touched, keys, gone)
        counts = {"visits": self.trees.take_visits(), "rows": len(rows)}
        return Changed(output, counts=counts)

    def _elements(self, name: str, batch: Batch) -> Elements:
        """The elements of a side, with the numbers of their payloads and keys."""
        side = self.sides[name]
        columns = batch.schema.payload.names
        names = self.operator.left_keys if name == _LEFT else self.operator.right_keys
        if name == _RIGHT and not self.what & PAIRS:
            columns = list(names)
        if side.is_named:
            payload = side.find(batch, columns, self.mark)
            at = np.flatnonzero(side.rows[payload, _KEY] == 0)
            if len(at):
                side.rows[payload[at], _KEY] = self._keys_of(batch, names, at)
            known = side.rows[payload, _KEY]
        else:
            payload = side.add(batch, self.mark)
            known = self._keys_of(batch, names, np.arange(len(batch)))
        key = np.where(known == 1, NONE, known - 2)
        return Elements(
            frozen(np.ascontiguousarray(batch.kind)),
            frozen_rows(batch.start),
            frozen_rows(batch.end),
            frozen_rows(batch.old_end),
            frozen(payload),
            frozen(key),
        )

    def _keys_of(self, batch: Batch, names: tuple[str, ...], at: Ints) -> Ints:
        """What `_KEY` has for these rows."""
        some = batch if len(at) == len(batch) else batch.take(at)
        there = np.ones(len(some), np.bool_)
        for name in names:
            there &= valid(some.payload.column(name))
        found = np.ones(len(some), np.int64)
        rows = np.flatnonzero(there)
        if len(rows) < len(some):
            some = some.take(rows)
        found[rows] = self.keys.find(some, names, self.mark) + 2
        return found

    def _run(self, name: str, some: Elements) -> None:
        """Apply elements, with as much room as they turn out to need."""
        progress = self._room.progress
        progress[AT] = 0
        side, at = self.sides[name], int(name == _RIGHT)
        take = partial((take_left, take_right)[at], self.what, some, int(NEVER_UNITS))
        if self.what == PAIRS:
            passed = self.passed_ends[name]
            take = partial(take_pairs, at, int(side.is_named), some, passed)
        while True:
            status = take(side.rows, self.trees.arrays, self._room)
            if status == DONE:
                return
            if status == LOST:
                raise self._lost(name, some, int(progress[AT]))
            self._make_room(int(status), int(progress[NEED]))

    def _name(self, name: str) -> None:
        """Give equal payloads of a side one number, by which their events are found."""
        number = (_LEFT, _RIGHT).index(name)
        self.sides[name], before, now = self.sides[name].named(self.mark)
        numbers = np.zeros(int(before.max(initial=-1)) + 1, np.int64)
        numbers[before] = now
        ids = self.trees.living()
        own = ids[self.trees.nodes[ids, TREE] % TREES == number]
        self.trees.give_owners(own, numbers[self.trees.nodes[own, OWNER]])
        self._count_refs(name)

    def _make_room(self, status: int, need: int) -> None:
        room = self._room
        if status == NO_OUT:
            self._room = room._replace(out=grown(room.out, need))
        elif status == NO_FOUND:
            self._room = room._replace(found=grown(room.found, need))
        elif status == NO_NODES:
            self.trees.make_room(need + _SMALL, 0)
        else:
            before, after = grown(room.before, need), grown(room.afterwards, need)
            self._room = room._replace(before=before, afterwards=after)

    def _lost(self, name: str, some: Elements, at: int) -> StateError:
        ids = some.payload[at : at + 1]
        value = self.sides[name].values(ids).to_pylist()[0]
        what = f"{value} with start {some.start[at]} and end {some.old_end[at]} ({name} side)"
        return lost_event(self.operator.name, what)

    def _written(self, net: Net) -> Batch:
        """Adjusts by sync time, then inserts by start."""
        adjusts, inserts = net.adjusts, net.inserts
        # The last column of an adjust is its end, before it the old end.
        sync = np.minimum(adjusts[:, 3], adjusts[:, 4])
        first = adjusts[in_order(sync, lambda at: self._names(adjusts[at]))]
        second = inserts[in_order(inserts[:, 2], lambda at: self._names(inserts[at]))]
        both = np.concatenate([first[:, :3], second[:, :3]])
        return Batch(
            self.output,
            np.repeat(np.array([ADJUST, INSERT], np.int8), [len(first), len(second)]),
            np.ascontiguousarray(both[:, 2]),
            np.concatenate([first[:, 4], second[:, 3]]),
            np.concatenate([first[:, 3], np.zeros(len(second), np.int64)]),
            self._payload(both[:, 0], both[:, 1]),
        )

    def _names(self, rows: Ints) -> Ints:
        """What orders rows of one time: a word of payloads, start and end."""
        left, right = rows[:, 0], rows[:, 1]
        word = np.zeros(len(rows), np.int64)
        word[right != NONE] = self.sides[_RIGHT].names(right[right != NONE])
        for column in (self.sides[_LEFT].names(left), rows[:, 2], rows[:, 3]):
            word = (word ^ (word >> 32)) * _MIX + column
        return word

    def _payload(self, left: Ints, right: Ints) -> pa.Table:
        """The columns of both sides; null where there is no right payload."""
        columns, added = self.sides[_LEFT].values(left).columns, list(self.operator.added)
        if added:
            has = right != NONE
            is_whole = bool(has.all())
            values = self.sides[_RIGHT].values(right if is_whole else right[has], added)
            if not is_whole:
                place = to_arrow(np.cumsum(has) - 1, pa.int64(), mask=has)
                values = values.take(place)
            columns = [*columns, *values.columns]
        return pa.Table.from_arrays(columns, schema=self.output.payload)

    def _passed_ends(self) -> dict[str, int]:
        """By side, the time before which ends are over."""
        left, right = self.received[_LEFT], self.received[_RIGHT]
        if self.what == PAIRS:
            return {_LEFT: right, _RIGHT: left}
        return dict.fromkeys(self.sides, min(left, right))

    def _schedule(self, made: Mapping[str, Ints]) -> None:
        """Let these nodes be due when their ends are over; runs are due with right events."""
        for name, due in self.due.items():
            due.push(*self._ends(name, made[name]))
            if len(due) > 2 * len(self.trees) + _SMALL:
                due.rebuild(*self._ends(name, self.trees.living()))

    def _ends(self, name: str, ids: Ints) -> tuple[Ints, Ints]:
        """The ends of those of these nodes that are of a side, and their numbers."""
        times, found = np.empty((2, len(ids)), np.int64)
        count = int(
            is_due(frozen_rows(ids), self.trees.nodes, int(name == _LEFT), times, found)
        )
        return times[:count], found[:count]

    def _expire(self, name: str, before: int) -> Ints:
        """Drop what is over of a side; the trees and payloads that lost something."""
        frontier = self.passed_ends[name]
        if frontier == before:
            return np.empty((0, 2), np.int64)
        ids = self.due[name].pop_before(frontier)
        if frontier == FOREVER_UNITS:
            ids = self.trees.living()
            of_left = self.trees.nodes[ids, TREE] % TREES == LEFT_EVENTS
            ids = ids[of_left == (name == _LEFT)]
        gone, progress = np.empty((len(ids), 2), np.int64), self._room.progress
        tables = (self.sides[_LEFT].rows, self.sides[_RIGHT].rows)
        some, trees = frozen_rows(ids), self.trees.arrays
        count = expire(some, frontier, self.what, tables, trees, progress, gone)
        return gone[: int(count)]

    def _forget(
        self, touched: Mapping[str, Ints], keys: Sequence[Ints], gone: Mapping[str, Ints]
    ) -> None:
        """Drop payloads without events and keys without nodes, of those that were touched."""
        for name, side in self.sides.items():
            trees, owners = gone[name][:, 0], gone[name][:, 1]
            if self.what != PAIRS:
                owners = owners[trees % TREES != RUNS]
            if not side.is_named and not self._room.progress[UNUSED]:
                side.forget(owners, self.mark)  # each had one node, which is gone
                continue
            ids = np.concatenate([touched[name], owners])
            found = np.empty(len(ids), np.int64)
            count = int(without_nodes(frozen_rows(ids), side.rows, found))
            side.forget(found[:count], self.mark)
        ids = np.concatenate([*keys, *(some[:, 0] // TREES for some in gone.values())])
        found = np.empty(len(ids), np.int64)
        count = int(without_trees(frozen_rows(ids), self.trees.arrays.roots, found))
        self.keys.forget(found[:count], self.mark)

    def _clear(self) -> None:
        """Nothing can change any more."""
        self.trees.clear(self.mark)
        self._room.progress[EVENTS] = 0
        for due in self.due.values():
            due.rebuild(np.empty(0, np.int64), np.empty(0, np.int64))
        for table in (self.keys, *self.sides.values()):
            table.forget(table.table.living(), self.mark)

    def _tables(self) -> Mapping[str, Interned]:
        return {"keys/": self.keys, **{f"{name}/": one for name, one in self.sides.items()}}

    def _facts(self) -> dict[str, str]:
        return {"how": self.operator.how, "on": json.dumps(self.operator.on)}

    @property
    def _named(self) -> str:
        return json.dumps([name for name, side in self.sides.items() if side.is_named])

    def parts(self, *, since: int | None = None) -> Saved:
        """The state in parts: all of them, or those that changed after a mark."""
        received = json.dumps(self.received)
        header = _KIND.header(
            mark=self.mark, received=received, named=self._named, **self._facts()
        )
        control = write_tables(to_table({}, header), self.trees.blocks().table())
        written, deleted = self.trees.parts("events/", since)
        for prefix, table in self._tables().items():
            saved = table.parts(_KIND, since, self.mark)
            written |= {prefix + name: data for name, data in saved.written.items()}
            deleted += [prefix + name for name in saved.deleted]
        gone = () if since is None else tuple(deleted)
        return Saved({CONTROL: control} | written, gone, self.mark)

    def restore(self, parts: Mapping[str, bytes]) -> None:
        """Fill an empty state with what was saved."""
        streams = _KIND.open(part_of(parts, CONTROL, _KIND))
        _, header = streams.first()
        for name, now in self._facts().items():
            if header[name] != now:
                message = (
                    f"join: the state has {name}={header[name]}, the operator {name}={now}; a "
                    "running join cannot change, start with a new checkpoint and output folder"
                )
                raise StateError(message)
        self.mark = int(header["mark"])
        self.received = {
            name: int(time) for name, time in json.loads(header["received"]).items()
        }
        for name in json.loads(header["named"]):
            self.sides[name] = Interned(self.sides[name].schema, own=2)
        for prefix, table in self._tables().items():
            own = {n.removeprefix(prefix): d for n, d in parts.items() if n.startswith(prefix)}
            table.restore(_KIND, own)
        self.passed_ends = self._passed_ends()
        self.trees.restore("events/", Blocks.read(streams.next()), parts, _KIND)
        self._restore_refs()

    def _restore_refs(self) -> None:
        """What payloads and the queue know of the nodes."""
        for name in self.sides:
            self._count_refs(name)
        ids = self.trees.living()
        rows = self.trees.nodes[ids]
        events = rows[rows[:, TREE] % TREES != RUNS]
        self._room.progress[EVENTS] = events[:, COUNT].sum()
        self._schedule(dict.fromkeys(self.sides, ids))

    def _count_refs(self, name: str) -> None:
        """What new payloads of a side know of the nodes."""
        side, rows = self.sides[name], self.trees.nodes[self.trees.living()]
        own = rows[rows[:, TREE] % TREES == (_LEFT, _RIGHT).index(name)]
        side.rows[:, REFS] = 0
        np.add.at(side.rows[:, REFS], own[:, OWNER], 1)
        side.rows[own[:, OWNER], _KEY] = own[:, TREE] // TREES + 2

    def check(self) -> None:
        """Assert every invariant."""
        self.trees.check()
        for table in self._tables().values():
            table.table.check()
        for due in self.due.values():
            due.check()
        rows = self.trees.nodes[self.trees.living()]
        events = rows[rows[:, TREE] % TREES != RUNS]
        count = int(events[:, COUNT].sum())
        assert count == self.live, f"{count} events in trees, counted {self.live}"
        for number, side in enumerate(self.sides.values()):
            ends = rows[rows[:, TREE] % TREES == number, END]
            over = ends[ends < [*self.passed_ends.values()][number]]
            assert not len(over), f"over, but kept: ends {over}; frontiers {self.received}"
            own = rows[rows[:, TREE] % TREES == number, OWNER]
            refs = np.bincount(own, minlength=side.table.used)
            ids = side.table.living()
            assert (refs[ids] == side.rows[ids, REFS]).all(), f"nodes per payload {refs}"
            assert (refs[ids] > 0).all(), f"payloads without events: {ids[refs[ids] == 0]}"
        keys = np.unique(rows[:, TREE] // TREES)
        known = self.keys.table.living()
        assert keys.tolist() == known.tolist(), f"keys in trees {keys} != keys {known}"
        self._check_runs(rows)

    def _check_runs(self, rows: Ints) -> None:
        """Runs of a key are apart, and only there where someone asks for them."""
        runs = rows[rows[:, TREE] % TREES == RUNS]
        assert self.what != PAIRS or not len(runs), f"runs of an inner join: {runs}"
        runs = runs[np.lexsort((runs[:, 0], runs[:, TREE]))]
        same = np.diff(runs[:, TREE]) == 0
        apart = runs[1:, 0][same] > runs[:-1, END][same]
        assert apart.all(), f"runs touch: {runs}"

    @property
    def facts(self) -> Mapping[str, Any]:
        """How many keys are remembered."""
        return {"keys": len(self.keys)}
