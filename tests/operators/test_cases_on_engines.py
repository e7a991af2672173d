"""The pictures of every case file, on every engine: the reference emits just that.

The other engines emit the net change of each column.  A file's name begins with its operator.

On Spark each picture is a query of its own.  Every check runs some of each file there, the deep
runs all of them; lanes without Spark run all in every check, with the same code.
"""

from pathlib import Path

import pytest

from anabranch import testing
from anabranch.errors import StateError
from anabranch.testing import load_cases, run_case

FOLDER = Path(__file__).parents[1] / "cases"
FILES = {
    **{f"merge_{case}": ("merge", {"case": case}) for case in ("r0", "r1", "r2", "r3", "r4")},
    "merge_gaps": ("merge", {"case": "r3", "policy": "gaps=true"}),
    "merge_policies": ("merge", {"case": "r3"}),
    "normalise": ("normalise", {}),
    "cleanse": ("cleanse", {"lanes": 1}),
    "finalize": ("finalize", {}),
    "union": ("union", {}),
}
CASES = [
    pytest.param(operator, {**options, **case.options}, case, id=case.name)
    for name, (operator, options) in FILES.items()
    for case in load_cases(FOLDER / f"{name}.case")
]


SHOWN = tuple(case.name for name in FILES for case in load_cases(FOLDER / f"{name}.case")[::4])
"""The pictures that every check runs on Spark."""


@pytest.mark.parametrize(("operator", "options", "case"), CASES)
def test_the_pictures_come_true(engine, operator, options, case):
    with engine(operator, **options) as running:
        run_case(case, running)
        pushed = {row.name: sum(map(len, row.cells)) for row in case.replicas}
        account = {name: sum(buckets.values()) for name, buckets in running.account.items()}
        assert account == {name: count for name, count in pushed.items() if count}


def test_every_case_file_is_run():
    assert {file.stem for file in FOLDER.glob("*.case")} == FILES.keys()


@pytest.mark.parametrize("name", ["lanes", pytest.param("spark", marks=pytest.mark.spark)])
def test_cleanse_in_several_lanes_is_refused(request, name):
    """Each lane holds its frontier back by its own events: no lane can emit the stable."""
    spark = {"spark": request.getfixturevalue("quick")} if name == "spark" else {}
    with testing.engine(name, "cleanse", lanes=2, **spark) as running:
        running.push("0", "insert a 1..9; stable 4")
        with pytest.raises(StateError, match=r"different frontiers.*run in one lane"):
            running.cut()
