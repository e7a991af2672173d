"""Adds up the steps of an operator, and checks that no element is lost, doubled or unexplained.

The output must be what the reasons explain: its inserts are those that an element brought
(FIRST) and the `added_inserts`, its adjusts the corrected ones and the `added_adjusts`, its
stables at least those that moved the frontier when they came (one that had waited for its
replica to join was absorbed then).
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from anabranch.batch.batch import KINDS, STABLE, Codes
from anabranch.operators.contract import REASONS, Arrival, Bucket, Reason, StepResult


@dataclass
class StepAccount:
    """All steps so far; `read` and `written` count elements by kind."""

    elements: Counter[str] = field(default_factory=Counter)
    reasons: dict[str, Counter[Reason]] = field(default_factory=dict)
    read: Counter[str] = field(default_factory=Counter)
    written: Counter[str] = field(default_factory=Counter)
    added_adjusts: int = 0
    added_inserts: int = 0
    missing: int = 0

    def add(
        self, arrivals: Sequence[Arrival], result: StepResult, *, stables: bool = True
    ) -> None:
        """Add one step; `stables=False` if another lane counts them."""
        for arrival, reasons in zip(arrivals, result.reasons, strict=True):
            kind = arrival.batch.kind
            mine = kind >= 0 if stables else kind != STABLE
            self.elements[arrival.input] += int(mine.sum())
            self.read += _kinds(kind[mine])
            self._of(arrival.input).update(_reasons(reasons[mine]))
        for one in result.resolved:
            self._of(one.replica)[one.was] -= len(one.reasons)
            self._of(one.replica).update(_reasons(one.reasons))
        written = result.output.kind
        self.written += _kinds(written if stables else written[written != STABLE])
        self.added_adjusts += result.added_adjusts
        self.added_inserts += result.added_inserts
        self.missing += result.missing

    def _of(self, name: str) -> Counter[Reason]:
        return self.reasons.setdefault(name, Counter())

    def because(self, reason: Reason) -> int:
        """How many elements have this reason."""
        return sum(some[reason] for some in self.reasons.values())

    def bucket(self, bucket: Bucket) -> int:
        """How many elements are in this bucket."""
        return sum(self.because(reason) for reason in REASONS if reason.bucket is bucket)

    @property
    def adds_up(self) -> bool:
        """Every element is in one bucket, and the output is what the reasons explain."""
        return (
            all(sum(one.values()) == self.elements[name] for name, one in self.reasons.items())
            and all(count >= 0 for one in self.reasons.values() for count in one.values())
            and self.written["insert"] == self.because(Reason.FIRST) + self.added_inserts
            and self.written["adjust"] == self.bucket(Bucket.CORRECTED) + self.added_adjusts
            and self.written["stable"] >= self.because(Reason.LEADS)
        )

    @property
    def is_quiet(self) -> bool:
        """No more comes out than came in: the bounds of erratum L12."""
        return (
            self.written["insert"] <= self.read["insert"]
            and self.written["adjust"] <= self.read["insert"] + self.read["adjust"]
            and self.written["stable"] <= self.read["stable"]
        )

    def __add__(self, other: "StepAccount") -> "StepAccount":
        """The account of two lanes; one of them counts stables."""
        names = self.reasons | other.reasons
        return StepAccount(
            self.elements + other.elements,
            {name: self._of(name) + other._of(name) for name in names},
            self.read + other.read,
            self.written + other.written,
            self.added_adjusts + other.added_adjusts,
            self.added_inserts + other.added_inserts,
            self.missing + other.missing,
        )


def _kinds(kind: Codes) -> Counter[str]:
    counts = np.bincount(kind, minlength=len(KINDS)).tolist()
    return Counter(dict(zip(KINDS, counts, strict=True)))


def _reasons(codes: Codes) -> Counter[Reason]:
    return Counter(REASONS[code] for code in codes)
