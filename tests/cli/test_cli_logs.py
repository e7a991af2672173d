"""The command line's logging: to stderr, by -v, once."""

import logging
from collections.abc import Iterator

import pytest

from anabranch.cli.logs import configure


@pytest.fixture(autouse=True)
def put_back() -> Iterator[None]:
    logger = logging.getLogger("anabranch")
    before = (list(logger.handlers), logger.level, logger.propagate)
    yield
    logger.handlers, logger.propagate = before[0], before[2]
    logger.setLevel(before[1])


@pytest.mark.parametrize(
    ("verbosity", "seen"),
    [(0, ["w"]), (1, ["i", "w"]), (2, ["d", "i", "w"]), (9, ["d", "i", "w"])],
)
def test_each_v_prints_more_on_stderr(
    capsys: pytest.CaptureFixture[str], verbosity: int, seen: list[str]
) -> None:
    configure(verbosity)
    configure(verbosity)  # twice must not print it twice
    logger = logging.getLogger("anabranch.some.module")
    logger.debug("d")
    logger.info("i")
    logger.warning("w")
    printed = capsys.readouterr()
    assert [line[-1] for line in printed.err.splitlines()] == seen
    assert "anabranch.some.module" in printed.err
    assert printed.out == ""
