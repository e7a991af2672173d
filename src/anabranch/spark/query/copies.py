"""The inputs of a merge: DataFrames and inboxes, validated as copies of one stream.

Every difference that a schema shows is an error when the merge is built: it names the inputs,
the column, and what to do.  Names of replicas are unique over all inputs.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import combinations
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from anabranch.batch.schema import REPLICA, RESERVED, ElementSchema, TimeType
from anabranch.clocks.clock import Clock
from anabranch.errors import SchemaError, UsageError
from anabranch.model.properties import MergeCase, StreamProperties
from anabranch.operators.key import Key
from anabranch.operators.merge.choose import ORDERED
from anabranch.operators.route import Routing
from anabranch.sources.files import Folder, Format
from anabranch.sources.inbox import Inbox
from anabranch.sources.jsontypes import is_same_but_for_fractions
from anabranch.spark.columns import canonical_schema, spark_schema
from anabranch.spark.frames import with_columns
from anabranch.spark.lane.heartbeats import LaneClock
from anabranch.spark.pack.beats import ARRIVAL
from anabranch.spark.pack.files import Files, FilesSpec, pack_control, pack_files, timed
from anabranch.spark.pack.heartbeats import Heartbeat
from anabranch.spark.pack.parcels import PARCELS
from anabranch.spark.pack.rows import NOTHING, Resumed, packed
from anabranch.spark.pack.spill import Depot
from anabranch.spark.query.clocked import (
    EVERY_REPLICA,
    Ticking,
    beat_of,
    explain,
    in_words,
    lane_clocks,
    ticking,
)
from anabranch.spark.query.streams import FROM_START, Stream
from anabranch.spark.run.unread import Readers
from anabranch.spark.session.host import slots

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from anabranch.spark.checkpoint.run_record import Run


MERGE: Final = "ab.merge"


@dataclass(frozen=True, eq=False)
class Copies:
    """All replicas of a merge: DataFrames as one `stream`, and inboxes.

    `names` are the replicas of DataFrames that are known before a row is read.  `schema` is
    that of one replica's elements, without the column `replica`.
    """

    stream: Stream | None
    names: tuple[str, ...]
    inboxes: tuple[Inbox, ...]
    schema: ElementSchema
    declared: dict[str, StreamProperties | None]
    lifetimes: tuple[str, ...] = ()
    """When the events of each DataFrame end, in words."""
    loose: tuple[str, ...] = ()
    """Columns that a file of an inbox may have or lack: they came or went with an upgrade."""
    beat: Heartbeat | None = None
    """How the stables of inboxes of plain rows are inferred."""

    @property
    def clock(self) -> Clock | None:
        """The clock of the inboxes."""
        return None if self.beat is None else self.beat.how.clock

    @property
    def is_streaming(self) -> bool:
        """Whether the DataFrames are streams; inboxes alone are read as batch and as stream."""
        return self.stream is not None and self.stream.is_streaming

    @property
    def is_ntz(self) -> bool:
        """Whether times have no zone."""
        return self.stream is not None and self.stream.is_ntz

    @property
    def has_stables(self) -> bool:
        """Whether some replica can make events final: not one of plain rows in a stream."""
        if self.beat or any(one.plain is None for one in self.inboxes):
            return True
        return self.stream is not None and self.stream.has_stables

    @property
    def is_endless(self) -> bool:
        """Whether DataFrames of plain rows have nothing that could make events final."""
        return self.stream is not None and not self.has_stables

    @property
    def ends_are_known(self) -> bool:
        """Whether all events last equally long, so that their starts have their ends."""
        spans = {words.partition(": ")[2] for words in self.lifetimes}
        unit = " microseconds" if self.schema.time is TimeType.TIMESTAMP else ""
        for plain in (one.plain for one in self.inboxes):
            fixed = plain is not None and plain.end is None
            spans.add(f"{plain.units}{unit} {FROM_START}" if plain and fixed else "")
        known = len(spans) == 1 and next(iter(spans)).endswith(FROM_START)
        return self.are_plain and known

    @property
    def clocks(self) -> tuple[LaneClock, ...]:
        """The clocks of plain rows."""
        return lane_clocks(self.stream, self.beat, self.names)

    def ticking(self) -> Ticking:
        """Ticks for a query of these copies that has no control log."""
        return ticking(self.stream, self.clocks)

    def readers(self, replicas: Collection[str]) -> Readers:
        """Which of these replicas Spark's sources are of."""
        frames = () if self.stream is None else tuple(name for name, _ in self.stream.copies)
        beating = {} if self.stream is None else dict(self.stream.beating)
        found = {name: beating.get(name, beating.get(None)) for name in frames or replicas}
        by = {name: how.by for name, how in found.items() if how and how.by}
        kafka = [name for name, columns in by.items() if {*columns} <= {*self.order}]
        return Readers(frames, replicas, kafka)

    @property
    def heartbeats(self) -> str:
        """How stables arise that no row has, in words; empty if all have their own."""
        return in_words(self.stream, self.beat)

    def explain_progress(self) -> list[str]:
        """Where stables come from, for `explain`, if not from the elements themselves."""
        found = explain(self.heartbeats, self.clocks)
        if not self.has_stables:
            unless = "" if self.stream else " unless complete=True ends the replicas"
            found.append(
                f"no stables: nothing becomes final{unless}, every event is remembered"
            )
        return found

    @property
    def may_have_gaps(self) -> bool:
        """Whether copies may lack rows by default: plain rows, and batches of DataFrames."""
        if any(one.plain is not None for one in self.inboxes):
            return True
        if self.stream is None:
            return False
        return not self.is_streaming or not self.has_stables or bool(self.stream.beating)

    @property
    def key(self) -> Key | None:
        """What names one event in each replica, if all of them declare it."""
        return None if self.stream is None else self.stream.key

    def require_columns(self) -> None:
        """Reject inboxes in which some files lack a column of the others."""
        for one in self.inboxes:
            one.folder.require_all(self.loose)

    def as_in(self, run: "Run | None") -> "Copies":
        """The copies with the columns of a run, of which some came or went with an upgrade.

        Those that no file of an inbox has yet are null, those that were dropped are not read.
        A column of JSON lines keeps its type: a later fraction makes no double of a bigint.
        """
        made = self if run is None else self._with_numbers_of(run)
        if run is not None and self.stream is None and (run.added or run.dropped):
            found = {one.name: one for one in made.schema.payload}
            later = {one.name: one for one in run.schema if one.name in run.added}
            known = [found.get(name) or later.get(name) for name in run.schema.names]
            others = {*run.schema.names, *run.dropped}
            more = [one for name, one in found.items() if name not in others]
            fields = [one for one in known if one is not None] + more
            schema = replace(made.schema, payload=pa.schema(fields))
            made = replace(made, schema=schema, loose=(*run.added, *run.dropped))
        made.require_columns()
        return made

    def _with_numbers_of(self, run: "Run") -> "Copies":
        """The copies with the run's types of numbers, where lines of JSON show the types."""
        if self.stream is not None or not all(_is_inferred(one.folder) for one in self.inboxes):
            return self
        known = {one.name: one for one in run.schema}
        fields = [
            known[one.name]
            if one.name in known and is_same_but_for_fractions(one.type, known[one.name].type)
            else one
            for one in self.schema.payload
        ]
        return replace(self, schema=replace(self.schema, payload=pa.schema(fields)))

    def require_case(self, case: MergeCase | None) -> None:
        """Reject a case that was asked for if it does not go with the key."""
        if self.key is not None and case in ORDERED:
            message = (
                f"ab.merge: case {case.name} with key={list(self.key.names)}: R0 to R2 "
                "compare the events of one start only; a key needs R3 or R4, leave the choice "
                "to auto"
            )
            raise UsageError(message)

    @property
    def are_plain(self) -> bool:
        """Whether all rows are events, and not elements."""
        are_rows = self.stream is None or self.stream.is_plain
        return are_rows and all(one.plain is not None for one in self.inboxes)

    @property
    def keep_duplicates(self) -> bool:
        """Whether a row that comes twice in one copy is two events: no key is declared."""
        return self.are_plain and self.key is None

    @property
    def order(self) -> tuple[str, ...]:
        """The columns that order the rows of a DataFrame."""
        return () if self.stream is None else self.stream.order

    @property
    def ordered_by(self) -> str:
        """What gives the order of a replica's rows, in words."""
        if self.schema.has_seq:
            return "seq"
        found = [] if self.stream is None else [self.stream.ordered_by]
        return "; ".join([*found, *(["file name and row (inbox)"] if self.inboxes else [])])

    @property
    def frames(self) -> tuple[str, ...]:
        """The replicas of DataFrames: Spark knows each of its sources by its position alone.

        Those that a column names come last; their order means nothing.
        """
        copies = () if self.stream is None else self.stream.copies
        own = tuple(name for name, _ in copies)
        return (*own, *sorted(name for name in self.names if name not in own))

    @property
    def founders(self) -> tuple[str, ...]:
        """The replicas that are known when the merge is built."""
        return (*self.names, *(name for one in self.inboxes for name in one.founders))

    def parcels(
        self,
        entries: "DataFrame | None",
        lanes: int,
        routing: Routing,
        *,
        strict: bool,
        depot: Depot | None = None,
        resumed: Resumed = NOTHING,
        ticks: "DataFrame | None" = None,
    ) -> "DataFrame":
        """The rows of all replicas, packed for the lanes, with the entries of a control log.

        `ticks` are entries that come without such a log, so that time passes.
        """
        made: list[DataFrame] = []
        if self.stream is not None:
            how: dict[str, Any] = {"strict": strict, "depot": depot, "resumed": resumed}
            made.append(packed(self.stream, lanes, routing, **how))
        is_timed = self.stream is not None and self.stream.needs_time
        if entries is not None and self.inboxes:
            entries = timed(entries, is_timed=is_timed)
            files = tuple(self._files(one) for one in self.inboxes)
            # What a trigger takes is one file of the log, and so one task: on one machine its
            # threads share the work, on a cluster tasks do.
            threads = slots(entries.sparkSession)
            each = entries.repartition(lanes) if threads is None else entries
            spec = FilesSpec(files, self.schema, lanes, routing, strict, depot, threads or 1)
            columns = spark_schema(PARCELS)
            made.append(each.mapInArrow(partial(pack_files, spec), columns))
        elif entries is not None:
            made.append(pack_control(entries, lanes, is_timed=is_timed))
        elif ticks is not None:
            made.append(pack_control(ticks, lanes, is_timed=is_timed))
        return reduce(lambda all_, one: all_.union(one), made)

    def _files(self, one: Inbox) -> Files:
        found, plain = one.folder.schema, one.plain
        if plain is None:
            apart = [f for f in found if f.name in RESERVED and f.name != REPLICA]
        else:
            apart = [f for f in found if f.name in plain.apart]
        columns = pa.schema([*apart, *self.schema.payload])
        how = None if self.beat is None else self.beat.how
        return Files(str(one.path), columns, self.loose, plain, how)


