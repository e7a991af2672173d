"""The control log: files in the order of discovery, and changes of membership.

    CHECKPOINT/control/000000000007.json          lines of entries: what one trigger takes
    CHECKPOINT/consumed/                          the same files, when Spark needs them no more
    CHECKPOINT/control.json                       what all entries before some add up to

The driver writes it, Spark reads it as a source of the query.  So an entry takes effect in all
lanes in the same trigger, and means the same when a trigger is repeated.  When Spark has
committed a trigger it moves the files of its entries (`cleanSource`); `compact` notes what they
add up to and removes them, so that a long run has few files and starts as quickly as a new one.

    data     a file of an inbox to read, under this attachment
    attach   a replica, with its guarantee; of one that is attached, a new guarantee
    detach   a replica leaves; it returns with a greater attachment number
    complete a replica has ended: after its files comes stable(FOREVER)
    pass     a merge of copies with gaps does not wait for a replica until it has caught up
    note     nothing: a trigger that takes it reaches all lanes
    change   other settings from this trigger on: the policy of a merge; of no replica
    level    another level of consistency from this trigger on; of no replica
    clock    let clocks be read, also without rows; or a replica is paused or blocked

Spark takes one file of the log in each trigger, in the order of their times.  So a file has all
that was found in one look (`together`), unless that is more than a trigger may take: then it is
cut into several.

A query has one log, for the replicas of its inboxes and for those of its DataFrames.
"""

import json
import os
import shutil
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from anabranch.sinks.json_file import read_json, write_json
from anabranch.sources.pieces import FilePiece
from anabranch.spark.pack.parcels import (
    ATTACH,
    CHANGE,
    CLOCK,
    COMPLETE,
    DATA,
    DETACH,
    LEVEL,
    NOTE,
    PASS,
)

FOLDER: Final = "control"
CONSUMED: Final = "consumed"
FORMAT: Final = 5

COMPACT_AT: Final = 1000
"""The number of consumed files at which they are compacted while a query runs."""

ENTRIES: Final = (
    "log bigint, entry string, replica string, attachment int, guarantee bigint, inbox int, "
    "file string, modified bigint, length bigint, begin bigint, stop bigint, row bigint, "
    "size bigint, until bigint, settings string, trigger bigint, "
    "arrived bigint"
)
"""What Spark calls the columns of an entry."""


@dataclass(frozen=True)
class Entry:
    """One line of the log; `log` is its position, `guarantee` None: complete.

    `inbox` is the number of the inbox that the replica is in; None: it is a DataFrame's.
    `begin`, `stop`, `row`, `size` and `until` are those of a `FilePiece`.  A change has
    `settings`, and the `trigger` that is to take it.  `arrived` is for clocks, in microseconds:
    when a file was found at the latest, or the time up to which all files were found.
    """

    log: int
    entry: str
    replica: str
    attachment: int
    guarantee: int | None = None
    inbox: int | None = None
    file: str | None = None
    modified: int | None = None
    length: int | None = None
    begin: int | None = None
    stop: int | None = None
    row: int | None = None
    size: int | None = None
    until: int | None = None
    settings: str | None = None
    trigger: int | None = None
    arrived: int | None = None


@dataclass
class Member:
    """A replica as the log knows it.

    `until` is how far its files go that were taken, `last` the last entry with rows of it.
    `ended`: it has got its last stable.
    """

    attachment: int
    guarantee: int | None
    inbox: int | None = None
    detached: bool = False
    until: int | None = None
    last: int = -1
    ended: bool = False


