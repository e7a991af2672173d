"""The contract of an operator: its methods, and its account of every input element.

An `Operator` is a frozen specification: it pickles, travels to workers and describes one step
of a pipeline.  It makes a `State`, which one lane keeps and changes in place:

    empty, from_parts    a state at the beginning, or the one that was saved
    step                 take named inputs, return one `StepResult`
    parts                what changed since a mark, as named bytes (`state.blocks.Saved`)
    check                assert every invariant
    route                which lane an element belongs to
    properties           what its output promises, if its inputs promise something

What some operators can do besides (report what became final, be laid out for other lanes, take
any element in any lane) is in `operators.abilities`: a host asks whether an operator can.

Contract of `step`; the law tests assert all but the last:

* Accounted: each input element is in exactly one bucket, so that the sums equal the input.
* Sealed: the output keeps its own promises (`model.history.replay` finds no violation),
  whatever the inputs do.
* Compatible: wherever output is visible it can still follow its inputs, if these agree.
* Tight: the output's frontier is as far as the inputs' frontiers allow.
* Deterministic: the same state and the same inputs give the same result.  The order of the
  arrivals of a step does not matter, and no operator reads a clock.
* Any cut: however the input is cut into steps, the history is the same at every common end.
* Bounded: state is what can still change the output; each operator states its own bound.

Only the net change of a step is visible.  Its inserts are the `emitted` inserts and the
`added_inserts`, its adjusts the `corrected` ones and the `added_adjusts`.

`Outcome` is what the element-by-element references return.

Papers: LMerge IV and V; the buckets are ours.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np
import pyarrow as pa

from anabranch.batch.batch import STABLE, Batch, Codes
from anabranch.batch.schema import ElementSchema
from anabranch.model.element import Element
from anabranch.model.properties import StreamProperties
from anabranch.operators.state.blocks import Saved


class Bucket(IntEnum):
    """What became of an input element; each is in exactly one."""

    EMITTED = 0
    ABSORBED = 1
    CORRECTED = 2
    LATE = 3
    VIOLATION = 4
    PENDING = 5

    @property
    def word(self) -> str:
        """The bucket's name in reports."""
        return self.name.lower()


