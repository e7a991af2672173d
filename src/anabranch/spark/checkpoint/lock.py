"""One driver at a time on a checkpoint: the second is rejected with the name of the first.

Spark notices a second driver only when both want to write down the same trigger; by then both
have worked on it.  So a driver holds `CHECKPOINT/_driver.lock`, by the operating system: the
lock is gone when the process is, however it ended, and a file that is left behind locks
nothing.  What is in the file names the holder.

A checkpoint that is not a local path has no such lock, but a lease (`lease`).
"""

import errno
import fcntl
import json
import logging
import os
import socket
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from anabranch.errors import StateError

FILE: Final = "_driver.lock"

log = logging.getLogger(__name__)


class DriverLock:
    """The right to drive a checkpoint, until `release` or the end of this process.

    `is_active` is asked if this process wants to drive it again: a query that has ended by
    itself holds nothing.
    """

    def __init__(self, checkpoint: Path) -> None:
        checkpoint.mkdir(parents=True, exist_ok=True)
        self._path = (checkpoint / FILE).resolve()
        self.is_active: Callable[[], bool] = lambda: True
        mine = _HELD.get(self._path)
        if mine is not None and not mine.is_active():
            mine.release()
        self._handle: int | None = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                log.warning("%s cannot be locked (%s): start one merge only", checkpoint, error)
            else:
                self.release()
                raise _refusal(checkpoint, self._path) from None
        _HELD[self._path] = self
        os.ftruncate(self._handle, 0)
        os.pwrite(self._handle, json.dumps(_myself()).encode(), 0)

    def release(self) -> None:
        """Release the lock; the file stays, since its removal would race with others."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None
        if _HELD.get(self._path) is self:
            del _HELD[self._path]


_HELD: Final[dict[Path, DriverLock]] = {}
"""The locks of this process."""


def _myself() -> dict[str, object]:
    since = datetime.now(UTC).isoformat(timespec="seconds")
    return {"pid": os.getpid(), "host": socket.gethostname(), "since": since}


def _refusal(checkpoint: Path, path: Path) -> StateError:
    try:
        first = json.loads(path.read_text())
        who = f"process {first['pid']} on {first['host']}, since {first['since']}"
    except (ValueError, KeyError, TypeError):
        who = "a process that has not written its name yet"
    message = (
        f"{checkpoint}: another merge works on this checkpoint: {who}; stop it first, or name "
        "another checkpoint and output: two drivers would do the same work, and one would fail"
    )
    return StateError(message)