@dataclass(frozen=True)
class _Input:
    """What must be the same in all inputs; `what` names one in messages."""

    what: str
    schema: ElementSchema
    time: str
    ordered_by: str
    is_streaming: bool | None = None
    order: int | None = None
    key: Key | None = None
    where: str = MERGE
    """The call that was given the input."""


def agree(
    inputs: Sequence[Stream | Inbox], replicas: Sequence[str] = (), where: str = MERGE
) -> Copies:
    """All replicas in one, if their schemas agree and no two have one name."""
    if not inputs:
        message = f"{where}: there is no input; give DataFrames or inboxes"
        raise UsageError(message)
    streams = {
        one.name or str(at): one for at, one in enumerate(inputs) if isinstance(one, Stream)
    }
    inboxes = tuple(one for one in inputs if isinstance(one, Inbox))
    _require_unique(inputs, where)
    facts = [replace(_facts(at, one), where=where) for at, one in enumerate(inputs)]
    for one, other in combinations(facts, 2):
        _require_same(one, other)
    _require_no_column(streams, where, alone=len(inputs) == 1)
    stream, names, declared = _joined(streams, alone=len(inputs) == 1)
    known = (*names, *replicas) if streams else ()
    properties = dict.fromkeys(known, stream.properties if stream else None) | declared
    for inbox in inboxes:
        properties |= inbox.declared
    if not properties and stream is not None:
        properties = {EVERY_REPLICA: stream.properties}
    schema = facts[0].schema if stream is None else stream.schema_in_lanes
    # A column may name replicas that have sent no row yet.
    lifetimes = tuple(
        f"{name if names else 'every replica'}: {one.lifetime}" for name, one in streams.items()
    )
    beat = beat_of(inboxes, schema.time, where)
    lane_clocks(stream, beat, known)  # rejects what cannot be
    return Copies(stream, known, inboxes, schema, properties, lifetimes, beat=beat)


