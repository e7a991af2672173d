"""A folder as a sink: published Parquet files, each row once, in files that never change.

A lane writes its rows to a file of its own in `staged`, under a name that was never used
before, and reports only that name.  `write` gathers the reported files of a trigger in the
tail, `commit` renames them into place in one step.  A repeated trigger replaces itself as a
whole: nothing of it is published before Spark has committed it.

`committed` publishes.  The tail is rolled when its oldest trigger is `roll` seconds old, or
when it has many bytes: its small files become one, a large one is published as it is, each by
one rename.  So a folder gets one file per `roll`, however short the triggers are.  What was
rolled stays in the tail until the next roll, for readers that have listed it.

The layout of the folder and its tail is in `anabranch.sinks.published`.
"""

import fcntl
import json
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from anabranch.errors import FileError
from anabranch.sinks.json_file import write_json
from anabranch.sinks.published import (
    STAGED,
    Ledger,
    Piece,
    pieces_in,
    published_through,
    tail_of,
    waiting_in,
    written_in,
)

LARGE_FILE: Final = 16 << 20
"""Bytes from which on a file of a lane is published as it is, not copied into another."""

LARGE_TAIL: Final = 128 << 20
"""Bytes at which a tail is rolled before its time."""

_PLAN: Final = "roll.json"
_LOCK: Final = ".lock"

_WORDS: Final = ("kind", "_change_type", "bucket", "reason", "replica", "file")


@dataclass(frozen=True)
class FolderSink:
    """A folder on a disk that driver and workers share.

    `run` names the published files.  `ledger` is the file in which the run notes what it has
    written here.  `roll` are the seconds between two published files; 0: each trigger is
    published as soon as Spark has committed it.
    """

    folder: str
    run: str = "run"
    ledger: str | None = None
    roll: float = 0.0

    @property
    def place(self) -> Path:
        """The folder as a path."""
        return Path(self.folder)

    def open(self, run: str) -> None:  # noqa: ARG002
        """Finish a roll that was interrupted; remove what tasks left behind."""
        shutil.rmtree(tail_of(self.place) / STAGED, ignore_errors=True)
        self._finish_roll()

    def write(self, trigger: int, rows: Any, files: Mapping[str, int]) -> None:  # noqa: ARG002
        """Gather the files that the lanes staged for a trigger."""
        gathered, staged = self._gathered(trigger), tail_of(self.place) / STAGED
        shutil.rmtree(gathered, ignore_errors=True)
        gathered.mkdir(parents=True)
        for name, lane in files.items():
            try:
                os.rename(staged / name, gathered / f"lane-{lane:05d}-{name}")
            except FileNotFoundError as error:
                message = (
                    f"{self.folder}: lane {lane} has written {name} there, but the driver does "
                    "not see it: the folder is not on a disk that all machines share; name one "
                    "that is, or a URI that Spark writes to"
                )
                raise FileError(message) from error

    def commit(self, trigger: int) -> None:
        """Replace what the tail has of this trigger by what was gathered.

        A trigger that is published is not written again: Spark has lost its own entry of it.
        """
        with self._alone() as is_there:
            if not is_there:
                return
            gathered, target = self._gathered(trigger), self._written(trigger)
            for stale in (target, self._committed(trigger)):
                shutil.rmtree(stale, ignore_errors=True)
            known = self._ledger() or Ledger(since=trigger, through=trigger - 1)
            has_rows = gathered.exists() and trigger > self._through()
            self._note(known.with_trigger(trigger, has_rows=has_rows))
            if has_rows:
                os.rename(gathered, target)

    def committed(self, trigger: int) -> None:
        """Spark repeats no trigger up to this one: publish them when it is time."""
        with self._alone() as is_there:
            if not is_there:
                return
            for number, folder in written_in(self.place).items():
                if number <= trigger:
                    os.rename(folder, self._committed(number))
            waiting = self._waiting()
            if waiting and (self._is_due(waiting) or _size(waiting) >= LARGE_TAIL):
                self._roll(waiting)

    def publish(self) -> None:
        """Publish all that Spark has committed, as far as this sink was notified of it."""
        with self._alone() as is_there:
            waiting = self._waiting() if is_there else {}
            if waiting:
                self._roll(waiting)
            if is_there:
                self._remove_rolled()

    def older_than(self, time: float) -> list[Piece]:
        """The published files that were written before a time, from the oldest on."""
        old: list[Piece] = []
        for piece in pieces_in(self.place):
            if (self.place / piece.name).stat().st_mtime >= time:
                break
            old.append(piece)
        return old

    def retire(self, pieces: Sequence[Piece], archive: Path | None = None) -> None:
        """Remove the oldest published files, or move them to an archive.

        The ledger comes first: from then on they are not missed.
        """
        with self._alone() as is_there:
            known = self._ledger() if is_there else None
            if known is not None and pieces:
                self._note(replace(known, since=max(piece.last for piece in pieces) + 1))
            for piece in pieces:
                file = self.place / piece.name
                if archive is None:
                    file.unlink(missing_ok=True)
                elif file.exists():
                    archive.mkdir(parents=True, exist_ok=True)
                    shutil.move(file, archive / piece.name)

    @contextmanager
    def _alone(self) -> Iterator[bool]:
        """Whether there is a tail, locked: a client and a server of Connect share one."""
        tail = tail_of(self.place)
        if not tail.is_dir():
            yield False
            return
        with (tail / _LOCK).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            os.utime(tail / _LOCK)
            yield True

    def _is_due(self, waiting: Mapping[int, Path]) -> bool:
        """Whether the oldest trigger waits long enough, by the clock of the disk."""
        written = min(folder.stat().st_mtime for folder in waiting.values())
        return (tail_of(self.place) / _LOCK).stat().st_mtime - written >= self.roll

    def _waiting(self) -> dict[int, Path]:
        """The triggers of the tail that are not published."""
        through = self._through()
        return {at: one for at, one in waiting_in(self.place).items() if at > through}

    def _through(self) -> int:
        """The last trigger that is published, from the file names if there is no ledger."""
        known = self._ledger()
        return published_through(pieces_in(self.place)) if known is None else known.through

    def _roll(self, waiting: Mapping[int, Path]) -> None:
        """Publish these triggers; a plan on disk lets an interrupted roll be finished."""
        self._remove_rolled()
        files = [file for folder in waiting.values() for file in sorted(folder.iterdir())]
        sizes = {file: file.stat().st_size for file in files}
        large = [file for file in files if sizes[file] >= LARGE_FILE]
        small = [file for file in files if sizes[file] < LARGE_FILE]
        tail = tail_of(self.place)
        small = [_joined(some, tail) for some in _by_columns(small)]
        sources, first, last = [*small, *large], self._through() + 1, max(waiting)
        moves = {
            str(file.relative_to(tail)): Piece(first, last, at, len(sources), self.run).name
            for at, file in enumerate(sources, start=1)
        }
        write_json(tail / _PLAN, {"through": last, "moves": moves})
        self._finish_roll()

    def _finish_roll(self) -> None:
        """Publish the files of the plan that are not published; may be repeated."""
        tail = tail_of(self.place)
        if not (tail / _PLAN).exists():
            return
        plan = json.loads((tail / _PLAN).read_text())
        self.place.mkdir(parents=True, exist_ok=True)
        for source, name in plan["moves"].items():
            if not (self.place / name).exists():
                _publish(tail / source, self.place / name)
        known = self._ledger()
        if known is not None:
            self._note(known.with_published(plan["through"]))
        (tail / _PLAN).unlink()

    def _remove_rolled(self) -> None:
        """Remove from the tail what is published, and what a roll without a plan left."""
        through, tail = self._through(), tail_of(self.place)
        for trigger, folder in waiting_in(self.place).items():
            if trigger <= through:
                shutil.rmtree(folder)
        for file in tail.glob("joined-*.parquet"):
            file.unlink()

    def _ledger(self) -> Ledger | None:
        return None if self.ledger is None else Ledger.read(Path(self.ledger))

    def _note(self, ledger: Ledger) -> None:
        if self.ledger is not None:
            ledger.write(Path(self.ledger))

    def _gathered(self, trigger: int) -> Path:
        return tail_of(self.place) / STAGED / f"trigger-{trigger:012d}"

    def _written(self, trigger: int) -> Path:
        return tail_of(self.place) / f"trigger-{trigger:012d}"

    def _committed(self, trigger: int) -> Path:
        return tail_of(self.place) / f"committed-{trigger:012d}"


