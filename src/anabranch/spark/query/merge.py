"""`ab.merge`: replicas of one stream into one; `ab.union`: all events of several streams.

Both take DataFrames and inboxes.  Schemas, time types, the merge case and a mix of batch and
streaming inputs are validated at the call; no row is read before a view is used.

The same plan runs on batch and streaming input: pack, shuffle by lane, merge, unpack.  A batch
is one step with the same history.  An inbox is read as its sibling DataFrames are: batch or
streaming.  Without DataFrames its views are batches, and `start` reads new files as they come.

Queries that are replicas of one result are merged by `anabranch.spark.query.replicas`.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, overload

from anabranch.batch.times import to_seconds
from anabranch.errors import UsageError
from anabranch.operators.merge.choose import choose
from anabranch.operators.merge.policy import Policy
from anabranch.operators.union import UnionOperator
from anabranch.plan.node import Source
from anabranch.sources.inbox import Inbox
from anabranch.spark.checkpoint.run_record import new_id
from anabranch.spark.frames import require_frame
from anabranch.spark.query.asked import Asked, case_named
from anabranch.spark.query.copies import MERGE, agree
from anabranch.spark.query.endless import warn_endless
from anabranch.spark.query.fluent import Fluent
from anabranch.spark.query.merged import QUERY, UNION_OF_INSERTS, Hosted, Merged
from anabranch.spark.query.streams import Stream, elements
from anabranch.spark.session.host import cores

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from anabranch.spark.query.query import Query


_WAIT_WALL: Final = "5 minutes"

UNNAMED: Final = "source"
"""The id of a stream without a name in a query."""

UNION: Final = Hosted(UnionOperator, "union: all events of all inputs", "ab.union")
ALONE: Final = Hosted(UnionOperator, UNION.meaning, QUERY)


@overload
def merge(
    *inputs: "Stream | Inbox | DataFrame",
    case: str = ...,
    policy: str | Policy | None = ...,
    lanes: int | None = ...,
    gaps: bool | None = ...,
    wait: str | int | None = ...,
    wait_wall: str = ...,
    remember: str | int | None = ...,
    replicas: Sequence[str] = ...,
    assume_complete: bool = ...,
    strict: bool = ...,
    quarantine: str | Path | None = ...,
) -> Merged: ...


@overload
def merge(
    first: "Query | Merged",
    /,
    *inputs: "Query | Merged | Stream | DataFrame",
    names: Sequence[str] = ...,
    case: str = ...,
    policy: str | Policy | None = ...,
    remember: str | int | None = ...,
) -> "Query": ...


@overload
def merge(
    first: "Stream | DataFrame",
    second: "Query | Merged",
    /,
    *inputs: "Query | Merged | Stream | DataFrame",
    names: Sequence[str] = ...,
    case: str = ...,
    policy: str | Policy | None = ...,
    remember: str | int | None = ...,
) -> "Query": ...


def merge(
    *inputs: "Query | Merged | Stream | Inbox | DataFrame",
    names: Sequence[str] = (),
    case: str = "auto",
    policy: str | Policy | None = None,
    lanes: int | None = None,
    gaps: bool | None = None,
    wait: str | int | None = None,
    wait_wall: str = _WAIT_WALL,
    remember: str | int | None = None,
    replicas: Sequence[str] = (),
    assume_complete: bool = False,
    strict: bool = False,
    quarantine: str | Path | None = None,
) -> "Merged | Query":
    """Merge replicas of one stream into one stream, or queries with one result into one query.

    The schemas, times and declared properties of the inputs are validated now; no row is read
    until a view is used or the query is started.

    If one of the inputs is a query, all of them are plans for one result, and only `names`,
    `case`, `policy` and `remember` are options (docs/guide/queries.md, Replicas of a query).

    Args:
        *inputs: `ab.events(df, ...)`, `ab.elements(df, ...)`, a DataFrame (as
            `ab.elements(df)`), or `ab.inbox(path)`.  Each DataFrame is one replica, or holds
            several in the column `replica`; an inbox holds one per sub-folder.  Or queries.
        names: Of queries: the names of the replicas.  Default: their positions.
        case: The merge algorithm, "r0" (cheapest, strictest) to "r4"; "auto" chooses the
            cheapest that the declared properties permit.
        policy: What the merge does where the data leaves a choice, an `ab.Policy` or its text,
            such as "adjusts=always".
        lanes: The number of parallel partitions of the state.  Default: that of the run, or the
            number of processors for a new run.  Changed later by `ab.upgrade` only.
        gaps: Whether a replica may lack events that another has.  The output then contains an
            event if any replica has it, and becomes final where the slowest replica is.
            Without gaps, the replica with the greatest frontier decides which events exist.
            Default: True for plain rows (`ab.events`) and batches, else False.
        wait: With gaps: the greatest distance in application time that the output stays behind
            the fastest replica to wait for the slowest, such as "10 minutes".
        wait_wall: With gaps: how long, by the clock, the output waits for a replica that makes
            no progress; it is then passed over until it has caught up.
        remember: How far behind the output's frontier, in application time, the copies of a
            silent or slow replica are still recognised, such as "7 days"; its older rows are
            late.  It bounds the memory.  Default: "1 day" for timestamps with gaps, else
            "forever": until the replica is detached.
        replicas: Names of replicas in a column `replica` that take part from the beginning,
            even if their first row comes later.  A replica that first appears after the first
            trigger and is not listed here is `joining`: its rows are merged, its stables
            have no effect.
        assume_complete: Treat replicas that appear later as complete from the beginning.
        strict: Fail at the first row that would be quarantined.
        quarantine: The folder for rows that were not merged, of views that are started with
            Spark's own writers.

    A case, policy or number of lanes that is not given is that of the run that is continued.
    """
    if any(isinstance(one, Fluent) and not isinstance(one, Stream) for one in inputs):
        from anabranch.spark.query.replicas import merge_queries

        of_streams = {
            "lanes": (lanes, None),
            "gaps": (gaps, None),
            "wait": (wait, None),
            "wait_wall": (wait_wall, _WAIT_WALL),
            "replicas": (tuple(replicas), ()),
            "assume_complete": (assume_complete, False),
            "strict": (strict, False),
            "quarantine": (quarantine, None),
        }
        given = [name for name, (one, usual) in of_streams.items() if one != usual]
        how: dict[str, Any] = {"case": case, "policy": policy, "remember": remember}
        return merge_queries(inputs, names=names, options=given, **how)
    if names:
        message = (
            f"ab.merge: names={list(names)} is for queries, and these inputs are streams; name "
            "each of them: ab.events(df, ..., name='east')"
        )
        raise UsageError(message)
    made = _streams(inputs, "ab.merge")
    asked = Asked(
        case=case_named(case),
        policy=Policy.parse(policy) if isinstance(policy, str) else policy,
        lanes=lanes,
        usual_lanes=cores(),
        gaps=gaps,
        wait=wait,
        wait_wall=to_seconds(wait_wall, option="wait_wall"),
        remember=remember,
        strict=strict,
        assume_complete=assume_complete,
    )
    merged = build(made, asked, replicas=replicas, quarantine=quarantine)
    merged.operator  # noqa: B018  raises now if the policy does not fit
    if merged.copies.is_endless:
        warn_endless(merged.call)  # of inboxes alone when they are started: views are batches
    return merged


def union(
    *inputs: "Stream | Inbox | DataFrame",
    lanes: int | None = None,
    replicas: Sequence[str] = (),
    strict: bool = False,
    quarantine: str | Path | None = None,
) -> Merged:
    """All events of all inputs in one stream; its frontier is the least of theirs.

    Equal events of two inputs stay two events.  A slow or silent input holds the frontier back
    until it is detached.  An input that attaches later adds events that start at or after the
    output's frontier; its earlier rows are late.

    Args:
        *inputs: As for `ab.merge`.
        lanes: As for `ab.merge`.
        replicas: Names of inputs in a column `replica` that take part from the beginning, even
            if their first row comes later.
        strict: As for `ab.merge`.
        quarantine: As for `ab.merge`.
    """
    made = _streams(inputs, "ab.union")
    asked = Asked(lanes=lanes, usual_lanes=cores(), strict=strict)
    built = build(made, asked, "ab.union", replicas=replicas, quarantine=quarantine)
    united = replace(built, hosted=UNION)
    if united.copies.is_endless:
        warn_endless(united.call)
    return united


def alone(stream: Stream) -> Source:
    """One stream as the source of a query: its elements are validated where they enter."""
    built = build([stream], Asked(usual_lanes=cores()), QUERY)
    only_inserts = stream.is_plain and stream.key is None
    hosted = UNION_OF_INSERTS if only_inserts else ALONE
    made = replace(built, hosted=hosted).source(stream.name or UNNAMED)
    if stream.name is not None or stream.schema.has_replica:
        return made
    return replace(made, renamed=lambda name: alone(replace(stream, name=name)))


def build(
    inputs: Sequence[Stream | Inbox],
    asked: Asked,
    where: str = MERGE,
    *,
    replicas: Sequence[str] = (),
    quarantine: str | Path | None = None,
) -> Merged:
    """The merge of these inputs, if they agree and permit what is asked of the call `where`."""
    copies = agree(inputs, replicas, where)
    copies.require_case(asked.case)
    policy = asked.settle(copies.schema.time, gaps=copies.may_have_gaps)
    choice = choose(copies.declared, gaps_possible=policy.gaps, asked=asked.case)
    lanes = asked.usual_lanes if asked.lanes is None else asked.lanes
    if lanes < 1:
        message = f"{where}: lanes is {lanes}; it must be 1 or more"
        raise UsageError(message)
    place = None if quarantine is None else str(quarantine)
    return Merged(copies, asked, choice, lanes, new_id(), place)


def _streams(inputs: "Sequence[Any]", where: str) -> list[Stream | Inbox]:
    made: list[Stream | Inbox] = []
    for at, one in enumerate(inputs):
        if isinstance(one, Stream) and one.replaced_by:
            message = (
                f"{where}: input {at} is a stream with replaced_by; its ends are computed by a "
                "query step; only queries read it: stream.where(...), .join(...), "
                ".group_by(...). For a merge give end= or lifetime="
            )
            raise UsageError(message)
        if isinstance(one, Stream | Inbox):
            made.append(one)
            continue
        require_frame(one, f"{where}: input {at}")
        made.append(elements(one))
    return made
