"""Each erratum of the paper that the model follows, by its smallest example."""

import pytest

from anabranch.errors import InputError
from anabranch.windows import (
    Arrival,
    Engine,
    Report,
    Shape,
    Stable,
    Start,
    engine,
    explain,
    predict,
    split_batches,
)
from anabranch.windows.stream import read

CLOSE = Report(window_close=True)
CLOSE_NON_EMPTY = Report(window_close=True, non_empty=True)
STREAM_FLAGS = Report(window_close=True, content_change=True, non_empty=True)


def fixed(t0: int, report: Report, tick: str = "tuple") -> Engine:
    return Engine("test", Start("fixed", offset=t0), report, tick)  # type: ignore[arg-type]


def test_erratum_s1_the_last_tick_is_the_last_that_called_report() -> None:
    tuples = [Arrival(3, 10, batch=1), Arrival(3, 20, batch=2), Arrival(4, 30, batch=3)]
    assert predict("coral8", 4, 1, tuples, "sum").values == (10, 30)


def test_erratum_s3_a_tick_gives_a_sequence_of_contents_not_a_union() -> None:
    tuples = [(30, 10), (31, 20), (36, 30)]
    results = predict("streambase", 5, 1, tuples, "collect").results
    at_third = [one.value for one in results if one.step == 3]
    assert at_third == [(10, 20), (10, 20), (10, 20), (10, 20), (20,)]


def test_erratum_s4_an_empty_report_is_a_report() -> None:
    tuples = [(1, 10), (9, 20)]
    # The first tuple's own window, then three empty ones at 3, 5 and 7.
    always = predict(fixed(-1, CLOSE), 2, 2, tuples).results
    assert [(one.instant, one.value) for one in always] == [(1, 1), (3, 0), (5, 0), (7, 0)]
    assert predict(fixed(-1, CLOSE_NON_EMPTY), 2, 2, tuples).values == (1,)


def test_erratum_s5_change_is_measured_from_the_last_report() -> None:
    assert predict(fixed(0, STREAM_FLAGS), 3, 3, [(1, 1), (2, 2), (4, 4)], "sum").values == (3,)


def test_erratum_s5_a_change_between_two_periods_is_reported_at_the_second() -> None:
    every_second = Report(content_change=True, period=2)
    results = predict(fixed(0, every_second), 9, 9, [(3, 1), (6, 2)]).results
    assert [(one.instant, one.value) for one in results] == [(4, 1)]


def test_erratum_s6_the_active_window_at_its_close_is_itself() -> None:
    shape = Shape(t0=0, size=3, slide=3)
    assert [shape.index(t) for t in range(8)] == [0, 0, 0, 0, 1, 1, 1, 2]


def test_erratum_s7_no_partial_window_before_time_has_gone_past_it() -> None:
    tuples = [(10, 1), (11, 2), (11, 4), (12, 8)]
    assert predict(fixed(8, CLOSE_NON_EMPTY), 3, 3, tuples, "sum").values == (7,)


def test_erratum_s8_an_instant_is_shown_by_the_next_arrival() -> None:
    assert predict("coral8", 4, 1, [(3, 10)], "sum").values == ()
    assert predict("coral8", 4, 1, [(3, 10), Stable(4)], "sum").values == (10,)


def test_erratum_s9_a_first_batch_called_0_ticks_too() -> None:
    tuples = [Arrival(3, 10, batch=0), Arrival(3, 20, batch=1), Arrival(4, 30, batch=2)]
    assert [row.batch for row in read(tuples)] == [1, 2, 3]
    assert predict("coral8", 4, 1, tuples, "sum").values == (10, 30)


def test_erratum_s11_without_lead_the_first_window_holds_the_first_tuple() -> None:
    assert Start("grid", lead=True).t0(10, size=5, slide=5) == 4
    assert Start("grid").t0(10, size=5, slide=5) == 9
    assert Start("grid", lead=True).t0(8, size=5, slide=1) == 2
    assert Start("grid").t0(8, size=5, slide=1) == 3


