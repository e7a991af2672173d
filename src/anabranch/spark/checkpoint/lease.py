"""One driver at a time on a checkpoint that only Spark reaches: a lease with a heartbeat.

An object store has no locks, and Spark's writers cannot write a file only if it is not there.
So a driver writes that it works, with the time, and again every `BEAT` seconds; a lease that
was not renewed for `EXPIRES` seconds holds nothing.  Who finds that another driver began before
stops, with an error that names the other.

What it stops: a second start while a driver works, and a driver that slept longer than its
lease.  What it does not stop: two drivers that start within the same moment may both work until
the next heartbeat of one of them, and clocks that differ by more than `EXPIRES` make it
useless.  What then remains is Spark's own log of offsets: who writes down a trigger second
fails, if the file system of the checkpoint lets only one writer create a file.

Two folders take turns: one that is being overwritten is for a moment not there.  A driver holds
the checkpoint while one of its two last heartbeats does; so it is released in both, and another
that takes over leaves no old heartbeat behind that looks alive.
"""

import json
import logging
import os
import socket
import time
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Final, Protocol

from anabranch.errors import StateError

log = logging.getLogger(__name__)

BEAT: Final = 10.0
EXPIRES: Final = 60.0
"""Seconds; longer than any pause of a healthy driver, and short enough to wait for."""

FOLDERS: Final = ("anabranch-lease-0", "anabranch-lease-1")


class Texts(Protocol):
    """Where leases are kept (`remote.RemoteFolder`)."""

    @property
    def uri(self) -> str:
        """The folder."""

    def lines(self, name: str) -> list[str] | None:
        """The lines of a text, if it is there."""

    def write(self, name: str, text: str, *, replace: bool = False) -> None:
        """Write a text."""


@dataclass(frozen=True)
class Lease:
    """One heartbeat of one driver; times are seconds since 1970."""

    holder: str
    pid: int
    host: str
    since: float
    at: float
    beat: int = 0
    released: bool = False

    def holds(self, now: float) -> bool:
        """Whether the driver may still work."""
        return not self.released and now - self.at < EXPIRES and not self._is_dead()

    def _is_dead(self) -> bool:
        """Whether it was a process of this machine that has ended; of others it is unknown."""
        if self.host != socket.gethostname():
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            return False
        return False

    @property
    def rank(self) -> tuple[float, str]:
        """Of two drivers the one with the smaller rank goes on."""
        return self.since, self.holder


class DriverLease:
    """The right to drive a checkpoint, until `release`; `renew` is called every BEAT seconds.

    `is_active` is asked if this process wants to drive it again, as of a `DriverLock`.
    """

    def __init__(self, folder: Texts, clock: Callable[[], float] = time.time) -> None:
        self._folder = folder
        self._clock = clock
        self.is_active: Callable[[], bool] = lambda: True
        mine = _HELD.get(folder.uri)
        if mine is not None and not mine.is_active():
            mine.release()
        now = clock()
        self._lease = Lease(uuid.uuid4().hex, os.getpid(), socket.gethostname(), now, now)
        first = next(iter(self._others()), None)
        if first is not None:
            raise _refusal(folder.uri, first, now)
        self._write()
        self._require_first()
        _HELD[folder.uri] = self

    def renew(self) -> None:
        """Write that this driver still works; raises if another one drives, or it slept."""
        now = self._clock()
        if now - self._lease.at >= EXPIRES:
            slept = now - self._lease.at
            message = (
                f"{self._folder.uri}: this driver did not renew its lease for {slept:.0f} "
                f"seconds (it expires after {EXPIRES:.0f}), so another may work here; start "
                "again"
            )
            raise StateError(message)
        self._require_first()
        self._lease = replace(self._lease, at=now, beat=self._lease.beat + 1)
        self._write()

    def release(self) -> None:
        """Let others drive."""
        if not self._lease.released:
            older = replace(self._lease, beat=self._lease.beat + 1, released=True)
            newer = replace(older, beat=older.beat + 1)
            try:
                for self._lease in (older, newer):
                    self._write()
            except Exception as error:  # Spark may be gone: then the lease expires
                log.info("the lease of %s was not released: %s", self._folder.uri, error)
        if _HELD.get(self._folder.uri) is self:
            del _HELD[self._folder.uri]

    def _write(self) -> None:
        name = FOLDERS[self._lease.beat % len(FOLDERS)]
        self._folder.write(name, json.dumps(asdict(self._lease)), replace=True)

    def _require_first(self) -> None:
        """Give way to a driver that began before."""
        for other in self._others():
            if other.rank < self._lease.rank:
                self.release()
                raise _refusal(self._folder.uri, other, self._clock())

    def _others(self) -> list[Lease]:
        """The heartbeats of other drivers that may work."""
        lines = [line for name in FOLDERS for line in self._folder.lines(name) or []]
        found = [Lease(**json.loads(line)) for line in lines]
        now, mine = self._clock(), self._lease.holder
        return [one for one in found if one.holder != mine and one.holds(now)]


_HELD: Final[dict[str, DriverLease]] = {}
"""The leases of this process."""


def _refusal(uri: str, first: Lease, now: float) -> StateError:
    since = datetime.fromtimestamp(first.since, UTC).isoformat(timespec="seconds")
    left = max(0.0, first.at + EXPIRES - now)
    return StateError(
        f"{uri}: another merge works on this checkpoint: process {first.pid} on {first.host}, "
        f"since {since}; stop it first, or, if it is gone, wait {left:.0f} seconds until its "
        "lease expires; or name another checkpoint and other sinks"
    )
