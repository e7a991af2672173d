"""How the operators of `anabranch.model.operators` may be emitted, and some of them in use.

`answers`, `answered` and `eager` emit every difference at once, `final` what can no longer
change.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, pairwise
from typing import Any

from anabranch.model.element import Adjust, Element, Event, Insert, Stable
from anabranch.model.history import History, Reader, replays
from anabranch.model.net_change import difference_of
from anabranch.model.operators import aggregate, join, project, top_k
from anabranch.model.time import FOREVER, NEVER, Time

Snapshots = Callable[[History], History]


def where(stream: Iterable[Element], keep: Callable[[Time, str], bool]) -> list[Element]:
    return [e for e in stream if isinstance(e, Stable) or keep(e.start, e.payload)]


def changed(
    stream: Iterable[Element],
    *,
    payload: Callable = lambda payload: payload,
    lifetime: Callable = lambda start, end: (start, end),
) -> list[Element]:
    """Each event's payload and lifetime by these functions; stables are left out.

    What is empty stays empty: an event that is gone has no new lifetime.
    """

    def new_end(start: Time, end: Time) -> Time:
        return lifetime(start, end)[1] if end > start else lifetime(start, start)[0]

    output: list[Element] = []
    for e in stream:
        if isinstance(e, Stable):
            continue
        name, start = payload(e.payload), lifetime(e.start, e.end)[0]
        if isinstance(e, Insert):
            output.append(Insert(name, start, new_end(e.start, e.end)))
        else:
            ends = new_end(e.start, e.old_end), new_end(e.start, e.end)
            output.append(Adjust(name, start, *ends))
    return output


def union_in_order(streams: Sequence[Sequence[Element]]) -> list[Element]:
    """Inserts by start, then input after input; adjusts are left to the end."""
    data = [e for stream in streams for e in stream if not isinstance(e, Stable)]
    inserts = [e for e in data if isinstance(e, Insert)]
    adjusts = [e for e in data if isinstance(e, Adjust)]
    return [*sorted(inserts, key=lambda e: e.start), *adjusts]


def eager(histories: Iterable[History]) -> list[Element]:
    """What changes from each history to the next."""
    steps = pairwise([History({}), *histories])
    return [element for before, after in steps for element in difference_of(before, after)]


def answers(
    operator: Callable[..., History],
    turns: Iterable[tuple[int, Element]],
    *,
    inputs: int = 1,
    stable: Callable[[Time], Time] = lambda time: time,
) -> list[list[Element]]:
    """For each arriving element what an operator emits at once: differences, then a stable.

    Its stable is `stable` of the smallest frontier of its inputs, emitted when it advances.
    """
    readers = [Reader() for _ in range(inputs)]
    before, passed = History({}), NEVER
    outputs: list[list[Element]] = []
    for number, element in turns:
        readers[number].read(element)
        after = operator(*(reader.replay().history for reader in readers))
        outputs.append(difference_of(before, after))
        frontier = stable(min(reader.frontier for reader in readers))
        if frontier > passed:
            outputs[-1].append(Stable(frontier))
            passed = frontier
        before = after
    return outputs


def answered(
    operator: Callable[..., History],
    turns: Iterable[tuple[int, Element]],
    *,
    inputs: int = 1,
    stable: Callable[[Time], Time] = lambda time: time,
) -> list[Element]:
    """All that `answers` emits, as one stream."""
    return [*chain.from_iterable(answers(operator, turns, inputs=inputs, stable=stable))]


def final(
    stream: Sequence[Element],
    snapshots: Snapshots,
    *,
    by_stables: bool = False,
    in_order: bool = False,
    ties: Callable[[Event], Any] = repr,
) -> list[Element]:
    """Results that no element can change: when time has passed them, or by stables alone."""
    output: list[Event] = []
    passed: Time = NEVER
    for element, prefix in zip(stream, [*replays(stream)][1:], strict=True):
        if isinstance(element, Stable):
            passed = max(passed, element.time)
        elif not by_stables:
            passed = max(passed, element.start)
        results = snapshots(prefix.history).events()
        done = [e for e in results if e.end < passed or passed == FOREVER]
        if in_order:
            blocked = min((e.start for e in results if e not in done), default=FOREVER)
            done = sorted((e for e in done if e.start < blocked), key=ties)
            done.sort(key=lambda e: e.start)
        else:
            done.sort(key=lambda e: e.end)
        there = Counter(output)
        for event in done:
            there[event] -= 1
            if there[event] < 0:
                output.append(event)
    return [Insert(*event) for event in output]


def counted(history: History) -> History:
    """How many events are alive, where any are."""
    return aggregate(history, lambda _: (), lambda alive: (len(alive),))


def top_two(history: History) -> History:
    """The two smallest payloads alive."""
    return top_k(history, lambda _: (), 2, lambda payload: payload)


def counted_by(history: History, group: Callable[[str], str]) -> History:
    """How many events of each group are alive."""
    return aggregate(history, lambda payload: (group(payload),), lambda alive: (len(alive),))


def joined(left: History, right: History) -> History:
    """Pairs of events while both are alive."""
    sides = [project(side, lambda e: (e.payload,)) for side in (left, right)]
    return join(*sides, lambda *_: True)


def cleansed(
    stream: Sequence[Element], *, ties: Callable[[Event], Any] = repr
) -> list[Element]:
    """Whole start groups, once nothing that starts before their end of group can change."""
    return final(stream, lambda history: history, by_stables=True, in_order=True, ties=ties)
