"""The common part of the reference merges: membership, the leader, rejected elements.

A replica that attaches with a guarantee t is right about every event with `end >= t`; it is
joining until the output's frontier reaches t, then joined.  Only joined replicas lead.  Each
attachment is new, also that of a known name: nothing that an older one brought counts (L8).

If replicas are attached and none of them is joined, nothing can progress: that is an `Alarm`.
Where the policy allows it, and a replica was joined before, the joining replica with the
smallest guarantee is promoted: joined early, though it need not know what ends before its
guarantee.  Times in `[frontier, guarantee)` are then reported as a `Stretch` that may be wrong
(D5); at all others the output is right.

Where replicas may have gaps, the output waits for all joined replicas and not only for the
first (`Membership.reach`).  One that was passed over is not waited for, until it has moved and
has reached the output's frontier.

Papers: LMerge V-B, with errata L8, L9 and D5.
"""

from collections import Counter, deque
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from anabranch.errors import UsageError
from anabranch.model.element import Adjust, Element, Identity, Insert
from anabranch.model.time import FOREVER, NEVER, Time
from anabranch.operators.contract import Reason, Released

Attachment: TypeAlias = tuple[str, int]
"""A replica's name and the number of this attachment of it (erratum L8)."""


@dataclass(slots=True)
class Replica:
    """One attachment, as we know it.  While it joins, `frontier` is its pending stable.

    `highest_start` is that of its inserts.  `promoted_from` is the guarantee of one that was
    promoted: it need not know what ends before that.  `passed_at` is where one was that the
    output does not wait for.  For R0 to R2: `brought` is what it has of the current start,
    `held` are the inserts that wait while it joins.
    """

    key: Attachment
    guarantee: Time | None
    frontier: Time = NEVER
    last_seq: int | None = None
    highest_start: Time = NEVER
    promoted_from: Time = NEVER
    passed_at: Time | None = None
    brought: Counter[Hashable] = field(default_factory=Counter)
    held: deque[Insert] = field(default_factory=deque)

    @property
    def name(self) -> str:
        """The replica's."""
        return self.key[0]

    def is_joined(self, frontier: Time) -> bool:
        """Whether its stables count (erratum L9: from frontier >= guarantee on)."""
        return self.guarantee is None or self.guarantee <= frontier

    @property
    def complete_from(self) -> Time:
        """It may omit, or have wrongly, what ends before this; NEVER if it is complete."""
        return self.promoted_from if self.guarantee is None else self.guarantee

    def consumes(self, seq: int | None) -> bool:
        """Whether an element with this seq is new; it is consumed from now on."""
        if seq is None:
            return True
        is_new = self.last_seq is None or seq > self.last_seq
        self.last_seq = seq if is_new else self.last_seq
        return is_new

    def refuses(self, e: Insert | Adjust, *, inferred: bool = False) -> Reason | None:
        """Why an element cannot change anything, whatever events there are; None: it can.

        A stable that a clock inferred binds no element (`inferred`).
        """
        old_end = e.start if isinstance(e, Insert) else e.old_end
        if e.end < e.start:
            return Reason.BACKWARDS
        if e.end == old_end:
            return Reason.NO_CHANGE
        is_behind = min(old_end, e.end) < self.frontier and not inferred
        return Reason.BEHIND_STABLE if is_behind else None


class Alarm(NamedTuple):
    """Nothing can progress: all attached replicas are joining.

    The output stands at `frontier`; `replica` has the smallest guarantee.  Attach a complete
    replica, or one with a guarantee that is not beyond the frontier, or allow promotion.
    """

    frontier: Time
    replica: str
    guarantee: Time


class Stretch(NamedTuple):
    """Times in `[start, end)`, at which the output may miss events, or have them too long.

    `replica` was promoted, and need not know what ended then.
    """

    start: Time
    end: Time
    replica: str


