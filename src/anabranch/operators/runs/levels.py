"""The common part of operators that show how often a payload is alive, as runs.

The level of a payload at a time is how many events of it are alive; a second input takes away.
What is shown is the normal form of `min(max(level, 0), most)`: for every number i up to it one
event per maximal run in which it is at least i.

A step looks at the payloads that its elements touch, and at those that are due.  Remembered are
the points at which a level changes, not events: inputs were validated before.

    POINT    at this time the level goes up or down by `weight`; not before the frontier
    OPEN     a run that goes on across the frontier began here
    BASE     what the level before the frontier has beyond the number of such runs

So at most about half of what is held is before the frontier: a payload is due when half of its
points are.  Cost: a sort of the points of the touched payloads; see `operators.normalise`,
whose kernels are used, for payloads with very many live events.
"""

import json
from collections.abc import Mapping
from typing import Final

import numpy as np

from anabranch.batch.batch import FOREVER_UNITS, INSERT, NEVER_UNITS, Batch, Ints
from anabranch.batch.kernel import frozen, kernel
from anabranch.errors import StateError
from anabranch.operators.contract import Operator
from anabranch.operators.runs.normalise_runs import Changes, Runs, changes, nest
from anabranch.operators.state.blocks import Saved
from anabranch.operators.state.codec import StateKind
from anabranch.operators.state.groups import Groups, distinct
from anabranch.operators.trusting import TrustingState, lost_event, written
from anabranch.operators.unary import Changed
from anabranch.operators.unary_judge import order_by

TIME: Final = 0
WEIGHT: Final = 1
ROW: Final = 2

POINT: Final = 0
OPEN: Final = 1
BASE: Final = 2

ANY: Final = int(FOREVER_UNITS)
"""No greatest level."""


