"""An index of the events that a stable must visit, so that it visits no others.

When a replica moves the output's frontier from f to t, an event that starts before t changes,
leaves or is in conflict only if one of these holds; each has its own list:

    due        it starts in [f, t): half frozen from now on; or it ends before t on the output,
               and is frozen or lengthened.  One entry per event: its start, then its end; of a
               bag the smallest open end of any replica.
    pending    of that replica: it gives the event another, earlier end than the output, and
               that end is before t (a tombstone: at once); or it contradicts a bag.
    passed     of that replica: the output promised the event before, and the replica has never
               mentioned it.  `missing` counts these per replica, and only if it is not zero is
               there a look at the events that passed the frontier since the last look.

So a visit is paid for by the insert, the adjust or the removal that made the entry; an event
that lives long and is not disputed costs nothing, whatever the number of stables.  Entries are
not removed when they become stale: each visit checks again.  A list of which more than half is
stale is rebuilt.

Papers: none; LMerge IV-D visits all half frozen nodes at every stable.
"""

from typing import Final

import numpy as np

from anabranch.batch.batch import NEVER_UNITS, Ints, Mask
from anabranch.batch.index import START
from anabranch.batch.kernel import frozen, kernel
from anabranch.batch.store import grown
from anabranch.operators.merge.bag_reconcile import schedule_bags
from anabranch.operators.merge.bags import Nodes
from anabranch.operators.merge.layout import BAG, CONFLICT, ENDS, HALF_FROZEN, OUT, SEEN
from anabranch.operators.state.due_queue import DueQueue
from anabranch.operators.state.events import ABSENT, FLAGS, LIVE

# Lists shorter than this are not worth a rebuild.
_SMALL: Final = 1_024


class Agenda:
    """The lists, and how many visits there were."""

    def __init__(self) -> None:
        self.due = DueQueue()
        self.pending: list[DueQueue] = []
        self.missing: Ints = np.zeros(0, np.int64)
        self.visits = 0
        self._passed: Ints = np.empty(0, np.int64)
        self._count = 0
        self._looked: Ints = np.zeros(0, np.int64)
        self._past_operations = 0

    def __repr__(self) -> str:
        return f"Agenda({len(self.due)} due, {list(map(len, self.pending))} pending)"

    @property
    def heap_operations(self) -> int:
        """Pushes and pops since the beginning."""
        now = self.due.operations + sum(heap.operations for heap in self.pending)
        return now + self._past_operations

    @property
    def nbytes(self) -> int:
        """What the lists take."""
        heaps = self.due.nbytes + sum(heap.nbytes for heap in self.pending)
        return heaps + self._passed.nbytes

    def add_replica(self, nodes: Nodes) -> None:
        """A replica that has mentioned nothing: it misses all that the output has promised."""
        ids = nodes.living()
        flags = nodes.rows[ids, FLAGS] & (HALF_FROZEN | CONFLICT)
        self._passed = ids[flags == HALF_FROZEN]
        self._count = len(self._passed)
        self._looked = np.append(np.where(self.missing == 0, self._count, 0), 0)
        self.missing = np.append(self.missing, self._count)
        self.pending.append(DueQueue())

    def remove_replica(self, replica: int) -> None:
        """Forget the lists of this replica."""
        self._past_operations += self.pending.pop(replica).operations
        self.missing = np.delete(self.missing, replica)
        self._looked = np.delete(self._looked, replica)

    def pass_by(self, ids: Ints) -> None:
        """These events are half frozen from now on."""
        count = self._count + len(ids)
        self._passed = grown(self._passed, count)
        self._passed[self._count : count] = ids
        self._count = count

    def unmentioned(self, replica: int) -> Ints:
        """Among these are all half frozen events that this replica has never mentioned."""
        ids = self._passed[self._looked[replica] : self._count]
        return ids if self.missing[replica] else ids[:0]

    def looked(self, replica: int) -> None:
        """What `unmentioned` gave has been dealt with; so has what nobody misses."""
        self._looked[replica] = self._count
        self._looked[self.missing == 0] = self._count
        if (self._looked == self._count).all():
            self._looked[:] = self._count = 0

    def pend(self, replica: Ints, time: Ints, ids: Ints) -> None:
        """These replicas give these events an earlier end than the output."""
        if len(ids):
            for number, heap in enumerate(self.pending):
                mine = replica == number
                heap.push(time[mine], ids[mine])

    def tidy(self, nodes: Nodes, frontier: int) -> None:
        """Rebuild the lists that are mostly stale."""
        limit = 2 * nodes.live + _SMALL
        if len(self.due) > limit:
            _tidy(self.due, nodes, ABSENT, frontier)
        for replica, heap in enumerate(self.pending):
            if len(heap) > limit:
                _tidy(heap, nodes, ENDS + replica, frontier)
        if self._count > limit:
            self._tidy_passed(nodes)

    def schedule_bags(self, nodes: Nodes, ids: Ints, frontier: int) -> None:
        """List bags again that were touched or visited."""
        dues = np.empty((2, len(ids)), np.int64)
        pends = np.empty((3, len(ids) * len(self.pending)), np.int64)
        counts = schedule_bags(frozen(ids), frontier, nodes.rows, nodes.bags, dues, pends)
        self.due.push(dues[0, : counts[0]], dues[1, : counts[0]])
        self.pend(*pends[:, : counts[1]])

    def rebuild(self, nodes: Nodes, frontier: int) -> None:
        """All lists from what is true of the nodes."""
        living = nodes.living()
        is_bag = nodes.rows[living, FLAGS] & BAG != 0
        ids, bags = living[~is_bag], living[is_bag]
        rows = nodes.rows[ids]
        start, out = rows[:, START], rows[:, OUT]
        self.due.rebuild(np.where(start >= frontier, start, out), ids)
        self.pending = [DueQueue() for _ in range(rows.shape[1] - ENDS)]
        disputed = rows[:, FLAGS] & CONFLICT != 0
        for replica, heap in enumerate(self.pending):
            ends = rows[:, ENDS + replica]
            differs = (ends != ABSENT) & (ends < out)
            # A removal that the output could not follow is in conflict for good.
            differs &= ~(disputed & (ends == start))
            heap.rebuild(ends[differs], ids[differs])
        free = nodes.rows[bags, START] >= frontier
        self.due.push(nodes.rows[bags[free], START], bags[free])
        self.schedule_bags(nodes, bags[~free], frontier)
        ids, rows = living, nodes.rows[living]
        promised = rows[:, FLAGS] & (HALF_FROZEN | CONFLICT) == HALF_FROZEN
        self.missing = (rows[promised, ENDS:] == ABSENT).sum(axis=0, dtype=np.int64)
        self._passed = ids[promised]
        self._count = len(self._passed)
        self._looked = np.zeros(len(self.pending), np.int64)

    def check(self, nodes: Nodes, frontier: int, guarantee: Ints) -> None:
        """Assert that nothing which is due is in no list; `guarantee` has one per replica."""
        true = Agenda()
        true.rebuild(nodes, frontier)
        assert (true.missing == self.missing).all(), f"missing {self.missing} != {true.missing}"
        # An end that a replica is not heeded for needs one visit: it is in conflict then.
        ignored = [NEVER_UNITS, *np.minimum(guarantee, frontier).tolist()]
        for mine, other, before in zip(
            (self.due, *self.pending), (true.due, *true.pending), ignored, strict=True
        ):
            mine.check()
            have = set(zip(*(column.tolist() for column in mine.entries), strict=True))
            must = set(zip(*(column.tolist() for column in other.entries), strict=True))
            lacks = {
                (time, node)
                for time, node in _lacking(must, have, nodes)
                if time >= before or not nodes.rows[node, FLAGS] & CONFLICT
            }
            assert not lacks, f"entries that are due and not on the agenda: {lacks}"
        for replica in range(len(self.pending)):
            ids = true._passed[nodes.rows[true._passed, ENDS + replica] == ABSENT]
            found = self.unmentioned(replica)
            assert np.isin(ids, found).all(), f"unmentioned of {replica}: {found} lacks {ids}"

    def _tidy_passed(self, nodes: Nodes) -> None:
        ids = self._passed[: self._count]
        keep = np.zeros(len(ids), np.bool_)
        keep_last(frozen(ids), nodes.rows, keep)
        before = np.append(0, np.cumsum(keep))
        self._looked = before[self._looked]
        self._passed, self._count = ids[keep], int(before[-1])


