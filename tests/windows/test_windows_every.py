"""Engines that keep every window: against brute force, and against the paper's engines."""

from collections import defaultdict
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import UsageError
from anabranch.windows import Arrival, Stable, engine, explain, predict

Pair = tuple[int, int]

TIMES = st.lists(st.integers(0, 25), min_size=1, max_size=12)


def pairs_of(times: list[int]) -> list[Pair]:
    return [(time, number) for number, time in enumerate(times, start=1)]


def windows_of(tuples: list[Pair], size: int, slide: int) -> dict[int, tuple[int, ...]]:
    """Start to values, for every window that holds something, by trying all."""
    found = {
        start: tuple(sorted(value for time, value in tuples if start <= time < start + size))
        for start in range(-99 // slide * slide, 99, slide)
    }
    return {start: values for start, values in found.items() if values}


@st.composite
def queries(draw: st.DrawFn) -> tuple[int, int]:
    size = draw(st.integers(1, 7))
    return size, draw(st.integers(1, size))


@pytest.mark.parametrize("name", ["spark-append", "flink", "beam"])
@given(query=queries(), times=TIMES)
def test_in_order_final_engines_are_streambase(
    name: str, query: tuple[int, int], times: list[int]
) -> None:
    tuples = [*pairs_of(sorted(times)), Stable(99)]
    ours = predict(name, *query, tuples, "collect")
    assert ours.values == predict("streambase", *query, tuples, "collect").values


@pytest.mark.parametrize("name", ["spark-append", "flink", "beam", "kafka-streams-suppress"])
@given(query=queries(), times=TIMES)
def test_with_enough_delay_final_engines_show_each_window_once_and_whole(
    name: str, query: tuple[int, int], times: list[int]
) -> None:
    tuples = pairs_of(times)
    results = predict(engine(name, delay=30), *query, [*tuples, Stable(99)], "collect").results
    expected = windows_of(tuples, *query)
    if name.startswith("kafka"):
        expected = {start: values for start, values in expected.items() if start >= 0}
    assert [(one.start, one.value) for one in results] == sorted(expected.items())


@pytest.mark.parametrize("name", ["spark-update", "kafka-streams"])
@given(query=queries(), times=TIMES)
def test_with_enough_delay_the_last_update_of_a_window_is_the_whole(
    name: str, query: tuple[int, int], times: list[int]
) -> None:
    tuples = pairs_of(times)
    results = predict(engine(name, delay=30), *query, tuples, "collect").results
    latest = {one.start: one.value for one in results}
    expected = windows_of(tuples, *query)
    if name.startswith("kafka"):
        expected = {start: values for start, values in expected.items() if start >= 0}
    assert latest == expected
    updates = sum(len(values) for values in expected.values())
    assert len(results) == updates  # each tuple is a batch, and shows all its windows


@given(query=queries(), times=TIMES, cut=st.integers(1, 5))
def test_complete_shows_every_window_with_every_batch(
    query: tuple[int, int], times: list[int], cut: int
) -> None:
    tuples = pairs_of(times)
    batched = [Arrival(time, value, batch=value // cut) for time, value in tuples]
    results = predict("spark-complete", *query, batched, "collect").results
    by_step = defaultdict(list)
    for one in results:
        by_step[one.step].append((one.start, one.value))
    ends = sorted({max(v for _, v in tuples if v // cut == v2 // cut) for _, v2 in tuples})
    for step, end in enumerate(ends, start=1):
        assert by_step[step] == sorted(windows_of(tuples[:end], *query).items())


@given(size=st.integers(1, 7), times=TIMES, cuts=st.lists(st.booleans(), min_size=12))
def test_update_on_tumbling_windows_is_coral8(
    size: int, times: list[int], cuts: list[bool]
) -> None:
    batch, before, tuples = 0, None, []
    for number, (time, new) in enumerate(zip(sorted(times), cuts, strict=False), start=1):
        batch += new or time != before
        before = time
        tuples.append(Arrival(time, number, batch=batch))
    ended = [*tuples, Stable(99)]
    ours = predict("spark-update", size, size, ended, "collect").values
    assert ours == predict("coral8", size, size, ended, "collect").values


@given(query=queries(), times=TIMES, lateness=st.integers(0, 9))
def test_discarded_panes_together_are_the_last_accumulated_one(
    query: tuple[int, int], times: list[int], lateness: int
) -> None:
    tuples = [*pairs_of(times), Stable(99)]
    kept = predict(engine("beam", lateness=lateness), *query, tuples, "collect").results
    parts = predict(engine("beam-discarding", lateness=lateness), *query, tuples, "collect")
    together: dict[int, list[int]] = defaultdict(list)
    for one in parts.results:
        together[one.start] += one.value
    assert {start: tuple(sorted(values)) for start, values in together.items()} == {
        one.start: one.value for one in kept
    }


@given(query=queries(), times=TIMES)
def test_each_tuple_is_in_each_of_its_windows_or_dropped_from_it(
    query: tuple[int, int], times: list[int]
) -> None:
    tuples = [*pairs_of(times), Stable(99)]
    explanation = explain("flink", *query, tuples, "collect")
    placed = sum(len(one.content) for one in explanation.prediction.results)
    dropped = sum(len(step.drops) for step in explanation.steps)
    total = sum(len(values) for values in windows_of(pairs_of(times), *query).values())
    assert placed + dropped == total


def test_flink_fires_a_window_again_for_each_tuple_within_the_allowed_lateness() -> None:
    tuples = [(1, 1), (5, 2), (2, 4), (3, 8), (9, 16), (0, 32)]
    results = predict(engine("flink", lateness=3), 4, 4, tuples, "sum").results
    assert [(one.start, one.value, one.late) for one in results] == [
        (0, 1, False),
        (0, 5, True),
        (0, 13, True),
        (4, 2, False),
    ]


def test_flink_shows_the_latest_of_several_late_windows_first() -> None:
    tuples = [(1, 1), (9, 2), (1, 4)]
    results = predict(engine("flink", lateness=9), 4, 2, tuples, "sum").results
    assert [(one.start, one.late) for one in results] == [
        (-2, False), (0, False), (0, True), (-2, True),
    ]  # fmt: skip


def test_flink_fires_a_window_that_a_late_tuple_makes_at_once_and_as_late() -> None:
    results = predict(engine("flink", lateness=2), 2, 1, [(2, 1), (0, 2)], "sum").results
    assert [(one.start, one.value, one.late) for one in results] == [
        (0, 2, True),
        (-1, 2, True),
    ]


@pytest.mark.parametrize("known", ["before", "after", "next"])
def test_a_tuple_within_the_lateness_is_shown_whenever_the_frontier_moves(known: str) -> None:
    beam = engine("beam", lateness=9)
    assert beam.progress is not None
    system = replace(beam, progress=replace(beam.progress, known=known))
    results = predict(system, 4, 4, [(1, 1), (6, 2), (7, 4), (2, 8)], "sum").results
    assert [(one.start, one.value, one.late) for one in results] == [
        (0, 1, False),
        (0, 9, True),
    ]


def test_spark_judges_late_rows_by_the_batch_before() -> None:
    # 2 is late for [0, 4) once the batch without data has let 9 be known; with a backlog
    # there is no such batch, and 2 still comes in time.
    tuples = [(1, 1), (9, 2), (2, 4), (20, 8), (21, 16)]
    assert predict("spark-append", 4, 4, tuples, "sum").values == (1, 2, 8)[:2]
    backlog = engine("spark-append", idle_batches=False)
    assert predict(backlog, 4, 4, tuples, "sum").values == (5, 2)


def test_kafka_judges_a_record_by_a_stream_time_that_includes_it() -> None:
    tuples = [(1, 1), (6, 2), (3, 4), (7, 8), (2, 16)]
    grace = engine("kafka-streams", delay=3)
    results = predict(grace, 4, 4, tuples, "sum").results
    assert [(one.start, one.value) for one in results] == [(0, 1), (4, 2), (0, 5), (4, 10)]
    final = engine("kafka-streams-suppress", delay=3)
    assert predict(final, 4, 4, tuples, "sum").values == (5,)


def test_kafka_has_no_window_before_0() -> None:
    assert [one.start for one in predict("kafka-streams", 4, 2, [(1, 1)]).results] == [0]
    assert [one.start for one in predict("spark-update", 4, 2, [(1, 1)]).results] == [-2, 0]


def test_beam_takes_a_tuple_at_the_very_limit_and_flink_does_not() -> None:
    tuples = [(1, 1), Stable(6), (2, 2)]
    for name, late in (("beam", True), ("flink", False)):
        results = predict(engine(name, lateness=2), 4, 4, tuples, "sum").results
        assert [one.value for one in results] == ([1, 3] if late else [1])


def test_without_a_source_delay_only_stables_close_windows() -> None:
    answer = engine("flink").without_source_delay()
    assert predict(answer, 4, 4, [(1, 1), (9, 2)], "sum").values == ()
    assert predict(answer, 4, 4, [(1, 1), (9, 2), Stable(4)], "sum").values == (1,)


@pytest.mark.parametrize(
    ("name", "settings", "expected"),
    [
        (
            "spark-append",
            {"lateness": 3},
            "spark-append has no lateness: its settings",
        ),
        ("spark-update", {"keeps": "discarding"}, "spark-update has no keeps"),
        ("kafka-streams", {"lateness": 3}, "its settings are delay"),
        ("kafka-streams", {"offset": 1}, "kafka-streams has no offset"),
        ("flink", {"idle_batches": False}, "flink has no idle_batches"),
        ("anabranch", {"lateness": 3}, "its settings are delay, offset"),
        ("stream", {"delay": 3}, "stream has no delay: it takes tuples in order"),
    ],
)
def test_a_setting_that_an_engine_has_not_is_refused(
    name: str, settings: dict[str, Any], expected: str
) -> None:
    with pytest.raises(UsageError, match=expected):
        engine(name, **settings)


def test_the_watermark_of_spark_starts_at_0() -> None:
    # -3 was before 1970; 2 is within the delay, so that nothing moves and no batch without
    # data comes: 12 is seen in the second step.
    late = engine("spark-update", delay=5)
    results = predict(late, 4, 4, [(-3, 1), (2, 2), (12, 4)], "sum").results
    assert [(one.step, one.start, one.value) for one in results] == [(2, 0, 2), (3, 12, 4)]
    nothing_late = late.without_source_delay()
    values = predict(nothing_late, 4, 4, [(-3, 1), (2, 2)], "sum").values
    assert values == (1, 2)
