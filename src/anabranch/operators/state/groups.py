"""Live events of one input in groups: all events of one payload, or of one identity.

A group is a row of `state.events`, found by its payload (with `by_start` by start and payload),
with the columns

    FIRST, COUNT    where the events of the group are in the log
    DUE             the first time at which a frontier beyond it has something to do here;
                    FOREVER_UNITS if none has before the stream ends

An event is a row of numbers in the log, the first two of which are its start and end.  A step
reads the events of the groups that it touches and rewrites them; other groups are not read.
What is overwritten is garbage; the log is compacted when more than half of it is.  Groups that
are due are found by a queue, so a frontier that moves costs what it is due for, and nothing for
what stays.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from anabranch.batch.batch import FOREVER_UNITS, Batch, Ints, Mask
from anabranch.batch.events import inserts
from anabranch.batch.hashing import hash_columns, hash_rows
from anabranch.batch.index import HIGH, LOW, START
from anabranch.batch.schema import ElementSchema
from anabranch.batch.store import grown, read_table
from anabranch.operators.contract import Route
from anabranch.operators.route import lanes_of_names
from anabranch.operators.state.blocks import BLOCK_BITS, InBlocks, Saved, read_blocks
from anabranch.operators.state.codec import StateKind, column_of, matrix_of, to_table
from anabranch.operators.state.due_queue import DueQueue
from anabranch.operators.state.events import FLAGS, LIVE, OWN, Events
from anabranch.operators.state.parts import open_control, save
from anabranch.operators.state.pieces import find_piece, pieces
from anabranch.operators.state.reshape import Reshape

FIRST: Final = OWN
COUNT: Final = OWN + 1
DUE: Final = OWN + 2
_WIDTH: Final = OWN + 3

# Less garbage than this is never compacted.
_SMALL: Final = 1_024


class Groups:
    """The groups of one lane; `columns` name the numbers of an event."""

    def __init__(self, payload: pa.Schema, *, by_start: bool, columns: tuple[str, ...]) -> None:
        self.table = Events(payload, width=_WIDTH)
        self.columns = columns
        self.due = DueQueue()
        self._by_start = by_start
        self._log: Ints = np.empty((0, len(columns)), np.int64)
        self._used = 0
        self._events = 0

    def __len__(self) -> int:
        """How many events there are."""
        return self._events

    def __repr__(self) -> str:
        return f"Groups({self._events} events of {len(self.table)} groups, log {self._used})"

    @property
    def stored(self) -> int:
        """How many rows the log has, garbage included."""
        return self._used

    def find(self, events: Batch, may_add: Mask, mark: int) -> Ints:
        """The group of each of these events, NOBODY if it is not there and may not be added.

        An added group has no events until `write` gives it some, or removes it.
        """
        found = [np.empty(0, np.int64)]
        first = 0
        for piece in pieces([events]):
            start = piece.start if self._by_start else np.zeros_like(piece.start)
            adds = np.ascontiguousarray(may_add[first : first + len(start)])
            rows = np.arange(len(start))
            asked, created = find_piece(self.table, piece, start, adds, rows, mark)
            self.table.rows[created, FIRST:] = (0, 0, FOREVER_UNITS)
            found.append(asked.id)
            first += len(start)
        return np.concatenate(found)

    def read(self, groups: Ints) -> tuple[Ints, Ints]:
        """The group and the numbers of every event of these groups, group by group."""
        first, size = self.table.rows[groups, FIRST], self.table.rows[groups, COUNT]
        # The position within the group, then moved to where the group is.
        at = np.arange(int(size.sum())) - np.repeat(np.cumsum(size) - size, size)
        return np.repeat(groups, size), self._log[at + np.repeat(first, size)]

    def all(self) -> tuple[Ints, Ints]:
        """The group and the numbers of every event, group by group."""
        return self.read(self.table.living())

    def write(self, groups: Ints, group: Ints, rows: Ints, due: Ints, mark: int) -> None:
        """Let these groups have these events only, and be due at these times.

        Groups ascend, events are sorted by group; a group without events is removed.
        """
        begin, table = self._used, self.table.rows
        self._log = grown(self._log, begin + len(rows))
        self._log[begin : begin + len(rows)] = rows
        self._used += len(rows)
        first = np.searchsorted(group, groups)
        size = np.searchsorted(group, groups, side="right") - first
        self._events += len(rows) - int(table[groups, COUNT].sum())
        is_news = (due != table[groups, DUE]) & (due < FOREVER_UNITS) & (size > 0)
        table[groups, FIRST], table[groups, COUNT] = begin + first, size
        table[groups, DUE] = due
        self.table.changed[groups >> BLOCK_BITS] = mark
        self.table.remove(groups[size == 0], mark)
        self.due.push(due[is_news], groups[is_news])
        self._tidy()

    def schedule(self, groups: Ints, due: Ints) -> None:
        """Let these groups be due at these times, as their events are; after `restore`."""
        self.table.rows[groups, DUE] = due
        is_due = due < FOREVER_UNITS
        self.due.push(due[is_due], groups[is_due])

    def pop_due(self, frontier: int) -> Ints:
        """The groups that a frontier here has something to do with, ascending, once each.

        They are not due again until `write` schedules them.
        """
        popped = self.due.pop_before(frontier)
        if frontier == FOREVER_UNITS:
            ids = self.table.living()
        else:
            ids, rows = distinct(popped), self.table.rows
            ids = ids[(rows[ids, FLAGS] & LIVE != 0) & (rows[ids, DUE] < frontier)]
        self.table.rows[ids, DUE] = FOREVER_UNITS
        return ids

    def write_until_final(
        self, groups: Ints, group: Ints, rows: Ints, mark: int, *, by: int = 1
    ) -> None:
        """As `write`; each group is due at the first end of its events, see `release`."""
        due = np.full(len(groups), FOREVER_UNITS, np.int64)
        found, times = first_ends(group, rows, by=by)
        due[np.searchsorted(groups, found)] = times
        self.write(groups, group, rows, due, mark)

    def release(
        self, schema: ElementSchema, frontier: int, mark: int, *, by: int = 1
    ) -> tuple[Batch, int]:
        """The events that this frontier freezes, as inserts; they leave, and groups visited.

        An event is final when its number `by` is before the frontier: its end, or 0 for its
        start where ends are known (`final_by`).  Costs what is frozen, nothing for what stays.
        """
        due = self.pop_due(frontier)
        group, rows = self.read(due)
        frozen = is_frozen(final_by(rows, by), frontier)
        of, start, end = group[frozen], rows[frozen, 0], rows[frozen, 1]
        order = self.order(of, start, end)
        payload = self.payload(of[order])
        self.write_until_final(due, group[~frozen], rows[~frozen], mark, by=by)
        return inserts(schema, start[order], end[order], payload), len(due)

    def payload(self, groups: Ints) -> pa.Table:
        """The payloads of these groups, in the form first seen."""
        return self.table.payload(groups)

    def order(self, groups: Ints, start: Ints, end: Ints) -> Ints:
        """The events by start, payload's hash and end: the same in whatever order they came."""
        order: Ints = np.argsort(start, kind="stable").astype(np.int64)
        tied = np.diff(start[order]) == 0
        at = np.flatnonzero(np.append(tied, False) | np.append(False, tied))
        if len(at):
            some, names = order[at], self.table.rows[groups[order[at]], HIGH : LOW + 1]
            order[at] = some[np.lexsort((end[some], names[:, 1], names[:, 0], start[some]))]
        return order

    def _tidy(self) -> None:
        if self._used > 2 * self._events + _SMALL:
            ids = self.table.living()
            _, rows = self.read(ids)
            size = self.table.rows[ids, COUNT]
            self._log, self._used = rows, len(rows)
            self.table.rows[ids, FIRST] = np.cumsum(size) - size
        if len(self.due) > 2 * len(self.table) + _SMALL:
            self._rebuild_due()

    def _rebuild_due(self) -> None:
        ids = self.table.living()
        times = self.table.rows[ids, DUE]
        is_due = times < FOREVER_UNITS
        self.due.rebuild(times[is_due], ids[is_due])

    def parts(
        self,
        kind: StateKind,
        schema: ElementSchema,
        since: int | None,
        *,
        mark: int,
        facts: Mapping[str, int | str],
        more: Sequence[pa.Table] = (),
    ) -> Saved:
        """The parts that changed after the mark `since`, or all; `facts` are in the header.

        `mark` is the state's.  Of a block its groups are saved, with how many events each has,
        and then the events.  `more` are tables that every save writes.
        """
        head = to_table({}, kind.header(time=schema.time.value, mark=mark, **facts))
        held = InBlocks(
            self.table.blocks(), self.table.ids_in, self._tables, self.payload, at_once=False
        )
        return save(head, held, schema.payload, since, more=more)

    def _tables(self, ids: Ints) -> tuple[pa.Table, ...]:
        """These groups, and their events."""
        _, rows = self.read(ids)
        events = {name: rows[:, i] for i, name in enumerate(self.columns)}
        counts = {"node": ids, "count": self.table.rows[ids, COUNT]}
        return to_table(counts), to_table(events)

    def restore(
        self, kind: StateKind, schema: ElementSchema, parts: Mapping[str, bytes]
    ) -> dict[str, str]:
        """Fill empty groups with what was saved; returns the header.  Nothing is due yet."""
        return self.restore_all(kind, schema, parts, more=0)[0]

    def restore_all(
        self, kind: StateKind, schema: ElementSchema, parts: Mapping[str, bytes], *, more: int
    ) -> tuple[dict[str, str], Sequence[pa.Table]]:
        """As `restore`; also the tables that every save writes."""
        _, header, blocks, empty, tables = open_control(parts, kind, schema, more=more)
        names = ("node", "count")
        none = to_table(dict.fromkeys((*names, *self.columns), np.empty(0, np.int64)))
        groups, events = [none.select(names)], [none.select(self.columns)]
        payloads = [empty]
        for some, rest, payload in read_blocks(parts, blocks, kind):
            groups.append(some)
            events.append(rest.next())
            payloads.append(payload)
        held = pa.concat_tables(groups)
        self._log = matrix_of(pa.concat_tables(events), self.columns)
        self._used = self._events = len(self._log)
        payload = pa.concat_tables(payloads) if len(empty.schema) else empty
        self._restore_rows(column_of(held, "node"), column_of(held, "count"), payload)
        self.table.date(blocks)
        return header, tables

    def take_over(
        self, shares: "Sequence[tuple[Groups, Ints]]", reshape: Reshape | None = None
    ) -> None:
        """Fill empty groups with some of others, which share no name.  Nothing is due yet.

        Groups whose payloads become equal without the columns that go are one.
        """
        none = np.empty((0, len(self.columns)), np.int64)
        logs, sizes, payloads = [none], [none[:, 0]], [self.table.schema.empty_table()]
        for other, ids in shares:
            logs.append(other.read(ids)[1])
            sizes.append(other.table.rows[ids, COUNT])
            payload = other.payload(ids)
            payloads.append(payload if reshape is None else reshape.payload(payload, len(ids)))
        self._log, count = np.concatenate(logs), np.concatenate(sizes)
        self._used = self._events = len(self._log)
        payload = pa.concat_tables(payloads) if len(self.table.schema) else payloads[0]
        if reshape is not None and reshape.dropped:
            count, payload = self._unite_twins(count, payload)
        self._restore_rows(np.arange(len(count)), count, payload)

    def _unite_twins(self, count: Ints, payload: pa.Table) -> tuple[Ints, pa.Table]:
        """Groups of one name as one: their events one after the other, and one payload."""
        starts = self._log[np.cumsum(count) - count, 0]
        words = hash_rows(payload, len(count)).view(np.int64)
        keys = np.column_stack([starts, words])
        _, first, group = np.unique(keys, axis=0, return_index=True, return_inverse=True)
        self._log = self._log[np.argsort(np.repeat(group, count), kind="stable")]
        sums = np.zeros(len(first), np.int64)
        np.add.at(sums, group, count)
        return sums, payload.take(pa.array(first))

    def by_lane(self, lanes: int, by: Route, reshape: Reshape | None = None) -> list[Ints]:
        """The groups of each lane; for groups of identities, which have one start each."""
        assert self._by_start, f"groups by identity required, by_start is {self._by_start}"
        ids = self.table.living()
        rows = self.table.rows[ids]
        low = rows[:, LOW]
        if reshape is not None:
            low = reshape.hashes(self.payload(ids), len(ids))[:, 0]
        lane_of = lanes_of_names(rows[:, START], low, lanes, by)
        return [ids[lane_of == lane] for lane in range(lanes)]

    def _restore_rows(self, ids: Ints, count: Ints, payload: pa.Table) -> None:
        columns = read_table(payload) if payload.num_columns else []
        hashes = hash_columns(columns, len(ids)).view(np.int64)
        rows = np.zeros((len(ids), _WIDTH), np.int64)
        first = np.cumsum(count) - count
        if self._by_start:
            rows[:, START] = self._log[first, 0]
        rows[:, LOW], rows[:, HIGH], rows[:, FLAGS] = hashes[:, 0], hashes[:, 1], LIVE
        rows[:, FIRST], rows[:, COUNT], rows[:, DUE] = first, count, FOREVER_UNITS
        self.table.restore(ids, rows, columns, 0)

    def check(self) -> None:
        """Assert every invariant."""
        self.table.check()
        group, rows = self.all()
        counts = (len(rows), self._events, self._used)
        assert counts[0] == counts[1] <= counts[2], f"rows == events <= used: {counts}"
        empty_events = rows[rows[:, 0] >= rows[:, 1]]
        assert not len(empty_events), f"start < end does not hold: {empty_events}"
        table = self.table.rows
        empty = np.setdiff1d(self.table.living(), group)
        assert not len(empty), f"groups without events: {empty}"
        if self._by_start:
            starts = table[group, START]
            assert (starts == rows[:, 0]).all(), f"group starts {starts} != {rows[:, 0]}"
        self.due.check()
        times, ids = self.due.entries
        known = set(zip(times.tolist(), ids.tolist(), strict=True))
        for node in self.table.living().tolist():
            due = int(table[node, DUE])
            assert due == FOREVER_UNITS or (due, node) in known, f"{node} has no entry at {due}"


def distinct(ids: Ints) -> Ints:
    """Each of these numbers once, ascending; faster than `np.unique`, which hashes."""
    ids = np.sort(ids)
    once: Ints = ids[np.diff(ids, prepend=-1) != 0]
    return once


def first_ends(group: Ints, rows: Ints, *, by: int = 1) -> tuple[Ints, Ints]:
    """The groups of these events, which are sorted by group, and the first end of each.

    Or the first of another number (`by`) of theirs, see `final_by`.
    """
    first = np.flatnonzero(np.diff(group, prepend=-1))
    times = np.minimum.reduceat(final_by(rows, by), first) if len(first) else first
    return group[first], times


def final_by(rows: Ints, by: int) -> Ints:
    """The times that a frontier must pass to make events final: their ends, or their starts.

    Of what has no end it is the end of the stream, also where ends are known.
    """
    times: Ints = np.where(rows[:, 1] == FOREVER_UNITS, FOREVER_UNITS, rows[:, by])
    return times


def is_frozen(end: Ints, frontier: int) -> Mask:
    """Which events with these ends nothing can change any more."""
    frozen: Mask = (end < frontier) | (frontier == FOREVER_UNITS)
    return frozen