class Change(NamedTuple):
    """What attaching or detaching a replica did to the output, and to what was pending."""

    output: tuple[Element, ...]
    resolved: tuple[Released, ...]


@dataclass(slots=True)
class Membership:
    """The replicas in the order of attaching, and what became of some."""

    replicas: dict[str, Replica] = field(default_factory=dict)
    expelled: dict[str, int] = field(default_factory=dict)
    stretches: list[Stretch] = field(default_factory=list)
    had_joined: bool = False

    def attach(self, name: str, *, guarantee: Time | None, attachment: int) -> None:
        """Add a replica; one of this name must have left, or have a smaller number."""
        known = self.replicas.get(name)
        last = known.key[1] if known is not None else self.expelled.get(name)
        if last is not None and attachment <= last:
            message = (
                f"merge: replica '{name}' attaches with number {attachment}, but number "
                f"{last} was attached before; give each attachment a greater number"
            )
            raise UsageError(message)
        self.replicas.pop(name, None)
        self.expelled.pop(name, None)
        self.replicas[name] = Replica((name, attachment), guarantee)

    def note_joined(self, frontier: Time) -> None:
        """Only who has joined moves a frontier."""
        self.had_joined = self.had_joined or frontier > NEVER

    def expel(self, name: str) -> None:
        """Remember that no element of this replica counts until it attaches again."""
        self.expelled[name] = self.replicas[name].key[1]

    def joined(self, frontier: Time) -> list[Replica]:
        """Whose stables count, now that the output is at this frontier."""
        return [one for one in self.replicas.values() if one.is_joined(frontier)]

    def leader(self, frontier: Time, *, before: Attachment | None = None) -> Replica | None:
        """The joined replica with the greatest frontier (of equals, the one before)."""
        return first_of(self.joined(frontier), lambda one: one.frontier, before)

    def pass_over(self, name: str) -> None:
        """Do not wait for this replica until it has caught up; one that has ended has."""
        if name in self.replicas and self.replicas[name].frontier != FOREVER:
            self.replicas[name].passed_at = self.replicas[name].frontier

    def await_again(self, name: str) -> None:
        """Wait for this replica from now on, wherever it is."""
        if name in self.replicas:
            self.replicas[name].passed_at = None

    def reach(self, frontier: Time, *, wait: Time | None) -> Time:
        """How far the output may be final, if any joined replica may have what others lack.

        That is the least of their frontiers, but at least the greatest less `wait`.  One that
        has ended (FOREVER) is at no time from which a distance could be measured.
        """
        joined = self.joined(frontier)
        for one in joined:
            has_moved = one.passed_at is not None and one.frontier > one.passed_at
            if has_moved and one.frontier >= frontier:
                one.passed_at = None
        least = min((one.frontier for one in joined if one.passed_at is None), default=NEVER)
        if wait is None:
            return least
        moving = [one.frontier for one in joined if one.frontier != FOREVER]
        return max(least, max(moving, default=NEVER) - wait)

    def alarm(self, frontier: Time) -> Alarm | None:
        """The joining replicas, if some are attached and none is joined."""
        if not self.replicas or self.joined(frontier):
            return None
        first = min(self.replicas.values(), key=_guarantee)
        return Alarm(frontier, first.key[0], _guarantee(first))

    def succeed(self, frontier: Time) -> None:
        """Promote the replica with the smallest guarantee, if nobody else is left."""
        self.had_joined = self.had_joined or bool(self.joined(frontier))
        alarm = self.alarm(frontier)
        if alarm is not None and self.had_joined:
            self.promote(alarm.replica, frontier)

    def promote(self, name: str, frontier: Time) -> None:
        """Let a replica be joined early; one that is joined already stays as it is."""
        promoted = self.replicas[name]
        if promoted.guarantee is not None and promoted.guarantee > frontier:
            self.stretches.append(Stretch(frontier, promoted.guarantee, name))
            promoted.promoted_from, promoted.guarantee = promoted.guarantee, None

    @property
    def slowest(self) -> Time:
        """The smallest frontier; nobody is never slow."""
        return min((one.frontier for one in self.replicas.values()), default=FOREVER)


