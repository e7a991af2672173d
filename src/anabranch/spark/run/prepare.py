"""Validation and start of a query, in one way for all inputs.

`prepare` looks at everything that can be known before Spark starts: whether the folders belong
to one run, and whether lanes, case, policy and columns are those of the run.  It raises before
a byte is written.  A run keeps what it was started with: what a restart does not ask for is
taken from its record.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import permutations
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from anabranch.errors import StateError, UsageError
from anabranch.sinks.contract import Sink
from anabranch.sinks.folder import FolderSink
from anabranch.sinks.function import FunctionSink
from anabranch.sinks.published import Ledger, missing, tail_of
from anabranch.sources.channels import ELEMENTS, FINAL, LATE, PROGRESS, VIOLATIONS
from anabranch.spark.checkpoint import remote
from anabranch.spark.checkpoint import run_record as runs
from anabranch.spark.checkpoint.control_log import CONSUMED, ENTRIES, FOLDER, ControlLog
from anabranch.spark.checkpoint.generations import remove_former, restart_generation
from anabranch.spark.checkpoint.kafka import KafkaOffsets
from anabranch.spark.checkpoint.lease import DriverLease
from anabranch.spark.checkpoint.lock import FILE as LOCK
from anabranch.spark.checkpoint.lock import DriverLock
from anabranch.spark.checkpoint.settings import lasting, require_changeable, with_changes
from anabranch.spark.lane.exported import LANES
from anabranch.spark.lane.stage import escaped, in_lanes
from anabranch.spark.pack.rows import Resumed
from anabranch.spark.pack.spill import depot_for
from anabranch.spark.query import sources
from anabranch.spark.query.clocked import Ticking
from anabranch.spark.run.ending import stop
from anabranch.spark.run.shares import WARN_SHARE, ShareWarner
from anabranch.spark.run.watch import InboxWatch
from anabranch.spark.run.write_trigger import Outlet, TriggerWriter, UriSink
from anabranch.spark.session.host import TRIGGER_BYTES
from anabranch.spark.session.versions import require_release
from anabranch.spark.session.workers import start_workers
from anabranch.spark.write.records import KEPT, Retention
from anabranch.spark.write.reports import local

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from anabranch.spark.query.merged import Merged
    from anabranch.spark.query.planned import Planned
    from anabranch.spark.run.running import OnTrigger, RunningQuery

Plan: TypeAlias = "Merged | Planned"
"""What can be started: a merge or union, or a query over some."""

Given: TypeAlias = "str | Path | Callable[[DataFrame, int], None] | Sink"
"""What a user names as a sink: a folder (a path or URI), a function, or a sink of their own."""


LEDGERS: Final = "published"
"""The folder in a checkpoint with a ledger for each folder that the run writes."""

_SHOWN: Final = 5
"""The number of missing files that an error names."""


@dataclass(frozen=True)
class Folders:
    """What the folder sinks of a run have in common."""

    run: str
    checkpoint: Path | None
    roll: float

    def sink(self, path: str, name: str) -> FolderSink:
        """A folder, with a ledger of this name where the checkpoint is a local path."""
        if self.checkpoint is None:
            return FolderSink(path, self.run, None, self.roll)
        ledger = self.checkpoint / LEDGERS / f"{name}.json"
        return FolderSink(path, self.run, str(ledger), self.roll)


@dataclass(frozen=True, eq=False)
class Prepared:
    """A query that may start; nothing is written yet.

    `merged` has the lanes, the case and the policy of the run.  `checkpoint` is what the user
    named, `folder` the same as a local path.
    """

    merged: "Plan"
    run: runs.Run
    is_new: bool
    checkpoint: str
    folder: Path | None
    output: Path | None
    outlets: tuple[Outlet, ...]
    late: Given
    with_final: bool
    limit: int = TRIGGER_BYTES
    far: remote.RemoteFolder | None = None
    """The checkpoint, where only Spark reaches it."""

    @property
    def has_frames(self) -> bool:
        """Whether some replicas are DataFrames."""
        return self.merged.copies.stream is not None

    @property
    def home(self) -> Path | None:
        """The folder of the run's generation; None if it is not a local path."""
        return None if self.folder is None else runs.home(self.folder, self.run)

    @property
    def spark_checkpoint(self) -> str:
        """What Spark gets."""
        return self.checkpoint if self.home is None else str(self.home)

    @property
    def progress(self) -> str:
        """The folder of the records of the triggers."""
        return f"{self.output or self.checkpoint}/{PROGRESS}"

    @property
    def apart(self) -> dict[str, str]:
        """The folders of rows that were not merged, and the text on events left out."""
        if self.output is None:
            late = str(self.late) if isinstance(self.late, str | Path) else "the sink of late="
            kept = {LATE: late, VIOLATIONS: late}
        else:
            kept = {name: f"{self.output}/{name}" for name in (LATE, VIOLATIONS)}
        return {**kept, "missing": f"{kept[LATE]}, where other replicas' rows of them are"}

    def control_log(self) -> ControlLog | None:
        """The query's control log; None where the checkpoint is not a local path."""
        if self.home is None:
            return None
        (self.home / FOLDER).mkdir(parents=True, exist_ok=True)
        log = ControlLog(self.home / FOLDER, implied=self.has_frames)
        log.compact()
        return log

    def watches(self, log: ControlLog | None) -> list[InboxWatch]:
        """What looks for new files and replicas in the inboxes."""
        if log is None:
            return []
        return self.merged.watches(log, self.run.founders, self.limit)

    def rows(self, spark: "SparkSession", writer: TriggerWriter) -> "DataFrame":
        """What the lanes make, as a stream."""
        merged, entries = self.merged, None
        if self.home is not None:
            control = escaped(str(self.home / FOLDER))
            reader = sources.named(spark.readStream, is_named=self.run.named)
            reader = reader.schema(ENTRIES).option("cleanSource", "archive")
            reader = reader.option("sourceArchiveDir", str(self.home / CONSUMED))
            reader = reader.option("maxFilesPerTrigger", 1)
            entries = reader.json(control)
        known = {} if self.home is None else KafkaOffsets.read(self.home).consumed
        all_ = zip(self.run.replicas, self.run.attachments, strict=True)
        resumed = Resumed(known, {name: number for name, number in all_ if number > 1})
        time = merged.copies.ticking() if entries is None else Ticking()
        how = {"depot": writer.depot, "resumed": resumed, "ticks": time.ticks}
        parcels = merged.parcels(entries, **how)
        stages = merged.stages(
            final=self.with_final,
            run=self.run.run,
            first_trigger=self.run.first_trigger,
            exported=str(self.home / LANES) if self.home and self.run.generation else None,
            notes=time.notes,
            direct=writer.direct(),
            depot=writer.depot,
        )
        return in_lanes(parcels, *stages, natives=merged.natives(writer.depot))

    def start(
        self,
        spark: "SparkSession",
        *,
        once: bool = False,
        interval: str = "1 second",
        on_trigger: "OnTrigger | None" = None,
        warn_share: float = WARN_SHARE,
        keep_progress: str | int = KEPT,
        complete: bool = False,
    ) -> "RunningQuery":
        """Run it: `once` takes all there is and ends, else it runs until it is stopped.

        `complete`: what is there is all that the replicas of inboxes have.
        """
        from anabranch.spark.run.running import RunningQuery

        if complete:
            self.require_completable(once=once)
        require_release(spark)
        shares, kept = ShareWarner(warn_share, self.apart), Retention.parse(keep_progress)
        lock = self._lock()
        query = None
        try:
            start_workers(spark, self.run.lanes)
            self._record()
            if self.home is not None:
                restart_generation(self.home)
            self.remove_former()
            depot = depot_for(spark, self.folder)
            first = self.run.first_trigger
            writer = TriggerWriter(self.outlets, self.progress, depot, first)
            query = RunningQuery(self, writer, lock, on_trigger, shares, kept)
            query.begin(spark, once=once, interval=interval, complete=complete)
        except BaseException:
            stop(None if query is None else query.query)
            lock.release()
            raise
        return query

    def require_completable(self, *, once: bool) -> None:
        """Reject `complete` where replicas cannot be ended by us."""
        why = None
        if not once:
            why = "needs --once (once=True): a continuous run may still receive rows"
        elif self.has_frames or not self.merged.copies.inboxes:
            why = "is for inboxes alone; of a DataFrame, merge the batch (spark.read)"
        elif self.merged.schema.has_seq:
            why = (
                "is for files without a column seq; write a stable without a start as the last "
                "row of each replica"
            )
        if why is not None:
            message = f"--complete (complete=True of start) {why}"
            raise UsageError(message)

    def _lock(self) -> DriverLock | DriverLease:
        """The lock of the checkpoint; raises if another driver holds it."""
        if self.folder is not None:
            return DriverLock(self.folder)
        assert self.far is not None, f"{self.checkpoint} is neither local nor remote"
        return DriverLease(self.far)

    def _record(self) -> None:
        """Write the run into its folders, the checkpoint's last: only then is it a run."""
        if self.folder is not None and self.is_new:
            runs.require_new(self.folder)
        elif self.folder is not None:
            runs.require_current(self.folder, self.run)
        for folder in (*self.homes, self.folder):
            if folder is not None and (self.is_new or self._is_behind(folder)):
                runs.write(self.run, folder)
        if self.far is not None and self.is_new:
            remote.record(self.run, self.far)

    def _is_behind(self, folder: Path) -> bool:
        """Whether a folder lacks the run, its generation, or its DataFrames."""
        known = runs.read(folder)
        if known is None or known.generation < self.run.generation:
            return True
        changed = ("replicas", "attachments", "left", "clocks")
        return any(getattr(known, name) != getattr(self.run, name) for name in changed)

    def write_changes(self, log: ControlLog | None) -> None:
        """Attach and detach the DataFrames that came and went since the last start."""
        if log is not None and self.home is not None and self.run.named:
            complete = self.merged.asked.assume_complete
            sources.write_changes(self.run, log, self.home, complete=complete)

    def record_settings(self) -> None:
        """Write the run again where its settings are not recorded yet."""
        for folder in (*self.homes, self.folder):
            known = None if folder is None else runs.read(folder)
            if folder is not None and known is not None and known != self.run:
                runs.write(self.run, folder)

    def remove_former(self) -> None:
        """Remove what an upgrade left, as soon as nothing needs it any more."""
        if self.folder is not None:
            remove_former(self.folder, self.run)

    @property
    def homes(self) -> list[Path]:
        """The folders, other than the checkpoint, in which the run is recorded."""
        outside = [tail_of(folder) for folder in self.outside]
        return [self.output, *outside] if self.output else outside

    @property
    def outside(self) -> list[Path]:
        """The folders of sinks that are neither in the output nor in the checkpoint."""
        inside = (self.folder, self.output)
        return [sink.place for sink in self.folders if sink.place.parent not in inside]

    @property
    def folders(self) -> list[FolderSink]:
        """The sinks that are folders of ours."""
        sinks = (outlet.sink for outlet in self.outlets)
        return [sink for sink in sinks if isinstance(sink, FolderSink)]


