"""The pictures of every case file, on every engine: the reference emits just that.

The other engines emit the net change of each column.

On Spark all pictures share one streaming query (`test_played_together`).  Those in `FIRST` are
also queries of their own, by the public call; the deep runs do so with all of them.
"""

import pytest
from case_files import CASES, FILES, FOLDER, ON_SPARK, play

from anabranch import testing
from anabranch.batch.schema import ElementSchema, TimeType
from anabranch.errors import StateError, UsageError
from anabranch.testing import load_cases
from anabranch.testing.engine import TEXT
from anabranch.testing.operators import OPERATORS

FIRST = {
    load_cases(FOLDER / f"{name}.case")[0].name for name in ("merge_r3", "cleanse", "distinct")
}
"""What every check runs on Spark in a query of its own; the others are played together."""

OTHER_COLUMNS = {"aggregate", "panes", "session", "sessions", "window"}
"""Operators that are no query by themselves, but a step of one: they emit other columns."""

ALONE = [
    pytest.param(*one.values, id=one.id, marks=() if one.id in FIRST else pytest.mark.deep)
    for one in ON_SPARK
    if one.values[0] not in OTHER_COLUMNS
]

NO_PICTURES = {
    "MergeOfOperator": "the pictures of merge are its own: it is a merge of validated replicas",
    "WindowsOperator": "its rows are no elements: `windows.predict` draws them, and judges it",
}


@pytest.mark.parametrize(("operator", "options", "case"), CASES)
def test_the_pictures_come_true(local_engine, operator, options, case):
    with local_engine(operator, **options) as running:
        play(case, running)


@pytest.mark.spark
@pytest.mark.parametrize(("operator", "options", "case"), ALONE)
def test_a_picture_comes_true_in_a_query_of_its_own(spark_engine, operator, options, case):
    with spark_engine(operator, **{"lanes": 1, **options}) as running:
        play(case, running)


def test_every_case_file_is_run():
    assert {file.stem for file in FOLDER.glob("*.case")} == FILES.keys()
    assert len([one for one in ALONE if not one.marks]) == len(FIRST)


def test_every_operator_has_pictures():
    assert {name for name, _ in FILES.values()} == OPERATORS.keys()


def test_every_operator_of_the_contract_laws_has_pictures():
    """By class: one operator may have several names."""
    import contract_entries

    kinds = {type(one.operator).__name__ for one in contract_entries.OPERATORS.values()}
    drawn = set()
    for one in CASES:
        operator, options, _ = one.values
        own = {key: value for key, value in options.items() if key not in ("payload", "lanes")}
        schema = ElementSchema(TimeType.BIGINT, options.get("payload", TEXT))
        drawn.add(type(OPERATORS[operator].operator(schema, own)).__name__)
    assert kinds - drawn == NO_PICTURES.keys()
    assert drawn <= kinds


@pytest.mark.spark
@pytest.mark.parametrize("operator", sorted(OTHER_COLUMNS))
def test_an_operator_with_other_columns_is_no_query_by_itself(spark_engine, operator):
    own = {
        "aggregate": {},
        "session": {"gap": 2, "by": "payload"},
        "sessions": {"gap": 2, "by": "x"},
    }
    options = FILES[operator][1] | own.get(operator, {"size": 5})
    with pytest.raises(UsageError, match="is a step of a query"):
        spark_engine(operator, **options)


@pytest.mark.parametrize("name", ["lanes", pytest.param("spark", marks=pytest.mark.spark)])
def test_cleanse_in_several_lanes_is_refused(request, name):
    """Each lane holds its frontier back by its own events: no lane can emit the stable."""
    spark = {"spark": request.getfixturevalue("quick")} if name == "spark" else {}
    with testing.engine(name, "cleanse", lanes=2, **spark) as running:
        running.push("0", "insert a 1..9; stable 4")
        with pytest.raises(StateError, match=r"different frontiers.*run in one lane"):
            running.cut()
