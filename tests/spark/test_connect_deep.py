"""All tests that take a session, on a session of Spark Connect.

A test takes one if it is marked `spark` and not `process`, whichever fixture hands it over.
"""

import re
from pathlib import Path

import pytest
from test_connect import run_on_connect

TESTS = Path(__file__).parents[1]
# The fixture `engine` of all tests is Spark too, and carries the mark by itself.
MARKED, ON_ENGINES = re.compile(r"mark\.spark\b"), re.compile(r"def test_\w+\([^)]*\bengine\b")
ITS_OWN = re.compile(r"^def engine\(|parametrize\(\"engine", re.MULTILINE)
"""A file with an `engine` of its own, without Spark."""
WITHOUT = {
    "spark/test_session.py": "how a classic session and its log are started",
    "spark/test_java.py": "how the JVM of a classic session is found",
    "spark/test_connect.py": "it starts Connect itself",
    "spark/test_connect_deep.py": "it starts Connect itself",
    "spark/test_object_store_deep.py": "it starts a session with the packages of the store",
    "spark/test_cli_interrupt.py": "the command starts Spark",
    "test_shares.py": "its files are made up",
    "packaging/test_packaging.py": "it installs the package and starts Spark from there",
    "cli/test_cli_doctor.py": "the command starts Spark",
}
FAULTS = "spark/faults/"
"""They kill drivers, workers and clusters that they have started."""


def takes_a_session(text: str) -> bool:
    """Whether a file with this text has tests with a session."""
    on_engines = ON_ENGINES.search(text) and not ITS_OWN.search(text)
    return bool(MARKED.search(text) or on_engines)


FILES = sorted(
    name
    for path in TESTS.rglob("test_*.py")
    if takes_a_session(path.read_text())
    and not (name := path.relative_to(TESTS).as_posix()).startswith(FAULTS)
    and name not in WITHOUT
)
# They have no other tests.
DEEP = {"spark/test_slice_deep.py"}


@pytest.mark.deep
@pytest.mark.spark
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("file", FILES)
def test_the_same_on_connect(file: str) -> None:
    deep = "deep" if file in DEEP else "not deep"
    marks = f"spark and not process and {deep}"
    assert " passed" in run_on_connect(file, timeout=3500, marks=marks)


@pytest.mark.deep
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_a_server_that_runs_on_connect() -> None:
    printed = run_on_connect("spark/connect_only.py", timeout=580, marks="deep")
    assert " passed" in printed


def test_the_files_are_found(request: pytest.FixtureRequest) -> None:
    """All files of this run that have tests with a session, by the marks of these tests."""
    found = {
        item.path.relative_to(TESTS).as_posix()
        for item in request.session.items
        if item.get_closest_marker("spark") and not item.get_closest_marker("process")
    }
    assert {name for name in found if not name.startswith(FAULTS)} <= {*FILES, *WITHOUT}
    wanted = {f"operators/test_{name}.py" for name in ("played_together", "union")}
    wanted |= {"spark/test_merge_spark.py", "testing/test_engine.py"}
    assert wanted <= {*FILES}