class ControlLog:
    """The entries so far, and who is a member by them; writes new ones.

    `implied`: replicas also attach by themselves, with their elements, as attachment 1.
    `settings` are the changes so far, each with its trigger; `silenced` is what clocks are to
    know of replicas and their sources, such as that they are paused.  `level` is the last level
    of consistency that was set, as its text.
    Without a folder the log is in memory, in `entries`: for a batch, which has one trigger.
    """

    def __init__(self, folder: Path | None, *, implied: bool = False) -> None:
        self._folder = folder
        self._implied = implied
        self._lock = threading.Lock()  # a watch and a trigger may write at once
        self._next = 0
        self.members: dict[str, Member] = {}
        self.files: dict[tuple[int, str], tuple[int, int]] = {}
        self.settings: list[tuple[int, str]] = []
        self.silenced: dict[str, str] = {}
        self.level: str | None = None
        self.entries: list[Entry] = []
        self._collected: list[Entry] | None = None
        self._written_ms = 0
        self._read()

    def attach(
        self,
        replica: str,
        guarantee: int | None,
        *,
        attachment: int | None = None,
        inbox: int | None = None,
    ) -> None:
        """Attach a replica, or change its guarantee; without a number as the next attachment.

        One that is attached keeps its number, one that was detached gets a greater one.
        """
        with self._lock:
            member = self.members.get(replica)
            if attachment is None:
                attachment = member.attachment + member.detached if member else 1
            inbox = member.inbox if member and inbox is None else inbox
            self._write([Entry(self._next, ATTACH, replica, attachment, guarantee, inbox)])

    def detach(self, replica: str) -> bool:
        """Detach a replica in all lanes at the next trigger; False if it is not there."""
        return self._end(DETACH, replica)

    def pass_over(self, replica: str) -> bool:
        """Do not wait for a replica from the next trigger on; False if it is not there."""
        return self._end(PASS, replica)

    def complete(self, replica: str) -> bool:
        """End a replica with stable(FOREVER) after its files; False if it is not there."""
        return self._end(COMPLETE, replica)

    def change(self, settings: str, trigger: int) -> None:
        """Go on with other settings in all lanes, in a trigger that has not begun."""
        with self._lock:
            one = Entry(self._next, CHANGE, "", 0, settings=settings, trigger=trigger)
            self._write([one])

    def set_level(self, level: str) -> None:
        """Wait and remember by another level in all lanes, from the next trigger on."""
        with self._lock:
            self._write([Entry(self._next, LEVEL, "", 0, settings=level)])

    def waiting(self, taken: int) -> int:
        """How many triggers take what is in the log after the entry `taken`."""
        files = [] if self._folder is None else _files(self._folder, _consumed(self._folder))
        return sum(_first(name) > taken for name in files)

    def _end(self, entry: str, replica: str) -> bool:
        """Write an entry about a replica that is attached."""
        with self._lock:
            member = self.members.get(replica)
            if member is None and self._implied:
                member = Member(1, None)
            if member is None or member.detached:
                return False
            guarantee = None if entry == DETACH else member.guarantee
            whose = (replica, member.attachment, guarantee, member.inbox)
            self._write([Entry(self._next, entry, *whose)])
            return True

    def add_piece(
        self,
        replica: str,
        file: str,
        facts: tuple[int, int],
        piece: FilePiece,
        arrived: int | None = None,
    ) -> None:
        """A piece of a file of a replica; `facts`: length, time of change in milliseconds.

        `arrived` is when it was found, if a clock needs that.
        """
        with self._lock:
            member = self.members[replica]
            if member.detached:  # since it was looked at
                return
            whose = (DATA, replica, member.attachment, member.guarantee, member.inbox)
            length, modified = facts
            known = (*whose, file, modified, length)
            self._write([Entry(self._next, *known, **asdict(piece), arrived=arrived)])

    def tick(self, arrived: int | None = None) -> None:
        """Let clocks be read in a trigger, also if no row comes.

        `arrived`: all files that arrived up to this time are in the log, so that clocks may
        show it; else the time of the trigger counts.
        """
        with self._lock:
            self._write([Entry(self._next, CLOCK, "", 0, arrived=arrived)])

    def silence(self, replica: str, settings: str) -> bool:
        """State what clocks are to know of a replica; False if they know it."""
        with self._lock:
            if self.silenced.get(replica, "{}") == settings:
                return False
            self._write([Entry(self._next, CLOCK, replica, 0, settings=settings)])
            return True

    def note(self) -> None:
        """Let the next trigger reach all lanes, also if no row comes."""
        with self._lock:
            self._write([Entry(self._next, NOTE, "", 0)])

    @contextmanager
    def together(self, limit: int) -> Iterator[None]:
        """Write what is found meanwhile in as few files as the limit of a trigger permits."""
        with self._lock:
            self._collected = []
        try:
            yield
        finally:
            with self._lock:
                found, self._collected = self._collected, None
                for group in groups(found, limit):
                    self._write_file(group)

    def compact(self, *, at_least: int = 1) -> None:
        """Note what the entries so far add up to, and remove those that Spark has consumed."""
        if self._folder is None:
            return
        consumed = list(_consumed(self._folder).rglob("[0-9]*.json"))
        if len(consumed) < at_least:
            return
        with self._lock:
            self._read()
            self._write_snapshot(_snapshot(self._folder))
        for file in consumed:
            file.unlink(missing_ok=True)

    def carry_over(self, folder: Path, taken: int) -> None:
        """Begin a log in another folder that goes on after the entry `taken` of this one.

        What its entries add up to is all that is known here; its files are those not taken.
        """
        assert self._folder is not None, "a log in memory cannot be carried over"
        with self._lock:
            self._read()
            folder.mkdir(parents=True)
            for name, file in _files(self._folder, _consumed(self._folder)).items():
                if _first(name) > taken:
                    shutil.copy2(file, folder / name)  # with its time: Spark goes by it
            self._write_snapshot(_snapshot(folder))

    def _write_snapshot(self, file: Path) -> None:
        files = [(*key, *facts) for key, facts in self.files.items()]
        members = {name: asdict(member) for name, member in self.members.items()}
        state = {"format": FORMAT, "next": self._next, "members": members, "files": files}
        state |= {"settings": self.settings, "silenced": self.silenced, "level": self.level}
        write_json(file, state)

    def refresh(self) -> None:
        """Take in what others wrote: a query that ended here may run elsewhere now."""
        with self._lock:
            self._read()

    def _read(self) -> None:
        if self._folder is None:
            return
        if self._next == 0:
            self._restore(_snapshot(self._folder))
        for entry in read_entries(self._folder, _consumed(self._folder), since=self._next):
            self._note(entry)

    def _restore(self, file: Path) -> None:
        state = read_json(file, FORMAT)
        if state is None:
            return
        self._next = state["next"]
        self.members = {name: Member(**one) for name, one in state["members"].items()}
        self.settings = [(trigger, settings) for trigger, settings in state["settings"]]
        self.silenced, self.level = state["silenced"], state["level"]
        self.files = {(inbox, name): (size, at) for inbox, name, size, at in state["files"]}

    def _note(self, entry: Entry) -> None:
        self._next = max(self._next, entry.log + 1)
        if entry.entry == CLOCK and entry.settings is not None:
            self.silenced[entry.replica] = entry.settings
        if entry.entry == LEVEL:
            self.level = entry.settings
        if entry.entry in (NOTE, CLOCK, LEVEL):
            return
        if entry.settings is not None and entry.trigger is not None:
            self.settings.append((entry.trigger, entry.settings))
            return
        is_gone = entry.entry == DETACH
        guarantee = None if is_gone else entry.guarantee
        before = self.members.get(entry.replica)
        until = entry.until if entry.until is not None or before is None else before.until
        brings = entry.entry in (DATA, COMPLETE)
        last = entry.log if brings else before.last if before else -1
        ended = before is not None and before.ended and before.attachment == entry.attachment
        ended = ended or entry.entry == COMPLETE
        self.members[entry.replica] = Member(
            entry.attachment, guarantee, entry.inbox, is_gone, until, last, ended
        )
        if entry.file is not None and entry.inbox is not None:
            facts = (entry.length or 0, entry.modified or 0)
            self.files[entry.inbox, entry.file] = facts

    def _write(self, entries: list[Entry]) -> None:
        for entry in entries:
            self._note(entry)
        if self._folder is None:
            self.entries += entries
        elif self._collected is None:
            self._write_file(entries)
        else:
            self._collected += entries

    def _write_file(self, entries: Sequence[Entry]) -> None:
        """One file of the log, later than all before: Spark takes them in this order."""
        assert self._folder is not None
        file = self._folder / f"{entries[0].log:012d}.json"
        self._folder.mkdir(parents=True, exist_ok=True)
        temporary = file.with_name(f".{file.name}.{os.getpid()}")
        temporary.write_text("".join(json.dumps(asdict(entry)) + "\n" for entry in entries))
        # Spark compares milliseconds; of two that are equal it takes any first.
        self._written_ms = max(int(time.time() * 1000), self._last_ms() + 1)
        os.utime(temporary, ns=(self._written_ms * 1_000_000,) * 2)
        temporary.replace(file)

    def _last_ms(self) -> int:
        if self._written_ms == 0 and self._folder is not None:
            files = _files(self._folder, _consumed(self._folder)).values()
            times = [file.stat().st_mtime_ns for file in files]
            self._written_ms = max(times, default=0) // 1_000_000
        return self._written_ms


def groups(entries: Sequence[Entry], limit: int) -> Iterator[list[Entry]]:
    """Entries in their order, in groups of at most `limit` bytes.

    A piece that is larger is the only one of its group.
    """
    group: list[Entry] = []
    total = 0
    for entry in entries:
        size = entry.size or 0
        if group and total + size > limit:
            yield group
            group, total = [], 0
        group.append(entry)
        total += size
    if group:
        yield group


def read_entries(*folders: Path, since: int = 0) -> Iterator[Entry]:
    """The entries of a log from a position on, in order; a file may be in two folders."""
    for name, file in sorted(_files(*folders).items()):
        if _first(name) >= since:
            for line in file.read_text().splitlines():
                yield Entry(**json.loads(line))


def _first(name: str) -> int:
    """The first entry of a file of the log."""
    return int(name.partition(".")[0])


def _files(*folders: Path) -> dict[str, Path]:
    return {file.name: file for folder in folders for file in folder.rglob("[0-9]*.json")}


def _consumed(folder: Path) -> Path:
    return folder.parent / CONSUMED


def _snapshot(folder: Path) -> Path:
    return folder.with_suffix(".json")
