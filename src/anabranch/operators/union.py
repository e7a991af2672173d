"""Union: all events of all inputs in one stream, over batches.

At every prefix the output's history is the bag sum of the inputs' histories, and its frontier
is the least frontier of the attached inputs.  A step passes the elements that keep their own
input's promises as they came, and one stable if the frontier moved.  An input that attaches
when the output is final up to t cannot add what starts before t: such elements are late.  So
are those of an input that was passed over, and those behind a stable that a clock inferred,
if they start before the output's frontier.

Remembered: the events of every input that are not final on the output, to judge adjusts and to
report what becomes final.  So an input that is far ahead of the slowest one costs memory.

With `insert_only` the inputs are plain rows: an adjust is a violation, nothing but the inputs'
frontiers is remembered, and what becomes final is not reported here.

Papers: CEDR's union; the reference is `anabranch.operators.reference.union`.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

import numpy as np

from anabranch.batch.batch import (
    ADJUST,
    INSERT,
    NEVER_UNITS,
    STABLE,
    Batch,
    Codes,
    Ints,
    Mask,
    concat,
)
from anabranch.batch.events import inserts, nothing
from anabranch.batch.schema import ElementSchema
from anabranch.model.properties import StreamProperties
from anabranch.operators.contract import (
    BUCKET_OF,
    Arrival,
    Attach,
    Await,
    ControlEntry,
    Detach,
    Inputs,
    InputStatus,
    PassOver,
    Reason,
    Route,
    StepResult,
)
from anabranch.operators.state.blocks import Saved
from anabranch.operators.state.codec import StateKind
from anabranch.operators.state.groups import Groups, first_ends, is_frozen
from anabranch.operators.state.reshape import Reshape, reshaped
from anabranch.operators.unary import (
    VIOLATIONS,
    changes_nothing,
    require_schema,
)
from anabranch.operators.unary_judge import judge
from anabranch.operators.union_of import after_union

_START, _END, _INPUT = range(3)
_KIND: Final = StateKind("anabranch union", version=2)
_INSERTS: Final = StateKind("anabranch union of inserts", version=1)
_TAKEN: Final[Codes] = np.array(
    [one.code for one in (Reason.FIRST, Reason.CORRECTED, Reason.FOLLOWS)], np.int8
)
"""The reason of a valid insert, adjust and stable."""


@dataclass(frozen=True)
class UnionOperator:
    """All events of all inputs."""

    schema: ElementSchema
    name: str = "union"
    route: Route = Route.IDENTITY
    route_columns: Sequence[str] = ()
    insert_only: bool = field(default=False, kw_only=True)

    @property
    def output(self) -> ElementSchema:
        """Elements with the columns of the inputs."""
        return replace(self.schema, has_seq=False, has_replica=False)

    @property
    def output_final_at_start(self) -> bool:
        """What is never adjusted has known ends."""
        return self.insert_only

    def properties(self, *inputs: StreamProperties) -> StreamProperties:
        """As `after_union` has it, with one of `inputs` for each that will ever take part."""
        known = after_union(*inputs)
        return replace(known, insert_only=known.insert_only or self.insert_only)

    def empty(self) -> "UnionState":
        """No input is attached."""
        return UnionState(self.schema, insert_only=self.insert_only)

    def from_parts(self, parts: Mapping[str, bytes]) -> "UnionState":
        """The state that was saved; StateError if of another kind, version or schema."""
        return UnionState.from_parts(parts, self.schema, insert_only=self.insert_only)

    def split(
        self, state: "UnionState", lanes: int, by: Route, reshape: Reshape | None = None
    ) -> list["UnionState"]:
        """What a state of one lane remembers, by the lane that it belongs to from now on."""
        mine = state.groups.by_lane(lanes, by, reshape)
        return [UnionState.of_shares([state], [ids]) for ids in mine]

    def unite(
        self, states: Sequence["UnionState"], reshape: Reshape | None = None
    ) -> "UnionState":
        """One lane's shares of the states of all former lanes as one state."""
        every = [one.groups.table.living() for one in states]
        return UnionState.of_shares(states, every, reshape)


