"""The stateful stages that a query goes through: parcels in, lanes' rows out."""

import logging
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from anabranch.sources.channels import PROGRESS
from anabranch.spark.lane.rows import LANE_ARROW, LANE_ROWS, STAGE_ARROW, STAGE_ROWS
from anabranch.spark.lane.spec import LaneSpec
from anabranch.spark.lane.trigger import make
from anabranch.spark.session.versions import require_release

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from anabranch.spark.lane.native import Boundary
    from anabranch.spark.progress import LaneRecord

log = logging.getLogger(__name__)

NOTHING: "Natives" = MappingProxyType({})

OBSERVED: Final = "anabranch-"
"""How the names of observed metrics begin: then the run, and a number of its own."""


Natives = Mapping[int, "Boundary"]
"""What Spark changes after a stage, by the number of the stage."""


def in_lanes(
    parcels: "DataFrame", *stages: LaneSpec, natives: Natives = NOTHING, observe: bool = True
) -> "DataFrame":
    """What the lanes of the last stage make of a stream of parcels (rows of `LANE_ROWS`).

    `observe`: Spark notes the lanes' records, for `ab.progress`.
    """
    require_release(parcels.sparkSession)
    from anabranch.spark.lane.processor import LaneProcessor

    rows = parcels
    for spec in stages:
        # Rows, not pandas frames: frames around a handful of rows cost more than the rows.
        rows = rows.groupBy("key").transformWithState(
            LaneProcessor(spec),
            outputStructType=LANE_ROWS if spec.after is None else STAGE_ROWS,
            outputMode="append",
            timeMode="None",
        )
        if spec.stage in natives:
            rows = natives[spec.stage].apply(rows)
    return _observed(rows, stages[0].run, _lanes_of(stages)) if observe else rows


def _observed(rows: "DataFrame", run: str, lanes: Sequence[tuple[int, int]]) -> "DataFrame":
    """The lanes' rows; Spark notes the record of each (stage, lane) as it passes them on."""
    from pyspark.sql import functions as F  # noqa: N812

    is_record = F.col("channel") == PROGRESS
    has_stages = any(stage for stage, _ in lanes)
    notes = []
    for stage, lane in lanes:
        which = is_record & (F.col("lane") == lane)
        if has_stages:  # a record has it; a column would be planned in every trigger
            which &= F.get_json_object("record", "$.stage") == str(stage)
        notes.append(F.max(F.when(which, F.col("record"))).alias(f"lane_{stage}_{lane}"))
    # Two views of one merge may meet in one query; Spark wants each name once.
    return rows.observe(f"{OBSERVED}{run}-{uuid.uuid4().hex[:8]}", *notes)


def in_lanes_once(
    parcels: "DataFrame", *stages: LaneSpec, natives: Natives = NOTHING
) -> "DataFrame":
    """The same for a batch DataFrame: every lane takes one trigger's steps, and ends."""
    require_release(parcels.sparkSession)
    rows = parcels
    for spec in stages:
        names = LANE_ROWS if spec.after is None else STAGE_ROWS
        rows = rows.groupBy("key").applyInArrow(_whole(spec), names)
        if spec.stage in natives:
            rows = natives[spec.stage].apply(rows)
    return rows


def _whole(spec: LaneSpec) -> Callable[[pa.Table], pa.Table]:
    columns = LANE_ARROW if spec.after is None else STAGE_ARROW

    def work(table: pa.Table) -> pa.Table:
        from anabranch.spark.lane.work import opened, record_row, wired

        parcels, passed = opened(table.to_pylist(), spec)
        made = make(parcels[0].lane, spec.new_lane(), parcels, spec)
        if spec.plain:
            _warn_of_duplicates(made.record)
        made.rows.append(record_row(made.record, {}))
        return pa.Table.from_pylist([*passed, *wired(made, spec)], schema=columns)

    return work


def _warn_of_duplicates(record: "LaneRecord") -> None:
    """A batch has no query that could warn: the lane does, in the log of its worker."""
    from anabranch.spark.duplicates import kept_text

    found = {n: one.duplicates for n, one in record.replicas.items() if one.duplicates}
    if found:
        log.warning("lane %d: %s", record.lane, kept_text(found))


def _lanes_of(stages: Sequence[LaneSpec]) -> list[tuple[int, int]]:
    return [(spec.stage, lane) for spec in stages for lane in range(spec.lanes)]


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
