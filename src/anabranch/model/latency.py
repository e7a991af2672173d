"""Order, consistency and latency: what an operator's output is for a given input.

A physical operator is a function from streams to streams, a logical one from histories to
histories.  Each function here decides a definition for one stream; a law tries many.

The history of a stream up to a time t is the table clipped at t.  Leaving out elements with a
sync time of t or more, as the paper has it, would keep the last of several adjusts of an event
without those before it (erratum C10).  A stream is closed where its last stable is beyond every
end: a result may last as long as its input (erratum C11).  Adjusts may lengthen, so their sync
time is the lesser of two ends.

Papers: CEDR *theory* 2.2 to 2.4, Definitions 3 to 5, 7, 8, 10 and 11.

>>> from anabranch.model.notation import parse
>>> chain = parse("insert a 1..20; adjust a 1..20->10; adjust a 1..10->5; stable 8")
>>> clipped(History.of(chain), 4)
payload | start | end
a       | 1     | 4
>>> is_ordered(chain), output_watermark(chain), closed_until(chain)
(False, 20, 8)
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import TypeAlias

from anabranch.model.element import Adjust, Element, Insert, Stable
from anabranch.model.history import History
from anabranch.model.net_change import sync_time
from anabranch.model.time import FOREVER, NEVER, Time

Physical: TypeAlias = Callable[[Sequence[Element]], Sequence[Element]]
Logical: TypeAlias = Callable[[History], History]


def is_ordered(stream: Sequence[Element]) -> bool:
    """Whether sync times never fall (Definition 3); that of a stable is its time."""
    return all(one <= other for one, other in pairwise(map(_sync, stream)))


def is_perfect(stream: Sequence[Element]) -> bool:
    """Whether a stream is ordered and has no adjusts (Definition 4)."""
    return is_ordered(stream) and not any(isinstance(one, Adjust) for one in stream)


def closed_until(stream: Iterable[Element]) -> Time:
    """The greatest stable (Definition 5), or NEVER."""
    return max((one.time for one in stream if isinstance(one, Stable)), default=NEVER)


def is_closed(stream: Sequence[Element]) -> bool:
    """Whether the last element is a stable beyond every end, or that of the end (C11)."""
    if not stream or not isinstance(stream[-1], Stable):
        return False
    ends = [event.end for event in History.of(stream)]
    return stream[-1].time == FOREVER or all(end < stream[-1].time for end in ends)


def clipped(history: History, time: Time) -> History:
    """The history until a time: what starts before it, with ends that are not later."""
    return History.from_events(
        e._replace(end=min(e.end, time)) for e in history if e.start < time
    )


def clipped_stream(stream: Iterable[Element], time: Time) -> list[Element]:
    """A stream whose history is the clipped history of this one; its stables are not later.

    >>> clipped_stream([Insert("a", 1, 20), Adjust("a", 1, 20, 5), Insert("b", 9, 12)], 8)
    [Insert(payload='a', start=1, end=8), Adjust(payload='a', start=1, old_end=8, end=5)]
    """
    found: list[Element] = []
    for one in stream:
        if isinstance(one, Stable):
            found.append(Stable(min(one.time, time)))
        elif one.start < time:
            end = min(one.end, time)
            made: Insert | Adjust = Insert(one.payload, one.start, end)
            if isinstance(one, Adjust):
                made = Adjust(one.payload, one.start, min(one.old_end, time), end)
            found += [] if made.changes_nothing else [made]
    return found


def is_consistent(physical: Physical, logical: Logical, stream: Sequence[Element]) -> bool:
    """Whether the output is the logical one at the end of the stream (Definition 7, C11)."""
    ended = [*stream, Stable(FOREVER)]
    return History.of(physical(ended)) == logical(History.of(ended))


def is_progressive(physical: Physical, logical: Logical, stream: Sequence[Element]) -> bool:
    """Whether the output is the logical one of the input up to its last stable (Definition 8).

    The input is its clipped stream, which ends there.
    """
    time = closed_until(stream)
    output = physical([*clipped_stream(stream, time), Stable(FOREVER)])
    return History.of(output) == logical(clipped(History.of(stream), time))


def output_watermark(output: Iterable[Element]) -> Time:
    """The greatest end in any element (Definition 10), or NEVER."""
    ends: list[Time] = []
    for one in output:
        if not isinstance(one, Stable):
            ends += [one.end, one.old_end] if isinstance(one, Adjust) else [one.end]
    return max(ends, default=NEVER)


def is_no_later(one: Physical, other: Physical, streams: Iterable[Sequence[Element]]) -> bool:
    """Whether the latency of `one` is no greater on these streams (Definition 11)."""
    return all(output_watermark(one(s)) >= output_watermark(other(s)) for s in streams)


def _sync(element: Element) -> Time:
    return element.time if isinstance(element, Stable) else sync_time(element)