@dataclass
class _Member:
    """One attachment of an input; `joined_at` is the output's frontier when it attached."""

    name: str
    attachment: int
    joined_at: int
    number: int
    frontier: int = int(NEVER_UNITS)
    last_seq: int = int(NEVER_UNITS)
    passed_at: int | None = None
    """Where it was when it was passed over; None: the output waits for it."""


class UnionState:
    """What union remembers for one lane; `step` changes it in place."""

    def __init__(self, schema: ElementSchema, *, insert_only: bool = False) -> None:
        self.schema = replace(schema, has_seq=False, has_replica=False)
        self.insert_only = insert_only
        self.frontier = int(NEVER_UNITS)
        self.mark = 0
        self.members: dict[str, _Member] = {}
        self.attachments = 0
        self.groups = Groups(
            self.schema.payload, by_start=True, columns=("start", "end", "input")
        )

    def __repr__(self) -> str:
        return f"UnionState(frontier {self.frontier}, {list(self.members)}, {self.groups!r})"

    @property
    def live(self) -> int:
        """How many events may still change, or wait for the slowest input."""
        return len(self.groups)

    @property
    def inputs(self) -> Sequence[InputStatus]:
        """The attached inputs, in order; each counts for the frontier."""
        return tuple(
            InputStatus(
                one.name,
                one.attachment,
                None,
                one.frontier,
                joined=True,
                passed_over=one.passed_at is not None,
            )
            for one in self.members.values()
        )

    @property
    def facts(self) -> Mapping[str, Any]:
        """Which input holds the frontier back."""
        least = min(self.members.values(), key=lambda one: one.frontier, default=None)
        return {"slowest": None if least is None else least.name}

    def step(self, inputs: Inputs) -> StepResult:
        """Apply control entries, pass valid elements, advance to the least frontier."""
        require_schema("union", self.schema, inputs.arrivals)
        self.mark += 1
        for entry in inputs.control:
            self._apply(entry)
        reasons = [self._take(arrival) for arrival in inputs.arrivals]
        passed = [
            replace(one.batch, seq=None, schema=self.schema).take(_passes(codes))
            for one, codes in zip(inputs.arrivals, reasons, strict=True)
        ]
        moved = self._advance()
        final = None if self.insert_only else nothing(self.schema)
        if moved:
            _name_leader(inputs.arrivals, reasons, self.frontier)
            none, payload = np.empty(0, np.int64), self.schema.payload.empty_table()
            passed.append(inserts(self.schema, none, none, payload, self.frontier))
            if final is not None:
                final, _ = self.groups.release(self.schema, self.frontier, self.mark)
        return StepResult(
            concat(passed) if passed else nothing(self.schema),
            buckets=tuple(BUCKET_OF[codes] for codes in reasons),
            reasons=tuple(reasons),
            frontier=self.frontier,
            final=final,
        )

    def _apply(self, entry: ControlEntry) -> None:
        known = self.members.get(entry.input)
        if isinstance(entry, Detach):
            self.members.pop(entry.input, None)
        elif isinstance(entry, PassOver | Await):
            if known is not None:
                known.passed_at = known.frontier if isinstance(entry, PassOver) else None
        elif isinstance(entry, Attach) and (
            known is None or entry.attachment > known.attachment
        ):
            self.members.pop(entry.input, None)
            self._attach(entry.input, entry.attachment)

    def _attach(self, name: str, attachment: int) -> _Member:
        member = _Member(name, attachment, self.frontier, self.attachments)
        self.members[name] = member
        self.attachments += 1
        return member

    def _take(self, arrival: Arrival) -> Codes:
        """Judge the elements of one input by its own promises; why each is where it is."""
        own = self.members.get(arrival.input)
        if own is None or arrival.attachment > own.attachment:
            self.members.pop(arrival.input, None)
            own = self._attach(arrival.input, arrival.attachment)
        batch, codes = arrival.batch, np.full(len(arrival.batch), -1, np.int8)
        codes[_redelivered(batch, own)] = Reason.REDELIVERY.code
        is_free = arrival.inferred or own.passed_at is not None
        first = max(own.joined_at, self.frontier) if is_free else own.joined_at
        late = batch.is_data & (batch.start < first) & (codes < 0)
        codes[late] = Reason.LATE.code
        fresh = np.flatnonzero(codes < 0)
        if len(fresh) < len(batch):
            batch = batch.take(fresh)
        binding = int(NEVER_UNITS) if arrival.inferred else own.frontier
        if self.insert_only:
            inserts_from = None if arrival.inferred else own.frontier
            codes[fresh] = _judge_inserts(batch, inserts_from)
            own.frontier = max(own.frontier, _last_stable(batch))
        else:
            codes[fresh] = self._judge(own, batch, binding)
        return codes

    def _judge(self, own: _Member, batch: Batch, binding: int) -> Codes:
        """Replay these elements after the input's own events; the events change accordingly.

        `binding` is the frontier that the elements must keep to.
        """
        data = np.flatnonzero(batch.is_data)
        may_add = (batch.kind == INSERT) & (batch.end > batch.start)
        may_add &= batch.start >= binding
        some = batch if len(data) == len(batch) else batch.take(data)
        groups = np.full(len(batch), -1, np.int64)
        groups[data] = self.groups.find(some, may_add[data], self.mark)
        touched = np.unique(groups[groups >= 0])
        group, rows = self.groups.read(touched)
        # What others hold, and what the input's own frontier froze, stays as it is.
        is_open = (rows[:, _INPUT] == own.number) & ~is_frozen(rows[:, _END], binding)
        held = group[is_open], rows[is_open, _START], rows[is_open, _END]
        judged = judge(held, groups, batch, binding)
        mine = np.full(len(judged.group), own.number, np.int64)
        news = np.stack([judged.start, judged.end, mine], axis=1)
        group = np.concatenate([group[~is_open], judged.group])
        rows = np.concatenate([rows[~is_open], news])
        order = np.lexsort((rows[:, _INPUT], rows[:, _END], group))
        self.groups.write_until_final(touched, group[order], rows[order], self.mark)
        own.frontier = max(own.frontier, judged.frontier)
        found = _TAKEN[batch.kind]
        found[changes_nothing(batch)] = Reason.NO_CHANGE.code
        found[judged.positions] = VIOLATIONS[judged.reasons]
        return found

    def _advance(self) -> bool:
        """Move to the least frontier of the awaited inputs; whether that is news."""
        for one in self.members.values():
            if one.passed_at is not None and one.frontier > one.passed_at:
                one.passed_at = None if one.frontier >= self.frontier else one.passed_at
        awaited = [one.frontier for one in self.members.values() if one.passed_at is None]
        least = min(awaited, default=self.frontier)
        if least <= self.frontier:
            return False
        self.frontier = least
        return True

    def parts(self, *, since: int | None = None) -> Saved:
        """The state in parts: all of them, or those that changed after a mark."""
        facts: dict[str, int | str] = {
            "frontier": self.frontier,
            "attachments": self.attachments,
            "members": json.dumps([asdict(one) for one in self.members.values()]),
        }
        kind = _INSERTS if self.insert_only else _KIND
        return self.groups.parts(kind, self.schema, since, mark=self.mark, facts=facts)

    @classmethod
    def from_parts(
        cls, parts: Mapping[str, bytes], schema: ElementSchema, *, insert_only: bool = False
    ) -> "UnionState":
        """The state that was saved; StateError if of another kind, version or schema."""
        state = cls(schema, insert_only=insert_only)
        kind = _INSERTS if insert_only else _KIND
        header = state.groups.restore(kind, state.schema, parts)
        state.frontier, state.mark = int(header["frontier"]), int(header["mark"])
        state.attachments = int(header["attachments"])
        members = [_Member(**one) for one in json.loads(header["members"])]
        state.members = {one.name: one for one in members}
        state.groups.schedule(*first_ends(*state.groups.all()))
        return state

    @classmethod
    def of_shares(
        cls,
        states: "Sequence[UnionState]",
        ids: Sequence[Ints],
        reshape: Reshape | None = None,
    ) -> "UnionState":
        """These groups of some lanes' states as one state.

        Lanes know the same inputs, but each the last seq that it has seen: the last counts.
        """
        first = states[0]
        schema = first.schema if reshape is None else reshaped(first.schema, reshape)
        state = cls(schema, insert_only=first.insert_only)
        state.frontier, state.mark = first.frontier, first.mark
        state.attachments = first.attachments
        for name, one in first.members.items():
            last = max(other.members[name].last_seq for other in states)
            state.members[name] = replace(one, last_seq=last)
        groups = [one.groups for one in states]
        state.groups.take_over(list(zip(groups, ids, strict=True)), reshape)
        state.groups.schedule(*first_ends(*state.groups.all()))
        return state

    def check(self) -> None:
        """Assert every invariant."""
        self.groups.check()
        held = len(self.groups)
        assert not (self.insert_only and held), f"{held} events held of inputs that only insert"
        _, rows = self.groups.all()
        frozen = is_frozen(rows[:, _END], self.frontier)
        assert not frozen.any(), f"ends < frontier {self.frontier} in the state: {rows[frozen]}"
        slow = [one for one in self.members.values() if one.joined_at > self.frontier]
        assert not slow, f"joined beyond the output's frontier {self.frontier}: {slow}"


