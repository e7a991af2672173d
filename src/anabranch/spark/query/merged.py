"""A merge or union that was validated and does not run yet: its views, its lanes, its start."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, overload

import pyarrow as pa

from anabranch.batch.batch import FOREVER_UNITS
from anabranch.batch.schema import ElementSchema, TimeType
from anabranch.batch.times import show_span, to_seconds
from anabranch.errors import UsageError
from anabranch.model.properties import MergeCase, StreamProperties
from anabranch.operators.abilities import label_of
from anabranch.operators.contract import Operator, Route
from anabranch.operators.merge.choose import Choice, choose, explain_choice
from anabranch.operators.merge.merge import MergeOperator
from anabranch.operators.merge.policy import DEFAULT, Policy
from anabranch.operators.pipeline import PipelineStep, with_final
from anabranch.operators.route import Routing
from anabranch.operators.union import UnionOperator
from anabranch.plan.node import Node, Source
from anabranch.plan.properties import unordered
from anabranch.sources.channels import CHANGES, ELEMENTS, FINAL, LATE, PROGRESS
from anabranch.spark.checkpoint.control_log import ENTRIES, ControlLog
from anabranch.spark.checkpoint.run_record import Run
from anabranch.spark.duplicates import DuplicateWarner, explain_duplicates
from anabranch.spark.lane.receive import Order
from anabranch.spark.lane.spec import Founder, LaneSpec, staged
from anabranch.spark.lane.stage import Natives, in_lanes, in_lanes_once
from anabranch.spark.pack.spill import Depot
from anabranch.spark.progress import LaneRecord, Totals
from anabranch.spark.query.asked import Asked
from anabranch.spark.query.copies import MERGE, Copies
from anabranch.spark.query.endless import warn_endless
from anabranch.spark.query.fluent import Fluent
from anabranch.spark.query.levels import aligned
from anabranch.spark.run.prepare import Given, prepare
from anabranch.spark.run.shares import WARN_SHARE
from anabranch.spark.run.watch import InboxWatch
from anabranch.spark.session.host import TRIGGER_BYTES, to_bytes
from anabranch.spark.session.start import session
from anabranch.spark.write.quarantine import keeper_of
from anabranch.spark.write.records import KEPT
from anabranch.spark.write.views import Views

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from anabranch.spark.query.query import Query
    from anabranch.spark.run.running import OnTrigger, RunningQuery


@dataclass(frozen=True)
class Hosted:
    """An operator that runs in the place of a merge, made for the columns of its inputs."""

    make: Callable[[ElementSchema], Operator]
    meaning: str
    call: str


QUERY: Final = "query"
"""What errors call a query of one stream."""
UNION_OF_INSERTS: Final = Hosted(
    partial(UnionOperator, insert_only=True), "one stream of plain rows", QUERY
)
"""Plain rows: nothing but the frontier is remembered."""
_ROUTES: Final = {Route.START: "start", Route.KEY: "key"}


@dataclass(frozen=True, eq=False)
class Merged(Fluent):
    """A validated merge or union that does not run yet; the result of `ab.merge`.

    Its views (`elements`, `changes`, `final`, `late`) are DataFrames; `start` runs one query
    with several sinks.
    """

    _hidden = (
        "as_source asked batch_entries began call choice continued copies hosted id is_aligned "
        "kept label natives operator parcels payload quarantine session source spec stages "
        "steps views watches"
    )
    copies: Copies
    asked: Asked
    choice: Choice
    lanes: int
    id: str
    quarantine: str | None = None
    kept: MergeOperator | None = None
    """The operator of the run that is continued, with the policy that is to count."""
    began: Policy | None = None
    """The policy that this run's lanes began with."""
    hosted: Hosted | None = None
    """The operator that the lanes run if it is not a merge of copies."""
    is_aligned: bool = False
    """Whether events are released in the order of their starts."""

    @cached_property
    def _node(self) -> Node:
        if self.is_aligned:
            message = f"{self.call}: align() is the last step; add other steps before it"
            raise UsageError(message)
        return replace(self.source(self._inner.name), renamed=self.source, has_word=True)

    def source(self, name: str) -> Source:
        """The merge as the source of a query, called `name` there."""
        routing = Routing.of(self.operator)
        return Source(
            name,
            self,
            replace(self.schema, has_seq=False, has_replica=False),
            routing,
            self.label,
            may_follow=routing.by is Route.IDENTITY,
            final_at_start=self.copies.ends_are_known,
            properties=self._promised,
            may_drop=bool(self.copies.clocks) or Policy.parse(self.policy).gaps,
        )

    @property
    def _promised(self) -> StreamProperties:
        """What a lane of the output promises, for what is declared of the inputs."""
        copies = self.copies
        declared = [one or StreamProperties() for one in copies.declared.values()]
        if copies.are_plain:
            declared = [replace(one, insert_only=True) for one in declared]
        stream = copies.stream
        more_may_come = copies.inboxes or stream is None or not stream.copies
        known = self.operator.properties(*declared, *(declared if more_may_come else ()))
        # The rows of a stream that no merge compares are in an order of Spark's.
        return unordered(known) if self.hosted else known

    @overload
    def align(self) -> "Merged": ...

    @overload
    def align(
        self,
        *,
        wait: str | int | None = None,
        wait_wall: str | None = None,
        release: str = "ordered",
        id: str | None = None,
    ) -> "Query": ...

    def align(self, **waits: Any) -> "Merged | Query":
        """The same with its events in the order of their starts.

        An event is held back until the frontier has passed its start.  Inserts are in the order
        of starts within a trigger and over triggers: in `elements` and `changes` by `seq`, in
        files and DataFrames as the rows come.  If all events last equally long, `final` has the
        same order.  The events of all lanes pass one lane that sorts them.

        With options it is a step, as `Query.align`: other steps may follow.
        """
        if waits:
            return aligned(self, **waits)
        return replace(self, is_aligned=True)

    def elements(self) -> "DataFrame":
        """The merged stream in the element format; sort by `seq` to read it in order.

        The rows can be the input of another merge, through `ab.elements`.
        """
        return self._view(ELEMENTS)

    def changes(self) -> "DataFrame":
        """Change rows: `_change_type` is insert, delete, update_preimage, update_postimage."""
        return self._view(CHANGES)

    def final(self) -> "DataFrame":
        """Final events, each once: append-only, for any sink."""
        return self._view(FINAL)

    def late(self) -> "DataFrame":
        """Rows that were not merged, with the reason: late rows and violations."""
        return self._view(LATE)

    @property
    def operator(self) -> Operator:
        """What the lanes run; a policy that the case does not support is rejected by name."""
        key = self.copies.key
        if key is None:
            return self._inner
        from anabranch.operators.by_key.keyed import (
            KeyedOperator,  # few queries need its kernels
        )

        return KeyedOperator(self._inner, key)

    @property
    def _inner(self) -> Operator:
        """The operator that gets the rows, after a key if there is one."""
        if self.hosted is not None:
            return self.hosted.make(self.schema)
        known = self.copies.ends_are_known
        if self.kept is None:
            made = MergeOperator.of(self.schema, self.choice, self._asked_policy)
            return replace(made, final_at_start=known)
        began = self.began or self.kept.policy
        policy = replace(began, violations=self.kept.policy.violations)
        return replace(self.kept, policy=policy, final_at_start=known)

    @property
    def call(self) -> str:
        """The call that made it, as errors name it."""
        return MERGE if self.hosted is None else self.hosted.call

    @property
    def label(self) -> str:
        """What a run and its checkpoint record: the case of a merge, else the name."""
        return label_of(self._inner)

    @property
    def policy(self) -> str:
        """The policy as a run records it; other operators than a merge have no choices."""
        if self.hosted is not None:
            return str(DEFAULT)
        return str(self.kept.policy if self.kept else self._asked_policy)

    @property
    def _asked_policy(self) -> Policy:
        return self.asked.settle(self.schema.time, gaps=self.copies.may_have_gaps)

    @property
    def schema(self) -> ElementSchema:
        """The type of the times, and the payload columns."""
        return self.copies.schema

    @property
    def payload(self) -> pa.Schema:
        """The payload columns of the inputs, as a run records them."""
        return self.schema.payload

    @property
    def columns(self) -> tuple[str, ...]:
        """The same in words."""
        return tuple(f"{field.name}: {field.type}" for field in self.payload)

    @property
    def steps(self) -> tuple[str, ...]:
        """What a run records of the steps after the merge: there are none."""
        return ()

    def natives(self, depot: Depot | None) -> Natives:
        """What Spark changes between the stages: nothing."""
        del depot
        return {}

    @property
    def views(self) -> Views:
        """How the lanes' rows become DataFrames."""
        lanes = 1 if self.is_aligned else self.lanes
        return Views(self.schema, lanes, is_ntz=self.copies.is_ntz)

    def stages(self, *, final: bool = False, **more: Any) -> tuple[LaneSpec, ...]:
        """The lanes of the query, and `more` that they must know; align has a lane of its own.

        After a single lane it is a second step of that.
        """
        if not self.is_aligned:
            return (replace(self.spec(final=final), **more),)
        # Here, since only this needs its kernels.
        from anabranch.operators.align import AlignOperator

        first, schema = replace(self.spec(), **more, final=final), self._inner.output
        assert isinstance(schema, ElementSchema), f"{self.label} emits no elements"
        operator = AlignOperator(schema, final_at_start=self.copies.ends_are_known)
        align = (PipelineStep(operator.name, operator),)
        if self.lanes > 1:
            return staged(first, (with_final(align) if final else align, 1))
        both = (*first.pipeline, *align)
        return (replace(first, pipeline=with_final(both) if final else both),)

    def spec(self, *, final: bool = False) -> LaneSpec:
        """What every lane must know; `final`: it reports the events that become final."""
        newcomers = None if self.asked.assume_complete else int(FOREVER_UNITS)
        operator = self.operator
        key = self.copies.key
        detail = self.label if key is None else f"{self.label}, key {', '.join(key.names)}"
        pipeline = (PipelineStep(operator.name, operator, detail),)
        return LaneSpec(
            self.id,
            self.lanes,
            with_final(pipeline) if final else pipeline,
            Order(self.schema, self.copies.order, newcomers),
            tuple(Founder(name) for name in self.copies.names),
            strict=self.asked.strict,
            final=final,
            plain=self.copies.keep_duplicates,
            clocks=self.copies.clocks,
        )

    @property
    def explanation(self) -> str:
        """The chosen case and why, lanes, order, what is remembered."""
        route = self.operator.route
        by_start, by = route is Route.START, _ROUTES.get(route, "start and payload")
        lanes = f"lanes: {self.lanes}, by {by}; changed later by `anabranch upgrade`"
        lines = [lanes, *self.as_source.splitlines()]
        if by_start and self.lanes > 1 and not self.is_aligned:
            lines.append("the output is in the order of starts only with lanes=1")
        return "\n".join(lines)

    @property
    def as_source(self) -> str:
        """The same without its lanes: as the source of a query it has those of the query."""
        lines = [
            self.hosted.meaning if self.hosted else explain_choice(self.choice),
            f"order within a replica: {self.copies.ordered_by}",
            f"policy: {self.policy}",
        ]
        if Policy.parse(self.policy).gaps:
            streaming = self.copies.stream is None or self.copies.is_streaming
            waits = self.asked.explain_wait() if streaming else ""
            lines.append(f"copies may have gaps: the output has what any of them has{waits}")
        if (limit := Policy.parse(self.policy).remember) is not None and not self.hosted:
            far = show_span(limit) if self.schema.time is TimeType.TIMESTAMP else str(limit)
            lines.append(f"copies are recognised up to {far} behind the frontier (remember)")
        if self.is_aligned:
            lines.append("align: events in order of start, held until a stable passes them")
        lines += explain_duplicates(self.copies.key, plain=self.copies.are_plain)
        return "\n".join([*lines, *self.copies.explain_progress()])

    def explain(self) -> None:
        """Print the explanation."""
        print(self.explanation)

    def totals(self) -> Totals:
        """What becomes of each row of batches: the merge is run for it, and nothing written.

        Every row is in one bucket, per replica, and duplicates inside one copy are counted.
        """
        if self.copies.is_streaming:
            message = (
                f"{self.call}: totals() is for batches; of streams it is start(...).totals"
            )
            raise UsageError(message)
        rows = in_lanes_once(self.parcels(self.batch_entries()), *self.stages())
        found = rows.where(f"channel = '{PROGRESS}'").select("record").collect()
        totals = Totals()
        totals.add([LaneRecord.from_json(row.record) for row in found], 0)
        DuplicateWarner(self.copies.keep_duplicates).warn(totals)
        return totals

    def start(
        self,
        checkpoint: str | Path,
        *,
        output: str | Path | None = None,
        elements: "Given | None" = None,
        changes: "Given | None" = None,
        final: "Given | None" = None,
        late: "Given | None" = None,
        once: bool = False,
        interval: str = "1 second",
        roll: str = "0",
        max_bytes_per_trigger: str | int = TRIGGER_BYTES,
        on_trigger: "OnTrigger | None" = None,
        warn_share: float = WARN_SHARE,
        keep_progress: str | int = KEPT,
        complete: bool = False,
    ) -> "RunningQuery":
        """Start one query with one or several sinks.

        A sink is a folder of Parquet files, which gets the rows of committed triggers exactly
        once, or a function of a DataFrame and a trigger id.  After a failure a function may be
        called again with the same rows and the same id: make it idempotent by the id.

        Args:
            checkpoint: The folder of the query's state; start again with it to continue.
            output: A folder as `anabranch merge` writes it, for `ab.read_output`: elements,
                late, violations, progress.
            elements: The sink of the merged stream in the element format.
            changes: The sink of change rows.
            final: The sink of final events.
            late: The sink of rows that were not merged.  Default: `output`, or the folder
                `late` in the checkpoint.
            once: Read everything that is there, then stop.
            interval: The time between triggers, and between looks into inboxes.
            roll: How often a folder gets a new file; "0": after every trigger.  Use minutes
                for a query that runs for days.
            max_bytes_per_trigger: The upper bound for the rows of inboxes in one trigger.
                DataFrames follow the options of their sources (`maxBytesPerTrigger`,
                `maxOffsetsPerTrigger`); a larger trigger is logged as a warning.
            on_trigger: A function that is called after every trigger with the run's totals.
            warn_share: Log a warning if a greater share of the rows is late, missing or a
                violation.
            keep_progress: How many triggers' records of progress are kept, or for how long:
                "1000", "7 days", or both with a comma between them; checked every 100
                triggers.
            complete: With `once`, of inboxes: every replica ends with stable(FOREVER) after
                its last row, so that everything becomes final.  Later rows are violations.
        """
        if self.copies.stream is not None and not self.copies.is_streaming:
            message = (
                f"{self.call}: start() is for streaming DataFrames; these are batches: write a "
                "view, for instance merged.elements().write.parquet(PATH)"
            )
            raise UsageError(message)
        sinks = {ELEMENTS: elements, CHANGES: changes, FINAL: final, LATE: late}
        place = None if output is None else Path(output)
        seconds = to_seconds(roll, option="roll")
        limit = to_bytes(max_bytes_per_trigger, option="max_bytes_per_trigger")
        prepared = prepare(
            self, str(checkpoint), sinks, output=place, roll=seconds, limit=limit
        )
        if self.copies.stream is None and not self.copies.has_stables and not complete:
            warn_endless(self.call)
        return prepared.start(
            self.spark,
            once=once,
            interval=interval,
            on_trigger=on_trigger,
            warn_share=warn_share,
            keep_progress=keep_progress,
            complete=complete,
        )

    @property
    def spark(self) -> "SparkSession":
        """The session of the DataFrames; of inboxes alone the one that runs, or a new one."""
        stream = self.copies.stream
        return session() if stream is None else stream.df.sparkSession

    def continued(self, run: Run | None) -> "Merged":
        """The same merge as a run has it, in all that is not asked for."""
        made = replace(self, copies=self.copies.as_in(run))
        if run is None:
            return made
        made = replace(made, lanes=self.asked.lanes or run.lanes)
        is_merge = run.case in [case.value for case in MergeCase]
        if self.hosted is not None or not is_merge:  # compared with the run's record
            return made
        return replace(made, kept=made._kept(run), began=Policy.parse(run.settings[0][1]))

    def _kept(self, run: Run) -> MergeOperator:
        """The case of a run, with the policy that is asked for."""
        before, usual = Policy.parse(run.policy), self.copies.may_have_gaps
        policy = self.asked.settle(self.schema.time, gaps=usual, kept=before)
        if self.asked.case is not None:
            return MergeOperator.of(self.schema, self.choice, policy)
        kept = MergeOperator.named(self.schema, run.case, policy)
        # Raises if what replicas declare does not permit it.
        choose(self.copies.declared, gaps_possible=policy.gaps, asked=kept.case)
        return kept

    def watches(
        self, log: ControlLog, founders: Sequence[str], limit: int = TRIGGER_BYTES
    ) -> list[InboxWatch]:
        """What looks for new files and replicas in the inboxes."""
        taken = frozenset(self.copies.names)
        known = (log, tuple(founders), self.asked.assume_complete)
        return [
            InboxWatch(one.path, *known, number, taken, limit, one.plain, self.copies.clock)
            for number, one in enumerate(self.copies.inboxes)
        ]

    def parcels(self, entries: "DataFrame | None" = None, **how: Any) -> "DataFrame":
        """The rows of all replicas, packed for the lanes; only addresses, with a depot."""
        routing, strict = Routing.of(self.operator), self.asked.strict
        return self.copies.parcels(entries, self.lanes, routing, strict=strict, **how)

    def _view(self, view: str) -> "DataFrame":
        made, final = self.views.view(view), view == FINAL
        if not self.copies.is_streaming:
            rows = self.parcels(self.batch_entries())
            return made.of(in_lanes_once(rows, *self.stages(final=final)))
        if self.copies.inboxes:
            message = (
                f"{self.call}: {view}() of an inbox and streaming DataFrames needs a "
                f"checkpoint for the log of its files: merged.start(CHECKPOINT, {view}=...)"
            )
            raise UsageError(message)
        keeper = (
            None if view == LATE else keeper_of(view, self.quarantine, self.id, self.schema)
        )
        time = self.copies.ticking()
        stages = self.stages(final=final, notes=time.notes)
        return made.of(in_lanes(self.parcels(ticks=time.ticks), *stages), keeper)

    def batch_entries(self) -> "DataFrame | None":
        """All files that are in the inboxes now, as entries of a temporary control log."""
        if not self.copies.inboxes:
            return None
        self.copies.require_columns()
        log = ControlLog(None)
        for watch in self.watches(log, self.copies.founders):
            # A batch is complete, and no clock runs.
            replace(watch, clock=None).advance(complete=watch.plain is not None)
        rows = [tuple(asdict(entry).values()) for entry in log.entries]
        return self.spark.createDataFrame(rows, ENTRIES)
