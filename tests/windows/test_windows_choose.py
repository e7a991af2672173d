"""choose: appendix C of the paper, and what today's engines lack."""

import json

import pytest

from anabranch.errors import UsageError
from anabranch.windows import (
    ENGINES,
    NEEDS,
    Engine,
    Inputs,
    Need,
    Report,
    Start,
    choose,
    engine,
)
from anabranch.windows.inputs import show_stream
from anabranch.windows.needs import Seen

PAPER = ["stream", "coral8", "streambase"]


def fits(*needs: str, engines: list[str] | None = None, **options: int) -> set[str]:
    found = choose(needs, engines=engines, **options)  # type: ignore[arg-type]
    return {one.name for one in found.fits}


def test_secret_appendix_c_unordered_simultaneous_tuples_want_a_time_driven_engine() -> None:
    choice = choose(["simultaneous-together"], engines=PAPER, slide=1)
    assert "stream" in {one.name for one in choice.fits}
    lack = next(one for one in choice.lacks if one.engine.name == "coral8")
    assert show_stream(lack.tuples) == "0:1 0:2"
    assert lack.shown == (1, 3)


def test_secret_appendix_c_ordered_batches_want_a_batch_driven_engine() -> None:
    assert fits("batch-by-batch", engines=PAPER) == {"coral8"}


def test_secret_appendix_c_slow_data_want_content_change() -> None:
    choice = choose(["no-repeats"], engines=PAPER, size=5, slide=1)
    assert {one.name for one in choice.fits} == {"stream", "coral8"}
    assert choice.lacks[0].need.name == "no-repeats"
    assert "again unchanged" in choice.lacks[0].why


def test_final_results_come_once_and_whole() -> None:
    final = {"stream", "streambase", "spark-append", "flink", "kafka-streams-suppress", "beam"}
    assert fits("closed-only", "once") == final | {"beam-discarding", "anabranch-final"}


def test_changes_come_soon_from_those_that_show_them() -> None:
    quick = {"coral8", "spark-update", "spark-complete", "kafka-streams", "anabranch"}
    assert fits("soon") == quick
    assert fits("every-change") == quick


def test_late_tuples_are_corrected_where_there_is_lateness() -> None:
    flink = engine("flink", lateness=3)
    assert choose(["late-counted", "late-corrected"], engines=[flink], late=2).fits == (flink,)
    assert fits("late-corrected", engines=["flink"]) == set()
    discarding = engine("beam-discarding", lateness=3)
    assert choose(["late-counted"], engines=[discarding]).fits == (discarding,)


def test_an_engine_that_needs_order_lacks_what_late_tuples_need() -> None:
    choice = choose(["late-counted"], engines=["coral8"])
    assert "in order" in choice.lacks[0].why


def test_windows_that_leave_gaps_are_not_for_all() -> None:
    assert fits("slide-above-size", engines=["spark-append", "flink"]) == {"flink"}


def test_an_engine_that_shows_empty_windows_lacks_that() -> None:
    loud = Engine("loud", Start("first", "forward"), Report(window_close=True), "tuple")
    choice = choose(["no-empty"], engines=[loud], size=1, slide=1)
    assert "shown empty" in choice.lacks[0].why


def test_input_properties_make_more_engines_fit() -> None:
    apart = Inputs(simultaneous=False)
    assert {one.name for one in choose(["simultaneous-together"], inputs=apart).fits} == set(
        ENGINES
    )


def test_a_need_of_your_own_is_a_value() -> None:
    def few(seen: Seen) -> str | None:
        return "more than one result" if len(seen.results) > 1 else None

    own = Need("few", "one result at most", few)
    choice = choose([own], engines=["coral8", "streambase"], size=2, slide=2)
    assert {one.engine.name for one in choice.lacks} == {"coral8", "streambase"}
    assert choice.needs == (own,)


def test_every_need_parts_the_engines_or_all_meet_it() -> None:
    for name in NEEDS:
        choice = choose([name], inputs=Inputs(tuples=3))
        assert len(choice.fits) + len(choice.lacks) == len(ENGINES)
        assert choice.fits, name
        assert choice.lacks or name == "no-empty"
        assert json.loads(json.dumps(choice.to_dict()))["needs"] == [name]


def test_bad_calls_are_refused() -> None:
    with pytest.raises(UsageError, match="did you mean 'no-repeats'"):
        choose(["no-repeat"])
    with pytest.raises(UsageError, match="there are no needs"):
        choose([])
    with pytest.raises(UsageError, match="unknown engine"):
        choose(["once"], engines=["spork"])
    with pytest.raises(UsageError, match="size is 0"):
        choose(["once"], size=0)
