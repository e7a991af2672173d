"""The merge of an inbox as one Spark query.

    control log → pack (read files, route to lanes) → shuffle by lane → merge (state) → write

`prepare` looks at everything that can be known before Spark starts: what the files' footers
say, what the replicas declare, whether output and checkpoint belong together.  It raises
before a byte is written.  `start` runs the query; what it did so far is `MergeQuery.totals`,
and it may be stopped, killed and started again at any moment without losing or doubling a
row.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import time as wall_clock
from typing import TYPE_CHECKING

import pyarrow as pa

from anabranch.batch.schema import RESERVED, ElementSchema
from anabranch.errors import FileError, UsageError
from anabranch.model.properties import MergeCase
from anabranch.operators.merge.choose import choose
from anabranch.operators.merge.policy import Policy
from anabranch.sources.files import Folder, Layout, look
from anabranch.sources.observed import declared
from anabranch.spark import run as runs
from anabranch.spark.columns import canonical_schema, spark_schema
from anabranch.spark.connect import is_connect
from anabranch.spark.control import ENTRIES, FOLDER, ControlLog, Inbox
from anabranch.spark.depot import Depot, depot_for
from anabranch.spark.direct import Direct, clear_staged
from anabranch.spark.ending import is_active, stop, wait_for
from anabranch.spark.follow import Follower, only_writing, waited
from anabranch.spark.inbox import InboxSpec, pack
from anabranch.spark.lane import LaneSpec
from anabranch.spark.lane_case import LaneCase
from anabranch.spark.lock import DriverLock
from anabranch.spark.parcels import PARCELS
from anabranch.spark.plan import escaped, in_lanes, shuffled_into
from anabranch.spark.poll import Poller
from anabranch.spark.progress import Record, Totals, Warner, read_totals
from anabranch.spark.receive import Order
from anabranch.spark.write import PROGRESS, shelves, write_trigger

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


@dataclass(frozen=True, kw_only=True)
class MergeSpec:
    """What to merge, and where to put it; `usual_lanes` is for a new run that asks for none.

    No policy: that of the run, or the default one.
    """

    inbox: Path
    output: Path
    checkpoint: Path
    lanes: int | None = None
    usual_lanes: int = 2
    case: str = "auto"
    policy: str | None = None
    gaps: bool = False
    schema: Path | None = None
    strict: bool = False
    assume_complete: bool = False


@dataclass(frozen=True)
class Prepared:
    """A merge that nothing speaks against; nothing is written yet."""

    spec: MergeSpec
    inbox: InboxSpec
    lane: LaneSpec
    run: runs.Run
    is_new: bool

    @property
    def control(self) -> Path:
        """Where the control log is."""
        return self.spec.checkpoint.resolve() / FOLDER

    @property
    def writer(self) -> "InboxWriter":
        """What happens at the end of a trigger."""
        return InboxWriter(self.spec.output.resolve(), self.lane.depot)

    def on(self, spark: "SparkSession") -> "Prepared":
        """The same, with the depot that this session permits."""
        depot = depot_for(spark, self.spec.checkpoint.resolve())
        inbox, lane = replace(self.inbox, depot=depot), replace(self.lane, depot=depot)
        return replace(self, inbox=inbox, lane=lane)


@dataclass(frozen=True)
class InboxWriter:
    """What happens at the end of a trigger; plain data, so that it may run elsewhere."""

    output: Path
    depot: Depot | None = None

    def write(self, df: "DataFrame", trigger: int) -> list[Record]:
        """Put what the lanes made into its place; returns their records."""
        records = write_trigger(df, trigger, output=self.output)
        if self.depot is not None:
            self.depot.clear()
        return records


def prepare(spec: MergeSpec) -> Prepared:
    """Look at all that can be known before Spark starts; raise what speaks against it."""
    folder = look(spec.inbox, schema=spec.schema)
    _require_inbox(folder)
    _require_apart(spec)
    found = runs.find(spec.output, spec.checkpoint)
    case = _case(folder, spec, found)
    schema, raw = _schemas(folder)
    lanes = spec.lanes if spec.lanes is not None else found.lanes if found else spec.usual_lanes
    require_lanes(lanes)
    run = runs.Run(
        run=found.run if found else runs.new_id(),
        inbox=str(spec.inbox.resolve()),
        lanes=lanes,
        case=case.name,
        time=schema.time.value,
        columns=tuple(f"{field.name}: {field.type}" for field in schema.payload),
        founders=found.founders if found else _founders(folder),
        policy=str(case.policy),
        format=found.format if found else runs.FORMAT,
    )
    if found:
        runs.require_same(found, run, spec.output)
    inbox = InboxSpec(run.inbox, schema, raw, lanes, by_start=case.by_start, strict=spec.strict)
    direct = Direct(shelves(spec.output.resolve(), schema, lanes), (PROGRESS,))
    lane = LaneSpec(run.run, lanes, case, Order(schema), strict=spec.strict, direct=direct)
    lane = replace(lane, in_frames=run.in_frames)
    prepared = Prepared(spec, inbox, lane, run, is_new=found is None)
    if found:
        look_at(prepared).require_unchanged()
    return prepared


def look_at(prepared: Prepared) -> Inbox:
    """The inbox beside its log."""
    log, run = ControlLog(prepared.control), prepared.run
    complete = prepared.spec.assume_complete
    return Inbox(Path(run.inbox), log, run.founders, assume_complete=complete)


class MergeQuery:
    """A merge that runs; `totals` is what it has committed so far, also in earlier starts."""

    def __init__(
        self,
        prepared: Prepared,
        lock: DriverLock,
        on_trigger: Callable[[Totals], None] | None,
    ) -> None:
        self._prepared = prepared
        self._lock = lock
        self._on_trigger = on_trigger
        self._inbox = look_at(prepared)
        self._query: StreamingQuery | None = None
        self._poller: Poller | None = None
        self._warner = Warner(prepared.inbox.schema.time)
        self._follower: Follower | None = None
        self.totals = read_totals(prepared.spec.output / PROGRESS)

    def run(self, spark: "SparkSession", *, once: bool, interval: str) -> None:
        """Start the query."""
        assert self._prepared.lane.direct is not None
        for shelf in self._prepared.lane.direct.shelves:
            clear_staged(Path(shelf.folder))
        self._prepared = self._prepared.on(spark)
        self._inbox.advance()
        remote = is_connect(spark)
        each = only_writing(self._prepared.writer) if remote else self._write
        writer = _plan(spark, self._prepared).writeStream.foreachBatch(each)
        writer = writer.option(
            "checkpointLocation", str(self._prepared.spec.checkpoint.resolve())
        )
        writer = writer.queryName(f"anabranch-{self._prepared.run.run[:8]}")
        trigger = (
            writer.trigger(availableNow=True)
            if once
            else writer.trigger(processingTime=interval)
        )
        with shuffled_into(spark, self._prepared.lane.lanes):
            self._query = trigger.start()
        self._lock.is_active = lambda: is_active(self._query)
        if remote:
            progress = self._prepared.spec.output / PROGRESS
            self._follower = Follower(progress, self.totals.next_trigger, self._take)
            self._follower.start(self._query.stop)
        if not once:
            self._poller = Poller(self._inbox.advance, interval)

    def _write(self, df: "DataFrame", trigger: int) -> None:
        self._take(self._prepared.writer.write(df, trigger), trigger)

    def _take(self, records: list[Record], trigger: int) -> None:
        """Count what a trigger did, where the merge was started; the guilty leave.

        Nobody else writes the control log of an inbox.
        """
        for name in sorted({name for record in records for name in record["guilty"]}):
            self._inbox.log.detach(name)
        if trigger < self.totals.next_trigger:  # run again: its records were replaced
            self.totals = read_totals(self._prepared.spec.output / PROGRESS)
        else:
            self.totals.add(records, trigger, at=wall_clock())
        self._warner.warn(self.totals)
        if self._on_trigger is not None:
            self._on_trigger(self.totals)

    def wait(self, seconds: int | None = None) -> bool:
        """Wait for the end; False if it still runs.  A failure is raised in our words."""
        assert self._query is not None
        if self._poller is not None:
            self._poller.raise_failure()
        query = self._query
        return waited(lambda: wait_for(query, self._lock, seconds), self._follower)

    def stop(self) -> None:
        """Stop after the trigger that runs now; a later start goes on from there."""
        if self._poller is not None:
            self._poller.stop()
        stop(self._query, self._lock)
        if self._follower is not None:
            self._follower.finish()


def start(
    spark: "SparkSession",
    prepared: Prepared,
    *,
    once: bool,
    interval: str = "1 second",
    on_trigger: Callable[[Totals], None] | None = None,
) -> MergeQuery:
    """Run a prepared merge: `once` takes all there is and ends, else it runs until stopped."""
    lock = DriverLock(prepared.spec.checkpoint.resolve())
    try:
        if prepared.is_new:
            runs.require_new(prepared.spec.checkpoint)
            runs.record(prepared.run, prepared.spec.output, prepared.spec.checkpoint)
        query = MergeQuery(prepared, lock, on_trigger)
        query.run(spark, once=once, interval=interval)
    except BaseException:
        lock.release()
        raise
    return query


def _plan(spark: "SparkSession", prepared: Prepared) -> "DataFrame":
    entries = spark.readStream.schema(ENTRIES).json(escaped(str(prepared.control)))
    parcels = entries.mapInArrow(partial(pack, prepared.inbox), spark_schema(PARCELS))
    return in_lanes(parcels, prepared.lane)


def require_lanes(lanes: int) -> None:
    """Refuse a number of lanes that cannot be."""
    if lanes < 1:
        message = f"--lanes is {lanes}; a merge has at least one lane"
        raise UsageError(message)


def _founders(folder: Folder) -> tuple[str, ...]:
    return tuple(str(one.name) for one in folder.replicas if not one.detached)


def _case(folder: Folder, spec: MergeSpec, found: runs.Run | None) -> LaneCase:
    """The case of a new run by what replicas declare; a run that goes on keeps its own."""
    policy = Policy.parse(spec.policy or (found.policy if found else "default"))
    asked = None if spec.case == "auto" else MergeCase(spec.case)
    known = declared(folder)
    if found is not None and asked is None:
        kept = LaneCase.named(found.case, policy)
        if kept.case is kept.first:
            choose(known, gaps_possible=spec.gaps, asked=kept.case)
        return kept
    return LaneCase.of(choose(known, gaps_possible=spec.gaps, asked=asked), policy)


def _schemas(folder: Folder) -> tuple[ElementSchema, pa.Schema]:
    """The elements' schema with payload types that Spark has, and the columns to read."""
    where = str(folder.path)
    found = folder.elements
    payload = canonical_schema(found.payload, where=where)
    schema = ElementSchema(found.time, payload, found.has_seq)
    reserved = [
        field for field in folder.schema if field.name in RESERVED and field.name != "replica"
    ]
    return schema, pa.schema([*reserved, *payload])


def _require_inbox(folder: Folder) -> None:
    if folder.layout is not Layout.INBOX:
        message = (
            f"{folder.path}: is a {folder.layout.value}, expected an inbox: one sub-folder of "
            "element files per replica; name the folder above, or put them into INBOX/NAME/"
        )
        raise FileError(message)


def _require_apart(spec: MergeSpec) -> None:
    """No two of the three folders may lie in one another."""
    named = {"INBOX": spec.inbox, "--output": spec.output, "--checkpoint": spec.checkpoint}
    places = {name: path.resolve() for name, path in named.items()}
    for one, a in places.items():
        for other, b in places.items():
            if one != other and a.is_relative_to(b):
                message = f"{one} {a} lies in {other} {b}; name three folders beside each other"
                raise UsageError(message)
