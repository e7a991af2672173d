"""The guide shows what its programs print."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

GUIDE = (Path(__file__).parents[2] / "docs" / "guide" / "windows.md").read_text()
SHOWN = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", GUIDE, re.DOTALL)


def test_the_guide_shows_output() -> None:
    assert len(SHOWN) == 2


@pytest.mark.parametrize(("program", "printed"), SHOWN)
def test_blocks_print_what_stands_below_them(program: str, printed: str) -> None:
    command = [sys.executable, "-c", program]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ran.stdout == printed


def test_the_guide_names_every_engine() -> None:
    from anabranch.windows import ENGINES

    table = GUIDE.partition("## Engines")[2].partition("```")[0]
    assert set(re.findall(r"`([a-z0-9-]+)`", table)) >= set(ENGINES)
