"""Watches inboxes while a query runs: new files and new replicas.

`look_into` looks at the folders of all inboxes and writes what is new into the control log:
files, the guarantee and attachment of `_replica.json`, and whether there is `_detached` or
`_paused`.
Without a note a replica that was there when the run began is complete; one that appears later
is joining until a note, or `attach` of the query, gives its guarantee.  A `Poller` does so
again and again.

Where a clock infers stables, the log has its times: a file arrived up to the end of the look
that found it, and all that arrived up to the begin of a look is in the log behind it.  That is
a *tick*, in the last trigger that takes files of the look: what waits in the log is no silence.
Without files there is one when a clock is due (`ticks`).
"""

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from anabranch.batch.batch import FOREVER_UNITS
from anabranch.batch.schema import START
from anabranch.clocks.clock import Clock
from anabranch.errors import FileError
from anabranch.sources.commits import data_files
from anabranch.sources.files import DETACHED, PAUSED
from anabranch.sources.notes import read_note
from anabranch.sources.pieces import FilePiece, pieces_of
from anabranch.sources.plain import PlainRows
from anabranch.spark.checkpoint.control_log import ControlLog
from anabranch.spark.run.ticks import pause
from anabranch.spark.session.host import TRIGGER_BYTES

Waiting = tuple[str, tuple[int, int], FilePiece]
"""A file by its name, its length and time of change, and a piece of it."""


class Poller:
    """Calls a function again and again in a thread; a failure ends that, and is kept.

    `on_failure` is called then: it ends the query, so that who waits for it sees the failure.
    """

    def __init__(
        self, look: Callable[[], None], seconds: float, on_failure: Callable[[], None]
    ) -> None:
        self._look = look
        self._seconds = seconds
        self._on_failure = on_failure
        self._ended = threading.Event()
        self.failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="anabranch-poll", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.wait(self._seconds):
            try:
                self._look()
            except Exception as error:  # raised where the query is waited for
                self._on_failure()
                self.failure = error
                return

    def stop(self) -> None:
        """No further call begins; waits for one that runs."""
        self._ended.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()


@dataclass(frozen=True)
class InboxWatch:
    """The folders of an inbox, and the log in which what was found there is written.

    `number` is the inbox's among those of the query, `taken` are the names of replicas that
    are not in an inbox.  `plain` are the times of plain rows; None: files hold elements.
    `clock` infers their stables.
    """

    path: Path
    log: ControlLog
    founders: tuple[str, ...]
    assume_complete: bool = False
    number: int = 0
    taken: frozenset[str] = frozenset()
    limit: int = TRIGGER_BYTES
    plain: PlainRows | None = None
    clock: Clock | None = None

    def advance(self, *, complete: bool = False) -> bool:
        """Write down what is new since the last look; whether there were files.

        Next is a piece of the replica whose taken files go least far in time, so that no
        trigger has one replica alone.  `complete`: nothing more comes, and replicas end.
        """
        folders = sorted(e for e in self.path.iterdir() if e.is_dir() and e.name[0] not in "_.")
        waiting = {folder.name: deque(self._look(folder)) for folder in folders}
        found = any(waiting.values())
        at = None if self.clock is None else _now()
        while any(waiting.values()):
            name = min((name for name, some in waiting.items() if some), key=self._reached)
            self.log.add_piece(name, *waiting[name].popleft(), at)
        for name, member in self.log.members.items() if complete else ():
            if member.inbox == self.number and not (member.detached or member.ended):
                self.log.complete(name)
        return found

    def _reached(self, replica: str) -> float:
        until = self.log.members[replica].until
        return -math.inf if until is None else until

    def require_unchanged(self) -> None:
        """Reject an inbox in which a file that was read has changed."""
        mine = {file for number, file in self.log.files if number == self.number}
        for folder in {(self.path / file).parent for file in mine}:
            if folder.is_dir():
                self._new_files(folder)

    def _look(self, folder: Path) -> list[Waiting]:
        """Who comes and goes; the pieces of its new files."""
        name, note = folder.name, read_note(folder)
        attachment = max(1, note.attachment) if note else 1
        complete = self.assume_complete or name in self.founders
        unknown = None if complete else int(FOREVER_UNITS)
        guarantee = note.guarantee if note else unknown
        member = self.log.members.get(name)
        if name in self.taken or (member is not None and member.inbox != self.number):
            raise _taken(folder)
        if (folder / DETACHED).exists():
            if member is not None:
                self.log.detach(name)
            return []
        if member is None or attachment > member.attachment:
            self.log.attach(name, guarantee, attachment=attachment, inbox=self.number)
        elif member.detached:
            return []  # it returns with a greater number, and not before
        elif note is not None and guarantee != member.guarantee:
            self.log.attach(name, guarantee, attachment=member.attachment)
        pause(self.log, name, None, paused=(folder / PAUSED).exists())
        start = START if self.plain is None else self.plain.start
        return [
            (file, facts, piece)
            for file, facts in self._new_files(folder)
            for piece in pieces_of(self.path / file, self.limit, start)
        ]

    def _new_files(self, folder: Path) -> list[tuple[str, tuple[int, int]]]:
        found = []
        for path in data_files(folder):
            file = str(path.relative_to(self.path))
            try:
                stat = path.stat()
            except FileNotFoundError:  # `anabranch clean` has removed it since it was listed
                continue
            facts = stat.st_size, stat.st_mtime_ns // 1_000_000
            known = self.log.files.get((self.number, file))
            if known is None:
                found.append((file, facts))
            elif known != facts:
                raise _changed(path, known[0])
        return found


def look_into(
    watches: Sequence[InboxWatch], *, complete: bool = False, due: bool = False
) -> None:
    """Write down what is new in the inboxes of a query, and behind it the time of the look.

    `due`: a clock may show something new although no file came.
    """
    if not watches:
        return
    log, begin = watches[0].log, _now()
    with log.together(watches[0].limit):
        found = [one.advance(complete=complete) for one in watches]
        if any(one.clock is not None for one in watches) and (due or any(found)):
            log.tick(begin)


def _now() -> int:
    """The wall clock in microseconds."""
    return time.time_ns() // 1000


def _changed(path: Path, length: int) -> FileError:
    message = (
        f"{path}: was read when it had {length} bytes and has been changed or replaced since; "
        "a file name is used once; put the new rows into a file with a new name and restore or "
        "remove this one"
    )
    return FileError(message)


def _taken(folder: Path) -> FileError:
    message = (
        f"{folder}: the merge has a replica '{folder.name}' already, from another inbox or a "
        "DataFrame; names of replicas are unique: rename the folder, and start again"
    )
    return FileError(message)
