"""What merge owes its caller for every element: one bucket, one reason, and a valid output.

Contract of every merge, element by element or in steps; the law tests assert all but the last:

* Accounted: each input element is in exactly one bucket, so that the sums equal the input.
* Sealed: the output keeps its own promises (`model.history.replay` finds no violation),
  whatever the inputs do.
* Compatible: wherever output is visible it can still follow its inputs, if these agree.
* Tight: the output's frontier is the greatest frontier of the joined replicas.
* Deterministic: the same state and the same elements give the same result.
* Bounded: state is what can still change on the output, and the names of what some attached
  replica may still mention.  A silent replica holds the second part until it is detached.

`Outcome` is what the element-by-element form returns, `StepResult` what a step over batches
returns.  Only the net change of a step is visible, and its inserts are the `emitted` inserts
and the `added_inserts`, its adjusts the `corrected` ones and the `added_adjusts`.

Papers: LMerge IV and V; the buckets are ours.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Final, Literal, NamedTuple, TypeAlias

import numpy as np

from anabranch.batch.batch import Batch, Codes
from anabranch.model.element import Element

Granularity: TypeAlias = Literal["element", "batch"]
"""What a step shows: every element that its elements lead to, or only its net change."""


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
        "an adjust; R0 to R2 need replicas that only insert",
    )
    OUT_OF_ORDER = (21, Bucket.VIOLATION, "starts before an earlier insert of its replica")
    SAME_START = (
        22,
        Bucket.VIOLATION,
        "starts when an earlier insert of its replica does; R0 needs starts that increase",
    )
    HELD = (23, Bucket.PENDING, "held back until its replica is joined, or a policy shows it")
    EXPELLED = (24, Bucket.VIOLATION, "its replica was detached for an earlier violation")

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


@dataclass(frozen=True, eq=False)
class Arrival:
    """Elements of one replica, in their order, that reached the merge in this step.

    `guarantee` None: the replica is complete from the beginning.  A time t: it is right about
    every event with `end >= t`, and `joining` until the output's frontier reaches t;
    FOREVER_UNITS says that nothing is known.  Guarantee and attachment are read when an
    attachment is new; a greater attachment number of a known name replaces the old one.  An
    arrival with an empty batch announces its replica.
    """

    replica: str
    batch: Batch
    guarantee: int | None = None
    attachment: int = 1


@dataclass(frozen=True, eq=False)
class Resolved:
    """Elements of one replica that were `pending` after an earlier step, and no longer are.

    They come in the order in which they had arrived, each in one step only; `reasons` are the
    codes that they have now.  A replica's elements that are pending after a step are those that
    were before, and those that its buckets say, without these.
    """

    replica: str
    batch: Batch
    reasons: Codes

    @property
    def buckets(self) -> Codes:
        """The bucket of each element, which is no longer PENDING."""
        codes: Codes = BUCKET_OF[self.reasons]
        return codes


GAPS_SHOWN: Final = 20
"""So many gaps of a step are named; all are counted."""


@dataclass(frozen=True, slots=True)
class Gap:
    """An identity of the output that a deciding replica never mentioned.

    A hole in that replica, or an event that another replica invents and will take back: the two
    cannot be told apart when it is decided.
    """

    replica: str
    start: int
    payload: Hashable


@dataclass(frozen=True, eq=False)
class StepResult:
    """The net change of one step, and where each element of each arrival went.

    `output` has the data first, each identity at most once, then the stable if the frontier
    moved; it has no seq.  `buckets` and `reasons` are codes, aligned with the arrivals.
    `added_adjusts` are adjusts of the output that no single input adjust asked for.
    `conflicts` are events that the deciding replica denies although the output had promised
    them: they stay, and each is counted once.

    `resolved` are elements of earlier steps that were pending until this one; what they emit is
    part of `output`.  With the granularity `element` the output has every element that the
    element-by-element form has, in the same order, and so perhaps several stables; `stable` is
    the last.  `counts` are numbers of operations, free of noise, for benchmarks and tests.

    `added_inserts` are inserts of the output that no input element brought: `shrink_only` makes
    some, each after a removal, and policies that take events away and bring them back.

    `missing` are identities that a deciding replica never mentioned, once each; the first of
    them are named in `gaps`.
    """

    output: Batch
    buckets: tuple[Codes, ...]
    reasons: tuple[Codes, ...]
    stable: int | None
    added_adjusts: int
    conflicts: int
    resolved: tuple[Resolved, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    added_inserts: int = 0
    missing: int = 0
    gaps: tuple[Gap, ...] = ()


def count_buckets(buckets: Sequence[Codes]) -> dict[Bucket, int]:
    """How many elements are in each bucket.

    >>> count_buckets([np.array([0, 1, 1], dtype=np.int8)])[Bucket.ABSORBED]
    2
    """
    totals = np.zeros(len(Bucket), dtype=np.int64)
    for codes in buckets:
        totals += np.bincount(codes, minlength=len(Bucket))
    return {bucket: int(totals[bucket]) for bucket in Bucket}