def test_erratum_s11_a_tuple_before_the_first_window_does_not_tick() -> None:
    assert engine("streambase").start.t0(2, size=1, slide=9) == 8
    explanation = explain("streambase", 1, 9, [(2, 1), (3, 2), (9, 3), (10, 4)])
    assert [step.tick.holds for step in explanation.steps] == [False, False, True, True]
    assert [one.dimension for one in explanation.unseen] == ["scope", "scope", "tick"]


@pytest.mark.parametrize(("end", "thirties"), [(36, 0), (37, 1), (38, 2)])
def test_erratum_s15_the_last_result_of_example_2_needs_a_tuple_at_37(
    end: int, thirties: int
) -> None:
    tuples = [(30, 10), (31, 20), (36, 30), (end, 40)]
    assert predict("streambase", 5, 1, tuples, "avg").values[6:] == (30.0,) * thirties


def test_erratum_s16_of_three_simultaneous_tuples_one_evaporates() -> None:
    tuples = [(1, "a"), (1, "b"), (1, "c"), Stable(2)]
    by_tuple = fixed(0, CLOSE_NON_EMPTY, "tuple")
    by_time = fixed(0, CLOSE_NON_EMPTY, "time")
    assert predict(by_tuple, 2, 1, tuples, "collect", by="rows").values == (
        ("a", "b"),
        ("b", "c"),
    )
    assert predict(by_time, 2, 1, tuples, "collect", by="rows").values == (("b", "c"),)
    unseen = explain(by_time, 2, 1, tuples, by="rows").unseen
    assert [(one.dimension, one.why.split(":")[0]) for one in unseen] == [
        ("content", "(1, a) evaporated")
    ]


def test_erratum_s16_of_several_closes_in_one_tick_only_the_last_is_shown() -> None:
    tuples = [(1, 1), (1, 2), (1, 3), (1, 4), (1, 5), (2, 6)]
    values = predict(
        fixed(0, CLOSE_NON_EMPTY, "time"), 2, 2, tuples, "collect", by="rows"
    ).values
    assert values == ((3, 4),)


def test_erratum_s17_open_on_the_left_is_half_open_one_unit_later() -> None:
    result = predict("spark-append", 3, 3, [(10, 1), (12, 1)], "count").results[0]
    assert (result.start, result.end) == (9, 12)
    same = predict("streambase", 3, 3, [(10, 1), (12, 1)], "count").results[0]
    assert (same.start, same.end) == (9, 12)


def test_erratum_s18_between_windows_nothing_is_in_scope() -> None:
    shape = Shape(t0=0, size=2, slide=5)
    scopes = [shape.scope(t) for t in range(8)]
    assert [scope.length if scope else 0 for scope in scopes] == [0, 1, 2, 0, 0, 0, 1, 2]
    always = predict(fixed(0, Report()), 2, 5, [(1, 1), (4, 2), (7, 3), (8, 4)], "collect")
    shown = {one.instant: one.value for one in always.results}
    assert shown == {0: (), 1: (1,), 2: (1,), 3: (), 4: (), 5: (), 6: (), 7: (3,)}


def test_erratum_d17_a_micro_batch_is_split_by_time() -> None:
    mixed = [Arrival(5, "b", batch=1), Arrival(3, "a", batch=1), Arrival(5, "c", batch=2)]
    assert [(one.time, one.value, one.batch) for one in split_batches(mixed)] == [
        (3, "a", 1),
        (5, "b", 2),
        (5, "c", 3),
    ]
    with pytest.raises(InputError, match=r"batch 1 holds time 3 and time 5.*split_batches"):
        predict("coral8", 4, 1, [Arrival(3, 1, batch=1), Arrival(5, 1, batch=1)])


def test_erratum_d20_equal_values_that_come_and_go_are_a_change() -> None:
    values = predict("coral8", 1, 1, [(1, 7), (2, 7), (3, 7), (4, 7)], "sum").values
    assert values == (7, 7, 7)
