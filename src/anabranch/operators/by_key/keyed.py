"""A key in front of an operator: each input has at most one live event per key.

`KeyedOperator` runs another operator after a table of keys.  An insert whose input has an
event with the same key already, and has not made it final, does not reach the operator: it is a
violation (`SECOND_OF_KEY`), or absorbed where the key `drops` duplicates (`DUPLICATE`).  All
other elements reach it as they came.  The key is compared within one input: what two inputs
have of one key is the business of the operator.

So identities are unique in each input, and a merge after it is right as R3.  The inputs have
inserts and stables; an adjust passes, and does not change what is remembered.

Remembered per input: the key, start and end of each event that it brought, until the frontiers
of all attached inputs have passed the event's end, or a merge after it has forgotten such
events (`remember` of its policy).  An event counts as final by the frontier of
its own input.  So, however the input is cut into steps, the same elements are duplicates.

All elements of a key reach one lane: the route is by the columns of the key.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from anabranch.batch.batch import INSERT, NEVER_UNITS, STABLE, Batch, Codes, Ints
from anabranch.batch.kernel import frozen, kernel
from anabranch.batch.schema import ElementSchema
from anabranch.model.properties import StreamProperties
from anabranch.operators.abilities import Forgets, ReportsFinal
from anabranch.operators.contract import (
    BUCKET_OF,
    Arrival,
    Attach,
    ControlEntry,
    Detach,
    Inputs,
    InputStatus,
    Operator,
    Reason,
    Route,
    State,
    StepResult,
)
from anabranch.operators.key import Key
from anabranch.operators.merge.lane import violators
from anabranch.operators.merge.policy import Policy
from anabranch.operators.state.blocks import Saved
from anabranch.operators.state.codec import StateKind
from anabranch.operators.state.groups import Groups, distinct, first_ends, is_frozen

_START, _END, _INPUT = range(3)
_KIND: Final = StateKind("anabranch key", version=1)
_PREFIX: Final = "keys/"
"""How the names of our parts begin; the others are those of the hosted operator."""

_PASSED: Final = -1
"""The code of elements that go to the hosted operator."""
_FRONTIER: Final = 0
_LAST_SEQ: Final = 1
_NONE: Ints = np.empty(0, np.int64)


@dataclass(frozen=True)
class KeyedOperator:
    """An operator whose inputs have one event per key."""

    inner: Operator
    key: Key

    @property
    def name(self) -> str:
        """That of the hosted operator."""
        return self.inner.name

    @property
    def schema(self) -> ElementSchema:
        """The columns of the inputs."""
        return self.inner.schema

    @property
    def output(self) -> ElementSchema | pa.Schema:
        """That of the hosted operator."""
        return self.inner.output

    @property
    def route(self) -> Route:
        """By key: events of one identity have one key, so they meet as well."""
        return Route.KEY if self.key.columns else Route.START

    @property
    def route_columns(self) -> Sequence[str]:
        """The columns of the key; of those that begin together, all are in one lane."""
        return self.key.columns

    @property
    def policy(self) -> Policy | None:
        """What becomes of violators, if the hosted operator has a policy."""
        return getattr(self.inner, "policy", None)

    def properties(self, *inputs: StreamProperties) -> StreamProperties:
        """That of the hosted operator, whose inputs are keyed: a key is part of the payload."""
        return self.inner.properties(*(replace(one, keyed=True) for one in inputs))

    def reporting_final(self) -> "KeyedOperator | None":
        """The same with `final` in its results, if the hosted operator knows it."""
        inner = self.inner
        own = inner.reporting_final() if isinstance(inner, ReportsFinal) else None
        return None if own is None else replace(self, inner=own)

    def empty(self) -> "KeyedState":
        """No key is known."""
        return KeyedState(self, self.inner.empty())

    def from_parts(self, parts: Mapping[str, bytes]) -> "KeyedState":
        """The state that was saved; StateError if of another kind, version, schema or key."""
        theirs = {name: data for name, data in parts.items() if not name.startswith(_PREFIX)}
        ours = {n.removeprefix(_PREFIX): d for n, d in parts.items() if n not in theirs}
        state = KeyedState(self, self.inner.from_parts(theirs))
        state.restore(ours)
        return state


@dataclass
class _Input:
    """One attachment of an input: how far it is."""

    name: str
    attachment: int
    number: int
    frontier: int = int(NEVER_UNITS)
    last_seq: int = int(NEVER_UNITS)


class KeyedState:
    """What is remembered for one lane: keys, and the state of the hosted operator."""

    def __init__(self, operator: KeyedOperator, inner: State) -> None:
        self.operator = operator
        self.inner = inner
        self.key = operator.key
        fields = [operator.schema.payload.field(name) for name in self.key.columns]
        self._schema = ElementSchema(operator.schema.time, pa.schema(fields))
        self.mark = 0
        self.attachments = 0
        self.released = int(NEVER_UNITS)
        self.members: dict[str, _Input] = {}
        self.groups = Groups(
            self._schema.payload,
            by_start=self.key.with_start,
            columns=("start", "end", "input"),
        )

    def __repr__(self) -> str:
        return f"KeyedState({list(self.members.values())}, {self.groups!r}, {self.inner!r})"

    @property
    def frontier(self) -> int:
        """How far the output is final."""
        return self.inner.frontier

    @property
    def live(self) -> int:
        """How many events may still change, or are held back."""
        return self.inner.live

    @property
    def inputs(self) -> Sequence[InputStatus]:
        """The attached inputs of the hosted operator."""
        return self.inner.inputs

    @property
    def facts(self) -> Mapping[str, Any]:
        """Those of the hosted operator, and how many keys are remembered."""
        return {**self.inner.facts, "keys": len(self.groups)}

    def step(self, inputs: Inputs) -> StepResult:
        """Keep back what repeats a key of its input; the rest is a step of the operator."""
        self.mark += 1
        for entry in inputs.control:
            self._apply(entry)
        codes = [self._judge(arrival) for arrival in inputs.arrivals]
        passed = tuple(
            _only(arrival, mine) for arrival, mine in zip(inputs.arrivals, codes, strict=True)
        )
        result = self.inner.step(replace(inputs, arrivals=passed))
        self._release()
        return self._complete(inputs.arrivals, codes, result)

    def _complete(
        self, arrivals: Sequence[Arrival], codes: Sequence[Codes], result: StepResult
    ) -> StepResult:
        """The operator's result, with the reasons of what did not reach it."""
        for mine, theirs in zip(codes, result.reasons, strict=True):
            mine[mine == _PASSED] = theirs
        buckets = tuple(BUCKET_OF[mine] for mine in codes)
        made = replace(result, reasons=tuple(codes), buckets=buckets)
        policy = self.operator.policy
        if policy is None or self.key.drops:
            return made
        return replace(made, violators=violators(policy, arrivals, made))

    def _apply(self, entry: ControlEntry) -> None:
        if isinstance(entry, Attach):
            self._attached(entry.input, entry.attachment)
        elif isinstance(entry, Detach) and entry.input in self.members:
            self._forget(self.members.pop(entry.input))

    def _attached(self, name: str, attachment: int) -> _Input:
        """The attachment of an input; a new one starts from nothing."""
        known = self.members.get(name)
        if known is not None and attachment <= known.attachment:
            return known
        if known is not None:
            self._forget(known)
        made = self.members[name] = _Input(name, attachment, self.attachments)
        self.attachments += 1
        return made

    def _forget(self, gone: _Input) -> None:
        """Drop the keys of an input that has left."""
        group, rows = self.groups.all()
        touched = distinct(group[rows[:, _INPUT] == gone.number])
        self._keep(touched, *self.groups.read(touched), without=gone.number)

    def _judge(self, arrival: Arrival) -> Codes:
        """Which elements do not reach the operator, and why; _PASSED for the others."""
        own, batch = self._attached(arrival.input, arrival.attachment), arrival.batch
        codes = np.full(len(batch), _PASSED, np.int8)
        may_add = (batch.kind == INSERT) & (batch.end > batch.start)
        # What a clock inferred binds no row: the output's frontier does.
        least = min(own.frontier, self.inner.frontier) if arrival.inferred else own.frontier
        may_add &= batch.start >= least
        found = np.full(len(batch), -1, np.int64)
        candidates = np.flatnonzero(may_add)
        found[candidates] = self._find(batch, candidates)
        touched = distinct(found[candidates])
        group, rows = self.groups.read(touched)
        mine = rows[:, _INPUT] == own.number
        held = np.full((len(touched), 2), NEVER_UNITS, np.int64)
        held[np.searchsorted(touched, group[mine])] = rows[mine, : _END + 1]
        place = np.searchsorted(touched, found)
        place[found < 0] = -1
        numbers = np.array([least, own.last_seq], np.int64)
        reasons = np.array([self.key.reason.code, Reason.REDELIVERY.code], np.int8)
        seq = _NONE if batch.seq is None else batch.seq
        times = (frozen(batch.start), frozen(batch.end), frozen(seq))
        rules = (frozen(place), frozen(reasons))
        find_seconds(frozen(batch.kind), *times, *rules, held, numbers, codes)
        own.frontier = max(own.frontier, int(numbers[_FRONTIER]))
        own.last_seq = int(numbers[_LAST_SEQ])
        self._keep(touched, group, rows, without=own.number, own=held)
        return codes

    def _find(self, batch: Batch, rows: Ints) -> Ints:
        """The groups of these inserts; new ones for keys that are not known."""
        some = batch.take(rows)
        payload = some.payload.select(list(self.key.columns))
        keys = replace(some, schema=self._schema, payload=payload, seq=None, hashes=None)
        return self.groups.find(keys, np.ones(len(rows), np.bool_), self.mark)

    def _keep(
        self, touched: Ints, group: Ints, rows: Ints, *, without: int, own: Ints | None = None
    ) -> None:
        """Let these groups have these events of other inputs, and `own` of this one."""
        others = rows[:, _INPUT] != without
        group, rows = group[others], rows[others]
        if own is not None:
            there = own[:, _END] != NEVER_UNITS
            number = np.full((int(there.sum()), 1), without, np.int64)
            rows = np.concatenate([rows, np.concatenate([own[there], number], axis=1)])
            group = np.concatenate([group, touched[there]])
        order = np.argsort(group, kind="stable")
        self.groups.write_until_final(touched, group[order], rows[order], self.mark)

    def _release(self) -> None:
        """Forget the keys of events that end before the frontiers of all attached inputs."""
        least = min((one.frontier for one in self.members.values()), default=self.released)
        # What a merge after it does not remember cannot come to its output a second time.
        if isinstance(self.inner, Forgets):
            least = max(least, self.inner.forgotten)
        # Also where it stands still: an input that attached late brings what ends before.
        if least < self.released:
            return
        self.released = least
        due = self.groups.pop_due(least)
        group, rows = self.groups.read(due)
        stays = ~is_frozen(rows[:, _END], least)
        self.groups.write_until_final(due, group[stays], rows[stays], self.mark)

    def parts(self, *, since: int | None = None) -> Saved:
        """The state in parts: all of them, or those that changed after a mark."""
        facts: dict[str, int | str] = {
            "released": self.released,
            "attachments": self.attachments,
            "members": json.dumps([asdict(one) for one in self.members.values()]),
        }
        ours = self.groups.parts(_KIND, self._schema, since, mark=self.mark, facts=facts)
        theirs = self.inner.parts(since=since)
        # Both count the steps, so one mark is right for both.
        assert ours.mark == theirs.mark, (
            f"{ours.mark} steps, and {theirs.mark} of the hosted one"
        )
        written = {f"{_PREFIX}{name}": data for name, data in ours.written.items()}
        deleted = tuple(f"{_PREFIX}{name}" for name in ours.deleted)
        return Saved({**theirs.written, **written}, (*theirs.deleted, *deleted), ours.mark)

    def restore(self, parts: Mapping[str, bytes]) -> None:
        """Fill an empty table of keys with what was saved."""
        header = self.groups.restore(_KIND, self._schema, parts)
        self.mark, self.released = int(header["mark"]), int(header["released"])
        self.attachments = int(header["attachments"])
        members = [_Input(**one) for one in json.loads(header["members"])]
        self.members = {one.name: one for one in members}
        self.groups.schedule(*first_ends(*self.groups.all()))

    def check(self) -> None:
        """Assert every invariant."""
        self.inner.check()
        self.groups.check()
        group, rows = self.groups.all()
        numbers = [one.number for one in self.members.values()]
        gone = rows[~np.isin(rows[:, _INPUT], numbers)]
        assert not len(gone), f"keys of detached inputs: {gone}; attached are {numbers}"
        pairs = np.stack([group, rows[:, _INPUT]], axis=1)
        distinct = len(np.unique(pairs, axis=0))
        assert distinct == len(pairs), f"{distinct} keys per input != {len(pairs)} events"
        over = rows[is_frozen(rows[:, _END], self.released)]
        # An input that attached later may still bring what the others have passed.
        late = [one for one in self.members.values() if one.frontier < self.released]
        assert late or not len(over), f"final before {self.released}, but kept: {over}"


