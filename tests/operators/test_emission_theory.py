"""The paper's theorems on when an aggregate emits, on steps of one element.

Theorem 9 (a faster operator emits no less) is not here: for any two operators it is false, and
for ours it is measured by `benchmarks/emission.py`.

Papers: CEDR *theory* 2.2 to 2.4 and 3.2 to 3.5, with errata C1 to C11 and C29.
"""

import random
from collections import defaultdict
from itertools import pairwise

import pytest
from aggregate_streams import stream
from emission_streams import (
    adversary,
    by_element,
    by_kernel,
    columns,
    counted,
    final_table,
    in_order,
    times,
)
from hypothesis import given
from hypothesis import strategies as st

from anabranch.model.element import Adjust, Event, Insert, Stable
from anabranch.model.emission import Emit, stable_of
from anabranch.model.history import History, replay
from anabranch.model.latency import (
    clipped,
    closed_until,
    is_closed,
    is_consistent,
    is_no_later,
    is_ordered,
    is_perfect,
    is_progressive,
    output_watermark,
)
from anabranch.model.net_change import sync_time
from anabranch.model.notation import parse, parse_events
from anabranch.model.time import FOREVER
from anabranch.operators.aggregate.functions import Aggregate
from anabranch.operators.reference.aggregate import AggregateByElement
from anabranch.operators.reference.cleanse import Cleanse
from anabranch.operators.reference.snapshots import Snapshots

SEEDS = st.integers(0, 2**32)
SIZES = st.integers(1, 30)
EVERY = st.sampled_from([None, 3, 5])
each_way = pytest.mark.parametrize("emit", Emit)
each_form = pytest.mark.parametrize("made", [by_element, by_kernel])


def disordered(seed, size):
    """A valid stream with one column, whose payloads are numbers."""
    found = stream(random.Random(seed), size)
    return [
        e if isinstance(e, Stable) else type(e)(e.payload[1] or 0, *times(e)) for e in found
    ]


def by_algorithms(emit):
    """The paper's algorithms as a function of streams; the invariants are asserted."""

    def made(elements):
        state = Snapshots(len, emit)
        return columns([out for element in elements for out in state.push(element)])

    return made


# Lemmas 12 to 15: the algorithms with the errata


@each_way
@given(SEEDS, SIZES)
def test_lemmas_12_to_15_the_algorithms_keep_their_invariants(emit, seed, size):
    """They are asserted after every element; what is emitted is what the meaning asks for."""
    algorithms = Snapshots(len, emit)
    meaning = AggregateByElement(["x"], (), (Aggregate("count", None, "n"),), emit=emit)
    for element in disordered(seed, size):
        ours, theirs = algorithms.push(element), meaning.push(element)
        assert sorted(map(repr, ours)) == sorted(map(repr, theirs))


ERRATA = {
    "C1": ("insert 1 1..forever; adjust 1 1..forever->2; stable 3", "1 1..2"),
    "C2": ("insert 1 1..3; stable 2; stable 4", "1 1..3"),
    "C3": ("insert 1 1..3; insert 1 2..3; stable 4", "1 1..2; 2 2..3"),
    "C4 lost": (
        "insert 1 1..9; insert 1 1..9; insert 1 8..9; insert 1 2..3; stable forever",
        "2 1..2; 3 2..3; 2 3..8; 3 8..9",
    ),
    "C4 twice": (
        "insert 1 1..9; insert 1 1..3; insert 1 8..9; insert 1 2..3; stable forever",
        "2 1..2; 3 2..3; 1 3..8; 2 8..9",
    ),
    "C4 removed": (
        "insert 1 1..2; insert 1 2..3; adjust 1 1..2->1; adjust 1 2..3->2; stable forever",
        "",
    ),
    "C4 with C1": ("insert 1 1..forever; stable 2; adjust 1 1..forever->3; stable 4", "1 1..3"),
    "C5": (
        "insert 1 3..forever; insert 1 1..forever; adjust 1 1..forever->2; stable forever",
        "1 1..2; 1 3..forever",
    ),
    "C6": (
        "insert 1 1..9; insert 5 2..9; insert 7 8..9; adjust 5 2..9->2; stable forever",
        "1 1..8; 2 8..9",
    ),
    "C7": (
        "insert 1 2..3; adjust 1 2..3->2; insert 1 1..forever; insert 1 2..4; stable forever",
        "1 1..2; 2 2..4; 1 4..forever",
    ),
    "C8": (
        "insert 1 1..forever; insert 1 3..forever; stable 2; adjust 1 3..forever->3; "
        "stable forever",
        "1 1..forever",
    ),
    "C29": ("insert 1 1..2; insert 1 1..3; stable 4", "2 1..2; 1 2..3"),
}


