"""The public face of `anabranch.testing` and `anabranch.model`; Hypothesis only when used."""

import subprocess
import sys

import pytest

import anabranch.model
import anabranch.testing

WITHOUT_HYPOTHESIS = """
import sys
sys.modules["hypothesis"] = None
import anabranch.testing as t
from anabranch.errors import SetupError
t.assert_valid([])
for use in (lambda: t.histories(), lambda: __import__("anabranch.testing.strategies")):
    try:
        use()
    except SetupError as error:
        print(error)
"""


@pytest.mark.parametrize("package", [anabranch.model, anabranch.testing])
def test_every_public_name_is_there_and_sorted(package):
    # Ruff's order: constants, then classes, then functions.
    key = lambda name: (not name.isupper(), not name[0].isupper(), name)  # noqa: E731
    assert package.__all__ == sorted(package.__all__, key=key)
    assert all(getattr(package, name) is not None for name in package.__all__)


def test_other_names_are_not_there():
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        anabranch.testing.nonsense  # noqa: B018


def test_without_hypothesis_only_the_strategies_are_missing():
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_HYPOTHESIS], capture_output=True, text=True, check=True
    )
    lines = done.stdout.splitlines()
    assert len(lines) == 2
    assert all("pip install hypothesis" in line for line in lines)