def _facts(at: int, one: Stream | Inbox) -> _Input:
    if isinstance(one, Stream):
        time = "timestamp_ntz" if one.is_ntz else one.schema.time.value
        what = f"replica '{one.name or at}'"
        is_streaming = one.is_streaming
        order, by = len(one.order), one.ordered_by
        return _Input(what, one.schema, time, by, is_streaming, order, one.key)
    found = one.folder.elements
    payload = canonical_schema(found.payload, where=str(one.folder.path))
    schema = ElementSchema(found.time, payload, found.has_seq)
    by = "seq" if found.has_seq else "file name and row"
    return _Input(f"inbox '{one.folder.path}'", schema, found.time.value, by)


def _joined(
    streams: dict[str, Stream], *, alone: bool
) -> tuple[Stream | None, tuple[str, ...], dict[str, StreamProperties | None]]:
    """All DataFrames in one, the names that are known by them, and what these declare."""
    if not streams:
        return None, (), {}
    first = next(iter(streams.values()))
    if alone and first.schema.has_replica:
        return _clocked(first, [(None, first)]), (), {}
    streams = _alike(streams)
    named = [_named(one, name) for name, one in streams.items()]
    df = reduce(lambda all_, one: all_.unionByName(one), named)
    schema = replace(first.schema, has_replica=True)
    stables = all(one.has_stables or one.heartbeat for one in streams.values())
    copies = tuple((name, one.df) for name, one in streams.items())
    joined = replace(first, df=df, schema=schema, has_stables=stables, properties=None)
    is_plain = all(one.is_plain for one in streams.values())
    joined = replace(joined, copies=copies, is_plain=is_plain)
    joined = _clocked(joined, list(streams.items()))
    return joined, tuple(streams), {name: one.properties for name, one in streams.items()}


