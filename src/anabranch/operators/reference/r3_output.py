"""The output of the reference merge: what it has said, and what it may still say.

Every method keeps the output's own promises: nothing appears or vanishes behind its frontier,
no end moves from or to there.  It says nothing about which changes are wanted; that is asked
by reconcile (`r3`) and by the policy (`r3_view`).

Papers: LMerge IV-D, OutputInsert, OutputAdjust and OutputStable; errata D8 and L14.
"""

from anabranch.model.element import Adjust, Element, Identity, Insert, Stable
from anabranch.model.frozen import may_insert
from anabranch.model.time import NEVER, Time
from anabranch.operators.contract import Reason, Released
from anabranch.operators.merge.policy import Adjusts, Inserts, Policy
from anabranch.operators.reference.membership import Attachment, Replica
from anabranch.operators.reference.r3_view import Node
from anabranch.operators.reference.tally import Tally


class Output:
    """The frontier, the account, and what was said since the last `flush`."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.frontier: Time = NEVER
        self.account = Tally()
        self._said: list[Element] = []
        self._resolved: list[Released] = []

    def show(
        self, identity: Identity, node: Node, end: Time, *, credit: Attachment | None
    ) -> None:
        """Bring an event to the output; one held insert is emitted, the others are known."""
        self._say(Insert(identity.payload, identity.start, end))
        node.output_end, node.withdrawn = end, False
        if credit not in node.held:
            credit = next(iter(node.held), None)
        for key in list(node.held):
            self.release(node, key, Reason.FIRST if key == credit else Reason.KNOWN)

    def change(self, identity: Identity, node: Node, end: Time) -> None:
        """Give an event that is on the output this end; `end == start` removes it."""
        (start, payload), shown = identity, node.output_end
        if shown is None or end == shown:
            return
        if self.policy.shrink_only and end > shown and self.may_remove(start):
            self._say(Adjust(payload, start, shown, start))
            self._say(Insert(payload, start, end))
        else:
            self._say(Adjust(payload, start, shown, end))
        node.output_end = end

    def follow(
        self, identity: Identity, node: Node, end: Time, source: Replica, e: Adjust | None
    ) -> None:
        """Give an event the end that this replica says, if that is possible before reconcile.

        `e` is the element that asks for it, if one does.
        """
        start, shown = identity.start, node.output_end
        if shown is None or end == shown:
            return
        free = self.may_remove(start)
        if end == start:
            if free:
                self.change(identity, node, end)
                node.output_end, node.withdrawn = None, self.policy.adjusts is Adjusts.ALWAYS
            return
        # A shorter end that its replica can still take back would have to be lengthened again.
        lengthens = e is not None and e.end > e.old_end
        lasting = source.frontier > start and (end < shown or lengthens)
        if end >= self.frontier and (free or lasting or not self.policy.shrink_only):
            self.change(identity, node, end)

    def may_remove(self, start: Time) -> bool:
        """Whether an event that starts then may leave the output."""
        free = may_insert(start, frontier=self.frontier)
        return free and self.policy.inserts is not Inserts.HALF_FROZEN

    def advance(self, time: Time, leader: Attachment) -> None:
        """Move the frontier, on behalf of this replica."""
        self.frontier = time
        self._say(Stable(time))
        self.account.lead(leader)

    def release(self, node: Node, key: Attachment, reason: Reason) -> None:
        """An insert of this replica, if it was held, is no longer."""
        if key in node.held:
            self._resolved.append(Released(key[0], node.held.pop(key), reason))

    def recall(self, e: Insert) -> Reason:
        """The reason of an insert that was held for no longer than it took to look at it."""
        own = next(one for one in self._resolved if one.element is e)
        self._resolved.remove(own)
        return own.reason

    def flush(self) -> tuple[tuple[Element, ...], tuple[Released, ...]]:
        """What was said, and which elements are no longer pending, since the last time."""
        said, resolved = tuple(self._said), tuple(self._resolved)
        self._said, self._resolved = [], []
        for one in resolved:
            self.account.resolve(one)
        return said, resolved

    def _say(self, element: Element) -> None:
        self._said.append(element)
        self.account.say(element)
