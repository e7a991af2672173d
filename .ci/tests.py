"""Every test that CI runs, in three shares side by side.

    python .ci/tests.py [options of pytest]

A query waits for Spark more than it computes, so the share of the session runs in two workers
with a session each; a file of tests stays in one worker.  Tests that start processes of their
own (`process`) wait for them: they are a share too, so that others compute meanwhile.  The one
without a session is shown as it runs, the others when they have ended.  Then come all closing
lines and, last, their sum as `N passed, N failed`.  The exit code is zero only if all shares
succeeded.
"""

import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SHARES: Final = {
    "without a session": ("not spark and not process and not deep",),
    "with a session": ("spark and not process and not deep", "-n2", "--dist=loadfile"),
    "in processes": ("process and not deep",),
}
"""The marks of each share, and what else its pytest is given."""
WORDS: Final = {
    "with a session": re.compile(r"mark\.spark|engine"),
    "in processes": re.compile(r"mark\.process"),
}
"""What the files of a share's tests contain: others are not imported, which takes seconds in
each process.  `tests/conftest.py` rejects a test that would be missed."""
CLOSING: Final = re.compile(
    r"^=*\s*((\d+ [a-z]+|no tests ran)(, \d+ [a-z]+)* in .*?)\s*=*$", re.M
)
BAD: Final = ("failed", "error", "errors")


@dataclass
class Share:
    """One pytest, and the file that it writes to."""

    name: str
    log: Path
    process: subprocess.Popen[bytes]

    @classmethod
    def start(
        cls, name: str, marks: tuple[str, ...], options: list[str], folder: Path
    ) -> "Share":
        """Runs pytest in the background."""
        log = folder / f"{name}.log"
        # A cache of its own: what failed last would be overwritten by the other share.
        cache = f"cache_dir=.pytest_cache/{name.replace(' ', '-')}"
        command = [sys.executable, "-m", "pytest", "-m", *marks, "--durations=60", "-o", cache]
        with log.open("wb") as out:
            words = [*command, *options, *files_of(name, options)]
            process = subprocess.Popen(words, stdout=out, stderr=out)
        return cls(name, log, process)

    def follow(self) -> None:
        """Prints what the share writes, until it ends."""
        print(f"\n{f' {self.name} ':=^80}", flush=True)
        with self.log.open(encoding="utf-8", errors="replace") as log:
            ended = False
            while not ended:
                try:
                    self.process.wait(1)
                    ended = True
                except subprocess.TimeoutExpired:
                    ended = False
                print(log.read(), end="", flush=True)

    def closing(self) -> str:
        """What pytest printed last; an error if it did not come that far, or was cut off."""
        found = CLOSING.findall(self.log.read_text(encoding="utf-8", errors="replace"))
        ended = f"1 error: pytest ended with {self.process.returncode}"
        if not found:
            return ended
        # Exit codes above 1: not all tests ran.
        return found[-1][0] if self.process.returncode in (0, 1) else f"{found[-1][0]}, {ended}"


def files_of(name: str, options: list[str]) -> list[str]:
    """The files that a share's tests are in; none: all, as pytest finds them."""
    if name not in WORDS or any(Path(one.partition("::")[0]).exists() for one in options):
        return []
    files = sorted(Path("tests").rglob("test_*.py"))
    return [str(one) for one in files if WORDS[name].search(one.read_text(encoding="utf-8"))]


def count(closings: list[str], words: tuple[str, ...]) -> int:
    """How many tests ended in one of these ways."""
    numbered = [part.split() for line in closings for part in re.findall(r"\d+ [a-z]+", line)]
    return sum(int(number) for number, word in numbered if word in words)


def main(options: list[str]) -> int:
    """Runs all shares and reports; the exit code."""
    with tempfile.TemporaryDirectory(prefix="anabranch-tests-") as folder:
        shares = [Share.start(*share, options, Path(folder)) for share in SHARES.items()]
        try:
            for share in shares:
                share.follow()
        finally:
            for share in shares:
                share.process.terminate()
        closings = [share.closing() for share in shares]
    print()
    for share, closing in zip(shares, closings, strict=True):
        print(f"{share.name}: {closing}")
    print(f"{count(closings, ('passed',))} passed, {count(closings, BAD)} failed")
    return max(abs(share.process.returncode) for share in shares)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