def _clocked(joined: Stream, streams: Sequence[tuple[str | None, Stream]]) -> Stream:
    """The stream of all replicas with the clocks that their own streams declare."""
    found = [(name, one.heartbeat) for name, one in streams if one.heartbeat]
    words = tuple((name or EVERY_REPLICA, one.words) for name, one in found)
    has_stables = joined.has_stables or len(found) == len(streams)
    beating = tuple((name, one.how) for name, one in found)
    return replace(joined, beating=beating, heartbeat_words=words, has_stables=has_stables)


def _alike(streams: dict[str, Stream]) -> dict[str, Stream]:
    """The streams with the same columns: those without an arrival get a null one."""
    from pyspark.sql import functions as F  # noqa: N812

    if not any(ARRIVAL in one.df.columns for one in streams.values()):
        return streams
    nothing = {ARRIVAL: F.lit(None).cast("timestamp")}
    return {
        name: one
        if ARRIVAL in one.df.columns
        else replace(one, df=with_columns(one.df, nothing))
        for name, one in streams.items()
    }


def _named(stream: Stream, name: str) -> "DataFrame":
    from pyspark.sql import functions as F  # noqa: N812

    return with_columns(stream.df, {REPLICA: F.lit(name)})


def _is_inferred(folder: Folder) -> bool:
    """Whether types are what JSON lines show, and not those of a schema file."""
    return folder.format is Format.JSONL and folder.rows is not None