def prepare(
    merged: "Plan",
    checkpoint: str,
    given: Mapping[str, "Given | None"],
    *,
    output: Path | None = None,
    roll: float = 0.0,
    limit: int = TRIGGER_BYTES,
) -> Prepared:
    """Check all that can be known before Spark starts; raise what is wrong.

    `roll` are the seconds between two published files of a folder, `limit` the bytes that a
    trigger takes of inboxes.
    """
    folder = local(checkpoint)
    _require_local(merged, checkpoint, folder, output)
    place = checkpoint if folder is None else str(folder)
    output = None if output is None else output.resolve()
    _require_apart(merged, folder, output)
    if folder is not None and (folder / LOCK).exists():
        DriverLock(folder).release()  # raises if another merge runs
    far = remote.RemoteFolder(merged.spark, place) if folder is None else None
    found = remote.find(far) if folder is None and far else runs.find(Path(place), output)
    log = None if found is None or folder is None else _log(folder, found)
    if found is not None and log is not None:
        found = with_changes(found, log)
    merged = merged.continued(found)
    run = _run(merged, found, has_output=output is not None)
    if found is not None:
        run = sources.changed(found, run, folder, output or place)
        run = _with_clocks(run, found, folder)
        if log is None:
            require_changeable(found, run, place)
    sinks: dict[str, Given] = {view: sink for view, sink in given.items() if sink is not None}
    if output is None:
        sinks.setdefault(LATE, f"{place}/{LATE}")
    outlets = _outlets(merged, Folders(run.run[:8], folder, roll), sinks, output)
    made = Prepared(
        merged,
        run,
        found is None,
        place,
        folder,
        output,
        outlets,
        sinks.get(LATE, f"{output}/{LATE}"),
        FINAL in sinks,
        limit,
        far,
    )
    _require_sinks(made, found)
    for watch in made.watches(log):
        watch.require_unchanged()
    return made


