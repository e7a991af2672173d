"""Laws of the model: its own formulas, computed slowly; and what must not matter does not."""

import math
from itertools import groupby

from hypothesis import given
from hypothesis import strategies as st

from anabranch.windows import (
    Arrival,
    Engine,
    Report,
    Stable,
    Start,
    engine,
    predict,
)
from anabranch.windows.predict import trace
from anabranch.windows.stream import read
from anabranch.windows.trace import Query

SIZES = st.integers(1, 7)
STARTS = st.one_of(
    st.builds(Start, st.just("first"), st.sampled_from(["forward", "backward"])),
    st.builds(
        Start,
        st.just("grid"),
        st.sampled_from(["forward", "backward"]),
        offset=st.integers(-3, 3),
        lead=st.booleans(),
    ),
    st.builds(Start, st.just("fixed"), offset=st.integers(-4, 12)),
)
REPORTS = st.builds(
    Report, st.booleans(), st.booleans(), st.booleans(), st.sampled_from([None, 1, 2, 3])
)
TICKS = st.sampled_from(["tuple", "time", "batch"])
ENGINES = st.builds(Engine, st.just("any"), STARTS, REPORTS, TICKS)


@st.composite
def ordered(draw: st.DrawFn, least: int = -5, gaps: int = 9) -> list[Arrival]:
    """Tuples in order, with gaps, simultaneous ones, and batches of one time each."""
    steps = draw(st.lists(st.integers(0, gaps), min_size=1, max_size=10))
    fresh = draw(st.lists(st.booleans(), min_size=len(steps), max_size=len(steps)))
    time, batch, result = draw(st.integers(least, least + 15)), 0, []
    for number, (step, new) in enumerate(zip(steps, fresh, strict=True), start=1):
        time += step
        batch += step > 0 or new or batch == 0
        result.append(Arrival(time, number, batch=batch))
    return result


def slowly(
    system: Engine, size: int, slide: int, tuples: list[Arrival]
) -> list[tuple[int, list[object]]]:
    """The formulas of the errata's summary, one by one, over sets of tuples."""
    first = tuples[0].time
    t0 = system.start.t0(first, size, slide)
    prev, prev_app, prev_batch = max(t0, first - 1), max(t0, first - 1), 0
    last: list[object] = []
    found = []
    for tau, row in enumerate(tuples):
        app, calls = row.time, []
        assert row.batch is not None
        if app > t0 and (system.tick != "batch" or row.batch > prev_batch):
            if app == prev and system.tick != "time":
                calls = [app]
            elif app > (prev_app if system.tick == "time" else prev):
                calls = list(range(prev, app))
        for t in calls:
            n = max(0, math.ceil((t - t0 - size) / slide))
            start = t0 + n * slide
            content = [s.value for s in tuples[:tau] if t0 <= t and start < s.time <= t]
            report = system.report
            if (
                (not report.content_change or content != last)
                and (not report.window_close or (t - start == size and t < app))
                and (not report.non_empty or content)
                and (report.period is None or t % report.period == 0)
            ):
                found.append((t, content))
                last = content
        if calls:
            prev = max(prev, app)
        prev_app, prev_batch = max(prev_app, app), row.batch
    return found


@given(ENGINES, SIZES, st.integers(1, 9), ordered())
def test_the_model_is_its_formulas(
    system: Engine, size: int, slide: int, tuples: list[Arrival]
) -> None:
    results = predict(system, size, slide, tuples, "collect").results
    found = [(one.instant, list(one.value)) for one in results]
    assert found == slowly(system, size, slide, tuples)


@given(ENGINES, SIZES, st.integers(1, 9), ordered())
def test_instants_that_are_not_visited_would_have_been_silent(
    system: Engine, size: int, slide: int, tuples: list[Arrival]
) -> None:
    items, query = read(tuples), Query(size, slide)
    quick, full = (
        [
            [visit for visit in step.visits if visit.reported]
            for step in trace(system, query, items, every_instant=every)
        ]
        for every in (False, True)
    )
    assert quick == full


@given(STARTS, REPORTS, SIZES, SIZES, ordered())
def test_batches_of_one_tuple_are_tuple_driven(
    start: Start, report: Report, size: int, slide: int, tuples: list[Arrival]
) -> None:
    single = [(one.time, one.value) for one in tuples]
    by_batch, by_tuple = (
        predict(Engine("any", start, report, tick), size, slide, single, "collect").results
        for tick in ("batch", "tuple")
    )
    assert by_batch == by_tuple


@given(STARTS, REPORTS, SIZES, SIZES, ordered())
def test_batches_of_all_tuples_of_a_time_are_time_driven(
    start: Start, report: Report, size: int, slide: int, tuples: list[Arrival]
) -> None:
    grouped = [Arrival(one.time, one.value, batch=one.time + 99) for one in tuples]
    by_batch, by_time = (
        predict(Engine("any", start, report, tick), size, slide, grouped, "collect").results
        for tick in ("batch", "time")
    )
    assert by_batch == by_time


