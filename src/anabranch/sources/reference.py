"""A reference history read piece by piece: one row per event, unordered, no `kind`.

Every row is read as the insert of its event, so that what reads elements reads references; its
frontier is FOREVER, for a history that is known whole.
"""

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa

from anabranch.batch.batch import INSERT, KINDS
from anabranch.batch.schema import KIND, ElementSchema
from anabranch.sources.elements import Chunk, read_file
from anabranch.sources.files import Folder

_KIND = pa.field(KIND, pa.string())


def reference_schema(folder: Folder) -> ElementSchema:
    """The schema of the inserts that a reference history is read as."""
    found = ElementSchema.of(folder.schema.append(_KIND), where=str(folder.path))
    return replace(found, has_seq=False, has_replica=False)


def scan_reference(folder: Folder) -> Iterator[Chunk]:
    """All events of a reference history, as inserts."""
    for file in folder.files:
        # A name, so that a stray column `replica` does not split the history.
        for chunk in read_file(file, folder.schema, replica="reference"):
            words = pa.repeat(pa.scalar(KINDS[INSERT]), len(chunk.rows))
            table = chunk.table.append_column(_KIND, words)
            yield replace(chunk, replica=None, table=table)
