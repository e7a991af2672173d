"""infer on simulated engines: what it finds is right, and it reports what it cannot find.

The simulated engines are the model itself with drawn settings: an engine is found if the
settings found foretell its answers to inputs that were not asked.  Real Spark is in
`tests/spark/test_windows_infer_spark.py`.
"""

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.errors import InputError, RunError, UsageError
from anabranch.windows import Arrival, Engine, Report, Space, Stable, Start, engine, infer
from anabranch.windows.inference.candidates import NAME
from anabranch.windows.inference.candidates import settings as settings_of
from anabranch.windows.inference.probes import FIELDS, Kinds, answer_of, make_probe, predicted
from anabranch.windows.predict import run_query
from anabranch.windows.trace import Query

Given = Sequence[Arrival | Stable]
SPACE = Space()
COARSE = SPACE.coarse()
VALUE = frozenset({"value"})
ALL = frozenset(FIELDS)


def box(made: Engine, agg: str = "sum", by: Any = "time", *, places: bool = False) -> Any:
    """A black box that is the model inside; it refuses what that engine refuses."""

    def run(tuples: Given, size: int, slide: int) -> list[Any] | None:
        try:
            results = run_query(made, Query(size, slide, agg, by), tuples).results
        except (InputError, UsageError):
            return None
        if not places:
            return [one.value for one in results]
        names = ("value", "start", "end", "step")
        return [{name: getattr(one, name) for name in names} for one in results]

    return run


@st.composite
def engines(draw: st.DrawFn, kind: str) -> Engine:
    coarse = draw(st.sampled_from([one for one in COARSE if one.windows == kind]))
    return draw(st.sampled_from(list(SPACE.fine(coarse))))


def differences(found: Engine, true: Engine, kinds: Kinds, seed: int) -> int:
    """On how many of 40 fresh inputs the two differ."""
    random = Random(seed)
    count = 0
    for _ in range(40):
        probe = make_probe(random, kinds)
        answer, wanted = (predicted(one, probe, "sum", "time") for one in (found, true))
        if wanted is not None:
            count += answer is None or answer_of(answer, VALUE) != answer_of(wanted, VALUE)
    return count


# The search is bounded, and a difference that one input in a hundred shows can be missed.
RARE = 2


