"""A page as steps: files to save, commands to type, and what they print.

A program that a reader saves has its name in front of it, as "`job.py`:".  A `text` block right
behind a program is what the program prints, right behind commands what the last of them prints.
A block behind an HTML comment (`<!-- kafka -->`) needs more than a page has, and is left out.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

FENCE: Final = re.compile(
    r"(?:(?P<comment><!--.*?-->)\n)?(?:`(?P<name>[\w.]+)`:\n\n)?"
    r"^```(?P<language>\w+)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Step:
    """One thing to do: `file` is saved as `name`, `program` is run, `command` is typed."""

    kind: Literal["file", "program", "command"]
    text: str
    name: str = ""
    printed: str | None = None


def steps(page: Path) -> list[Step]:
    """What a reader of the page does, in order."""
    found: list[Step] = []
    end = -1
    text = page.read_text()
    for block in FENCE.finditer(text):
        if block["language"] == "text" and not text[max(end, 0) : block.start()].strip():
            if found and end >= 0:
                found[-1] = replace(found[-1], printed=block["text"])
        elif not block["comment"]:
            found += _steps(block)
        end = block.end() if block["language"] in {"python", "console"} else -1
    return found


def _steps(block: re.Match[str]) -> Iterator[Step]:
    if block["language"] == "python":
        name = block["name"] or ""
        yield Step("file" if name else "program", block["text"], name)
    elif block["language"] == "console":
        for line in block["text"].splitlines():
            if line.startswith("$ "):
                yield Step("command", line.removeprefix("$ "))
