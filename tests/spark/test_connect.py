"""The same tests on Spark Connect: a few of each kind, in a process of their own.

Both kinds of session cannot live in one process.  All tests are run so by
`make test-deep PART=tests/spark/test_connect_deep.py`.
"""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from anabranch.errors import SetupError
from anabranch.spark.session import connect
from anabranch.spark.session import start as sessions

ROOT = Path(__file__).parents[2]

CHOSEN = (
    "spark/test_query_views_spark.py::test_rows_of_a_stream_live_until_the_next_of_their_key",
    "spark/connect_only.py",
)
"""A query, and merges with what is special there (progress too)."""


def run_on_connect(*tests: str, timeout: int, marks: str = "not deep") -> str:
    """What pytest printed for these tests, by their places in `tests`, on Connect."""
    places = [f"tests/{test}" for test in tests]
    options = ["-q", "-p", "no:cacheprovider", "-m", marks, "--durations=5"]
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *places],
        cwd=ROOT,
        env={**os.environ, "ANABRANCH_SPARK": "connect"},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-6000:] + ran.stderr[-2000:]
    return ran.stdout


@pytest.mark.spark
@pytest.mark.process
@pytest.mark.timeout(400)
def test_merges_and_a_query_on_connect() -> None:
    printed = run_on_connect(*CHOSEN, timeout=380)
    assert "skipped" not in printed
    assert " passed" in printed


def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect, "find_spec", lambda name: None if name == "grpc" else name)
    with pytest.raises(
        SetupError, match=r"needs the package grpc.*pip install 'pyspark\[connect\]'"
    ):
        connect.require_packages()


def test_a_second_local_server_is_refused_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """PySpark starts and looks for a local server on one port only."""
    monkeypatch.setattr(sessions, "_running", lambda: None)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        monkeypatch.setattr(connect, "PORT", taken.getsockname()[1])
        with pytest.raises(
            SetupError, match=r"port \d+, .* is not free .*start-connect-server"
        ):
            sessions.session(remote="local[2]")
        connect.require_port({"spark.local.connect.reuse": "true"})
    connect.require_port({})
    with pytest.raises(
        SetupError, match=r"binding.port='0' was requested, .* leave it out, or"
    ):
        connect.require_port({connect.BINDING: "0"})


def test_addresses_of_servers_are_distinguished_from_masters() -> None:
    assert connect.is_remote("sc://host:15002")
    assert not connect.is_remote("spark://host:7077")
    assert not connect.is_remote("local[2]")


class Stream:
    """A query whose first starts fail, `failures` of them."""

    def __init__(self, failures: int, text: str) -> None:
        self.left, self.text, self.tried = failures, text, 0

    def start(self) -> str:
        self.tried += 1
        if self.tried <= self.left:
            raise RuntimeError(self.text)
        return "a query"


SLOW = "Python worker failed to connect back.\n\nJVM stacktrace: ..."


@pytest.mark.parametrize(
    ("failures", "text", "tried"), [(0, SLOW, 1), (2, SLOW, 3), (3, SLOW, 3), (1, "other", 1)]
)
def test_a_server_that_is_busy_is_asked_again(failures: int, text: str, tried: int) -> None:
    stream = Stream(failures, text)
    if tried > failures:
        assert connect.start(stream) == "a query"  # type: ignore[arg-type, comparison-overlap]
    else:
        with pytest.raises(RuntimeError, match=text[:5]):
            connect.start(stream)  # type: ignore[arg-type]
    assert stream.tried == tried
