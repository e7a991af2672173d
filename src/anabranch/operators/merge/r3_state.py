"""What merge R3 remembers for one lane.

* Per event that may still change on the output: a row of numbers and one payload (`nodes`).
* What a stable will have to look at (`agenda`): follows from the nodes, and is never written.
* Per replica: its attachment, guarantee, frontier and last seq (`members`).
* Per event that is final but that a replica may still mention: its name (`settled`).
* The output's frontier, and how many conflicts there were.

`mark` counts the changes of the state.  `parts(since=mark)` writes what changed after a mark;
a restored state goes on from the mark that was written with it.

Papers: LMerge IV-D, in2t (Figure 1, left); the space is O(w(p + s)) of Table IV.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from anabranch.batch.batch import FOREVER_UNITS, NEVER_UNITS, Ints, Mask
from anabranch.batch.schema import ElementSchema
from anabranch.operators.merge.members import Members, ReplicaStatus
from anabranch.operators.merge.r3_agenda import Agenda
from anabranch.operators.merge.r3_membership import Alarm, Stretch
from anabranch.operators.merge.r3_nodes import (
    ABSENT,
    BORN,
    CONFLICT,
    ENDS,
    FLAGS,
    HALF_FROZEN,
    LIVE,
    OUT,
    ROW,
    SHOWN,
    Nodes,
)
from anabranch.operators.merge.settled import END, Settled
from anabranch.operators.merge.slots import HIGH, LOW, START
from anabranch.operators.state_parts import Saved


@dataclass(frozen=True, slots=True)
class Work:
    """What the steps cost so far (since the state was made or restored), noise-free.

    `probes` are slots of the hash tables that were looked at, `visits` are events that stables
    looked at, `heap_operations` are pushes to and pops from the lists of what is due.
    """

    elements: int
    probes: int
    visits: int
    heap_operations: int


@dataclass(frozen=True, eq=False)
class LiveEvents:
    """The events that may still change, as columns, in the order in which they came.

    `output_end` and `ends` (one column per replica) are ABSENT where there is none.  `high`
    and `low` are the two words of the payload's hash, as `hash_columns` gives them: low first.
    """

    start: Ints
    high: Ints
    low: Ints
    output_end: Ints
    ends: Ints
    in_conflict: Mask
    payload: pa.Table

    def __len__(self) -> int:
        return len(self.start)


@dataclass(eq=False)
class R3State:
    """The state of one lane; `r3_kernel.step` changes it in place."""

    schema: ElementSchema
    members: Members
    nodes: Nodes
    settled: Settled
    frontier: int = int(NEVER_UNITS)
    conflicts: int = 0
    next_born: int = 0
    mark: int = 0
    elements: int = 0
    stable_lag: int = 0
    agenda: Agenda = field(default_factory=Agenda)

    @classmethod
    def empty(cls, schema: ElementSchema, *, stable_lag: int = 0) -> "R3State":
        """Nobody is attached and nothing has happened; the choice is that of `policy`."""
        plain = replace(schema, has_seq=False, has_replica=False)
        nodes, settled = Nodes(plain.payload), Settled()
        return cls(plain, Members.none(), nodes, settled, stable_lag=stable_lag)

    @property
    def live(self) -> int:
        """How many events may still change."""
        return self.nodes.live

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
        """Times at which the output may be wrong; none, for nobody is promoted here."""
        return tuple(self.members.stretches)

    @property
    def work(self) -> Work:
        """What the steps cost so far."""
        probes = self.nodes.slots.probes + self.settled.probes
        return Work(self.elements, probes, self.agenda.visits, self.agenda.heap_operations)

    @property
    def nbytes(self) -> int:
        """What everything but the payloads takes."""
        return self.nodes.nbytes + self.agenda.nbytes + self.settled.nbytes

    def events(self) -> LiveEvents:
        """The events that may still change; costs a look at each."""
        rows = self.nodes.rows[self.in_order()]
        return LiveEvents(
            rows[:, START],
            rows[:, HIGH],
            rows[:, LOW],
            rows[:, OUT],
            rows[:, ENDS:],
            rows[:, FLAGS] & CONFLICT != 0,
            self.nodes.take(rows[:, ROW]),
        )

    def in_order(self) -> Ints:
        """The numbers of all nodes by rank; those that are not on the output come last."""
        ids = self.nodes.living()
        out, born = self.nodes.rows[ids, OUT], self.nodes.rows[ids, BORN]
        order: Ints = ids[np.lexsort((np.where(out == ABSENT, 0, born), out == ABSENT))]
        return order

    def attach(self, name: str, *, attachment: int = 1, guarantee: int | None = None) -> int:
        """The column of this attachment; a new one starts from nothing (erratum L8)."""
        row = self.members.row_of_attachment(name, attachment)
        if row is not None:
            return row
        if name in self.members.names:
            self.detach(name)
        self.mark += 1
        self.members.add(name, attachment=attachment, guarantee=guarantee)
        self.nodes.add_replica()
        self.agenda.add_replica(self.nodes)
        return len(self.members) - 1

    def detach(self, name: str) -> None:
        """Forget what a replica said; what it brought to the output stays."""
        row = self.members.row_of(name, "detached")
        self.mark += 1
        self.members.remove(row)
        self.nodes.remove_replica(row)
        self.agenda.remove_replica(row)
        self.settled.forget(self.members.slowest, self.mark)

    def to_bytes(self) -> bytes:
        """The whole state, versioned; see `r3_codec`."""
        from anabranch.operators.merge.r3_codec import write_state

        return write_state(self)

    @classmethod
    def from_bytes(cls, data: bytes, schema: ElementSchema) -> "R3State":
        """The state that was written; StateError if it is another kind, version or payload."""
        from anabranch.operators.merge.r3_codec import read_state

        return read_state(data, schema)

    def parts(self, *, since: int | None = None) -> Saved:
        """The state in parts: all of them, or those that changed after a mark."""
        from anabranch.operators.merge.r3_parts import write_parts

        return write_parts(self, since)

    @classmethod
    def from_parts(cls, parts: Mapping[str, bytes], schema: ElementSchema) -> "R3State":
        """The state that was saved last; StateError if a part is missing or not of it."""
        from anabranch.operators.merge.r3_parts import read_parts

        return read_parts(parts, schema)

    def restored(self) -> "R3State":
        """The same, with everything that follows from what was written."""
        rows = self.nodes.rows
        ids = self.nodes.living()
        half_frozen = np.where(rows[ids, START] < self.frontier, HALF_FROZEN, 0)
        rows[ids, FLAGS] = rows[ids, FLAGS] & (LIVE | CONFLICT) | half_frozen
        rows[ids, SHOWN] = rows[ids, OUT]
        self.agenda.rebuild(self.nodes, self.frontier)
        return self

    def check(self) -> None:
        """Assert what must always hold between steps."""
        self.nodes.check()
        assert self.nodes.rows.shape[1] == ENDS + len(self.members), f"entries: {self!r}"
        rows = self.nodes.rows[self.nodes.living()]
        start, out, flags = rows[:, START], rows[:, OUT], rows[:, FLAGS]
        shown, free = out != ABSENT, start >= self.frontier
        assert (out == rows[:, SHOWN]).all(), f"the output was not told: {self!r}"
        alive = (rows[:, ENDS:] > start[:, None]).any(axis=1)
        assert (shown | free).all(), f"an event that can never be on the output: {self!r}"
        assert (shown | ~alive).all(), f"an event was not brought to the output: {self!r}"
        frozen = shown & ((out < self.frontier) | (out <= start))
        assert not frozen.any(), f"a frozen event was kept: {self!r}"
        half_frozen = flags & ~CONFLICT == LIVE | HALF_FROZEN
        assert (half_frozen != free).all(), f"flags do not fit the frontier: {self!r}"
        ranks = rows[shown, BORN]
        assert len(np.unique(ranks)) == len(ranks), f"a rank twice: {self!r}"
        assert (ranks < self.next_born).all(), f"a rank was not given yet: {self!r}"
        assert self.frontier < FOREVER_UNITS or not len(rows), f"the stream has ended: {self!r}"
        joined = self.members.joined(self.frontier)
        reached = self.members.lagging(self.stable_lag)[joined]
        assert (reached <= self.frontier).all(), f"runs behind: {self!r}"
        assert len(set(self.members.names)) == len(self.members), f"a name twice: {self!r}"
        self.agenda.check(self.nodes, self.frontier)
        self._check_settled()

    def _check_settled(self) -> None:
        self.settled.check()
        ends = self.settled.all()[:, END]
        assert (ends < self.frontier).all() or self.frontier == FOREVER_UNITS
        assert (ends >= self.members.slowest).all(), f"remembers too long: {self!r}"
