"""The guide to infer, translate and choose shows what its programs print."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from anabranch.windows import NEEDS

GUIDE = (Path(__file__).parents[2] / "docs" / "guide" / "windows-infer.md").read_text()
SHOWN = re.findall(r"```python\n([^`]*)```\n\n```text\n([^`]*)```", GUIDE)


def test_the_guide_shows_output() -> None:
    assert len(SHOWN) == 5


@pytest.mark.parametrize(("program", "printed"), SHOWN)
def test_blocks_print_what_stands_below_them(program: str, printed: str) -> None:
    command = [sys.executable, "-c", program]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ran.stdout == printed


def test_the_guide_names_every_need_as_it_is() -> None:
    section = GUIDE.partition("## Which engine")[2].partition("\n## ")[0]
    table = re.findall(r"\| `([a-z-]+)` \| (.*?) \|", section)
    assert dict(table) == {name: need.meaning for name, need in NEEDS.items()}