@given(STARTS, REPORTS, TICKS, SIZES, SIZES, ordered())
def test_without_simultaneous_tuples_the_tick_does_not_matter(
    start: Start, report: Report, tick: str, size: int, slide: int, tuples: list[Arrival]
) -> None:
    alone = [(one.time + n, one.value) for n, one in enumerate(tuples)]
    ours = predict(Engine("any", start, report, tick), size, slide, alone).results  # type: ignore[arg-type]
    assert ours == predict(Engine("any", start, report, "tuple"), size, slide, alone).results


@given(STARTS, REPORTS, TICKS, SIZES, SIZES, ordered())
def test_erratum_s12_under_window_close_the_tick_is_invisible(
    start: Start, report: Report, tick: str, size: int, slide: int, tuples: list[Arrival]
) -> None:
    close = Report(report.content_change, True, True, report.period)
    ours = predict(Engine("any", start, close, tick), size, slide, tuples)  # type: ignore[arg-type]
    assert (
        ours.values == predict(Engine("any", start, close, "time"), size, slide, tuples).values
    )


@given(ENGINES, SIZES, SIZES, ordered())
def test_non_empty_removes_the_empty_reports_and_no_other(
    system: Engine, size: int, slide: int, tuples: list[Arrival]
) -> None:
    report = system.report
    always, filled = (
        Engine(
            "any", system.start, Report(False, report.window_close, on, report.period), "tuple"
        )
        for on in (False, True)
    )
    expected = [one for one in predict(always, size, slide, tuples).results if one.content]
    assert list(predict(filled, size, slide, tuples).results) == expected


@given(ENGINES, SIZES, SIZES, ordered(), st.integers(-5, 5))
def test_results_move_with_the_input_by_whole_slides(
    system: Engine, size: int, slide: int, tuples: list[Arrival], times: int
) -> None:
    if system.start.anchor == "fixed" or system.report.period is not None:
        return
    moved = [Arrival(one.time + times * slide, one.value, batch=one.batch) for one in tuples]
    assert (
        predict(system, size, slide, moved, "collect").values
        == predict(system, size, slide, tuples, "collect").values
    )


@given(st.sampled_from(["forward", "backward"]), SIZES, SIZES, ordered())
def test_backward_slides_are_forward_slides_with_another_t0(
    direction: str, size: int, slide: int, tuples: list[Arrival]
) -> None:
    start = Start("grid", direction)  # type: ignore[arg-type]
    system = Engine("any", start, Report(window_close=True, non_empty=True), "tuple")
    for result in predict(system, size, slide, tuples).results:
        edge = result.start if direction == "forward" else result.end
        assert edge % slide == 0
    shifted = Start("grid", offset=0 if direction == "forward" else -size)
    assert start.t0(tuples[0].time, size, slide) == shifted.t0(tuples[0].time, size, slide)


@given(SIZES, SIZES, ordered(), st.sampled_from(["forward", "backward"]))
def test_windows_of_tuples_are_every_run_of_that_many(
    size: int, slide: int, tuples: list[Arrival], direction: str
) -> None:
    start = Start("first", direction)  # type: ignore[arg-type]
    system = Engine("any", start, Report(window_close=True, non_empty=True), "tuple")
    end = Stable(tuples[-1].time + 1)
    found = predict(system, size, slide, [*tuples, end], "collect", by="rows").values
    first = 0 if direction == "forward" else slide - size
    starts = [s for s in range(first, len(tuples) - size + 1, slide) if s >= 0]
    assert list(found) == [tuple(range(s + 1, s + 1 + size)) for s in starts]


@given(SIZES, SIZES, ordered())
def test_time_driven_windows_of_tuples_show_one_window_per_time(
    size: int, slide: int, tuples: list[Arrival]
) -> None:
    system = Engine("any", Start("first"), Report(non_empty=True), "time")
    end = Stable(tuples[-1].time + 1)
    results = predict(system, size, slide, [*tuples, end], "collect", by="rows").results
    times = [time for time, _ in groupby(one.time for one in tuples)]
    assert [one.instant for one in results] == times or slide > size
    assert all(len(one.content) <= size for one in results)


@given(SIZES, SIZES, ordered())
def test_the_time_of_arrival_can_be_the_time(
    size: int, slide: int, tuples: list[Arrival]
) -> None:
    clocked = [Arrival(0, one.value, arrived=one.time + n) for n, one in enumerate(tuples)]
    named = [(one.time + n, one.value) for n, one in enumerate(tuples)]
    by_arrival = predict(engine("stream"), size, slide, clocked, "sum", by="arrival").values
    assert by_arrival == predict(engine("stream"), size, slide, named, "sum").values
