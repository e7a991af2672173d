"""All tests of `tests/spark` that take a session, on a session of Spark Connect."""

import re
from pathlib import Path

import pytest
from test_connect import run_on_connect

TAKES_A_SESSION = re.compile(r"def test_\w+\(\s*(spark|quick|run|batch)\b")
FILES = sorted(
    path.name
    for path in Path(__file__).parent.glob("test_*.py")
    if TAKES_A_SESSION.search(path.read_text())
)
# They are about how a classic session, its JVM and its log are started.
CLASSIC = {"test_session.py", "test_java.py"}
# They have no other tests.
DEEP = {"test_slice_deep.py"}


@pytest.mark.deep
@pytest.mark.spark
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("file", [name for name in FILES if name not in CLASSIC])
def test_the_same_on_connect(file: str) -> None:
    marks = "deep" if file in DEEP else "not deep"
    assert " passed" in run_on_connect(file, timeout=3500, marks=marks)


@pytest.mark.deep
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_a_server_that_runs_on_connect() -> None:
    assert " passed" in run_on_connect("connect_only.py", timeout=580, marks="deep")


def test_the_files_are_found() -> None:
    assert {"test_merge_spark.py", "test_windows_run.py", "test_membership_spark.py"} <= {
        *FILES
    }
