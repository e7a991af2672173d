"""A query of two stages: merge, then normalise routed by payload; as a module and a program.

    python chained.py ROOT      take all files in ROOT/in, one per trigger, and end

`ROOT/in` has Parquet files of elements with a `replica` column.
"""

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anabranch as ab
from anabranch.batch.schema import ElementSchema
from anabranch.operators.pipeline import PipelineStep
from anabranch.operators.runs.normalise import NormaliseOperator
from anabranch.sinks.folder import FolderSink
from anabranch.sources.channels import ELEMENTS, LATE, PROGRESS, VIOLATIONS
from anabranch.spark.checkpoint.run_record import last_entry
from anabranch.spark.lane.spec import LaneSpec, staged
from anabranch.spark.lane.stage import in_lanes, shuffled_into
from anabranch.spark.pack.spill import depot_for
from anabranch.spark.query.merged import Merged
from anabranch.spark.run.write_trigger import Outlet, TriggerWriter
from anabranch.spark.write.views import Views

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

COLUMNS = (
    "kind string, start bigint, end bigint, old_end bigint, name string, seq bigint, "
    "replica string"
)
LANES = 2, 3
"""Of the two stages; they differ, so that no lane is that of another stage."""


def stages(merged: Merged, schema: ElementSchema, **options: Any) -> tuple[LaneSpec, ...]:
    """Merge, then normalise."""
    first = replace(merged.spec(), **options)
    normalise = PipelineStep("normalise", NormaliseOperator(schema))
    return staged(first, ((normalise,), LANES[1]))


def run(spark: "SparkSession", root: Path) -> None:
    """Take all files, and publish what was made of them."""
    query, writer = start(spark, root)
    query.awaitTermination()
    writer.committed(last_entry(root / "ck" / "commits"))
    writer.publish()


def start(spark: "SparkSession", root: Path) -> "tuple[StreamingQuery, TriggerWriter]":
    """Start the query; it ends when all files are taken."""
    source = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1)
    merged = ab.merge(
        ab.elements(source.parquet(str(root / "in"))), lanes=LANES[0], replicas=("x", "y")
    )
    output, checkpoint = root / "out", root / "ck"
    checkpoint.mkdir(exist_ok=True)
    views = Views(merged.schema, LANES[1])
    made = {name: views.apart(name) for name in (LATE, VIOLATIONS)}
    made[ELEMENTS] = views.view(ELEMENTS)
    outlets = [Outlet(view, FolderSink(f"{output}/{name}")) for name, view in made.items()]
    writer = TriggerWriter(tuple(outlets), f"{output}/{PROGRESS}", depot_for(spark, checkpoint))
    writer.open("chained")
    written = {"direct": writer.direct(), "depot": writer.depot}
    specs = stages(merged, merged.schema, run="chained", **written)

    def write(df: "DataFrame", trigger: int) -> None:
        writer.write(df, trigger)

    rows = in_lanes(merged.parcels(depot=writer.depot), *specs)
    stream = rows.writeStream.foreachBatch(write).trigger(availableNow=True)
    with shuffled_into(spark, LANES[1]):
        return stream.option("checkpointLocation", str(checkpoint)).start(), writer


if __name__ == "__main__":
    run(ab.session(master="local[2]"), Path(sys.argv[1]))
