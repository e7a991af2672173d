"""The merge of an inbox as one Spark query.

    names of new files → pack (read, route to lanes) → shuffle by lane → merge (state) → write

`prepare` looks at everything that can be known before Spark starts: what the files' footers
say, what the replicas declare, whether output and checkpoint belong together.  It raises
before a byte is written.  `start` runs the query; what it did so far is `MergeQuery.totals`,
and it may be stopped, killed and started again at any moment without losing or doubling a
row.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from anabranch.batch.schema import RESERVED, ElementSchema
from anabranch.errors import FileError, UsageError
from anabranch.model.properties import MergeCase, StreamProperties, cheapest
from anabranch.sources.files import Folder, Layout, Replica, look
from anabranch.spark import run as runs
from anabranch.spark.columns import canonical_schema, spark_schema
from anabranch.spark.failure import explain
from anabranch.spark.lane import Founder
from anabranch.spark.lanes import NAMES, PARCELS, InboxSpec, pack
from anabranch.spark.processor import MergeProcessor
from anabranch.spark.progress import Totals, read_totals
from anabranch.spark.write import LANE_ROWS, PROGRESS, write_trigger

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger(__name__)

COVERED: Final = (MergeCase.R0, MergeCase.R2, MergeCase.R3)
"""The cases that this merge is right for: each event has an identity of its own."""


@dataclass(frozen=True, kw_only=True)
class MergeSpec:
    """What to merge, and where to put it; `usual_lanes` is for a new run that asks for none."""

    inbox: Path
    output: Path
    checkpoint: Path
    lanes: int | None = None
    usual_lanes: int = 2
    case: str = "auto"
    schema: Path | None = None
    strict: bool = False
    assume_complete: bool = False


@dataclass(frozen=True)
class Prepared:
    """A merge that nothing speaks against; nothing is written yet."""

    spec: MergeSpec
    inbox: InboxSpec
    founders: tuple[Founder, ...]
    run: runs.Run
    is_new: bool


def prepare(spec: MergeSpec) -> Prepared:
    """Look at all that can be known before Spark starts; raise what speaks against it."""
    folder = look(spec.inbox, schema=spec.schema)
    _require_inbox(folder)
    _require_case(folder, spec.case)
    _require_apart(spec)
    found = runs.find(spec.output, spec.checkpoint)
    schema, raw = _schemas(folder)
    lanes = spec.lanes if spec.lanes is not None else found.lanes if found else spec.usual_lanes
    if lanes < 1:
        message = f"--lanes is {lanes}; a merge has at least one lane"
        raise UsageError(message)
    names = tuple(replica.name for replica in folder.replicas if replica.name is not None)
    run = runs.Run(
        run=found.run if found else runs.new_id(),
        inbox=str(spec.inbox.resolve()),
        lanes=lanes,
        time=schema.time.value,
        columns=tuple(f"{field.name}: {field.type}" for field in schema.payload),
        founders=found.founders if found else names,
    )
    if found:
        runs.require_same(found, run, spec.output)
        require_unchanged(spec.inbox, read_totals(spec.output / PROGRESS))
    inbox = InboxSpec(
        run.inbox,
        schema,
        raw,
        lanes,
        run.founders,
        assume_complete=spec.assume_complete,
        strict=spec.strict,
    )
    founders = tuple(_founder(replica) for replica in folder.replicas)
    return Prepared(spec, inbox, founders, run, is_new=found is None)


class MergeQuery:
    """A merge that runs; `totals` is what it has committed so far, also in earlier starts."""

    def __init__(self, prepared: Prepared, on_trigger: Callable[[Totals], None] | None) -> None:
        self._prepared = prepared
        self._on_trigger = on_trigger
        self._query: StreamingQuery | None = None
        self.totals = read_totals(prepared.spec.output / PROGRESS)

    def run(self, spark: "SparkSession", *, once: bool, interval: str) -> None:
        """Start the query."""
        lanes = self._prepared.inbox.lanes
        writer = _plan(spark, self._prepared).writeStream.foreachBatch(self._write)
        writer = writer.option(
            "checkpointLocation", str(self._prepared.spec.checkpoint.resolve())
        )
        writer = writer.queryName(f"anabranch-{self._prepared.run.run[:8]}")
        trigger = (
            writer.trigger(availableNow=True)
            if once
            else writer.trigger(processingTime=interval)
        )
        with _shuffled_into(spark, lanes):
            self._query = trigger.start()

    def _write(self, df: "DataFrame", trigger: int) -> None:
        spec = self._prepared.spec
        schema, lanes = self._prepared.inbox.schema, self._prepared.inbox.lanes
        records = write_trigger(
            df, trigger, output=spec.output.resolve(), schema=schema, lanes=lanes
        )
        if trigger < self.totals.next_trigger:  # run again: its records were replaced
            self.totals = read_totals(spec.output / PROGRESS)
        else:
            self.totals.add(records, trigger)
        if self._on_trigger is not None:
            self._on_trigger(self.totals)

    def wait(self, seconds: int | None = None) -> bool:
        """Wait for the end; False if it still runs.  A failure is raised in our words."""
        assert self._query is not None
        try:
            if seconds is None:
                self._query.awaitTermination()
                return True
            return bool(self._query.awaitTermination(seconds))
        except Exception as error:
            raise explain(error) from error

    def stop(self) -> None:
        """Stop after the trigger that runs now; a later start goes on from there."""
        if self._query is not None:
            self._query.stop()


def start(
    spark: "SparkSession",
    prepared: Prepared,
    *,
    once: bool,
    interval: str = "1 second",
    on_trigger: Callable[[Totals], None] | None = None,
) -> MergeQuery:
    """Run a prepared merge: `once` takes all there is and ends, else it runs until stopped."""
    if prepared.is_new:
        runs.record(prepared.run, prepared.spec.output, prepared.spec.checkpoint)
    query = MergeQuery(prepared, on_trigger)
    query.run(spark, once=once, interval=interval)
    return query


def require_unchanged(inbox: Path, totals: Totals) -> None:
    """Refuse an inbox in which a file that was read has changed: Spark would not see it."""
    for name, fact in totals.files.items():
        path = inbox / name
        if not path.exists():
            continue
        now = path.stat()
        if (now.st_size, now.st_mtime_ns // 1_000_000) != (fact["length"], fact["modified"]):
            message = (
                f"{path}: was read when it had {fact['length']} bytes and has been changed or "
                "replaced since; a file name is used once; put the new rows into a file with a "
                "new name and restore or remove this one"
            )
            raise FileError(message)


def _plan(spark: "SparkSession", prepared: Prepared) -> "DataFrame":
    inbox = prepared.inbox
    names = (
        spark.readStream.format("binaryFile")
        .schema(NAMES)
        .load(f"{_escaped(inbox.root)}/*")
        .select("path", "modificationTime", "length")
    )
    return (
        names.mapInArrow(pack(inbox), spark_schema(PARCELS))
        .groupBy("lane")
        .transformWithStateInPandas(
            MergeProcessor(inbox.schema, prepared.founders, strict=inbox.strict),
            outputStructType=LANE_ROWS,
            outputMode="append",
            timeMode="None",
        )
    )


def _founder(replica: Replica) -> Founder:
    note = replica.note
    if note is None:
        return Founder(str(replica.name))
    return Founder(str(replica.name), note.guarantee, max(1, note.attachment))


@contextmanager
def _shuffled_into(spark: "SparkSession", lanes: int) -> Iterator[None]:
    """A task for each lane, for a query that starts now; the session keeps its own setting."""
    name = "spark.sql.shuffle.partitions"
    before = spark.conf.get(name)
    spark.conf.set(name, str(lanes))
    try:
        yield
    finally:
        spark.conf.set(name, str(before))


def _escaped(path: str) -> str:
    """A path in which no character means anything to Hadoop's globs."""
    return "".join(f"\\{c}" if c in "*?[]{}\\" else c for c in path)


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
    for replica in folder.replicas:
        if replica.detached:
            message = (
                f"{replica.path}: is marked as detached (_detached); this version cannot "
                "detach a replica from a merge; move the folder away, or remove the mark"
            )
            raise UsageError(message)


