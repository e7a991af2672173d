"""A merge of DataFrames that runs: one query, several sinks, each trigger exactly once.

A sink that is a folder gets a sub-folder per trigger, replaced as a whole when the trigger is
run again.  A sink that is a function is called with the rows and the trigger's id, perhaps
again with both the same: whoever keys by the id writes exactly once.  Rows that were not merged
always have a place: `late`, or a folder in the checkpoint.

    CHECKPOINT/_run.json     what may not change: lanes, case, columns
    CHECKPOINT/control/      who attaches and detaches, in order
    CHECKPOINT/progress/     one record per trigger and lane
    CHECKPOINT/late/         what was not merged, unless there is another sink for it
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import time as wall_clock
from typing import TYPE_CHECKING, Final, TypeAlias

from anabranch.batch.schema import TimeType
from anabranch.errors import StateError, UsageError
from anabranch.sources.durations import to_units
from anabranch.spark import run as runs
from anabranch.spark.connect import is_connect
from anabranch.spark.control import ENTRIES, FOLDER, ControlLog
from anabranch.spark.depot import Depot, depot_for
from anabranch.spark.direct import Direct, clear_staged
from anabranch.spark.ending import is_active, stop, wait_for
from anabranch.spark.follow import Follower, only_writing, waited
from anabranch.spark.forms import LATE
from anabranch.spark.inbox import pack_control
from anabranch.spark.lane import LaneSpec
from anabranch.spark.lock import DriverLock
from anabranch.spark.plan import escaped, in_lanes, shuffled_into
from anabranch.spark.progress import Record, Totals, Warner, read_totals
from anabranch.spark.views import CHANGES, Views
from anabranch.spark.write import (
    ELEMENTS,
    FINAL,
    PROGRESS,
    VIOLATIONS,
    local,
    publish_all,
    read_records,
    write_records,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from anabranch.spark.merged import Merged

Sink: TypeAlias = "str | Path | Callable[[DataFrame, int], None]"

log = logging.getLogger(__name__)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_COUNTED: Final[Mapping[str, tuple[str, ...]]] = {
    ELEMENTS: (ELEMENTS,),
    CHANGES: (ELEMENTS,),
    FINAL: (FINAL,),
    LATE: (LATE, VIOLATIONS),
}


@dataclass(frozen=True)
class TriggerWriter:
    """What happens at the end of a trigger; plain data, so that it may run elsewhere."""

    views: Views
    sinks: Mapping[str, Sink]
    checkpoint: str
    control: Path | None
    depot: Depot | None = None

    def write(self, df: "DataFrame", trigger: int) -> list[Record]:
        """Give every sink its rows; then the record of the trigger."""
        others = {view: s for view, s in self.sinks.items() if direct_folder(s) is None}
        if others:
            df = df.persist()  # several sinks read it; the lanes must work once
        try:
            records = read_records(df.where(f"channel = '{PROGRESS}'") if others else df)
            publish_all(records, trigger)
            for view, sink in others.items():
                made = sum(r["output"][name] for r in records for name in _COUNTED[view])
                if made:
                    _give(self.views.of(view, df), trigger, sink)
            self._detach({name for record in records for name in record["guilty"]})
            write_records(df, records, f"{self.checkpoint}/{PROGRESS}/trigger-{trigger:012d}")
            if self.depot is not None:
                self.depot.clear()
        finally:
            if others:
                df.unpersist()
        return records

    def direct(self) -> Direct:
        """What the lanes write themselves, and what they hand on for other sinks."""
        shelves, travel = [], {PROGRESS: None}
        for view, sink in self.sinks.items():
            folder = direct_folder(sink)
            if folder is None:
                travel |= dict.fromkeys(self.views.channels(view))
            else:
                shelves.append(self.views.shelf(view, str(folder)))
        return Direct(tuple(shelves), tuple(travel))

    def _detach(self, guilty: set[str]) -> None:
        if not guilty:
            return
        if self.control is None:
            log.warning("%s cannot be detached: the checkpoint is no local path", guilty)
            return
        control = ControlLog(self.control, implied=True)
        for name in sorted(guilty):
            control.detach(name)


def direct_folder(sink: Sink) -> Path | None:
    """The folder of a sink that lanes can write; None if Spark must, or it is a function."""
    return None if callable(sink) else local(str(sink))


def _give(rows: "DataFrame", trigger: int, sink: Sink) -> None:
    if callable(sink):
        sink(rows, trigger)
    else:
        rows.write.mode("overwrite").parquet(f"{sink}/trigger-{trigger:012d}")


class StartedMerge:
    """A query that runs; `query` is Spark's own object, `late` where unmerged rows are kept."""

    def __init__(
        self,
        merged: "Merged",
        writer: TriggerWriter,
        on_trigger: Callable[[Totals], None] | None,
    ) -> None:
        self._merged = merged
        self._writer = writer
        self._on_trigger = on_trigger
        self._totals = Totals()
        self._warner = Warner(merged.schema.time)
        self._follower: Follower | None = None
        self.query: StreamingQuery | None = None
        self.lock: DriverLock | None = None
        self.late = writer.sinks[LATE]

    @property
    def totals(self) -> Totals:
        """What was committed so far; also in earlier starts, if the checkpoint is local."""
        folder = local(self._writer.checkpoint)
        return self._totals if folder is None else read_totals(folder / PROGRESS)

    def run(self, spec: LaneSpec, *, once: bool, interval: str) -> None:
        """Start the query."""
        spark = self._merged.stream.df.sparkSession
        parcels = self._merged.parcels(spec.depot)
        if self._writer.control is not None:
            entries = spark.readStream.schema(ENTRIES).json(escaped(str(self._writer.control)))
            parcels = parcels.union(pack_control(entries, spec.lanes))
        each, remote = self._each(), is_connect(spark)
        if remote:
            self._follower = self._follow()
            each = only_writing(self._writer)
        stream = in_lanes(parcels, spec).writeStream.foreachBatch(each)
        stream = stream.option("checkpointLocation", self._writer.checkpoint)
        stream = stream.queryName(f"anabranch-{spec.run[:8]}")
        started = (
            stream.trigger(availableNow=True)
            if once
            else stream.trigger(processingTime=interval)
        )
        with shuffled_into(spark, spec.lanes):
            self.query = started.start()
        if self.lock is not None:
            self.lock.is_active = lambda: is_active(self.query)
        if self._follower is not None:
            self._follower.start(self.query.stop)

    def _each(self) -> "Callable[[DataFrame, int], None]":
        def write(df: "DataFrame", trigger: int) -> None:
            self._take(self._writer.write(df, trigger), trigger)

        return write

    def _follow(self) -> Follower | None:
        """Where the writer runs elsewhere: the records, from where it puts them."""
        folder = local(self._writer.checkpoint)
        if folder is not None:
            written = read_totals(folder / PROGRESS).next_trigger
            return Follower(folder / PROGRESS, written, self._take)
        if self._on_trigger is not None:
            message = (
                f"ab.merge: the checkpoint {self._writer.checkpoint} is no local path, and on "
                "Spark Connect on_trigger is called with what is written there; leave it out, "
                "or use spark.streams.addListener"
            )
            raise UsageError(message)
        return None

    def _take(self, records: list[Record], trigger: int) -> None:
        """Count what a trigger did, where the merge was started."""
        totals = self._totals
        totals.add(records, trigger, at=wall_clock())
        self._warner.warn(totals)
        if self._on_trigger is not None:
            self._on_trigger(totals)

    def attach(self, replica: str, *, guarantee: int | datetime | None = None) -> None:
        """A replica comes, or comes back, or tells from when on it is complete (None: all)."""
        control = self._control()
        member = control.members.get(replica)
        number = member.attachment + member.detached if member else 1
        control.attach(replica, number, _units(guarantee))

    def detach(self, replica: str) -> None:
        """A replica leaves in all lanes at the next trigger; what it brought stays."""
        self._control().detach(replica)

    def silent(self, after: str = "1 minute") -> list[str]:
        """Who might speak, and has sent no row for so long, by the clock."""
        length = to_units(after, TimeType.TIMESTAMP, option="silent(after=)")
        return self.totals.silent(wall_clock(), length / 1_000_000)

    def _control(self) -> ControlLog:
        if self._writer.control is None:
            message = (
                f"ab.merge: the checkpoint {self._writer.checkpoint} is no local path, and "
                "only there can replicas be attached and detached by hand"
            )
            raise UsageError(message)
        return ControlLog(self._writer.control, implied=True)

    def wait(self, seconds: int | None = None) -> bool:
        """Wait for the end; False if it still runs.  A failure is raised in our words."""
        assert self.query is not None
        query = self.query
        return waited(lambda: wait_for(query, self.lock, seconds), self._follower)

    def stop(self) -> None:
        """Stop; a later start with the same checkpoint goes on from there."""
        stop(self.query, self.lock)
        if self._follower is not None:
            self._follower.finish()


