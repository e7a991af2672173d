"""A query that was validated and does not run yet: its sources, its lanes, its start.

`Planned` is to a query what `Merged` is to a merge.  Every source enters through a `Merged`: a
merge of replicas, or one stream.  The plan is cut into stages (`anabranch.plan.stages`); the
first hosts the entries of all sources, and each stage sends its streams to the next.

Replicas of all sources have names of their own: names decide which source a row belongs to.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from anabranch.batch.schema import REPLICA, ElementSchema
from anabranch.errors import SchemaError, UsageError
from anabranch.operators.contract import Route
from anabranch.operators.pipeline import with_final
from anabranch.operators.route import Routing
from anabranch.operators.union_of import UnionOfOperator
from anabranch.operators.waiting.level import Level
from anabranch.plan.consistency import in_words, level_of, paced, placed, without_levels
from anabranch.plan.labels import Waiting, labels
from anabranch.plan.node import (
    Native,
    Node,
    Source,
    Step,
    base_of,
    nodes,
    reads_of,
    require_unique,
    rewritten,
    sources,
    with_names,
)
from anabranch.plan.replicas import settled
from anabranch.plan.stages import Send, Stage, placement, stages
from anabranch.sources.channels import FINAL, LATE
from anabranch.spark.checkpoint.control_log import ControlLog
from anabranch.spark.checkpoint.run_record import Run
from anabranch.spark.lane.native import Boundary, NativeStream
from anabranch.spark.lane.spec import Entry, Founder, LaneSpec, with_stables
from anabranch.spark.lane.stage import Natives, in_lanes, in_lanes_once
from anabranch.spark.pack.files import pack_control
from anabranch.spark.pack.rows import packed
from anabranch.spark.pack.spill import Depot
from anabranch.spark.query.copies import Copies
from anabranch.spark.query.laid_out import laid_out, pipeline_of
from anabranch.spark.query.merged import QUERY, UNION_OF_INSERTS, Hosted, Merged
from anabranch.spark.run.watch import InboxWatch
from anabranch.spark.session.host import TRIGGER_BYTES
from anabranch.spark.step_record import Described
from anabranch.spark.write.quarantine import keeper_of
from anabranch.spark.write.views import Views

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from anabranch.spark.query.asked import Asked


@dataclass(frozen=True, eq=False)
class Planned:
    """A plan, the entries of its sources by their ids, and the lanes of its stages."""

    last: Source | Step
    entries: tuple[tuple[str, Merged], ...]
    lanes: int
    id: str
    quarantine: str | None = None
    is_aligned: bool = False
    key: tuple[str, ...] = ()
    level: Level | None = None
    """How long it waits and remembers, if that was asked for."""

    @classmethod
    def of(cls, node: Node) -> "Planned":
        """The query that ends with this node."""
        level, plan = level_of(node), without_levels(node)
        plan = plan if level is None else placed(plan, level)
        last = with_names(_passed_on(plan) if isinstance(plan, Native) else plan)
        assert not isinstance(last, Native), f"{last.id} is not in lanes"
        require_unique(last)
        is_timed = any(one.needs_time for one in paced(last))
        entries = tuple((one.id, _timed(one.entry, is_timed)) for one in sources(last))
        _require_together(entries)
        main = entries[0][1]
        last = settled(last, main.lanes)
        made = cls(last, entries, main.lanes, main.id, main.quarantine, level=level)
        made.require_stables()
        return made

    def require_stables(self) -> None:
        """Reject a level that waits for stables where a stream has none."""
        if self.level is None or not self.level.needs_stables or self.level.makes_final:
            return
        endless = self.endless if self.copies.is_streaming else ()
        if endless:
            shown = in_words(self.level, self.main.schema.time)
            message = (
                f"consistency: the level '{shown}' waits for stables, and the stream "
                f"'{endless[0]}' has none; add heartbeats (ab.events(...).heartbeats), or give "
                "remember=, or choose consistency('middle')"
            )
            raise UsageError(message)

    @property
    def main(self) -> Merged:
        """The entry of the first source; what is asked for of the query is asked of it."""
        return self.entries[0][1]

    @property
    def asked(self) -> "Asked":
        """The options of the query."""
        return self.main.asked

    @property
    def hosted(self) -> Hosted | None:
        """Whether the query has no policy that could change while it runs."""
        single = len(self.entries) == 1
        return self.main.hosted if single else Hosted(_no_operator, "a query", QUERY)

    @property
    def call(self) -> str:
        """What errors call it."""
        return QUERY

    @property
    def is_endless(self) -> bool:
        """Whether a stream has nothing that makes events final; merges warn of their own."""
        return bool(self.endless) and any(
            one.call == QUERY and one.copies.is_endless for _, one in self.entries
        )

    @property
    def endless(self) -> tuple[str, ...]:
        """The sources of plain rows in a stream that nothing makes final, nor the level."""
        if self.level is not None and self.level.makes_final:
            return ()
        return tuple(name for name, entry in self.entries if entry.copies.is_endless)

    @cached_property
    def copies(self) -> Copies:
        """The replicas of all sources."""
        return several([(name, one.copies) for name, one in self.entries])

    @property
    def schema(self) -> ElementSchema:
        """The columns of the output."""
        return self.last.schema

    @property
    def payload(self) -> pa.Schema:
        """The payload columns of the first source, as a run records them."""
        return self.main.schema.payload

    @property
    def columns(self) -> tuple[str, ...]:
        """The payload columns of all sources in words."""
        if len(self.entries) == 1:
            return self.main.columns
        return tuple(f"{name}.{one}" for name, entry in self.entries for one in entry.columns)

    @property
    def label(self) -> str:
        """What a run records as its case."""
        return self.main.label if len(self.entries) == 1 else "query"

    @property
    def policy(self) -> str:
        """The policy of the one merge; several have the same ones for their whole life."""
        return self.main.policy

    @property
    def steps(self) -> tuple[str, ...]:
        """The steps of all stages, as a run records them."""
        steps = [
            f"stage {number}: {one.label}"
            for number, spec in enumerate(self.stages())
            for one in spec.pipeline
        ]
        natives = [
            f"stage {number}: {each.id} = {each.words}: {_types(each.schema.payload)}"
            for number, stage in enumerate(self._cut[0])
            for send in stage.sends
            if not _may_change(send)
            for each in send.natives
        ]
        return (*steps, *dict.fromkeys(natives))

    def keyed(self, key: "str | Sequence[str]") -> "Planned":
        """The same query with changes by this key."""
        names = (key,) if isinstance(key, str) else tuple(key)
        unknown = [name for name in names if name not in self.schema.payload.names]
        if unknown:
            message = (
                f"changes: there is no column '{unknown[0]}' for key=; the output has "
                f"{self.schema.payload.names}"
            )
            raise SchemaError(message)
        operator = self.last.operator if isinstance(self.last, Step) else None
        by = operator.route_columns if operator and operator.route is Route.KEY else None
        if by is None and (placed := placement(self.last)) and placed.by is Route.KEY:
            by = placed.columns  # such as a merge of replicas that group by these columns
        if names and self.lanes > 1 and (by is None or not set(by) <= set(names)):
            has = f"groups by {list(by)}" if by else "does not group by columns"
            message = (
                f"changes: key={list(names)}, and the last step {has}: the rows of one key are "
                "in several lanes. Give the columns of the last group_by, or use lanes=1"
            )
            raise UsageError(message)
        return replace(self, key=names)

    @property
    def views(self) -> Views:
        """How the lanes' rows become DataFrames."""
        return Views(self.schema, self.lanes, self.copies.is_ntz, self.apart_schema, self.key)

    @property
    def apart_schema(self) -> ElementSchema:
        """The columns of rows that were not taken: those of all sources, by name."""
        fields: dict[str, pa.Field] = {}
        for name, entry in self.entries:
            for one in entry.schema.payload:
                known = fields.setdefault(one.name, one)
                if known.type != one.type:
                    message = (
                        f"the sources of this query have columns '{one.name}' of types "
                        f"{known.type} and {one.type} ({name}), and late rows of all of them "
                        "are kept together; rename one of them (rename=, or select)"
                    )
                    raise SchemaError(message)
        return ElementSchema(self.main.schema.time, pa.schema(list(fields.values())))

    @property
    def spark(self) -> "SparkSession":
        """The session of the sources."""
        return self.main.spark

    def continued(self, run: Run | None) -> "Planned":
        """The same query as a run has it, in all that is not asked for."""
        entries = tuple((name, one.continued(run)) for name, one in self.entries)
        known = dict(entries)
        last = rewritten(self.last, lambda one: _entered(one, known))
        assert not isinstance(last, Native), f"{last.id} is not in lanes"
        made = replace(self, entries=entries, last=last)
        if run is None:
            return made
        lanes = self.asked.lanes or run.lanes
        return replace(made, lanes=lanes, last=settled(last, lanes))

    def watches(
        self, log: ControlLog, founders: Sequence[str], limit: int = TRIGGER_BYTES
    ) -> list[InboxWatch]:
        """What looks for new files and replicas in the inboxes of a query of one source."""
        return self.main.watches(log, founders, limit) if len(self.entries) == 1 else []

    @cached_property
    def _cut(self) -> tuple[tuple[Stage, ...], Mapping[str, Routing]]:
        return stages(self.last)

    def parcels(self, entries: "DataFrame | None" = None, **how: Any) -> "DataFrame":
        """The rows of all sources, packed for the lanes; only addresses, with a depot."""
        routings, strict = self._cut[1], self.asked.strict
        if len(self.entries) == 1:
            name, main = self.entries[0]
            return main.copies.parcels(
                entries, self.lanes, routings[name], strict=strict, **how
            )
        ticks = how.pop("ticks", None)
        made = [
            packed(entry.copies.stream, self.lanes, routings[name], strict=strict, **how)
            for name, entry in self.entries
            if entry.copies.stream is not None
        ]
        control = ticks if entries is None else entries
        if control is not None:
            stream = self.copies.stream
            is_timed = stream is not None and stream.needs_time
            made.append(pack_control(control, self.lanes, is_timed=is_timed))
        return reduce(lambda all_, one: all_.union(one), made)

    def stages(self, *, final: bool = False, **more: Any) -> tuple[LaneSpec, ...]:
        """The lanes of each stage, and `more` that they must know."""
        cut, _ = self._cut
        first = replace(self._first(cut[0]), described=self._described, **more)
        specs = laid_out(cut, first)
        if final:
            last = specs[-1]
            at_start = isinstance(self.last, Step) and self.last.final_at_start
            pipeline = with_final(last.pipeline, at_start=at_start)
            specs[-1] = replace(last, pipeline=pipeline, final=True)
        if cut[-1].holds_stables and self.lanes > 1:
            specs += with_stables(specs.pop(), UnionOfOperator(self.schema))
        return tuple(specs)

    @property
    def _described(self) -> Mapping[str, Described]:
        """What each step reads, and the sources that it waits for."""
        waits = labels(self.last, self.waiting)
        return {
            one.id: Described(
                tuple(base_of(read)[0].id for read in reads_of(one)), waits[one.id].sources
            )
            for one in nodes(self.last)
            if not isinstance(one, Native)
        }

    @property
    def waiting(self) -> Waiting:
        """Which sources the steps wait for."""
        return Waiting.OPERATOR

    def _first(self, stage: Stage) -> LaneSpec:
        """The first stage: the entries of all sources, and the steps beside them."""
        specs = [entry.spec() for _, entry in self.entries]
        alone = len(specs) == 1
        entries = tuple(
            Entry(name, spec.order, None if alone else frozenset(entry.copies.names))
            for spec, (name, entry) in zip(specs, self.entries, strict=True)
        )
        founders = tuple(Founder(name) for name in self.copies.names)
        return replace(
            specs[0],
            lanes=self.lanes,
            pipeline=pipeline_of(stage),
            founders=specs[0].founders if alone else founders,
            entries=entries,
            late=None if alone and not paced(self.last) else self.apart_schema,
            plain=self.copies.keep_duplicates,
            clocks=self.copies.clocks,
        )

    def natives(self, depot: Depot | None) -> Natives:
        """What Spark changes between the stages."""
        found: dict[int, Boundary] = {}
        for number, stage in enumerate(self._cut[0]):
            changed = tuple(
                NativeStream(
                    one.name,
                    one.natives[0].of.schema,
                    one.natives[-1].schema,
                    one.routing,
                    self.copies.is_ntz,
                    _Changes(tuple(each.change for each in one.natives)),
                    any(each.change.calls_python for each in one.natives),
                )
                for one in stage.sends
                if one.natives
            )
            if changed:
                found[number] = Boundary(changed, self.lanes, depot)
        return found

    def view(self, name: str) -> "DataFrame":
        """A view as a DataFrame."""
        made, final = self.views.view(name), name == FINAL
        natives = self.natives(None)
        if not self.copies.is_streaming:
            rows = self.parcels(self._batch_entries())
            return made.of(in_lanes_once(rows, *self.stages(final=final), natives=natives))
        if self.copies.inboxes:
            message = (
                f"{name}() of an inbox and streaming DataFrames needs a checkpoint for the log "
                f"of its files: query.start(CHECKPOINT, {name}=...)"
            )
            raise UsageError(message)
        keeper = (
            None
            if name == LATE
            else keeper_of(name, self.quarantine, self.id, self.apart_schema)
        )
        time = self.copies.ticking()
        specs = self.stages(final=final, notes=time.notes)
        rows = in_lanes(self.parcels(ticks=time.ticks), *specs, natives=natives)
        return made.of(rows, keeper)

    def _batch_entries(self) -> "DataFrame | None":
        return self.main.batch_entries() if len(self.entries) == 1 else None


