"""A folder as a sink: Parquet files, one sub-folder per trigger, each trigger exactly once.

    FOLDER/trigger-000000000007/part-*.parquet, _SUCCESS
    FOLDER/.staged/                                 files that no trigger has committed yet

The lane that made the rows writes them to a file of its own in `.staged`, under a name that
was never used before, and reports only that name.  `write` gathers the reported files of a
trigger, `commit` renames them into place in one step, with `_SUCCESS`.  A repeated trigger
replaces its folder as a whole.  What a failed or duplicated task left behind was reported by
nobody: it is never read, and removed at the next start.
"""

import os
import shutil
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from anabranch.errors import FileError

SUCCESS: Final = "_SUCCESS"
STAGED: Final = ".staged"

_WORDS: Final = ("kind", "_change_type", "bucket", "reason", "replica", "file")


def trigger_name(trigger: int) -> str:
    """The name of a trigger's folder; names sort like numbers."""
    return f"trigger-{trigger:012d}"


def is_complete(folder: Path) -> bool:
    """Whether a trigger's folder was committed."""
    return (folder / SUCCESS).exists()


@dataclass(frozen=True)
class FolderSink:
    """A folder on a disk that driver and workers share."""

    folder: str

    def open(self, run: str) -> None:  # noqa: ARG002
        """Remove what tasks of an earlier start left behind."""
        shutil.rmtree(Path(self.folder, STAGED), ignore_errors=True)

    def write(self, trigger: int, rows: Any, files: Mapping[str, int]) -> None:  # noqa: ARG002
        """Gather the files that the lanes staged for a trigger."""
        beside = self._beside(trigger)
        shutil.rmtree(beside, ignore_errors=True)
        beside.mkdir(parents=True)
        for name, lane in files.items():
            try:
                os.rename(Path(self.folder, STAGED, name), beside / f"part-{lane:05d}{name}")
            except FileNotFoundError as error:
                message = (
                    f"{self.folder}: lane {lane} has written {name} there, but the driver does "
                    "not see it: the folder is not on a disk that all machines share; name one "
                    "that is, or a URI that Spark writes to"
                )
                raise FileError(message) from error

    def commit(self, trigger: int) -> None:
        """Rename the gathered files into the trigger's folder, which is replaced."""
        beside = self._beside(trigger)
        if beside.exists():
            _finish(beside, Path(self.folder, trigger_name(trigger)))

    def committed(self, trigger: int) -> None:
        """Nothing is kept for a repetition."""

    def _beside(self, trigger: int) -> Path:
        return Path(self.folder, STAGED, f".{trigger_name(trigger)}")


def stage(folder: str, tables: Sequence[pa.Table]) -> str:
    """Write the tables of one lane into a folder's staging place; the name to report."""
    staged = Path(folder) / STAGED
    staged.mkdir(parents=True, exist_ok=True)
    name = f".{uuid.uuid4().hex}.parquet"  # hidden, also from one who reads FOLDER/*
    table = pa.concat_tables(tables)
    # Words repeat; looking for repeated times and texts would cost more than it saves.
    words = [field.name for field in table.schema if field.name in _WORDS]
    pq.write_table(table, staged / name, use_dictionary=words)
    return name


def write_table(table: pa.Table, folder: Path) -> None:
    """Write a small table as a folder that is complete or not there."""
    beside = folder.parent / STAGED / f".{uuid.uuid4().hex}"
    beside.mkdir(parents=True)
    pq.write_table(table, beside / "part-00000.parquet")
    _finish(beside, folder)


def _finish(beside: Path, folder: Path) -> None:
    (beside / SUCCESS).touch()
    if folder.exists():
        shutil.rmtree(folder)
    os.rename(beside, folder)
