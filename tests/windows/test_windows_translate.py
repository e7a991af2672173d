"""translate: what it calls the same is the same, what differs has a smallest stream."""

import json
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import InputError, UsageError
from anabranch.model import Stable
from anabranch.windows import ENGINES, Arrival, Inputs, Query, Setting, engine, translate
from anabranch.windows.inference.probes import Kinds, make_probe
from anabranch.windows.inputs import show_stream
from anabranch.windows.predict import run_query

IN_ORDER = ["streambase", "spark-append", "flink", "beam"]


@pytest.mark.parametrize("target", IN_ORDER[1:])
def test_final_results_in_order_are_the_same_everywhere(target: str) -> None:
    found = translate(Query(3, 2, "sum"), "streambase", target)
    assert found.same[0].query == Query(3, 2, "sum")
    assert found.same[0].engine.start.offset == 0
    assert {one.setting.engine.start.offset for one in found.differ} >= {1}


def test_secret_appendix_c_without_simultaneous_tuples_the_tick_does_not_matter() -> None:
    query = Query(3, 1, "sum")
    apart = translate(query, "coral8", "stream", inputs=Inputs(simultaneous=False))
    together = translate(query, "coral8", "stream")
    assert [one.query.slide for one in apart.same] == [1]
    assert together.same == ()
    smallest = together.differ[0]
    assert show_stream(smallest.tuples) == "0:1 0:2"
    assert (smallest.wanted, smallest.got) == ((1, 3), (3,))


def test_batches_of_one_time_make_batch_driven_and_time_driven_alike() -> None:
    found = translate(Query(3, 1, "sum"), "coral8", "stream", inputs=Inputs(batches="time"))
    assert [one.query.slide for one in found.same] == [1]


def test_without_gaps_streambase_repeats_nothing_until_the_stream_ends() -> None:
    inputs = Inputs(gaps=False, simultaneous=False)
    found = translate(Query(3, 1, "sum"), "streambase", "coral8", inputs=inputs)
    # After the last tuple there is a gap too: only there the two differ.
    counter = found.differ[0]
    assert show_stream(counter.tuples) == "0:1"
    assert (counter.wanted, counter.got) == ((1, 1, 1), (1,))


def test_the_offset_of_the_source_is_tried_however_large() -> None:
    query = Query(60, 60, "count")
    found = translate(query, engine("spark-append", offset=30), "flink")
    assert [one.engine.start.offset for one in found.same] == [30]


def test_late_tuples_need_the_delay_of_the_source() -> None:
    inputs = Inputs(late=2, tuples=3)
    source = engine("flink", delay=2)
    found = translate(Query(3, 3, "sum"), source, "kafka-streams-suppress", inputs=inputs)
    delays = {one.engine.progress.delay for one in found.same if one.engine.progress}
    assert delays == {2}
    assert all(one.tuples for one in found.differ)


def test_a_counter_example_has_no_smaller_one() -> None:
    found = translate(Query(3, 3, "sum"), "streambase", "flink")
    for one in found.differ:
        count = len(one.tuples)
        for stream in found.inputs.streams(found.query):
            if len(stream) >= count:
                break
            wanted = run_query(found.source, found.query, stream).values
            assert run_query(one.setting.engine, one.setting.query, stream).values == wanted


@given(st.sampled_from(IN_ORDER), st.sampled_from(IN_ORDER), st.integers(0, 10_000))
def test_what_is_the_same_on_small_streams_is_the_same_on_others(
    source: str, target: str, seed: int
) -> None:
    probe = make_probe(Random(seed), Kinds())
    if probe.slide > probe.size:
        return
    query = Query(probe.size, probe.slide, "sum")
    small = Inputs(tuples=3, instants=6, most=200)
    found = translate(query, source, target, inputs=small)
    ended = (*probe.tuples, Stable(max(one.time for one in probe.tuples) + 30))
    wanted = run_query(found.source, query, ended).values
    for one in found.same[:1]:
        assert run_query(one.engine, one.query, ended).values == wanted


def test_a_candidate_that_rejects_the_query_has_a_reason() -> None:
    found = translate(Query(2, 5), "flink", "spark-append")
    assert any(one.refused and "slide above the size" in one.refused for one in found.differ)
    assert len(found.candidates) == len(found.same) + len(found.differ)


def test_own_candidates_replace_ours() -> None:
    query = Query(4, 4, "sum")
    own = [Setting(engine("flink", offset=1), query)]
    found = translate(query, "streambase", "flink", settings=own)
    assert found.candidates == tuple(own)
    assert found.same == ()


def test_windows_can_be_compared_too() -> None:
    query = Query(3, 1, "sum")
    same = translate(query, "coral8", "coral8", compared="windows")
    assert same.same[0].query == query


def test_how_far_it_was_searched_is_shown() -> None:
    found = translate(Query(3, 3), "streambase", "flink", inputs=Inputs(tuples=2, most=10_000))
    assert found.checked.tuples == 2
    assert found.checked.times == (0, 1, 2, 3, 4, 5, 6)
    # 7 streams of one tuple and 28 of two.
    assert found.checked.streams == 35
    assert found.checked.whole
    cut = translate(Query(3, 3), "streambase", "flink", inputs=Inputs(most=10))
    assert not cut.checked.whole
    assert "there are more" in str(cut)
    assert json.loads(json.dumps(found.to_dict()))["streams"] == 35


def test_inputs_have_what_they_promise() -> None:
    query = Query(3, 2)
    for inputs in (
        Inputs(gaps=False, simultaneous=False),
        Inputs(gaps=False),
        Inputs(simultaneous=False),
        Inputs(late=1, tuples=3),
        Inputs(batches="any", tuples=3),
    ):
        streams = list(inputs.streams(query))
        assert len(streams) == len(set(streams)) > 5, inputs
        for stream in streams:
            times = [one.time for one in stream if isinstance(one, Arrival)]
            if not inputs.simultaneous:
                assert len(set(times)) == len(times)
            if not inputs.gaps:
                assert set(times) == set(range(min(times), max(times) + 1))
            behind = [max(times[: n + 1]) - time for n, time in enumerate(times)]
            assert max(behind) <= inputs.late
    assert any("[" in show_stream(one) for one in Inputs(batches="any").streams(query))


@pytest.mark.parametrize("name", ENGINES)
def test_every_engine_translates_to_itself(name: str) -> None:
    found = translate(Query(2, 2, "sum"), name, name, inputs=Inputs(tuples=3))
    assert any(
        one.engine.start == ENGINES[name].start and one.query.slide == 2 for one in found.same
    )


def test_bad_calls_are_refused() -> None:
    query = Query(3, 3)
    with pytest.raises(UsageError, match="unknown engine"):
        translate(query, "streambase", "flnk")
    with pytest.raises(UsageError, match=r"expected windows\.Query"):
        translate((3, 3), "streambase", "flink")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="expected values or windows"):
        translate(query, "streambase", "flink", compared="all")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="no candidate"):
        translate(query, "streambase", [])
    with pytest.raises(InputError, match="in order"):
        translate(query, "streambase", "flink", inputs=Inputs(late=2))
    with pytest.raises(UsageError, match="gaps=True"):
        Inputs(gaps=False, late=1)
    with pytest.raises(UsageError, match="expected tuple, time or any"):
        Inputs(batches="all")  # type: ignore[arg-type]