@dataclass(frozen=True)
class _Changes:
    """What Spark does with the rows of a stream, one change after the other."""

    changes: tuple[Any, ...]

    def __call__(self, df: "DataFrame", others: str) -> "DataFrame":
        for one in self.changes:
            df = one(df, others)
        return df


def _may_change(send: Send) -> bool:
    """Whether a filter may be another after a restart.

    Only where rows are never corrected, and nothing before the filter remembers rows: else an
    adjust would meet an event that the old filter dropped.
    """
    base = send.natives[0].of if send.natives else None
    return isinstance(base, Source) and base.entry.hosted is UNION_OF_INSERTS


def _types(columns: pa.Schema) -> str:
    return ", ".join(f"{one.name} {one.type}" for one in columns)


def _passed_on(last: Native) -> Step:
    """A last step in lanes for a query that ends with a change of Spark's."""
    operator = UnionOfOperator(replace(last.schema, has_seq=False, has_replica=False))
    return Step("output", operator, (("input", last),), "output", last.final_at_start)


def _timed(entry: Merged, is_timed: bool) -> Merged:  # noqa: FBT001
    """The entry, whose rows come with the time of their trigger if a step waits by it."""
    stream = entry.copies.stream
    if stream is None or not is_timed:
        return entry
    copies = replace(entry.copies, stream=replace(stream, is_timed=True))
    return replace(entry, copies=copies)


