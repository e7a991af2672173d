"""`ab.upgrade`: change the lanes or the columns of a run, without losing or doubling a row.

The states are read from Spark's state store, redistributed and written to files, with a control
log that continues after the last consumed entry.  Together they are the next *generation* of
the run, in a folder of its own in the checkpoint.  The upgrade is atomic: one rename of the run
record puts the complete generation in force.  A process that is killed before the rename has
changed nothing; after it, the run is upgraded.  The files of the other generation are removed
while the run continues.

`seq`, trigger numbers, totals and output continue.  A trigger that was started and not
committed is retried in the new lanes, with the same input and the same number.

What was consumed must be known: of inboxes our control log has it, of DataFrames the lanes if
the rows have their places in Kafka (`order="kafka"`).  Readers go on where
`ab.starting_offsets` shows; rows before it are skipped, a reader that begins later is refused.
How far any other DataFrame was read is known to Spark's own source alone, and no new checkpoint
can be given that.
"""

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from anabranch.batch.schema import ElementSchema, TimeType
from anabranch.errors import StateError, UsageError
from anabranch.operators.entries import recorded
from anabranch.operators.pipeline import Pipeline, PipelineStep, with_final
from anabranch.operators.state.reshape import Reshape
from anabranch.spark.checkpoint import run_record as runs
from anabranch.spark.checkpoint.columns import reshape_of, with_columns
from anabranch.spark.checkpoint.control_log import FOLDER, ControlLog
from anabranch.spark.checkpoint.kafka import KafkaOffsets
from anabranch.spark.checkpoint.lock import DriverLock
from anabranch.spark.lane.exported import LANES, TOO_LATE, lane_file
from anabranch.spark.pack.positions import Positions, restarted
from anabranch.spark.run.ending import explain
from anabranch.spark.run.export import Export, LaneReport, export_lanes
from anabranch.spark.session.start import session
from anabranch.spark.write.reports import local

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Upgraded:
    """What an upgrade did: lanes before and now, events that went with it, triggers so far.

    `added` and `dropped` are the columns that came and went.
    """

    checkpoint: str
    was: int
    lanes: int
    events: int
    triggers: int
    added: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()


def upgrade(
    checkpoint: str | Path,
    *,
    lanes: int | None = None,
    add_columns: Mapping[str, str] | None = None,
    drop_columns: Sequence[str] = (),
    spark: "SparkSession | None" = None,
) -> Upgraded:
    """Change the lanes or the columns of a run that has been stopped; then start it as before.

    Refused while it runs.  What the run has already changes nothing: the same upgrade may be
    called again after a kill.  DataFrames of Kafka (`order="kafka"`) are read on from where
    `ab.starting_offsets` shows.

    Args:
        checkpoint: The checkpoint of the run.
        lanes: The number of lanes from now on.
        add_columns: Payload columns by name, with their types (`{"price": "double"}`).  They
            come last, and are null in what is remembered and in files without them.
        drop_columns: Payload columns to leave out; files may still have them.
        spark: The session to work in; without it the one that runs, or a new one.
    """
    asked = Asked(lanes, dict(add_columns or {}), tuple(drop_columns))
    return upgrade_in(lambda: spark or session(), checkpoint, asked)


@dataclass(frozen=True)
class Asked:
    """What an upgrade is to change: lanes, columns to add by name and type, and to drop."""

    lanes: int | None = None
    add: Mapping[str, str] = field(default_factory=dict)
    drop: tuple[str, ...] = ()


def upgrade_in(
    start: "Callable[[], SparkSession]", checkpoint: str | Path, asked: Asked
) -> Upgraded:
    """The same; Spark is started when all is checked that can be without it."""
    if asked == Asked():
        message = "ab.upgrade: nothing to change; name lanes, or columns to add or to drop"
        raise UsageError(message)
    folder = local(str(checkpoint))
    if folder is None or not (folder / runs.FILE).exists():
        message = (
            f"ab.upgrade: {checkpoint} is not the checkpoint of a merge: it has no "
            f"{runs.FILE}; check the path"
        )
        raise UsageError(message)
    lock = DriverLock(folder)
    try:
        run = runs.read(folder)
        assert run is not None, f"{folder / runs.FILE} is gone"
        lanes = run.lanes if asked.lanes is None else asked.lanes
        _require_possible(folder, run, lanes)
        changes = bool(asked.add or asked.drop)
        reshape = reshape_of(run, asked.add, asked.drop) if changes else None
        if lanes == run.lanes and reshape is None and not is_refused(folder, run):
            return Upgraded(str(folder), lanes, lanes, 0, run.first_trigger)
        return _upgrade(start(), folder, run, lanes, reshape)
    finally:
        lock.release()


