"""The account of a merge: all its steps added up, and a check that nothing was lost or doubled.

Each step says where every element went; the account counts, for each replica, elements and
buckets apart, and compares them (`adds_up`).  It also compares the output with what the buckets
say of it: its inserts are those that an element brought and those that nobody asked for
(`added_inserts`), its adjusts the corrected ones and those that nobody asked for, its stables
at least those that moved the frontier when they came (one that had waited for its replica to
join was absorbed then, and comes out of nobody's element).

An element that was pending is moved to its bucket when a later step resolves it, so the sums
always speak of every element that has come, once.

* *saved*: elements that the output did not need, because it knew or did not have to say;
* *chattiness*: what came out per element that came in.  With the default policy no ratio is
  above 1 (erratum L12; the paper's Theorem 1 claims more and is wrong);
* *missing*: events of the output that a deciding replica never mentioned (V-C); the first of
  them are named in `gaps`;
* *leader changes*: how often another replica than before moved the frontier.

Lanes share their stables: one lane counts them (`stables=True`), the others do not, and
`combine` adds the lanes up.

Papers: LMerge V-A, Theorem 1 with erratum L12; the buckets are ours.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from anabranch.batch.batch import KINDS, STABLE, Codes, Mask
from anabranch.errors import UsageError
from anabranch.operators.merge.contract import (
    GAPS_SHOWN,
    REASONS,
    Arrival,
    Bucket,
    Gap,
    Reason,
    Resolved,
    StepResult,
)


@dataclass
class ReplicaAccount:
    """One replica: its elements, where they are, why, and how often it moved the frontier."""

    elements: int = 0
    reasons: Counter[Reason] = field(default_factory=Counter)

    @property
    def buckets(self) -> dict[Bucket, int]:
        """How many of its elements are in each bucket."""
        counts = dict.fromkeys(Bucket, 0)
        for reason, count in self.reasons.items():
            counts[reason.bucket] += count
        return counts

    @property
    def led(self) -> int:
        """How many of its stables moved the output's frontier."""
        return self.reasons[Reason.LEADS]

    @property
    def adds_up(self) -> bool:
        """Whether each element is in exactly one bucket, and none in fewer than no times."""
        counts = self.reasons.values()
        return sum(counts) == self.elements and min(counts, default=0) >= 0


@dataclass(frozen=True, slots=True)
class Chattiness:
    """What came out per element in: adjusts per insert or adjust, the others per like."""

    inserts: float
    adjusts: float
    stables: float

    @property
    def within_bounds(self) -> bool:
        """Whether the bounds of erratum L12 hold, as they do under the default policy."""
        return max(self.inserts, self.adjusts, self.stables) <= 1


