"""kill -9 while files are rolled and published, with readers beside: each row comes once.

A streaming query of a user reads the output after every kill, and other readers look at the
files.  The driver comes back with another number of cores and another `roll`, and in half of
the runs the input has no `seq`.
"""

from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from faulty import MakeScene, Scene

from anabranch.sources.commits import committed

pytestmark = [pytest.mark.spark, pytest.mark.deep]

KILLS = 5
ROLLS = ("0", "500 milliseconds", "3 seconds", "1 minute")


class Downstream:
    """Who reads an output while it is written: a query of Spark, and one that lists files."""

    def __init__(self, spark: Any, scene: Scene) -> None:
        self.spark, self.scene = spark, scene
        self.elements = scene.place.output / "elements"
        self.seen: dict[str, str] = {}

    def look(self) -> None:
        """Files that were there are unchanged; all are Parquet; a query takes what is new."""
        files = list(self.elements.iterdir()) if self.elements.exists() else []
        assert {file.suffix for file in files} <= {".parquet"}
        digests = {file.name: sha256(file.read_bytes()).hexdigest() for file in files}
        assert digests.items() >= self.seen.items(), "a published file was changed or removed"
        self.seen = digests
        seqs = [seq for file in files for seq in pq.read_table(file)["seq"].to_pylist()]
        assert len(set(seqs)) == len(seqs), "a row is published twice"
        if files:
            self._take()

    def _take(self) -> None:
        schema = self.spark.read.parquet(str(self.elements)).schema
        source = self.spark.readStream.schema(schema).parquet(str(self.elements))
        root = self.scene.place.root
        query = (
            source.writeStream.option("checkpointLocation", str(root / "downstream-ck"))
            .trigger(availableNow=True)
            .start(str(root / "downstream"))
        )
        query.awaitTermination()

    def judge(self) -> None:
        """The query has read exactly what was merged."""
        self.look()
        taken = self.spark.read.parquet(str(self.scene.place.root / "downstream"))
        seqs = sorted(row.seq for row in taken.select("seq").collect())
        made = pa.concat_tables([pq.read_table(file) for file in committed(self.elements)])
        assert seqs == sorted(made["seq"].to_pylist())


def drop_seq(files: list[Path]) -> None:
    """The same elements in the same order, without a column that numbers them."""
    for file in files:
        pq.write_table(pq.read_table(file).drop_columns(["seq"]), file)


@pytest.mark.parametrize("number", range(300, 308))
def test_readers_see_each_row_once(spark: Any, scene: MakeScene, number: int) -> None:
    here = scene(number)
    if number % 2:
        held = [now for files in here.held.values() for now, _ in files]
        drop_seq([*here.place.inbox.glob("*/part-*"), *held])
    reader = Downstream(spark, here)
    for left in range(KILLS, 0, -1):
        here.master = f"local[{here.rng.randint(1, 3)}]"
        here.roll = here.rng.choice(ROLLS)
        here.run_and_kill(files=here.waiting // left)
        reader.look()
    here.finish()
    reader.judge()