class Reason(Enum):
    """Why an element is in its bucket: a code for columns, the bucket, and words for people.

    >>> Reason.FIRST.bucket.word, Reason.FIRST.text
    ('emitted', 'brought this event to the output')
    """

    FIRST = (0, Bucket.EMITTED, "brought this event to the output")
    LEADS = (1, Bucket.EMITTED, "moved the output's frontier")
    KNOWN = (2, Bucket.ABSORBED, "the output has this event already")
    NOTED = (3, Bucket.ABSORBED, "its replica's end is noted; the output needs no change")
    NO_CHANGE = (4, Bucket.ABSORBED, "an empty event, or an adjust to the same end")
    REDELIVERY = (5, Bucket.ABSORBED, "its seq was consumed before")
    SETTLED = (6, Bucket.ABSORBED, "the output is final here and knows this event")
    SUPERSEDED = (7, Bucket.ABSORBED, "the event was removed again")
    FOLLOWS = (8, Bucket.ABSORBED, "the output's frontier is as far without it")
    JOINING = (9, Bucket.ABSORBED, "its replica is still joining; remembered")
    CORRECTED = (10, Bucket.CORRECTED, "the output was adjusted to it")
    LATE = (11, Bucket.LATE, "behind the output's frontier, and not known to the final output")
    MISSED = (12, Bucket.LATE, "the deciding replica of this step does not have this event")
    BACKWARDS = (13, Bucket.VIOLATION, "ends before it starts")
    BEHIND_STABLE = (14, Bucket.VIOLATION, "behind its own replica's stable")
    NO_SUCH_EVENT = (15, Bucket.VIOLATION, "adjusts an event that its replica does not have")
    SECOND_INSERT = (
        16,
        Bucket.VIOLATION,
        "its replica has this event already; R2 and R3 need unique ones",
    )
    PASSED = (
        17,
        Bucket.LATE,
        "behind the current start: not remembered whether it was emitted",
    )
    OTHER_EVENT = (18, Bucket.LATE, "the output has another event in its place, and keeps it")
    ABANDONED = (19, Bucket.LATE, "was held back, and its replica left meanwhile")
    NOT_INSERT_ONLY = (
        20,
        Bucket.VIOLATION,
        "an adjust; its input may only insert, as for a merge in cases R0 to R2",
    )
    OUT_OF_ORDER = (21, Bucket.VIOLATION, "starts before an earlier insert of its replica")
    SAME_START = (
        22,
        Bucket.VIOLATION,
        "starts when an earlier insert of its replica does; R0 needs starts that increase",
    )
    HELD = (
        23,
        Bucket.PENDING,
        "held back: its replica is joining, a policy shows it later, or align waits",
    )
    EXPELLED = (24, Bucket.VIOLATION, "its replica was detached for an earlier violation")
    APPLIED = (25, Bucket.ABSORBED, "applied to the events from which the output follows")
    SECOND_OF_KEY = (
        26,
        Bucket.VIOLATION,
        "its replica has an event with this key already; the key names one event",
    )
    DUPLICATE = (27, Bucket.ABSORBED, "its replica has an event with this key; dropped")
    FORGOTTEN = (
        28,
        Bucket.LATE,
        "further behind the output's frontier than `remember`: not remembered whether the "
        "output has this event",
    )
    SURPASSED = (
        29,
        Bucket.ABSORBED,
        "the output is final here: another replica of the query was faster",
    )
    BEHIND_FORCED = (30, Bucket.LATE, "behind the stable that finalize forced (`remember`)")
    OF_FORGOTTEN = (31, Bucket.LATE, "adjusts an event that finalize has forgotten")
    BROKEN_CHAIN = (32, Bucket.PENDING, "adjusts an event that has not arrived yet")
    NOT_PROMISED = (33, Bucket.VIOLATION, "more than its promise counts, or a second promise")

    def __init__(self, code: int, bucket: Bucket, text: str) -> None:
        self.code: Final = code
        self.bucket: Final = bucket
        self.text: Final = text


REASONS: Final = tuple(Reason)
"""Reasons by code."""

BUCKET_OF: Final[Codes] = np.array([reason.bucket for reason in REASONS], dtype=np.int8)
"""The bucket of each reason code: `BUCKET_OF[reasons]` turns a column of them into buckets."""


