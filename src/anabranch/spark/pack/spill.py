"""Spilled parcels: on one machine they wait in files, and Spark shuffles their addresses.

A parcel that goes through Spark is copied from the packer to Spark, into the shuffle, out of it
and to the lane.  Where all of them are one machine the packer spills it to a file instead, and
the lane maps that file into its memory.  Between machines there is no depot: parcels travel.

A parcel is a function of a trigger's input, so nothing here needs to outlive the trigger: the
driver empties the depot when the trigger is written.  A trigger that is run again packs again,
under unique names.  Files of a killed process are removed with the next trigger.
"""

import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from anabranch.batch.batch import Batch
from anabranch.batch.parcel import write
from anabranch.errors import RunError
from anabranch.spark.pack.parcels import Fetch, Spill, write_ipc
from anabranch.spark.session.host import slots

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FOLDER: Final = "parcels"
"""The depot's folder in a checkpoint."""


@dataclass(frozen=True)
class Depot:
    """A folder on a disk of the machine where packers and lanes are."""

    folder: str

    def fetching(self) -> Fetch:
        """Maps each file once, for as long as the function is used."""
        opened = cache(self._open)

        def fetch(address: str) -> tuple[pa.Buffer, pa.Buffer]:
            name, *numbers = address.split(":")
            first, size, second, more = map(int, numbers)
            return opened(name).slice(first, size), opened(name).slice(second, more)

        return fetch

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
                f"{path}: a file of this trigger is missing; were files of the checkpoint "
                "removed while the query ran? Start it again: nothing is lost"
            )
            raise RunError(message) from error


def depot_for(spark: "SparkSession", checkpoint: Path | None) -> Depot | None:
    """The depot of a query; None where packers and lanes may be on several machines."""
    if checkpoint is None or slots(spark) is None:
        return None
    return Depot(str(checkpoint / FOLDER))


@contextmanager
def spilling(depot: Depot | None) -> Iterator[Spill | None]:
    """What one task does with its parcels: spill them to a file of its own."""
    if depot is None:
        yield None
        return
    folder = Path(depot.folder)
    folder.mkdir(mode=0o700, exist_ok=True)
    name = uuid.uuid4().hex
    with pa.OSFile(str(folder / name), "wb") as file:

        def spill(batch: Batch, places: pa.Table) -> str:
            first = file.tell()
            write(batch, file)
            middle = file.tell()
            write_ipc(places, file)
            address = (name, first, middle - first, middle, file.tell() - middle)
            return ":".join(map(str, address))

        yield spill
