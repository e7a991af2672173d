"""Two replicas of a small stream, merged on a local Spark and read back as a DataFrame.

    python examples/first_merge.py

`east` first reports that sensor 7 was hot from 3 to 9; `west` reports that it ended at 7.  The
merged stream has the event, the correction, and the stables that make it final.
"""

import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import anabranch as ab

EAST = [
    {"kind": "insert", "start": 3, "end": 9, "sensor": 7, "state": "hot"},
    {"kind": "stable", "start": 5},
]
WEST = [
    {"kind": "insert", "start": 3, "end": 7, "sensor": 7, "state": "hot"},
    {"kind": "stable", "start": 8},
]


def write(file: Path, rows: list[dict[str, object]]) -> None:
    """One file of elements: `kind`, `start`, `end`, and whatever else is payload."""
    schema = pa.schema(
        {
            "kind": pa.string(),
            "start": pa.int64(),
            "end": pa.int64(),
            "sensor": pa.int64(),
            "state": pa.string(),
        }
    )
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), file)


def main() -> None:
    """Write the elements of east, then of west, and merge after each of them."""
    spark = ab.session()
    with tempfile.TemporaryDirectory() as folder:
        inbox, output, checkpoint = (Path(folder, name) for name in ("inbox", "out", "ck"))
        (inbox / "west").mkdir(parents=True)  # there from the beginning, though still silent
        for replica, rows in (("east", EAST), ("west", WEST)):
            write(inbox / replica / "part-00000.parquet", rows)
            merged = ab.merge(ab.inbox(inbox))
            merged.start(checkpoint, output=output, once=True).wait()
        ab.read_output(spark, output).orderBy("seq").drop("seq").show()


if __name__ == "__main__":
    main()
