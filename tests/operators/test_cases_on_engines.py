"""The pictures of every case file, on every engine: the reference emits just that.

The other engines emit the net change of each column.  A file's name begins with its operator.

On Spark all pictures share one streaming query.  Those in `FIRST` are also queries of their
own, by the public call; the deep runs do so with all of them.
"""

from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from anabranch import testing
from anabranch.errors import StateError
from anabranch.testing import load_cases, run_case
from anabranch.testing.together import Run, run_together

FOLDER = Path(__file__).parents[1] / "cases"
FILES = {
    **{f"merge_{case}": ("merge", {"case": case}) for case in ("r0", "r1", "r2", "r3", "r4")},
    "merge_gaps": ("merge", {"case": "r3", "policy": "gaps=true"}),
    "merge_policies": ("merge", {"case": "r3"}),
    "normalise": ("normalise", {}),
    "cleanse": ("cleanse", {"lanes": 1}),
    "align": ("align", {"lanes": 1}),
    "final": ("final", {}),
    "alter_lifetime": ("alter_lifetime", {}),
    "hop": ("hop", {}),
    "window": ("window", {}),
    "replaced_by": ("replaced_by", {}),
    "inserts": ("inserts", {}),
    "deletes": ("deletes", {}),
    "union": ("union", {}),
    "aggregate": ("aggregate", {"payload": pa.schema({"x": pa.int64()})}),
    "aggregate_emit": ("aggregate", {"payload": pa.schema({"x": pa.int64()})}),
    "panes": ("panes", {"payload": pa.schema({"x": pa.int64()})}),
    "distinct": ("distinct", {}),
    "difference": ("difference", {}),
    "join": ("join", {}),
    "top_k": ("top_k", {"payload": pa.schema({"x": pa.string()})}),
}
LOCAL = {"aggregate", "difference", "join", "panes", "top_k", "window"}
"""Operators with other columns or ports than one input has: on Spark, steps of a query."""
CASES = [
    pytest.param(operator, {**options, **case.options}, case, id=case.name)
    for name, (operator, options) in FILES.items()
    for case in load_cases(FOLDER / f"{name}.case")
]


ON_SPARK = [one for one in CASES if one.values[0] not in LOCAL]

FIRST = {
    load_cases(FOLDER / f"{name}.case")[0].name for name in ("merge_r3", "cleanse", "distinct")
}
"""What every check runs on Spark in a query of its own; the others are played together."""

ALONE = [
    pytest.param(*one.values, id=one.id, marks=() if one.id in FIRST else pytest.mark.deep)
    for one in ON_SPARK
]


def play(case, engine):
    run_case(case, engine)
    pushed = {row.name: sum(map(len, row.cells)) for row in case.replicas}
    account = {name: sum(buckets.values()) for name, buckets in engine.account.items()}
    assert account == {name: count for name, count in pushed.items() if count}


@pytest.mark.parametrize(("operator", "options", "case"), CASES)
def test_the_pictures_come_true(local_engine, operator, options, case):
    with local_engine(operator, **options) as running:
        play(case, running)


@pytest.fixture(scope="module")
def played(spark):
    """All pictures in one query: what each of them raised."""
    runs = {}
    for one in ON_SPARK:
        operator, options, case = one.values
        options = {name: value for name, value in options.items() if name != "lanes"}
        runs[case.name] = Run(operator, options, partial(play, case))
    return dict(zip(runs, run_together(spark, list(runs.values())), strict=True))


@pytest.mark.spark
@pytest.mark.parametrize("case", [one.id for one in ON_SPARK])
def test_the_pictures_come_true_on_spark(played, case):
    if played[case] is not None:
        raise played[case]


@pytest.mark.spark
@pytest.mark.parametrize(("operator", "options", "case"), ALONE)
def test_a_picture_comes_true_in_a_query_of_its_own(spark_engine, operator, options, case):
    with spark_engine(operator, **{"lanes": 1, **options}) as running:
        play(case, running)


def test_every_case_file_is_run():
    assert {file.stem for file in FOLDER.glob("*.case")} == FILES.keys()


def test_every_operator_has_pictures_on_spark():
    assert {one.values[0] for one in ON_SPARK} == {name for name, _ in FILES.values()} - LOCAL
    assert len([one for one in ALONE if not one.marks]) == len(FIRST)


@pytest.mark.parametrize("name", ["lanes", pytest.param("spark", marks=pytest.mark.spark)])
def test_cleanse_in_several_lanes_is_refused(request, name):
    """Each lane holds its frontier back by its own events: no lane can emit the stable."""
    spark = {"spark": request.getfixturevalue("quick")} if name == "spark" else {}
    with testing.engine(name, "cleanse", lanes=2, **spark) as running:
        running.push("0", "insert a 1..9; stable 4")
        with pytest.raises(StateError, match=r"different frontiers.*run in one lane"):
            running.cut()
