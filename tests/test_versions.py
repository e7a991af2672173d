"""The suite on other versions: continued where it stopped, from a lock with one other line."""

import os
import re
import subprocess
import sys
import tomllib
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from anabranch.spark.session import versions as releases

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
TESTS = """
import pytest

def test_passes(): pass
def test_fails(): assert {healthy}
def test_skips(): pytest.skip("x")

@pytest.mark.xfail
def test_gap(): raise ValueError

@pytest.fixture
def broken():
    yield
    assert {healthy}

def test_torn_down_badly(broken): pass
"""


@pytest.fixture(scope="module")
def script() -> Any:
    """`.ci/versions.py` as a module."""
    spec = spec_from_file_location("ci_versions", ROOT / ".ci" / "versions.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules["ci_versions"] = module  # dataclasses look there
    sys.path.insert(0, str(ROOT / "tests"))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(ROOT / "tests"))
    return module


def run(folder: Path, *, healthy: bool) -> str:
    (folder / "test_some.py").write_text(TESTS.format(healthy=healthy))
    (folder / "pytest.ini").write_text("[pytest]\n")
    kept = {"ANABRANCH_OUTCOMES": str(folder / "kept"), "PYTHONPATH": str(ROOT / "tests")}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "outcomes"]
    variables = {**os.environ, **kept}
    ran = subprocess.run(
        command, cwd=folder, env=variables, capture_output=True, text=True, check=False
    )
    return f"{ran.returncode}: {ran.stdout.strip().splitlines()[-1]}"


def test_what_passed_is_not_run_again(tmp_path: Path, script: Any) -> None:
    kept = tmp_path / "kept"
    first = run(tmp_path, healthy=False)
    assert re.match(r"1: 1 failed, 2 passed, 1 skipped, 1 xfailed, 1 error", first), first
    assert outcomes(script, kept) == {
        "test_passes": "passed",
        "test_fails": "failed",
        "test_skips": "skipped",
        "test_gap": "xfailed",
        "test_torn_down_badly": "failed",
    }
    with (kept / "killed.jsonl").open("w") as file:
        file.write('["test_some.py::test_fai')
    second = run(tmp_path, healthy=True)
    assert re.match(r"0: 2 passed, 3 deselected", second), second
    assert set(outcomes(script, kept).values()) == {"passed", "skipped", "xfailed"}
    third = run(tmp_path, healthy=True)
    assert re.match(r"0: 5 deselected", third), third


def outcomes(script: Any, folder: Path) -> dict[str, str]:
    return {test.split("::")[1]: word for test, (word, _) in script.read(folder).items()}


def test_another_lock_differs_in_the_named_lines_alone(script: Any) -> None:
    lock = (ROOT / "requirements.lock").read_text()
    made = script.pinned(lock, {"pyspark": "4.1.9"})
    changed = [
        (old, new)
        for old, new in zip(lock.splitlines(), made.splitlines(), strict=True)
        if old != new
    ]
    assert [new for _, new in changed] == ["pyspark==4.1.9"]
    with pytest.raises(SystemExit, match="0 lines for nothing; expected one"):
        script.pinned(lock, {"nothing": "1"})


def test_only_what_has_an_environment_is_declared(script: Any) -> None:
    found = {(one.pyspark, one.python) for one in script.ENVIRONMENTS}
    (spark,) = (
        Requirement(one).specifier
        for one in PROJECT["dependencies"]
        if Requirement(one).name == "pyspark"
    )
    assert spark == SpecifierSet(f">={dotted(releases.DECLARED)},<{dotted(releases.BEYOND)}")
    minors = range(releases.DECLARED[1], releases.BEYOND[1])
    assert {f"4.{n}" for n in minors} <= {version.rpartition(".")[0] for version, _ in found}
    pythons = {python for _, python in found}
    assert all(python in SpecifierSet(PROJECT["requires-python"]) for python in pythons)
    prefix = "Programming Language :: Python :: "
    assert {f"{prefix}{python}" for python in pythons} == {
        one for one in PROJECT["classifiers"] if one.startswith(prefix)
    }


def dotted(release: tuple[int, int]) -> str:
    return f"{release[0]}.{release[1]}"


def test_the_table_has_what_ran(script: Any) -> None:
    """Whoever reads the recorded results finds every environment by its name."""
    names = {one.name for one in script.ENVIRONMENTS}
    table = script.load()
    assert set(table) <= names
    for name, entry in table.items():
        assert entry["failed"] == len(entry["failures"]), name
