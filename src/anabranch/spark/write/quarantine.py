"""Rows that were not merged, kept in files by the worker that has them.

For a view that is written by Spark's own writers, which would drop them.  A file's name
is made of channel, step and lane, so a step that is run again writes the same file again.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from anabranch.batch.schema import ElementSchema
from anabranch.sources.channels import LATE, VIOLATIONS
from anabranch.spark.lane.rows import LaneRow, read_rows
from anabranch.spark.write.formats import ApartForm, Form, output_schema

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Keeper:
    """Writes late rows and violations into a folder, a path or a URI that Arrow knows."""

    folder: str
    schema: ElementSchema

    def keep(self, rows: list[LaneRow]) -> None:
        """Write those of a lane's rows that were not merged."""
        apart = [row for row in rows if row.channel in (LATE, VIOLATIONS)]
        for at, row in enumerate(apart):
            found = ApartForm(self.schema)(row)
            if found.num_rows:
                name = f"{row.channel}-{row.step:012d}-{row.lane}-{at}.parquet"
                self._write(name, found)

    def _write(self, name: str, found: pa.Table) -> None:
        from pyarrow import fs

        is_uri = "://" in self.folder
        system, root = fs.FileSystem.from_uri(self.folder) if is_uri else _local(self.folder)
        system.create_dir(root, recursive=True)
        temporary = f"{root}/.{name}"
        with system.open_output_stream(temporary) as sink:
            pq.write_table(found, sink)
        system.move(temporary, f"{root}/{name}")


def keeper_of(view: str, folder: str | None, run: str, schema: ElementSchema) -> Keeper:
    """The keeper of a view, in the folder that was named, or in one of the run."""
    if folder is None:
        folder = str(Path("anabranch-quarantine", run).absolute())
    log.warning("the query of %s() keeps what is not merged in %s", view, folder)
    return Keeper(folder, schema)


@dataclass(frozen=True)
class Keeping:
    """A form as Spark maps it over the lanes' rows; what is not merged is kept on the way."""

    keeper: Keeper
    form: Form
    channels: tuple[str, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of the channels in their form."""
        for batch in batches:
            rows = list(read_rows(batch, output_schema(self.keeper.schema)))
            self.keeper.keep(rows)
            for row in rows:
                if row.channel in self.channels:
                    yield from self.form(row).to_batches()


def _local(folder: str) -> tuple[Any, str]:
    from pyarrow import fs

    return fs.LocalFileSystem(), folder
