"""Processes that a test starts and kills: each with all its offspring, none left behind.

A `Session` is one command in a POSIX session of its own. Spark's Python workers leave the
process group of their parent, but not its session: so whoever belongs to it can be found and
killed.
"""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

PROC = Path("/proc")


class Session:
    """A command, its log file, and all processes that came of it."""

    def __init__(self, words: Sequence[object], *, log: Path, env: Mapping[str, str]) -> None:
        self.log = log
        with log.open("ab") as to:
            self.process = subprocess.Popen(
                [str(word) for word in words],
                stdin=subprocess.DEVNULL,
                stdout=to,
                stderr=to,
                env={**os.environ, **env},
                start_new_session=True,
            )

    def members(self) -> dict[int, str]:
        """The living processes of the session, by number, with their names."""
        return dict(_members(self.process.pid))

    def kill(self, only: str | None = None) -> None:
        """kill -9 of all processes, or of those with one name; until all have ended.

        Whoever loses its other half (Python its JVM, or the reverse) must end by itself.
        """
        members = self.members()
        if not any(name.startswith(only or "") for name in members.values()):
            only = None  # too early: there is no JVM yet
        _strike(pid for pid, name in members.items() if name.startswith(only or ""))
        while only is None and (left := self.members()):
            _strike(left)  # started while the others died
            time.sleep(0.05)
        self.wait(300)

    def kill_workers(self) -> int:
        """kill -9 of the Python processes but the command itself; how many there were."""
        own = self.process.pid
        workers = [p for p, name in self.members().items() if name.startswith("python")]
        _strike(pid for pid in workers if pid != own)
        return len(workers) - 1

    def interrupt(self) -> int:
        """Ctrl-C for the command; its exit code."""
        self.process.send_signal(signal.SIGINT)
        self.wait(600)
        return self.process.returncode

    def wait(self, seconds: float) -> int:
        """Wait for the end of all; the command's exit code."""
        until = time.monotonic() + seconds
        while self.process.poll() is None or self.members():
            if time.monotonic() > until:
                left = self.members()
                raise AssertionError(f"still running after {seconds} s: {left}\n{self.tail()}")
            time.sleep(0.05)
        return self.process.returncode

    def tail(self) -> str:
        """The end of its log, for a message."""
        return self.log.read_text(errors="replace")[-3000:]

    def close(self) -> None:
        """Leave nothing behind, whatever has happened."""
        _strike(self.members())
        self.process.wait()


def _strike(pids: Iterable[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _members(session: int) -> Iterator[tuple[int, str]]:
    for entry in PROC.iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            name, _, rest = (entry / "stat").read_text().rpartition(")")
        except OSError:  # it ended while we looked
            continue
        state, _, _, sid = rest.split()[:4]
        if int(sid) == session and state not in "ZX":
            yield int(entry.name), name.partition("(")[2]