# The search is bounded, so a rare engine differs more often; the same ones are drawn each time.
@given(engines("active"), st.integers(0, 1_000))
@settings(max_examples=max(4, settings.default.max_examples // 10), derandomize=True)
def test_an_engine_with_one_window_is_found_with_drawn_settings(
    true: Engine, seed: int
) -> None:
    found = infer(box(true), search=200, confirm=4)
    assert true in found.engines
    assert differences(found.engine, true, Kinds(), seed + 10_000) <= RARE


@given(engines("every"), st.integers(0, 1_000))
@settings(max_examples=max(4, settings.default.max_examples // 10), derandomize=True)
def test_an_engine_with_every_window_is_found_with_drawn_settings(
    true: Engine, seed: int
) -> None:
    found = infer(box(true), search=200, confirm=4)
    assert true in found.engines
    assert differences(found.engine, true, Kinds(late=True), seed + 10_000) <= RARE


@given(st.sampled_from([one for one in COARSE if one.windows == "every"]), st.data())
def test_a_coarse_engine_stands_for_its_fine_ones_while_tuples_are_in_order(
    coarse: Engine, data: st.DataObject
) -> None:
    fine = data.draw(st.sampled_from(list(SPACE.fine(coarse))))
    probe = make_probe(Random(data.draw(st.integers(0, 10_000))), Kinds())
    answer, wanted = (predicted(one, probe, "sum", "time") for one in (coarse, fine))
    if wanted is None:
        assert answer is None
    else:
        assert answer is not None
        assert answer_of(answer, ALL) == answer_of(wanted, ALL)


def test_fine_engines_are_all_of_the_space_and_each_comes_once() -> None:
    fine = [one for coarse in COARSE for one in SPACE.fine(coarse)]
    assert len(fine) == len(set(fine))
    for name in ("spark-append", "spark-update", "flink", "kafka-streams", "beam-discarding"):
        wanted = settings_of(engine(name))
        assert any(settings_of(one) == wanted for one in fine), name


@pytest.mark.parametrize(
    ("name", "like"),
    [
        ("coral8", {"coral8"}),
        ("stream", {"stream"}),
        ("kafka-streams", {"kafka-streams"}),
        ("spark-update", {"spark-update"}),
        ("spark-complete", {"spark-complete"}),
        ("beam-discarding", {"beam-discarding"}),
        # In order and in final results, many engines are one.
        ("streambase", {"streambase", "flink", "beam", "beam-discarding", "spark-append"}),
    ],
)
def test_a_known_engine_is_recognised(name: str, like: set[str]) -> None:
    found = infer(box(engine(name)), search=96)
    assert set(found.like) == like
    assert found.complete
    assert found.refuted_by is None


def test_settings_of_a_known_engine_are_found_too() -> None:
    space = Space(offsets=(0, 3), delays=(0, 1, 4), latenesses=(0, 3))
    true = engine("flink", delay=4, lateness=3, offset=3)
    found = infer(box(true, places=True), space=space, search=96)
    assert "flink" in found.like
    for name, value in (("delay", 4), ("lateness", 3)):
        assert found.parameter(f"progress.{name}").values == (value,)
    assert found.parameter("start.offset").values == (3,)


def test_erratum_s12_the_tick_of_streambase_cannot_be_seen() -> None:
    found = infer(box(engine("streambase")), late=False, space=Space(windows=("active",)))
    tick = found.parameter("tick")
    assert tick.seen == "unseen"
    assert set(tick.values) == {"tuple", "time", "batch"}
    assert tick.confidence == 0
    assert found.parameter("report.window_close").values == (True,)
    assert found.parameter("report.window_close").confidence == 1


def test_windows_of_tuples_reveal_the_tick() -> None:
    found = infer(box(engine("streambase"), by="rows"), by="rows")
    assert found.parameter("tick").values == ("tuple",)


def test_without_batches_the_batch_driven_tick_is_that_of_tuples() -> None:
    found = infer(box(engine("coral8")), batches=False, late=False)
    assert set(found.parameter("tick").values) == {"tuple", "batch"}


def test_an_average_distinguishes_as_much_as_a_sum() -> None:
    found = infer(box(engine("coral8"), agg="avg"), agg="avg", search=96)
    assert found.like == ("coral8",)


def test_a_slide_above_the_size_that_is_refused_is_a_finding() -> None:
    spark = infer(box(engine("spark-update")), search=96)
    flink = infer(box(engine("flink")), search=96)
    assert spark.parameter("gaps").values == (False,)
    assert flink.parameter("gaps").values == (True,)


def test_a_query_that_is_refused_is_not_taken_for_late_tuples_that_are() -> None:
    space = Space(offsets=(0, 2))
    true = engine("flink", lateness=2, offset=2)
    found = infer(box(true), space=space, search=96)
    assert found.confirmed == 8
    assert found.parameter("start.offset").values == (2,)
    assert found.parameter("progress.lateness").values == (2,)


def test_no_setting_fits_and_the_probe_that_shows_it_is_named() -> None:
    def twice(tuples: Given, size: int, slide: int) -> list[Any]:
        shown = box(engine("coral8"))(tuples, size, slide) or []
        return [value for value in shown for _ in range(2)]

    found = infer(twice, late=False)
    assert not found.fits
    assert found.refuted_by is not None
    assert found.refuted_by.after == 0
    assert found.refuted_by == found.asked[-1]
    assert "no setting fits" in str(found)
    with pytest.raises(UsageError, match="no setting fits"):
        _ = found.engine


def test_erratum_d18_no_engine_with_one_window_is_spark_update() -> None:
    one_window = Space(windows=("active",))
    update = infer(box(engine("spark-update")), late=False, space=one_window)
    append = infer(box(engine("spark-append")), late=False, space=one_window)
    assert not update.fits
    assert append.like == ("streambase",)


def test_a_setting_outside_the_space_is_not_found_and_not_invented() -> None:
    found = infer(box(engine("spark-append", delay=9)), space=Space(("every",), delays=(0, 2)))
    assert not found.fits


def noisy(true: Engine, share: float) -> Callable[..., list[Any]]:
    random = Random(7)
    honest = box(true)

    def run(tuples: Given, size: int, slide: int) -> list[Any]:
        shown: list[Any] = honest(tuples, size, slide) or []
        if random.random() < share:
            shown = shown[:-1] or [-1]
        return shown

    return run


def test_an_engine_that_now_and_then_loses_a_result_is_asked_more_often() -> None:
    found = infer(noisy(engine("coral8"), 0.15), late=False, search=96)
    assert found.like == ("coral8",)
    assert all(one.runs >= 5 for one in found.asked)
    assert any(one.agreeing < one.runs for one in found.asked)
    differing = [one.probe for one in found.asked if one.agreeing < one.runs]
    assert set(differing) <= {one.probe for one in found.disagreements}
    assert found.parameter("tick").seen == "likely"
    assert 0.5 < found.parameter("tick").confidence <= 1


def test_an_answer_without_a_majority_settles_nothing() -> None:
    random = Random(1)
    found = infer(lambda *_: [random.random()], most=60, space=Space(windows=("active",)))
    assert not any(one.decided for one in found.asked)
    assert " and 19 other answers on size" in str(found)
    assert found.parameter("tick").seen == "unseen"
    assert not found.complete
    assert found.differs_at_most == 1


def test_the_same_seed_asks_the_same() -> None:
    runs = [infer(box(engine("coral8")), late=False, seed=3, search=32) for _ in range(2)]
    assert runs[0] == runs[1]
    assert json.loads(json.dumps(runs[0].to_dict())) == runs[0].to_dict()


def test_what_a_probe_ruled_out_is_in_the_record() -> None:
    found = infer(box(engine("coral8")), late=False, search=32, confirm=8)
    assert [one.number for one in found.asked] == list(range(1, len(found.asked) + 1))
    answer = {name for one in found.asked for name in one.narrowed}
    assert {"windows", "tick", "report.content_change", "start.anchor"} <= answer
    assert found.confirmed == 8
    # 0.05 to the power of 1/8 is 0.6877: eight agreeing probes leave 31 % at most.
    assert found.differs_at_most == pytest.approx(0.3123, abs=1e-4)


COMMAND = """
import json, sys
from anabranch.windows import Arrival, predict
asked = json.load(sys.stdin)
tuples = [Arrival(t["time"], t["value"], batch=t["batch"]) for t in asked["tuples"]]
found = predict("coral8", asked["size"], asked["slide"], tuples, asked["agg"])
print(json.dumps([{"value": r.value, "start": r.start, "end": r.end} for r in found.results]))
"""

COMMAND_CSV = """
import csv, sys
from anabranch.windows import Arrival, predict
size, slide, agg = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
tuples = [Arrival(int(row["time"]), int(row["value"]), batch=int(row["batch"]))
          for row in csv.DictReader(sys.stdin)]
for value in predict("coral8", size, slide, tuples, agg).values:
    print("" if value is None else value)
"""


def test_a_command_is_an_engine_too(tmp_path: Path) -> None:
    program = tmp_path / "engine.py"
    program.write_text(COMMAND)
    found = infer([sys.executable, str(program)], late=False, search=16, confirm=0)
    assert "coral8" in found.like


def test_a_command_may_read_csv(tmp_path: Path) -> None:
    from anabranch.windows import Command

    program = tmp_path / "engine.py"
    program.write_text(COMMAND_CSV)
    words = (sys.executable, str(program), "{size}", "{slide}", "{agg}")
    found = infer(Command(words, format="csv"), late=False, search=16, confirm=0)
    assert "coral8" in found.like


@pytest.mark.parametrize(
    ("program", "error", "words"),
    [
        ("print('hello')", InputError, "not JSON"),
        ("print('{}')", InputError, "one JSON list"),
        ("print('[\"a\"]')", InputError, "expected a number"),
        ("print('[{\"start\": 1}]')", InputError, "mapping with value"),
        ('print(\'[{"value": 1, "began": 2}]\')', InputError, "not began"),
        ('print(\'[{"value": 1, "start": 0.5}]\')', InputError, "whole number"),
        ("raise SystemExit(4)", RunError, "exit code 4"),
        ("import time; time.sleep(60)", RunError, "within 0.3 seconds"),
        ("import sys; sys.stdout.buffer.write(b'\\xff')", InputError, "UTF-8"),
    ],
)
def test_a_command_that_fails_is_named(
    program: str, error: type[Exception], words: str
) -> None:
    timeout = 0.3 if "sleep" in program else 60.0
    with pytest.raises(error, match=words) as raised:
        infer([sys.executable, "-c", program], timeout=timeout)
    assert "probe 1" in str(raised.value)


def test_a_callable_that_fails_is_named() -> None:
    def broken(tuples: Given, size: int, slide: int) -> list[Any]:
        raise ZeroDivisionError

    with pytest.raises(RunError, match=r"probe 1 .*ZeroDivisionError"):
        infer(broken)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: infer("python engine.py"), "list of words"),
        (lambda: infer([]), "list of words"),
        (lambda: infer(["no-such-command-anywhere"]), "there is no command"),
        (lambda: infer(box(engine("coral8")), agg="summ"), "did you mean 'sum'"),
        (lambda: infer(box(engine("coral8")), by="arrival"), "expected time or rows"),
        (lambda: infer(box(engine("coral8")), most=0), "most is 0"),
        (lambda: infer(box(engine("coral8")), confirm=-1), "confirm is -1"),
        (lambda: Space(delays=()), "delays is empty"),
        (lambda: Space(latenesses=(-1,)), "at least 0"),
        (lambda: Space(windows=("some",)), "expected active, every"),  # type: ignore[arg-type]
    ],
)
def test_a_call_that_cannot_be_meant_is_refused(call: Callable[[], object], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        call()


def test_an_engine_that_takes_no_query_is_an_error() -> None:
    with pytest.raises(InputError, match="takes none of the queries"):
        infer(lambda *_: None, space=Space(windows=("active",), offsets=(0,)))


def test_the_engine_found_has_the_name_of_a_found_one() -> None:
    true = Engine(NAME, Start("first", "forward"), Report(content_change=True), "time")
    found = infer(box(true), late=False, search=32)
    assert found.engine.name == NAME
