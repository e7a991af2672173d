"""The paper's examples, experiments and tables, with its numbers.

Where the paper's formulas do not give its own tables, the errata are named.  Each input ends
with a stable where the paper writes "..." (errata S15, D16).
"""

import pytest

from anabranch.windows import Arrival, Engine, Report, Shape, Stable, Start, engine, predict
from anabranch.windows.predict import trace
from anabranch.windows.scope import Scope
from anabranch.windows.stream import Row, read
from anabranch.windows.trace import Query, Step

EXAMPLE_2 = [(30, 10), (31, 20), (36, 30), Stable(37)]
THREE = ("stream", "coral8", "streambase")


def batches(sizes: list[int]) -> list[Arrival]:
    """The input of Experiment 3 with these batch sizes."""
    numbers = [number for number, size in enumerate(sizes, start=1) for _ in range(size)]
    pairs = [(10, 3), (20, 5), (30, 5), (40, 5), (50, 5), (60, 7)]
    return [
        Arrival(time, value, batch=number)
        for (value, time), number in zip(pairs, numbers, strict=True)
    ]


S_TUPLE, S_TIME, S_BATCH = batches([1] * 6), batches([1, 4, 1]), batches([1, 2, 2, 1])


def steps(name: str | Engine, size: int, slide: int, tuples: list[object]) -> list[Step]:
    items = read(tuples)  # type: ignore[arg-type]
    return trace(engine(name), Query(size, slide), items, every_instant=True)


def called(step: Step) -> list[int]:
    return [visit.instant for visit in step.visits]


def shown(step: Step) -> list[tuple[int, list[object]]]:
    return [
        (visit.instant, [row.value for row in visit.content])
        for visit in step.visits
        if visit.reported
    ]


@pytest.mark.parametrize(
    ("first", "expected"),
    [(10, [15, 40]), (11, [10, 30]), (12, [20, 50])],
    ids=["output 1", "output 2", "output 3"],
)
def test_secret_section_2_example_1(first: int, expected: list[int]) -> None:
    tuples = [(first + i, 10 * (i + 1)) for i in range(7)]
    assert list(predict("streambase", 3, 3, tuples, "avg").values) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("stream", [10, 15, 20, 30]),
        ("coral8", [10, 15, 20, 30]),
        ("streambase", [10, 15, 15, 15, 15, 20, 30]),
    ],
)
def test_secret_section_2_example_2(name: str, expected: list[int]) -> None:
    assert list(predict(name, 5, 1, EXAMPLE_2, "avg").values) == expected


def test_secret_section_3_2_1_scope_of_34() -> None:
    assert Shape(t0=30, size=5, slide=2).scope(34) == Scope(30, 34)


TABLE_1 = {
    "tuple": [[0], [1], [2], [2], [2], [2, 3]],
    "time": [[0], [1], [], [], [], [2, 3]],
    "batch": [[0], [1], [], [2], [], [2, 3]],
}


@pytest.mark.parametrize("tick", TABLE_1)
def test_secret_table_1_tick_with_errata_s1_s2(tick: str) -> None:
    # t0 = 0, so that [t0, 1) is the one instant 0.
    system = Engine(tick, Start("fixed", offset=0), Report(), tick)  # type: ignore[arg-type]
    tuples = [
        Arrival(time, value, arrived, batch)
        for value, time, arrived, batch in [
            ("a", 1, 30, 1),
            ("b", 2, 40, 2),
            ("c", 2, 45, 2),
            ("d", 2, 60, 3),
            ("e", 2, 80, 3),
            ("f", 4, 90, 4),
        ]
    ]
    assert [called(step) for step in steps(system, 2, 1, [*tuples])] == TABLE_1[tick]


