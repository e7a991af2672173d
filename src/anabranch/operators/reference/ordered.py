"""What the merges R0, R1 and R2 have in common, one element at a time: members and promises.

For replicas that only insert, in the order of their starts.  The output is ordered too: it has
a *current start*, the greatest start on it, and nothing is inserted behind that.  Each case has
its own rule for what is at the current start (`r0`, `r1`, `r2`); all else is here.

* What breaks a promise of its own replica is a violation and changes nothing: an adjust, an
  insert behind the replica's own stable, or one that starts before an earlier one.
* An insert behind the output's frontier is never emitted (erratum L5).
* A joining replica's inserts are held back and decided when it joins, in their order; its
  stables wait.  What starts before the frontier or the current start can no longer be emitted,
  whatever happens, and is decided as soon as that is so (erratum L9).
* What is behind the current start is `late`, for nothing is remembered of it.

* With `stable_lag` the output's frontier stays so far behind the replicas'.  With `promote`, if
  all that are joined have left, the joining one with the smallest guarantee is believed: events
  that ended before it may then be missing (`stretches`), and nothing else can be wrong, since
  what is on the output never changes.

A gap cannot be seen: a replica without an event looks like one that has none.  What another
replica brings is on the output if it comes before a greater start does (LMerge V-C).

Papers: LMerge IV-A to IV-C, V-B, V-C (MaxStable is `frontier`, MaxVs is `current`).
"""

from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from operator import itemgetter

from anabranch.errors import UsageError
from anabranch.model.element import Adjust, Element, Insert, Stable
from anabranch.model.time import FOREVER, NEVER, Time
from anabranch.operators.contract import Outcome, Reason, Released
from anabranch.operators.reference.membership import Alarm, Stretch


@dataclass(slots=True)
class Source:
    """One attachment of a replica; all that it said goes when it is detached (erratum L7).

    While it joins, `frontier` is the stable that waits, and `held` the inserts that do.  `said`
    is what it has brought of the current start.
    """

    name: str
    attachment: int
    guarantee: Time | None
    frontier: Time = NEVER
    last_start: Time = NEVER
    last_seq: int | None = None
    said: Counter[Hashable] = field(default_factory=Counter)
    held: deque[Insert] = field(default_factory=deque)