def _log(folder: Path, run: runs.Run) -> ControlLog:
    return ControlLog(runs.home(folder, run) / FOLDER)


def _run(merged: "Plan", found: runs.Run | None, *, has_output: bool) -> runs.Run:
    payload, copies = merged.payload, merged.copies
    plain = [one.plain for one in copies.inboxes]
    is_named = copies.stream is not None and sources.are_named(copies.stream)
    return runs.Run(
        run=found.run if found else runs.new_id(),
        lanes=merged.lanes,
        case=merged.label,
        time="timestamp_ntz" if copies.is_ntz else merged.schema.time.value,
        columns=merged.columns,
        steps=merged.steps,
        founders=found.founders if found else copies.founders,
        inboxes=tuple(str(one.path) for one in copies.inboxes),
        starts=tuple(one.start if one else "" for one in plain),
        ends=tuple(one.end or "" if one else "" for one in plain),
        lengths=tuple(one.length(merged.schema.time) if one else "" for one in plain),
        replicas=copies.frames,
        lifetimes=copies.lifetimes,
        order=copies.ordered_by,
        policy=merged.policy,
        settings=found.settings if found else ((0, lasting(merged.policy)),),
        has_output=has_output,
        positions=copies.stream is not None and copies.stream.has_positions,
        named=is_named,
        attachments=(1,) * len(copies.frames),
        sources=sources.names_of(copies.stream) if copies.stream and is_named else {},
        key=() if merged.copies.key is None else merged.copies.key.names,
        align="in order of start" if merged.is_aligned else "",
        payload=payload.serialize().to_pybytes().hex(),
        clocks=((0, copies.heartbeats),) if copies.heartbeats else (),
        **(_generation(found) if found else {}),
    )


