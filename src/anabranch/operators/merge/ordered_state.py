"""What the merges R0, R1 and R2 remember for one lane, as columns.

* The output's frontier and its current start, and the events at that start (`group`).
* Per replica: its attachment, guarantee, frontier, last seq and last start.
* The inserts of joining replicas (`held`).

Nothing is remembered of what is behind the current start; the events of the current start stay
until there is a greater one.  So the size does not depend on the length of the streams: it is
that of one start, and of what joining replicas are ahead.

Papers: LMerge IV-F, Table IV: O(1), O(s) and O(g p); counting events makes R1 O(g (p + s)).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import pyarrow as pa

from anabranch.batch.batch import FOREVER_UNITS, NEVER_UNITS, Batch, Ints
from anabranch.batch.buffers import take
from anabranch.batch.events import inserts
from anabranch.batch.schema import ElementSchema
from anabranch.errors import UsageError
from anabranch.model.properties import MergeCase
from anabranch.operators.contract import Arrival, Reason, Resolved, StepResult
from anabranch.operators.merge.lane import MergeLane
from anabranch.operators.merge.members import Members
from anabranch.operators.merge.ordered_group import Bag, Latest
from anabranch.operators.merge.policy import DEFAULT, Policy
from anabranch.operators.state.blocks import Blocks, Saved

CASES: Final = (MergeCase.R0, MergeCase.R1, MergeCase.R2)


MAX_CHUNKS: Final = 32
"""A payload table of more chunks than this is made one: each step may add a chunk."""


@dataclass(eq=False)
class Held:
    """The inserts of joining replicas, held back until it is known what becomes of them.

    One row per insert, those of a replica in their order, numbered for ever; `replica` is a row
    of the members, `place` one of `payload`.  Rows that left stay in the payload table until
    more than half of it is unused.  Held, not dropped, since the others may fail right after
    (erratum L9).
    """

    replica: Ints
    start: Ints
    end: Ints
    place: Ints
    number: Ints
    payload: pa.Table

    @classmethod
    def nothing(cls, schema: pa.Schema) -> "Held":
        """Nobody is joining."""
        numbers = np.empty(0, np.int64)
        return cls(numbers, numbers, numbers, numbers, numbers, schema.empty_table())

    def __len__(self) -> int:
        return len(self.start)

    def keep(self, rows: Ints) -> "Held":
        """Only these, with the payloads where they are."""
        return Held(
            self.replica[rows],
            self.start[rows],
            self.end[rows],
            self.place[rows],
            self.number[rows],
            self.payload,
        )

    def compact(self) -> "Held":
        """The same, with no more payloads than twice the rows, and in few chunks."""
        if not self.payload.num_columns:
            return self
        chunks = self.payload.column(0).num_chunks
        if self.payload.num_rows <= 2 * len(self) and chunks <= MAX_CHUNKS:
            return self
        payload = take(self.payload, self.place).combine_chunks()
        places = np.arange(len(self))
        return Held(self.replica, self.start, self.end, places, self.number, payload)

    def detach(self, replica: int) -> "Held":
        """Without the rows of this replica; those behind it move up."""
        kept = self.keep(np.flatnonzero(self.replica != replica))
        kept.replica = kept.replica - (kept.replica > replica)
        return kept.compact()

    def batch(self, schema: ElementSchema, rows: Ints) -> Batch:
        """These inserts as a batch."""
        payload = take(self.payload, self.place[rows])
        return inserts(schema, self.start[rows], self.end[rows], payload)

    def check(self, replicas: int) -> None:
        """Assert what must always hold, with this many replicas."""
        columns = (self.replica, self.start, self.end, self.place, self.number)
        sizes = [len(column) for column in columns]
        assert len(set(sizes)) == 1, f"lengths of columns differ: {sizes}"
        assert (np.diff(self.number) > 0).all(), f"numbers do not rise: {self.number}"
        assert (self.end > self.start).all(), f"ends {self.end} <= starts {self.start}"
        assert (self.replica < replicas).all(), f"rows {self.replica} >= {replicas} replicas"
        if self.payload.num_columns:
            stored = self.payload.num_rows
            assert (self.place < stored).all(), f"places {self.place} >= {stored} payloads"
        order = np.argsort(self.replica, kind="stable")
        start, same = self.start[order], np.diff(self.replica[order]) == 0
        assert (np.diff(start)[same] >= 0).all(), f"held starts are not sorted: {start}"


@dataclass(eq=False)
class OrderedState(MergeLane):
    """The state of one lane; `step` changes it in place.

    `counts` are the operations since the state was made or read: `visits` (elements looked at;
    one that was held is looked at twice), `probes` (payloads looked up by their hash) and
    `compares` (payloads compared by value).
    """

    case: MergeCase
    schema: ElementSchema
    policy: Policy
    members: Members
    last_start: Ints
    group: Latest | Bag
    held: Held
    frontier: int = int(NEVER_UNITS)
    current: int = int(NEVER_UNITS)
    conflicts: int = 0
    visits: int = 0
    mark: int = 0
    next_held: int = 0
    abandoned: list[Resolved] = field(default_factory=list)
    blocks: Blocks = field(default_factory=Blocks.none)

    @classmethod
    def empty(
        cls, case: MergeCase, schema: ElementSchema, policy: Policy = DEFAULT
    ) -> "OrderedState":
        """Nobody is attached and nothing has happened."""
        plain = replace(schema, has_seq=False, has_replica=False)
        if case not in CASES:
            message = (
                f"merge: case {case.name} does not run here, only R0, R1 and R2 do; "
                "use its own state"
            )
            raise UsageError(message)
        if case is MergeCase.R0:
            group: Latest | Bag = Latest.nothing(plain.payload)
        else:
            group = Bag(plain.payload, keyed=case is MergeCase.R2)
        held = Held.nothing(plain.payload)
        none = np.empty(0, np.int64)
        return cls(case, plain, policy, Members.none(), none, group, held)

    @property
    def counts(self) -> dict[str, int]:
        """How many operations of each kind there were."""
        group = self.group
        return {"visits": self.visits, "probes": group.probes, "compares": group.compares}

    @property
    def live(self) -> int:
        """As many as are pending: nothing else of an ordered stream may change."""
        return len(self.held)

    @property
    def pending(self) -> int:
        """How many inserts are held back."""
        return len(self.held)

    def _take(self, arrivals: Sequence[Arrival]) -> StepResult:
        from anabranch.operators.merge.ordered_kernel import take

        return take(self, arrivals)

    def _follow_policy(self, before: Policy) -> None:
        """Nothing that is remembered depends on the policy."""

    def _add_column(self) -> None:
        self.mark += 1
        self.last_start = np.append(self.last_start, NEVER_UNITS)
        self.group.attach()

    def _drop_column(self, row: int) -> None:
        self.mark += 1
        rows = np.flatnonzero(self.held.replica == row)
        if len(rows):
            reasons = np.full(len(rows), Reason.ABANDONED.code, np.int8)
            batch = self.held.batch(self.schema, rows)
            self.abandoned.append(Resolved(self.members.names[row], batch, reasons))
            self.blocks.remove(self.held.number[rows], self.mark)
        self.held = self.held.detach(row)
        self.group.detach(row)
        self.members.remove(row)
        self.last_start = np.delete(self.last_start, row)

    def promote(self, name: str) -> None:
        """Believe a joining replica from now on; what is before its guarantee may be missing.

        What it has waiting comes out with the next step.
        """
        self.members.promote(self.members.row_of(name, "promoted"), self.frontier)
        self.mark += 1

    def number(self, count: int) -> Ints:
        """Numbers for this many inserts that begin to wait now."""
        numbers = self.next_held + np.arange(count)
        self.next_held += count
        self.blocks.add(numbers, self.mark)
        return numbers

    def parts(self, *, since: int | None = None) -> Saved:
        """The state in parts: all of them, or those that changed after a mark."""
        from anabranch.operators.merge.ordered_codec import write_parts

        return write_parts(self, since)

    @classmethod
    def from_parts(
        cls, parts: Mapping[str, bytes], case: MergeCase, schema: ElementSchema
    ) -> "OrderedState":
        """The state that was saved last; StateError if a part is missing or not of it."""
        from anabranch.operators.merge.ordered_codec import read_parts

        return read_parts(parts, case, schema)

    def check(self) -> None:
        """Assert what must always hold between steps."""
        members = len(self.members)
        starts, names = len(self.last_start), self.members.names
        assert starts == members, f"{starts} last starts != {members} replicas"
        assert len(set(names)) == members, f"names of replicas are not unique: {names}"
        # What one that was promoted has waiting comes out with the next step.
        joined = self.members.trusted(self.frontier)
        reached = self.members.lagging(self.policy.stable_lag)[joined]
        assert (reached <= self.frontier).all(), f"frontier {self.frontier} < {reached}"
        self.group.check()
        assert (len(self.group) > 0) == (self.current > NEVER_UNITS), (
            f"{len(self.group)} events at the current start {self.current}"
        )
        if isinstance(self.group, Bag):
            width = self.group.brought.shape[1]
            assert width == members, f"counts of {width} replicas != {members} replicas"
        self.held.check(members)
        self.blocks.check(self.held.number)
        held = self.held
        assert (held.number < self.next_held).all(), f"{held.number} >= {self.next_held}"
        early = held.replica[joined[held.replica]]
        assert not len(early), f"inserts held of joined replicas: rows {early}"
        assert (held.start >= self.frontier).all(), (
            f"held starts {held.start} < frontier {self.frontier}"
        )
        ended = self.frontier == FOREVER_UNITS
        assert not (ended and len(held)), f"{len(held)} inserts held after FOREVER, expected 0"