def start(
    merged: "Merged",
    checkpoint: str,
    sinks: "Mapping[str, Sink | None]",
    *,
    once: bool,
    interval: str,
    on_trigger: Callable[[Totals], None] | None,
) -> StartedMerge:
    """Refuse what cannot go on; then start."""
    if not merged.stream.is_streaming:
        message = (
            "ab.merge: start() is for streaming DataFrames; these are batches: write a view, "
            "for instance merged.elements().write.parquet(PATH)"
        )
        raise UsageError(message)
    folder = local(checkpoint)
    place = checkpoint if folder is None else str(folder)
    given = {view: sink for view, sink in sinks.items() if sink is not None}
    given.setdefault(LATE, f"{place}/{LATE}")
    lock = None if folder is None else _lock(folder)
    try:
        run = _run(merged, folder, given)
        control = None if folder is None else folder / FOLDER
        if control is not None:
            control.mkdir(parents=True, exist_ok=True)
        depot = depot_for(merged.stream.df.sparkSession, folder)
        writer = TriggerWriter(merged.views, given, place, control, depot)
        direct = writer.direct()
        for shelf in direct.shelves:
            clear_staged(Path(shelf.folder))
        spec = replace(merged.spec, run=run.run, final=FINAL in given, direct=direct)
        spec = replace(spec, depot=depot, in_frames=run.in_frames)
        started = StartedMerge(merged, writer, on_trigger)
        started.lock = lock
        started.run(spec, once=once, interval=interval)
    except BaseException:
        if lock is not None:
            lock.release()
        raise
    return started


