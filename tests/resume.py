"""Heavy runs that can be taken up again: what passed at this commit is not run a second time.

A plugin for `make test-deep` (`-p resume`).  It remembers in `deep/passed.json`, by commit,
which tests have passed; a changed checkout has a key of its own: nothing stale is believed.
"""

import hashlib
import json
import subprocess
from pathlib import Path

import pytest

FILE = Path("deep/passed.json")


def state_of_the_checkout() -> str:
    """The commit, and a digest of what is not committed."""
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True
    ).stdout.strip()
    changes = subprocess.run(
        ["git", "diff", "HEAD", "--", "src", "tests"], capture_output=True, check=True
    ).stdout
    return f"{commit}-{hashlib.sha256(changes).hexdigest()[:12]}"


class Resume:
    """Remembers each heavy test that passed, at once, so that a kill loses one test at most."""

    def __init__(self) -> None:
        self.key = state_of_the_checkout()
        self.seed = ""
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

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed:
            done = [*self.passed.get(self.key, []), self.name(report.nodeid)]
            self.passed = {self.key: done}
            FILE.parent.mkdir(exist_ok=True)
            FILE.write_text(json.dumps(self.passed, indent=1))


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Resume(), "anabranch-resume")


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """All passed before is a success, not "no tests ran"."""
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and session.testscollected == 0:
        deselected = session.config.pluginmanager.get_plugin("anabranch-resume")
        if isinstance(deselected, Resume) and deselected.passed.get(deselected.key):
            session.exitstatus = pytest.ExitCode.OK
