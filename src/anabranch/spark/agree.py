"""The replicas of a merge as one DataFrame with a `replica` column, if their schemas agree.

Every difference that a schema shows is an error when the merge is built: it names the replica,
the column, and what to do.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING

from anabranch.batch.schema import REPLICA
from anabranch.errors import SchemaError, UsageError
from anabranch.spark.streams import Stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def agree(streams: Sequence[Stream]) -> tuple[Stream, tuple[str, ...]]:
    """One stream with all replicas, and the names that are known before a row is read."""
    if not streams:
        message = "ab.merge: nothing to merge; give DataFrames, or one with a replica column"
        raise UsageError(message)
    first = streams[0]
    if len(streams) == 1 and first.schema.has_replica:
        return first, ()
    names = tuple(one.name or str(at) for at, one in enumerate(streams))
    for name, one in zip(names, streams, strict=True):
        if one.schema.has_replica:
            message = (
                f"ab.merge: replica '{name}' has a column '{REPLICA}' of its own, beside other "
                "DataFrames; merge one DataFrame with such a column, or drop the column"
            )
            raise SchemaError(message)
        _require_same(names[0], first, name, one)
    if len(set(names)) < len(names):
        message = f"ab.merge: two replicas have one name: {', '.join(names)}; name them apart"
        raise UsageError(message)
    named = [_named(one, name) for name, one in zip(names, streams, strict=True)]
    df = reduce(lambda all_, one: all_.unionByName(one), named)
    schema = replace(first.schema, has_replica=True)
    stables = all(one.has_stables for one in streams)
    copies = tuple((name, one.df) for name, one in zip(names, streams, strict=True))
    joined = replace(first, df=df, schema=schema, has_stables=stables, properties=None)
    return replace(joined, copies=copies), names


def _named(stream: Stream, name: str) -> "DataFrame":
    from pyspark.sql import functions as F  # noqa: N812

    return stream.df.withColumn(REPLICA, F.lit(name))


def _require_same(name: str, first: Stream, other: str, one: Stream) -> None:
    a, b = first.schema, one.schema
    if first.is_streaming != one.is_streaming:
        kinds = ["batch" if not s.is_streaming else "streaming" for s in (first, one)]
        message = (
            f"ab.merge: replica '{name}' is a {kinds[0]} DataFrame and '{other}' a {kinds[1]} "
            "one; merge one kind: read both with spark.read, or both with spark.readStream"
        )
        raise UsageError(message)
    if a.time is not b.time or first.is_ntz != one.is_ntz:
        raise _differ(name, _time(first), other, _time(one), "their times")
    if a.has_seq != b.has_seq or len(first.order) != len(one.order):
        raise _differ(name, first.ordered_by, other, one.ordered_by, "their order")
    missing = [c for c in a.payload.names if c not in b.payload.names]
    extra = [c for c in b.payload.names if c not in a.payload.names]
    for column in [*missing, *extra]:
        has, lacks = (name, other) if column in missing else (other, name)
        message = (
            f"ab.merge: replica '{has}' has a column '{column}' and '{lacks}' has not; all "
            "replicas of a stream have the same columns: add it, or drop it (rename= gives a "
            "column another name)"
        )
        raise SchemaError(message)
    for column in a.payload.names:
        was, now = a.payload.field(column).type, b.payload.field(column).type
        if was != now:
            raise _differ(name, str(was), other, str(now), f"column '{column}'")


def _time(stream: Stream) -> str:
    return "timestamp_ntz" if stream.is_ntz else stream.schema.time.value


def _differ(name: str, was: str, other: str, now: str, what: str) -> SchemaError:
    return SchemaError(
        f"ab.merge: {what}: {was} in replica '{name}', {now} in '{other}'; all replicas of a "
        "stream have the same; cast or rename in one of them"
    )
