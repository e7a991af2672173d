"""Orders the parcels of a trigger: changes of membership, and the elements of the inputs.

A step takes one attachment of each input.  A trigger that holds several (a replica left and
came back) becomes several *rounds*, the same in every lane.  Within a round an input attaches
first (or declares a guarantee), then its elements come, then it leaves.

Elements are ordered by `seq` where there is one, else by the columns that were declared as
order, else as their parcels came: file by file and row by row from an inbox, partition by
partition from any other source.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.batch.batch import FOREVER_UNITS, STABLE, Batch, Ints, concat
from anabranch.batch.buffers import take
from anabranch.batch.schema import ElementSchema
from anabranch.errors import StateError
from anabranch.spark.pack.parcels import ATTACH, CURRENT, DATA, DETACH, PASS, Parcel


@dataclass(frozen=True, eq=False)
class Received:
    """One input's elements of a round, and where each came from."""

    input: str
    attachment: int
    guarantee: int | None
    batch: Batch
    places: pa.Table
    files: tuple[str | None, ...]
    file: Ints

    def origin(self, rows: Ints) -> tuple[list[str | None], list[int | None]]:
        """The file (or the values of the order columns) and the row of some elements."""
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
    """What one step takes: who attaches with which guarantee, what comes, who leaves after.

    `passed` are the inputs that are not waited for any more.
    """

    received: list[Received] = field(default_factory=list)
    attached: list[tuple[str, int, int | None]] = field(default_factory=list)
    passed: list[str] = field(default_factory=list)
    detached: list[tuple[str, int]] = field(default_factory=list)
    after: list[Received] = field(default_factory=list)
    """Elements of inputs that have left: no longer taken."""


@dataclass(frozen=True)
class Order:
    """What a lane must know to put elements into order."""

    schema: ElementSchema
    columns: tuple[str, ...] = ()
    newcomers: int | None = None
    """The guarantee of a replica that comes without one; None: complete."""


def rounds(
    parcels: Sequence[Parcel], orders: Callable[[str], Order], known: Mapping[str, int]
) -> list[Round]:
    """The rounds of a trigger; `known` are attachments of inputs that are or were here.

    `orders` has how the elements of an input are put into order.
    """
    made: list[Round] = []
    for name, theirs in groupby(sorted(parcels, key=_input), key=_input):
        mine = list(theirs)
        declared = [one.attachment for one in mine if one.entry == ATTACH]
        least = [one.least for one in mine if one.least is not None]
        latest = max([*declared, *least, known.get(name, 1)])
        by_number = sorted(mine, key=lambda one: one.attachment or latest)
        for at, (number, some) in enumerate(
            groupby(by_number, key=lambda one: one.attachment or latest)
        ):
            while len(made) <= at:
                made.append(Round())
            _add(made[at], name, number, list(some), orders(name))
    return made or [Round()]


def _input(one: Parcel) -> str:
    return one.input


def _add(made: Round, name: str, number: int, some: Sequence[Parcel], order: Order) -> None:
    some = sorted(some, key=lambda one: (one.log, one.file or "", one.part))
    attaches = [one for one in some if one.entry == ATTACH]
    leaves = [one.log for one in some if one.entry == DETACH]
    data = [one for one in some if one.entry == DATA]
    made.attached.extend((name, number, one.guarantee) for one in attaches)
    made.passed.extend(name for one in some if one.entry == PASS)
    left = min(leaves, default=FOREVER_UNITS)
    before = [one for one in data if one.log < left or not leaves]
    if before:
        made.received.append(_receive(name, number, before, order))
    if leaves:
        made.detached.append((name, number))
    after = [one for one in data if leaves and one.log >= left]
    if after:
        made.after.append(_receive(name, number, after, order))


def _receive(name: str, number: int, parcels: Sequence[Parcel], order: Order) -> Received:
    full = [
        (one.batch, one.places, one.file)
        for one in parcels
        if one.batch is not None and one.places is not None
    ]
    files = tuple(dict.fromkeys(file for _, _, file in full))
    batch = concat([one for one, _, _ in full]) if full else empty(order.schema)
    place = pa.concat_tables([one for _, one, _ in full]) if full else pa.table({})
    numbers = np.array([files.index(file) for _, _, file in full], dtype=np.int64)
    file = np.repeat(numbers, [len(one) for one, _, _ in full])
    rows = _sorted(batch, place, order)
    if rows is not None:
        batch, place, file = batch.take(rows), take(place, rows), file[rows]
    last = parcels[-1]
    guarantee = last.guarantee if last.attachment != CURRENT else order.newcomers
    return Received(name, number, guarantee, batch, place, files, file)


def gathered(
    parcels: Sequence[Parcel], lanes: int, passed: int, schema: ElementSchema
) -> tuple[Batch, int]:
    """What the lanes of the stage before sent of one stream in one trigger.

    Each of them sends one parcel, also without elements, since its frontier counts.  The
    frontier of a stage is the least of its lanes'; if it moved beyond `passed`, a stable comes
    last.  Lanes share no identity, so their data may follow in any order; by lane, it is always
    the same one.
    """
    sent = sorted(parcels, key=lambda one: one.part)
    if [one.part for one in sent] != list(range(lanes)):
        message = (
            f"{lanes} lanes of the stage before this one send a parcel each in every trigger; "
            f"got parcels of {[one.part for one in sent]}; the checkpoint and the program do "
            "not belong together; start a new run"
        )
        raise StateError(message)
    batches = [one.batch for one in sent if one.batch is not None]
    frontier = min(one.frontier for one in sent if one.frontier is not None)
    if frontier > passed:
        batches.append(stable_at(frontier, schema))
    return concat(batches) if batches else empty(schema), max(frontier, passed)


def stable_at(time: int, schema: ElementSchema) -> Batch:
    """A batch of one stable."""
    nothing = np.zeros(1, np.int64)
    payload = pa.table(
        [pa.nulls(1, field.type) for field in schema.payload], schema=schema.payload
    )
    start = np.array([time], np.int64)
    # The hash of a stable is not used; without one, those of the elements would be dropped.
    hashes = np.zeros((1, 2), np.uint64)
    kind = np.array([STABLE], np.int8)
    return Batch(schema, kind, start, nothing, nothing, payload, hashes=hashes)


def _sorted(batch: Batch, places: pa.Table, order: Order) -> Any:
    if batch.seq is not None:
        in_order = bool((batch.seq[1:] >= batch.seq[:-1]).all())
        return None if in_order else np.argsort(batch.seq, kind="stable")
    # The files of an inbox have no such columns: their rows are in order as they come.
    keys = [(name, "ascending") for name in order.columns if name in places.column_names]
    if not keys or not len(batch):
        return None
    rows: Ints = pc.sort_indices(places, sort_keys=keys).to_numpy().astype(np.int64)
    return rows


def empty(schema: ElementSchema) -> Batch:
    """A batch without elements."""
    none = np.empty(0, np.int64)
    seq = none if schema.has_seq else None
    payload = schema.payload.empty_table()
    return Batch(schema, np.empty(0, np.int8), none, none, none, payload, seq)
