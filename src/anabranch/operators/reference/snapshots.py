"""Algorithms 1 to 5 of the paper for one group, with the errata corrected, element by element.

`Snapshots` has the paper's three structures, and asserts its four invariants, as corrected,
after every element (Lemmas 12 to 15):

    tau     the output watermark: the greatest end point that time has passed
    POS     the previous output synopsis: the end points up to tau that may still change, and
            what is alive from each to the next one
    ECQ     the endpoint compensation queue: the input's events that end later

`emit` chooses the variant: PASSED is the one that preserves perfectness (3.4), ORDERED the one
that preserves order, AT_ONCE the one of minimum latency (3.5), which has no use for a queue:
every end point is in POS at once.

What is corrected, beside each erratum where it was:

* Adjusts may lengthen: Algorithm 4 works on the stretch between the two ends, whichever is
  later, and an end point that goes lengthens the event before it (C8, C9).
* `passed`, and not tau, decides what is in POS: the greater of the greatest start seen and the
  stable.  Tau follows from it, after every element, as the last entry of POS (C7).  So it does
  not depend on the order in which elements arrive.
* Only differences are emitted, and nothing where nothing is alive (D10, D12).

The meaning, over plain histories, is `operators.reference.aggregate`; both are compared.
`visits` counts the entries that are looked at, for the cost of Theorem 11's algorithms:
O(n log n + m), where a search counts as the logarithm of its size.

Papers: CEDR *theory* 3.2 to 3.5 and its appendix, with errata C1 to C7 and C29.

>>> counts = Snapshots(len, Emit.PASSED)
>>> counts.push(Insert("a", 1, 9)), counts.push(Insert("b", 3, 5))
((), (Insert(payload=1, start=1, end=3),))
>>> counts.push(Stable(6))
(Insert(payload=2, start=3, end=5), Stable(time=5))
"""

from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from itertools import pairwise
from math import log2
from typing import Final

from anabranch.model.element import Adjust, Element, Event, Insert, Stable
from anabranch.model.emission import Emit, shown, stable_of
from anabranch.model.history import History
from anabranch.model.net_change import difference_of
from anabranch.model.time import FOREVER, NEVER, Time
from anabranch.operators.trusting import lost_event

_NAME: Final = "aggregate"


@dataclass(slots=True)
class Entry:
    """An entry of POS: an end point, how many events have it, and what is alive behind it.

    The paper's State.k counts both in one number (erratum C4).
    """

    time: Time
    alive: Counter[Hashable]
    points: int = 0

    def copy(self, time: Time) -> "Entry":
        """A new end point, at which nothing changes yet."""
        return Entry(time, +self.alive)


