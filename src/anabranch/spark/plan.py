"""The stateful stage that every merge on Spark goes through: parcels in, lanes' rows out."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa

from anabranch.spark.forms import LANE_ARROW, LANE_ROWS, travelling
from anabranch.spark.lane import LaneSpec, make
from anabranch.spark.listen import observed
from anabranch.spark.parcels import delivered

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def in_lanes(parcels: "DataFrame", spec: LaneSpec) -> "DataFrame":
    """What the lanes make of a stream of parcels (rows of `LANE_ROWS`)."""
    from anabranch.spark.processor import MergeFrames, MergeRows

    groups = parcels.groupBy("key")
    # Frames around a handful of rows cost more than the rows: only for runs that began so.
    step = groups.transformWithStateInPandas if spec.in_frames else groups.transformWithState
    rows = step(
        MergeFrames(spec) if spec.in_frames else MergeRows(spec),
        outputStructType=LANE_ROWS,
        outputMode="append",
        timeMode="None",
    )
    return observed(rows, spec.run, spec.lanes)


def in_lanes_once(parcels: "DataFrame", spec: LaneSpec) -> "DataFrame":
    """The same for a batch DataFrame: every lane takes one trigger's steps, and ends."""

    def work(table: pa.Table) -> pa.Table:
        parcels = [delivered(row) for row in table.to_pylist()]
        made = list(make(parcels[0]["lane"], spec.new_lane(), parcels, spec))
        return pa.Table.from_pylist(travelling(made), schema=LANE_ARROW)

    return parcels.groupBy("key").applyInArrow(work, LANE_ROWS)


@contextmanager
def shuffled_into(spark: "SparkSession", lanes: int) -> Iterator[None]:
    """A task for each lane, for a query that starts now; the session keeps its own setting."""
    name = "spark.sql.shuffle.partitions"
    before = spark.conf.get(name)
    spark.conf.set(name, str(lanes))
    try:
        yield
    finally:
        spark.conf.set(name, str(before))


def escaped(path: str) -> str:
    """A path in which no character means anything to Hadoop's globs."""
    return "".join(f"\\{c}" if c in "*?[]{}\\" else c for c in path)
