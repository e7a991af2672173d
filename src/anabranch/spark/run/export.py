"""The lanes of a run, read from Spark's state store and written to files, as other lanes.

Spark's public `statestore` reader gives what each lane has saved with the last trigger that
Spark has committed; a partition of it is a lane.  A first job splits each lane into shares, a
second one unites the shares of each new lane, checks its states, and writes its file.  Both run
where Spark runs its tasks.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from anabranch.errors import StateError
from anabranch.operators.pipeline import Pipeline
from anabranch.operators.state.reshape import Reshape
from anabranch.spark.lane.exported import (
    LANES,
    HeldParts,
    lane_file,
    read_lane,
    read_parts,
    write_lane,
)
from anabranch.spark.lane.redistribute import require_redistributes, split, unite
from anabranch.spark.lane.state import HEADER, NO_COPIES, Lane, LaneId, load

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHARES: Final = "shares"
_REPORT: Final = "report string"
_PARTS_AT_ONCE: Final = 16
"""The number of parts that are fetched from Spark at a time: each may have megabytes."""


@dataclass(frozen=True)
class Export:
    """What the jobs must know; it travels to the workers.

    `source` is the folder of Spark's checkpoint; without `has_store` the lanes that it began
    with are all there is.  `target` is a folder that no other upgrade uses.  `pipelines` are
    what the lanes may run: a query that reports final events may have a step for it.
    `reshape`: payload columns that come and go.
    """

    run: str
    source: str
    has_store: bool
    target: str
    was: int
    lanes: int
    pipelines: tuple[Pipeline, ...]
    reshape: Reshape | None = None

    def share(self, former: int, lane: int) -> Path:
        """The file of what a former lane has for a new one."""
        return lane_file(Path(self.target) / SHARES / f"{former:05d}", lane)


@dataclass(frozen=True)
class LaneReport:
    """One lane: how many steps it has taken, how far it read the log, events it remembers.

    `positions` is how far Kafka's partitions were read.
    """

    lane: int
    steps: int
    log: int
    live: int
    positions: list[list[Any]]

    @classmethod
    def of(cls, number: int, lane: Lane) -> "LaneReport":
        """What a lane has."""
        live = sum(state.live for state in lane.states.values())
        return cls(number, lane.steps, lane.log, live, lane.positions.to_list())


def export_lanes(spark: "SparkSession", job: Export) -> tuple[list[LaneReport], int]:
    """Write the file of each new lane; the former lanes, and how many events the new have."""
    former = _split(spark, job)
    if [one.lane for one in former] != list(range(job.was)):
        message = (
            f"{job.source}: has the states of lanes {[one.lane for one in former]}, but the "
            f"run has {job.was}; the checkpoint is damaged; restore it"
        )
        raise StateError(message)
    numbers = spark.range(0, job.lanes, 1, job.lanes)
    made = _reports(numbers.mapInArrow(partial(_unite_shares, job), _REPORT).collect())
    return former, sum(one.live for one in made)


def _split(spark: "SparkSession", job: Export) -> list[LaneReport]:
    if not job.has_store:
        numbers = spark.range(0, job.was, 1, job.was)
        return _reports(numbers.mapInArrow(partial(_split_files, job), _REPORT).collect())
    reader = spark.read.format("statestore").option("stateVarName", "parts")
    stored = reader.load(job.source).selectExpr(
        "key.key as key", "user_map_key.part as part", "user_map_value.data as data"
    )
    with _few_at_once(spark):
        return _reports(stored.mapInArrow(partial(_split_stored, job), _REPORT).collect())


def _reports(rows: Sequence[Any]) -> list[LaneReport]:
    found = [LaneReport(**json.loads(row["report"])) for row in rows]
    return sorted(found, key=lambda one: one.lane)


@contextmanager
def _few_at_once(spark: "SparkSession") -> Iterator[None]:
    name = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(name)
    spark.conf.set(name, str(_PARTS_AT_ONCE))
    try:
        yield
    finally:
        spark.conf.set(name, str(before))


def _split_stored(job: Export, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What Spark maps over the parts of a lane."""
    stored: dict[int, HeldParts] = {}
    for batch in batches:
        for row in batch.to_pylist():
            stored.setdefault(row["key"], HeldParts())[row["part"],] = (row["data"],)
    for parts in stored.values():
        yield _split_lane(job, parts)


def _split_files(job: Export, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What Spark maps over numbers of lanes that are still as they were exported."""
    for batch in batches:
        for number in batch.column(0).to_pylist():
            yield _split_lane(job, read_parts(lane_file(Path(job.source) / LANES, number)))


def _split_lane(job: Export, parts: HeldParts) -> pa.RecordBatch:
    header = json.loads(parts[HEADER,][0])
    pipeline = _pipeline(job, header["pipeline"])
    number = header["lane"]
    lane = load(parts, LaneId(job.run, 0, number, job.was, pipeline), NO_COPIES)
    assert lane is not None, f"lane {number} has a header, and no state"
    report = LaneReport.of(number, lane)
    for to, share in enumerate(split(lane, pipeline, job.lanes, job.reshape)):
        write_lane(job.share(number, to), LaneId(job.run, 0, to, job.lanes, pipeline), share)
    return _row(report)


def _pipeline(job: Export, labels: list[str]) -> Pipeline:
    """The pipeline that a lane has run, by the labels that it has saved."""
    for one in job.pipelines:
        if [step.label for step in one] == labels:
            require_redistributes(one)
            return one
    message = (
        f"{job.source}: its lanes run {', '.join(labels)}, which no merge or union does; "
        "lanes of others cannot be changed"
    )
    raise StateError(message)


def _unite_shares(job: Export, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What Spark maps over the numbers of the new lanes."""
    for batch in batches:
        for number in batch.column(0).to_pylist():
            yield _unite_lane(job, number)


def _unite_lane(job: Export, number: int) -> pa.RecordBatch:
    files = [job.share(former, number) for former in range(job.was)]
    header = json.loads(read_parts(files[0])[HEADER,][0])
    pipeline = _pipeline(job, header["pipeline"])
    which = LaneId(job.run, 0, number, job.lanes, pipeline)
    lane = unite([read_lane(file, which) for file in files], pipeline, job.reshape)
    for state in lane.states.values():
        state.check()
    report = LaneReport.of(number, lane)
    write_lane(lane_file(Path(job.target) / LANES, number), which, lane)
    return _row(report)


def _row(report: LaneReport) -> pa.RecordBatch:
    return pa.record_batch({"report": [json.dumps(asdict(report))]})