@dataclass
class MergeAccount:
    """All steps of a merge so far; `read` and `written` count elements by kind."""

    replicas: dict[str, ReplicaAccount] = field(default_factory=dict)
    steps: int = 0
    read: Counter[str] = field(default_factory=Counter)
    written: Counter[str] = field(default_factory=Counter)
    emitted_inserts: int = 0
    added_adjusts: int = 0
    added_inserts: int = 0
    conflicts: int = 0
    missing: int = 0
    gaps: list[Gap] = field(default_factory=list)
    leader: str | None = None
    leader_changes: int = 0

    def add(
        self, arrivals: Sequence[Arrival], result: StepResult, *, stables: bool = True
    ) -> None:
        """Add one step; `stables=False` if another lane counts them."""
        if len(arrivals) != len(result.reasons):
            message = (
                f"account: {len(result.reasons)} columns of reasons for {len(arrivals)} "
                "arrivals; add a result with the arrivals of the same step"
            )
            raise UsageError(message)
        self.steps += 1
        for arrival, reasons in zip(arrivals, result.reasons, strict=True):
            kind = arrival.batch.kind
            self._count(
                arrival.replica, kind, reasons, kind >= 0 if stables else kind != STABLE
            )
        for one in result.resolved:
            self._resolve(one)
        kinds = np.bincount(result.output.kind, minlength=len(KINDS))
        if not stables:
            kinds[STABLE] = 0
        self.written.update(dict(zip(KINDS, kinds.tolist(), strict=True)))
        self.added_adjusts += result.added_adjusts
        self.added_inserts += result.added_inserts
        self.conflicts += result.conflicts
        self._miss(result.missing, result.gaps)

    def _count(self, name: str, kind: Codes, reasons: Codes, counted: Mask) -> None:
        replica = self.replicas.setdefault(name, ReplicaAccount())
        kinds = np.bincount(kind[counted], minlength=len(KINDS))
        replica.elements += int(kinds.sum())
        self.read.update(dict(zip(KINDS, kinds.tolist(), strict=True)))
        replica.reasons.update(_counts(reasons[counted]))
        self.emitted_inserts += _emitted(reasons)
        if (reasons[counted] == Reason.LEADS.code).any():
            # Within a step a replica may lead several times in a row; that is one lead.
            self.leader_changes += self.leader not in (None, name)
            self.leader = name

    def _miss(self, count: int, gaps: Iterable[Gap]) -> None:
        """Count events that a deciding replica never mentioned; keep the first of them."""
        self.missing += count
        self.gaps += [*gaps][: max(0, GAPS_SHOWN - len(self.gaps))]

    def _resolve(self, one: Resolved) -> None:
        replica = self.replicas.setdefault(one.replica, ReplicaAccount())
        replica.reasons.update(_counts(one.reasons))
        self.emitted_inserts += _emitted(one.reasons)
        pending = [reason for reason in REASONS if reason.bucket is Bucket.PENDING]
        left = len(one.reasons)
        for reason in pending:
            gone = min(left, replica.reasons[reason])
            replica.reasons[reason] -= gone
            left -= gone
        # More resolved than were pending: kept as a debt, so that the sums do not add up.
        replica.reasons[pending[0]] -= left

    @property
    def elements(self) -> int:
        """Elements of all replicas."""
        return sum(replica.elements for replica in self.replicas.values())

    def bucket(self, bucket: Bucket) -> int:
        """Elements of all replicas in one bucket."""
        return sum(replica.buckets[bucket] for replica in self.replicas.values())

    @property
    def saved(self) -> int:
        """Elements that needed no output."""
        return self.bucket(Bucket.ABSORBED)

    @property
    def led(self) -> int:
        """Stables that moved the output's frontier when they came."""
        return sum(replica.led for replica in self.replicas.values())

    @property
    def adds_up(self) -> bool:
        """Whether every element is in one bucket, and the output is what the buckets say."""
        adjusts = self.bucket(Bucket.CORRECTED) + self.added_adjusts
        return (
            all(replica.adds_up for replica in self.replicas.values())
            and self.elements == self.read.total()
            and self.written["insert"] == self.emitted_inserts + self.added_inserts
            and self.written["adjust"] == adjusts
            and self.written["stable"] >= self.led
        )

    @property
    def chattiness(self) -> Chattiness:
        """What came out per element that came in."""
        read, written = self.read, self.written
        return Chattiness(
            _per(written["insert"], read["insert"]),
            _per(written["adjust"], read["insert"] + read["adjust"]),
            _per(written["stable"], read["stable"]),
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values that JSON has; the names are those of the progress records."""
        chatty = self.chattiness
        return {
            "steps": self.steps,
            "elements": self.elements,
            "adds_up": self.adds_up,
            "replicas": {name: _replica(one) for name, one in sorted(self.replicas.items())},
            "read": {kind: self.read[kind] for kind in KINDS},
            "written": {kind: self.written[kind] for kind in KINDS},
            "saved": self.saved,
            "added_adjusts": self.added_adjusts,
            "added_inserts": self.added_inserts,
            "conflicts": self.conflicts,
            "missing": self.missing,
            "gaps": [[gap.replica, gap.start, str(gap.payload)] for gap in self.gaps],
            "leader": self.leader,
            "leader_changes": self.leader_changes,
            "chattiness": {
                "inserts": _finite(chatty.inserts),
                "adjusts": _finite(chatty.adjusts),
                "stables": _finite(chatty.stables),
            },
        }


def combine(accounts: Iterable[MergeAccount]) -> MergeAccount:
    """The account of a merge in lanes, from the account of each; one lane counts stables."""
    total = MergeAccount()
    for one in accounts:
        total.steps = max(total.steps, one.steps)
        for name, replica in one.replicas.items():
            known = total.replicas.setdefault(name, ReplicaAccount())
            known.elements += replica.elements
            known.reasons.update(replica.reasons)
        total.read.update(one.read)
        total.written.update(one.written)
        total.emitted_inserts += one.emitted_inserts
        total.added_adjusts += one.added_adjusts
        total.added_inserts += one.added_inserts
        total.conflicts += one.conflicts
        total._miss(one.missing, one.gaps)
        total.leader = one.leader or total.leader
        total.leader_changes += one.leader_changes
    return total


def _counts(reasons: Codes) -> dict[Reason, int]:
    found = np.bincount(reasons, minlength=len(REASONS)).tolist()
    return {reason: count for reason, count in zip(REASONS, found, strict=True) if count}


def _emitted(reasons: Codes) -> int:
    """How many of these brought an event; an adjust may, of one that a policy took away."""
    return int(np.count_nonzero(reasons == Reason.FIRST.code))


def _per(written: int, read: int) -> float:
    if not read:
        return math.inf if written else 0.0
    return written / read


def _finite(ratio: float) -> float | None:
    """JSON has no infinity."""
    return ratio if math.isfinite(ratio) else None


def _replica(one: ReplicaAccount) -> dict[str, Any]:
    buckets = {bucket.word: count for bucket, count in one.buckets.items()}
    return {"elements": one.elements, **buckets, "led": one.led}