def _lock(folder: Path) -> DriverLock:
    """The right to drive a checkpoint of ours, or a new one."""
    if runs.read(folder) is None and not runs.is_unused(folder):
        message = f"{folder}: holds a checkpoint that ab.merge did not begin; name a new folder"
        raise StateError(message)
    return DriverLock(folder)


def _run(merged: "Merged", folder: Path | None, sinks: Mapping[str, Sink]) -> runs.Run:
    """The run of this checkpoint; recorded there, and in the sinks that are folders."""
    from anabranch.spark.merged import describe

    found = None if folder is None else runs.read(folder)
    number = found.run if found else merged.spec.run
    names = tuple(founder.name for founder in merged.spec.founders)
    written = found.format if found else runs.FORMAT
    fixed = describe(merged)
    wanted = runs.Run(run=number, inbox="", founders=names, format=written, **fixed)
    if found is not None and folder is not None:
        runs.require_same(found, wanted, folder)
        runs.require_written(folder, folder)  # the records of the triggers are there too
    outputs = [local(str(sink)) for sink in sinks.values() if not callable(sink)]
    for output in outputs:
        if output is not None and output.parent != folder:
            _require_own(output, wanted, is_new=found is None)
    for place in [*outputs, folder]:  # the checkpoint last: only then is it a run
        if place is not None and found is None:
            runs.write(wanted, place)
    return wanted


def _require_own(output: Path, wanted: runs.Run, *, is_new: bool) -> None:
    if is_new and runs.is_unused(output):
        return
    theirs = runs.read(output)
    used = output.exists() and any(output.iterdir())
    if (theirs is not None and theirs.run != wanted.run) or (theirs is None and used):
        message = (
            f"{output}: belongs to another run than the checkpoint; joined they would lose or "
            "double rows; name the folder it was started with, or a new one"
        )
        raise StateError(message)
    if theirs is None and not is_new:
        runs.write(wanted, output)


def _units(guarantee: int | datetime | None) -> int | None:
    if isinstance(guarantee, datetime):
        zoned = guarantee if guarantee.tzinfo else guarantee.replace(tzinfo=UTC)
        return (zoned - _EPOCH) // timedelta(microseconds=1)
    return guarantee
