"""The state of a lane in a file, with the values that Spark's state store would have.

A run that changes its number of lanes leaves Spark's store: its lanes are read from there,
redistributed (`anabranch.spark.lane.redistribute`), and written to a file each.  A lane that
has nothing in the store of the new checkpoint begins with its file, and saves all of it there
when its first trigger ends.

A file is Arrow's IPC format, one part in each batch; it is complete or not there.
"""

import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa

from anabranch.errors import StateError
from anabranch.spark.lane.bundles import Bundles
from anabranch.spark.lane.state import NO_COPIES, Lane, LaneId, load, store

LANES: Final = "lanes"
"""The folder of exported lanes in a checkpoint."""

TOO_LATE: Final = "too-late"
"""The mark beside it of a reader that began after what was consumed before."""

_SCHEMA: Final = pa.schema({"part": pa.string(), "data": pa.large_binary()})


class HeldParts(dict[tuple[str], tuple[bytes]]):
    """What lanes use of Spark's map state, in memory."""

    def getValue(self, key: tuple[str]) -> tuple[bytes] | None:  # noqa: N802
        """The value, if there is one."""
        return self.get(key)

    def updateValue(self, key: tuple[str], value: tuple[bytes]) -> None:  # noqa: N802
        """Write a value."""
        self[key] = value

    def removeKey(self, key: tuple[str]) -> None:  # noqa: N802
        """Remove a value, if there is one."""
        self.pop(key, None)

    def iterator(self) -> Iterator[tuple[tuple[str], tuple[bytes]]]:
        """All that is there."""
        return iter(list(self.items()))


def lane_file(folder: Path, lane: int) -> Path:
    """Where a lane is, in a folder of exported lanes."""
    return folder / f"{lane:05d}.arrow"


def write_lane(file: Path, which: LaneId, lane: Lane) -> None:
    """Write all that a lane remembers, and wait until it is on the disk."""
    parts = HeldParts()
    lane.marks, lane.kept = {}, Bundles()
    store(parts, which, lane, NO_COPIES)
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name(f".{file.name}.{uuid.uuid4().hex}")
    with pa.OSFile(str(temporary), "wb") as sink, pa.ipc.new_file(sink, _SCHEMA) as writer:
        for (name,), (data,) in parts.items():
            writer.write(pa.record_batch({"part": [name], "data": [data]}, schema=_SCHEMA))
    with temporary.open("rb") as written:
        os.fsync(written.fileno())
    temporary.replace(file)


def read_lane(file: Path, which: LaneId) -> Lane:
    """The lane of such a file; it has saved nothing of itself yet."""
    lane = load(read_parts(file), which, NO_COPIES)
    assert lane is not None, f"{file} has no header"
    lane.marks, lane.kept = {}, Bundles()
    return lane


def read_parts(file: Path) -> HeldParts:
    """The values of such a file."""
    parts = HeldParts()
    try:
        with pa.memory_map(str(file)) as source, pa.ipc.open_file(source) as reader:
            for at in range(reader.num_record_batches):
                row = reader.get_batch(at).to_pylist()[0]
                parts[row["part"],] = (row["data"],)
    except (FileNotFoundError, pa.ArrowInvalid) as error:
        message = (
            f"{file}: this lane should begin with what was exported there by an upgrade, but "
            f"it cannot be read ({error}); restore the checkpoint from a copy"
        )
        raise StateError(message) from error
    return parts
