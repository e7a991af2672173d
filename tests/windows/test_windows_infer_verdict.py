"""What the verdict of infer covers: who is out and why, what was tried, which runs disagreed.

The engines here are the model itself, inside or outside the space that is searched.  The space
is small, since what is tested is the verdict and not the search.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.errors import InputError, UsageError
from anabranch.windows import (
    Arrival,
    Engine,
    Inference,
    Recorded,
    Space,
    Stable,
    engine,
    infer,
)
from anabranch.windows.inference.candidates import PARAMETERS
from anabranch.windows.inference.candidates import settings as settings_of
from anabranch.windows.inference.probes import answer_of, predicted
from anabranch.windows.predict import run_query
from anabranch.windows.trace import Query

Given = Sequence[Arrival | Stable]
SMALL = Space(offsets=(0,), periods=(1,), delays=(0,), latenesses=(0, 2))
CANDIDATES = [fine for coarse in SMALL.coarse() for fine in SMALL.fine(coarse)]
# Outside the space: other numbers, and a report that no engine of the space has.
OUTSIDE = [
    engine("flink", lateness=4),
    engine("flink", delay=1, lateness=7),
    engine("beam-discarding", lateness=3),
    engine("spark-append", delay=9),
    engine("kafka-streams", delay=1),
    engine("spark-complete"),
]

# Each example is a whole inference: 4 where other laws try 50, and more in deep runs.
FEW = settings(max_examples=settings.default.max_examples // 12)


def box(made: Engine, *, refuses: frozenset[tuple[int, int]] = frozenset()) -> Any:
    """A black box that is the model inside; it refuses what the model does, and `refuses`."""

    def run(tuples: Given, size: int, slide: int) -> list[Any] | None:
        if (size, slide) in refuses:
            return None
        try:
            return list(run_query(made, Query(size, slide, "sum"), tuples).values)
        except (InputError, UsageError):
            return None

    return run


def quick(run: Any, space: Space = SMALL, **more: Any) -> Inference:
    return infer(run, space=space, **{"search": 16, "confirm": 2, **more})


def test_flink_with_a_lateness_that_was_not_tried_is_not_streambase() -> None:
    found = quick(box(engine("flink", lateness=4)))
    assert not found.fits
    assert not found.like
    assert "streambase" in {
        name for one in found.asked for out in one.unanswered for name in out.like
    }


def test_settings_without_an_answer_are_listed_with_the_reason() -> None:
    found = quick(box(engine("flink", lateness=4)))
    reason = "it shows one window at a time, which needs tuples in order of time"
    out = [reply for one in found.asked for reply in one.unanswered if reply.reason == reason]
    assert sum(one.settings for one in out) > 0
    assert f"since {reason}; known: " in str(found)
    plain = [reply for one in found.to_dict()["asked"] for reply in one["unanswered"]]
    assert {"reason": reason, "settings": out[0].settings, "like": list(out[0].like)} in plain


def test_why_not_names_the_first_probe_against_an_engine() -> None:
    true = engine("flink", lateness=4)
    found = quick(box(true))
    assert found.why_not(true) is None
    streambase, coral8 = found.why_not("streambase"), found.why_not("coral8")
    assert streambase is not None
    assert streambase.startswith("no answer to probe ")
    assert "which the engine accepted: it shows one window at a time" in streambase
    assert coral8 is not None
    assert coral8.startswith("another answer to probe 1: ")
    assert " instead of " in coral8
    # The engine returns values alone, so nothing else is held against another.
    assert " at step " not in coral8


def test_a_recording_keeps_the_reasons_too() -> None:
    late = Recorded(4, 4, [(1, 1), (5, 2), (2, 4), (9, 8)], [1, 5, 2])
    (asked,) = infer(recorded=[late], space=SMALL, search=16).asked
    assert [one.reason for one in asked.unanswered] == [
        "it shows one window at a time, which needs tuples in order of time"
    ]
    assert set(asked.unanswered[0].like) == {"stream", "coral8", "streambase"}
    # Each instant of a long recording would be an answer.
    long = Recorded(60_000, 60_000, [(1, 1), (50_000, 2)], [])
    (asked,) = infer(recorded=[long], space=SMALL, search=16).asked
    assert any("at every instant" in one.reason for one in asked.unanswered)


@given(st.one_of(st.sampled_from(OUTSIDE), st.sampled_from(CANDIDATES)), st.integers(0, 1_000))
@FEW
def test_who_is_left_gives_every_answer_that_the_engine_gave(true: Engine, seed: int) -> None:
    found = quick(box(true), seed=seed)
    for one in found.asked:
        if one.answer is None:
            continue
        wanted = answer_of(one.answer, found.compared)
        for left in found.engines:
            reply = predicted(left, one.probe, "sum", "time")
            assert reply is not None
            assert answer_of(reply, found.compared) == wanted
    assert (true in found.engines) == (true in CANDIDATES)


@given(
    st.sampled_from(CANDIDATES),
    st.frozensets(st.tuples(st.integers(1, 6), st.integers(1, 9)), max_size=6),
    st.integers(0, 1_000),
)
@FEW
def test_a_refusal_rules_out_nobody(
    true: Engine, refuses: frozenset[tuple[int, int]], seed: int
) -> None:
    found = quick(box(true, refuses=refuses), seed=seed)
    assert true in found.engines
    assert all(one.before == one.after for one in found.asked if one.answer is None)


def test_what_is_settled_lists_the_values_tried() -> None:
    found = quick(box(engine("flink", lateness=2)), space=replace(SMALL, latenesses=(0, 2, 5)))
    lateness, delay = (found.parameter(f"progress.{name}") for name in ("lateness", "delay"))
    assert (lateness.values, set(lateness.tried)) == ((2,), {"-", 0, 2, 5})
    assert str(lateness) == "progress.lateness: 2 (settled; tried -, 0, 2, 5)"
    assert set(delay.tried) == {"-", 0}
    assert str(lateness) in str(found).splitlines()
    reply = {one["name"]: one["tried"] for one in found.to_dict()["parameters"]}
    assert reply["progress.lateness"] == list(lateness.tried)
    # Nothing is left out: what was tried is what the space has.
    for name in PARAMETERS:
        wanted = {settings_of(one)[name] for one in CANDIDATES}
        assert name == "progress.lateness" or set(found.parameter(name).tried) == wanted


def test_one_value_that_alone_was_tried_is_listed() -> None:
    space = replace(SMALL, windows=("every",))
    found = quick(box(engine("flink")), space=space)
    assert str(found.parameter("progress.delay")) == (
        "progress.delay: 0 (settled; only 0 was tried)"
    )
    assert found.parameter("progress.delay").confidence == 0


def test_where_nothing_fits_the_numbers_tried_are_listed() -> None:
    found = quick(box(engine("flink", lateness=4)))
    assert str(found).splitlines()[-1] == (
        "other numbers may fit; tried start.offset 0; report.period 1; progress.delay 0; "
        "progress.lateness 0, 2"
    )


def test_each_probe_of_a_steady_engine_is_run_as_often_as_asked_for() -> None:
    true = box(engine("flink", lateness=2))
    for repeats in (2, 3):
        found = quick(true, repeats=repeats)
        assert {one.runs for one in found.asked} == {repeats}
        assert not found.disagreements
    once = quick(true, repeats=1)
    assert [one.runs for one in once.asked] == [2, *[1] * (len(once.asked) - 1)]


@given(st.integers(1, 6), st.integers(0, 1_000))
@FEW
def test_one_run_that_differs_is_reported_and_settles_nothing(wrong: int, seed: int) -> None:
    honest = box(engine("flink", lateness=2))
    runs = 0

    def run(tuples: Given, size: int, slide: int) -> list[Any]:
        nonlocal runs
        runs += 1
        shown: list[Any] = honest(tuples, size, slide)
        return [*shown, 0] if runs == wrong else shown

    found = quick(run, replace(SMALL, windows=("every",)), seed=seed)
    assert "flink" in found.like
    (differ,) = found.disagreements
    assert honest(differ.probe.tuples, differ.probe.size, differ.probe.slide) in [
        [one.value for one in answer or ()] for answer in differ.answers
    ]
    assert len(differ.answers) == 2
    assert not any(one.seen == "settled" for one in found.parameters)
    assert found.parameter("windows").seen == "likely"
    assert "(settled" not in str(found)
    assert str(differ) in str(found).splitlines()
    (reply,) = found.to_dict()["disagreements"]
    assert len(reply["answers"]) == 2
    assert reply["size"] == differ.probe.size


def test_a_very_noisy_engine_is_not_reported_probe_by_probe() -> None:
    honest, runs = box(engine("flink", lateness=2)), count(1)

    def run(tuples: Given, size: int, slide: int) -> list[Any]:
        return [*honest(tuples, size, slide), *[0][: next(runs) % 3 == 0]]

    found = quick(run, replace(SMALL, windows=("every",)), confirm=8)
    more = len(found.disagreements) - 3
    assert more > 0
    assert str(found).count("runs of one probe disagree") == 3
    assert f"and on {more} more probe" in str(found)
    assert len(found.to_dict()["disagreements"]) == more + 3


def test_an_engine_that_refuses_now_and_then_disagrees_with_itself() -> None:
    honest = box(engine("flink", lateness=2))
    given: list[object] = []

    def run(tuples: Given, size: int, slide: int) -> list[Any] | None:
        given.append(tuples)
        return None if len(given) == 2 else honest(tuples, size, slide)

    found = quick(run)
    assert "flink" in found.like
    assert "a refusal (1 run)" in str(found)
    assert None in found.disagreements[0].answers


def test_recordings_of_one_input_that_differ_are_reported() -> None:
    tuples = [(1, 1), (6, 2)]
    one, other = ([{"value": 1, "step": 2}], [{"value": 1, "step": 2}, {"value": 2, "step": 2}])
    found = infer(
        recorded=[Recorded(4, 4, tuples, one), Recorded(4, 4, tuples, other)], space=SMALL
    )
    assert not found.fits
    assert "1 at step 2 (1 run) but 1 at step 2, 2 at step 2 (1 run)" in str(found)
    # A field that only one of them has is no contradiction.
    assert not infer(
        recorded=[Recorded(4, 4, tuples, one), Recorded(4, 4, tuples, [1])],
        space=SMALL,
        search=16,
    ).disagreements
