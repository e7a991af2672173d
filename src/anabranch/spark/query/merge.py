"""`ab.merge`: copies of one stream into one; `ab.union`: all events of several streams.

Both take DataFrames and inboxes.

What a merge is made of is looked at when it is built: schemas that differ, times of two types,
a case that the replicas do not permit, batch beside streaming, all raise then and name the
column.  Nothing is read before a view is.

The same plan runs on batch and streaming input: pack, shuffle by lane, merge, unpack.  A batch
is one step; its history is that of the stream.  An inbox is read as the DataFrames beside it
are; by itself its views are batches of what is there, and `start` follows what comes.
"""

import logging
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from anabranch.batch.batch import FOREVER_UNITS
from anabranch.batch.schema import ElementSchema, TimeType
from anabranch.batch.times import to_seconds, to_units
from anabranch.errors import UsageError
from anabranch.model.properties import MergeCase
from anabranch.operators.contract import Operator, Route
from anabranch.operators.merge.choose import ORDERED, Choice, choose, explain_choice
from anabranch.operators.merge.merge import MergeOperator
from anabranch.operators.merge.policy import DEFAULT, Policy
from anabranch.operators.pipeline import PipelineStep, with_final
from anabranch.operators.route import Routing
from anabranch.operators.union import UnionOperator
from anabranch.sources.channels import CHANGES, ELEMENTS, FINAL, LATE, PROGRESS
from anabranch.sources.inbox import Inbox
from anabranch.spark.duplicates import DuplicateWarner, explain_duplicates
from anabranch.spark.frames import require_frame
from anabranch.spark.lane.receive import Order
from anabranch.spark.lane.spec import Founder, LaneSpec
from anabranch.spark.lane.stage import in_lanes, in_lanes_once
from anabranch.spark.pack.spill import Depot
from anabranch.spark.pack.streams import Stream, elements
from anabranch.spark.progress import LaneRecord, Totals
from anabranch.spark.query.control_log import ENTRIES, ControlLog
from anabranch.spark.query.copies import Copies, agree
from anabranch.spark.query.patience import WAIT_WALL
from anabranch.spark.query.prepare import Given, prepare
from anabranch.spark.query.run_record import Run, new_id
from anabranch.spark.query.shares import WARN_SHARE
from anabranch.spark.query.watch import InboxWatch
from anabranch.spark.session.host import TRIGGER_BYTES, cores, to_bytes
from anabranch.spark.session.start import session
from anabranch.spark.write.quarantine import Keeper
from anabranch.spark.write.views import Views

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from anabranch.spark.query.running import OnTrigger, RunningQuery

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What is asked of a merge; what is left out is the run's, or chosen for a new run.

    `wait` is a distance in application time, as people write it.  `wait_wall` are seconds.
    """

    case: MergeCase | None = None
    policy: Policy | None = None
    lanes: int | None = None
    usual_lanes: int = 1
    gaps: bool | None = None
    wait: str | int | None = None
    wait_wall: float = WAIT_WALL
    strict: bool = False
    assume_complete: bool = False

    def settle(self, time: TimeType, *, gaps: bool, kept: Policy | None = None) -> Policy:
        """The policy: what is asked, then what the run has; `gaps` is usual for the inputs."""
        base = self.policy or kept or DEFAULT
        if self.gaps is not None:
            gaps = self.gaps
        elif base is kept or base.gaps or self.case in ORDERED:
            gaps = base.gaps
        wait = base.wait if gaps else None
        if self.wait is not None:
            wait = to_units(str(self.wait), time, option="wait")
        return replace(base, gaps=gaps, wait=wait)


@dataclass(frozen=True)
class Hosted:
    """An operator that runs in the place of a merge, made for the columns of its inputs."""

    make: Callable[[ElementSchema], Operator]
    meaning: str


_ROUTES: Final = {Route.START: "start", Route.KEY: "key"}

UNION: Final = Hosted(UnionOperator, "union: all events of all inputs")


def merge(
    *inputs: "Stream | Inbox | DataFrame",
    case: str = "auto",
    policy: str | Policy | None = None,
    lanes: int | None = None,
    gaps: bool | None = None,
    wait: str | int | None = None,
    wait_wall: str = "5 minutes",
    replicas: Sequence[str] = (),
    assume_complete: bool = False,
    strict: bool = False,
    quarantine: str | Path | None = None,
) -> "Merged":
    """Merge copies of one stream: DataFrames, one with a `replica` column, `ab.inbox` folders.

    `gaps`: the output has an event if any copy has it when the output's frontier passes its
    start, so the frontier waits for the slowest copy; at most `wait` behind the fastest, in
    application time, and at most `wait_wall` by the clock for a copy that makes no progress.
    Without gaps the copy that is furthest decides.  The default is True for plain rows
    (`ab.events`) and batches, else False.

    A DataFrame is taken as `ab.elements(df)`, and called as `name=` says, else by its position;
    the replicas of an inbox are called as their folders.  `replicas` are copies of a column
    that are known to take part before their first row; one that appears after the first
    trigger is `joining` unless `assume_complete`.  `strict` fails at the first row that would
    be kept apart as a violation.  `quarantine` is where views that are started by themselves
    keep what was not merged.  Case, policy and lanes that are not named are those of the run
    that is continued.
    """
    made = _streams(inputs, "ab.merge")
    asked = Asked(
        case=None if case == "auto" else MergeCase(_case_name(case)),
        policy=Policy.parse(policy) if isinstance(policy, str) else policy,
        lanes=lanes,
        usual_lanes=cores(),
        gaps=gaps,
        wait=wait,
        wait_wall=to_seconds(wait_wall, option="wait_wall"),
        strict=strict,
        assume_complete=assume_complete,
    )
    merged = build(made, asked, replicas=replicas, quarantine=quarantine)
    merged.operator  # noqa: B018  raises now if the policy does not fit
    if not merged.copies.has_stables:
        _warn_endless()
    return merged


def union(
    *inputs: "Stream | Inbox | DataFrame",
    lanes: int | None = None,
    replicas: Sequence[str] = (),
    strict: bool = False,
    quarantine: str | Path | None = None,
) -> "Merged":
    """All events of all inputs in one stream; its frontier is the least of theirs.

    Two equal events of two inputs are two.  An input that is slow or silent holds the frontier
    back until it is detached.  One that attaches later adds what starts at the output's
    frontier or after it; its other rows are late.  The arguments are those of `ab.merge`.
    """
    made = _streams(inputs, "ab.union")
    asked = Asked(lanes=lanes, usual_lanes=cores(), strict=strict)
    built = build(made, asked, replicas=replicas, quarantine=quarantine)
    return replace(built, hosted=UNION)


def build(
    inputs: Sequence[Stream | Inbox],
    asked: Asked,
    *,
    replicas: Sequence[str] = (),
    quarantine: str | Path | None = None,
) -> "Merged":
    """The merge of these inputs, if they agree and permit what is asked."""
    copies = agree(inputs, replicas)
    copies.require_case(asked.case)
    policy = asked.settle(copies.schema.time, gaps=copies.may_have_gaps)
    choice = choose(copies.declared, gaps_possible=policy.gaps, asked=asked.case)
    lanes = asked.usual_lanes if asked.lanes is None else asked.lanes
    if lanes < 1:
        message = f"lanes is {lanes}; a merge has at least one lane"
        raise UsageError(message)
    place = None if quarantine is None else str(quarantine)
    return Merged(copies, asked, choice, lanes, new_id(), place)


def _streams(
    inputs: "Sequence[Stream | Inbox | DataFrame]", where: str
) -> list[Stream | Inbox]:
    made: list[Stream | Inbox] = []
    for at, one in enumerate(inputs):
        if isinstance(one, Stream | Inbox):
            made.append(one)
            continue
        require_frame(one, f"{where}: input {at}")
        made.append(elements(one))
    return made


def _waiting(asked: Asked) -> str:
    """For whom the output waits, and how long, in words."""
    limits = [] if asked.wait is None else [f"at most {asked.wait} behind the fastest"]
    if math.isfinite(asked.wait_wall):
        limits.append(f"at most {asked.wait_wall:g} s for one that makes no progress")
    return ", ".join(["; it is final where the slowest copy is", *limits])


def _case_name(case: str) -> str:
    if case not in [one.value for one in MergeCase]:
        message = f"ab.merge: case {case!r}; it is auto, r0, r1, r2, r3 or r4"
        raise UsageError(message)
    return case


def _warn_endless() -> None:
    warnings.warn(
        "ab.merge: these streams have no stables, so nothing becomes final and every event is "
        "remembered for ever; give progress as stables (ab.elements), or merge batches",
        UserWarning,
        stacklevel=3,
    )


@dataclass(frozen=True, eq=False)
class Merged:
    """A merge that is built, and not yet run; its views are DataFrames."""

    copies: Copies
    asked: Asked
    choice: Choice
    lanes: int
    id: str
    quarantine: str | None = None
    kept: MergeOperator | None = None
    """The operator of the run that is continued."""
    hosted: Hosted | None = None
    """The operator that the lanes run if it is not a merge of copies."""

    def elements(self) -> "DataFrame":
        """Elements with stables; sorted by `seq` they are a valid physical stream."""
        return self._view(ELEMENTS)

    def changes(self) -> "DataFrame":
        """Change rows: `_change_type` insert, delete, update_preimage, update_postimage."""
        return self._view(CHANGES)

    def final(self) -> "DataFrame":
        """Events that nothing can change any more, each once: for any sink that appends."""
        return self._view(FINAL)

    def late(self) -> "DataFrame":
        """What was not merged, with the reason: late rows, and rows that break a promise."""
        return self._view(LATE)

    @property
    def operator(self) -> Operator:
        """What the lanes run; a policy that the case does not support is rejected by name."""
        key = self.copies.key
        if key is None:
            return self._inner
        from anabranch.operators.keyed import KeyedOperator  # few queries need its kernels

        return KeyedOperator(self._inner, key)

    @property
    def _inner(self) -> Operator:
        """The operator that gets the rows, behind a key if there is one."""
        if self.hosted is not None:
            return self.hosted.make(self.schema)
        return self.kept or MergeOperator.of(self.schema, self.choice, self._asked_policy)

    @property
    def label(self) -> str:
        """What a run and its checkpoint record: the case of a merge, else the name."""
        operator = self._inner
        return operator.label if isinstance(operator, MergeOperator) else operator.name

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
    def waits_for(self) -> float | None:
        """So many seconds a copy may hold the output back; None: nobody is waited for."""
        policy = Policy.parse(self.policy)
        return self.asked.wait_wall if policy.gaps else None

    @property
    def schema(self) -> ElementSchema:
        """The type of the times, and the payload columns."""
        return self.copies.schema

    @property
    def views(self) -> Views:
        """How the lanes' rows become DataFrames."""
        return Views(self.schema, self.lanes, is_ntz=self.copies.is_ntz)

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
        )

    @property
    def explanation(self) -> str:
        """The chosen case and why, lanes, order, what is remembered."""
        route = self.operator.route
        by_start, by = route is Route.START, _ROUTES.get(route, "start and payload")
        lines = [
            self.hosted.meaning if self.hosted else explain_choice(self.choice),
            f"lanes: {self.lanes}, by {by}; changed later by `anabranch upgrade`",
            f"order within a replica: {self.copies.ordered_by}",
            f"policy: {self.policy}",
        ]
        if Policy.parse(self.policy).gaps:
            streaming = self.copies.stream is None or self.copies.is_streaming
            waits = _waiting(self.asked) if streaming else ""
            lines.append(f"copies may have gaps: the output has what any of them has{waits}")
        lines += explain_duplicates(self.copies.key, plain=self.copies.are_plain)
        if by_start and self.lanes > 1:
            lines.append("the output is in the order of starts only with lanes=1")
        if not self.copies.has_stables:
            lines.append("no stables: nothing becomes final, every event is remembered")
        return "\n".join(lines)

    def explain(self) -> None:
        """Print the explanation."""
        print(self.explanation)

    def totals(self) -> Totals:
        """What becomes of each row of batches: the merge is run for it, and nothing written.

        Every row is in one bucket, per replica, and duplicates inside one copy are counted.
        """
        if self.copies.is_streaming:
            message = "ab.merge: totals() is for batches; of streams it is start(...).totals"
            raise UsageError(message)
        rows = in_lanes_once(self.parcels(self._entries()), self.spec())
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
    ) -> "RunningQuery":
        """ONE query, several sinks: a folder of Parquet files, or a function.

        A folder gets the rows of committed triggers, in one file for each, or with `roll` one
        for each such time: choose minutes for a query that runs for days.

        A function is called with a DataFrame and the trigger's id, perhaps again with both the
        same after a failure: key what it writes by the id.  `output` is a folder as the command
        line writes it, for `ab.read_output`: elements, late, violations, progress.  Without it
        what was not merged goes to `late`, or to a folder `late` in the checkpoint.
        `on_trigger` is called after every trigger with the totals of the run.  A warning is
        logged when more than `warn_share` of the rows are late, missing or violations.
        `max_bytes_per_trigger` bounds what a trigger takes of inboxes; DataFrames obey the
        options of their sources (`maxBytesPerTrigger`, `maxOffsetsPerTrigger`), and a trigger
        of them that is larger is warned of.
        """
        if self.copies.stream is not None and not self.copies.is_streaming:
            message = (
                "ab.merge: start() is for streaming DataFrames; these are batches: write a "
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
        return prepared.start(
            self.session,
            once=once,
            interval=interval,
            on_trigger=on_trigger,
            warn_share=warn_share,
        )

    @property
    def session(self) -> "SparkSession":
        """The session of the DataFrames; of inboxes alone the one that runs, or a new one."""
        stream = self.copies.stream
        return session() if stream is None else stream.df.sparkSession

    def continued(self, run: Run | None) -> "Merged":
        """The same merge as a run has it, in all that is not asked for."""
        if run is None:
            return self
        asked, before = self.asked, Policy.parse(run.policy)
        usual = self.copies.may_have_gaps
        policy = asked.settle(self.schema.time, gaps=usual, kept=before)
        lanes = asked.lanes or run.lanes
        is_merge = run.case in [case.value for case in MergeCase]
        if self.hosted is not None or not is_merge:  # compared with the run's record
            return replace(self, lanes=lanes)
        if asked.case is not None:
            kept = MergeOperator.of(self.schema, self.choice, policy)
            return replace(self, kept=kept, lanes=lanes)
        kept = MergeOperator.named(self.schema, run.case, policy)
        # Raises if what replicas declare does not permit it.
        choose(self.copies.declared, gaps_possible=policy.gaps, asked=kept.case)
        return replace(self, kept=kept, lanes=lanes)

    def watches(
        self, log: ControlLog, founders: Sequence[str], limit: int = TRIGGER_BYTES
    ) -> list[InboxWatch]:
        """What looks for new files and replicas in the inboxes."""
        taken, complete = frozenset(self.copies.names), self.asked.assume_complete
        return [
            InboxWatch(one.path, log, tuple(founders), complete, number, taken, limit)
            for number, one in enumerate(self.copies.inboxes)
        ]

    def parcels(
        self, entries: "DataFrame | None" = None, depot: Depot | None = None
    ) -> "DataFrame":
        """The rows of all replicas, packed for the lanes; only addresses, with a depot."""
        return self.copies.parcels(
            entries,
            self.lanes,
            Routing.of(self.operator),
            strict=self.asked.strict,
            depot=depot,
        )

    def _view(self, view: str) -> "DataFrame":
        spec = self.spec(final=view == FINAL)
        made = self.views.view(view)
        if not self.copies.is_streaming:
            return made.of(in_lanes_once(self.parcels(self._entries()), spec))
        if self.copies.inboxes:
            message = (
                f"ab.merge: {view}() of an inbox beside streaming DataFrames needs a "
                f"checkpoint for the log of its files: merged.start(CHECKPOINT, {view}=...)"
            )
            raise UsageError(message)
        keeper = None if view == LATE else self._keeper(view)
        return made.of(in_lanes(self.parcels(), spec), keeper)

    def _entries(self) -> "DataFrame | None":
        """All files that are in the inboxes now, as entries of a log that nobody keeps."""
        if not self.copies.inboxes:
            return None
        log = ControlLog(None)
        for watch in self.watches(log, self.copies.founders):
            watch.advance()
        rows = [tuple(asdict(entry).values()) for entry in log.entries]
        return self.session.createDataFrame(rows, ENTRIES)

    def _keeper(self, view: str) -> Keeper:
        folder = self.quarantine
        if folder is None:
            folder = str(Path("anabranch-quarantine", self.id).absolute())
        log.warning("the query of %s() keeps what is not merged in %s", view, folder)
        return Keeper(folder, self.schema)
