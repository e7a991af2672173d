"""Whose rows wait at their sources: what Spark reports of each source after a trigger.

A source that can be limited (`maxOffsetsPerTrigger`) reports how far it could read
(`latestOffset`) beside how far a trigger did (`endOffset`).  Of Kafka both name each partition.
Spark lists its sources in the order of the plan: the DataFrames of the merge, then the control
log.  If a DataFrame has several sources, their number differs, and rows that wait at any of
them may be those of every replica.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from anabranch.spark.lane.heartbeats import ALL

Unread: TypeAlias = Mapping[str, tuple[str, ...]]
"""Replicas of which rows wait, and which of their sources; ALL: any of them."""

_UNKNOWN: Final = (None, "None", "null", "")
"""The latest offset of a source that reports none, as PySpark writes it."""


@dataclass(frozen=True)
class Readers:
    """Which replicas Spark's sources are of.

    `frames` have a DataFrame each, in order; none: one DataFrame has `replicas`.  The sources
    of those in `partitioned` are partitions of Kafka.
    """

    frames: Sequence[str]
    replicas: Collection[str]
    partitioned: Collection[str] = ()

    def unread(self, reported: Sequence[Any]) -> Unread:
        """The replicas of which a trigger left rows, with their sources."""
        by_reader = [left(one.latestOffset, one.endOffset) for one in reported]
        each: list[tuple[str, ...]] = [(name,) for name in self.frames]
        if len(by_reader) - len(each) not in (0, 1) or not each:
            each = [tuple(self.replicas)] * len(by_reader)
        found: dict[str, set[str]] = {}
        for names, some in zip(each, by_reader, strict=False):
            for name in names if some else ():
                which = some if name in self.partitioned else (ALL,)
                found.setdefault(name, set()).update(which)
        return {name: tuple(sorted(some)) for name, some in found.items()}


def left(latest: str | None, end: str | None) -> tuple[str, ...]:
    """Of what rows wait: partitions of Kafka, as sources are called, or ALL."""
    if latest in _UNKNOWN or latest == end:
        return ()
    try:
        before, after = json.loads(end or "{}"), json.loads(latest or "{}")
        return tuple(
            sorted(
                f"{topic}-{number}"
                for topic, offsets in after.items()
                for number, offset in offsets.items()
                if offset > before.get(topic, {}).get(number, 0)
            )
        )
    except (ValueError, AttributeError, TypeError):  # offsets of another source
        return (ALL,)
