"""What cannot be meant is refused, and the message names the remedy."""

import pytest

from anabranch.errors import InputError, UsageError
from anabranch.windows import (
    Arrival,
    Engine,
    Progress,
    Query,
    Report,
    Stable,
    Start,
    compare,
    engine,
    in_triggers,
    predict,
    predict_join,
    synchronised,
)
from anabranch.windows.stream import Given

ONE: list[Given] = [(1, 1)]


@pytest.mark.parametrize(
    ("size", "slide", "message"),
    [
        (0, 1, "size is 0, it must be at least 1"),
        (-5, 1, "size is -5"),
        (5, 0, "slide is 0"),
        (5, -1, "slide is -1"),
        (2.5, 1, r"size is 2\.5, it must be a whole number; count time in a smaller unit"),
        (2, 0.5, r"slide is 0\.5"),
        (True, 1, "size is True"),
        ("5", 1, "size is '5'"),
    ],
)
def test_sizes_and_slides_are_whole_and_positive(size: int, slide: int, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        predict("flink", size, slide, ONE)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("streembase", "did you mean streambase"),
        ("spark", "spark-append"),
        ("kafka", "kafka-streams"),
        ("Coral9", "did you mean coral8"),
        ("zzz", "known are stream, coral8"),
    ],
)
def test_unknown_engines_are_met_with_a_suggestion(name: str, hint: str) -> None:
    with pytest.raises(UsageError, match=f"unknown engine '{name}'.*{hint}"):
        predict(name, 5, 1, ONE)


def test_names_are_read_kindly() -> None:
    assert engine("Spark Append") is not None
    assert engine("StreamBase").name == "streambase"


def test_unknown_aggregates_are_met_with_a_suggestion() -> None:
    with pytest.raises(UsageError, match="unknown aggregate 'averag'; did you mean 'avg'"):
        predict("flink", 5, 1, ONE, "averag")


@pytest.mark.parametrize("name", ["stream", "coral8", "streambase"])
def test_one_window_at_a_time_needs_order(name: str) -> None:
    with pytest.raises(InputError, match=r"item 3 has time 4 after time 5; .*reorder"):
        predict(name, 5, 1, [(1, 1), (5, 2), (4, 3)])
    with pytest.raises(InputError, match="item 2 has time 1 after time 5"):
        predict(name, 5, 1, [Stable(5), (1, 1)])
    assert predict("flink", 5, 5, [(1, 1), (5, 2), (4, 3)]).values == (1,)


@pytest.mark.parametrize(
    ("tuples", "message"),
    [
        ([(1, float("nan"))], r"item 1 \(time 1\) has the value NaN"),
        ([(1.5, 1)], r"item 1 has time 1\.5; times are whole numbers"),
        ([(float("nan"), 1)], "item 1 has time nan"),
        ([(True, 1)], "item 1 has time True"),
        ([(1, 2, 3)], r"item 1 is \(1, 2, 3\); expected \(time, value\)"),
        ([Stable(float("inf"))], "item 1 has time inf"),
        ([(1, 1), "x"], "item 2 is 'x'"),
        ([(1, "a")], r"tuple 1 \(time 1\) has the value 'a'; sum needs numbers"),
        ([(1, None)], "has the value None; sum needs numbers"),
        ([(1, float("inf"))], "has the value inf; sum needs finite numbers"),
        ([Arrival(1, 1, batch=1), (2, 1)], "tuple 2 has no batch, others have one"),
        ([Arrival(1, 1, batch=2), Arrival(2, 1, batch=1)], "batch 1 after batch 2"),
        ([Arrival(1, 1, arrived=1), (2, 1)], "tuple 2 has no arrival time, others have one"),
        (
            [Arrival(1, 1, arrived=3), Arrival(2, 1, arrived=3)],
            "arrived at 3, the tuple before",
        ),
    ],
)
def test_bad_tuples_are_named(tuples: list[Given], message: str) -> None:
    with pytest.raises(InputError, match=message):
        predict("streambase", 5, 1, tuples, "sum")


def test_values_that_cannot_be_sorted_are_not_collected() -> None:
    with pytest.raises(InputError, match="collect sorts its values"):
        predict("streambase", 1, 1, [(1, 1), (1, "a"), (2, 1)], "collect")


def test_no_tuples_no_results() -> None:
    for name in ("stream", "flink", "spark-complete"):
        assert predict(name, 5, 1, []).values == ()
        assert predict(name, 5, 1, [Stable(9)]).values == ()
    assert predict("stream", 5, 1, [], by="rows").values == ()


def test_settings_that_an_engine_does_not_have_are_refused() -> None:
    with pytest.raises(UsageError, match="stream has no delay"):
        engine("stream", delay=3)
    with pytest.raises(UsageError, match="delay is -1, it must be at least 0"):
        engine("flink", delay=-1)
    with pytest.raises(UsageError, match="spark-append takes no slide above the size"):
        predict("spark-append", 2, 3, ONE)
    with pytest.raises(UsageError, match="an offset below the slide"):
        predict(engine("flink", offset=3), 5, 3, ONE)
    with pytest.raises(UsageError, match="flink has no windows of tuples"):
        predict("flink", 2, 1, ONE, by="rows")


