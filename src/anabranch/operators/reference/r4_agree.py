"""Reconcile of merge R4: the corrections of one identity before a stable is emitted.

`have` are the ends of the output's events of an identity, `want` those of the replica that
decides, both as bags.  What both have is left alone; of the rest

    a wanted end before the stable takes the smallest end that is too many,
    then an end before the stable that is too many takes the smallest that is wanted,
    then, if the identity is still free, removals make the counts equal.

Each event of the output is touched at most once, in ascending order (erratum L11).  Ends that
both lie at or beyond the stable may still differ: there is time.

Of an identity that is half frozen the output has promised something, and that stays (L4).  An
end before its frontier cannot change.  It takes the place of a wanted end that is before the
frontier too, or for which the output has no other event: ends that can still change go first.
A wanted end before the frontier for which there is no such partner is read as the frontier.
What the deciding replica need not know (`heeded`, L9) takes no place at all.

With `shrink_only` an identity that becomes half frozen is made equal to the deciding replica's:
an end that is too late is shortened, one that is too early is removed and inserted again (L14).

Papers: LMerge IV-E, AdjustOutputCount and AdjustOutput; V-B.

>>> owed(Counter([2, 5]), Counter([3, 9]), free=True, frontier=0, time=4)
[NewEnd(old_end=2, end=3)]
"""

from collections import Counter
from typing import NamedTuple

from anabranch.model.time import Time


class NewEnd(NamedTuple):
    """Another end for an event of the output; new without `old_end`, gone without `end`."""

    old_end: Time | None
    end: Time | None


def owed(
    have: Counter[Time],
    want: Counter[Time],
    *,
    free: bool,
    frontier: Time,
    time: Time,
    shrink_only: bool = False,
) -> list[NewEnd]:
    """The changes, in the order in which they are sent."""
    extra, lack = differences(have, want)
    if free and shrink_only:
        return _made_equal(extra, lack)
    if not free:
        extra, lack = _within_promise(extra, lack, frontier)
    changes: list[NewEnd] = []
    while lack and lack[0] < time:
        end = lack.pop(0)
        if extra:
            changes.append(NewEnd(extra.pop(0), end))
        elif free:
            changes.append(NewEnd(None, end))
    while extra and extra[0] < time:
        old_end = extra.pop(0)
        if lack:
            changes.append(NewEnd(old_end, lack.pop(0)))
        elif free:
            changes.append(NewEnd(old_end, None))
    if free:
        surplus = len(extra) - len(lack)
        changes += [NewEnd(old_end, None) for old_end in extra[: max(surplus, 0)]]
        changes += [NewEnd(None, end) for end in lack[: max(-surplus, 0)]]
    return changes


def heeded(
    have: Counter[Time], want: Counter[Time], *, frontier: Time, guarantee: Time
) -> tuple[Counter[Time], Counter[Time]]:
    """The ends of a half-frozen identity that must agree with the deciding replica.

    A deciding replica with a guarantee (erratum L9) may omit what ends before that, and may
    have events there that never were true.  Where such ends are frozen on the output, neither
    side counts. If the guarantee is beyond the frontier (D5), the deciding replica's events
    that end before it, and that the output has no event for, are left out, the smallest first.

    >>> heeded(Counter([2, 5]), Counter([9]), frontier=3, guarantee=3)
    (Counter({5: 1}), Counter({9: 1}))
    >>> heeded(Counter([2, 8]), Counter([4, 7]), frontier=3, guarantee=5)
    (Counter({8: 1}), Counter({7: 1}))
    """
    since = min(frontier, guarantee)
    have, want = (
        Counter({end: count for end, count in bag.items() if end >= since})
        for bag in (have, want)
    )
    unsure = sorted(end for end in want.elements() if end < guarantee)
    surplus = max(want.total() - have.total(), 0)
    return have, want - Counter(unsure[:surplus])


def spared(have: Counter[Time], want: Counter[Time]) -> list[Time]:
    """The ends of events that a promoted deciding replica need not have, ascending.

    As many as the output has more events; the smallest ends are the likeliest to be before the
    deciding replica's guarantee.

    >>> spared(Counter([3, 5, 9]), Counter([7, 9]))
    [3]
    """
    extra, lack = differences(have, want)
    return extra[: max(len(extra) - len(lack), 0)]


def differences(have: Counter[Time], want: Counter[Time]) -> tuple[list[Time], list[Time]]:
    """The ends that are too many and those that are lacking, both ascending."""
    return sorted((have - want).elements()), sorted((want - have).elements())


def is_denied(have: Counter[Time], want: Counter[Time], *, frontier: Time) -> bool:
    """Whether the deciding replica cannot have promised what an output at this frontier has."""
    extra, lack = differences(have, want)
    return len(extra) != len(lack) or any(end < frontier for end in extra + lack)


def _within_promise(
    extra: list[Time], lack: list[Time], frontier: Time
) -> tuple[list[Time], list[Time]]:
    fixed, ended = (sum(end < frontier for end in ends) for ends in (extra, lack))
    may_change = extra[fixed:]
    taken = min(fixed, max(ended, len(lack) - len(may_change)))
    wanted = Counter(max(end, frontier) for end in lack[taken:])
    return differences(Counter(may_change), wanted)


def _made_equal(extra: list[Time], lack: list[Time]) -> list[NewEnd]:
    """Shorten where that is possible; what is left is removed, then inserted."""
    shortened, inserted, removed = [], [], []
    for end in lack:
        while extra and extra[0] < end:
            removed.append(NewEnd(extra.pop(0), None))
        if extra:
            shortened.append(NewEnd(extra.pop(0), end))
        else:
            inserted.append(NewEnd(None, end))
    removed += [NewEnd(old_end, None) for old_end in extra]
    return [*shortened, *removed, *inserted]
