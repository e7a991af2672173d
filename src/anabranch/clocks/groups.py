"""Groups of sources with one heartbeat each: many sources, and no matrix of all of them.

A group promises what all its members do.  Sources that are alike are grouped in closed form
(`group_alike`): the bounds of one group and between two of them do not depend on how many
members there are, so that any number of sources costs the same per row.  Named sources keep a
row of bounds each, to every group (`group_rules`, n x m): as many heartbeats as with the m x m
matrix of the paper (`grouped`), and never later (D11).  Latency is folded into the waits
first.

What a group costs is how much later its promises are than those of its members: `cost`.

Papers: Heartbeats 5.2, with errata H22; D11, D12.

>>> from anabranch.clocks.pairs import Pair
>>> group_alike(Alike(own=(Pair(0, 1),), others=(Pair(0, 9), Pair(5, 0)))).own
(Pair(wait=0, distance=9, rows=False), Pair(wait=5, distance=1, rows=False))
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from anabranch.clocks.bounds import Alike, Bounds
from anabranch.clocks.pairs import Pairs, delayed, reduce_pairs, show_pairs, timed, weakest
from anabranch.clocks.rules import GroupRules
from anabranch.errors import UsageError


def group_alike(bounds: Alike) -> Alike:
    """The bounds of groups of sources that are alike; each group is then a source.

    Within a group both the disorder of a member and the skew between two of them must hold.
    What follows of a member over another one is not used, also for clocks: there may be none.
    """
    own, others = bounds.own_among(1), bounds.effective_others
    if others and not own:
        message = (
            "sources that are alike have a bound between two of them, but no disorder, so "
            "nothing is known of a group of one; give own="
        )
        raise UsageError(message)
    if own and not others:
        message = (
            "sources that are alike have a disorder, but no bound between two of them, so "
            "nothing is known of a group; give others=, or take the group for the source: "
            "then the bounds are those of all its rows together"
        )
        raise UsageError(message)
    return replace(
        bounds,
        own=weakest([own, others]),
        others=reduce_pairs(timed(others)),
        fifo=False,
        meaning="observed",
    )


def grouped(bounds: Bounds, group_of: Mapping[str, str]) -> Bounds:
    """B-hat of the paper: the weakest bound between any members of two groups, and their L."""
    groups = _members(bounds, group_of)
    matrix = bounds.effective
    index = {name: at for at, name in enumerate(bounds.sources)}
    return Bounds.of(
        {
            (a, b): weakest([matrix[index[i]][index[j]] for i in first for j in second])
            for a, first in groups.items()
            for b, second in groups.items()
        },
        latency={
            name: max(bounds.latency[index[one]] for one in members)
            for name, members in groups.items()
        },
        delay=bounds.delay,
        timeout=bounds.timeout,
    )


def group_rules(bounds: Bounds, group_of: Mapping[str, str]) -> GroupRules:
    """What a row of each source promises each group: its weakest bound on any member."""
    groups = _members(bounds, group_of)
    matrix = bounds.effective
    index = {name: at for at, name in enumerate(bounds.sources)}
    rows = {
        name: tuple(
            weakest([_of(matrix, bounds, i, index[to]) for to in members])
            for members in groups.values()
        )
        for i, name in enumerate(bounds.sources)
    }
    return GroupRules(
        tuple(groups), dict(group_of), rows, delay=bounds.delay, timeout=bounds.timeout
    )


def _of(matrix: Sequence[Sequence[Pairs]], bounds: Bounds, i: int, j: int) -> Pairs:
    return delayed(matrix[i][j], bounds.latency[j])


def _members(bounds: Bounds, group_of: Mapping[str, str]) -> dict[str, list[str]]:
    missing = [name for name in bounds.sources if name not in group_of]
    if missing:
        message = f"these sources are in no group: {missing}; name a group for each"
        raise UsageError(message)
    groups: dict[str, list[str]] = {}
    for name in bounds.sources:
        groups.setdefault(group_of[name], []).append(name)
    return groups


@dataclass(frozen=True, slots=True)
class Cost:
    """What grouping costs a source: its own disorder alone, and as one of its group."""

    source: str
    group: str
    alone: Pairs
    together: Pairs

    @property
    def distance(self) -> int | None:
        """How much farther behind its heartbeat stays in the end; None: for ever."""
        if not self.together:
            return None
        return min(p.distance for p in self.together) - min(p.distance for p in self.alone)

    @property
    def wait(self) -> int | None:
        """How much later it reaches its final distance; None: never."""
        if not self.together:
            return None
        return self.together[-1].wait - self.alone[-1].wait

    def __str__(self) -> str:
        pairs = f"{show_pairs(self.alone)} alone, {show_pairs(self.together)} in its group"
        return f"{self.source} in {self.group}: {pairs}"


def cost(bounds: Bounds, group_of: Mapping[str, str]) -> tuple[Cost, ...]:
    """What grouping costs each source that has a bound on itself."""
    rules = group_rules(bounds, group_of)
    matrix = bounds.effective
    found = []
    for i, name in enumerate(bounds.sources):
        alone = reduce_pairs(_of(matrix, bounds, i, i))
        group = group_of[name]
        if alone:
            together = rules.rows[name][rules.groups.index(group)]
            found.append(Cost(name, group, alone, together))
    return tuple(found)


def worst(costs: Iterable[Cost], most: int = 10) -> list[Cost]:
    """Those that lose most, first those that never get a heartbeat."""
    rank = lambda one: (one.distance is None, one.distance or 0, one.wait or 0)  # noqa: E731
    return sorted(costs, key=rank, reverse=True)[:most]
