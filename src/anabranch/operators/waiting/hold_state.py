"""What align holds in one lane, over batches.

A step

    read       stables move the frontiers; elements that change nothing are left out
    direct     inserts that can leave at once, and that no adjust of the step concerns
    combine    the others become arcs, with what is held of their identities
    due        what the frontier or the limit of the wait has come to
    release    all of these by sync time, adjusts first; of one time by the payload's hash

So a step costs a sort of its batch and of what it releases; what waits is not looked at.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from json import dumps, loads
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np

from anabranch.batch.batch import (
    ADJUST,
    FOREVER_UNITS,
    NEVER_UNITS,
    STABLE,
    Batch,
    Ints,
    Mask,
    concat,
)
from anabranch.batch.events import nothing
from anabranch.batch.hashing import hash_rows
from anabranch.batch.index import HIGH, LOW, START
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
from anabranch.operators.state.due_queue import DueQueue
from anabranch.operators.state.events import FLAGS, LIVE
from anabranch.operators.state.groups import Groups, distinct
from anabranch.operators.state.line import Line
from anabranch.operators.trusting import TrustingState, name_leader, reasons_of, stable_of
from anabranch.operators.unary import Changed, changes_nothing, require_schema
from anabranch.operators.waiting.hold_arcs import (
    COLUMNS,
    Arcs,
    Taken,
    combined,
    emitted,
    joined,
    resolved,
)
from anabranch.operators.waiting.pace import Pace

if TYPE_CHECKING:
    from anabranch.operators.waiting.hold import HoldOperator

# Entries of a queue that are stale are dropped when they are more than this, and than the rest.
_SMALL = 1_024


class Step(NamedTuple):
    """What becomes of the arcs of a step: which leave, and which `groups` have which left.

    `held` are the items that stay.
    """

    leave: Arcs
    stay: Arcs
    groups: Ints
    held: Ints
    visits: int


class HoldState(TrustingState):
    """What is held, by identity; `shown` is the frontier of the output."""

    KIND: ClassVar[StateKind]

    def __init__(self, operator: "HoldOperator") -> None:
        super().__init__(operator)
        self.pace = Pace(operator.wait, operator.wait_wall)
        self.groups = Groups(self.output.payload, by_start=True, columns=COLUMNS)
        self.names: list[str] = []
        self.shown = int(NEVER_UNITS)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(frontier {self.frontier}, {self.groups!r})"

    @property
    def live(self) -> int:
        """How many changes are held."""
        return len(self.groups)

    @property
    def facts(self) -> Mapping[str, Any]:
        """How many changes are held, its waits, and when the first one is over."""
        due, waits = self.due, {"wait": self.pace.wait, "wait_wall": self.pace.wait_wall}
        known = {name: one for name, one in waits.items() if one is not None}
        return {"pending": len(self.groups), **known} | ({} if due is None else {"due": due})

    @property
    def due(self) -> int | None:
        """When a wait by the wall clock is over."""
        return self.pace.due if len(self.groups) else None

    def take(self, batches: Mapping[str, Batch], before: int) -> Changed:
        """Not used: this operator has a step of its own."""
        raise NotImplementedError

    def step(self, inputs: Inputs) -> StepResult:
        """Take what arrived, release what may leave."""
        self.mark += 1
        self.pace.take(inputs.control)
        taken = self._read(inputs.arrivals)
        output, resolved_, counts = self._move(taken)
        frontier = self.frontier
        changed = output
        if frontier > self.shown:
            output = concat([output, stable_of(self.output, frontier)])
            name_leader(inputs.arrivals, taken.reasons, min(self.received.values()))
            self.shown = frontier
        is_adjust = changed.kind == ADJUST
        return StepResult(
            output,
            buckets=tuple(BUCKET_OF[codes] for codes in taken.reasons),
            reasons=taken.reasons,
            frontier=frontier,
            resolved=tuple(resolved_),
            added_adjusts=int(np.count_nonzero(is_adjust)),
            added_inserts=int(np.count_nonzero(~is_adjust)),
            counts=counts,
        )

    def _read(self, arrivals: Sequence[Arrival]) -> Taken:
        """The elements that change something; stables move the frontiers."""
        data, numbers, places = [], [], []
        reasons = tuple(reasons_of(one.batch) for one in arrivals)
        for at, one in enumerate(arrivals):
            port = one.input if one.input in self.ports else INPUT
            require_schema("align", self.ports[port].schema, [one])
            stables = one.batch.start[one.batch.kind == STABLE]
            if len(stables):
                self.received[port] = max(self.received[port], int(stables.max()))
            if port != INPUT:
                continue
            if one.input not in self.names:
                self.names.append(one.input)
            rows = np.flatnonzero(one.batch.is_data & ~changes_nothing(one.batch))
            whole = len(rows) == len(one.batch)
            some = one.batch if whole else one.batch.take(rows)
            data.append(replace(some, schema=self.output, seq=None))
            numbers.append(np.full(len(rows), self.names.index(one.input), np.int64))
            places.append((at, rows))
        every = concat(data) if data else nothing(self.output)
        number = np.concatenate(numbers) if numbers else np.empty(0, np.int64)
        return Taken(every, number, places, reasons)

    def _move(self, taken: Taken) -> tuple[Batch, list[Any], Mapping[str, int]]:
        """Combine what came with what is held, and release: the output, what is decided."""
        data = taken.data
        direct = self._leaves_at_once(data)
        rows = np.flatnonzero(~direct)
        some = data if len(rows) == len(data) else data.take(rows)
        found = self.groups.find(some, np.ones(len(rows), np.bool_), self.mark)
        touched = distinct(found)
        held = Arcs.held(*self.groups.read(touched))
        arcs, applied, looks = combined(held, Arcs.of(data, found, rows, taken.number))
        before = self.groups.payload(applied.group)
        step = self._split(arcs, touched)
        payload = self.groups.payload(step.leave.group)
        words = self.groups.table.rows[step.leave.group][:, [LOW, HIGH]]
        made = data if direct.all() else data.take(direct)
        output = emitted(self.output, made, step.leave, payload, words)
        decided = resolved(self.output, step.leave, payload, self.names)
        decided += resolved(self.output, applied, before, self.names)
        taken.give(step.held[step.held >= 0], Reason.HELD)
        due = self._due_of(step.groups, step.stay)
        self.groups.write(step.groups, step.stay.group, step.stay.numbers, due, self.mark)
        return output, decided, {"visits": step.visits, "looks": looks}

    def _leaves_at_once(self, data: Batch) -> Mask:
        """Inserts that may leave and that no adjust of the step concerns: nothing is held."""
        adjusts = data.kind == ADJUST
        leaves: Mask = self._may_leave(data.start) & ~adjusts
        if not adjusts.any() or not leaves.any():
            return leaves
        hashes = data.hashes
        if hashes is None:
            hashes = hash_rows(data.payload, len(data))
        names = hashes[:, 0] ^ data.start.view(np.uint64)
        # Two identities may share a name: then one takes the longer way.
        leaves &= ~np.isin(names, names[adjusts])
        return leaves

    @abstractmethod
    def _may_leave(self, start: Ints) -> Mask:
        """Which events with these starts need not be held."""

    @abstractmethod
    def _split(self, arcs: Arcs, touched: Ints) -> Step:
        """What leaves of the arcs of touched groups and of those that are due."""

    @abstractmethod
    def _due_of(self, groups: Ints, arcs: Arcs) -> Ints:
        """When each group is due, that has these arcs."""

    def parts(self, *, since: int | None = None) -> Saved:
        """The state in parts: all of them, or those that changed after a mark."""
        facts: dict[str, int | str] = {
            "received": dumps(self.received),
            "names": dumps(self.names),
            "pace": self.pace.to_text(),
            "shown": self.shown,
        }
        return self.groups.parts(self.KIND, self.output, since, mark=self.mark, facts=facts)

    @classmethod
    def restored(cls, parts: Mapping[str, bytes], operator: "HoldOperator") -> Self:
        """The state that was saved; StateError if of another kind, version or schema."""
        state = cls(operator)
        header = state.groups.restore(cls.KIND, state.output, parts)
        state.mark, state.shown = int(header["mark"]), int(header["shown"])
        state.received |= loads(header["received"])
        state.names = loads(header["names"])
        state.pace.read(header["pace"])
        state._schedule()
        return state

    def _schedule(self) -> None:
        """Derive what is due when from what was saved."""
        held = Arcs.held(*self.groups.all())
        groups = distinct(held.group)
        self.groups.schedule(groups, self._due_of(groups, held))

    def check(self) -> None:
        """Assert every invariant."""
        self.groups.check()
        held = Arcs.held(*self.groups.all())
        loops = held.origin == held.end
        assert not loops.any(), f"arcs that change nothing: {held.take(loops)}"


class OrderedState(HoldState):
    """Everything leaves in sync order, or when its wait is over.

    `starts` has the groups of released events by start, for the limit of a wait: the others are
    due at their start anyway.
    """

    KIND = StateKind("anabranch hold", version=1)

    def __init__(self, operator: "HoldOperator") -> None:
        super().__init__(operator)
        self.is_paced = operator.is_paced
        self.starts = DueQueue()

    def _may_leave(self, start: Ints) -> Mask:
        leaves: Mask = (start <= self.pace.limit) | (start < self.frontier)
        return leaves

    def _split(self, arcs: Arcs, touched: Ints) -> Step:
        passed = max(self.frontier, self.pace.limit + 1)
        due = self.groups.pop_due(passed)
        if self.is_paced and len(self.starts):
            due = distinct(np.concatenate([due, self._over()]))
        others = np.setdiff1d(due, touched, assume_unique=True)
        more = Arcs.held(*self.groups.read(others))
        every = Arcs(*(np.concatenate(pair) for pair in zip(arcs, more, strict=True)))
        every = every.take(np.argsort(every.group, kind="stable"))
        leaves = (every.sync < self.frontier) | (every.start <= self.pace.limit)
        groups = np.union1d(touched, others)
        stay = every.take(~leaves)
        return Step(every.take(leaves), stay, groups, stay.item, len(others))

    def _over(self) -> Ints:
        """The groups of released events that the limit has come to."""
        ids = distinct(self.starts.pop_before(self.pace.limit + 1))
        rows = self.groups.table.rows
        there = (rows[ids, FLAGS] & LIVE != 0) & (rows[ids, START] <= self.pace.limit)
        groups: Ints = ids[there]
        return groups

    def _due_of(self, groups: Ints, arcs: Arcs) -> Ints:
        due = np.full(len(groups), FOREVER_UNITS, np.int64)
        if not len(arcs.group):
            return due
        first = np.flatnonzero(np.diff(arcs.group, prepend=-1))
        at = np.searchsorted(groups, arcs.group[first])
        due[at] = np.minimum.reduceat(arcs.sync, first)
        if self.is_paced:
            self._note_starts(arcs.take(first))
        return due

    def _note_starts(self, arcs: Arcs) -> None:
        released = arcs.start < self.frontier
        self.starts.push(arcs.start[released], arcs.group[released])
        if len(self.starts) > 2 * len(self.groups) + _SMALL:
            held = Arcs.held(*self.groups.all())
            some = held.start < self.frontier
            self.starts.rebuild(held.start[some], held.group[some])

    def check(self) -> None:
        """Assert every invariant."""
        super().check()
        held = Arcs.held(*self.groups.all())
        behind = held.sync < self.frontier
        assert not behind.any(), f"held behind {self.frontier}: {held.take(behind)}"
        over = held.start <= self.pace.limit
        assert not over.any(), f"held at the limit {self.pace.limit}: {held.take(over)}"


class FinalState(HoldState):
    """Only frozen events leave, if no event that starts earlier is held.

    `line` has the identities that start before `passed`, the frontier of the inputs.
    """

    KIND = StateKind("anabranch hold of final events", version=1)

    def __init__(self, operator: "HoldOperator") -> None:
        super().__init__(operator)
        self.line = Line(self.groups)
        self.passed_at = self.bound = int(NEVER_UNITS)

    @property
    def frontier(self) -> int:
        """How far the output is final: all before it is released."""
        return self.bound

    def _may_leave(self, start: Ints) -> Mask:
        return np.zeros(len(start), np.bool_)

    def _split(self, arcs: Arcs, touched: Ints) -> Step:
        due = self.line.due(touched, self.passed_at)
        self.groups.write(touched, arcs.group, arcs.numbers, due, self.mark)
        received, none = min(self.received.values()), arcs.take(np.empty(0, np.int64))
        if received == self.passed_at:
            return Step(none, none, none.group, arcs.item, 0)
        visits = self.line.advance(received)
        gone, self.bound = self.line.take_ready(received)
        self.passed_at, gone = received, distinct(gone)
        here = np.isin(arcs.group, gone)
        others = np.setdiff1d(gone, arcs.group, assume_unique=True)
        leave = joined(arcs.take(here), Arcs.held(*self.groups.read(others)))
        return Step(leave, none, gone, arcs.item[~here], visits + len(gone))

    def _due_of(self, groups: Ints, arcs: Arcs) -> Ints:
        del arcs
        return self.line.due(groups, self.passed_at)

    def _schedule(self) -> None:
        self.passed_at, self.bound = min(self.received.values()), self.shown
        self.line.restore(self.passed_at)

    def check(self) -> None:
        """Assert every invariant."""
        super().check()
        self.line.check(self.passed_at)
        held = Arcs.held(*self.groups.all())
        first = int(held.start.min(initial=FOREVER_UNITS))
        assert first >= self.bound, f"held start {first} < released {self.bound}"
        assert held.is_insert.all(), f"adjusts are held: {held.take(~held.is_insert)}"
