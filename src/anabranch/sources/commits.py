"""Selects the files of a folder that are data.

Of an output folder: what is published, and what waits beside it (`anabranch.sinks.published`).
A folder that Spark's own file sink wrote has a log (`_spark_metadata`), which only Spark reads:
it is refused, since files that the log does not list must not count.
"""

from pathlib import Path
from typing import Final

from anabranch.errors import FileError
from anabranch.sinks.published import committed_files, pieces_in, tail_of

SPARK_LOG: Final = "_spark_metadata"


def has_commits(folder: Path) -> bool:
    """Whether a folder is one that a merge publishes into."""
    return tail_of(folder).is_dir() or bool(pieces_in(folder))


def committed(folder: Path) -> tuple[Path, ...]:
    """The files of such a folder with committed rows, in the order of their triggers."""
    return tuple(committed_files(folder))


def data_files(folder: Path) -> list[Path]:
    """The files of a folder in name order; names that start with `_` or `.` are not data."""
    if (folder / SPARK_LOG).is_dir():
        message = (
            f"{folder}: was written by Spark's file sink, whose log {SPARK_LOG} lists the "
            "files that count; read it with Spark and write the rows to a new folder"
        )
        raise FileError(message)
    return sorted(
        entry for entry in folder.iterdir() if entry.is_file() and entry.name[0] not in "_."
    )
