"""Errata L1 and L2 of LMerge III-D, and the race of every condition against the definition.

The oracle is the definition itself (III-B), over small alphabets: from a history and a frontier
walk every element that keeps the promise, collect every history that can be reached, and ask
the definition's question of these sets.  It has its own copy of the promise of a stable.
"""

from collections.abc import Iterator
from functools import cache
from itertools import combinations_with_replacement, product

import pytest

from anabranch.errors import UsageError
from anabranch.model.element import Event
from anabranch.model.equivalence import compatible, consistent
from anabranch.model.history import History, Replay
from anabranch.model.notation import parse_events
from anabranch.model.time import FOREVER, NEVER, Time
from anabranch.testing.conditions import breaches_r3, breaches_r4

Bag = tuple[Event, ...]

# A frontier differs from a smaller one only by events that start between them: each world has a
# start at every frontier, and room for one event more than the prefixes that are judged.
WIDE = [Event("A", 1, 2), Event("A", 1, 3), Event("A", 1, FOREVER), Event("A", 2, 3)]
WIDE += [Event("A", 2, FOREVER), Event("A", 3, FOREVER)]
NARROW = [Event("A", 1, 2), Event("A", 1, 3), Event("A", 2, FOREVER)]
HEAVY = pytest.param(WIDE, 2, 2, marks=pytest.mark.deep)


def bags(events: list[Event], size: int, *, keyed: bool) -> list[Bag]:
    found = (bag for n in range(size + 1) for bag in combinations_with_replacement(events, n))
    return [bag for bag in found if not keyed or len({e.start for e in bag}) == len(bag)]


def prefixes(events: list[Event], size: int, *, keyed: bool) -> list[tuple[Bag, Time]]:
    frontiers = [*dict.fromkeys(event.start for event in events), FOREVER]
    return list(product(bags(events, size, keyed=keyed), frontiers))


def prefix(bag: Bag, frontier: Time) -> Replay:
    return Replay(History.from_events(bag), frontier)


class Definition:
    """What can be reached, in a world with these events and a greatest number at once."""

    def __init__(self, events: list[Event], size: int, *, keyed: bool) -> None:
        self.events = events
        self.worlds = set(bags(events, size, keyed=keyed))
        self.reach = cache(self._reach)

    def _reach(self, bag: Bag, frontier: Time) -> frozenset[Bag]:
        seen, todo = {bag}, [bag]
        while todo:
            for after in self._next(todo.pop(), frontier):
                if after in self.worlds and after not in seen:
                    seen.add(after)
                    todo.append(after)
        return frozenset(seen)

    def _next(self, bag: Bag, frontier: Time) -> Iterator[Bag]:
        for event in self.events:
            if not event.start < frontier:
                yield self._sort([*bag, event])
        for event in set(bag):
            rest = list(bag)
            rest.remove(event)
            if event.end < frontier:
                continue
            if not event.start < frontier:
                yield self._sort(rest)
            for other in self.events:
                if other.start == event.start and not other.end < frontier:
                    yield self._sort([*rest, other])

    def _sort(self, events: list[Event]) -> Bag:
        return tuple(sorted(events, key=self.events.index))

    def together(self, inputs: list[tuple[Bag, Time]]) -> frozenset[Bag]:
        """Every history that all inputs can become."""
        return frozenset.intersection(*(self.reach(*one) for one in inputs))

    def compatible(self, output: tuple[Bag, Time], inputs: list[tuple[Bag, Time]]) -> bool:
        return self.together(inputs) <= self.reach(*output)


@pytest.mark.parametrize(
    ("events", "size", "inputs"),
    [(WIDE, 2, 1), (WIDE, 1, 2), (NARROW, 2, 2), (NARROW, 1, 3), HEAVY],
)
def test_r3_conditions_are_the_definition(events: list[Event], size: int, inputs: int) -> None:
    definition = Definition(events, size + 1, keyed=True)
    judgeable = prefixes(events, size, keyed=True)
    answers = set()
    for chosen in combinations_with_replacement(judgeable, inputs):
        known = [prefix(*one) for one in chosen]
        assert consistent(known) == bool(definition.together(list(chosen)))
        if not consistent(known):
            continue
        for output in judgeable:
            expected = definition.compatible(output, list(chosen))
            judged = prefix(*output)
            assert compatible(judged, known) == expected, (output, chosen)
            assert (breaches_r3(judged, known) == []) == expected, (output, chosen)
            answers.add(expected)
    assert answers == {True, False}