def _require_case(folder: Folder, asked: str) -> None:
    """Refuse what R3 is not right for, as far as it is declared."""
    if asked != "auto" and MergeCase[asked.upper()] not in COVERED:
        message = _not_covered(f"--case {asked}", asked.upper())
        raise UsageError(message)
    for replica in folder.replicas:
        if replica.note is None or not replica.note.properties:
            continue
        where = f"{replica.path}/_replica.json"
        declared = cheapest(StreamProperties.from_dict(replica.note.properties, where=where))
        if declared not in COVERED:
            raise UsageError(
                _not_covered(f"{where} declares case {declared.name}", declared.name)
            )


def _not_covered(where: str, case: str) -> str:
    return (
        f"{where}: several events of one replica may have the same start and payload in case "
        f"{case}, and this version merges only streams where each has an identity of its own "
        "(R0, R2, R3); make the payload unique (add a number to it), and declare it as keyed"
    )


def _require_apart(spec: MergeSpec) -> None:
    """No two of the three folders may lie in one another."""
    named = {"INBOX": spec.inbox, "--output": spec.output, "--checkpoint": spec.checkpoint}
    places = {name: path.resolve() for name, path in named.items()}
    for one, a in places.items():
        for other, b in places.items():
            if one != other and a.is_relative_to(b):
                message = f"{one} {a} lies in {other} {b}; name three folders beside each other"
                raise UsageError(message)
