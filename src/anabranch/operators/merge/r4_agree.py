"""What an output owes for one identity before a stable is passed on: merge R4's reconcile.

`have` are the ends of the output's events of an identity, `want` those of the replica that
decides, both as bags.  What both have is left alone; of the rest

    a wanted end before the stable takes the smallest end that is too many,
    then an end before the stable that is too many takes the smallest that is wanted,
    then, if the identity is still free, removals make the counts equal.

Each event of the output is touched at most once, in ascending order (erratum L11).  Ends that
both lie at or beyond the stable may still differ: there is time.  What the output has promised
stays (L4): an end before its frontier cannot change, it takes the place of the smallest that is
wanted, and a wanted end before the frontier is read as the frontier.

With `shrink_only` an identity that becomes half frozen is made equal to the deciding replica's:
an end that is too late is shortened, one that is too early is removed and inserted anew (L14).

Papers: LMerge IV-E, AdjustOutputCount and AdjustOutput.

>>> owed(Counter([2, 5]), Counter([3, 9]), free=True, frontier=0, time=4)
[Change(old_end=2, end=3)]
"""

from collections import Counter
from typing import NamedTuple

from anabranch.model.time import Time


class Change(NamedTuple):
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
) -> list[Change]:
    """The changes, in the order in which they are sent."""
    extra, lack = differences(have, want)
    if free and shrink_only:
        return _made_equal(extra, lack)
    if not free:
        extra, lack = _within_promise(extra, lack, frontier)
    changes: list[Change] = []
    while lack and lack[0] < time:
        end = lack.pop(0)
        if extra:
            changes.append(Change(extra.pop(0), end))
        elif free:
            changes.append(Change(None, end))
    while extra and extra[0] < time:
        old_end = extra.pop(0)
        if lack:
            changes.append(Change(old_end, lack.pop(0)))
        elif free:
            changes.append(Change(old_end, None))
    if free:
        surplus = len(extra) - len(lack)
        changes += [Change(old_end, None) for old_end in extra[: max(surplus, 0)]]
        changes += [Change(None, end) for end in lack[: max(-surplus, 0)]]
    return changes


def spared(have: Counter[Time], want: Counter[Time]) -> list[Time]:
    """The ends of events of which a decider that was promoted need not know, ascending.

    The output has so many events more; the smallest ends are the likeliest to be before the
    decider's guarantee.

    >>> spared(Counter([3, 5, 9]), Counter([7, 9]))
    [3]
    """
    extra, lack = differences(have, want)
    return extra[: max(len(extra) - len(lack), 0)]


def differences(have: Counter[Time], want: Counter[Time]) -> tuple[list[Time], list[Time]]:
    """The ends that are too many and those that are lacking, both ascending."""
    return sorted((have - want).elements()), sorted((want - have).elements())


def is_due(have: Counter[Time], want: Counter[Time], *, frontier: Time, time: Time) -> bool:
    """Whether a stable freezes something here, or the decider wants an end before it."""
    freezes = any(frontier <= end < time for end in have)
    return freezes or any(end < time for end in want - have)


def is_denied(have: Counter[Time], want: Counter[Time], *, frontier: Time) -> bool:
    """Whether the decider cannot have promised what an output at this frontier has."""
    extra, lack = differences(have, want)
    return len(extra) != len(lack) or any(end < frontier for end in extra + lack)


def _within_promise(
    extra: list[Time], lack: list[Time], frontier: Time
) -> tuple[list[Time], list[Time]]:
    fixed = sum(end < frontier for end in extra)
    wanted = Counter(max(end, frontier) for end in lack[fixed:])
    return differences(Counter(extra[fixed:]), wanted)


def _made_equal(extra: list[Time], lack: list[Time]) -> list[Change]:
    """Shorten where that is possible; what is left is removed, then inserted."""
    shortened, inserted, removed = [], [], []
    for end in lack:
        while extra and extra[0] < end:
            removed.append(Change(extra.pop(0), None))
        if extra:
            shortened.append(Change(extra.pop(0), end))
        else:
            inserted.append(Change(None, end))
    removed += [Change(old_end, None) for old_end in extra]
    return [*shortened, *removed, *inserted]