@pytest.mark.parametrize(
    ("events", "size", "inputs"), [(WIDE, 2, 1), (NARROW, 2, 2), (NARROW, 1, 3), HEAVY]
)
def test_r4_conditions_are_the_definition(events: list[Event], size: int, inputs: int) -> None:
    definition = Definition(events, size + 1, keyed=False)
    judgeable = prefixes(events, size, keyed=False)
    answers = set()
    for chosen in combinations_with_replacement(judgeable, inputs):
        known = [prefix(*one) for one in chosen]
        assert consistent(known) == bool(definition.together(list(chosen)))
        if not consistent(known):
            continue
        for output in judgeable:
            expected = definition.compatible(output, list(chosen))
            judged = prefix(*output)
            assert compatible(judged, known) == expected, (output, chosen)
            if judged.frontier == max(one.frontier for one in known):
                assert (breaches_r4(judged, known) == []) == expected, (output, chosen)
                answers.add(expected)
    assert answers == {True, False}


def test_lmerge_erratum_l1() -> None:
    """C2 as printed refuses an output that is the input itself, with an older stable."""
    event = Event("A", 1, 4)
    definition = Definition([event, Event("A", 1, FOREVER)], 1, keyed=True)
    assert definition.compatible(((event,), 2), [((event,), 3)])
    output, leader = prefix((event,), 2), prefix((event,), 3)
    as_printed = leader.frontier <= output.frontier
    assert not as_printed
    assert compatible(output, [leader])
    assert breaches_r3(output, [leader]) == []


def test_lmerge_erratum_l2() -> None:
    """The R4 condition as printed accepts an output with a frozen event too many."""
    one, extra = Event("A", 1, 2), Event("A", 1, 3)
    definition = Definition([one, extra], 3, keyed=False)
    assert not definition.compatible(((one, extra), 4), [((one,), 4)])
    output, leader = prefix((one, extra), 4), prefix((one,), 4)
    as_printed = len(leader.history.minus(output.history)) == 0
    assert as_printed
    assert not compatible(output, [leader])
    (breach,) = breaches_r4(output, [leader])
    assert str(breach) == (
        "R4: A at 1: the output has frozen ends 2, 3 and 0 half frozen, "
        "the input frozen ends 2 and 0 half frozen"
    )


def test_r4_condition_is_only_for_outputs_at_the_leading_frontier() -> None:
    with pytest.raises(UsageError, match="frontier of the leading input, 4, this output has 3"):
        breaches_r4(prefix((), 3), [prefix((), 4)])


def test_breaches_name_what_is_wrong() -> None:
    output = Replay(History.from_events(parse_events("A 1..9; A 1..8; B 2..3; C 6..9")), 5)
    leader = Replay(History.from_events(parse_events("D 1..2; E 1..6; F 1..9")), 4)
    assert [str(one) for one in breaches_r3(output, [leader])] == [
        "C1: the output is final until 5, no input beyond 4",
        "C2: A at 1: the output has 2 events of it",
        "C2: A at 1: half frozen in the output as A 1..8, supported by no input",
        "C2: A at 1: half frozen in the output as A 1..9, supported by no input",
        "C2: B at 2: frozen in the output as B 2..3, but in no input",
        "C3: D at 1: an input froze D 1..2, the output is past it without it",
        "C3: E at 1: an input keeps E 1..6, the output cannot follow its end",
        "C3: F at 1: an input keeps F 1..9, the output cannot follow its end",
    ]
    ahead = Replay(leader.history, 7)
    assert "C3: E at 1: an input froze E 1..6, the output can no longer reach it" in [
        str(one) for one in breaches_r3(output, [ahead])
    ]


def test_each_condition_speaks_for_itself() -> None:
    """Where several conditions fail for one reason, each is reported."""
    event = Event("A", 1, 9)
    ahead = breaches_r3(prefix((event,), 5), [prefix((event,), 4)])
    assert [one.condition for one in ahead] == ["C1", "C2", "C3"]
    other_end = breaches_r3(prefix((Event("A", 1, 2),), 5), [prefix((Event("A", 1, 3),), 5)])
    assert [one.condition for one in other_end] == ["C2", "C3"]


def test_without_inputs_only_a_free_output_can_follow() -> None:
    assert compatible(prefix(tuple(NARROW), NEVER), [])
    assert not compatible(prefix((), 0), [])
    assert consistent([])