def test_engines_that_cannot_be_are_refused() -> None:
    grid, report = Start("grid"), Report(non_empty=True)
    with pytest.raises(UsageError, match="tick is 'tupel'"):
        Engine("x", grid, report, "tupel")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="windows is 'all'"):
        Engine("x", grid, report, "tuple", "all")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="it needs progress"):
        Engine("x", grid, report, "tuple", "every")
    with pytest.raises(UsageError, match="must be non_empty"):
        Engine("x", grid, Report(), "tuple", "every", Progress())
    with pytest.raises(UsageError, match="its tick is tuple or batch"):
        Engine("x", grid, report, "time", "every", Progress())
    with pytest.raises(UsageError, match="needs tick='batch'"):
        Engine("x", grid, report, "tuple", "every", Progress(known="next"))
    with pytest.raises(UsageError, match="anchor is 'sky'"):
        Start("sky")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="direction is 'up'"):
        Start("grid", "up")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="report period is 0"):
        Report(period=0)
    with pytest.raises(UsageError, match="known is 'soon'"):
        Progress(known="soon")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="keeps is 'all'"):
        Progress(keeps="all")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="by is 'moon'"):
        Query(1, 1, by="moon")  # type: ignore[arg-type]


def test_compare_needs_names_of_their_own() -> None:
    with pytest.raises(UsageError, match=r"got flink \| flink"):
        compare(["flink", engine("flink")], 5, 1, ONE)
    late: list[Given] = [(1, 1), (9, 1), (2, 1)]
    found = compare(["flink", engine("flink", lateness=9)], 5, 5, late)
    assert [one.engine.name for one in found.predictions] == ["flink", "flink, lateness 9"]
    assert found.differences[0].dimensions == ("windows",)
    with pytest.raises(UsageError, match="got none"):
        compare([], 5, 1, ONE)


def test_joins_name_their_sides() -> None:
    side = Query(2, 1)
    with pytest.raises(InputError, match="item 1 is of side 'up'"):
        predict_join(engine("stream"), side, side, [("up", (1, 1))])  # type: ignore[list-item]
    with pytest.raises(UsageError, match="one window at a time"):
        predict_join(engine("flink"), side, side, [("left", (1, 1))])
    with pytest.raises(UsageError, match="when is 'some'"):
        predict_join(engine("stream"), side, side, [], when="some")  # type: ignore[arg-type]


def test_a_long_gap_in_small_units_is_no_matter() -> None:
    second, year = 10**6, 365 * 24 * 3600 * 10**6
    tuples: list[Given] = [(0, 1), (second, 2), (year, 3), Stable(2 * year)]
    assert predict("streambase", 5 * second, second, tuples, "sum").values == (
        1, 3, 3, 3, 3, 2, 3, 3, 3, 3, 3,
    )  # fmt: skip
    assert predict("coral8", 5 * second, 1, tuples, "sum").values == (1, 3, 2, 3)
    assert predict("stream", 5 * second, 1, tuples, "sum").values == (1, 3, 2, 3)


def test_b_1_2_synchronised_timestamps_show_results_in_a_gap() -> None:
    tuples: list[Given] = [Arrival(1, 10, arrived=1), Arrival(9, 20, arrived=9)]
    plain = predict("streambase", 2, 2, tuples, "sum").results
    early = predict("streambase", 2, 2, synchronised(tuples, delay=1), "sum").results
    assert [one.value for one in plain] == [one.value for one in early] == [10]
    assert (plain[0].step, early[0].step) == (2, 2)
    assert len(synchronised(tuples, delay=1)) == 8
    assert synchronised(tuples, delay=2, until=12)[-1] == Stable(10)
    late: list[Given] = [Arrival(1, 1, arrived=1), Arrival(2, 1, arrived=9)]
    with pytest.raises(InputError, match="after time"):
        predict("streambase", 2, 2, synchronised(late, delay=1))


def test_triggers_are_batches_by_the_clock() -> None:
    tuples: list[Given] = [Arrival(t, t, arrived=t) for t in (1, 4, 6, 11)]
    cut = in_triggers(tuples, every=5)
    assert [one.batch for one in cut if isinstance(one, Arrival)] == [0, 0, 1, 2]
    assert predict("spark-update", 10, 10, cut, "sum").values == (5, 11, 11)


@pytest.mark.parametrize(
    ("agg", "filled", "empty"),
    [
        ("count", 3, 0),
        ("sum", 3, None),
        ("avg", 1.0, None),
        ("min", -1e100, None),
        ("max", 1e100, None),
        ("collect", (-1e100, 3, 1e100), ()),
    ],
)
def test_aggregates_depend_on_the_tuples_alone(agg: str, filled: object, empty: object) -> None:
    # Added from left to right, the 3 would be lost: sums are rounded once.
    always = Engine("x", Start("grid"), Report(window_close=True), "tuple")
    tuples: list[Given] = [(0, 1e100), (0, 3), (0, -1e100), Stable(2)]
    assert predict(always, 1, 1, tuples, agg).values == (filled, empty)


def test_sums_of_whole_numbers_are_exact_and_large_floats_overflow() -> None:
    assert predict("flink", 1, 1, [(0, 10**30), (0, 1), Stable(1)], "sum").values == (
        10**30 + 1,
    )
    assert predict("flink", 1, 1, [(0, 1e308), (0, 1e308), Stable(1)], "sum").values == (
        float("inf"),
    )
