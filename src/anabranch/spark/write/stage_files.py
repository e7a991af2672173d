"""Files that lanes write themselves: a trigger's files are written where the rows are.

A sink that is a folder on a disk which driver and workers share needs no second pass through
Spark: the lane that made the rows writes them to a file in the sink's staging folder, and
reports only the name.  When all lanes are done, the driver hands the names to the sink
(`anabranch.sinks.folder`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from anabranch.sinks.folder import stage
from anabranch.spark.lane.rows import LaneRow
from anabranch.spark.write.formats import Form

Written = dict[str, str]
"""Of each folder the name of the one file that a lane has put there."""


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

    def write(self, rows: Sequence[LaneRow]) -> tuple[list[LaneRow], Written]:
        """Write a lane's rows; those that travel on, and the names of the files by folder."""
        written: Written = {}
        for shelf in self.shelves:
            mine = [row for row in rows if row.channel in shelf.channels]
            found = [table for row in mine if (table := shelf.form(row)).num_rows]
            if found:
                written[shelf.folder] = stage(shelf.folder, found)
        return [row for row in rows if row.channel in self.travel], written
