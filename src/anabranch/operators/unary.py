"""The common part of operators with one input: steps, accounts and saves.

Contract of `step`, beside that of `operators.contract`; the law tests assert it:

* An element that breaks a promise of its own stream changes nothing and is a violation, for the
  reason that `model.history.replay` gives.
* However the input is cut into steps, the history is the same at every common end.

An element that is taken is `absorbed` (APPLIED): what comes out follows from all that is alive,
so the data of the output is `added_inserts` and `added_adjusts`.  There is one input, whose
arrivals are taken in their order; inserts and adjusts of different events may change places.
There are no members: control entries change nothing.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final, NamedTuple, Self

import numpy as np
import pyarrow as pa

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
from anabranch.batch.events import nothing
from anabranch.batch.history import REASONS
from anabranch.batch.schema import ElementSchema
from anabranch.errors import SchemaError
from anabranch.operators.contract import (
    BUCKET_OF,
    Arrival,
    Inputs,
    InputStatus,
    Reason,
    StepResult,
)
from anabranch.operators.state.blocks import Saved
from anabranch.operators.state.codec import StateKind
from anabranch.operators.state.groups import Groups, distinct
from anabranch.operators.state.reshape import Reshape, reshaped
from anabranch.operators.unary_judge import Judged, judge

START, END = range(2)
"""The first two numbers of an event."""

VIOLATIONS: Final[Codes] = np.array([Reason[one.name].code for one in REASONS], np.int8)
"""The reasons of `batch.history` by code."""


class Changed(NamedTuple):
    """What a step makes of its input: the output, what became final, and operation counts."""

    output: Batch
    final: Batch | None = None
    counts: Mapping[str, int] = {}


class OneInput:
    """A state whose one input is always there, and of which nothing else is reported."""

    @property
    def inputs(self) -> Sequence[InputStatus]:
        """None has to be named."""
        return ()

    @property
    def facts(self) -> Mapping[str, Any]:
        """Nothing else."""
        return {}


class UnaryState(OneInput, ABC):
    """What an operator of one input remembers for one lane; `step` changes it in place.

    `received` is the frontier of the input; `NUMBERS` are saved with the groups.
    """

    KIND: ClassVar[StateKind]
    COLUMNS: ClassVar[tuple[str, ...]] = ("start", "end")
    BY_START: ClassVar[bool] = True
    NUMBERS: ClassVar[tuple[str, ...]] = ("received",)

    def __init__(self, schema: ElementSchema) -> None:
        self.schema = replace(schema, has_seq=False, has_replica=False)
        self.received = int(NEVER_UNITS)
        self.mark = 0
        self.groups = Groups(self.schema.payload, by_start=self.BY_START, columns=self.COLUMNS)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(frontier {self.frontier}, {self.groups!r})"

    @property
    def frontier(self) -> int:
        """How far the output is final."""
        return self.received

    @property
    def live(self) -> int:
        """How many events are remembered."""
        return len(self.groups)

    def step(self, inputs: Inputs) -> StepResult:
        """Take what arrived, change the state, return the net change."""
        require_schema(self.KIND.operator, self.schema, inputs.arrivals)
        self.mark += 1
        batch, before = self._joined(inputs.arrivals), self.received
        judged, changed = self.take(batch)
        reasons = _reasons(batch, judged)
        if judged.frontier > before:
            is_shown = (changed.output.kind == STABLE).any()
            reasons[_furthest(batch)] = (Reason.LEADS if is_shown else Reason.APPLIED).code
        sizes = np.cumsum([len(arrival.batch) for arrival in inputs.arrivals])
        split = tuple(np.split(reasons, sizes[:-1])) if inputs.arrivals else ()
        kind = changed.output.kind
        return StepResult(
            changed.output,
            buckets=tuple(BUCKET_OF[codes] for codes in split),
            reasons=split,
            frontier=self.frontier,
            final=changed.final,
            added_adjusts=int(np.count_nonzero(kind == ADJUST)),
            added_inserts=int(np.count_nonzero(kind == INSERT)),
            counts=changed.counts,
        )

    @abstractmethod
    def take(self, batch: Batch) -> tuple[Judged, Changed]:
        """The step of the operator: which elements are believed, and what follows."""

    def find(self, batch: Batch) -> tuple[Ints, Ints]:
        """The group of each element (NOBODY for stables and unknown ones), and all of them."""
        data = np.flatnonzero(batch.is_data)
        # Only what may become an event needs a group: an adjust of what is not there changes
        # nothing, whatever group it is in.
        may_add = (batch.kind == INSERT) & (batch.end > batch.start)
        may_add &= batch.start >= self.received
        events = batch if len(data) == len(batch) else batch.take(data)
        found = self.groups.find(events, may_add[data], self.mark)
        groups = np.full(len(batch), -1, np.int64)
        groups[data] = found
        return groups, distinct(found[found >= 0])

    def judge(self, batch: Batch, groups: Ints, held: tuple[Ints, Ints]) -> Judged:
        """Replay a batch after the events (group, numbers) that are held of its groups."""
        group, rows = held
        return judge((group, rows[:, START], rows[:, END]), groups, batch, self.received)

    def parts(self, *, since: int | None = None) -> Saved:
        """The state in parts: all of them, or those that changed after a mark."""
        facts = {name: getattr(self, name) for name in self.NUMBERS}
        return self.groups.parts(self.KIND, self.schema, since, mark=self.mark, facts=facts)

    @classmethod
    def from_parts(cls, parts: Mapping[str, bytes], schema: ElementSchema) -> Self:
        """The state that was saved last; StateError if a part is missing or not of it."""
        state = cls(schema)
        header = state.groups.restore(cls.KIND, state.schema, parts)
        for name in ("mark", *cls.NUMBERS):
            setattr(state, name, int(header[name]))
        state.restored()
        return state

    @classmethod
    def of_shares(
        cls, states: "Sequence[Self]", ids: Sequence[Ints], reshape: Reshape | None = None
    ) -> Self:
        """These groups of some states that have received the same stables, as one state."""
        schema = states[0].schema
        state = cls(schema if reshape is None else reshaped(schema, reshape))
        for name in ("mark", *cls.NUMBERS):
            setattr(state, name, getattr(states[0], name))
        groups = [one.groups for one in states]
        state.groups.take_over(list(zip(groups, ids, strict=True)), reshape)
        state.restored()
        return state

    @abstractmethod
    def restored(self) -> None:
        """Derive what follows from what was saved, such as what is due when."""

    def check(self) -> None:
        """Assert every invariant."""
        self.groups.check()

    def _joined(self, arrivals: Sequence[Arrival]) -> Batch:
        """All elements, one arrival after the other."""
        batches = [replace(arrival.batch, seq=None) for arrival in arrivals]
        return concat(batches) if batches else nothing(self.schema)


def require_schema(name: str, ours: ElementSchema, arrivals: Sequence[Arrival]) -> None:
    """Reject inputs with other times or payload columns than the operator `name` has."""
    for arrival in arrivals:
        theirs = arrival.batch.schema
        if theirs.time is not ours.time or theirs.payload != ours.payload:
            message = (
                f"{name}: input '{arrival.input}' has {theirs.time.value} times and the "
                f"payload {_show(theirs.payload)}, {name} has {ours.time.value} times and "
                f"{_show(ours.payload)}; all inputs must have the same columns; cast them"
            )
            raise SchemaError(message)


def _show(payload: pa.Schema) -> str:
    return "(" + str(payload).replace("\n", ", ") + ")"


def _reasons(batch: Batch, judged: Judged) -> Codes:
    """Why each element is where it is, as far as the output does not matter."""
    codes = np.full(len(batch), Reason.APPLIED.code, np.int8)
    codes[changes_nothing(batch)] = Reason.NO_CHANGE.code
    codes[batch.kind == STABLE] = Reason.FOLLOWS.code
    codes[judged.positions] = VIOLATIONS[judged.reasons]
    return codes


def _furthest(batch: Batch) -> int:
    """The first of the stables with the greatest time; there is one."""
    stables = np.flatnonzero(batch.kind == STABLE)
    return int(stables[np.argmax(batch.start[stables])])


def changes_nothing(batch: Batch) -> Mask:
    """Empty inserts, and adjusts to the same end."""
    no_news: Mask = (batch.kind == ADJUST) & (batch.end == batch.old_end)
    no_news |= (batch.kind == INSERT) & (batch.end == batch.start)
    return no_news
