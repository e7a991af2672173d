"""Union on every engine: the bag sum of the inputs' histories, up to the least frontier."""

from itertools import pairwise

import pytest
from hypothesis import Phase, given, seed, settings
from hypothesis import strategies as st

from anabranch.model.history import History, replay
from anabranch.model.properties import MergeCase
from anabranch.model.time import NEVER
from anabranch.testing import interleavings, replicas


def the_history_is_the_bag_sum_at_every_cut(engine, data):
    streams = data.draw(replicas(case=MergeCase.R4, min_inputs=2, max_inputs=3))
    arrived = data.draw(interleavings(streams))
    inner = data.draw(st.lists(st.integers(0, len(arrived)), max_size=4).map(sorted))
    with engine("union") as union:
        for number in range(len(streams)):
            union.attach(f"r{number}")
        for start, stop in pairwise([0, *inner, len(arrived)]):
            for number, element in arrived[start:stop]:
                union.push(f"r{number}", [element])
            union.restart() if data.draw(st.booleans()) else union.cut()
            seen = [
                replay([element for one, element in arrived[:stop] if one == number])
                for number in range(len(streams))
            ]
            out = replay(union.output)
            assert out.violations == ()
            events = [event for one in seen for event in one.history.events()]
            assert out.history == History.from_events(events)
            assert out.frontier == min((one.frontier for one in seen), default=NEVER)
        counts = {name: sum(one.values()) for name, one in union.account.items()}
        assert sum(counts.values()) == len(arrived)


@given(st.data())
def test_the_history_is_the_bag_sum(local_engine, data):
    the_history_is_the_bag_sum_at_every_cut(local_engine, data)


@pytest.mark.spark
@pytest.mark.deep  # its cases run on Spark in every check
@pytest.mark.parametrize("number", [1, 2])
def test_the_history_is_the_bag_sum_on_spark(spark_engine, number):
    @seed(number)
    @settings(max_examples=3, phases=[Phase.generate], database=None, derandomize=False)
    @given(st.data())
    def tried(data):
        the_history_is_the_bag_sum_at_every_cut(spark_engine, data)

    tried()


def test_a_silent_input_holds_the_frontier_until_it_is_detached(engine):
    with engine("union") as union:
        union.attach("east")
        union.attach("west")
        union.push("east", "insert a 1..4; stable 6")
        union.cut()
        assert replay(union.output).frontier == NEVER
        union.detach("west")
        union.cut()
        assert replay(union.output).frontier == 6


def test_an_input_that_attaches_later_adds_what_is_not_final_yet(engine):
    with engine("union") as union:
        union.attach("east")
        union.push("east", "insert a 1..9; stable 5")
        union.cut()
        union.attach("west")
        union.push("west", "insert b 3..9; insert c 6..9; stable 7")
        union.cut()
        assert union.account["west"]["late"] == 1
        assert sorted(event.payload for event in union.history.events()) == ["a", "c"]