def _require_no_column(streams: dict[str, Stream], where: str, *, alone: bool) -> None:
    """Reject a DataFrame of several replicas beside other inputs."""
    for name, one in streams.items():
        if one.schema.has_replica and not alone:
            message = (
                f"{where}: replica '{name}' has its own column '{REPLICA}', with other "
                "inputs; give one DataFrame with such a column, or drop the column"
            )
            raise SchemaError(message)


def _require_unique(inputs: Sequence[Stream | Inbox], where: str) -> None:
    """Reject two replicas with one name, whatever they come from."""
    names: list[str] = []
    for at, one in enumerate(inputs):
        names += [one.name or str(at)] if isinstance(one, Stream) else one.names
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        message = (
            f"{where}: two replicas have one name: {', '.join(twice)}; names of replicas must "
            "be unique over all inputs: give a DataFrame another name=, or rename a folder"
        )
        raise UsageError(message)


def _require_same(first: _Input, one: _Input) -> None:
    a, b = first.schema, one.schema
    streaming = (first.is_streaming, one.is_streaming)
    if None not in streaming and streaming[0] != streaming[1]:
        kinds = ["streaming" if each else "batch" for each in streaming]
        message = (
            f"{one.where}: {first.what} is a {kinds[0]} DataFrame and {one.what} a {kinds[1]} "
            "one; give one kind: read both with spark.read, or both with spark.readStream"
        )
        raise UsageError(message)
    if first.time != one.time:
        raise _differ(first, first.time, one, one.time, "their times")
    orders = (first.order, one.order)
    if a.has_seq != b.has_seq or (None not in orders and orders[0] != orders[1]):
        raise _differ(first, first.ordered_by, one, one.ordered_by, "their order")
    missing = [c for c in a.payload.names if c not in b.payload.names]
    extra = [c for c in b.payload.names if c not in a.payload.names]
    for column in [*missing, *extra]:
        has, lacks = (first, one) if column in missing else (one, first)
        message = (
            f"{one.where}: {has.what} has a column '{column}' and {lacks.what} has not; all "
            "inputs must have the same columns: add it, or drop it (rename= gives a "
            "column another name)"
        )
        raise SchemaError(message)
    for column in a.payload.names:
        was, now = a.payload.field(column).type, b.payload.field(column).type
        if was != now:
            raise _differ(first, str(was), one, str(now), f"column '{column}'")
    _require_one_key(first, one)


def _require_one_key(first: _Input, one: _Input) -> None:
    """Reject copies that do not declare the same key: what names an event names it in all."""
    if first.key == one.key:
        return
    was, now = (_shown_key(each.key) for each in (first, one))
    message = (
        f"{one.where}: {first.what} declares {was}, {one.what} {now}; all inputs must have the "
        "same key: give ab.events the same key= and duplicates= for each (an inbox and "
        "ab.elements have none)"
    )
    raise UsageError(message)


def _shown_key(key: Key | None) -> str:
    if key is None:
        return "no key"
    return f"key={list(key.names)}" + (", duplicates='drop'" if key.drops else "")


def _differ(first: _Input, was: str, one: _Input, now: str, what: str) -> SchemaError:
    return SchemaError(
        f"{one.where}: {what}: {was} in {first.what}, {now} in {one.what}; all inputs must "
        "have the same; cast or rename in one of them"
    )
