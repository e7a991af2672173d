"""A query that runs: one class for inboxes and DataFrames, from Python and the command line.

It holds the lock of its checkpoint, watches its inboxes, counts what each trigger did, detaches
the replicas that a policy expels, and ends with the query.  It may be stopped, killed and
started again at any moment without losing or doubling a row.
"""

import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from time import monotonic
from time import time as wall_clock
from typing import TYPE_CHECKING, Any

from anabranch.batch.times import instant_units, to_seconds
from anabranch.errors import UsageError
from anabranch.operators.merge.policy import Policy
from anabranch.spark.checkpoint import remote
from anabranch.spark.checkpoint.control_log import COMPACT_AT, FOLDER, ControlLog
from anabranch.spark.checkpoint.kafka import EndsNoted
from anabranch.spark.checkpoint.lease import BEAT, DriverLease
from anabranch.spark.checkpoint.lock import DriverLock
from anabranch.spark.checkpoint.run_record import last_begun, last_commit
from anabranch.spark.checkpoint.settings import Changed, change, last_change, with_violations
from anabranch.spark.duplicates import DuplicateWarner
from anabranch.spark.lane.stage import shuffled_into
from anabranch.spark.progress import LaneRecord, Totals
from anabranch.spark.query.clocked import warn_at_start
from anabranch.spark.query.merged import Merged
from anabranch.spark.query.sources import as_recorded
from anabranch.spark.run import ending
from anabranch.spark.run.budget import BudgetWarner
from anabranch.spark.run.follow import INTERVAL, Follower, require_shared_disk
from anabranch.spark.run.patience import Patience
from anabranch.spark.run.prepare import Prepared
from anabranch.spark.run.set_level import SetsLevel
from anabranch.spark.run.shares import ShareWarner
from anabranch.spark.run.ticks import INTERVAL as TICK
from anabranch.spark.run.ticks import Ticker, is_due, pause
from anabranch.spark.run.unread import Unread
from anabranch.spark.run.watch import InboxWatch, Poller, look_into
from anabranch.spark.run.write_trigger import TriggerWriter
from anabranch.spark.session import connect
from anabranch.spark.session.connect import is_connect
from anabranch.spark.warner import Warner
from anabranch.spark.write.records import SNAPSHOT_EVERY, Retention, read_totals, write_snapshot
from anabranch.spark.write.reports import local

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryProgress
    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger(__name__)

OnTrigger = Callable[[Totals], None]


