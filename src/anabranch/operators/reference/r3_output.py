"""The output of the reference merge R3: what it has emitted, and what it may still emit.

Every method of `Output` keeps the output's own promises: nothing appears or vanishes behind its
frontier, no end moves from or to there.  Which changes are wanted is decided by reconcile
(`r3`) and by the policy (`r3_view`).

Papers: LMerge IV-D, OutputInsert, OutputAdjust and OutputStable; errata D8 and L14.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from anabranch.model.element import Adjust, Element, Identity, Insert, Stable
from anabranch.model.frozen import may_insert
from anabranch.model.time import Time
from anabranch.operators.contract import Bucket, Reason, Released
from anabranch.operators.merge.policy import Adjusts, Inserts, Policy
from anabranch.operators.reference.membership import Attachment, ReferenceMerge, Replica

_ASKED_FOR: Final = {
    Insert: Reason.FIRST,
    Adjust: Reason.CORRECTED,
    Stable: Reason.LEADS,
}
"""The reason of the input element that stands behind an output element of each kind."""


@dataclass(slots=True)
class Tally:
    """Counts since the beginning: every element in one bucket, at any moment.

    An element that is pending is counted as pending until it is resolved, and then moves to its
    last bucket; so the buckets of a replica always add up to what came from it.  The output's
    elements are those of the emitted inserts, the corrected adjusts and the emitted stables,
    and the added ones of each kind, which no single input element asked for.

    >>> tally = Tally()
    >>> tally.take("east", Insert("a", 3, 9), Reason.FIRST)
    >>> tally.emit(Insert("a", 3, 9))
    >>> tally.buckets()[Bucket.EMITTED], tally.added(Insert), tally.chattiness(Insert)
    (1, 0, 1.0)
    """

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

    def emit(self, element: Element) -> None:
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


@dataclass(slots=True)
class Node:
    """One event that may still change: its end on the output, and what each replica has.

    `output_end` None: it is not on the output, and may still come there.  `held` are the
    inserts that are pending because of that.  `withdrawn`: it was on the output, and an adjust
    took it away; the next replica that mentions it, and has it, brings it back.
    """

    output_end: Time | None = None
    ends: dict[Attachment, Time] = field(default_factory=dict)
    in_conflict: bool = False
    withdrawn: bool = False
    held: dict[Attachment, Insert] = field(default_factory=dict)


class Output(ReferenceMerge):
    """The events, the account, and what was emitted since the last `_flush`."""

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        self.policy = policy
        self.nodes: dict[Identity, Node] = {}
        self.account = Tally()
        self._emitted: list[Element] = []
        self._resolved: list[Released] = []

    def _show(
        self, identity: Identity, node: Node, end: Time, *, credit: Attachment | None
    ) -> None:
        """Bring an event to the output; one held insert is emitted, the others are known."""
        self._emit(Insert(identity.payload, identity.start, end))
        node.output_end, node.withdrawn = end, False
        if credit not in node.held:
            credit = next(iter(node.held), None)
        for key in list(node.held):
            self._release(node, key, Reason.FIRST if key == credit else Reason.KNOWN)

    def _change(self, identity: Identity, node: Node, end: Time) -> None:
        """Give an event that is on the output this end; `end == start` removes it."""
        (start, payload), shown = identity, node.output_end
        if shown is None or end == shown:
            return
        if self.policy.shrink_only and end > shown and self._may_remove(start):
            self._emit(Adjust(payload, start, shown, start))
            self._emit(Insert(payload, start, end))
        else:
            self._emit(Adjust(payload, start, shown, end))
        node.output_end = end

    def _follow(
        self, identity: Identity, node: Node, end: Time, source: Replica, e: Adjust | None
    ) -> None:
        """Give an event the end that this replica has, if that is possible before reconcile.

        `e` is the element that asks for it, if one does.
        """
        start, shown = identity.start, node.output_end
        if shown is None or end == shown:
            return
        free = self._may_remove(start)
        if end == start:
            if free:
                self._change(identity, node, end)
                node.output_end, node.withdrawn = None, self.policy.adjusts is Adjusts.ALWAYS
            return
        # A shorter end that its replica can still take back would have to be lengthened again.
        lengthens = e is not None and e.end > e.old_end
        lasting = source.frontier > start and (end < shown or lengthens)
        if end >= self.frontier and (free or lasting or not self.policy.shrink_only):
            self._change(identity, node, end)

    def _may_remove(self, start: Time) -> bool:
        """Whether an event that starts then may leave the output."""
        free = may_insert(start, frontier=self.frontier)
        return free and self.policy.inserts is not Inserts.HALF_FROZEN

    def _move_to(self, time: Time, leader: Attachment) -> None:
        """Move the frontier, on behalf of this replica."""
        self.frontier = time
        self._emit(Stable(time))
        self.account.lead(leader)

    def _release(self, node: Node, key: Attachment, reason: Reason) -> None:
        """An insert of this replica, if it was held, is no longer."""
        if key in node.held:
            self._resolved.append(Released(key[0], node.held.pop(key), reason))

    def _recall(self, e: Insert) -> Reason:
        """The reason of an insert that was held for no longer than it took to look at it."""
        own = next(one for one in self._resolved if one.element is e)
        self._resolved.remove(own)
        return own.reason

    def _flush(self) -> tuple[tuple[Element, ...], tuple[Released, ...]]:
        """What was emitted, and which elements are no longer pending, since the last time."""
        emitted, resolved = tuple(self._emitted), tuple(self._resolved)
        self._emitted, self._resolved = [], []
        for one in resolved:
            self.account.resolve(one)
        return emitted, resolved

    def _emit(self, element: Element) -> None:
        self._emitted.append(element)
        self.account.emit(element)