class LevelsState(TrustingState):
    """The points of each payload; `signs` are what an event of each input adds."""

    def __init__(
        self, operator: Operator, kind: StateKind, signs: Mapping[str, int], most: int
    ) -> None:
        super().__init__(operator)
        self.kind, self.signs, self.most = kind, signs, most
        self.groups = Groups(
            operator.schema.payload, by_start=False, columns=("time", "weight", "row")
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}(frontiers {self.received}, {self.groups!r})"

    @property
    def live(self) -> int:
        """How many points, and runs that go on, are remembered."""
        return len(self.groups)

    def take(self, batches: Mapping[str, Batch], before: int) -> Changed:
        """The net change of the runs."""
        group, points = self._points(batches)
        touched = distinct(group)
        old_group, old = self.groups.read(touched)
        new_group, new = added(old_group, old, group, points)
        was, now = self._runs(old_group, old), self._runs(new_group, new)
        output = self._written(changes(was, now))
        frontier = min(self.received.values())
        self._keep(touched, new_group, new, now, frontier)
        visits = self._settle_due(frontier) if frontier > before else 0
        return Changed(output, counts={"visits": visits + len(old) + len(new)})

    def _points(self, batches: Mapping[str, Batch]) -> tuple[Ints, Ints]:
        """What the elements of all inputs add to the levels of their payloads."""
        groups, points = [np.empty(0, np.int64)], [np.empty((0, 3), np.int64)]
        for name, batch in batches.items():
            if not len(batch):
                continue
            group = self.groups.find(batch, np.ones(len(batch), np.bool_), self.mark)
            rows, found = moves(batch, self.signs[name])
            groups.append(group[rows])
            points.append(found)
        return np.concatenate(groups), np.concatenate(points)

    def _runs(self, group: Ints, rows: Ints) -> Runs:
        """The runs of these groups, whose rows are sorted by group and time."""
        found, lost = nested(group, rows, self.most)
        if lost >= 0 and min(self.signs.values()) > 0:
            raise self.lost(int(group[lost]), int(rows[lost, TIME]))
        return found

    def lost(self, group: int, time: int) -> StateError:
        """The error for a level below 0."""
        name = self.groups.payload(np.array([group])).to_pylist()[0]
        return lost_event(self.operator.name, f"{name} at {time}")

    def _keep(self, ids: Ints, group: Ints, rows: Ints, runs: Runs, frontier: int) -> None:
        """Remember these rows of these groups, without what the frontier has passed."""
        if frontier == FOREVER_UNITS:
            group, rows = group[:0], rows[:0]
        elif len(rows):
            group, rows = settled(ids, group, rows, runs, frontier)
        self.groups.write(ids, group, rows, due_at(ids, group, rows), self.mark)

    def _settle_due(self, frontier: int) -> int:
        """Forget what is over of the payloads of which half is; how many rows these had."""
        ids = self.groups.pop_due(frontier)
        group, rows = self.groups.read(ids)
        self._keep(ids, group, rows, self._runs(group, rows), frontier)
        return len(rows)

    def _written(self, found: Changes) -> Batch:
        """Adjusts by sync time, then inserts by start; of one time by payload."""
        one, other = found.adjusted, found.inserted
        order = self.groups.order(one.group, one.start, found.old_end)
        one, old_end = one.take(order), found.old_end[order]
        other = other.take(self.groups.order(other.group, other.start, other.end))
        payload = self.groups.payload(np.concatenate([one.group, other.group]))
        adjusts = (one.start, old_end, one.end)
        return written(self.output, adjusts, (other.start, other.end), payload)

    def parts(self, *, since: int | None = None) -> Saved:
        """The state in parts: all of them, or those that changed after a mark."""
        facts: dict[str, int | str] = {"received": json.dumps(self.received)}
        schema = self.operator.schema
        return self.groups.parts(self.kind, schema, since, mark=self.mark, facts=facts)

    def restore(self, parts: Mapping[str, bytes]) -> None:
        """Fill an empty state with what was saved."""
        header = self.groups.restore(self.kind, self.operator.schema, parts)
        self.mark = int(header["mark"])
        received = json.loads(header["received"])
        self.received = {name: int(time) for name, time in received.items()}
        self.restored(header)

    def restored(self, header: Mapping[str, str]) -> None:
        """Find out when what was restored is due."""
        del header
        ids = self.groups.table.living()
        self.groups.schedule(ids, due_at(ids, *self.groups.all()))

    def check(self) -> None:
        """Assert every invariant."""
        self.groups.table.check()
        self.groups.due.check()
        group, rows = self.groups.all()
        assert len(rows) == len(self.groups), f"{len(rows)} rows, counted {len(self.groups)}"
        same = np.diff(group) == 0
        times = rows[:, TIME]
        assert (times[1:] >= times[:-1])[same].all(), f"points are not sorted: {times}"
        assert (rows[:, WEIGHT] != 0).all(), f"points that change nothing: {rows}"
        kinds = np.diff(np.where(rows[:, ROW] == POINT, 1, 0))
        assert (kinds[same] >= 0).all(), f"a point comes before an open run: {rows}"
        if min(self.received.values()) == FOREVER_UNITS:
            assert len(rows) == 0, f"{len(rows)} rows held after stable(FOREVER), expected 0"


def moves(batch: Batch, sign: int) -> tuple[Ints, Ints]:
    """The points at which inserts and adjusts change levels, and the element of each."""
    old = np.where(batch.kind == INSERT, batch.start, batch.old_end)
    points = np.zeros((2 * len(batch), 3), np.int64)
    points[:, TIME] = np.concatenate([old, batch.end])
    points[:, WEIGHT] = np.repeat([sign, -sign], len(batch))
    # A level does not come down at the end of time.
    real = np.flatnonzero(points[:, TIME] < FOREVER_UNITS)
    return real % max(len(batch), 1), points[real]


def nested(group: Ints, rows: Ints, most: int) -> tuple[Runs, int]:
    """The runs of these groups, and a row at which a level is below 0, or -1.

    Rows are sorted by group and time.
    """
    size = int(np.abs(rows[:, WEIGHT]).sum()) + len(rows)
    starts, ends = np.empty((2, size), np.int64), np.empty((2, size), np.int64)
    count, lost = sweep(frozen(group), frozen(rows), most, starts, ends)
    found = np.empty((4, int(count)), np.int64)
    sides = [frozen(side[: int(count)]) for side in (*starts, *ends)]
    total = nest(sides[0], sides[1], sides[2], sides[3], found)
    return Runs(*found[:3, : int(total)].copy()), int(lost)


