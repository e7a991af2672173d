"""infer from runs that were written down: the same verdict as the model, and no more."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import InputError, UsageError
from anabranch.windows import Arrival, Engine, Recorded, Space, Stable, engine, infer, predict
from anabranch.windows.inference.probes import (
    FIELDS,
    Kinds,
    Probe,
    answer_of,
    foretold,
    make_probe,
)
from anabranch.windows.inference.recorded import Silent, agreeing
from anabranch.windows.trace import Query

SPACE = Space()
FINE = [fine for coarse in SPACE.coarse() for fine in SPACE.fine(coarse)]
SMALL = Space(delays=(0, 2), latenesses=(0,), offsets=(0,), periods=(1,))


def long_probe(seed: int, count: int, *, late: bool) -> Probe:
    """A stream of many tuples, some late and in batches of several times if asked for."""
    chance = Random(seed)
    size = chance.randint(1, 6)
    now, batch, tuples = chance.randint(0, 9), 1, list[Arrival | Stable]()
    for _ in range(count):
        step = chance.choice([0, 0, 1, 1, 2, 9])
        now, batch = now + step, batch + (chance.random() < 0.5 if late else step > 0)
        behind = chance.choice([0, 0, 1, 4]) if late else 0
        tuples.append(Arrival(max(0, now - behind), chance.randint(1, 9), batch=batch))
    return Probe(size, chance.randint(1, size), (*tuples, Stable(now + size)))


@given(
    true=st.sampled_from(FINE),
    others=st.lists(st.sampled_from(FINE), max_size=12),
    seed=st.integers(0, 10_000),
    late=st.booleans(),
    answer=st.sets(st.sampled_from(FIELDS[1:])),
)
def test_settings_are_left_exactly_if_the_model_predicts_the_same(
    true: Engine, others: list[Engine], seed: int, late: bool, answer: set[str]
) -> None:
    probe = (
        long_probe(seed, 70, late=late)
        if seed % 2
        else make_probe(Random(seed), Kinds(late=late, stables=True))
    )
    fields = frozenset({"value", *answer})
    shown = foretold(true, probe, "sum", "time") or ()
    modelled = {one: foretold(one, probe, "sum", "time") for one in others}
    same = [
        one
        for one, results in modelled.items()
        if results is not None and answer_of(results, fields) == answer_of(shown, fields)
    ]
    query = Query(probe.size, probe.slide, "sum")
    assert agreeing(list(modelled), probe, shown, fields, query) == same
    silent = Silent(probe, query)
    assert [silent.why(one) is not None for one in modelled] == [
        results is None for results in modelled.values()
    ]


@pytest.mark.parametrize("name", ["coral8", "spark-update", "flink", "kafka-streams"])
def test_a_long_run_shows_what_the_engine_is_like(name: str) -> None:
    probe = long_probe(3, 120, late=name != "coral8")
    results = predict(name, 5, 2, probe.tuples, "sum").results
    rows = [{"value": one.value, "start": one.start, "step": one.step} for one in results]
    found = infer(recorded=[Recorded(5, 2, probe.tuples, rows)])
    assert name in found.like
    assert found.complete
    assert [one.purpose for one in found.asked] == ["recorded"]
    assert str(found).startswith(f"{len(found.engines)} settings fit, after 1 recording\n")


def test_the_run_that_is_proposed_narrows_down_until_none_is_left_to_propose() -> None:
    true = engine("spark-append", delay=2)
    recorded: list[Recorded] = []
    first = Recorded(4, 4, [(1, 1), (6, 2)], [1])
    found = infer(recorded=[first], space=SMALL, search=96)
    left = len(found.engines)
    while found.next_probe is not None and len(recorded) < 40:
        assert "to narrow it down, run and record" in str(found)
        probe = found.next_probe
        values = predict(true, probe.size, probe.slide, probe.tuples, "sum").values
        recorded.append(Recorded(probe.size, probe.slide, probe.tuples, values))
        found = infer(recorded=[first, *recorded], space=SMALL, search=96)
        assert len(found.engines) < left
        left = len(found.engines)
    assert found.next_probe is None
    assert "spark-append" in found.like
    assert found.parameter("progress.delay").values == (2,)
    assert "that is no proof" in str(found) or left == 1


def test_a_run_that_nothing_explains_is_named() -> None:
    found = infer(recorded=[Recorded(5, 5, [(n, 1) for n in range(40)], [7, 7])])
    assert not found.fits
    assert found.refuted_by is not None
    assert "and 16 more" in str(found)
    assert found.next_probe is None


def test_a_recording_counts_beside_an_engine_that_is_run() -> None:
    def run(tuples: list[Arrival | Stable], size: int, slide: int) -> tuple[object, ...]:
        return predict("flink", size, slide, tuples, "sum").values

    wrong = Recorded(2, 2, [(0, 1), (9, 2)], [5])
    refuted = infer(run, recorded=[wrong], space=SMALL)
    assert not refuted.fits
    assert refuted.refuted_by == refuted.asked[0]
    right = Recorded(2, 2, [(0, 1), (9, 2)], [1])
    found = infer(run, recorded=[right], space=SMALL, search=48, confirm=2)
    assert "flink" in found.like
    assert "after 1 recording and " in str(found)


def test_what_is_left_is_listed_in_words_and_for_programs() -> None:
    found = infer(recorded=[Recorded(4, 4, [(1, 1), (6, 2)], [1])], space=SMALL)
    assert f"not distinguished: {len(found.engines)} settings that differ in" in str(found)
    answer = found.to_dict()
    assert len(answer["alike"]) == len(found.engines)
    # Each is another one: the parameters that are listed are all in which they differ.
    assert len({tuple(one.values()) for one in answer["alike"]}) == len(found.engines)
    assert set(answer["alike"][0]) == set(found.ambiguous)
    assert set(answer["next_probe"]) == {"size", "slide", "tuples"}


def test_recordings_that_cannot_be_meant() -> None:
    with pytest.raises(UsageError, match="nothing to infer from"):
        infer()
    with pytest.raises(InputError, match="recording 1 has no tuples"):
        infer(recorded=[Recorded(5, 5, [Stable(3)], [])])
    with pytest.raises(InputError, match="recording 1, result 2: the value is 'x'"):
        infer(recorded=[Recorded(5, 5, [(1, 1)], [1, "x"])])
    with pytest.raises(UsageError, match="expected a list of results"):
        infer(recorded=[Recorded(5, 5, [(1, 1)], "7")])