class Snapshots:
    """A snapshot operator over one group; `function` makes a value of the payloads alive."""

    def __init__(
        self, function: Callable[[list[Hashable]], Hashable], emit: Emit = Emit.PASSED
    ) -> None:
        self.function, self.emit = function, emit
        self.tau: Time = NEVER
        self.passed: Time = NEVER
        self.frontier: Time = NEVER
        self.stable: Time = NEVER
        self.times: list[Time] = [NEVER]
        self.pos: list[Entry] = [Entry(NEVER, Counter())]
        self.ecq: list[tuple[Time, Time, str, Hashable]] = []
        self.input: Counter[Event] = Counter()
        self.output: Counter[Event] = Counter()
        self.visits = 0.0
        self.check()

    def push(self, element: Element) -> tuple[Element, ...]:
        """Take the next element of the input; what comes out at once."""
        if isinstance(element, Stable):
            found = self._stable(element.time) if element.time > self.frontier else []
        elif element.changes_nothing:
            found = []
        elif isinstance(element, Insert):
            found = self._insert(element)
        else:
            found = self._adjust(element)
        for one in found:
            if isinstance(one, Adjust):
                self.output[one.old_event] -= 1
            if not isinstance(one, Stable):
                self.output[one.event] += 1
        self.check()
        return tuple(found)

    # Algorithm 1

    def _insert(self, new: Insert) -> list[Element]:
        """Handle an insert, in the paper's three phases."""
        first, last = self._before(min(new.start, self.tau)), new.end
        before = self._issued(first, last)
        self.passed = max(self.passed, new.start)
        self._move_from_queue()
        self._point(new.start, 1)
        if self._is_in_pos(new.end):
            self._point(new.end, 1)
        else:
            self._queue(new.event)
        for entry in self._search(new.start, new.end):
            entry.alive[new.payload] += 1
        self.input[new.event] += 1
        return self._net(before, first, last)

    # Algorithm 2

    def _move_from_queue(self) -> None:
        """Move the end points that time has passed from ECQ to POS."""
        while self.ecq and self._is_in_pos(self.ecq[0][0]):
            end, *_, payload = self.ecq.pop(0)
            # Several events may end there (erratum C3).
            self._point(end, 1).alive[payload] -= 1

    # Algorithm 3

    def _issued(self, first: Time, last: Time) -> History:
        """The output's events of the entries at times from the first to the last."""
        found = []
        for at in range(self._at(first), self._at(last) + 1):
            self.visits += 1
            entry, is_last = self.pos[at], at + 1 == len(self.pos)
            alive = list(entry.alive.elements())
            if alive and not (is_last and self.emit is Emit.PASSED):
                end = FOREVER if is_last else self.times[at + 1]
                found.append(Event(self.function(alive), entry.time, end))
        return History.from_events(found)

    # Algorithm 4

    def _adjust(self, change: Adjust) -> list[Element]:
        """Handle an adjust, shorter or longer, in the paper's three phases."""
        if self.input[change.old_event] < 1:
            raise lost_event(_NAME, f"{change}")
        first, last = sorted((change.old_end, change.end))
        begin = self._before(first)
        before = self._issued(begin, last)
        if not self._is_in_pos(change.old_end):
            self._unqueue(change.old_event)
        if not self._is_in_pos(change.end):
            self._queue(change.event)
        elif not change.is_removal:
            self._point(change.end, 1)  # SearchLE, since it need not be there (erratum C5)
        many = 1 if change.end > change.old_end else -1
        # What is alive changes only in entries behind the first end (erratum C1).
        for entry in self._search(first, last):
            if entry.time >= first:
                entry.alive[change.payload] += many
        if self._is_in_pos(change.old_end):
            self._point(change.old_end, -1)
        if change.is_removal:
            self._point(change.start, -1)  # which may be the last one (erratum C7)
        self.input[change.old_event] -= 1
        if not change.event.is_empty:
            self.input[change.event] += 1
        return self._net(before, begin, last)

    # Algorithm 5

    def _stable(self, time: Time) -> list[Element]:
        """Handle a stable, in the paper's four phases."""
        first = self._before(self.tau)
        before = self._issued(first, time)
        self.frontier, self.passed = time, max(self.passed, time)
        self._move_from_queue()
        found = self._net(before, first, time)
        held = self._held()
        if held > self.stable:
            self.stable = held
            found.append(Stable(held))
        while len(self.pos) > 1 and self.times[1] < time:
            self.visits += 1
            del self.pos[0], self.times[0]
        return found

    def _held(self) -> Time:
        """How far the output is final (errata C2, C8)."""
        if self.emit is not Emit.PASSED or self.frontier == FOREVER:
            return self.frontier
        entry = self.pos[bisect_left(self.times, self.frontier) - 1]
        return entry.time if entry.alive.total() else self.frontier

    # The structures

    def _is_in_pos(self, end: Time) -> bool:
        """Whether an end point is in POS, and not in ECQ."""
        return end <= self.passed or self.emit is Emit.AT_ONCE

    def _at(self, time: Time) -> int:
        """SearchLE: the last entry with TS <= time (erratum C29), or the first one."""
        self.visits += log2(len(self.times) + 1)
        return max(bisect_right(self.times, time) - 1, 0)

    def _before(self, time: Time) -> Time:
        """The entry before the one of this time, whose event may become longer."""
        return self.times[max(self._at(time) - 1, 0)]

    def _search(self, first: Time, last: Time) -> list[Entry]:
        """Search: the entries whose events overlap `[first, last)`."""
        begin, end = self._at(first), max(bisect_left(self.times, last), 1)
        self.visits += max(end - begin, 0)
        return self.pos[begin:end]

    def _point(self, time: Time, many: int) -> Entry:
        """The entry at an end point with one event more or less; without events it leaves."""
        at = self._at(time)
        if self.times[at] != time:
            at += 1
            self.times.insert(at, time)
            self.pos.insert(at, self.pos[at - 1].copy(time))
        entry = self.pos[at]
        entry.points += many
        if not entry.points:
            del self.pos[at], self.times[at]
        return entry

    def _queue(self, event: Event) -> None:
        self.visits += log2(len(self.ecq) + 2)
        insort(self.ecq, _queued(event))

    def _unqueue(self, event: Event) -> None:
        self.visits += log2(len(self.ecq) + 2)
        del self.ecq[bisect_left(self.ecq, _queued(event))]

    def _net(self, before: History, first: Time, last: Time) -> list[Element]:
        """Phase 3: tau follows POS, and what differs is emitted (errata C6, D12)."""
        self.tau = self.times[-1]
        return difference_of(before, self._issued(first, last))

    # The invariants

    def check(self) -> None:
        """Assert the four invariants, as corrected."""
        history = History(self.input)
        points = sorted({t for e in history for t in (e.start, e.end)})
        table = History.from_events(
            Event(self.function(alive), start, end)
            for start, end in pairwise(points)
            if (alive := [e.payload for e in history.snapshot(start)])
        )
        self._check_tau(points, table)
        self._check_pos(points, history)
        queued = sorted(_queued(e) for e in history if not self._is_in_pos(e.end))
        assert self.ecq == queued, f"ECQ: {self.ecq} != events that end later {queued}"

    def _check_tau(self, points: list[Time], table: History) -> None:
        """Tau-S: which time it is.  Tau-O: the output has the table up to it, and no more."""
        within = [t for t in points if self._is_in_pos(t)]
        # An entry that only remembers what was alive may be left before all end points.
        tau = within[-1] if within else self.times[0]
        assert self.tau == tau, f"tau-S: tau is {self.tau}, the last end point passed is {tau}"
        output, expected = History(self.output), shown(table, self.emit, passed=self.passed)
        assert output == expected, f"tau-O: the output has\n{output}\nnot\n{expected}"
        ends = [e.end for e in output if e.end > tau and e.start < tau]
        assert not ends, f"tau-O: results that start before {tau} end at {ends}"
        if self.frontier > NEVER:
            held = stable_of(table, self.emit, frontier=self.frontier)
            assert self.stable == held, f"the stable is {self.stable}, required is {held}"

    def _check_pos(self, points: list[Time], history: History) -> None:
        """POS: an entry for each end point up to tau that a stable has not passed, B1 to B4."""
        within = [t for t in points if self._is_in_pos(t)]
        kept = [t for t, after in pairwise([*within, FOREVER]) if after >= self.frontier]
        if self.frontier == FOREVER:
            kept = within[-1:]
        times = [t for t in self.times if t in kept] if kept else self.times
        assert times == (kept or self.times), f"POS: entries {self.times} != end points {kept}"
        extra = len(self.times) - len(times)
        assert extra <= 1, f"POS: entries {self.times} beside the end points {kept}"
        for entry in self.pos:
            alive = Counter(e.payload for e in history.snapshot(entry.time))
            assert +entry.alive == alive, f"POS: {entry} has not what is alive, {alive}"
            ends = sum(t == entry.time for e in history for t in (e.start, e.end))
            assert entry.points == ends, f"POS: {entry} is an end point of {ends} events"


def _queued(event: Event) -> tuple[Time, Time, str, Hashable]:
    return event.end, event.start, repr(event.payload), event.payload
