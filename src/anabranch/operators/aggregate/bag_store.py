"""The events of the input, for aggregates that need values: who is alive at a time, in a group.

An event is a row (group, start, end, value, nulls, codes, how many); rows are sorted by these
numbers and lie in chunks.  A value is a row of a table of its own, which holds each distinct
value once.  The minimum and the maximum of numbers and times need no such row: their values are
codes (`aggregate.codes`), and `nulls` has a bit for each code that stands for null.

Who is alive at a time is found by the greatest end of each chunk, of 16 and of 256 neighbours,
and the least code likewise: so a search costs the chunks that hold an event which is alive (and
may have the least code), however many others there are.

Events that end before the frontier are forgotten when they are more than half of all.
"""

from collections.abc import Sequence
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from anabranch.batch.batch import ADJUST, FOREVER_UNITS, INSERT, NEVER_UNITS, Batch, Ints, Mask
from anabranch.batch.buffers import one_array
from anabranch.batch.kernel import kernel, part
from anabranch.batch.schema import ElementSchema, TimeType
from anabranch.operators.aggregate import bags
from anabranch.operators.aggregate.chunks import CHUNK, Chunks
from anabranch.operators.aggregate.codes import NO_CODE, encode, has_code, to_array
from anabranch.operators.aggregate.functions import Aggregate
from anabranch.operators.aggregate.points import GROUP
from anabranch.operators.state.events import OWN, Events
from anabranch.operators.state.groups import distinct
from anabranch.operators.state.pieces import find_piece, pieces
from anabranch.operators.trusting import lost_event

_START: Final = 1
_LAST: Final = 2
"""The end, inverted: so that the greatest end of a chunk is the least number."""
_VALUE: Final = 3
_NULLS: Final = 4
_CODES: Final = 5
REFS: Final = OWN
"""How many events have a value."""

Places: TypeAlias = tuple[Ints, ...]
"""Rows, order and sizes of chunks, their least keys alone and by 16 and 256, and the points to
find: group, inverted time, first and last chunk."""

_NEAR: Final = 16
_FAR: Final = 256
# Fewer events than this are never looked through for those that are passed.
_SMALL: Final = 1_024