class OrderedMerge(ABC):
    """The state of the reference merge; `push` is the only step."""

    starts_increase = False
    """Whether two inserts of one replica with one start are a violation."""

    def __init__(self, *, stable_lag: int = 0, promote: bool = False) -> None:
        self.stable_lag = stable_lag
        self.promotes = promote
        self.stretches: list[Stretch] = []
        self.had_joined = False
        self.frontier: Time = NEVER
        self.current: Time = NEVER
        self.replicas: dict[str, Source] = {}
        self.conflicts = 0
        self.released: list[Released] = []

    @abstractmethod
    def _take(self, e: Insert, source: Source) -> Reason:
        """The case's own rule; FIRST says that the insert goes to the output."""

    def attach(
        self, replica: str, *, guarantee: Time | None = None, attachment: int = 1
    ) -> None:
        """Let a replica take part, or replace its old attachment by a new one."""
        known = self.replicas.get(replica)
        if known is not None and attachment <= known.attachment:
            message = (
                f"merge: replica '{replica}' attaches with number {attachment}, but number "
                f"{known.attachment} was attached before; give each attachment a greater number"
            )
            raise UsageError(message)
        self._forget(replica)
        self.replicas[replica] = Source(replica, attachment, guarantee)
        self._succeed()

    def detach(self, replica: str) -> None:
        """Forget what this replica said; what it brought to the output stays."""
        self._forget(replica)
        self._succeed()

    def _forget(self, replica: str) -> None:
        left = self.replicas.pop(replica, None)
        if left is not None:
            self.released += [Released(replica, e, Reason.ABANDONED) for e in left.held]

    @property
    def alarm(self) -> Alarm | None:
        """Set while replicas are attached and none of them can move the output (D5)."""
        if not self.replicas or any(map(self.is_joined, self.replicas.values())):
            return None
        waiting = [(one.guarantee, one.name) for one in self.replicas.values()]
        guarantee, name = min(
            ((time, name) for time, name in waiting if time is not None), key=itemgetter(0)
        )
        return Alarm(self.frontier, name, guarantee)

    def _succeed(self) -> None:
        """By policy, promote the replica with the smallest guarantee if nobody else is left."""
        if self.promotes and self.alarm is not None and self.had_joined:
            self.promote(self.alarm.replica)
        joined = any(map(self.is_joined, self.replicas.values()))
        self.had_joined = self.had_joined or joined

    def promote(self, replica: str) -> None:
        """Believe a joining replica from now on; what is before its guarantee may be missing.

        What it has waiting comes out with the next element of any replica.
        """
        source = self.replicas[replica]
        if source.guarantee is not None and source.guarantee > self.frontier:
            self.stretches.append(Stretch(self.frontier, source.guarantee, replica))
            source.guarantee = None

    def is_joined(self, source: Source) -> bool:
        """Whether this replica is believed (erratum L9: from frontier >= guarantee on)."""
        return source.guarantee is None or source.guarantee <= self.frontier

    def push(self, replica: str, element: Element, *, seq: int | None = None) -> Outcome:
        """Take a replica's next element; an unknown replica is complete from the beginning."""
        if replica not in self.replicas:
            self.attach(replica)
        output = self._advance()
        reason = self._judge(element, self.replicas[replica], seq)
        if reason is Reason.FIRST:
            output.append(element)
        output += self._advance()
        resolved, self.released = tuple(self.released), []
        return Outcome(reason, tuple(output), resolved)

    def _judge(self, element: Element, source: Source, seq: int | None) -> Reason:
        if seq is not None:
            if source.last_seq is not None and seq <= source.last_seq:
                return Reason.REDELIVERY
            source.last_seq = seq
        if isinstance(element, Insert):
            return self._insert(element, source)
        if isinstance(element, Adjust):
            return Reason.NOT_INSERT_ONLY
        return self._stable(element, source)

    def _insert(self, e: Insert, source: Source) -> Reason:
        if e.end <= e.start:
            return Reason.BACKWARDS if e.end < e.start else Reason.NO_CHANGE
        if e.start < source.frontier:
            return Reason.BEHIND_STABLE
        if e.start < source.last_start:
            return Reason.OUT_OF_ORDER
        if e.start == source.last_start and self.starts_increase:
            return Reason.SAME_START
        source.last_start = e.start
        if self.is_joined(source) or e.start < max(self.frontier, self.current):
            return self._decide(e, source)
        source.held.append(e)
        return Reason.HELD

    def _stable(self, e: Stable, source: Source) -> Reason:
        if e.time <= source.frontier:
            return Reason.FOLLOWS
        source.frontier = e.time
        if not self.is_joined(source):
            return Reason.JOINING
        return Reason.LEADS if e.time - self.stable_lag > self.frontier else Reason.FOLLOWS

    def _advance(self) -> list[Element]:
        """Move the frontier as far as the joined replicas allow, and decide what was held.

        A stable may let a replica join, whose inserts and whose stable then count as well.
        """
        output: list[Element] = []
        while True:
            for source in self.replicas.values():
                until = FOREVER if self.is_joined(source) else self.frontier
                output.extend(self._release(source, until))
            joined = (s.frontier for s in self.replicas.values() if self.is_joined(s))
            time = max(joined, default=NEVER) - self.stable_lag
            if time <= self.frontier:
                return output
            self.frontier = time
            output.append(Stable(time))

    def _release(self, source: Source, until: Time) -> Iterator[Element]:
        while source.held and source.held[0].start < until:
            e = source.held.popleft()
            reason = self._decide(e, source)
            self.released.append(Released(source.name, e, reason))
            if reason is Reason.FIRST:
                yield e

    def _open(self, start: Time) -> None:
        """A new current start, of which nobody has said anything."""
        self.current = start
        for source in self.replicas.values():
            source.said.clear()

    def _decide(self, e: Insert, source: Source) -> Reason:
        reason = self._take(e, source)
        self.conflicts += reason is Reason.OTHER_EVENT
        return reason