class RunningQuery(SetsLevel):
    """A query that was started.

    `totals` counts every row that the run has committed, also in earlier starts; `late` is the
    folder of rows that were not merged.  `query` is Spark's own `StreamingQuery`.

    `awaitTermination`, `stop`, `isActive`, `name`, `status`, `lastProgress` and
    `recentProgress` are those of a PySpark `StreamingQuery`.  Its other members are left to
    `query`, because they would mean something else here (docs/decisions, names for work).
    """

    _hidden = "begin"

    def __init__(
        self,
        prepared: Prepared,
        writer: TriggerWriter,
        lock: DriverLock | DriverLease,
        on_trigger: OnTrigger | None,
        shares: ShareWarner,
        kept: Retention,
    ) -> None:
        self._prepared = prepared
        self._writer = writer
        self._lock = lock
        self._on_trigger = on_trigger
        self._control = prepared.control_log()
        self._pollers: list[Poller] = []
        self._follower: Follower | None = None
        self._shares, self._kept = shares, kept
        self._warner = Warner(prepared.merged.schema.time)
        self._budget = BudgetWarner(prepared.limit)
        self._duplicates = DuplicateWarner(prepared.merged.copies.keep_duplicates)
        home = prepared.home if prepared.run.positions else None
        self._ends = None if home is None else EndsNoted(home)
        self.query: StreamingQuery | None = None
        self.late = prepared.late
        self.changed: Changed | None = None
        """The last change of the policy that this process made."""
        self.totals = self._read_totals()
        self._patience = Patience(prepared.merged.asked.wait_wall)

    @property
    def run(self) -> str:
        """The id of the run."""
        return self._prepared.run.run

    def attach(self, replica: str, *, guarantee: int | datetime | None = None) -> None:
        """Attach a replica, attach it again, or give it another guarantee (None: complete).

        A replica of an inbox whose `_replica.json` has a guarantee keeps to that.
        """
        control = self._writable()
        if not self._prepared.has_frames and replica not in control.members:
            known = ", ".join(sorted(control.members))
            message = (
                f"attach: there is no replica '{replica}' to attach; the inboxes have {known}"
            )
            raise UsageError(message)
        if isinstance(guarantee, datetime):
            guarantee = instant_units(guarantee)
        control.attach(replica, guarantee)

    def detach(self, replica: str) -> None:
        """Detach a replica in all lanes at the next trigger; what it brought stays."""
        self._writable().detach(replica)

    def pass_over(self, replica: str) -> None:
        """Do not wait for a replica, from the next trigger on, until it has caught up.

        For a merge of copies with gaps, which otherwise waits for all of them.
        """
        self._writable().pass_over(replica)

    def pause(self, replica: str, *, source: str | None = None) -> None:
        """Declare that a replica, or one of its sources, sends nothing until `resume`.

        Its clock goes on without it; rows that it sends nevertheless are taken.
        """
        self._declare_paused(replica, source, paused=True)

    def resume(self, replica: str, *, source: str | None = None) -> None:
        """Declare that a replica, or one of its sources, is not paused any more."""
        self._declare_paused(replica, source, paused=False)

    def _declare_paused(self, replica: str, source: str | None, *, paused: bool) -> None:
        control, clocks = self._writable(), self._prepared.merged.copies.clocks
        if not any(one.serves(replica) for one in clocks):
            message = (
                f"pause, resume: no clock infers the stables of '{replica}': nothing to pause"
            )
            raise UsageError(message)
        pause(control, replica, source, paused=paused)

    def change(
        self,
        *,
        policy: str | Policy | None = None,
        gaps: bool | None = None,
        wait: str | int | None = None,
        wait_wall: str | None = None,
        remember: str | int | None = None,
    ) -> Changed | None:
        """Continue with another policy, gaps, wait or remember, from the next trigger.

        What is not named stays.  `wait_wall` takes effect immediately.  A policy with other
        `violations` is rejected here: that takes effect only at a start.

        Returns what changes; None: nothing.
        """
        self._writable()
        if wait_wall is not None:
            self._patience.limit = to_seconds(wait_wall, option="wait_wall")
        merged, run = self._prepared.merged, self._prepared.run
        if merged.hosted is not None or not isinstance(merged, Merged):
            message = f"{merged.call}: change() is for ab.merge; this run has no policy"
            raise UsageError(message)
        given = None if policy is None else with_violations(policy, Policy.parse(run.policy))
        asked = replace(merged.asked, policy=given, gaps=gaps, wait=wait, remember=remember)
        then = replace(merged, asked=asked).continued(run).policy
        self._prepared = replace(self._prepared, run=replace(run, policy=then))
        return self._change_settings()

    def _change_settings(self) -> Changed | None:
        """Write the policy that is asked for into the control log, if another one counts."""
        prepared, control = self._prepared, self._control
        if control is None or prepared.folder is None:
            return None
        run, folder = prepared.run, prepared.folder
        then = change(
            run,
            control,
            self.totals.log,
            begun=last_begun(folder, run),
            committed=last_commit(folder, run),
        )
        self._prepared = replace(prepared, run=then)
        self._prepared.record_settings()
        found = last_change(run, then)
        if found is not None:
            self.changed = found
            log.info("%s", found)
        return found

    def silent(self, after: str = "1 minute") -> list[str]:
        """The replicas that may send rows, and have sent none for this long, by the clock."""
        return self.totals.silent(wall_clock(), to_seconds(after, option="silent(after=)"))

    def wait(self, seconds: int | None = None) -> bool:
        """Wait for the end; False if it still runs.  A failure is raised in our words."""
        assert self.query is not None
        try:
            ended = ending.wait_for(self.query, seconds)
        except Exception:
            self._release()
            raise
        if ended:
            self._release()
        self._raise_failures()
        if ended:
            self._finish()
        return ended

    def awaitTermination(self, timeout: int | None = None) -> bool | None:  # noqa: N802
        """Wait for the end, as PySpark does; with a timeout in seconds: whether it ended.

        A failure is raised as an `AnabranchError`.
        """
        ended = self.wait(timeout)
        return None if timeout is None else ended

    @property
    def isActive(self) -> bool:  # noqa: N802
        """Whether the query runs."""
        return ending.is_active(self.query)

    @property
    def name(self) -> str:
        """The name in Spark's UI, "anabranch-" and the first digits of the run's id."""
        return f"anabranch-{self.run[:8]}"

    @property
    def status(self) -> dict[str, Any]:
        """What Spark is doing now: message, isDataAvailable, isTriggerActive."""
        assert self.query is not None
        return self.query.status

    @property
    def lastProgress(self) -> "StreamingQueryProgress | None":  # noqa: N802
        """Spark's report of the last trigger; `ab.progress` has the counts of the merge."""
        assert self.query is not None
        return self.query.lastProgress

    @property
    def recentProgress(self) -> "list[StreamingQueryProgress]":  # noqa: N802
        """Spark's reports of the latest triggers."""
        assert self.query is not None
        return self.query.recentProgress

    def stop(self) -> None:
        """Stop; a later start repeats a trigger that was not committed, and continues."""
        ending.stop(self.query)
        self._release()
        self._finish()

    def _release(self) -> None:
        """Stop the polling threads and release the lock."""
        for poller in self._pollers:
            poller.stop()
        self._lock.release()

    def _raise_failures(self) -> None:
        for poller in self._pollers:
            if poller.failure is not None:
                self._release()
                raise poller.failure

    def _finish(self) -> None:
        """Count what was written last; notify the sinks of what Spark has committed."""
        if self._follower is not None and all(one.failure is None for one in self._pollers):
            self._follower.look()
        self._note_ends(last=True)
        self._notify_committed()
        self._writer.publish()

    def _note_ends(self, *, last: bool = False) -> None:
        """Note how far Kafka's sources are: an upgrade needs all of their partitions."""
        if self._ends is not None:
            self._ends.note(self.query, last=last)

    def publish(self) -> None:
        """Publish now what Spark has committed, and count it; by itself that happens later.

        Files are published every `roll`.  On Connect, `totals` follow the query's records; they
        are up to date after this.
        """
        if self._follower is not None:
            self._follower.look()
        self._writer.roll(self._last_commit())
        self._writer.publish()

    def _notify_committed(self) -> None:
        last = self._last_commit()
        if last >= 0:
            self._writer.committed(last)

    def _last_commit(self) -> int:
        """The last trigger that Spark has committed; -1 if none, or not visible here."""
        folder, far = self._prepared.folder, self._prepared.far
        if folder is not None:
            return last_commit(folder, self._prepared.run)
        return -1 if far is None else remote.last_commit(far)

    def begin(
        self, spark: "SparkSession", *, once: bool, interval: str, complete: bool = False
    ) -> None:
        """Start Spark's query; called once, by `Prepared.start`."""
        remote = is_connect(spark)
        watches = self._prepared.watches(self._control)
        pause = to_seconds(interval, option="interval") if watches and not once else None
        copies = self._prepared.merged.copies
        if not complete:
            warn_at_start(copies.clocks, copies.beat, interval=None if once else interval)
        self._prepared.write_changes(self._control)
        self._change_settings()
        look_into(watches, complete=complete)
        if remote:
            self._require_reachable(spark, watches)
        self._writer.open(self.run)
        self._notify_committed()
        ticker = None if once else self._ticker()
        with as_recorded(spark, is_named=self._prepared.run.named):
            self.query = self._start_query(spark, once=once, interval=interval)
        self._lock.is_active = lambda: ending.is_active(self.query)
        if isinstance(self._lock, DriverLease):
            self._poll(self._lock.renew, BEAT)
        if self._follower is not None:
            self._poll(self._follower.look, INTERVAL)
        if pause is not None:
            self._poll(lambda: self._look(watches), pause)
        if not once and self._control is not None:
            self._poll(self._wait_no_longer, INTERVAL)
        if ticker is not None:
            self._poll(lambda: ticker.look(wall_clock(), self.totals), TICK)
        if self._writer.folders and self._prepared.folder is not None:
            self._poll(lambda: self._writer.roll(self._last_commit()), INTERVAL)

    def _ticker(self) -> Ticker | None:
        """What reads the clocks of DataFrames without rows; nothing is known of these yet."""
        copies = self._prepared.merged.copies
        if self._control is None or copies.stream is None:
            return None
        if not copies.clocks and not copies.stream.is_timed:
            return None
        ticks = copies.beat is None
        made = Ticker(self._control, copies.clocks, self._left_behind, ticks)
        made.begin({*copies.names, *self.totals.replicas})
        return made

    def _start_query(
        self, spark: "SparkSession", *, once: bool, interval: str
    ) -> "StreamingQuery":
        rows = self._prepared.rows(spark, self._writer)
        write = _written(self._writer) if is_connect(spark) else self._write
        stream = rows.writeStream.foreachBatch(write).queryName(self.name)
        stream = stream.option("checkpointLocation", self._prepared.spark_checkpoint)
        stream = (
            stream.trigger(availableNow=True)
            if once
            else stream.trigger(processingTime=interval)
        )
        with shuffled_into(spark, self._prepared.run.lanes):
            return connect.start(stream)

    def _look(self, watches: Sequence[InboxWatch]) -> None:
        if self._control is not None:
            look_into(watches, due=is_due(wall_clock(), self.totals, self._control))
            self._control.compact(at_least=COMPACT_AT)

    def _wait_no_longer(self) -> None:
        """Pass over the copies that have held the output back for too long, if it waits."""
        patience = self._patience
        if not Policy.parse(self._prepared.run.policy).gaps or math.isinf(patience.limit):
            return
        for name in patience.look(monotonic(), self.totals, self._unread):
            if self._control is None or not self._control.pass_over(name):
                continue
            log.warning(
                "replica '%s' has held the output back for %g seconds and is passed over: the "
                "output becomes final without it until it has caught up, and its rows behind "
                "the output's frontier are late",
                name,
                patience.limit,
            )

    def _left_behind(self) -> Unread | None:
        """The replicas of DataFrames of which the last trigger left rows; None: not known."""
        found = ending.reported(self.query)
        readers = self._prepared.merged.copies.readers(self.totals.replicas)
        return readers.unread(found) if found else None

    def _unread(self) -> set[str]:
        """The replicas of which rows wait to be read, or are read now, as far as is known."""
        members = {} if self._control is None else self._control.members
        found = {n for n, one in members.items() if one.last > self.totals.log}
        if ending.has_backlog(self.query):
            found |= {n for n in self.totals.replicas if n not in members}
            found |= {n for n, one in members.items() if one.inbox is None}
        return found

    def _poll(self, look: Callable[[], None], seconds: float) -> None:
        self._pollers.append(Poller(look, seconds, lambda: ending.stop(self.query)))

    def _require_reachable(self, spark: "SparkSession", watches: Sequence[InboxWatch]) -> None:
        """On Spark Connect: what the server writes must be visible here, and the reverse."""
        progress = local(self._writer.progress)
        if progress is not None:
            known = self._prepared.folder is not None
            following = self._last_commit() + 1 if known else self.totals.next_trigger
            committed = self._last_commit if known else lambda: math.inf
            self._follower = Follower(progress, following, self._take, committed)
        elif self._on_trigger is not None:
            message = (
                f"{self._where} is not a local path, and on Spark Connect on_trigger is called "
                "with the records there; leave it out, or use spark.streams.addListener"
            )
            raise UsageError(message)
        if watches and self._prepared.home is not None:
            require_shared_disk(spark, self._prepared.home / FOLDER)

    def _write(self, df: "DataFrame", batch: int) -> None:
        self._take(*self._writer.write(df, batch))

    def _take(self, records: list[LaneRecord], trigger: int) -> None:
        """Count what a trigger did, in the process that started the query.

        This is the one place where replicas are detached by policy: it has the control log.
        """
        self._detach({name for record in records for name in record.violators})
        if trigger == self._prepared.run.first_trigger + 2:
            self._prepared.remove_former()
        if trigger < self.totals.next_trigger:  # repeated: its records were replaced
            self.totals = self._read_totals()
        else:
            self._keep_totals()
            self.totals.add(records, trigger, at=wall_clock())
        self._note_ends()
        self._warner.warn(self.totals)
        self._duplicates.warn(self.totals)
        if self.totals.last is not None:
            self._shares.warn(self.totals.last)
            self._budget.warn(self.totals.last)
        if self._on_trigger is not None:
            self._on_trigger(self.totals)

    def _detach(self, violators: set[str]) -> None:
        if violators and self._control is None:
            log.warning("%s cannot be detached: the checkpoint is not a local path", violators)
        elif self._control is not None:
            for name in sorted(violators):
                self._control.detach(name)

    def _keep_totals(self) -> None:
        """Now and then a snapshot: a trigger begins when Spark has committed all before it."""
        progress = local(self._writer.progress)
        done = self.totals.next_trigger
        if progress is not None and done and done % SNAPSHOT_EVERY == 0:
            write_snapshot(progress, self.totals, self._kept, now=time.time())

    def _read_totals(self) -> Totals:
        progress, far = local(self._writer.progress), self._prepared.far
        if progress is not None:
            return read_totals(progress)
        return Totals() if far is None else remote.read_totals(far)

    @property
    def _where(self) -> str:
        return f"{self._prepared.merged.call}: the checkpoint {self._prepared.checkpoint}"

    def _writable(self) -> ControlLog:
        if self._control is None:
            message = (
                f"{self._where} is not a local path, and only there can replicas be attached "
                "and detached by hand"
            )
            raise UsageError(message)
        self._control.refresh()
        return self._control


def _written(writer: TriggerWriter) -> "Callable[[DataFrame, int], None]":
    """The function that a Connect server calls in its own process, without a result."""

    def write(df: "DataFrame", batch: int) -> None:
        writer.write(df, batch)

    return write