class BagStore:
    """The events of one lane, with the columns of some functions."""

    def __init__(self, functions: Sequence[Aggregate], payload: pa.Schema, name: str) -> None:
        self.functions = tuple(functions)
        self.name = name
        self.payload = payload
        self.coded = tuple(one for one in functions if self._has_code(one))
        others = [one for one in functions if one not in self.coded]
        names = dict.fromkeys(str(one.column) for one in others)
        schema = pa.schema([payload.field(column) for column in names])
        self.schema = ElementSchema(TimeType.BIGINT, schema)
        self.values = Events(schema, width=OWN + 1)
        self.keys = _CODES + len(self.coded)
        least = (_LAST, *range(_CODES, self.keys))
        self.events = Chunks(self.keys, self.keys + 1, least=least)
        self._kept = 0

    def _has_code(self, one: Aggregate) -> bool:
        return one.kind in ("min", "max") and has_code(self.payload.field(one.column).type)

    @classmethod
    def of(
        cls, functions: Sequence[Aggregate], payload: pa.Schema, name: str
    ) -> "BagStore | None":
        """A store, if there are such functions; `name` is the step."""
        return cls(functions, payload, name) if functions else None

    def __len__(self) -> int:
        return len(self.events)

    def apply(self, batch: Batch, group: Ints, mark: int) -> None:
        """Take inserts and adjusts of these groups."""
        value = self._find(batch, mark)
        is_adjust = batch.kind == ADJUST
        stays = batch.end > batch.start
        rows = np.zeros((len(batch), self.keys + 1), np.int64)
        rows[:, GROUP], rows[:, _VALUE], rows[:, -1] = group, value, 1
        rows[:, _START], rows[:, _LAST] = batch.start, ~batch.end
        for i, one in enumerate(self.coded):
            column = one_array(batch.payload.column(str(one.column)))
            rows[:, _CODES + i], is_null = encode(column, greatest=one.kind == "max")
            rows[:, _NULLS] |= is_null.astype(np.int64) << i
        old = rows[is_adjust]
        old[:, _LAST], old[:, -1] = ~batch.old_end[is_adjust], -1
        rows = np.concatenate([rows[stays], old])
        order = np.lexsort(rows[:, :-1].T[::-1])
        some = rows[order]
        some = some[: int(add_up(some))]
        self._merge(some, mark)
        self._count(some[:, _VALUE], some[:, -1], distinct(value), mark)

    def _find(self, batch: Batch, mark: int) -> Ints:
        """The number of the value of each element; 0 if codes are enough."""
        if not len(self.schema.payload):
            return np.zeros(len(batch), np.int64)
        found = [np.empty(0, np.int64)]
        values = batch.payload.select(self.schema.payload.names)
        times = batch.start, batch.end, batch.old_end
        narrow = Batch(self.schema, batch.kind, *times, values)
        for piece in pieces([narrow]) if len(batch) else ():
            count = len(piece.start)
            start, rows = np.zeros(count, np.int64), np.arange(count)
            is_new = piece.kind == INSERT
            asked, made = find_piece(self.values, piece, start, is_new, rows, mark)
            self.values.rows[made, REFS] = 0
            found.append(asked.id)
        value = np.concatenate(found)
        lost = np.flatnonzero(value < 0)
        if len(lost):
            what = f"{values.slice(int(lost[0]), 1).to_pylist()[0]} at {batch.start[lost[0]]}"
            raise lost_event(self.name, what)
        return value

    def _merge(self, some: Ints, mark: int) -> None:
        """Add these counts to those of the events."""
        places = self.events.places(some)
        wanted = np.zeros(len(self.events.order), np.bool_)
        if len(wanted):
            wanted[places] = True
        runs = self.events.runs(wanted)
        old = self.events.read(runs)
        some_runs = np.searchsorted(places, np.append(runs.first, len(wanted) + 1))
        new = np.empty((len(old) + len(some), self.keys + 1), np.int64)
        offsets = np.zeros(len(runs) + 1, np.int64)
        wrong = int(merge(old, runs.offsets, some, some_runs, new, offsets))
        if wrong >= 0:
            raise lost_event(self.name, f"an event from {some[wrong, _START]}")
        self.events.write(runs, new[: int(offsets[-1])], offsets, mark)

    def _count(self, value: Ints, count: Ints, touched: Ints, mark: int) -> None:
        if not len(self.schema.payload):
            return
        np.add.at(self.values.rows[:, REFS], value, count)
        self.values.changed[touched >> 10] = mark
        self.values.remove(touched[self.values.rows[touched, REFS] == 0], mark)

    def results(self, group: Ints, time: Ints) -> list[pa.Array]:
        """The result of each function for the events that are alive at these points."""
        count, store = len(group), self._search(group, time)
        coded = iter(self._extremes(store, count))
        if len(self.coded) == len(self.functions):
            return list(coded)
        bag, value = self._alive(store)
        payload = self.values.payload(value)
        return [
            next(coded)
            if one in self.coded
            else bags.results(one, bag, one_array(payload.column(str(one.column))), count)
            for one in self.functions
        ]

    def _search(self, group: Ints, time: Ints) -> tuple[Ints, ...]:
        """What the kernels search in, and the points with their first and last chunks."""
        events = self.events
        asked = np.full((len(group), self.keys), NEVER_UNITS, np.int64)
        asked[:, GROUP] = group
        first = events.places(asked)
        asked[:, _START], asked[:, _LAST:] = time, FOREVER_UNITS
        last = events.places(asked)
        least = events.least[events.order]
        near, far = _least(least, _NEAR), _least(least, _FAR)
        rows, order, size = events.rows, events.order, events.size
        return rows, order, size, least, near, far, group, ~time, first, last

    def _alive(self, store: tuple[Ints, ...]) -> tuple[Ints, Ints]:
        """Of each event that is alive at one of the points: which one, and its value."""
        none = np.empty(0, np.int64)
        bag, value = np.empty((2, int(find_alive(store, none, none))), np.int64)
        find_alive(store, bag, value)
        return bag, value

    def _extremes(self, store: tuple[Ints, ...], count: int) -> list[pa.Array]:
        """The results of the functions with codes."""
        if not self.coded:
            return []
        width = len(self.coded)
        code = np.full((count, width), NO_CODE, np.int64)
        has = np.zeros((count, width), np.bool_)
        find_least(store, code, has)
        return [
            to_array(
                code[:, i],
                has[:, i],
                self.payload.field(one.column).type,
                greatest=one.kind == "max",
            )
            for i, one in enumerate(self.coded)
        ]

    def forget(self, frontier: int, mark: int) -> None:
        """Drop the events that end before a frontier, if there may be many."""
        if frontier < FOREVER_UNITS and len(self.events) <= 2 * self._kept + _SMALL:
            return
        rows = self.events.all()
        stays = (~rows[:, _LAST] >= frontier) & (frontier < FOREVER_UNITS)
        gone = rows[~stays]
        self.events.clear(mark)
        self.events.insert_all(rows[stays], mark)
        self._count(gone[:, _VALUE], -gone[:, -1], distinct(gone[:, _VALUE]), mark)
        self._kept = len(self.events)

    def restored(self) -> None:
        """Derive what follows from the rows: how often each value is used."""
        rows = self.events.all()
        self._kept = len(rows)
        if len(self.schema.payload):
            self.values.rows[: self.values.used, REFS] = 0
            np.add.at(self.values.rows[:, REFS], rows[:, _VALUE], rows[:, -1])

    def check(self) -> None:
        """Assert every invariant."""
        self.values.check()
        self.events.check()
        rows, ids = self.events.all(), self.values.living()
        assert (rows[:, _START] < ~rows[:, _LAST]).all(), f"start < end does not hold: {rows}"
        assert (rows[:, -1] > 0).all(), f"events that are not there: {rows}"
        if not len(self.schema.payload):
            return
        count = np.zeros(self.values.used, np.int64)
        np.add.at(count, rows[:, _VALUE], rows[:, -1])
        noted = self.values.rows[ids, REFS]
        assert (count[ids] == noted).all(), f"uses of values {count[ids]}, noted {noted}"
        assert (noted > 0).all(), f"values without events: {ids[noted <= 0]}"


