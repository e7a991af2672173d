"""Heartbeats row by row: the reference of the columnar clock.

Figure 2 of the paper, corrected: a staircase of promises per source instead of an array (D3),
so that time is a real number and memory is in proportion to the promises that are pending; a
running maximum when they are read (H2, H3); all arrivals of an instant before its heartbeats
(H5); pairs that count rows as in H6a; rows in sequence where the network keeps their order
(H10); a timeout that an older promise cannot undo (H18).

A heartbeat at c speaks of the rows that arrive *after* c.

Papers: Heartbeats 3, 3.1, 3.4, Figure 2, with errata H2 to H6, H10, H18; D2 to D4, D8.

>>> from anabranch.clocks.pairs import Pair
>>> clock = Heartbeats(Bounds.of({("a", "a"): [Pair(5, 0), Pair(0, 8)]}))
>>> clock.arrive("a", 10, at=0)
>>> clock.arrive("a", 30, at=1)
>>> [clock.advance(to) for to in (1, 5, 6)]
[22, 22, 30]
"""

from bisect import bisect_left
from dataclasses import dataclass, field

from anabranch.clocks.bounds import Bounds
from anabranch.clocks.pairs import Pair
from anabranch.errors import UsageError
from anabranch.model.time import NEVER, Time


@dataclass(slots=True)
class Stairs:
    """Promises for one source, each higher than all that are due before it."""

    due: list[Time] = field(default_factory=list)
    value: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.due)

    def add(self, due: Time, value: int) -> None:
        """Keep a promise, unless an earlier one is as high; drop those that it covers."""
        at = bisect_left(self.due, due)
        if at and self.value[at - 1] >= value:
            return
        if at < len(self.due) and self.due[at] == due and self.value[at] >= value:
            return
        last = at
        while last < len(self.due) and self.value[last] <= value:
            last += 1
        self.due[at:last] = [due]
        self.value[at:last] = [value]

    def take(self, until: Time, *, inclusive: bool) -> Time:
        """Remove what is due and return the highest of it; NEVER if nothing is."""
        count = 0
        while count < len(self.due) and (
            self.due[count] < until or (inclusive and self.due[count] == until)
        ):
            count += 1
        found = self.value[count - 1] if count else NEVER
        del self.due[:count], self.value[:count]
        return found


@dataclass(slots=True)
class _Count:
    """A promise that waits for rows: those that arrive after `after` count."""

    after: Time
    remaining: int
    value: int
    at_once: bool


class Heartbeats:
    """The heartbeats of some sources, fed row by row, in the order of arrival."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self._pairs = bounds.effective
        names = bounds.sources
        self._stairs = {name: Stairs() for name in names}
        self._counts: dict[str, list[_Count]] = {name: [] for name in names}
        self._heartbeat: dict[str, Time] = dict.fromkeys(names, NEVER)
        self._last: Time = NEVER
        self._greatest: Time = NEVER
        self._now: Time = NEVER

    @property
    def heartbeats(self) -> dict[str, Time]:
        """The heartbeat of each source, as of the last call."""
        return dict(self._heartbeat)

    @property
    def overall(self) -> Time:
        """The least heartbeat of all sources."""
        return min(self._heartbeat.values())

    @property
    def pending(self) -> int:
        """How many promises wait for their time, or for rows."""
        waiting = sum(map(len, self._stairs.values()))
        return waiting + sum(map(len, self._counts.values()))

    def arrive(self, source: str, time: int, *, at: Time) -> None:
        """A row arrives: promises that were due before take effect, then its own are made."""
        if at < self._now:
            message = f"a row of {source!r} arrives at {at}, after one at {self._now}"
            raise UsageError(message)
        i = self.bounds.index(source)
        self._fire(at, inclusive=False)
        self._now = at
        self._count(source, at)
        for j, to in enumerate(self.bounds.sources):
            in_order = i == j and self.bounds.fifo[j]
            for pair in self._pairs[i][j]:
                self._promise(to, pair, time, at, self.bounds.latency[j], in_order=in_order)
        self._last, self._greatest = at, max(self._greatest, time)

    def advance(self, to: Time) -> Time:
        """The clock shows `to`, and all that arrives then has arrived; returns `overall`."""
        if to < self._now:
            message = f"the clock shows {to}, after {self._now}"
            raise UsageError(message)
        self._fire(to, inclusive=True)
        self._now = to
        if self.bounds.delay is not None:
            for name in self.bounds.sources:
                self._raise(name, to - self.bounds.delay)
        return self.overall

    def _promise(
        self, to: str, pair: Pair, time: int, at: Time, latency: int, *, in_order: bool
    ) -> None:
        value = time - pair.distance
        if pair.wait == 0 and in_order:
            self._raise(to, value)  # what arrives behind it was emitted behind it
        elif pair.rows and pair.wait:
            after = NEVER if in_order else at + latency
            self._counts[to].append(_Count(after, pair.wait, value, in_order))
        else:
            self._stairs[to].add(at + pair.wait + latency, value)

    def _count(self, source: str, at: Time) -> None:
        latency = self.bounds.latency[self.bounds.index(source)]
        left = []
        for count in self._counts[source]:
            count.remaining -= count.after < at
            if count.remaining:
                left.append(count)
            elif count.at_once:
                self._raise(source, count.value)
            else:
                self._stairs[source].add(at + latency, count.value)
        self._counts[source] = left

    def _fire(self, until: Time, *, inclusive: bool) -> None:
        for name, stairs in self._stairs.items():
            self._raise(name, stairs.take(until, inclusive=inclusive))
        timeout = self.bounds.timeout
        if timeout is None or self._last == NEVER:
            return
        due = self._last + timeout
        if due < until or (inclusive and due == until):
            for name in self.bounds.sources:
                self._raise(name, self._greatest)

    def _raise(self, name: str, value: Time) -> None:
        self._heartbeat[name] = max(self._heartbeat[name], value)
