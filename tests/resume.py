"""Heavy runs that can be taken up again: what passed at this commit is not run a second time.

A plugin for `make test-deep` (`-p resume`).  It remembers in `deep/passed.json`, by commit,
which tests have passed; a changed checkout has a key of its own: nothing stale is believed.

A law that passed is also written down, with its seed, its commit and how many generated
streams it judged, in `benchmarks/results/laws.json`: the record that is committed.  A run with
faults (a test that sets the property `faults`) is written down in `faults.json` there, also if
it failed: its kills, and what was lost or doubled.
"""

import hashlib
import json
import re
import subprocess
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

FILE = Path("deep/passed.json")
RECORD = Path("benchmarks/results/laws.json")
FAULTS = Path("benchmarks/results/faults.json")
_PASSING = re.compile(r"(\d+) passing")


def _git(*words: str) -> bytes:
    return subprocess.run(["git", *words], capture_output=True, check=True).stdout


def state_of_the_checkout() -> str:
    """The commit, and a digest of what is not committed."""
    changes = _git("diff", "HEAD", "--", "src", "tests")
    return f"{_commit()}-{hashlib.sha256(changes).hexdigest()[:12]}"


def _commit() -> str:
    return _git("rev-parse", "HEAD").decode().strip()


def streams_in(statistics: str) -> int:
    """How many generated examples a law accepted, as Hypothesis reports it.

    >>> streams_in("  - 10 passing, 0 failing, and 3 invalid test cases")
    10
    """
    return sum(int(count) for count in _PASSING.findall(statistics))


class Record:
    """The laws that passed, each with its last run for a seed; sorted, so that it diffs."""

    def __init__(self) -> None:
        self.runs: dict[str, dict[str, Any]] = {}
        if RECORD.exists():
            self.runs = json.loads(RECORD.read_text())["laws"]

    def add(self, name: str, *, streams: int, seconds: float, commit: str) -> None:
        """Write down one law, at once."""
        seconds = round(seconds, 1)
        self.runs[name] = {"streams": streams, "seconds": seconds, "commit": commit}
        total = sum(run["streams"] for run in self.runs.values())
        laws = dict(sorted(self.runs.items()))
        text = json.dumps({"streams": total, "laws": laws}, indent=1)
        RECORD.write_text(text + "\n")


class Faults:
    """The runs with faults, passed or not, each with its last run for a seed."""

    def __init__(self) -> None:
        self.runs: dict[str, dict[str, Any]] = {}
        if FAULTS.exists():
            self.runs = json.loads(FAULTS.read_text())["runs"]

    def add(self, report: pytest.TestReport, commit: str) -> None:
        """Write down one run, at once."""
        seed, counts = dict(report.user_properties)["faults"]  # type: ignore[misc]
        test = report.nodeid.partition("[")[0].rpartition("/")[2]
        facts = {"seed": seed, "passed": report.passed, **counts}
        self.runs[f"{test} seed={seed}"] = {**facts, "commit": commit}
        runs = dict(sorted(self.runs.items()))
        names = list(counts)
        sums = {name: sum(run.get(name, 0) for run in runs.values()) for name in names}
        failed = sum(not run["passed"] for run in runs.values())
        text = json.dumps({**sums, "failed": failed, "runs": runs}, indent=1)
        FAULTS.write_text(text + "\n")


class Resume:
    """Remembers each heavy test that passed, at once, so that a kill loses one test at most."""

    def __init__(self) -> None:
        self.key = state_of_the_checkout()
        self.commit = _commit()[:12]
        self.seed = ""
        self.record = Record()
        self.faults = Faults()
        self.passed: dict[str, list[str]] = (
            json.loads(FILE.read_text()) if FILE.exists() else {}
        )

    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        self.seed = str(config.getoption("hypothesis_seed", ""))
        done = set(self.passed.get(self.key, []))
        again = [item for item in items if self.name(item.nodeid) in done]
        if again:
            items[:] = [item for item in items if self.name(item.nodeid) not in done]
            config.hook.pytest_deselected(items=again)
            print(
                f"\n{len(again)} tests passed at this commit before; remove {FILE} to run all"
            )

    def name(self, test: str) -> str:
        """A test and the seed of its random streams: another seed is another run."""
        return f"{test} seed={self.seed}"

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if report.when == "call" and "faults" in dict(report.user_properties):
            self.faults.add(report, self.commit)
        if report.when == "call" and report.passed:
            name = self.name(report.nodeid)
            self.passed = {self.key: [*self.passed.get(self.key, []), name]}
            FILE.parent.mkdir(exist_ok=True)
            FILE.write_text(json.dumps(self.passed, indent=1))
            if streams := streams_in(getattr(item, "hypothesis_statistics", "")):
                seconds = report.duration
                self.record.add(name, streams=streams, seconds=seconds, commit=self.commit)
        return report


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Resume(), "anabranch-resume")


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """All passed before is a success, not "no tests ran"."""
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and session.testscollected == 0:
        deselected = session.config.pluginmanager.get_plugin("anabranch-resume")
        if isinstance(deselected, Resume) and deselected.passed.get(deselected.key):
            session.exitstatus = pytest.ExitCode.OK