def _lacking(
    must: set[tuple[int, int]], have: set[tuple[int, int]], nodes: Nodes
) -> set[tuple[int, int]]:
    """The entries that ought to be listed; a bag may also be listed for an earlier time."""
    first: dict[int, int] = {}
    for time, node in have:
        first[node] = min(time, first.get(node, time))
    return {
        (time, node)
        for time, node in must - have
        if not nodes.rows[node, FLAGS] & BAG or first.get(node, time + 1) > time
    }


def _tidy(heap: DueQueue, nodes: Nodes, column: int, frontier: int) -> None:
    times, ids = heap.entries
    keep = np.empty(len(ids), np.bool_)
    find_true(frozen(times), frozen(ids), frozen(nodes.rows), column, frontier, keep)
    heap.rebuild(times[keep], ids[keep])


@kernel
def keep_last(ids: Ints, rows: Ints, keep: Mask) -> None:
    """Which nodes are live and half frozen; of those that are here twice, the last one.

    A number that was given again is here twice: the last time is the true one.
    """
    for k in range(ids.size):
        # From the end, since the last entry of a number is the true one.
        at = ids.size - 1 - k
        flags = rows[ids[at], FLAGS]
        if flags & (LIVE | HALF_FROZEN | SEEN) == LIVE | HALF_FROZEN:
            keep[at] = True
            rows[ids[at], FLAGS] = flags | SEEN
    # The flag is for this look only.
    for k in range(ids.size):
        rows[ids[k], FLAGS] &= ~SEEN


@kernel
def find_true(
    times: Ints, ids: Ints, rows: Ints, column: int, frontier: int, keep: Mask
) -> None:
    """Which entries of `due` (column ABSENT), or of the pending list of a column, are true."""
    for k in range(ids.size):
        node = ids[k]
        out = rows[node, OUT]
        # What `due` promises: the start until it has passed, then the end on the output.
        if column == ABSENT:
            start = rows[node, START]
            is_true = times[k] == (start if start >= frontier else out)
        else:
            is_true = times[k] == rows[node, column] and times[k] < out
        flags = rows[node, FLAGS]
        # Bags may be listed early; a visit lists them again.
        keep[k] = flags & LIVE != 0 and (is_true or flags & BAG != 0)