def added(group: Ints, rows: Ints, more_group: Ints, more: Ints) -> tuple[Ints, Ints]:
    """The rows with more points, sorted; points of one time are one, or none."""
    group, rows = np.concatenate([group, more_group]), np.concatenate([rows, more])
    order = order_by(group, rows[:, TIME])
    group, rows = group[order], rows[order]
    # Runs that go on stay as they are: two of them may have begun together.
    is_point = rows[:, ROW] == POINT
    begins = np.ones(len(rows), np.bool_)
    same = (group[1:] == group[:-1]) & (rows[1:, TIME] == rows[:-1, TIME])
    begins[1:] = ~(same & is_point[1:] & is_point[:-1])
    first = np.flatnonzero(begins)
    if not len(first):
        return group, rows
    weight = np.add.reduceat(rows[:, WEIGHT], first)
    group, rows = group[first], rows[first]
    rows[:, WEIGHT] = weight
    stays = weight != 0
    return group[stays], rows[stays]


def settled(ids: Ints, group: Ints, rows: Ints, runs: Runs, frontier: int) -> tuple[Ints, Ints]:
    """The rows of these groups, with what is before the frontier as OPEN and BASE."""
    past = rows[:, TIME] < frontier
    level = np.zeros(len(ids), np.int64)
    np.add.at(level, np.searchsorted(ids, group[past]), rows[past, WEIGHT])
    crosses = (runs.start < frontier) & (runs.end >= frontier)
    begun_group, begun = runs.group[crosses], runs.start[crosses]
    np.add.at(level, np.searchsorted(ids, begun_group), -1)
    beyond = np.flatnonzero(level)
    base = np.empty((len(beyond), 3), np.int64)
    base[:, TIME], base[:, WEIGHT], base[:, ROW] = NEVER_UNITS, level[beyond], BASE
    opened = np.empty((len(begun), 3), np.int64)
    opened[:, TIME], opened[:, WEIGHT], opened[:, ROW] = begun, 1, OPEN
    group = np.concatenate([ids[beyond], begun_group, group[~past]])
    rows = np.concatenate([base, opened, rows[~past]])
    order = np.lexsort((rows[:, TIME], group))
    return group[order], rows[order]


def due_at(ids: Ints, group: Ints, rows: Ints) -> Ints:
    """When each of these groups is due: when half of its points are before the frontier."""
    due = np.full(len(ids), FOREVER_UNITS, np.int64)
    is_point = rows[:, ROW] == POINT
    group, time = group[is_point], rows[is_point, TIME]
    first = np.searchsorted(group, ids)
    size = np.searchsorted(group, ids, side="right") - first
    held = size > 0
    due[held] = time[(first + (size - 1) // 2)[held]]
    return due


@kernel
def sweep(group: Ints, rows: Ints, most: int, starts: Ints, ends: Ints) -> tuple[int, int]:
    """The starts and ends (group, time) of runs, in order; a row with a level below 0, or -1.

    Rows are sorted by group and time.  As many runs end as start, at the end of time at last.
    """
    begun, ended, lost, i = 0, 0, -1, 0
    while i < group.size:
        own, level, shown = group[i], 0, 0
        while i < group.size and group[i] == own:
            level += rows[i, WEIGHT]
            wanted = min(max(level, 0), most)
            # OPEN and BASE stand for what was before the frontier: a run that is open, and a
            # level that is shown by these already.
            if rows[i, ROW] == OPEN:
                wanted = shown + 1
            elif rows[i, ROW] == BASE:
                wanted = shown
            elif level < 0:
                lost = i
            # One run per level; the last one opened is the first to end.
            while shown < wanted:
                starts[0, begun], starts[1, begun] = own, rows[i, TIME]
                begun += 1
                shown += 1
            while shown > wanted:
                ends[0, ended], ends[1, ended] = own, rows[i, TIME]
                ended += 1
                shown -= 1
            i += 1
        # What is alive at the last point is alive for ever.
        while shown > 0:
            ends[0, ended], ends[1, ended] = own, FOREVER_UNITS
            ended += 1
            shown -= 1
    return begun, lost