class Released(NamedTuple):
    """An element that was pending, and the reason that it has now."""

    replica: str
    element: Element
    reason: Reason


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one element did: its bucket (by its reason) and what came out at once.

    `resolved` are elements of earlier outcomes that were `pending` until now.
    """

    reason: Reason
    output: tuple[Element, ...] = ()
    resolved: tuple[Released, ...] = ()

    @property
    def bucket(self) -> Bucket:
        """The one bucket of the element."""
        return self.reason.bucket


class Route(Enum):
    """What decides the lane of a data element; stables reach every lane."""

    IDENTITY = "identity"
    START = "start"
    PAYLOAD = "payload"
    KEY = "key"
    """The columns that the operator names as `route_columns`."""
    ALL = "all"
    """Every lane gets every element."""


@dataclass(frozen=True, slots=True)
class Attach:
    """An input takes part from now on; of one that does already, the guarantee changes.

    `guarantee` None: the input is complete from the beginning.  A time t: it is right about
    every event with `end >= t`, and `joining` until the output's frontier reaches t;
    FOREVER_UNITS: nothing is known.  A greater attachment number replaces the old attachment.
    """

    input: str
    attachment: int = 1
    guarantee: int | None = None


@dataclass(frozen=True, slots=True)
class Detach:
    """An input leaves; what it brought to the output stays."""

    input: str


@dataclass(frozen=True, slots=True)
class PassOver:
    """The output does not wait for an input any more, until that has caught up.

    A merge of copies with gaps waits, and a union; for other operators this changes nothing.
    """

    input: str


@dataclass(frozen=True, slots=True)
class Await:
    """The output waits again for an input that was passed over, wherever that is."""

    input: str


@dataclass(frozen=True, slots=True)
class NewSettings:
    """The operator continues with other settings, in its own notation: a merge has a policy.

    They concern all inputs: `input` names none.
    """

    settings: str
    input: str = ""


@dataclass(frozen=True, slots=True)
class Reached:
    """How far the whole query is at the end of this step, in all lanes: `abilities.Paced`.

    `start` is the greatest start that it has seen, without rows that a guard holds for wrong.
    `time` is that of the trigger by the wall clock, in microseconds, where the host knows it.
    It concerns all inputs: `input` names none.
    """

    start: int
    time: int | None = None
    input: str = ""


ControlEntry: TypeAlias = Attach | Detach | PassOver | Await | NewSettings | Reached


@dataclass(frozen=True, eq=False)
class Arrival:
    """Elements of one named input, in their order, that reached the operator in this step.

    Guarantee and attachment (see `Attach`) are read when an attachment is new.  An arrival with
    an empty batch announces its input.  `inferred`: a clock inferred the stables of this input,
    so that they are no promise of it: an element behind them is judged by the output's frontier
    alone, and is never a violation for that.
    """

    input: str
    batch: Batch
    guarantee: int | None = None
    attachment: int = 1
    inferred: bool = False


@dataclass(frozen=True, eq=False)
class Inputs:
    """What reaches an operator in one step: control entries, in order, then elements."""

    arrivals: tuple[Arrival, ...] = ()
    control: tuple[ControlEntry, ...] = ()


@dataclass(frozen=True, eq=False)
class Resolved:
    """Elements of one replica that were `pending` after an earlier step, and no longer are.

    They come in the order in which they had arrived (of align, in that of their release), each
    in one step only; `reasons` are the codes that they have now, `was` is why they waited.  A
    replica's elements that are pending after a step are those that were before, and those in
    its buckets, without these.
    """

    replica: str
    batch: Batch
    reasons: Codes
    was: Reason = Reason.HELD

    @property
    def buckets(self) -> Codes:
        """The bucket of each element, which is no longer PENDING."""
        codes: Codes = BUCKET_OF[self.reasons]
        return codes


GAPS_SHOWN: Final = 20
"""At most this number of gaps per step is named; all are counted."""


@dataclass(frozen=True, slots=True)
class Gap:
    """An identity of the output that a deciding replica never mentioned.

    A gap in that replica, or a provisional event that another replica will remove: the two
    cannot be distinguished when it is decided.
    """

    replica: str
    start: int
    payload: Hashable


@dataclass(frozen=True, eq=False)
class StepResult:
    """The net change of one step, and where each element of each arrival went.

    `output` has the data first, each identity at most once, then the stable if the frontier
    moved; it has no seq.  An operator whose output is not a stream of elements leaves it empty
    and returns `rows`, a table of its own schema.  `frontier` is the output's after the step.
    `final` are the events that this step made final, as inserts; None if the operator does not
    report them.

    `buckets` and `reasons` are codes, aligned with the arrivals.  `resolved` are elements of
    earlier steps that were pending until this one; what they emit is part of `output`.

    `added_adjusts` and `added_inserts` are elements of the output that no single input element
    asked for.  `conflicts` are events that the deciding input denies although the output had
    promised them: they stay, and each is counted once.  `missing` are identities that a
    deciding input never mentioned, once each; the first of them are named in `gaps`.  In a
    merge of copies with gaps they are the events that an input lacks, counted for each input:
    `lacks` has these counts by name, and `alone` counts the events that one input alone had.
    `violators` are the inputs that the policy detaches before the next step.  `repeated` are,
    by input, the inserts of an event that their input has already, where that is allowed.

    `counts` are numbers of operations, free of noise, for benchmarks and tests.
    """

    output: Batch
    buckets: tuple[Codes, ...]
    reasons: tuple[Codes, ...]
    frontier: int
    final: Batch | None = None
    resolved: tuple[Resolved, ...] = ()
    added_adjusts: int = 0
    added_inserts: int = 0
    conflicts: int = 0
    missing: int = 0
    gaps: tuple[Gap, ...] = ()
    lacks: Mapping[str, int] = field(default_factory=dict)
    alone: Mapping[str, int] = field(default_factory=dict)
    violators: tuple[str, ...] = ()
    repeated: Mapping[str, int] = field(default_factory=dict)
    rows: pa.Table | None = None
    counts: Mapping[str, int] = field(default_factory=dict)

    @property
    def stable(self) -> int | None:
        """The time of the last stable that this step emitted, if it emitted one."""
        # By element, data may follow it.
        rows = np.flatnonzero(self.output.kind == STABLE)
        return int(self.output.start[rows[-1]]) if len(rows) else None


@dataclass(frozen=True, slots=True)
class InputStatus:
    """How far an attached input is, whether its stables count, and the output waits for it."""

    name: str
    attachment: int
    guarantee: int | None
    frontier: int
    joined: bool
    passed_over: bool = False


class State(Protocol):
    """What an operator remembers for one lane; `step` changes it in place."""

    @property
    def frontier(self) -> int:
        """How far the output is final."""

    @property
    def live(self) -> int:
        """How many events may still change, or are held back."""

    @property
    def inputs(self) -> Sequence[InputStatus]:
        """The attached inputs, in order; empty for an operator that has one input only."""

    @property
    def facts(self) -> Mapping[str, Any]:
        """What else a progress record shows of this operator, as JSON values."""

    def step(self, inputs: Inputs) -> StepResult:
        """Take what arrived, change the state, return the net change."""

    def parts(self, *, since: int | None = None) -> Saved:
        """The state in parts: all of them, or those that changed after a mark."""

    def check(self) -> None:
        """Assert every invariant; the message names it and both values."""


class Operator(Protocol):
    """The specification of an operator: frozen data that every lane of a run shares."""

    @property
    def name(self) -> str:
        """The word for it in messages and records, such as `merge`."""

    @property
    def schema(self) -> ElementSchema:
        """The columns of its inputs."""

    @property
    def output(self) -> ElementSchema | pa.Schema:
        """The columns of its output: of elements, or of rows that are not elements."""

    @property
    def route(self) -> Route:
        """What decides the lane of an element."""

    @property
    def route_columns(self) -> Sequence[str]:
        """The payload columns that decide the lane, if `route` is KEY."""

    def properties(self, *inputs: StreamProperties) -> StreamProperties:
        """What holds of a lane's output if this holds of its ports: too little, never more."""

    def empty(self) -> State:
        """A state to which nothing has happened."""

    def from_parts(self, parts: Mapping[str, bytes]) -> State:
        """The state that was saved; StateError if it is of another kind, version or schema."""


