"""What a table shows in each way to emit, on a grid or not; order, closure and watermarks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import UsageError
from anabranch.model.element import Event, Insert, Stable
from anabranch.model.emission import Emit, cut_on_grid, is_final, shown, stable_of
from anabranch.model.history import History, replay
from anabranch.model.latency import (
    clipped,
    clipped_stream,
    closed_until,
    is_closed,
    is_ordered,
    is_perfect,
    output_watermark,
)
from anabranch.model.notation import parse, parse_events
from anabranch.model.operators import aggregate
from anabranch.model.properties import MergeCase
from anabranch.model.time import FOREVER, NEVER
from anabranch.testing.strategies import histories, presentations

BAGS = histories(case=MergeCase.R4, max_events=6, max_time=12)
TIMES = st.integers(-1, 14)
EVERY = st.integers(1, 6)


def table_of(text):
    return History.from_events(parse_events(text))


def counted(history):
    return aggregate(history, lambda _: (), lambda alive: (len(alive),))


@given(BAGS, TIMES)
def test_the_ways_show_more_the_earlier_they_are(history, passed):
    table = counted(history)
    ways = {emit: shown(table, emit, passed=passed) for emit in Emit}
    assert ways[Emit.AT_ONCE] == table
    for emit in (Emit.ORDERED, Emit.PASSED):
        over = History.from_events(e for e in table if e.end <= passed)
        assert len(over.minus(ways[emit])) == 0
    assert len(ways[Emit.PASSED]) <= len(ways[Emit.ORDERED]) <= len(table)
    assert all(shown(table, emit, passed=FOREVER) == table for emit in Emit)
    assert all(len(shown(table, emit, passed=NEVER)) == 0 for emit in list(Emit)[1:])


@given(BAGS, TIMES)
def test_what_ends_before_the_stable_is_shown_and_stays(history, frontier):
    """Whatever is not final starts where the stable is held, or later."""
    table = counted(history)
    for emit in Emit:
        held = stable_of(table, emit, frontier=frontier)
        assert held <= frontier
        found = shown(table, emit, passed=frontier)
        assert clipped(found, held) == clipped(table, held)
        if emit is Emit.PASSED:
            assert all(is_final(e, frontier=frontier) for e in table if e.start < held)


@given(BAGS, EVERY, TIMES)
def test_a_grid_changes_no_snapshot_and_bounds_lengths(history, every, until):
    table = counted(history)
    cut = cut_on_grid(table, every, until=until)
    for time in range(-2, 16):
        one, other = (sorted(e.payload for e in h.snapshot(time)) for h in (table, cut))
        assert one == other
    assert all(e.end - e.start <= every for e in cut if e.end < FOREVER)
    assert all(e.end % every == 0 or e.end in {o.end for o in table} for e in cut)


@given(BAGS, EVERY, TIMES)
def test_the_stable_of_a_grid_is_less_than_a_step_behind(history, every, frontier):
    cut = cut_on_grid(counted(history), every, until=frontier)
    held = stable_of(cut, Emit.PASSED, frontier=frontier, every=every)
    assert frontier - every < held <= frontier


@given(BAGS, TIMES)
def test_the_aggregate_of_what_is_clipped_is_the_clipped_aggregate(history, time):
    assert counted(clipped(history, time)) == clipped(counted(history), time)


@given(BAGS.flatmap(lambda history: presentations(history, case=MergeCase.R4)), TIMES)
def test_a_clipped_stream_has_the_clipped_history(stream, time):
    """It is valid up to its last stable: erratum C10."""
    until = closed_until(stream)
    found = replay(clipped_stream(stream, until))
    assert found.violations == ()
    assert found.history == clipped(History.of(stream), until)
    assert History.of(clipped_stream(stream, time)) == clipped(History.of(stream), time)


def test_an_open_event_is_cut_as_far_as_time_has_passed():
    open_one = table_of("a 3..forever")
    assert cut_on_grid(open_one, 10, until=25) == table_of("a 3..10; a 10..20; a 20..forever")
    assert cut_on_grid(open_one, 10, until=NEVER) == open_one
    assert cut_on_grid(open_one, 10, until=3) == open_one
    assert cut_on_grid(table_of("a -7..12"), 5, until=NEVER) == table_of(
        "a -7..-5; a -5..0; a 0..5; a 5..10; a 10..12"
    )


def test_an_end_at_the_frontier_is_final_on_the_grid_alone():
    event = Event("a", 1, 20)
    assert not is_final(event, frontier=20)
    assert not is_final(event, frontier=20, every=15)
    assert is_final(event, frontier=20, every=10)
    assert is_final(event, frontier=21)


def test_errata_c2_and_c8_where_the_stable_is_held():
    table = table_of("1 1..3; 2 3..5; 1 5..9")
    held = [stable_of(table, Emit.PASSED, frontier=time) for time in (1, 2, 3, 4, 5, 6, 9, 10)]
    assert held == [1, 1, 1, 3, 3, 5, 5, 10]
    assert stable_of(table, Emit.ORDERED, frontier=6) == 6
    assert stable_of(table, Emit.PASSED, frontier=FOREVER) == FOREVER


def test_definitions_3_to_5():
    chain = parse("insert a 1..20; adjust a 1..20->10; insert b 10..12; stable 11")
    assert is_ordered(chain)
    assert not is_perfect(chain)
    assert not is_ordered([*chain, Stable(10)])
    assert is_perfect(parse("insert a 1..4; insert b 1..9; stable 2"))
    assert closed_until(chain) == 11
    assert closed_until([]) == NEVER


def test_erratum_c11_closed_is_beyond_every_end():
    assert not is_closed(parse("insert a 1..20; stable 5"))
    assert not is_closed(parse("insert a 1..20; stable 20"))
    assert is_closed(parse("insert a 1..20; stable 21"))
    assert is_closed([Insert("a", 1, FOREVER), Stable(FOREVER)])
    assert not is_closed([Stable(5), Insert("a", 5, 6)])
    assert not is_closed([])


def test_definition_10_the_watermark_counts_every_end_that_was_shown():
    assert output_watermark(parse("insert a 1..20; adjust a 1..20->10; stable 30")) == 20
    assert output_watermark([Stable(30)]) == NEVER


def test_a_way_to_emit_by_its_text():
    assert [Emit.of(word, where="x") for word in ("at_once", "ordered", "passed")] == list(Emit)
    with pytest.raises(UsageError, match=r"x: emit='soon' is not a way .* 'at_once'"):
        Emit.of("soon", where="x")
