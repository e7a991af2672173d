"""When an aggregate emits a result: the part of its table that its output has.

The table of a group (*theory* 3.1) has an event between neighbouring end points of the group's
input.  Time has passed for a group up to the greater of two times: the greatest start that the
group has seen, and the input's frontier.  An aggregate emits

* `AT_ONCE`: the whole table;
* `ORDERED`: the events that start by then; one that goes on is open, its end is FOREVER;
* `PASSED`: the events that end by then.  Its stable is held at the start of the first event
  that may still change, and so of the one that it withholds (errata C2, C8).

All three have the same events once the frontier has passed them.  Starts are remembered, also
those of events that were removed: else a removal would withdraw an earlier event, and ordered
input would not give ordered output.

A long event holds the stable of `PASSED` back.  `cut_on_grid` bounds this: it adds end points
at the multiples of a number of units (decision D11).  An event without end is cut as far as
time has passed, so two streams of equal events that end at different times cut it differently
there, and nowhere else.

Papers: CEDR *theory* 3.2 (the output watermark), 3.4 and 3.5.

>>> from anabranch.model.notation import parse_events
>>> table = History.from_events(parse_events("a 1..3; b 3..9"))
>>> for emit in Emit:
...     print(emit.value, shown(table, emit, passed=5).events()[-1])
at_once Event(payload='b', start=3, end=9)
ordered Event(payload='b', start=3, end=inf)
passed Event(payload='a', start=1, end=3)
>>> stable_of(table, Emit.PASSED, frontier=5)
3
>>> cut_on_grid(table, 4, until=5).events()[1:]
[Event(payload='b', start=3, end=4), Event(payload='b', start=4, end=8), \
Event(payload='b', start=8, end=9)]
"""

from collections.abc import Iterator
from enum import Enum
from itertools import pairwise

from anabranch.errors import UsageError
from anabranch.model.element import Event
from anabranch.model.history import History
from anabranch.model.time import FOREVER, NEVER, Time


class Emit(Enum):
    """When results are emitted, the earliest way first."""

    AT_ONCE = "at_once"
    ORDERED = "ordered"
    PASSED = "passed"

    @classmethod
    def of(cls, given: object, *, where: str) -> "Emit":
        """From its text; `where` is the call, for the message.

        >>> Emit.of("passed", where="aggregate")
        <Emit.PASSED: 'passed'>
        """
        for one in cls:
            if given is one or given == one.value:
                return one
        words = ", ".join(f"'{one.value}'" for one in cls)
        message = (
            f"{where}: emit={given!r} is not a way to emit results; write one of {words}; "
            "a column of the result cannot be called emit"
        )
        raise UsageError(message)


def shown(table: History, emit: Emit, *, passed: Time) -> History:
    """The events of a group's table that are emitted when time has passed until `passed`."""
    if emit is Emit.AT_ONCE:
        return table
    if emit is Emit.PASSED:
        return History.from_events(e for e in table if e.end <= passed)
    return History.from_events(
        e if e.end <= passed else e._replace(end=FOREVER) for e in table if e.start <= passed
    )


def is_final(event: Event, *, frontier: Time, every: int | None = None) -> bool:
    """Whether no legal input can change this event of a table; with `every`, of one on a grid.

    An end at the frontier may still move.  One that is on the grid too stays, for whatever is
    alive there is cut there.
    """
    if event.end < frontier or frontier == FOREVER:
        return True
    return every is not None and event.end == frontier and frontier % every == 0


def stable_of(table: History, emit: Emit, *, frontier: Time, every: int | None = None) -> Time:
    """The stable of the output, for the tables of all groups together."""
    if emit is not Emit.PASSED:
        return frontier
    open_ones = (e for e in table if not is_final(e, frontier=frontier, every=every))
    return min((e.start for e in open_ones if e.start < frontier), default=frontier)


def cut_on_grid(table: History, every: int, *, until: Time) -> History:
    """The same events, cut at the multiples of `every`; without end, only up to `until`."""
    return History.from_events(
        Event(e.payload, start, end)
        for e in table
        for start, end in pairwise([e.start, *_grid(e, every, until), e.end])
    )


def _grid(event: Event, every: int, until: Time) -> Iterator[Time]:
    """The multiples within a lifetime."""
    last = event.end - 1 if event.end < FOREVER else until
    if last in (NEVER, FOREVER):
        return
    time = event.start // every * every + every
    while time <= last:
        yield time
        time += every
