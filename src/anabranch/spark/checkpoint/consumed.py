"""Consumed files of an inbox: which of them a run does not need any more, and their removal.

A file may go when Spark needs none of the entries of the control log that name it, or a piece
of it.  Spark moves an entry out of the log's folder when it has committed the trigger that
took it *and* has begun a later one.  So a trigger that is repeated finds its files, also if the
last commit was lost with the power.

A restart looks at the files that are there to learn the columns.  So some stay although they
are consumed: the last one of each replica, and any without which the columns would be others.

The log keeps the name of each file, so one that comes again under an old name is rejected as
before.  A file goes by one rename or removal: if this is interrupted, it may be run again.
"""

import errno
import filecmp
import shutil
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

import pyarrow as pa

from anabranch.errors import UsageError
from anabranch.sources.commits import data_files
from anabranch.sources.files import schema_of
from anabranch.spark.checkpoint.control_log import FOLDER, ControlLog, read_entries
from anabranch.spark.checkpoint.run_record import Run, home, read

SchemaOf: TypeAlias = Callable[[Sequence[Path]], pa.Schema]
"""The columns that some files have together."""

_TRIES: Final = 10
"""Spark and a merge that runs move files of the log while it is read."""


def removable(inbox: Path, checkpoint: Path, run: Run) -> list[Path]:
    """The files of an inbox that its run needs no more, replica by replica, oldest first."""
    place = inbox.resolve()
    if str(place) not in run.inboxes:
        message = (
            f"{inbox}: the run of {checkpoint} does not read this inbox, but "
            f"{', '.join(run.inboxes) or 'none'}; name the inbox and the checkpoint of one run"
        )
        raise UsageError(message)
    number = run.inboxes.index(str(place))
    known = consumed(home(checkpoint, run), number)
    now = read(checkpoint)
    if now is None or now.generation != run.generation:
        known = {}  # upgraded meanwhile: what was read may be removed in part
    folders = sorted(e for e in place.iterdir() if e.is_dir() and e.name[0] not in "_.")
    by_replica = [data_files(folder) for folder in folders]
    free = {
        file
        for files in by_replica
        for file in files
        if known.get(str(file.relative_to(place))) == _facts(file)
    }
    return _without_needed(by_replica, free, partial(schema_of, plain=run.plain(number)))


def consumed(generation: Path, number: int) -> dict[str, tuple[int, int]]:
    """The files of one inbox that Spark needs no more, with length and time of change.

    `generation` is the folder with the control log of the run.
    """
    for _ in range(_TRIES):
        try:
            # In this order: a file that is added meanwhile is not in the first.
            files = dict(ControlLog(generation / FOLDER).files)
            waiting = {(one.inbox, one.file) for one in read_entries(generation / FOLDER)}
        except FileNotFoundError:  # moved between two looks
            continue
        return {
            name: facts
            for (inbox, name), facts in files.items()
            if inbox == number and (inbox, name) not in waiting
        }
    return {}


def _facts(file: Path) -> tuple[int, int]:
    stat = file.stat()
    return stat.st_size, stat.st_mtime_ns // 1_000_000


def _without_needed(
    by_replica: Sequence[Sequence[Path]], free: set[Path], schema: SchemaOf
) -> list[Path]:
    """Of the files that are free those that may go, and leave the columns as they are."""
    every = [file for files in by_replica for file in files]
    if not free:
        return []
    wanted = schema(every)
    stays = {file for file in every if file not in free}
    stays |= {files[-1] for files in by_replica if files}
    if schema(_only(every, stays)) != wanted:
        stays |= _notes_of(every, schema)
    if schema(_only(every, stays)) != wanted:
        return []  # whatever the reason is, a restart would see other columns
    return [file for file in every if file not in stays]


def _only(every: Sequence[Path], some: set[Path]) -> list[Path]:
    """The files that a restart would find if only these were there, in order."""
    return [file for file in every if file in some]


def _notes_of(every: Sequence[Path], schema: SchemaOf) -> set[Path]:
    """Few files that show all columns and types: the first, and who adds to those before."""
    found = [every[0]]
    for file in reversed(every):
        if set(schema([*found, file])) != set(schema(found)):
            found.append(file)
    return set(found)


def remove_consumed(files: Sequence[Path], inbox: Path, archive: Path | None) -> None:
    """Remove these files, or move each to the folder of its replica in the archive."""
    for file in files:
        if archive is None:
            file.unlink(missing_ok=True)
        elif file.exists():
            _move(file, archive / file.relative_to(inbox.resolve()))


def _move(file: Path, target: Path) -> None:
    """Move a file; another one of this name is not replaced."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.exists() and not filecmp.cmp(file, target, shallow=False):
        message = (
            f"{target}: is another file than {file}; nothing is overwritten: name another "
            "archive"
        )
        raise UsageError(message)
    try:
        file.replace(target)
        return
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
    # To another file system it is a copy: complete before it has its name.
    temporary = target.with_name(f".{target.name}.part")
    shutil.copy2(file, temporary)
    temporary.replace(target)
    file.unlink()
