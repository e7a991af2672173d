"""Folders that lanes write themselves: a trigger's files come into being where the rows are.

A sink that is a folder on a disk which driver and workers share needs no second pass through
Spark: the lane that made the rows writes them to a file of its own, in `FOLDER/.staged/`, under
a name that nobody used before, and hands only that name to the driver.  When all lanes are done
the driver moves the files that it was told of into `FOLDER/trigger-N/`, with `_SUCCESS`, in one
step.  What a task left behind that failed, or that Spark ran twice, was told to nobody: it is
never read, and goes when the query starts again.

A trigger that is run again replaces its folder as a whole, so each trigger is there once.
"""

import os
import shutil
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from anabranch.errors import FileError
from anabranch.spark.forms import Form, Row

Written = dict[str, str]
"""Of each folder the name of the one file that a lane has put there."""

SUCCESS: Final = "_SUCCESS"
STAGED: Final = ".staged"

_WORDS: Final = ("kind", "_change_type", "bucket", "reason", "replica", "file")


@dataclass(frozen=True)
class Shelf:
    """A folder, and which of a lane's rows it gets, in which form."""

    folder: str
    channels: tuple[str, ...]
    form: Form


@dataclass(frozen=True)
class Direct:
    """All folders that lanes write; rows of the channels `travel` go through Spark as well."""

    shelves: tuple[Shelf, ...]
    travel: tuple[str, ...] = ()

    def write(self, rows: Sequence[Row]) -> tuple[list[Row], Written]:
        """Write a lane's rows; those that travel on, and the names of the files by folder."""
        written: Written = {}
        for shelf in self.shelves:
            mine = [row for row in rows if row["channel"] in shelf.channels]
            found = [table for row in mine if (table := shelf.form(row)).num_rows]
            if found:
                written[shelf.folder] = _stage(shelf.folder, found)
        return [row for row in rows if row["channel"] in self.travel], written


def _stage(folder: str, found: Sequence[pa.Table]) -> str:
    staged = Path(folder) / STAGED
    staged.mkdir(parents=True, exist_ok=True)
    name = f".{uuid.uuid4().hex}.parquet"  # hidden, also from one who reads FOLDER/*
    table = pa.concat_tables(found)
    # Words repeat; looking for repeated times and texts would cost more than it saves.
    words = [field.name for field in table.schema if field.name in _WORDS]
    pq.write_table(table, staged / name, use_dictionary=words)
    return name


def publish(folder: Path, names: Mapping[int, str]) -> None:
    """Put the staged files of the lanes into a trigger's folder, which is replaced."""
    beside = _new_beside(folder)
    for lane, name in names.items():
        try:
            os.rename(folder.parent / STAGED / name, beside / f"part-{lane:05d}{name}")
        except FileNotFoundError as error:
            message = (
                f"{folder.parent}: lane {lane} has written {name} there, but the driver does "
                "not see it: the folder is not on a disk that all machines share; name one "
                "that is, or a URI that Spark writes to"
            )
            raise FileError(message) from error
    _finish(beside, folder)


def write_table(table: pa.Table, folder: Path) -> None:
    """Write a small table as a folder that is complete or not there."""
    beside = _new_beside(folder)
    pq.write_table(table, beside / "part-00000.parquet")
    _finish(beside, folder)


def clear_staged(folder: Path) -> None:
    """Remove what tasks left behind that nobody heard of."""
    shutil.rmtree(folder / STAGED, ignore_errors=True)


def _new_beside(folder: Path) -> Path:
    beside = folder.parent / STAGED / f".{uuid.uuid4().hex}"
    beside.mkdir(parents=True)
    return beside


def _finish(beside: Path, folder: Path) -> None:
    (beside / SUCCESS).touch()
    if folder.exists():
        shutil.rmtree(folder)
    os.rename(beside, folder)
