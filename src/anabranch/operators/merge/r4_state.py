"""What merge R4 remembers for one lane, as columns.

* Per identity that may still change on the output: its payload once, and a sorted list of ends
  for the output and for each replica (`nodes`).
* Per replica: its attachment, guarantee, frontier and last seq (`members`).
* Per identity that is final but that a replica may still mention: its name (`settled`).
* The output's frontier, and how many conflicts there were.

`mark` counts the changes of the state.  `parts(since=mark)` writes what changed after a mark;
a restored state goes on from the mark that was written with it.

Papers: LMerge IV-E, in3t (Figure 1, right); the space is O(w(p + s d)) of Table IV.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from anabranch.batch.batch import FOREVER_UNITS, NEVER_UNITS, Ints
from anabranch.batch.schema import ElementSchema
from anabranch.operators.merge.members import Members, ReplicaStatus
from anabranch.operators.merge.r3_membership import Alarm, Stretch
from anabranch.operators.merge.r4_lists import OUTPUT, check_lists, count_ends, write_ends
from anabranch.operators.merge.r4_nodes import DUE, Nodes
from anabranch.operators.merge.settled import END, Settled
from anabranch.operators.merge.slots import START
from anabranch.operators.state_parts import Saved


@dataclass(eq=False)
class R4State:
    """The state of one lane; `r4_kernel.step` changes it in place."""

    schema: ElementSchema
    members: Members
    nodes: Nodes
    settled: Settled
    frontier: int
    conflicts: int
    shrink_only: bool
    stable_lag: int = 0
    promote: bool = False
    mark: int = 0

    @classmethod
    def empty(
        cls,
        schema: ElementSchema,
        *,
        shrink_only: bool = False,
        stable_lag: int = 0,
        promote: bool = False,
    ) -> "R4State":
        """Nobody is attached and nothing has happened; the choices are those of `policy`."""
        plain = replace(schema, has_seq=False, has_replica=False)
        nodes = Nodes(plain.payload)
        never = int(NEVER_UNITS)
        members, settled = Members.none(), Settled()
        choices = (shrink_only, stable_lag, promote)
        return cls(plain, members, nodes, settled, never, 0, *choices)

    @property
    def live(self) -> int:
        """How many identities may still change."""
        return len(self.nodes)

    @property
    def probes(self) -> int:
        """How many slots of the hash tables were looked at so far."""
        return self.nodes.slots.probes + self.settled.probes

    @property
    def replicas(self) -> tuple[ReplicaStatus, ...]:
        """Who is attached, in order, with frontier and whether its stables count."""
        return self.members.status(self.frontier)

    @property
    def alarm(self) -> Alarm | None:
        """Set while replicas are attached and none of them can move the output (D5)."""
        return self.members.alarm(self.frontier)

    @property
    def stretches(self) -> tuple[Stretch, ...]:
        """Times at which the output may be wrong, because a replica had to be promoted."""
        return tuple(self.members.stretches)

    def attach(self, name: str, *, attachment: int = 1, guarantee: int | None = None) -> int:
        """The number of this attachment; a new one starts from nothing (erratum L8)."""
        row = self.members.row_of_attachment(name, attachment)
        if row is not None:
            return row
        if name in self.members.names:
            self._remove(name)
        self.mark += 1
        self.members.add(name, attachment=attachment, guarantee=guarantee)
        self.nodes.add_column()
        if self.promote:
            self.members.succeed(self.frontier)
        return len(self.members) - 1

    def detach(self, name: str) -> None:
        """Forget what a replica said; what it brought to the output stays.

        If another one is promoted then, its stable that waits counts with the next step.
        """
        self._remove(name)
        self.settled.forget(self.members.slowest, self.mark)
        if self.promote:
            self.members.succeed(self.frontier)

    def _remove(self, name: str) -> None:
        row = self.members.row_of(name, "detached")
        self.mark += 1
        self.members.remove(row)
        self.nodes.remove_column(row + 1)

    def ends(self, ids: Ints) -> Ints:
        """The rows of all ends of these nodes.

        A row is (position among the nodes, column, end, count); a bag that was removed has one
        row with the count 0.
        """
        starts = self.nodes.facts[ids, START]
        counts = np.empty((len(ids), self.nodes.columns), np.int64)
        count_ends(self.nodes.lists, starts, ids, counts)
        rows = np.empty((int(counts.sum()), 4), np.int64)
        write_ends(self.nodes.lists, starts, ids, rows)
        return rows

    def to_bytes(self) -> bytes:
        """The whole state, versioned; see `r4_codec`."""
        from anabranch.operators.merge.r4_codec import write_state

        return write_state(self)

    @classmethod
    def from_bytes(cls, data: bytes, schema: ElementSchema) -> "R4State":
        """The state that was written; StateError if it is another kind, version or payload."""
        from anabranch.operators.merge.r4_codec import read_state

        return read_state(data, schema)

    def parts(self, *, since: int | None = None) -> Saved:
        """The state in parts: all of them, or those that changed after a mark."""
        from anabranch.operators.merge.r4_parts import write_parts

        return write_parts(self, since)

    @classmethod
    def from_parts(cls, parts: Mapping[str, bytes], schema: ElementSchema) -> "R4State":
        """The state that was saved last; StateError if a part is missing or not of it."""
        from anabranch.operators.merge.r4_parts import read_parts

        return read_parts(parts, schema)

    def check(self) -> None:
        """Assert what must always hold between steps."""
        self.nodes.check()
        self.settled.check()
        ids = self.nodes.ids()
        rows = self.ends(ids)
        start = self.nodes.facts[ids, START]
        check_lists(self.nodes.lists, start, ids)
        assert self.nodes.columns == len(self.members) + 1, repr(self)
        self._check_output(start, rows)
        self._check_watch(ids, start, rows)
        joined = self.members.trusted(self.frontier)
        behind = self.members.lagging(self.stable_lag)[joined] <= self.frontier
        assert behind.all(), f"runs behind: {self!r}"
        assert len(set(self.members.names)) == len(self.members), f"a name twice: {self!r}"
        final = self.settled.all()[:, END]
        assert (final < self.frontier).all() or self.frontier == FOREVER_UNITS, repr(self)
        assert (final >= self.members.slowest).all(), f"remembers too long: {self!r}"

    def _check_output(self, start: Ints, rows: Ints) -> None:
        counts = np.zeros((len(start), self.nodes.columns), np.int64)
        np.add.at(counts, (rows[:, 0], rows[:, 1]), rows[:, 3])
        free, shown = start >= self.frontier, counts[:, OUTPUT]
        assert (shown[~free] > 0).all(), f"nothing can ever be on the output: {self!r}"
        most = counts[:, 1:].max(axis=1, initial=0)
        assert (shown >= most)[free].all(), f"an event was not brought to the output: {self!r}"
        last = np.full(len(start), NEVER_UNITS, np.int64)
        is_output = rows[:, 1] == OUTPUT
        np.maximum.at(last, rows[is_output, 0], rows[is_output, 2])
        assert (last >= self.frontier)[~free].all(), f"a frozen identity was kept: {self!r}"
        assert self.frontier < FOREVER_UNITS or not len(start), f"has ended: {self!r}"

    def _check_watch(self, ids: Ints, start: Ints, rows: Ints) -> None:
        """Whatever a stable may have to look at is on the heap, or waits for its replica."""
        due, node = self.nodes.facts[ids, DUE], rows[:, 0]
        free = start >= self.frontier
        assert (due == start)[free].all(), f"will be late: {self!r}"
        ahead = (rows[:, 2] >= self.frontier) & (rows[:, 3] > 0) & ~free[node]
        assert (due[node] <= rows[:, 2])[ahead].all(), f"will be late: {self!r}"
        behind = (rows[:, 2] < self.frontier) & (rows[:, 3] > 0) & ~free[node]
        shown = {(n, e): c for n, col, e, c in rows[behind].tolist() if col == OUTPUT}
        for n, column, end, count in rows[behind].tolist():
            waits = column == OUTPUT or self.nodes.waits[ids[n], column]
            assert waits or count <= shown.get((n, end), 0), f"is not awaited: {self!r}"