def _least(numbers: Ints, group: int) -> Ints:
    """The least of every `group` neighbours."""
    if not len(numbers):
        return numbers
    found: Ints = np.minimum.reduceat(numbers, np.arange(0, len(numbers), group), axis=0)
    return found


@part
def ordered(one: Ints, other: Ints, keys: int) -> int:
    """-1, 0 or 1, as one key is before, equal to or behind another."""
    for k in range(keys):
        if one[k] != other[k]:
            return -1 if one[k] < other[k] else 1
    return 0


@kernel
def add_up(rows: Ints) -> int:
    """Add the counts of equal sorted rows, in place; those that sum up to 0 are dropped."""
    written, k, keys = 0, 0, rows.shape[1] - 1
    while k < rows.shape[0]:
        total, end = np.int64(0), k
        while end < rows.shape[0] and ordered(rows[end], rows[k], keys) == 0:
            total += rows[end, keys]
            end += 1
        if total != 0:
            for column in range(keys):
                rows[written, column] = rows[k, column]
            rows[written, keys] = total
            written += 1
        k = end
    return written


@kernel
def merge(
    old: Ints, old_runs: Ints, some: Ints, some_runs: Ints, new: Ints, new_runs: Ints
) -> int:
    """Rows with the counts of `some` added, run by run; the first that is below 0, or -1."""
    written, keys = 0, old.shape[1] - 1
    for run in range(old_runs.size - 1):
        i, last_i = old_runs[run], old_runs[run + 1]
        j, last_j = some_runs[run], some_runs[run + 1]
        while i < last_i or j < last_j:
            if i == last_i:
                order = 1
            elif j == last_j:
                order = -1
            else:
                order = ordered(old[i], some[j], keys)
            count = np.int64(0)
            for column in range(keys):
                new[written, column] = old[i, column] if order <= 0 else some[j, column]
            if order <= 0:
                count += old[i, keys]
                i += 1
            if order >= 0:
                count += some[j, keys]
                # More taken away than was there: an adjust without its event.
                if count < 0:
                    return int(j)
                j += 1
            # What adds up to nothing has no row.
            if count > 0:
                new[written, keys] = count
                written += 1
        new_runs[run + 1] = written
    return -1


@kernel
def find_alive(store: Places, bag: Ints, value: Ints) -> int:
    """Lists (if there is room) the values of the events alive at each point; how many."""
    rows, order, size, least, near, far, groups, times, first, last = store
    count, many = 0, rows.shape[1] - 1
    for k in range(groups.size):
        # `times` and ends are inverted: an event is alive if its end is the lesser number.
        group, time, place = groups[k], times[k], first[k]
        while place <= last[k] and place < order.size:
            # Whole stretches of chunks in which all events are over are skipped by their least
            # ends.
            if place % _FAR == 0 and far[place // _FAR, 0] >= time:
                place += _FAR
                continue
            if place % _NEAR == 0 and near[place // _NEAR, 0] >= time:
                place += _NEAR
                continue
            if least[place, 0] < time:
                begin = order[place] * CHUNK
                for row in range(begin, begin + size[order[place]]):
                    is_ours = rows[row, GROUP] == group and rows[row, _START] <= ~time
                    if is_ours and rows[row, _LAST] < time:
                        for _ in range(rows[row, many]):
                            if bag.size:
                                bag[count], value[count] = k, rows[row, _VALUE]
                            count += 1
            place += 1
    return count


@part
def may_help(least: Ints, at: int, time: int, code: Ints, has: Mask) -> bool:
    """Whether events that are alive may have a lesser code than the ones so far."""
    if least[at, 0] >= time:
        return False
    helps = False
    for k in range(code.size):
        helps = helps or not has[k] or least[at, 1 + k] < code[k]
    return helps


@kernel
def find_least(store: Places, code: Ints, has: Mask) -> None:
    """The least codes of the events alive at each point; `has` where there is one."""
    rows, order, size, least, near, far, groups, times, first, last = store
    for k in range(groups.size):
        group, time, place = groups[k], times[k], first[k]
        while place <= last[k] and place < order.size:
            # A stretch is skipped if nothing in it is alive, or nothing is less than what was
            # found.
            if place % _FAR == 0 and not may_help(far, place // _FAR, time, code[k], has[k]):
                place += _FAR
                continue
            if place % _NEAR == 0 and not may_help(near, place // _NEAR, time, code[k], has[k]):
                place += _NEAR
                continue
            if may_help(least, place, time, code[k], has[k]):
                begin = order[place] * CHUNK
                for row in range(begin, begin + size[order[place]]):
                    is_ours = rows[row, GROUP] == group and rows[row, _START] <= ~time
                    if is_ours and rows[row, _LAST] < time:
                        for i in range(code.shape[1]):
                            if (rows[row, _NULLS] >> i) & 1 == 0:
                                has[k, i] = True
                                code[k, i] = min(code[k, i], rows[row, _CODES + i])
            place += 1
