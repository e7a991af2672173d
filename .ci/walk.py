"""Walks the README and "From plain rows to production" from a fresh clone, and prints the time.

    python .ci/walk.py [--keep FOLDER]

It saves the programs that the pages name, types their commands into one shell, in order, and
compares what is printed with what the page shows.  `make` and `make test` of the last section
of the README are for people who change the code, and are not typed.  Nothing else is set up:
the clone makes its environment by the README's own command, which needs the network.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from pages import Step, steps

ROOT: Final = Path(__file__).parents[1]
NOT_TYPED: Final = {"make", "make test"}
MARK: Final = "__walked__"


class Shell:
    """One bash, as a reader has one terminal."""

    def __init__(self, folder: Path) -> None:
        self.bash = subprocess.Popen(
            ["bash"], cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def type(self, line: str) -> tuple[str, int]:
        """What the command prints to stdout, and its exit code."""
        assert self.bash.stdin is not None
        assert self.bash.stdout is not None
        # stdin is closed to the command: it would eat the next line.
        grouped = f"{{ {line}\n}} < /dev/null"
        self.bash.stdin.write(f"{grouped}\nprintf '\\n{MARK} %s\\n' $?\n")
        self.bash.stdin.flush()
        printed = ""
        for text in self.bash.stdout:
            if text.startswith(MARK):
                return printed.removesuffix("\n"), int(text.split()[1])
            printed += text
        message = f"the shell ended in: {line}"
        raise SystemExit(message)


def walk(page: Path, shell: Shell, folder: Path) -> list[str]:
    """Does every step of the page there; what went wrong."""
    wrong = []
    prints: dict[str, str] = {}
    for step in steps(page):
        if step.kind == "file":
            (folder / step.name).write_text(step.text)
            if step.printed is not None:
                prints[step.name] = step.printed
        elif step.kind == "command" and step.text not in NOT_TYPED:
            wrong += _type(step, shell, prints)
    return wrong


def _type(step: Step, shell: Shell, prints: dict[str, str]) -> list[str]:
    words = step.text.split()
    program = words[1] if words[0] == "python" and len(words) > 1 else ""
    expected = step.printed if step.printed is not None else prints.get(program)
    begin = time.monotonic()
    printed, code = shell.type(step.text)
    took = time.monotonic() - begin
    print(f"{took:7.1f} s  $ {step.text}", flush=True)
    if code:
        return [f"{step.text}: exit code {code}\n{printed}"]
    if expected is not None and printed.strip() != expected.strip():
        return [f"{step.text}: printed\n{printed}\nbut the page shows\n{expected}"]
    return []


def main() -> int:
    """Clones, walks both pages and reports; the exit code."""
    options = argparse.ArgumentParser(description="walk the README and the production guide")
    options.add_argument("--keep", help="the folder to clone into; a temporary one without it")
    keep = options.parse_args().keep
    with tempfile.TemporaryDirectory(prefix="anabranch-walk-") as temporary:
        clone = Path(keep or temporary).resolve() / "anabranch"
        begin = time.monotonic()
        subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
        shell = Shell(clone)
        wrong = walk(clone / "README.md", shell, clone)
        production = clone / "docs" / "guide" / "production.md"
        (clone / "production").mkdir()
        shell.type("cd production")
        wrong += walk(production, shell, clone / "production")
        print(f"{time.monotonic() - begin:7.1f} s  in all, {len(wrong)} wrong")
    print("\n".join(wrong), file=sys.stderr)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
