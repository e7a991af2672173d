"""One driver at a time: the second is rejected by name, and a dead one holds nothing."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from anabranch.errors import StateError
from anabranch.spark.checkpoint.lock import FILE, DriverLock

HOLDER = """
import sys
from pathlib import Path
from anabranch.spark.checkpoint.lock import DriverLock
DriverLock(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


def test_the_second_is_rejected_with_the_first_until_that_is_killed(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        words = rf"process {holder.pid} on {socket.gethostname()}, since 20\d\d-.*; stop it"
        with pytest.raises(StateError, match=words):
            DriverLock(tmp_path)
    finally:
        holder.kill()
        holder.communicate()
    assert (tmp_path / FILE).exists()  # and locks nothing
    DriverLock(tmp_path).release()


def test_an_empty_file_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text('{"pi')
    first = DriverLock(tmp_path)
    (tmp_path / FILE).write_text('{"pi')
    with pytest.raises(StateError, match="that has not written its name yet"):
        DriverLock(tmp_path)
    first.release()
    first.release()


def test_a_query_of_this_process_that_has_ended_holds_nothing(tmp_path: Path) -> None:
    first = DriverLock(tmp_path)
    with pytest.raises(StateError, match=f"process {os.getpid()} on"):
        DriverLock(tmp_path)
    first.is_active = lambda: False
    second = DriverLock(tmp_path)
    first.release()
    with pytest.raises(StateError, match="another merge works on this checkpoint"):
        DriverLock(tmp_path)
    second.release()
    DriverLock(tmp_path).release()