def _entered(node: Node, entries: Mapping[str, Merged]) -> Node:
    """A source with the entry that goes on with its run."""
    return replace(node, entry=entries[node.id]) if isinstance(node, Source) else node


def _no_operator(schema: ElementSchema) -> Any:
    message = f"a query of several sources is no operator of {schema.payload.names}"
    raise UsageError(message)


def several(found: Sequence[tuple[str, Copies]]) -> Copies:
    """The replicas of several sources as one value; each is packed with its own columns."""
    if len(found) == 1:
        return found[0][1]
    streams = [one.stream for _, one in found if one.stream is not None]
    first = found[0][1]
    joined = replace(
        streams[0],
        copies=tuple(each for one in streams for each in one.copies),
        beating=tuple(each for one in streams for each in one.beating),
        heartbeat_words=tuple(each for one in streams for each in one.heartbeat_words),
        has_stables=all(one.has_stables for one in streams),
        is_plain=all(one.is_plain for one in streams),
        key=None,
    )
    return replace(
        first,
        stream=joined,
        names=tuple(name for _, one in found for name in one.names),
        declared={name: each for _, one in found for name, each in one.declared.items()},
        lifetimes=tuple(words for _, one in found for words in one.lifetimes),
    )


def _require_together(entries: Sequence[tuple[str, Merged]]) -> None:
    """Reject sources that one query cannot read together."""
    if len(entries) == 1:
        return
    times = {(one.schema.time.value, one.copies.is_ntz) for _, one in entries}
    if len(times) > 1:
        shown = ", ".join(f"{name}: {one.schema.time.value}" for name, one in entries)
        message = f"the sources of a query must have times of one type; got {shown}; cast them"
        raise SchemaError(message)
    kinds = {one.copies.is_streaming for _, one in entries}
    if len(kinds) > 1:
        batch = next(name for name, one in entries if not one.copies.is_streaming)
        message = (
            f"source '{batch}' is a batch beside streams; a stream does not wait for a table. "
            "Join the table to the rows before ab.events (df.join(table, ...)), or read its "
            "folder as a stream: ab.events(spark.readStream..., ...)"
        )
        raise UsageError(message)
    for name, one in entries:
        stream = one.copies.stream
        if stream is None or one.copies.inboxes or not one.copies.names:
            what = "an inbox" if one.copies.inboxes else f"a column '{REPLICA}'"
            message = (
                f"source '{name}' has {what}: in a query of several sources each replica has a "
                "DataFrame of its own; read the files with spark.readStream, or split by the "
                "column"
            )
            raise UsageError(message)
    names = [name for _, one in entries for name in one.copies.names]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        message = (
            f"two replicas of this query are called {', '.join(twice)}; give each stream its "
            "own name: ab.events(df, ..., name='trades')"
        )
        raise UsageError(message)