def _with_clocks(run: runs.Run, found: runs.Run, folder: Path | None) -> runs.Run:
    """The run with how stables are inferred from the next trigger on, if that is news."""
    trigger = 1 + (-1 if folder is None else runs.last_begun(folder, found))
    before = found.clocks
    now = run.clocks[-1][1] if run.clocks else ""
    is_same = now == (before[-1][1] if before else "")
    return replace(run, clocks=before if is_same else (*before, (trigger, now)))


def _generation(found: runs.Run) -> dict[str, Any]:
    names = ("generation", "first_trigger", "begun", "added", "dropped")
    return {name: getattr(found, name) for name in names}


def _sink(given: "Given", folders: Folders, name: str) -> Sink:
    if isinstance(given, Sink):
        return given
    if isinstance(given, str | Path):
        folder = local(str(given))
        return UriSink(str(given)) if folder is None else folders.sink(str(folder), name)
    return FunctionSink(given)


def _outlets(
    merged: "Plan",
    folders: Folders,
    sinks: Mapping[str, "Given"],
    output: Path | None,
) -> tuple[Outlet, ...]:
    """What was named, then the output: the stream, late rows and violations apart."""
    made = [
        Outlet(merged.views.view(view), _sink(sink, folders, view))
        for view, sink in sinks.items()
    ]
    if output is not None:
        views = {ELEMENTS: merged.views.view(ELEMENTS)}
        views |= {name: merged.views.apart(name) for name in (LATE, VIOLATIONS)}
        made += [
            Outlet(view, folders.sink(str(output / name), f"output-{name}"))
            for name, view in views.items()
        ]
    return tuple(made)


def _require_sinks(made: Prepared, found: runs.Run | None) -> None:
    """Reject two sinks in one folder, a folder of another run, and one that lost files."""
    folders = [one.sink.folder for one in made.outlets if one.sink.folder is not None]
    for folder in folders:
        if folders.count(folder) > 1:
            message = (
                f"{made.merged.call}: two sinks have one folder, {folder}; name one for each"
            )
            raise UsageError(message)
    for outside in made.outside:
        runs.require_own(outside, found, made.folder)
    if found is not None and made.folder is not None:
        committed = runs.last_commit(made.folder, found)
        for sink in made.folders:
            _require_complete(sink, committed)


def _require_complete(sink: FolderSink, committed: int) -> None:
    """Reject a folder that lacks what the run has written there."""
    ledger = None if sink.ledger is None else Ledger.read(Path(sink.ledger))
    lost = [] if ledger is None else missing(sink.place, ledger, committed)
    if lost:
        shown = "; ".join(lost[:_SHOWN])
        more = f"; and {len(lost) - _SHOWN} more" if len(lost) > _SHOWN else ""
        message = (
            f"{sink.folder}: files that this run has written are not there: {shown}{more}; "
            "restore them, or name a new output and a new checkpoint: then all of the input is "
            "merged again"
        )
        raise StateError(message)


def _require_local(
    merged: "Plan", checkpoint: str, folder: Path | None, output: Path | None
) -> None:
    if output is not None and local(str(output)) is None:
        message = (
            f"{merged.call}: output={output} is not a local path, and an output needs files "
            "that are renamed at once: name a folder on a disk, or give elements= a function "
            "that writes there"
        )
        raise UsageError(message)
    what = "an inbox" if merged.copies.inboxes else "output=" if output is not None else None
    if folder is None and what is not None:
        message = (
            f"{merged.call}: the checkpoint {checkpoint} is not a local path, but {what} needs "
            "one: name a folder on a disk that all machines of the query share"
        )
        raise UsageError(message)


def _require_apart(merged: "Plan", folder: Path | None, output: Path | None) -> None:
    """No two of inbox, output and checkpoint may lie in one another."""
    places = [("inbox", one.path) for one in merged.copies.inboxes]
    places += [("output", output)] if output is not None else []
    places += [("checkpoint", folder)] if folder is not None else []
    for (one, a), (other, b) in permutations(places, 2):
        if a.is_relative_to(b):
            message = f"{one} {a} is inside {other} {b}; name separate folders"
            raise UsageError(message)
