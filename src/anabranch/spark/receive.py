"""One trigger's parcels, put into order: who comes and goes, and what each replica says.

A step of the merge takes one attachment of each replica.  A trigger that holds several (a
replica left and came back) becomes several *rounds*, the same in every lane.  Within a round
a replica attaches first (or tells a guarantee), then its elements come, then it leaves.

Elements are ordered by `seq` where there is one, else by the columns that were declared as
order, else as their parcels came: file by file and row by row from an inbox, partition by
partition from any other source.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.batch.batch import FOREVER_UNITS, Batch, Ints, concat
from anabranch.batch.buffers import take
from anabranch.batch.parcel import unpack
from anabranch.batch.schema import ElementSchema
from anabranch.spark.parcels import ATTACH, DATA, DETACH, Row, from_ipc

CURRENT: int = 0
"""The attachment of elements whose source does not tell one: the replica's latest."""


@dataclass(frozen=True, eq=False)
class Received:
    """One replica's elements of a round, and where each came from."""

    replica: str
    attachment: int
    guarantee: int | None
    batch: Batch
    places: pa.Table
    files: tuple[str | None, ...]
    file: Ints

    def origin(self, rows: Ints) -> tuple[list[str | None], list[int | None]]:
        """The file (or whatever the order columns say) and the row of some elements."""
        places = take(self.places, rows)
        names = places.column_names
        if not names:
            return [None] * len(rows), [None] * len(rows)
        last = places.column(names[-1])
        row = last.to_pylist() if pa.types.is_integer(last.type) else [None] * len(rows)
        others = names[:-1] if pa.types.is_integer(last.type) else names
        if not others:
            return [self.files[number] for number in self.file[rows]], row
        texts = [pc.cast(places.column(name), pa.string()).to_pylist() for name in others]
        return ["/".join(map(str, each)) for each in zip(*texts, strict=True)], row


@dataclass(frozen=True, eq=False)
class Round:
    """What one step takes: who attaches with which guarantee, what comes, who leaves after."""

    received: list[Received] = field(default_factory=list)
    attached: list[tuple[str, int, int | None]] = field(default_factory=list)
    detached: list[tuple[str, int]] = field(default_factory=list)
    after: list[Received] = field(default_factory=list)
    """What replicas say after they left: no longer merged."""


@dataclass(frozen=True)
class Order:
    """What a lane must know to put elements into order."""

    schema: ElementSchema
    columns: tuple[str, ...] = ()
    newcomers: int | None = None
    """The guarantee of a replica that comes without one; None: complete."""


def rounds(parcels: Sequence[Row], order: Order, known: Mapping[str, int]) -> list[Round]:
    """The rounds of a trigger; `known` are attachments of replicas that are or were here."""
    made: list[Round] = []
    for name, theirs in groupby(sorted(parcels, key=_replica), key=_replica):
        mine = list(theirs)
        told = [int(row["attachment"]) for row in mine if row["entry"] == ATTACH]
        latest = max([*told, known.get(name, 1)])
        by_number = sorted(mine, key=lambda row: _number(row, latest))
        for at, (number, rows) in enumerate(
            groupby(by_number, key=lambda row: _number(row, latest))
        ):
            while len(made) <= at:
                made.append(Round())
            _add(made[at], name, number, list(rows), order)
    return made or [Round()]


def _replica(row: Row) -> str:
    name: str = row["replica"]
    return name


def _number(row: Row, latest: int) -> int:
    number = int(row["attachment"])
    return latest if number == CURRENT else number


def _add(made: Round, name: str, number: int, rows: Sequence[Row], order: Order) -> None:
    rows = sorted(rows, key=lambda row: (row["log"], row["file"] or "", row["part"]))
    attaches = [row for row in rows if row["entry"] == ATTACH]
    leaves = [row["log"] for row in rows if row["entry"] == DETACH]
    data = [row for row in rows if row["entry"] == DATA]
    made.attached.extend((name, number, _guarantee(row)) for row in attaches)
    left = min(leaves, default=FOREVER_UNITS)
    before = [row for row in data if row["log"] < left or not leaves]
    if before:
        made.received.append(_receive(name, number, before, order))
    if leaves:
        made.detached.append((name, number))
    after = [row for row in data if leaves and row["log"] >= left]
    if after:
        made.after.append(_receive(name, number, after, order))


def _guarantee(row: Row) -> int | None:
    told = row["guarantee"]
    return None if told is None else int(told)


def _receive(name: str, number: int, parcels: Sequence[Row], order: Order) -> Received:
    full = [parcel for parcel in parcels if parcel["parcel"] is not None]
    files: tuple[str | None, ...] = tuple(dict.fromkeys(parcel["file"] for parcel in full))
    batches = [unpack(parcel["parcel"], order.schema) for parcel in full]
    batch = concat(batches) if batches else empty(order.schema)
    places = [from_ipc(parcel["places"]) for parcel in full]
    place = pa.concat_tables(places) if places else pa.table({})
    numbers = np.array([files.index(parcel["file"]) for parcel in full], dtype=np.int64)
    file = np.repeat(numbers, [len(batch) for batch in batches])
    rows = _sorted(batch, place, order)
    if rows is not None:
        batch, place, file = batch.take(rows), take(place, rows), file[rows]
    told = parcels[-1]["attachment"]
    promise = _guarantee(parcels[-1]) if int(told) != CURRENT else order.newcomers
    return Received(name, number, promise, batch, place, files, file)


def _sorted(batch: Batch, places: pa.Table, order: Order) -> Any:
    if batch.seq is not None:
        in_order = bool((batch.seq[1:] >= batch.seq[:-1]).all())
        return None if in_order else np.argsort(batch.seq, kind="stable")
    if not order.columns or not len(batch):
        return None
    keys = [(name, "ascending") for name in order.columns]
    rows: Ints = pc.sort_indices(places, sort_keys=keys).to_numpy().astype(np.int64)
    return rows


def empty(schema: ElementSchema) -> Batch:
    """A batch without elements."""
    none = np.empty(0, np.int64)
    seq = none if schema.has_seq else None
    payload = schema.payload.empty_table()
    return Batch(schema, np.empty(0, np.int8), none, none, none, payload, seq)
