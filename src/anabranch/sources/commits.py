"""Which files of an output folder count: only those of committed triggers.

A folder `trigger-000000000012` counts when the driver has put `_SUCCESS` into it.  A folder
that Spark's own file sink wrote has a log instead (`_spark_metadata`), which only Spark reads:
it is refused, since files that the log does not list must not count.
"""

import re
from pathlib import Path
from typing import Final

from anabranch.errors import FileError

SPARK_LOG: Final = "_spark_metadata"
SUCCESS: Final = "_SUCCESS"

_TRIGGER: Final = re.compile(r"trigger-\d+")


def has_commits(folder: Path) -> bool:
    """Whether a folder is one that a merge commits into, trigger by trigger."""
    return any(_TRIGGER.fullmatch(entry.name) for entry in folder.iterdir() if entry.is_dir())


def committed(folder: Path) -> tuple[Path, ...]:
    """The data files of such a folder that count, in the order of their triggers."""
    triggers = sorted(
        entry
        for entry in folder.iterdir()
        if entry.is_dir() and _TRIGGER.fullmatch(entry.name) and (entry / SUCCESS).is_file()
    )
    return tuple(file for trigger in triggers for file in data_files(trigger))


def data_files(folder: Path) -> list[Path]:
    """The files of a folder in name order; names that start with `_` or `.` are not data."""
    if (folder / SPARK_LOG).is_dir():
        message = (
            f"{folder}: was written by Spark's file sink, and only the log in {SPARK_LOG} says "
            "which of its files count; read it with Spark and write the rows to a new folder"
        )
        raise FileError(message)
    return sorted(
        entry for entry in folder.iterdir() if entry.is_file() and entry.name[0] not in "_."
    )
