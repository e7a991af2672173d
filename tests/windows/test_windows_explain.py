"""compare, explain and joins: the right dimension is named, and JSON holds all of it."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.windows import (
    ENGINES,
    Arrival,
    Query,
    Report,
    Stable,
    compare,
    engine,
    explain,
    predict,
    predict_join,
)
from anabranch.windows.compare import responsible

EXAMPLE_2 = [(30, 10), (31, 20), (36, 30), Stable(37)]


def test_secret_experiment_2_differs_by_report() -> None:
    found = compare(["stream", "coral8", "streambase"], 5, 1, EXAMPLE_2, "avg")
    assert found.classes == (("stream", "coral8"), ("streambase",))
    assert [one.dimensions for one in found.differences] == [("report",)]
    assert found.differences[0].place == 3
    assert not found.equal


def test_secret_experiment_3_differs_by_tick() -> None:
    tuples = [(3, 10), (5, 20), (5, 30), (5, 40), (5, 50), (7, 60)]
    coral8 = engine("coral8")
    by_time = replace(coral8, name="coral8, time-driven", tick="time")
    found = compare([coral8, by_time], 4, 1, tuples, "sum")
    assert [one.values for one in found.predictions] == [(10, 30, 60, 100, 150), (10, 150)]
    assert found.differences[0].dimensions == ("tick",)


def test_secret_experiment_1_differs_by_scope() -> None:
    tuples = [(10 + i, 10 * (i + 1)) for i in range(7)]
    streambase = engine("streambase")
    by_first = replace(streambase, name="by the first tuple", start=engine("stream").start)
    found = compare([streambase, by_first], 3, 3, tuples, "avg")
    assert found.differences[0].dimensions == ("scope",)


def test_an_engine_with_every_window_differs_by_windows() -> None:
    found = compare(["coral8", "spark-update"], 4, 2, [(1, 1), (3, 2), (5, 4)], "sum")
    assert "windows" in found.differences[0].dimensions


def test_one_engine_is_equal_to_itself() -> None:
    assert compare(["flink", "beam"], 4, 4, [(1, 1), (9, 2)]).equal


@given(
    st.permutations(["stream", "coral8", "streambase", "flink", "spark-update"]),
    st.lists(st.integers(0, 12), min_size=1, max_size=6),
    st.integers(1, 4),
)
def test_what_is_held_responsible_explains_the_difference(
    names: list[str], times: list[int], size: int
) -> None:
    tuples = [*((time, n) for n, time in enumerate(sorted(times))), Stable(20)]
    left, right = (predict(name, size, 1, tuples, "sum") for name in names[:2])
    if left.values == right.values:
        return
    parts = {"scope": ["start"], "windows": ["windows", "progress"]}
    swapped = {
        part: getattr(right.engine, part)
        for name in responsible(left, right, tuples)
        for part in parts.get(name, [name])
    }
    mixed = replace(left.engine, **swapped)
    assert predict(mixed, size, 1, tuples, "sum").values == right.values


def test_each_silent_call_has_a_condition_that_did_not_hold() -> None:
    explanation = explain("stream", 5, 1, EXAMPLE_2, "avg")
    answers = {one.instant: one for step in explanation.steps for one in step.answers}
    assert [at for at, one in answers.items() if one.reported] == [30, 31, 35, 36]
    for one in answers.values():
        assert one.reported == all(reason.holds for reason in one.reasons)
    silent = [reason.rule for reason in answers[33].reasons if not reason.holds]
    assert silent == ["content_change"]
    assert explanation.complete


@pytest.mark.parametrize("name", ENGINES)
@given(times=st.lists(st.integers(0, 15), min_size=1, max_size=6), size=st.integers(1, 4))
def test_every_explanation_agrees_with_the_prediction_and_is_json(
    name: str, times: list[int], size: int
) -> None:
    tuples = [*((time, n) for n, time in enumerate(sorted(times), start=1)), Stable(20)]
    explanation = explain(name, size, size, tuples, "collect")
    answers = [one for step in explanation.steps for one in step.answers if one.reported]
    assert tuple(one.value for one in answers) == explanation.prediction.values
    read = json.loads(json.dumps(explanation.to_dict()))
    assert read["prediction"] == json.loads(
        json.dumps(predict(name, size, size, tuples, "collect").to_dict())
    )
    lines = str(explanation).splitlines()
    assert len(lines) == 1 + len(explanation.unseen) + sum(
        1 + len(step.answers) + len(step.drops) for step in explanation.steps
    )
    shown = {n for one in explanation.prediction.results for n in one.content}
    assert len(explanation.unseen) == len(times) - len(shown)


@pytest.mark.parametrize(
    ("name", "tuples", "dimension"),
    [
        ("streambase", [(1, 1), (2, 2)], "tick"),
        ("flink", [(1, 1)], "report"),
        ("flink", [(1, 1), (9, 2), (2, 4), Stable(99)], "content"),
        ("coral8", [Arrival(3, 1, batch=1), Arrival(3, 2, batch=1)], "tick"),
    ],
)
def test_a_tuple_in_no_result_is_named_with_its_dimension(
    name: str, tuples: list[object], dimension: str
) -> None:
    unseen = explain(name, 4, 4, tuples).unseen  # type: ignore[arg-type]
    assert dimension in {one.dimension for one in unseen}


def test_a_comparison_is_json() -> None:
    found = compare(["stream", "streambase"], 5, 1, EXAMPLE_2, "avg").to_dict()
    assert json.loads(json.dumps(found))["classes"] == [["stream"], ["streambase"]]


def test_every_parameter_of_every_profile_has_a_source() -> None:
    for profile in ENGINES.values():
        wanted = {"start", "report", "tick"}
        wanted |= {"progress", "gaps"} if profile.progress else set()
        assert {source.parameter for source in profile.sources} == wanted, profile.name
        assert all(source.where for source in profile.sources)


BOTH = [
    ("left", (1, "a")),
    ("right", (1, "b")),
    ("right", (2, "c")),
    ("left", (4, "d")),
    ("right", (6, "e")),
]
SIDE = Query(size=2, slide=1)


def test_b_2_2_each_side_has_its_own_content() -> None:
    system = replace(engine("coral8"), report=Report(content_change=True, non_empty=True))
    found = predict_join(system, SIDE, Query(size=4, slide=1), BOTH)  # type: ignore[arg-type]
    assert [(one.instant, one.left, one.right) for one in found] == [
        (1, (1,), ()),
        (1, (1,), (2,)),
        (2, (1,), (2, 3)),
        (3, (), (2, 3)),
        (4, (4,), (2, 3)),
        (5, (4,), (3,)),
    ]
    assert found[2].pairs == (("a", "b"), ("a", "c"))
    assert found[2].to_dict()["pairs"] == [["a", "b"], ["a", "c"]]


def test_b_2_2_all_asks_both_sides() -> None:
    found = predict_join(engine("streambase"), SIDE, SIDE, BOTH, when="all")  # type: ignore[arg-type]
    assert [(one.instant, one.left, one.right) for one in found] == [
        (1, (1,), (2,)),
        (2, (1,), (2, 3)),
    ]


def test_b_2_2_pairs_are_those_that_match() -> None:
    found = predict_join(
        engine("streambase"),
        SIDE,
        SIDE,
        BOTH,  # type: ignore[arg-type]
        on=lambda left, right: (left, right) == ("a", "c"),
    )
    assert [one.pairs for one in found if one.pairs] == [(("a", "c"),)]