class ReferenceMerge:
    """The state that every reference has.

    `settled` are the identities that are final and that a replica may still mention, with their
    last end.  `forgotten`: what ended before this is not among them, although a replica may
    still mention it, since that is further behind the frontier than is to be remembered (NEVER:
    nothing).  `missing` has (replica, identity) for each identity of the output that a deciding
    replica never mentioned, when it became half frozen or was frozen; where replicas may have
    gaps, for each joined replica and each event that it lacks.  `alone` counts the events that
    only one of several replicas had.
    """

    def __init__(self) -> None:
        self.members = Membership()
        self.frontier: Time = NEVER
        self.settled: dict[Identity, Time] = {}
        self.forgotten: Time = NEVER
        self.conflicts = 0
        self.missing: list[tuple[str, Identity]] = []
        self.alone: Counter[str] = Counter()

    @property
    def replicas(self) -> dict[str, Replica]:
        """The attached replicas, in the order of attaching."""
        return self.members.replicas

    @property
    def alarm(self) -> Alarm | None:
        """Set while replicas are attached and none of them can move the output (D5)."""
        return self.members.alarm(self.frontier)

    @property
    def stretches(self) -> tuple[Stretch, ...]:
        """Times at which the output may be wrong, because a replica had to be promoted."""
        return tuple(self.members.stretches)

    def is_joined(self, replica: str) -> bool:
        """Whether this replica's stables count (erratum L9: from frontier >= guarantee on)."""
        return self.replicas[replica].is_joined(self.frontier)

    def _count_gaps(self, identity: Identity, events: Mapping[Attachment, int]) -> None:
        """Count who lacks events that the frontier passes, or alone has them.

        `events` are how many each replica has.  A replica that may still bring them (it was
        not waited for), or that was promoted and need not know them, is no evidence.
        """
        start = identity.start
        joined = [one for one in self.replicas.values() if one.is_joined(self.frontier)]
        sure = [one for one in joined if one.complete_from <= start < one.frontier]
        most = max((events.get(one.key, 0) for one in joined), default=0)
        for one in sure:
            self.missing += [(one.name, identity)] * (most - events.get(one.key, 0))
        first = next((one for one in joined if events.get(one.key, 0) == most), None)
        others = [one for one in joined if one is not first]
        if first is not None and others and all(one in sure for one in others):
            more = most - max(events.get(one.key, 0) for one in others)
            self.alone[first.name] += more

    def _too_late(self, identity: Identity) -> Reason:
        if identity in self.settled:
            return Reason.SETTLED
        return Reason.FORGOTTEN if identity.start < self.forgotten else Reason.LATE

    def _forget_settled(self, *, remember: Time | None = None) -> None:
        """Drop what no attached replica may still mention, if it keeps its promises.

        Also what ends more than `remember` before the frontier.  From an output that has ended
        (FOREVER) no distance can be measured.
        """
        slowest = self.members.slowest
        if remember is not None and self.frontier not in (NEVER, FOREVER):
            limit = self.frontier - remember
            if limit > slowest:
                self.forgotten = max(self.forgotten, limit)
        self.settled = {
            identity: end
            for identity, end in self.settled.items()
            if end >= max(slowest, self.forgotten) and slowest != FOREVER
        }


def first_of(
    replicas: list[Replica], score: Callable[[Replica], Time], before: Attachment | None
) -> Replica | None:
    """The replica with the greatest score; of equals the one before, else the first."""
    best = max(replicas, key=score, default=None)
    held = next((one for one in replicas if one.key == before), best)
    return held if held is None or best is None or score(held) >= score(best) else best


def _guarantee(replica: Replica) -> Time:
    return NEVER if replica.guarantee is None else replica.guarantee
