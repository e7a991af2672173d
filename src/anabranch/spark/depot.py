"""Where parcels wait for their lanes, on one machine: only their addresses cross Spark.

A parcel that goes through Spark is copied from the packer to Spark, into the shuffle, out of it
and to the lane.  Where all of them are one machine the packer leaves it in a file instead, and
the lane maps that file into its memory.  Between machines there is no depot: parcels travel.

A parcel is a function of a trigger's input, so nothing here needs to outlive the trigger: the
driver empties the depot when the trigger is written.  A trigger that is run again packs again,
under names that nobody used before.  What a killed process left goes with the next trigger.
"""

import shutil
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from anabranch.batch.parcel import write
from anabranch.errors import RunError
from anabranch.spark.machine import slots
from anabranch.spark.parcels import Row, write_ipc

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Leave = Callable[[Sequence[Row]], list[Row]]

FOLDER: Final = "parcels"
"""The depot's folder in a checkpoint."""

_LEFT: Final = ("parcel", "places")


@dataclass(frozen=True)
class Depot:
    """A folder on a disk of the machine where packers and lanes are."""

    folder: str

    def fetch(self, rows: Sequence[Row]) -> list[Row]:
        """The rows, with the parcels that were left under their addresses."""
        opened = cache(self._open)
        return [row if row["address"] is None else _unloaded(row, opened) for row in rows]

    def clear(self) -> None:
        """Remove all parcels: the trigger that they belong to is written."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _open(self, name: str) -> pa.Buffer:
        path = Path(self.folder) / name
        try:
            with pa.memory_map(str(path)) as file:
                return file.read_buffer()
        except FileNotFoundError as error:
            message = (
                f"{path}: parcels of this trigger were here and are gone; did somebody remove "
                "files of the checkpoint while the query ran? Start it again: nothing is lost"
            )
            raise RunError(message) from error


def _unloaded(row: Row, opened: Callable[[str], pa.Buffer]) -> Row:
    name, *numbers = row["address"].split(":")
    parts = zip(_LEFT, map(int, numbers[::2]), map(int, numbers[1::2]), strict=True)
    return row | {part: opened(name).slice(at, size) for part, at, size in parts}


def depot_for(spark: "SparkSession", checkpoint: Path | None) -> Depot | None:
    """The depot of a query; None where packers and lanes may be on several machines."""
    if checkpoint is None or slots(spark) is None:
        return None
    return Depot(str(checkpoint / FOLDER))


@contextmanager
def leaving(depot: Depot | None) -> Iterator[Leave]:
    """What one packing task does with its rows: leave their parcels in a file of its own."""
    if depot is None:
        yield list
        return
    folder = Path(depot.folder)
    folder.mkdir(mode=0o700, exist_ok=True)
    name = uuid.uuid4().hex
    with pa.OSFile(str(folder / name), "wb") as file:
        yield lambda rows: [_left(row, name, file) for row in rows]


def _left(row: Row, name: str, file: pa.OSFile) -> Row:
    if row.get("parcel") is None:
        return row
    first = file.tell()
    write(row["parcel"], file)
    middle = file.tell()
    write_ipc(row["places"], file)
    address = (name, first, middle - first, middle, file.tell() - middle)
    return row | dict.fromkeys(_LEFT) | {"address": ":".join(map(str, address))}
