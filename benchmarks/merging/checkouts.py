"""Another checkout beside this one: each in a process of its own, and they take turns."""

import os
import subprocess
import sys
from pathlib import Path
from typing import IO, cast

FAILED = "a checkout failed; its error is above"


class Checkout:
    """The process of one checkout: `SCRIPT --probe WORDS`, which answers each line with one."""

    def __init__(self, checkout: Path, script: Path, *words: str) -> None:
        paths = os.pathsep.join((str(checkout / "src"), str(script.parent)))
        self.process = subprocess.Popen(
            [sys.executable, str(script), "--probe", *words],
            env={**os.environ, "PYTHONPATH": paths},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.greeting = self._read()

    def _read(self) -> str:
        line = cast("IO[str]", self.process.stdout).readline()
        if not line:
            raise SystemExit(FAILED)
        return line

    def take(self, turn: str) -> float:
        """What one turn gives."""
        ask = cast("IO[str]", self.process.stdin)
        ask.write(f"{turn}\n")
        ask.flush()
        return float(self._read())

    def end(self) -> None:
        """Stop it; a process that checks what it wrote fails here."""
        cast("IO[str]", self.process.stdin).close()
        if self.process.wait() != 0:
            raise SystemExit(FAILED)
