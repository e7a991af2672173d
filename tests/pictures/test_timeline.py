"""What a timeline shows: the paper's windows and reports, and every predicted result."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import UsageError
from anabranch.pictures import timeline
from anabranch.pictures.axis import marks, show_duration, show_mark, show_time
from anabranch.pictures.timeline import MOST_BARS, pack
from anabranch.windows import ENGINES, Arrival, Stable, engine, predict

EXAMPLE_2 = [(30, 10), (31, 20), (36, 30), Stable(37)]
THREE = ("stream", "coral8", "streambase")


def example_2() -> list:
    return [predict(name, 5, 1, EXAMPLE_2, "avg") for name in THREE]


def test_secret_example_2_windows_and_reports() -> None:
    seen = timeline(example_2(), EXAMPLE_2)
    found = {
        track.name: {bar.end - 1: [mark.label for mark in bar.marks] for bar in track.bars}
        for track in seen.tracks
    }
    quiet = {30: ["10"], 31: ["15"], 32: [], 33: [], 34: [], 35: ["20"], 36: ["30"]}
    assert found["stream"] == quiet
    assert found["coral8"] == quiet
    assert found["streambase"] == quiet | {32: ["15"], 33: ["15"], 34: ["15"]}
    assert [track.same_as for track in seen.tracks] == [None, "stream", None]
    assert [(point.at, point.label) for point in seen.points] == [
        (30, "10"),
        (31, "20"),
        (36, "30"),
    ]
    assert (seen.low, seen.high, seen.stables) == (26, 37, (37,))


def test_the_words_for_those_who_cannot_see_it_have_every_result() -> None:
    words = timeline(example_2(), EXAMPLE_2).words
    assert "30 at 36" in words
    assert "streambase returns 10, 15, 15, 15, 15, 20, 30" in words


def test_a_report_after_a_stable_is_at_the_stable() -> None:
    tuples = [(1, 1), (2, 2), Stable(30)]
    (track,) = timeline([predict("flink", 5, 5, tuples, "sum")], tuples).tracks
    assert [(mark.at, mark.label) for mark in track.bars[0].marks] == [(30, "3")]


def test_late_reports_are_marked_and_dropped_tuples_are_there() -> None:
    tuples = [(1, 1), (6, 2), (2, 4), (20, 8), (3, 16)]
    late = engine("flink", lateness=3)
    (track,) = timeline([predict(late, 5, 5, tuples, "sum")], tuples).tracks
    (mark,) = track.bars[0].marks
    assert (mark.label, mark.late) == ("1, late 5", True)
    assert [(point.at, point.label) for point in track.dropped] == [(3, "16")]


def test_a_tuple_out_of_order_shows_when_it_came() -> None:
    tuples = [(1, 7), (6, 8), (2, 9)]
    points = timeline([predict("flink", 5, 5, tuples)], tuples).points
    assert [point.label for point in points] == ["7", "8", "9 #3"]


def test_windows_of_tuples_are_drawn_over_numbers() -> None:
    tuples = [(100, 1), (200, 2), (300, 3), Stable(400)]
    seen = timeline([predict("streambase", 2, 1, tuples, "sum", by="rows")], tuples)
    assert seen.axis == "number of the tuple"
    assert (seen.low, seen.high, seen.stables) == (1, 3, ())
    assert [(bar.start, bar.marks[0].at) for bar in seen.tracks[0].bars] == [(1, 2), (2, 3)]


def test_too_many_windows_are_counted_not_drawn_and_the_axis_ends_with_them() -> None:
    tuples = [(at, at) for at in range(200)]
    seen = timeline([predict(n, 2, 2, tuples, "sum") for n in ("flink", "stream")], tuples)
    for track in seen.tracks:
        assert 0 < len(track.bars) <= MOST_BARS
        assert track.left_out > 0
    assert seen.high < 100
    assert max(point.at for point in seen.points) <= seen.high


def test_two_queries_are_not_one_timeline() -> None:
    with pytest.raises(UsageError, match="got 2 queries"):
        timeline([predict("flink", size, 2, EXAMPLE_2) for size in (2, 4)], EXAMPLE_2)


@given(
    st.sampled_from(sorted(ENGINES)),
    st.integers(1, 5),
    st.integers(1, 5),
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 9), st.booleans()), min_size=1),
    st.integers(0, 3),
)
def test_every_result_has_a_mark_on_its_window_and_no_mark_is_without(
    name: str, size: int, slide: int, gaps: list[tuple[int, int, bool]], lateness: int
) -> None:
    system = engine(name)
    slide = slide if system.gaps else min(slide, size)
    if system.progress is not None and system.progress.lateness is not None:
        system = replace(system, progress=replace(system.progress, lateness=lateness))
    reached, tuples = 0, []
    for gap, value, back in gaps[:20]:
        reached += gap
        at = reached - 3 if back and system.windows == "every" else reached
        tuples.append(Arrival(at, value))
    given_tuples = [*tuples, Stable(reached + 1)]
    prediction = predict(system, size, slide, given_tuples, "sum")
    (track,) = timeline([prediction], given_tuples).tracks
    drawn = {(bar.start, bar.end) for bar in track.bars if bar.marks}
    predicted = {(result.start, result.end) for result in prediction.results}
    assert drawn <= predicted
    assert track.left_out or drawn == predicted


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 9)), max_size=40))
def test_nothing_overlaps_on_its_level(stretches: list[tuple[int, int]]) -> None:
    extents = [(begin, begin + length) for begin, length in sorted(stretches)]
    levels = pack(extents)
    for level in set(levels):
        row = [one for one, at in zip(extents, levels, strict=True) if at == level]
        assert all(a[1] <= b[0] for a, b in pairwise(row))
    # No level more than needed: as many as overlap at some point.
    deepest = max((sum(b <= at < e for b, e in extents) for at, _ in extents), default=0)
    assert max(levels, default=-1) + 1 == deepest


HOUR = 3_600_000_000


@pytest.mark.parametrize(
    ("low", "high", "clock", "expected"),
    [
        (0, 10, False, ["0", "2", "4", "6", "8", "10"]),
        (-3, 3, False, ["-2", "0", "2"]),
        (5, 5, False, ["5"]),
        (0, HOUR, True, ["00:00", "00:15", "00:30", "00:45", "01:00"]),
        (0, 4_000_000, True, ["00:00", "00:00:01", "00:00:02", "00:00:03", "00:00:04"]),
        (0, 40, True, ["00:00", "00:00:00.00001", "00:00:00.00002", "00:00:00.00003",
                       "00:00:00.00004"]),
        (0, 240 * HOUR, True, ["01-01", "01-03", "01-05", "01-07", "01-09", "01-11"]),
        (0, 48 * HOUR, True, ["01-01", "01-01 12:00", "01-02", "01-02 12:00", "01-03"]),
    ],
)  # fmt: skip
def test_marks_of_an_axis(low: int, high: int, clock: bool, expected: list[str]) -> None:
    found = marks(low, high, 5, clock=clock)
    assert [show_mark(at, low, high, clock=clock) for at in found] == expected


@pytest.mark.parametrize(
    ("units", "expected"),
    [(HOUR, "1 hour"), (90 * 60_000_000, "90 minutes"), (1, "1 microsecond"), (0, "0 days")],
)
def test_durations_in_words(units: int, expected: str) -> None:
    assert show_duration(units, clock=True) == expected


def test_a_year_that_no_calendar_has() -> None:
    assert show_time(10**18, clock=True) == "1000000000000000000 us"