def test_secret_table_2_t0() -> None:
    for first in range(-9, 10):
        for size in range(1, 6):
            for slide in range(1, 6):
                grid = -((size - first) // slide) * slide - 1
                assert engine("stream").start.t0(first, size, slide) == first - size
                assert engine("coral8").start.t0(first, size, slide) == grid
                assert engine("streambase").start.t0(first, size, slide) == grid


@pytest.mark.parametrize("first", [10, 11, 12])
def test_secret_experiment_1_t0_is_8_in_all_three_runs(first: int) -> None:
    assert engine("streambase").start.t0(first, size=3, slide=3) == 8


def test_secret_experiment_1_first_window_of_the_third_run_is_empty() -> None:
    tuples = [(12 + i, 10 * (i + 1)) for i in range(7)]
    visits = [visit for step in steps("streambase", 3, 3, [*tuples]) for visit in step.visits]
    first = next(visit for visit in visits if visit.window == Scope(8, 11))
    assert first.content == ()
    assert "non_empty" in first.failed


def test_secret_experiment_2_t0() -> None:
    assert [engine(name).start.t0(30, 5, 1) for name in THREE] == [25, 24, 24]


TABLE_3 = {
    "streambase": {
        30: [1], 31: [1, 2], 32: [1, 2], 33: [1, 2], 34: [1, 2], 35: [2], 36: [3],
    },
    "stream": {30: [1], 31: [1, 2], 35: [2], 36: [3]},
    "coral8": {30: [1], 31: [1, 2], 35: [2], 36: [3]},
}  # fmt: skip


@pytest.mark.parametrize("name", THREE)
def test_secret_table_3_contents_reported_with_erratum_s15(name: str) -> None:
    results = predict(name, 5, 1, EXAMPLE_2).results
    assert {one.instant: list(one.content) for one in results} == TABLE_3[name]
    assert len(results) == len(TABLE_3[name])


TABLE_4 = {
    "tuple-driven": (S_TUPLE, [[2], [3, 4], [5], [5], [5], [5, 6]]),
    "time-driven": (S_TIME, [[2], [3, 4], [], [], [], [5, 6]]),
    "batch-driven": (S_BATCH, [[2], [3, 4], [], [5], [], [5, 6]]),
}


@pytest.mark.parametrize("column", TABLE_4)
def test_secret_table_4_ticks_of_experiment_3_with_erratum_s2(column: str) -> None:
    tuples, expected = TABLE_4[column]
    assert [called(step) for step in steps("coral8", 4, 1, [*tuples])] == expected


def test_secret_experiment_3_t0_is_negative_with_erratum_s10() -> None:
    assert engine("coral8").start.t0(3, size=4, slide=1) == -2


TABLE_5 = {
    "tuple-driven": (S_TUPLE, [[], [10], [30], [60], [100], [150]]),
    "time-driven": (S_TIME, [[], [10], [], [], [], [150]]),
    "batch-driven": (S_BATCH, [[], [10], [], [60], [], [150]]),
}


@pytest.mark.parametrize("column", TABLE_5)
def test_secret_table_5_and_experiment_3_results(column: str) -> None:
    tuples, expected = TABLE_5[column]
    results = predict("coral8", 4, 1, [*tuples], "sum").results
    by_step = [[one.value for one in results if one.step == n] for n in range(1, 7)]
    assert by_step == expected


@pytest.mark.parametrize("name", THREE)
def test_secret_table_6_tick_of_experiment_2_with_erratum_s2(name: str) -> None:
    found = [called(step) for step in steps(name, 5, 1, [*EXAMPLE_2[:3]])]
    assert found == [[29], [30], [31, 32, 33, 34, 35]]


TABLE_7 = {
    30: ((25, 30), [10], "all"),
    31: ((26, 31), [10, 20], "all"),
    32: ((27, 32), [10, 20], "streambase"),
    33: ((28, 33), [10, 20], "streambase"),
    34: ((29, 34), [10, 20], "streambase"),
    35: ((30, 35), [20], "all"),
    36: ((31, 36), [30], "all"),
}


@pytest.mark.parametrize("name", THREE)
def test_secret_table_7_report_of_experiment_2_with_errata_s3_s15(name: str) -> None:
    visits = [visit for step in steps(name, 5, 1, [*EXAMPLE_2]) for visit in step.visits]
    assert [visit.instant for visit in visits] == [29, *TABLE_7]
    assert not visits[0].reported
    for visit in visits[1:]:
        scope, content, who = TABLE_7[visit.instant]
        assert visit.reported == (who in {"all", name})
        if visit.reported:
            assert visit.scope == scope
            assert [row.value for row in visit.content] == content


TABLE_8 = {
    "STuple": (
        S_TUPLE,
        [True] * 6,
        [[], [10], [10, 20], [10, 20, 30], [10, 20, 30, 40], [10, 20, 30, 40, 50]],
    ),
    "STime": (
        S_TIME,
        [True, True, False, False, False, True],
        [[], [10], [], [], [], [10, 20, 30, 40, 50]],
    ),
    "SBatch": (
        S_BATCH,
        [True, True, False, True, False, True],
        [[], [10], [], [10, 20, 30], [], [10, 20, 30, 40, 50]],
    ),
}


@pytest.mark.parametrize("column", TABLE_8)
def test_secret_table_8_batches_in_coral8(column: str) -> None:
    tuples, ticked, contents = TABLE_8[column]
    found = steps("coral8", 4, 1, [*tuples])
    assert [step.ticked for step in found] == ticked
    instants = [[3] if content == [10] else [5] if content else [] for content in contents]
    expected = [
        [(instant, content) for instant in at]
        for at, content in zip(instants, contents, strict=True)
    ]
    assert [shown(step) for step in found] == expected


def test_the_rows_are_numbered_in_the_order_of_arrival() -> None:
    assert read([*EXAMPLE_2])[2] == Row(3, 36, 30, 3, 3)