@each_way
@pytest.mark.parametrize("text", ERRATA.values(), ids=ERRATA)
def test_errata_of_the_algorithms(emit, text):
    elements, truth = parse(text[0]), History.from_events(parse_events(text[1]))
    truth = History.from_events(Event((int(e.payload),), e.start, e.end) for e in truth)
    elements = [
        e if isinstance(e, Stable) else type(e)(int(e.payload), *times(e)) for e in elements
    ]
    for made in (by_algorithms(emit), by_element(emit), by_kernel(emit)):
        output = made(elements)
        assert replay(output).violations == ()
        assert History.of(output) == truth


def test_erratum_c2_the_stable_is_held_at_the_start_of_what_is_withheld():
    output = by_algorithms(Emit.PASSED)(parse("insert a 1..3; stable 2; stable 4"))
    assert output == [Stable(1), Insert((1,), 1, 3), Stable(4)]


# Theorem 10, and what input in order gives


@each_form
@given(SEEDS, SIZES, EVERY)
def test_perfect_in_perfect_out_if_passed(made, seed, size, every):
    elements = in_order(random.Random(seed), size, perfect=True)
    assert is_perfect(elements)
    output = made(Emit.PASSED, every)(elements)
    assert is_perfect(output)
    if is_closed(elements):
        assert is_closed(output)


@each_form
@given(SEEDS, SIZES, EVERY)
def test_ordered_in_ordered_out_if_ordered(made, seed, size, every):
    """With adjusts that lengthen, whose sync time is the lesser of their ends (erratum C9)."""
    elements = in_order(random.Random(seed), size)
    assert is_ordered(elements)
    assert is_ordered(made(Emit.ORDERED, every)(elements))


def test_erratum_c9_ordered_in_ordered_out():
    text = "insert 1 1..forever; insert 1 3..forever; adjust 1 3..forever->3; stable forever"
    output = by_algorithms(Emit.ORDERED)(parse(text))
    assert is_ordered(output)
    assert History.of(output) == History.from_events([Event((1,), 1, FOREVER)])


@pytest.mark.parametrize("emit", [Emit.PASSED, Emit.ORDERED])
@given(SEEDS, SIZES, EVERY)
def test_of_several_groups_each_has_that_order(emit, seed, size, every):
    """Not all together: groups finish at different times (erratum X3)."""
    elements = in_order(random.Random(seed), size, perfect=emit is Emit.PASSED)
    made = Aggregate("count", None, "n")
    state = AggregateByElement(["x"], ("x",), (made,), emit=emit, cut_every=every)
    groups = defaultdict(list)
    for element in elements:
        for out in state.push(element):
            if not isinstance(out, Stable):
                groups[out.payload[0]].append(out)
    for output in groups.values():
        assert is_ordered(output)
        assert emit is Emit.ORDERED or is_perfect(output)


@given(SEEDS, SIZES)
def test_theorem_10_whoever_emits_more_must_take_it_back(seed, size):
    """Whatever of the table `passed` withholds, some perfect stream goes on to make untrue."""
    elements = in_order(random.Random(seed), size, perfect=True)
    for at, _ in enumerate(elements):
        prefix = elements[: at + 1]
        table = counted(History.of(prefix))
        withheld = table.minus(History.of(by_element(Emit.PASSED)(prefix)))
        for event in withheld:
            follows = [*prefix, adversary(prefix, event)]
            assert is_perfect(follows)
            assert replay(follows).violations == ()
            assert event not in counted(History.of(follows))


@pytest.mark.parametrize("emit", [Emit.AT_ONCE, Emit.ORDERED])
def test_theorem_10_the_faster_ways_do_not_preserve_perfectness(emit):
    prefix = [Insert(1, 1, 9)]
    follows = [*prefix, adversary(prefix, Event((1,), 1, 9))]
    assert is_perfect(follows)
    assert any(isinstance(one, Adjust) for one in by_kernel(emit)(follows))


# Definitions 7 and 8


@each_way
@each_form
@given(SEEDS, SIZES)
def test_consistent_and_progressive(made, emit, seed, size):
    """Definitions 7 and 8 by the clipped table (errata C10, C11)."""
    elements = disordered(seed, size)
    assert is_consistent(made(emit), counted, elements)
    assert is_progressive(made(emit), counted, elements)


@each_way
@given(SEEDS, SIZES, EVERY)
def test_the_output_is_right_as_far_as_it_is_final(emit, seed, size, every):
    """Its history up to its own stable is the table's; what ends by the input's is all out."""
    elements = disordered(seed, size)
    output, table = by_element(emit, every)(elements), final_table(elements, every)
    passed, stable = closed_until(elements), closed_until(output)
    assert replay(output).violations == ()
    assert clipped(History.of(output), stable) == clipped(table, stable)
    over = History.from_events(e for e in table if e.end <= passed)
    assert len(over.minus(History.of(output))) == 0
    held = stable_of(table, emit, frontier=passed, every=every)
    assert stable == held
    if every is not None and passed not in (FOREVER, -FOREVER):
        assert stable > passed - every


