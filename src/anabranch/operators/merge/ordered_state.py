"""What the merges R0, R1 and R2 remember for one lane, as columns.

* The output's frontier and its current start, and the events at that start (`group`).
* Per replica: its attachment, guarantee, frontier, last seq and last start.
* The inserts of joining replicas (`held`), and those whose replica left while they were held
  (`owed`: the next step reports them).

`mark` counts the changes of the state.  `parts(since=mark)` writes what changed after a mark;
a restored state goes on from the mark that was written with it.

Nothing is remembered of what is behind the current start; the events of the current start stay
until there is a greater one.  So the size does not depend on the length of the streams: it is
that of one start, and of what joining replicas are ahead.

Papers: LMerge IV-F, Table IV: O(1), O(s) and O(g p); counting events makes R1 O(g (p + s)).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from anabranch.batch.batch import FOREVER_UNITS, NEVER_UNITS, Ints
from anabranch.batch.schema import ElementSchema
from anabranch.errors import UsageError
from anabranch.model.properties import MergeCase
from anabranch.operators.contract import InputStatus, Reason, Resolved
from anabranch.operators.merge.members import Members
from anabranch.operators.merge.ordered_bag import Bag
from anabranch.operators.merge.ordered_held import Held
from anabranch.operators.merge.ordered_latest import Latest
from anabranch.operators.reference.membership import Alarm, Stretch
from anabranch.operators.state.blocks import Blocks, Saved

CASES: Final = (MergeCase.R0, MergeCase.R1, MergeCase.R2)


@dataclass(eq=False)
class OrderedState:
    """The state of one lane; `ordered_kernel.step` changes it in place.

    `counts` are the operations since the state was made or read: `visits` (elements looked at;
    one that was held is looked at twice), `probes` (payloads looked up by their hash) and
    `compares` (payloads compared by value).
    """

    case: MergeCase
    schema: ElementSchema
    members: Members
    last_start: Ints
    group: Latest | Bag
    held: Held
    owed: tuple[Resolved, ...] = ()
    frontier: int = int(NEVER_UNITS)
    current: int = int(NEVER_UNITS)
    conflicts: int = 0
    visits: int = 0
    mark: int = 0
    next_held: int = 0
    blocks: Blocks = field(default_factory=Blocks.none)
    stable_lag: int = 0
    promotes: bool = False

    @classmethod
    def empty(
        cls,
        case: MergeCase,
        schema: ElementSchema,
        *,
        stable_lag: int = 0,
        promote: bool = False,
    ) -> "OrderedState":
        """Nobody is attached and nothing has happened; the choices are those of `policy`."""
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
        state = cls(case, plain, Members.none(), np.empty(0, np.int64), group, held)
        state.stable_lag, state.promotes = stable_lag, promote
        return state

    @property
    def counts(self) -> dict[str, int]:
        """How many operations of each kind there were."""
        group = self.group
        return {"visits": self.visits, "probes": group.probes, "compares": group.compares}

    @property
    def replicas(self) -> tuple[InputStatus, ...]:
        """Who is attached, in order, with frontier and whether it is joined."""
        return self.members.status(self.frontier)

    @property
    def live(self) -> int:
        """How many inserts are held back; nothing else of an ordered stream may change."""
        return len(self.held)

    @property
    def alarm(self) -> Alarm | None:
        """Set while replicas are attached and none of them can move the output (D5)."""
        return self.members.alarm(self.frontier)

    @property
    def stretches(self) -> tuple[Stretch, ...]:
        """Times at which the output may be wrong, because a replica had to be promoted."""
        return tuple(self.members.stretches)

    def attach(self, name: str, *, attachment: int = 1, guarantee: int | None = None) -> int:
        """The row of this attachment; a new one starts from nothing (errata L7 and L8)."""
        row = self.members.row_of_attachment(name, attachment)
        if row is not None:
            return row
        if name in self.members.names:
            self._remove(name)
        self.mark += 1
        self.members.add(name, attachment=attachment, guarantee=guarantee)
        self.last_start = np.append(self.last_start, NEVER_UNITS)
        self.group.attach()
        if self.promotes:
            self.members.succeed(self.frontier)
        return len(self.members) - 1

    def detach(self, name: str) -> None:
        """Forget what a replica said; what it brought to the output stays."""
        self._remove(name)
        if self.promotes:
            self.members.succeed(self.frontier)

    def _remove(self, name: str) -> None:
        row = self.members.row_of(name, "detached")
        self.mark += 1
        rows = np.flatnonzero(self.held.replica == row)
        if len(rows):
            reasons = np.full(len(rows), Reason.ABANDONED.code, np.int8)
            batch = self.held.batch(self.schema, rows)
            self.owed = (*self.owed, Resolved(name, batch, reasons))
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
        from anabranch.operators.merge.ordered_parts import write_parts

        return write_parts(self, since)

    @classmethod
    def from_parts(
        cls, parts: Mapping[str, bytes], case: MergeCase, schema: ElementSchema
    ) -> "OrderedState":
        """The state that was saved last; StateError if a part is missing or not of it."""
        from anabranch.operators.merge.ordered_parts import read_parts

        return read_parts(parts, case, schema)

    def check(self) -> None:
        """Assert what must always hold between steps."""
        members = len(self.members)
        assert len(self.last_start) == members, f"a replica without a last start: {self!r}"
        assert len(set(self.members.names)) == members, f"a name twice: {self!r}"
        # What one that was promoted has waiting comes out with the next step.
        joined = self.members.trusted(self.frontier)
        reached = self.members.lagging(self.stable_lag)[joined]
        assert (reached <= self.frontier).all(), f"runs behind: {self!r}"
        self.group.check()
        assert (len(self.group) > 0) == (self.current > NEVER_UNITS), f"no event: {self!r}"
        if isinstance(self.group, Bag):
            assert self.group.said.shape[1] == members, f"said by nobody: {self!r}"
        self.held.check(members)
        self.blocks.check(self.held.number)
        assert (self.held.number < self.next_held).all(), f"was not numbered: {self!r}"
        assert not joined[self.held.replica].any(), f"held, though joined: {self!r}"
        assert (self.held.start >= self.frontier).all(), f"held for nothing: {self!r}"
        assert self.frontier < FOREVER_UNITS or not len(self.held), f"has ended: {self!r}"