def stage(folder: str, tables: Sequence[pa.Table]) -> str:
    """Write the tables of one lane into a folder's staging place; the name to report."""
    staged = tail_of(Path(folder)) / STAGED
    staged.mkdir(parents=True, exist_ok=True)
    name = f"{uuid.uuid4().hex}.parquet"
    _write(pa.concat_tables(tables), staged / name)
    return name


def _write(table: pa.Table, file: Path) -> None:
    # Words repeat; looking for repeated times and texts would cost more than it saves.
    words = [field.name for field in table.schema if field.name in _WORDS]
    pq.write_table(table, file, use_dictionary=words)


def _by_columns(files: Sequence[Path]) -> list[list[Path]]:
    """Files in their order, by columns: those of a run may change."""
    found: dict[pa.Schema, list[Path]] = {}
    for file in files:
        schema = pq.read_schema(file).remove_metadata()
        found.setdefault(schema, []).append(file)
    return list(found.values())


def _joined(files: Sequence[Path], tail: Path) -> Path:
    """One file with the rows of these."""
    if len(files) == 1:
        return files[0]
    target = tail / f"joined-{uuid.uuid4().hex}.parquet"
    _join(files, target)
    return target


def _join(files: Sequence[Path], target: Path) -> None:
    """One file with the rows of several small ones, in their order."""
    _write(pa.concat_tables([pq.read_table(file) for file in files]), target)


def _publish(source: Path, target: Path) -> None:
    """Let a file appear under its last name; the tail keeps it, where the disk has links."""
    try:
        os.link(source, target)
    except OSError:
        os.rename(source, target)


def _size(waiting: Mapping[int, Path]) -> int:
    return sum(file.stat().st_size for folder in waiting.values() for file in folder.iterdir())
