"""Whether prefixes of streams are equivalent, consistent or compatible.

A prefix is judged by its `Replay`: history and frontier.  Nothing else matters for its future,
since any history can be reached by inserts and frozen by one stable.

* `equivalent`: the histories are equal.
* `equivalent_until`: they are equal as far as a stable at that time fixes them.
* `consistent`: some extensions of all prefixes have one history.
* `compatible`: whatever the inputs become together, the output can still become it too.

What a stable at L fixes of a history is its `settled` part: for each identity the ends that are
frozen, and how many more events are half frozen.  No extension changes it, and every history
with the same settled part can be reached.  So two prefixes can meet exactly when their settled
parts agree at the smaller frontier, and an output can follow exactly when it is not ahead of
the leading input and agrees with it (erratum L1: simpler than the paper's conditions, equal to
them for R3, right for R4 too).  `anabranch.testing.conditions` has the paper's own conditions.

Papers: LMerge III-B.

>>> from anabranch.model.notation import parse
>>> from anabranch.model.history import replay
>>> ahead, behind = (replay(parse(t)) for t in ("insert a 1..4; stable 3", "insert a 1..9"))
>>> compatible(behind, [ahead]), compatible(ahead, [behind])
(True, False)
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from anabranch.model.element import Identity
from anabranch.model.frozen import Status, status
from anabranch.model.history import History, Replay
from anabranch.model.time import NEVER, Time


class Settled(NamedTuple):
    """What is fixed of the events of one identity."""

    frozen: tuple[Time, ...] = ()
    """The ends that stay as they are, smallest first."""
    half_frozen: int = 0
    """How many more events stay, with ends still open."""


class Difference(NamedTuple):
    """An identity of which different things are fixed in two histories."""

    identity: Identity
    left: Settled
    right: Settled


def settled(history: History, frontier: Time) -> dict[Identity, Settled]:
    """What a stable at this time fixes of a history, for each identity with something fixed.

    >>> from anabranch.model.notation import parse_events
    >>> settled(History.from_events(parse_events("a 1..4; a 1..9; b 5..6")), 5)
    {Identity(start=1, payload='a'): Settled(frozen=(4,), half_frozen=1)}
    """
    fixed: dict[Identity, Settled] = {}
    for identity, ends in history.identities().items():
        found = [(status(identity.start, end, frontier=frontier), end) for end in ends]
        frozen = tuple(end for how, end in found if how is Status.FROZEN)
        half = sum(how is Status.HALF_FROZEN for how, _ in found)
        if frozen or half:
            fixed[identity] = Settled(frozen, half)
    return fixed


def differences_until(left: History, right: History, frontier: Time) -> list[Difference]:
    """Every identity of which a stable at this time would fix different things."""
    a, b = settled(left, frontier), settled(right, frontier)
    nothing = Settled()
    pairs = (
        Difference(one, a.get(one, nothing), b.get(one, nothing))
        for one in dict.fromkeys([*a, *b])
    )
    return [pair for pair in pairs if pair.left != pair.right]


def equivalent(left: Replay, right: Replay) -> bool:
    """Whether both prefixes stand for the same history; their frontiers do not matter."""
    return left.history == right.history


def equivalent_until(left: History, right: History, frontier: Time) -> bool:
    """Whether a stable at this time would fix the same of both.

    That is: identities that start before it have the same number of events, and the same ends
    before it.  At FOREVER this is equality.
    """
    return not differences_until(left, right, frontier)


def consistent(prefixes: Iterable[Replay]) -> bool:
    """Whether all these prefixes can still be extended to one history.

    Exact.  If they can, then to the history that the prefix with the greatest frontier has now:
    it needs no extension, and the others reach it when what they have fixed agrees with it.
    """
    known = list(prefixes)
    leader = leading(known)
    return all(_can_become(prefix, leader) for prefix in known)


def compatible(output: Replay, inputs: Sequence[Replay]) -> bool:
    """Whether the output can follow wherever the inputs go.

    Exact for consistent inputs, of R3 and R4 and any frontier of the output; inputs that are
    not consistent go nowhere together, and the answer is then about the leading one.  Without
    inputs only an output that has promised nothing can follow.
    """
    leader = leading(inputs)
    return output.frontier <= leader.frontier and _can_become(output, leader)


def leading(prefixes: Sequence[Replay]) -> Replay:
    """The first prefix with the greatest frontier; an empty one if there are none."""
    nothing = Replay(History({}), NEVER)
    return max(prefixes, key=lambda prefix: prefix.frontier, default=nothing)


def _can_become(prefix: Replay, other: Replay) -> bool:
    """Whether some extension of the prefix has the history of `other`, which is not behind."""
    return equivalent_until(prefix.history, other.history, prefix.frontier)
