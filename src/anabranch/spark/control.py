"""The control log: in which order files were found, and replicas came and went.

    CHECKPOINT/control/000000000007-east.json     lines of entries, of one replica

The driver writes it, Spark reads it as a source of the query.  So what an entry says takes
effect in all lanes in the same trigger, and means the same when a trigger is run again.

    data     a file to read, under this attachment
    attach   a replica, with its guarantee; of one that is attached, a new guarantee
    detach   a replica leaves; it returns with a greater attachment number

`Inbox.advance` looks at the folders and writes what is new: files, what `_replica.json` says
and whether there is `_detached`.  Without a note a replica that was there when the run began is
complete; one that appears later is joining until a note tells its guarantee.
"""

import json
import os
import threading
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote

from anabranch.batch.batch import FOREVER_UNITS
from anabranch.errors import FileError
from anabranch.sources.commits import data_files
from anabranch.sources.files import DETACHED
from anabranch.sources.notes import read_note
from anabranch.spark.parcels import ATTACH, DATA, DETACH

FOLDER: Final = "control"

ENTRIES: Final = (
    "log bigint, entry string, replica string, attachment int, guarantee bigint, file string, "
    "modified bigint, length bigint"
)
"""What Spark calls the columns of an entry."""


@dataclass(frozen=True)
class Entry:
    """One line of the log; `log` is its position, `guarantee` None: complete."""

    log: int
    entry: str
    replica: str
    attachment: int
    guarantee: int | None = None
    file: str | None = None
    modified: int | None = None
    length: int | None = None


@dataclass
class _Member:
    attachment: int
    guarantee: int | None
    detached: bool = False


class ControlLog:
    """The entries so far, and who is a member by them; writes new ones.

    `implied`: replicas also come by themselves, with their elements, as attachment 1.
    """

    def __init__(self, folder: Path, *, implied: bool = False) -> None:
        self._folder = folder
        self._implied = implied
        self._lock = threading.Lock()  # a poller and a trigger may write at once
        self._next = 0
        self.members: dict[str, _Member] = {}
        self.files: dict[str, tuple[int, int]] = {}
        for entry in read_entries(folder):
            self._note(entry)

    def attach(self, replica: str, attachment: int, guarantee: int | None) -> None:
        """A replica comes, or tells another guarantee."""
        with self._lock:
            self._write(replica, [Entry(self._next, ATTACH, replica, attachment, guarantee)])

    def detach(self, replica: str) -> bool:
        """A replica leaves in all lanes at the next trigger; False if it is not there."""
        with self._lock:
            member = self.members.get(replica)
            if member is None and self._implied:
                member = _Member(1, None)
            if member is None or member.detached:
                return False
            self._write(replica, [Entry(self._next, DETACH, replica, member.attachment)])
            return True

    def add_files(self, replica: str, files: Iterable[tuple[str, int, int]]) -> None:
        """Files of a replica: name, length, time of change in milliseconds."""
        with self._lock:
            member = self.members[replica]
            if member.detached:  # since it was looked at
                return
            whose = (DATA, replica, member.attachment, member.guarantee)
            found = [
                Entry(self._next + at, *whose, file, modified, length)
                for at, (file, length, modified) in enumerate(files)
            ]
            self._write(replica, found)

    def _note(self, entry: Entry) -> None:
        self._next = max(self._next, entry.log + 1)
        if entry.entry == DETACH:
            self.members[entry.replica] = _Member(entry.attachment, None, detached=True)
        else:
            self.members[entry.replica] = _Member(entry.attachment, entry.guarantee)
        if entry.file is not None:
            self.files[entry.file] = (entry.length or 0, entry.modified or 0)

    def _write(self, replica: str, entries: list[Entry]) -> None:
        if not entries:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        name = f"{entries[0].log:012d}-{quote(replica, safe='')}.json"
        beside = self._folder / f".{name}.{os.getpid()}"
        beside.write_text("".join(json.dumps(asdict(entry)) + "\n" for entry in entries))
        beside.replace(self._folder / name)
        for entry in entries:
            self._note(entry)


def read_entries(folder: Path) -> Iterator[Entry]:
    """All entries of a log, in order."""
    for file in sorted(folder.glob("[0-9]*.json")):
        for line in file.read_text().splitlines():
            yield Entry(**json.loads(line))


@dataclass(frozen=True)
class Inbox:
    """The folders of an inbox, and the log that tells what was found there."""

    path: Path
    log: ControlLog
    founders: tuple[str, ...]
    assume_complete: bool = False

    def advance(self) -> None:
        """Write down what is new since the last look."""
        folders = sorted(e for e in self.path.iterdir() if e.is_dir() and e.name[0] not in "_.")
        for folder in folders:
            self._look(folder)

    def require_unchanged(self) -> None:
        """Refuse an inbox in which a file that was read has changed."""
        for folder in {(self.path / file).parent for file in self.log.files}:
            if folder.is_dir():
                self._new_files(folder)

    def _look(self, folder: Path) -> None:
        name, note = folder.name, read_note(folder)
        attachment = max(1, note.attachment) if note else 1
        complete = self.assume_complete or name in self.founders
        unknown = None if complete else int(FOREVER_UNITS)
        guarantee = note.guarantee if note else unknown
        member = self.log.members.get(name)
        if (folder / DETACHED).exists():
            self.log.detach(name)
            return
        if member is None or attachment > member.attachment:
            self.log.attach(name, attachment, guarantee)
        elif member.detached:
            return  # it returns with a greater number, and not before
        elif note is not None and guarantee != member.guarantee:
            self.log.attach(name, member.attachment, guarantee)
        self.log.add_files(name, self._new_files(folder))

    def _new_files(self, folder: Path) -> list[tuple[str, int, int]]:
        found = []
        for path in data_files(folder):
            file, stat = str(path.relative_to(self.path)), path.stat()
            facts = stat.st_size, stat.st_mtime_ns // 1_000_000
            known = self.log.files.get(file)
            if known is None:
                found.append((file, *facts))
            elif known != facts:
                raise _changed(path, known[0])
        return found


def _changed(path: Path, length: int) -> FileError:
    message = (
        f"{path}: was read when it had {length} bytes and has been changed or replaced since; "
        "a file name is used once; put the new rows into a file with a new name and restore or "
        "remove this one"
    )
    return FileError(message)
