"""A suite that can be continued: what passed at this commit is not run a second time.

A plugin for `make test-versions` (`-p outcomes`).  Each process appends the outcome of every
test to a file of its own in the folder that `ANABRANCH_OUTCOMES` names, at once: a kill loses
one test at most, and two processes of one run do not disturb each other.
"""

import json
import os
from collections.abc import Iterable
from pathlib import Path

import pytest

VARIABLE = "ANABRANCH_OUTCOMES"
DONE = ("passed", "skipped", "xfailed")
"""Outcomes that need no second run."""


def read(folder: Path) -> dict[str, tuple[str, float]]:
    """The outcome of each test that ended in runs of this folder, and its seconds.

    A test that failed in one run and passed in a later one has passed.
    """
    found: dict[str, tuple[str, float]] = {}
    for file in sorted(folder.glob("*.jsonl"), key=lambda path: path.stat().st_mtime_ns):
        for line in file.read_text(encoding="utf-8").splitlines():
            try:
                test, outcome, seconds = json.loads(line)
            except ValueError:  # half a line, of a process that was killed
                continue
            if found.get(test, ("", 0.0))[0] not in DONE:
                found[test] = (outcome, seconds)
    return found


class Outcomes:
    """Appends what each test came to, and leaves out those that are done."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.file = folder / f"{os.getpid()}.jsonl"
        self.reports: dict[str, list[pytest.TestReport]] = {}
        self.left_out = 0

    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        known = read(self.folder)
        done = {test for test, (outcome, _) in known.items() if outcome in DONE}
        again = [item for item in items if item.nodeid in done]
        items[:] = [item for item in items if item.nodeid not in done]
        self.left_out = len(again)
        if again:
            config.hook.pytest_deselected(items=again)
            print(f"\n{len(again)} tests passed at this commit before: {self.folder}")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        phases = self.reports.setdefault(report.nodeid, [])
        phases.append(report)
        if report.when == "teardown":
            del self.reports[report.nodeid]
            seconds = sum(phase.duration for phase in phases)
            line = json.dumps([report.nodeid, outcome_of(phases), round(seconds, 2)])
            with self.file.open("a", encoding="utf-8") as file:
                file.write(f"{line}\n")


def outcome_of(phases: Iterable[pytest.TestReport]) -> str:
    """One word for a test: passed only if setup, call and teardown have."""
    found = list(phases)
    if any(phase.failed for phase in found):
        return "failed"
    if any(phase.skipped for phase in found):
        return "xfailed" if any(hasattr(phase, "wasxfail") for phase in found) else "skipped"
    return "passed"


def pytest_configure(config: pytest.Config) -> None:
    if VARIABLE in os.environ:
        plugin = Outcomes(Path(os.environ[VARIABLE]))
        config.pluginmanager.register(plugin, "anabranch-outcomes")


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """All passed before is a success, not "no tests ran"."""
    plugin = session.config.pluginmanager.get_plugin("anabranch-outcomes")
    nothing = exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED
    if nothing and isinstance(plugin, Outcomes) and plugin.left_out:
        session.exitstatus = pytest.ExitCode.OK