def _only(arrival: Arrival, codes: Codes) -> Arrival:
    """The elements of an arrival that go on."""
    rows = np.flatnonzero(codes == _PASSED)
    if len(rows) == len(codes):
        return arrival
    return replace(arrival, batch=arrival.batch.take(rows))


@kernel
def find_seconds(
    kind: Codes,
    start: Ints,
    end: Ints,
    seq: Ints,
    place: Ints,
    reasons: Codes,
    held: Ints,
    numbers: Ints,
    codes: Codes,
) -> None:
    """Mark the elements of one input that repeat a key or a seq, in their order.

    `place` is the row of `held` for an insert that may be taken; a row is the start and end of
    the last event with its key.
    """
    for i in range(kind.size):
        if seq.size > 0:
            if seq[i] <= numbers[_LAST_SEQ]:
                codes[i] = reasons[1]
                continue
            numbers[_LAST_SEQ] = seq[i]
        # What the stable makes final frees its key for what comes behind it.
        if kind[i] == STABLE:
            numbers[_FRONTIER] = max(numbers[_FRONTIER], start[i])
            continue
        at = place[i]
        # An adjust, or a row that the operator behind rejects: it takes no key.
        if at < 0 or start[i] < numbers[_FRONTIER]:
            continue
        known = held[at, _END]
        if known != NEVER_UNITS and known >= numbers[_FRONTIER]:
            codes[i] = reasons[0]
        else:
            held[at, _START], held[at, _END] = start[i], end[i]