def _upgrade(
    spark: "SparkSession", folder: Path, run: runs.Run, lanes: int, reshape: Reshape | None
) -> Upgraded:
    """Build the next generation, and put it in force."""
    target = runs.generation_folder(folder, run.generation + 1)
    shutil.rmtree(target, ignore_errors=True)
    # Tasks of a driver that was killed may live a little longer, and write to its own folder.
    attempt = target / f"attempt-{runs.new_id()}"
    attempt.mkdir(parents=True)
    job = replace(_export(folder, run, lanes, attempt), reshape=reshape)
    try:
        former, live = export_lanes(spark, job)
    except Exception as error:
        raise explain(error) from error
    _require_complete(job, former, live)
    (attempt / LANES).rename(target / LANES)
    shutil.rmtree(attempt)
    log = ControlLog(runs.home(folder, run) / FOLDER)
    log.carry_over(target / FOLDER, former[0].log)
    if run.replicas or run.lifetimes:
        # Spark may begin with triggers without rows; lanes must read what they begin with.
        ControlLog(target / FOLDER).note()
    known = restarted(Positions.from_list(one.positions) for one in former)
    KafkaOffsets(known.last, KafkaOffsets.read(runs.home(folder, run)).ends).write(target)
    then = replace(
        run if reshape is None else with_columns(run, reshape),
        lanes=lanes,
        generation=run.generation + 1,
        first_trigger=runs.last_commit(folder, run) + 1,
        begun=runs.last_begun(folder, run),
    )
    os.sync()  # a machine that fails must not lose what the record is about to name
    runs.write(then, folder)  # the one rename that puts it in force
    added = () if reshape is None else tuple(one.name for one in reshape.added)
    dropped = () if reshape is None else reshape.dropped
    facts = (str(folder), run.lanes, lanes, live, then.first_trigger)
    return Upgraded(*facts, added, dropped)


def _export(folder: Path, run: runs.Run, lanes: int, target: Path) -> Export:
    source = runs.home(folder, run)
    pipeline = _pipeline(run)
    return Export(
        run.run,
        str(source),
        runs.last_entry(source / "commits") >= 0,
        str(target),
        run.lanes,
        lanes,
        (pipeline, with_final(pipeline)),
    )


def _pipeline(run: runs.Run) -> Pipeline:
    """What the lanes of a run have run, by its record; final events may add a step."""
    schema = ElementSchema(TimeType(run.time), run.schema)
    operator = recorded(schema, run.case, run.policy)
    if operator is not None:
        return (PipelineStep(operator.name, operator, run.case),)
    message = (
        f"ab.upgrade: the run is a {run.case}, which cannot change its lanes; start a new run"
    )
    raise UsageError(message)


def _require_possible(folder: Path, run: runs.Run, lanes: int) -> None:
    if lanes < 1:
        message = f"ab.upgrade: lanes is {lanes}; a merge has at least one lane"
        raise UsageError(message)
    _require_no_key(folder, run)
    if run.align:
        message = (
            f"ab.upgrade: {folder}: this run releases events {run.align} (align), in a lane "
            "behind the others, whose state cannot be redistributed; start a new run in new "
            "folders"
        )
        raise UsageError(message)
    if run.replicas or run.lifetimes or not run.inboxes:
        _require_resumable(folder, run)
    if run.generation == 0 and runs.last_entry(folder / "commits") < 0:
        message = (
            f"ab.upgrade: {folder}: nothing has been merged here yet; start a new run in new "
            f"folders with lanes={lanes}"
        )
        raise StateError(message)


def _require_no_key(folder: Path, run: runs.Run) -> None:
    """Refuse a run with a key: a final event is remembered by a hash, which has no key."""
    if run.key:
        message = (
            f"ab.upgrade: {folder}: this run has key={list(run.key)}, so an event is in the "
            "lane of its key; of a final event only a hash of the whole row is remembered, "
            "from which no other lane and no other columns can be computed; start a new run "
            "in new folders"
        )
        raise UsageError(message)


def is_refused(folder: Path, run: runs.Run) -> bool:
    """Whether the last trigger was refused since a reader begins too late; it wrote nothing."""
    return (runs.home(folder, run) / TOO_LATE).exists()


def _require_resumable(folder: Path, run: runs.Run) -> None:
    """Refuse DataFrames whose readers cannot go on in a new checkpoint of Spark's."""
    if not run.positions:
        message = (
            f"ab.upgrade: {folder}: this run reads DataFrames; how far they were read is known "
            "to Spark's own checkpoint alone, so that a new one would begin at the beginning; "
            "only inboxes, and rows of Kafka with order='kafka', can change lanes or columns"
        )
        raise UsageError(message)
    begun, committed = runs.last_begun(folder, run), runs.last_commit(folder, run)
    if begun > committed and not is_refused(folder, run):
        message = (
            f"ab.upgrade: {folder}: trigger {begun} was begun and not committed, and only this "
            "checkpoint can repeat it with the same rows; start the merge once more, with "
            "once=True, then upgrade"
        )
        raise StateError(message)


def _require_complete(job: Export, former: list[LaneReport], live: int) -> None:
    """Reject an export that lacks a lane or an event."""
    files = [lane_file(Path(job.target) / LANES, lane) for lane in range(job.lanes)]
    missing = [str(file) for file in files if not file.exists()]
    if missing:
        message = (
            f"ab.upgrade: {', '.join(missing)}: Spark has written it, but it is not there: the "
            "checkpoint must be on a disk that Spark's machines and this one share"
        )
        raise UsageError(message)
    before = sum(one.live for one in former)
    # Without a column identities may become equal, and are remembered as one.
    fewer = job.reshape is not None and job.reshape.dropped and live <= before
    if before != live and not fewer:
        message = (
            f"ab.upgrade: {job.was} lanes remember {before} events, the {job.lanes} made of "
            f"them {live}; the run is unchanged; please report this"
        )
        raise StateError(message)
