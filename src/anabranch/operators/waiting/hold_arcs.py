"""Elements that align reads, and the arcs that it makes of them.

An arc is a row: its group (an identity), its start, where it ends and where it begins, and of
the last of its elements the old end (its start, for an insert) and the number of its input.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from anabranch.batch.batch import ADJUST, INSERT, Batch, Codes, Ints, Mask
from anabranch.batch.buffers import take
from anabranch.batch.hashing import hash_rows
from anabranch.batch.kernel import frozen
from anabranch.batch.schema import ElementSchema
from anabranch.operators.contract import Reason, Resolved
from anabranch.operators.waiting.hold_kernel import END, ITEM, ORIGIN, combine

COLUMNS: Final = ("start", "end", "origin", "old", "input")
"""The numbers of an arc as they are saved."""


class Arcs(NamedTuple):
    """Arcs as columns; `item` is the row of the step's data that each stands for, or -1."""

    group: Ints
    start: Ints
    end: Ints
    origin: Ints
    old: Ints
    input: Ints
    item: Ints

    @classmethod
    def held(cls, group: Ints, rows: Ints) -> "Arcs":
        """Those of earlier steps, as they were saved."""
        start, end, origin, old, number = rows.T
        item = np.full(len(group), -1, np.int64)
        return cls(group, start, end, origin, old, number, item)

    @classmethod
    def of(cls, data: Batch, group: Ints, rows: Ints, number: Ints) -> "Arcs":
        """An arc for each of these rows of a step's data; `number` is its input."""
        start = data.start[rows]
        origin = np.where(data.kind[rows] == ADJUST, data.old_end[rows], start)
        return cls(group, start, data.end[rows], origin, origin, number[rows], rows)

    def take(self, rows: Ints | Mask) -> "Arcs":
        """Some of them."""
        return Arcs(*(column[rows] for column in self))

    @property
    def numbers(self) -> Ints:
        """The rows as they are saved."""
        return np.stack(self[1:6], axis=1)

    @property
    def is_insert(self) -> Mask:
        """Which of them are events that are not on the output."""
        found: Mask = self.origin == self.start
        return found

    @property
    def sync(self) -> Ints:
        """When each of them first changes a snapshot."""
        first: Ints = np.where(self.is_insert, self.start, np.minimum(self.origin, self.end))
        return first


def joined(*some: Arcs) -> Arcs:
    """All of these, by group; those of a group in their order."""
    columns = [np.concatenate(column) for column in zip(*some, strict=True)]
    order = np.argsort(columns[0], kind="stable")
    return Arcs(*(column[order] for column in columns))


def combined(held: Arcs, news: Arcs) -> tuple[Arcs, Arcs, int]:
    """The arcs of some groups after a step; the elements that stand for none; looks."""
    every = joined(held, news)
    joins = (every.item >= 0) & ~every.is_insert
    if not joins.any():
        return every, every.take(joins), 0
    arcs, applied = np.empty((3, len(every.group)), np.int64), np.zeros(len(joins), np.bool_)
    sides = frozen(every.group), frozen(every.origin), frozen(every.end)
    count, looks = combine(*sides, frozen(joins), arcs, applied)
    arcs = arcs[:, : int(count)]
    last = every.take(arcs[ITEM])
    made = last._replace(origin=arcs[ORIGIN].copy(), end=arcs[END].copy())
    return made, every.take(applied), int(looks)


@dataclass(frozen=True, eq=False)
class Taken:
    """The elements of a step that change something, and where each is among the arrivals.

    `number` is the input of each, as `names` has them; `places` are the arrivals and rows that
    the data came from, and `reasons` are changed in place.
    """

    data: Batch
    number: Ints
    places: Sequence[tuple[int, Ints]]
    reasons: tuple[Codes, ...]

    def give(self, rows: Ints, reason: Reason) -> None:
        """These rows of the data have this reason."""
        codes = np.full(len(self.data), -1, np.int8)
        codes[rows] = reason.code
        self.give_each(codes)

    def give_each(self, codes: Codes) -> None:
        """The rows of the data have these reasons; -1: the one that they have."""
        first = 0
        for arrival, own in self.places:
            some = codes[first : first + len(own)]
            self.reasons[arrival][own[some >= 0]] = some[some >= 0]
            first += len(own)


def emitted(
    schema: ElementSchema, direct: Batch, arcs: Arcs, payload: pa.Table, words: Ints
) -> Batch:
    """Inserts that were never held and arcs that leave, by sync time, adjusts first.

    `payload` and `words` (their hashes) are those of the arcs.
    """
    is_insert = np.append(np.ones(len(direct), np.bool_), arcs.is_insert)
    sync = np.append(direct.start, arcs.sync)
    every = pa.concat_tables([direct.payload, payload])
    hashes = None
    if direct.hashes is not None or not len(direct):
        known = np.empty((0, 2), np.uint64) if direct.hashes is None else direct.hashes
        hashes = np.concatenate([known, words.view(np.uint64)])
    made = Batch(
        schema,
        np.where(is_insert, INSERT, ADJUST).astype(np.int8),
        np.append(direct.start, arcs.start),
        np.append(direct.end, arcs.end),
        np.where(is_insert, 0, np.append(np.zeros(len(direct), np.int64), arcs.origin)),
        every,
        hashes=hashes,
    )
    return made.take(_order(made, sync))


def _order(batch: Batch, sync: Ints) -> Ints:
    """By sync time and kind; of equal ones by payload, start and end."""
    is_insert = batch.kind == INSERT
    if is_insert.all():
        order = np.argsort(sync, kind="stable")
    else:
        order = np.lexsort((is_insert, sync))
    first, kind = sync[order], is_insert[order]
    same = (first[1:] == first[:-1]) & (kind[1:] == kind[:-1])
    tied = np.flatnonzero(np.append(same, False) | np.append(False, same))
    if len(tied):
        rows = order[tied]
        words = hash_rows(take(batch.payload, rows), len(rows))
        by = batch.end[rows], batch.start[rows], words[:, 1], words[:, 0]
        order[tied] = rows[np.lexsort((*by, is_insert[rows], sync[rows]))]
    found: Ints = order.astype(np.int64)
    return found


def resolved(
    schema: ElementSchema, arcs: Arcs, payload: pa.Table, names: Sequence[str]
) -> list[Resolved]:
    """The elements of earlier steps that these arcs stand for: they are applied now."""
    made = []
    for number, name in enumerate(names):
        rows = np.flatnonzero((arcs.input == number) & (arcs.item < 0))
        if not len(rows):
            continue
        some = arcs.take(rows)
        is_insert = some.old == some.start
        kind = np.where(is_insert, INSERT, ADJUST).astype(np.int8)
        old_end = np.where(is_insert, 0, some.old)
        mine = payload if len(rows) == len(arcs.group) else take(payload, rows)
        batch = Batch(schema, kind, some.start, some.end, old_end, mine)
        codes = np.full(len(rows), Reason.APPLIED.code, np.int8)
        made.append(Resolved(name, batch, codes))
    return made
