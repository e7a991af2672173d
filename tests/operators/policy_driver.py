"""Drives the reference merge under any policy, keeping an account of its own beside it.

The promises of a policy are about what is held back after each element, and for which
replica: no engine reports that.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from hypothesis import strategies as st

from anabranch.model.element import Adjust, Element, Identity, Insert, Stable
from anabranch.model.history import History, Reader, Replay
from anabranch.model.time import Time
from anabranch.operators.contract import Bucket, Outcome, Reason, Released
from anabranch.operators.merge.policy import Adjusts, Follow, Inserts, Policy, Quorum
from anabranch.operators.reference.membership import Change
from anabranch.operators.reference.r3 import MergeR3

ASKED_FOR: dict[type[Element], Reason] = {
    Insert: Reason.FIRST,
    Adjust: Reason.CORRECTED,
    Stable: Reason.LEADS,
}
"""The reason of the input element that stands behind an output element of each kind."""

ADJUSTS: list[Adjusts | Follow] = [*Adjusts, Follow("r1")]
CHOOSING: list[Inserts | Quorum] = [Inserts.LEADER, Inserts.HIGHEST_START, Inserts.MOST_FREE]
INSERTS: list[Inserts | Quorum] = [
    Inserts.FIRST,
    *CHOOSING,
    Inserts.HALF_FROZEN,
    *(Quorum(0.3), Quorum(0.5), Quorum(1)),
]


def policies(
    adjusts: Sequence[Adjusts | Follow] = ADJUSTS,
    inserts: Sequence[Inserts | Quorum] = INSERTS,
) -> st.SearchStrategy[Policy]:
    """Policies with these parts, with and without a lag and shrink_only."""
    return st.builds(
        Policy,
        adjusts=st.sampled_from(adjusts),
        inserts=st.sampled_from(inserts),
        stable_lag=st.sampled_from([0, 0, 1, 4]),
        shrink_only=st.booleans(),
    )


@dataclass
class Run:
    """A merge, what came out of it, and where each element went according to its outcomes."""

    merge: MergeR3
    output: list[Element] = field(default_factory=list)
    fates: list[tuple[str, Element, Reason]] = field(default_factory=list)
    reader: Reader = field(default_factory=Reader)

    @classmethod
    def of(cls, policy: Policy, count: int) -> "Run":
        run = cls(MergeR3(policy=policy))
        for number in range(count):
            run.note(run.merge.attach(f"r{number}"))
        return run

    def take(self, number: int | str, element: Element) -> Outcome:
        name = number if isinstance(number, str) else f"r{number}"
        outcome = self.merge.push(name, element)
        self.fates.append((name, element, outcome.reason))
        self._emit(outcome.output)
        self._settle(outcome.resolved)
        self.merge.check()
        return outcome

    def note(self, change: Change) -> Change:
        self._emit(change.output)
        self._settle(change.resolved)
        self.merge.check()
        return change

    def _emit(self, elements: Sequence[Element]) -> None:
        for element in elements:
            self.output.append(element)
            self.reader.read(element)

    @property
    def seen(self) -> Replay:
        """What the output stands for."""
        return self.reader.replay()

    def _settle(self, resolved: Sequence[Released]) -> None:
        for replica, element, reason in resolved:
            assert reason.bucket is not Bucket.PENDING
            waiting = [
                number
                for number, (name, one, old) in enumerate(self.fates)
                if (name, old) == (replica, Reason.HELD) and one is element
            ]
            # An element is resolved once, and only if it was pending.
            assert len(waiting) == 1
            self.fates[waiting[0]] = (replica, element, reason)

    def buckets(self) -> Counter[Bucket]:
        """How many elements are in each bucket."""
        return Counter(reason.bucket for _, _, reason in self.fates)

    @property
    def came(self) -> Counter[type[Element]]:
        """How many elements of each kind came."""
        return Counter(type(element) for _, element, _ in self.fates)

    @property
    def went(self) -> Counter[type[Element]]:
        """How many elements of each kind went to the output."""
        return Counter(map(type, self.output))

    def added(self, kind: type[Element]) -> int:
        """Elements of this kind on the output that no single input element asked for."""
        return self.went[kind] - sum(reason is ASKED_FOR[kind] for _, _, reason in self.fates)

    @property
    def leader_changes(self) -> int:
        """How often another replica moved the frontier than the one before."""
        leaders = [name for name, _, reason in self.fates if reason is Reason.LEADS]
        return sum(one != other for one, other in pairwise(leaders))

    def judge_accounts(self) -> None:
        """Each element is in one bucket: what is pending is held, and the rest is explained."""
        held = [
            (key[0], e) for node in self.merge.nodes.values() for key, e in node.held.items()
        ]
        pending = [(name, e) for name, e, reason in self.fates if reason is Reason.HELD]
        assert Counter(held) == Counter(pending)
        for kind in ASKED_FOR:
            assert self.added(kind) >= 0

    def shown(self) -> dict[Identity, Time]:
        """The end of each event on the output."""
        return {event.identity: event.end for event in self.seen.history}

    def ends(self, replica: str) -> dict[Identity, Time]:
        """What this replica has of the events that may still change."""
        key = self.merge.replicas[replica].key
        return {
            identity: max(node.ends[key], default=identity.start)
            for identity, node in self.merge.nodes.items()
            if key in node.ends
        }


def histories_differ(output: Sequence[Element], truth: Sequence[Element]) -> bool:
    return History.of(output) != History.of(truth)


def shrinking(stream: Sequence[Element]) -> list[Element]:
    """The stream with each longer end as a removal and a new insert, and true stables."""
    found: list[Element] = []
    for e in stream:
        if isinstance(e, Adjust) and e.end > e.old_end:
            found += [
                Adjust(e.payload, e.start, e.old_end, e.start),
                Insert(e.payload, e.start, e.end),
            ]
        else:
            found.append(e)
    bound, kept = float("inf"), []
    for e in reversed(found):
        if isinstance(e, Stable):
            if e.time > bound:
                continue
        elif not e.changes_nothing:
            first = e.start if isinstance(e, Insert) else min(e.old_end, e.end)
            bound = min(bound, first)
        kept.append(e)
    return kept[::-1]
