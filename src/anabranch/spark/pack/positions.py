"""Read positions in Kafka: the last offset of each partition, by copy.

Packers report the first and the last offset of what they read, and one lane saves what they add
up to with its state: so the positions are exact for what the lanes remember.

An upgrade begins a new checkpoint of Spark's, whose readers begin where the user lets them.  So
the positions decide: packers skip rows up to them, which were consumed before, and the lane
asks of each partition one row that was.  A reader that begins too early does no harm, and one
that begins too late is refused before anything of it is written: `Positions.take` raises.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.batch.schema import REPLICA
from anabranch.errors import StateError

Partition: TypeAlias = tuple[str, str, int]
"""A replica, a topic, and the number of a partition."""

Places: TypeAlias = Mapping[Partition, int]
"""The last offset that was consumed, by partition."""


@dataclass(frozen=True, slots=True)
class Span:
    """The first and the last offset of some rows of one partition."""

    topic: str
    partition: int
    first: int
    last: int


@dataclass
class Positions:
    """The last offset that was consumed of each partition.

    `unmet` are those of which nothing has come since an upgrade: the first row that comes must
    be one that was consumed, else the reader has begun too late.
    """

    last: dict[Partition, int] = field(default_factory=dict)
    unmet: set[Partition] = field(default_factory=set)

    def take(self, found: Mapping[str, Sequence[Span]]) -> None:
        """What all packers read in a trigger, by replica."""
        first: dict[Partition, int] = {}
        last: dict[Partition, int] = {}
        for replica, spans in found.items():
            for one in spans:
                key = (replica, one.topic, one.partition)
                first[key] = min(one.first, first.get(key, one.first))
                last[key] = max(one.last, last.get(key, one.last))
        late = [key for key in first if key in self.unmet and first[key] > self.last[key]]
        if late:
            key = min(late)
            raise _too_late(key, first[key], self.last[key])
        self.unmet -= first.keys()
        self.last |= {key: max(one, self.last.get(key, one)) for key, one in last.items()}

    def forget(self, replica: str) -> None:
        """Drop what is known of a replica that leaves: if it returns, all of it is new."""
        self.last = {key: one for key, one in self.last.items() if key[0] != replica}
        self.unmet = {key for key in self.unmet if key[0] != replica}

    def to_list(self) -> list[list[Any]]:
        """The same for JSON."""
        return [
            [*key, offset, key not in self.unmet] for key, offset in sorted(self.last.items())
        ]

    @classmethod
    def from_list(cls, rows: Iterable[Sequence[Any]]) -> "Positions":
        """What such a list has."""
        made = cls()
        for replica, topic, partition, offset, is_met in rows:
            made.last[replica, topic, partition] = offset
            if not is_met:
                made.unmet.add((replica, topic, partition))
        return made


def restarted(all_: Iterable[Positions]) -> Positions:
    """What lanes of one run know together, as a new checkpoint begins with it."""
    last: dict[Partition, int] = {}
    for one in all_:
        last |= {key: max(offset, last.get(key, offset)) for key, offset in one.last.items()}
    return Positions(last, set(last))


def without_consumed(
    table: pa.Table, order: Sequence[str], names: Sequence[str], consumed: Places
) -> tuple[pa.Table, dict[str | None, list[Span]]]:
    """The rows that were not consumed, and the spans of all rows, by replica.

    `order` are the columns of topic, partition and offset; the column of replicas has numbers
    of `names`, if there are any.
    """
    topic, partition, offset = order
    drop = None
    spans: dict[str | None, list[Span]] = {}
    for code, one in _spans(table, order):
        name = names[code] if names and code is not None else code
        spans.setdefault(name, []).append(one)
        last = consumed.get((str(name), one.topic, one.partition))
        if last is None or one.first > last:
            continue
        same = [
            pc.is_null(table[REPLICA]) if code is None else pc.equal(table[REPLICA], code),
            pc.equal(table[topic], one.topic),
            pc.equal(table[partition], one.partition),
            pc.less_equal(table[offset], last),
        ]
        mine = np.logical_and.reduce([_mask(each) for each in same])
        drop = mine if drop is None else drop | mine
    return table if drop is None else table.filter(pa.array(~drop)), spans


def _spans(table: pa.Table, order: Sequence[str]) -> Iterator[tuple[Any, Span]]:
    """The code of a replica and a span of it; rows without a position have none."""
    topic, partition, offset = order
    keys = [REPLICA, topic, partition]
    found = table.select([*keys, offset]).group_by(keys)
    made = found.aggregate([(offset, "min"), (offset, "max")])
    columns = [*keys, f"{offset}_min", f"{offset}_max"]
    for code, *place in zip(*(made[name].to_pylist() for name in columns), strict=True):
        if None not in place:
            yield code, Span(*place)


def _mask(values: pa.ChunkedArray) -> Any:
    return np.asarray(pc.fill_null(values, fill_value=False))


def _too_late(key: Partition, first: int, last: int) -> StateError:
    replica, topic, partition = key
    return StateError(
        f"replica '{replica}': its reader begins at offset {first} of partition {partition} of "
        f"topic '{topic}', but before the upgrade it was read to offset {last}: rows between "
        "them would be lost; nothing of this trigger was written; let the reader begin there "
        f"by .option('startingOffsets', ab.starting_offsets(CHECKPOINT, '{topic}')), and "
        "start again; if triggers were committed since, call ab.upgrade before"
    )