def test_erratum_c10_a_chain_of_adjusts_is_not_cut_in_the_middle():
    chain = parse("insert 1 1..20; adjust 1 1..20->10; adjust 1 1..10->5; stable 8")
    for emit in Emit:
        assert is_progressive(by_element(emit), counted, chain)
        output = by_element(emit)([*chain, Stable(FOREVER)])
        assert History.of(output) == History.from_events([Event((1,), 1, 5)])


def test_erratum_c11_a_result_may_last_as_long_as_its_input():
    """Closed in the paper's words, and yet the result cannot be out."""
    early = parse("insert 7 1..10; stable 5")
    assert not is_closed(early)
    assert History.of(by_element(Emit.PASSED)(early)) == History({})
    assert is_closed([*early, Stable(11)])
    assert History.of(by_element(Emit.PASSED)([*early, Stable(11)])) == counted(
        History.of(early)
    )


# Definitions 10 and 11, Theorem 8


def aligned(first):
    """A count that waits for stables: the input in order, or its final events in order."""

    def made(elements):
        state = first()
        inner = [out for element in elements for out in state.push(element)]
        return by_element(Emit.PASSED)(inner)

    return made


class AlignBySync:
    """Releases at a stable what has a lesser sync time, in that order (erratum C15)."""

    def __init__(self):
        self.held = []

    def push(self, element):
        if isinstance(element, Stable):
            return [*self._released(element.time), element]
        if isinstance(element, Insert):
            self.held.append([element.payload, element.start, None, element.end])
        else:
            name = [element.payload, element.start]
            one = next(e for e in self.held if [*e[:2], e[3]] == [*name, element.old_end])
            one[3] = element.end
        return []

    def _released(self, time):
        found = []
        for one in self.held:
            payload, start, shown, end = one
            if shown is None and start < time and end > start:
                found.append(Insert(payload, start, end))
                one[2] = end
            elif shown not in (None, end) and min(shown, end) < time:
                found.append(Adjust(payload, start, shown, end))
                one[2] = end
        return sorted(found, key=sync_time)


STRONG, ULTRA = aligned(AlignBySync), aligned(Cleanse)


@given(SEEDS, SIZES)
def test_theorem_8_the_order_of_latencies(seed, size):
    """Who preserves order is no later than who preserves perfectness or waits for stables."""
    elements = disordered(seed, size)
    prefixes = [elements[:end] for end in range(len(elements) + 1)]
    passed = by_element(Emit.PASSED)
    for fast in (by_element(Emit.ORDERED), by_element(Emit.AT_ONCE)):
        assert is_no_later(fast, passed, prefixes)
        assert is_no_later(fast, STRONG, prefixes)
    assert is_no_later(passed, ULTRA, prefixes)
    assert is_no_later(STRONG, ULTRA, prefixes)


@given(SEEDS, SIZES)
def test_at_once_knows_all_that_the_others_know(seed, size):
    """Of `ordered`, all but the results that are still open."""
    elements = disordered(seed, size)
    known = History.of(by_element(Emit.AT_ONCE)(elements))
    for emit in (Emit.ORDERED, Emit.PASSED):
        found = History.of(by_element(emit)(elements))
        closed = History.from_events(e for e in found if e.end < FOREVER)
        assert len(closed.minus(known)) == 0


def test_theorem_8_passed_and_strong_are_not_comparable():
    """One emits when a start passes a result, the other when a stable is beyond its start."""
    started, late = parse("insert 1 1..3; insert 1 5..9"), parse("insert 1 1..3; stable 4")
    passed = by_element(Emit.PASSED)
    assert output_watermark(passed(started)) > output_watermark(STRONG(started))
    assert output_watermark(passed(late)) == output_watermark(STRONG(late)) == 3


@given(SEEDS, SIZES)
def test_theorem_7_strong_emits_at_stables_alone_and_in_order(seed, size):
    elements = disordered(seed, size)
    for before, after in pairwise([elements[:end] for end in range(len(elements) + 1)]):
        if not isinstance(after[-1], Stable):
            assert STRONG(before) == STRONG(after)
    assert is_consistent(STRONG, counted, elements)
    assert is_ordered(STRONG(elements))


def test_theorem_9_is_false_for_any_two_operators():
    """A slower operator that inserts each result twice, and removes it once, emits more."""

    def chatty(elements):
        output = by_element(Emit.PASSED)(elements)
        twice = [[one, Adjust(*one.event, one.start), one] for one in output]
        return [each for some in twice for each in some]

    elements = parse("insert 1 1..3; insert 1 5..7; insert 1 9..11")
    fast = by_element(Emit.AT_ONCE)
    assert is_no_later(fast, chatty, [elements])
    assert len(chatty(elements)) > len(fast(elements))
