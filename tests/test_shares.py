"""All shares of the tests run, all closing lines are shown, and each can fail the run."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

SCRIPT = Path(__file__).parents[1] / ".ci" / "tests.py"
PLAIN = "def test_plain():\n    assert {}\n"
SPARK = "import pytest\n@pytest.mark.spark\ndef test_spark():\n    assert {}\n"
OWN = "@pytest.mark.spark\n@pytest.mark.process\ndef test_own():\n    assert True\n"
MARKS = "[pytest]\nmarkers =\n  spark: x\n  deep: x\n  process: x\n"


@pytest.mark.parametrize(("plain", "spark"), [(True, True), (True, False), (False, True)])
def test_a_failure_in_either_share_counts(tmp_path: Path, plain: bool, spark: bool) -> None:
    (tmp_path / "test_both.py").write_text(PLAIN.format(plain) + SPARK.format(spark) + OWN)
    (tmp_path / "pytest.ini").write_text(MARKS)
    ran = subprocess.run(
        [sys.executable, str(SCRIPT), "-p", "no:randomly"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    lines = ran.stdout.splitlines()
    passed = 1 + plain + spark
    assert ran.returncode == int(passed < 3)
    assert lines[-1] == f"{passed} passed, {3 - passed} failed"
    names = [line.split(": ")[0] for line in lines[-4:-1]]
    assert names == ["without a session", "with a session", "in processes"]


def test_a_share_that_does_not_start_is_a_failure(tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPT), "--no-such-option"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode != 0
    assert ran.stdout.splitlines()[-1] == "0 passed, 3 failed"


def test_a_share_that_was_cut_off_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "test_both.py").write_text(PLAIN.format(True) + SPARK.format(True))
    (tmp_path / "pytest.ini").write_text(MARKS)
    broken = "def pytest_runtest_logfinish():\n    raise ValueError\n"
    (tmp_path / "conftest.py").write_text(broken)
    command = [sys.executable, str(SCRIPT), "-p", "no:randomly"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode > 1
    assert not ran.stdout.splitlines()[-1].endswith(", 0 failed")
    assert "1 error: pytest ended with 3" in ran.stdout
