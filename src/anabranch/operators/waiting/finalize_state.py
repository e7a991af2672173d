"""What finalize remembers in one lane: by how many the input has an end more than the output.

A step looks at the elements that are behind the forced stable, and at adjusts of identities of
which something was late; all others pass as they came, without a look into any table.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np

from anabranch.batch.batch import (
    ADJUST,
    STABLE,
    Batch,
    Codes,
    Ints,
    Mask,
    concat,
)
from anabranch.batch.events import nothing
from anabranch.batch.index import START
from anabranch.batch.kernel import frozen
from anabranch.operators.contract import (
    BUCKET_OF,
    INPUT,
    Arrival,
    Inputs,
    Reason,
    StepResult,
)
from anabranch.operators.state.blocks import Saved
from anabranch.operators.state.codec import StateKind
from anabranch.operators.state.groups import Groups, distinct, first_ends, is_frozen
from anabranch.operators.trusting import TrustingState, name_leader, stable_of
from anabranch.operators.unary import Changed, changes_nothing, require_schema
from anabranch.operators.waiting.finalize_kernel import COUNT, END, GROUP, follow
from anabranch.operators.waiting.pace import Pace

if TYPE_CHECKING:
    from anabranch.operators.waiting.finalize import FinalizeOperator

KIND: Final = StateKind("anabranch finalize", version=1)
_TAKEN: Final[Codes] = np.array(
    [one.code for one in (Reason.FIRST, Reason.CORRECTED, Reason.FOLLOWS)], np.int8
)
"""The reason of an insert, an adjust and a stable that is in time."""
_PASSES: Final = _TAKEN[:2]


class FinalizeState(TrustingState):
    """The lists of identities of which something was late, by their ends."""

    operator: "FinalizeOperator"

    def __init__(self, operator: "FinalizeOperator") -> None:
        super().__init__(operator)
        self.pace = Pace(operator.remember, forgets=True)
        self.groups = Groups(
            self.output.payload, by_start=True, columns=("start", "end", "count")
        )

    def __repr__(self) -> str:
        return f"FinalizeState(frontier {self.frontier}, {self.groups!r})"

    @property
    def frontier(self) -> int:
        """How far the output is final."""
        return max(min(self.received.values()), self.pace.limit)

    @property
    def live(self) -> int:
        """How many ends the input has more often, or less often, than the output."""
        return len(self.groups)

    @property
    def facts(self) -> Mapping[str, Any]:
        """How long it remembers, for the progress record; nothing: for ever."""
        return {} if self.pace.wait is None else {"remember": self.pace.wait}

    def take(self, batches: Mapping[str, Batch], before: int) -> Changed:
        """Not used: this operator has a step of its own."""
        raise NotImplementedError

    def step(self, inputs: Inputs) -> StepResult:
        """Pass what is in time; then force a stable."""
        self.mark += 1
        shown, arrivals = self.frontier, inputs.arrivals
        every = self._read(arrivals)
        codes, looks = self._judge(every, shown)
        passes = np.isin(codes, _PASSES)
        output = every if passes.all() else every.take(passes)
        self.pace.take(inputs.control)
        ends = np.cumsum([len(one.batch) for one in arrivals])[:-1]
        reasons = tuple(np.split(codes, ends)) if arrivals else ()
        frontier, visits = self.frontier, 0
        if frontier > shown:
            output = concat([output, stable_of(self.output, frontier)])
            visits = self._forget()
            if frontier == self.received[INPUT]:
                name_leader(arrivals, reasons, frontier)
        return StepResult(
            output,
            buckets=tuple(BUCKET_OF[one] for one in reasons),
            reasons=reasons,
            frontier=frontier,
            counts={"visits": visits, "looks": looks},
        )

    def _read(self, arrivals: Sequence[Arrival]) -> Batch:
        """All elements as they came; stables move the frontier of the input."""
        require_schema("finalize", self.output, arrivals)
        batches = [replace(one.batch, schema=self.output, seq=None) for one in arrivals]
        every = concat(batches) if batches else nothing(self.output)
        stables = every.start[every.kind == STABLE]
        if len(stables):
            self.received[INPUT] = max(self.received[INPUT], int(stables.max()))
        return every

    def _judge(self, every: Batch, shown: int) -> tuple[Codes, int]:
        """Why each element is where it is; what is late is noted."""
        codes = _TAKEN[every.kind]
        none = changes_nothing(every)
        codes[none] = Reason.NO_CHANGE.code
        is_adjust = (every.kind == ADJUST) & ~none
        sync = np.where(is_adjust, np.minimum(every.old_end, every.end), every.start)
        behind = (sync < self.pace.limit) & every.is_data & ~none
        codes[behind] = Reason.BEHIND_FORCED.code
        if self.operator.insert_only or not (len(self.groups) or behind.any()):
            return codes, 0
        # What ends before the frontier is not noted: no adjust of it is in time.
        noted = behind & ((every.end >= shown) | (is_adjust & (every.old_end >= shown)))
        rows = np.flatnonzero(noted | (is_adjust & ~behind))
        found = self.groups.find(every.take(rows), noted[rows], self.mark)
        rows, found = rows[found >= 0], found[found >= 0]
        late, looks = self._follow(every, rows, found, behind, shown)
        codes[late & ~behind] = Reason.OF_FORGOTTEN.code
        return codes, looks

    def _follow(
        self, every: Batch, rows: Ints, found: Ints, behind: Mask, shown: int
    ) -> tuple[Mask, int]:
        """Which elements are late, by the lists of their identities, which change with them."""
        order = np.argsort(found, kind="stable")
        rows, touched = rows[order], distinct(found)
        group, held = self.groups.read(touched)
        columns = found[order], every.start[rows], every.old_end[rows], every.end[rows]
        late = behind[rows]
        lists = np.empty((3, len(group) + 2 * len(rows)), np.int64)
        count, looks = follow(
            frozen(np.stack(columns)),
            frozen(every.kind[rows] == ADJUST),
            late,
            frozen(np.stack([group, held[:, 1], held[:, 2]])),
            shown,
            lists,
        )
        lists = lists[:, : int(count)]
        start = self.groups.table.rows[lists[GROUP], START]
        noted = np.stack([start, lists[END], lists[COUNT]], axis=1)
        self.groups.write_until_final(touched, lists[GROUP].copy(), noted, self.mark)
        every_late = behind.copy()
        every_late[rows] = late
        return every_late, int(looks)

    def _forget(self) -> int:
        """Drop the ends before the frontier; how many identities had some."""
        due = self.groups.pop_due(self.frontier)
        group, rows = self.groups.read(due)
        stays = ~is_frozen(rows[:, 1], self.frontier)
        self.groups.write_until_final(due, group[stays], rows[stays], self.mark)
        return len(due)

    def parts(self, *, since: int | None = None) -> Saved:
        """The state in parts: all of them, or those that changed after a mark."""
        facts: dict[str, int | str] = {
            "received": self.received[INPUT],
            "pace": self.pace.to_text(),
        }
        return self.groups.parts(KIND, self.output, since, mark=self.mark, facts=facts)

    @classmethod
    def restored(cls, parts: Mapping[str, bytes], operator: "FinalizeOperator") -> Self:
        """The state that was saved; StateError if of another kind, version or schema."""
        state = cls(operator)
        header = state.groups.restore(KIND, state.output, parts)
        state.mark, state.received[INPUT] = int(header["mark"]), int(header["received"])
        state.pace.read(header["pace"])
        state.groups.schedule(*first_ends(*state.groups.all()))
        return state

    def check(self) -> None:
        """Assert every invariant."""
        self.groups.check()
        _, rows = self.groups.all()
        behind = rows[:, 1] < self.frontier
        assert not behind.any(), f"ends < {self.frontier} are noted: {rows[behind]}"
        assert (rows[:, 2] != 0).all(), f"ends that agree are noted: {rows}"