@dataclass(frozen=True)
class Port:
    """One named input of an operator: its columns, and what decides the lane of an element."""

    schema: ElementSchema
    route: Route = Route.IDENTITY
    route_columns: tuple[str, ...] = ()


@runtime_checkable
class HasPorts(Protocol):
    """An operator with inputs that differ, such as the sides of a join."""

    @property
    def ports(self) -> Mapping[str, Port]:
        """The inputs by name, in order; arrivals carry these names."""


INPUT: Final = "input"
"""The port of an operator whose inputs are all alike."""


def ports_of(operator: "Operator") -> Mapping[str, Port]:
    """The named inputs of an operator; one for all, if it does not distinguish them."""
    if isinstance(operator, HasPorts):
        return operator.ports
    return {INPUT: Port(operator.schema, operator.route, tuple(operator.route_columns))}


def count_buckets(buckets: Sequence[Codes]) -> dict[Bucket, int]:
    """How many elements are in each bucket.

    >>> count_buckets([np.array([0, 1, 1], dtype=np.int8)])[Bucket.ABSORBED]
    2
    """
    totals = np.zeros(len(Bucket), dtype=np.int64)
    for codes in buckets:
        totals += np.bincount(codes, minlength=len(Bucket))
    return {bucket: int(totals[bucket]) for bucket in Bucket}
