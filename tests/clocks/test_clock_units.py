"""Times near the ends of a column: sums and differences neither wrap nor promise too much."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from anabranch.batch.batch import FOREVER_UNITS, NEVER_UNITS
from anabranch.clocks import Bounds, Clock, Learning, Pair, Summaries, disorder, k_ordered
from anabranch.clocks.pairs import MOST
from anabranch.clocks.summary import summarise
from anabranch.clocks.units import behind, less, more

EDGE = st.sampled_from([NEVER_UNITS + 1, FOREVER_UNITS - 1, -MOST, MOST, 0])
TIMES = st.lists(EDGE | st.integers(NEVER_UNITS + 1, FOREVER_UNITS - 1), min_size=1, max_size=5)
SPANS = st.sampled_from([0, 1, MOST - 1, MOST]) | st.integers(0, MOST)


@given(TIMES, SPANS)
def test_sums_and_differences_stay_within_a_column(times, span):
    column = np.array(times, np.int64)
    assert less(column, span).tolist() == [max(time - span, NEVER_UNITS) for time in times]
    assert more(column, span).tolist() == [min(time + span, FOREVER_UNITS) for time in times]


@given(EDGE, TIMES)
def test_a_distance_behind_is_whole_and_bounded(greatest, times):
    found = behind(greatest, np.array(times, np.int64)).tolist()
    assert found == [min(max(greatest - time + 1, 0), MOST) for time in times]


@given(
    TIMES,
    SPANS,
    SPANS,
    st.sampled_from(["disorder", "matrix", "learned", "quantile", "rows", "guard"]),
)
def test_no_heartbeat_is_above_the_greatest_time(times, distance, wait, kind):
    bounds = {
        "disorder": disorder(min(distance, MOST - 1)),
        "guard": disorder(min(distance, MOST - 1)),
        "matrix": Bounds.of({("a", "a"): [Pair(wait, distance)]}, latency=distance),
        "learned": Learning(window=None, warm_up=0),
        "quantile": Learning(target_loss=0.5, warm_up=0),
        "rows": k_ordered(1, strict=True),
    }[kind]
    state = Clock(bounds).empty()
    guard = distance if kind == "guard" else None
    for now, time in enumerate(times, 1):
        lines = summarise(["a"], [time], [now], histogram=True, guard=guard)
        beat = state.step(lines, now)
        if guard is not None and time - now > guard:
            assert beat.ahead.sum() == 1
        state.check()
        assert (beat.heartbeat <= beat.greatest).all()
    assert (state.step(Summaries.none(), FOREVER_UNITS // 2).heartbeat <= max(times)).all()


def test_a_time_at_the_end_of_a_column_is_not_promised_away():
    state = Clock(disorder(MOST - 1)).empty()
    beat = state.step(summarise(["a"], [-MOST - 3 * 10**18], [1]), 1)
    assert beat.stable is None
