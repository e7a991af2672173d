"""The account of the reference merge as it grows: every element in one bucket, at any moment.

An element that is pending is counted as pending until it is resolved, and then moves to its
last bucket; so the buckets of a replica always add up to what came from it.  The output's
elements are those of the emitted inserts, the corrected adjusts and the emitted stables, and
the added ones of each kind, which no single input element asked for.

>>> from anabranch.model.element import Insert
>>> tally = Tally()
>>> tally.take("east", Insert("a", 3, 9), Reason.FIRST)
>>> tally.say(Insert("a", 3, 9))
>>> tally.buckets()[Bucket.EMITTED], tally.added(Insert), tally.chattiness(Insert)
(1, 0, 1.0)
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from anabranch.model.element import Adjust, Element, Insert, Stable
from anabranch.operators.contract import Bucket, Reason, Released
from anabranch.operators.reference.membership import Attachment

_ASKED_FOR: Final = {
    Insert: Reason.FIRST,
    Adjust: Reason.CORRECTED,
    Stable: Reason.LEADS,
}
"""The reason of the input element that stands behind an output element of each kind."""


@dataclass(slots=True)
class Tally:
    """Counts since the beginning."""

    reasons: dict[str, Counter[Reason]] = field(default_factory=dict)
    came: Counter[type[Element]] = field(default_factory=Counter)
    went: Counter[type[Element]] = field(default_factory=Counter)
    leader_changes: int = 0
    _leader: Attachment | None = None

    def take(self, replica: str, element: Element, reason: Reason) -> None:
        """An element came."""
        self.came[type(element)] += 1
        self.reasons.setdefault(replica, Counter())[reason] += 1

    def resolve(self, released: Released) -> None:
        """An element is no longer pending."""
        counts = self.reasons[released.replica]
        counts[Reason.HELD] -= 1
        counts[released.reason] += 1

    def say(self, element: Element) -> None:
        """An element went to the output."""
        self.went[type(element)] += 1

    def lead(self, leader: Attachment) -> None:
        """Count a change, if another replica moved the frontier last."""
        self.leader_changes += self._leader not in (None, leader)
        self._leader = leader

    def buckets(self, replica: str | None = None) -> dict[Bucket, int]:
        """How many elements are in each bucket, of one replica or of all."""
        names = self.reasons if replica is None else [replica]
        totals = dict.fromkeys(Bucket, 0)
        for name in names:
            for reason, count in self.reasons.get(name, {}).items():
                totals[reason.bucket] += count
        return totals

    def added(self, kind: type[Element]) -> int:
        """Elements of this kind on the output that no single input element asked for."""
        asked = _ASKED_FOR[kind]
        return self.went[kind] - sum(counts[asked] for counts in self.reasons.values())

    def chattiness(self, kind: type[Element]) -> float:
        """Elements of this kind that went out for each that came; 0 if none came."""
        return self.went[kind] / self.came[kind] if self.came[kind] else 0.0

    @property
    def saved(self) -> int:
        """How many elements fewer went out than came."""
        return self.came.total() - self.went.total()
