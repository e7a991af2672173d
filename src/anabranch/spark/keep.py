"""Rows that were not merged, kept in files by the worker that has them.

For a view that is written by Spark's own writers: nobody else would keep them.  A file's name
is made of channel, step and lane, so a step that is run again writes the same file again.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from anabranch.batch.schema import ElementSchema
from anabranch.spark.direct import Unpacker
from anabranch.spark.write import LATE, VIOLATIONS, unpack_quarantined


@dataclass(frozen=True)
class Keeper:
    """Writes late rows and violations into a folder, a path or a URI that Arrow knows."""

    folder: str
    schema: ElementSchema

    def beside(self, unpacker: Unpacker, channels: tuple[str, ...]) -> Unpacker:
        """The same rows; what is late or a violation goes into the folder on the way."""

        def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                self._keep(batch)
                yield from unpacker(iter([_of(batch, channels)]))

        return rows

    def _keep(self, batch: pa.RecordBatch) -> None:
        apart = _of(batch, (LATE, VIOLATIONS))
        where = [apart[name].to_pylist() for name in ("channel", "step", "lane")]
        for at, (channel, step, lane) in enumerate(zip(*where, strict=True)):
            found = list(unpack_quarantined(self.schema)(iter([apart.slice(at, 1)])))
            if found:
                self._write(f"{channel}-{step:012d}-{lane}-{at}.parquet", found)

    def _write(self, name: str, found: list[pa.RecordBatch]) -> None:
        from pyarrow import fs

        is_uri = "://" in self.folder
        system, root = fs.FileSystem.from_uri(self.folder) if is_uri else _local(self.folder)
        system.create_dir(root, recursive=True)
        beside = f"{root}/.{name}"
        with system.open_output_stream(beside) as sink:
            pq.write_table(pa.Table.from_batches(found), sink)
        system.move(beside, f"{root}/{name}")


def _local(folder: str) -> tuple[Any, str]:
    from pyarrow import fs

    return fs.LocalFileSystem(), folder


def _of(batch: pa.RecordBatch, channels: tuple[str, ...]) -> pa.RecordBatch:
    import pyarrow.compute as pc

    return batch.filter(pc.is_in(batch["channel"], value_set=pa.array(channels)))
