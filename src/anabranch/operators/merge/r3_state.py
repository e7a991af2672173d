"""What merge R3 remembers for one lane, as columns.

* Per event that may still change on the output: where to find it (`keys`), its end on the
  output (or that it is not there), the end that each replica gives it, and one payload.
* Per replica: its attachment, guarantee, frontier and last seq (`members`).
* Per event that is final but that a replica may still mention: its name (`settled`).
* The output's frontier, and how many conflicts there were.

The payload is stored once, whatever the number of replicas; rows of events that left stay in
the table until more than half of it is unused.

Papers: LMerge IV-D, in2t (Figure 1, left); the space is O(w(p + s)) of Table IV.
"""

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from anabranch.batch.batch import FOREVER_UNITS, NEVER_UNITS, Ints, Mask
from anabranch.batch.buffers import take
from anabranch.batch.schema import ElementSchema
from anabranch.errors import UsageError
from anabranch.operators.merge.r3_index import Keys, resalt
from anabranch.operators.merge.r3_loop import ABSENT
from anabranch.operators.merge.r3_members import Members, ReplicaStatus
from anabranch.operators.merge.r3_settled import Settled

MAX_CHUNKS = 32
"""A payload table of more chunks than this is made one: each step may add a chunk."""


@dataclass(eq=False)
class R3State:
    """The state of one lane; `r3_kernel.step` changes it in place."""

    schema: ElementSchema
    members: Members
    keys: Keys
    output_end: Ints
    ends: Ints
    in_conflict: Mask
    payload: pa.Table
    row: Ints
    settled: Settled
    frontier: int
    conflicts: int

    @classmethod
    def empty(cls, schema: ElementSchema) -> "R3State":
        """Nobody is attached and nothing has happened."""
        plain = replace(schema, has_seq=False, has_replica=False)
        numbers = np.empty(0, np.int64)
        return cls(
            plain,
            Members.none(),
            Keys.none(),
            output_end=numbers,
            ends=np.empty((0, 0), np.int64),
            in_conflict=np.empty(0, np.bool_),
            payload=plain.payload.empty_table(),
            row=numbers,
            settled=Settled.nothing(),
            frontier=int(NEVER_UNITS),
            conflicts=0,
        )

    @property
    def live(self) -> int:
        """How many events may still change."""
        return len(self.keys)

    @property
    def replicas(self) -> tuple[ReplicaStatus, ...]:
        """Who is attached, in order, with frontier and whether its stables count."""
        return self.members.status(self.frontier)

    def attach(self, name: str, *, attachment: int = 1, guarantee: int | None = None) -> int:
        """The column of this attachment; a new one starts from nothing (erratum L8)."""
        row = self.members.find(name)
        if row is not None and self.members.attachment[row] == attachment:
            return row
        if row is not None:
            self.require_attachment(name, attachment)
            self.detach(name)
        self.members.add(name, attachment=attachment, guarantee=guarantee)
        nothing_said = np.full((self.live, 1), ABSENT, np.int64)
        self.ends = np.concatenate([self.ends, nothing_said], axis=1)
        return len(self.members) - 1

    def require_attachment(self, name: str, attachment: int) -> None:
        """Refuse an attachment that was replaced by a greater one."""
        row = self.members.find(name)
        if row is not None and attachment < self.members.attachment[row]:
            message = (
                f"merge: replica '{name}' arrives with attachment {attachment}, but "
                f"{self.members.attachment[row]} has replaced it; give each return of a "
                "replica a greater attachment number"
            )
            raise UsageError(message)

    def detach(self, name: str) -> None:
        """Forget what a replica said; what it brought to the output stays."""
        row = self.members.find(name)
        if row is None:
            message = (
                f"merge: replica '{name}' cannot be detached, attached are "
                f"{self.members.names}; check the name"
            )
            raise UsageError(message)
        self.members.remove(row)
        self.ends = np.delete(self.ends, row, axis=1)
        self.settled.forget(self.members.slowest)

    def to_bytes(self) -> bytes:
        """The whole state, versioned; see `r3_codec`."""
        from anabranch.operators.merge.r3_codec import write_state

        return write_state(self)

    @classmethod
    def from_bytes(cls, data: bytes, schema: ElementSchema) -> "R3State":
        """The state that was written; StateError if it is another kind, version or payload."""
        from anabranch.operators.merge.r3_codec import read_state

        return read_state(data, schema)

    def keep(self, rows: Mask) -> None:
        """Let the other events go."""
        if not rows.all():
            self.keys = self.keys.keep(rows)
            self.output_end, self.ends = self.output_end[rows], self.ends[rows]
            self.in_conflict, self.row = self.in_conflict[rows], self.row[rows]
            resalt(self.keys)
        if self.payload.num_columns and (
            self.payload.num_rows > 2 * self.live
            or self.payload.column(0).num_chunks > MAX_CHUNKS
        ):
            self.payload = take(self.payload, self.row).combine_chunks()
            self.row = np.arange(self.live)

    def check(self) -> None:
        """Assert what must always hold between steps."""
        start, live, shown = self.keys.start, self.live, self.output_end != ABSENT
        assert self.ends.shape == (live, len(self.members)), f"entries: {self!r}"
        assert len(shown) == len(self.in_conflict) == len(self.row) == live, repr(self)
        alive = (self.ends > start[:, None]).any(axis=1)
        free = start >= self.frontier
        assert (shown | free).all(), f"an event that can never be on the output: {self!r}"
        assert (shown | ~alive).all(), f"an event was not brought to the output: {self!r}"
        frozen = shown & ((self.output_end < self.frontier) | (self.output_end <= start))
        assert not frozen.any(), f"a frozen event was kept: {self!r}"
        assert self.frontier < FOREVER_UNITS or live == 0, f"the stream has ended: {self!r}"
        joined = self.members.joined(self.frontier)
        assert (self.members.frontier[joined] <= self.frontier).all(), f"runs behind: {self!r}"
        assert len(set(self.members.names)) == len(self.members), f"a name twice: {self!r}"
        self._check_names()

    def _check_names(self) -> None:
        columns = np.stack([column.view(np.int64) for column in self.keys.columns()], axis=1)
        assert len(np.unique(columns, axis=0)) == self.live, f"an event twice: {self!r}"
        if self.payload.num_columns:
            assert (self.row < self.payload.num_rows).all(), f"a payload is lost: {self!r}"
        self.settled.check()
        assert (self.settled.end < self.frontier).all() or self.frontier == FOREVER_UNITS
        assert (self.settled.end >= self.members.slowest).all(), f"remembers too long: {self!r}"