def _redelivered(batch: Batch, own: _Member) -> Mask:
    """Which elements have a seq that was consumed before; the greatest one is noted."""
    if batch.seq is None or not len(batch):
        return np.zeros(len(batch), np.bool_)
    consumed = np.maximum.accumulate(np.concatenate([[own.last_seq], batch.seq]))
    own.last_seq = int(consumed[-1])
    again: Mask = batch.seq <= consumed[:-1]
    return again


def _judge_inserts(batch: Batch, binding: int | None) -> Codes:
    """Why each element of an input that only inserts is where it is.

    `binding` is the frontier that inserts must keep to, moved by the stables among them; None
    if the stables are no promise.
    """
    found: Codes = _TAKEN[batch.kind]
    is_stable = batch.kind == STABLE
    found[batch.kind == ADJUST] = Reason.NOT_INSERT_ONLY.code
    if binding is not None:
        moves = np.where(is_stable, batch.start, NEVER_UNITS)
        frontier = np.maximum.accumulate(np.concatenate([[binding], moves]))[:-1]
        found[(batch.kind == INSERT) & (batch.start < frontier)] = Reason.BEHIND_STABLE.code
    found[changes_nothing(batch)] = Reason.NO_CHANGE.code
    found[~is_stable & (batch.end < batch.start)] = Reason.BACKWARDS.code
    return found


def _last_stable(batch: Batch) -> int:
    stables = batch.start[batch.kind == STABLE]
    return int(stables.max(initial=NEVER_UNITS))


def _passes(codes: Codes) -> Mask:
    passes: Mask = (codes == Reason.FIRST.code) | (codes == Reason.CORRECTED.code)
    return passes


def _name_leader(arrivals: Sequence[Arrival], reasons: Sequence[Codes], time: int) -> None:
    """One stable of this step, if there is one of the new frontier or beyond, is `emitted`."""
    for arrival, codes in zip(arrivals, reasons, strict=True):
        stables = (codes == Reason.FOLLOWS.code) & (arrival.batch.start >= time)
        found = np.flatnonzero(stables & (arrival.batch.kind == STABLE))
        if len(found):
            codes[found[0]] = Reason.LEADS.code
            return
