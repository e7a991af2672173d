"""Rows of batches in pieces that fit the CPU cache while they are searched by name.

Operators find events by their names in a table of `state.events`: every payload is hashed,
looked up, and compared by value with what the table holds.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from anabranch.batch.batch import Batch, Codes, Hashes, Ints, Mask
from anabranch.batch.columns import Column
from anabranch.batch.hashing import hash_columns
from anabranch.batch.index import Lookup
from anabranch.batch.store import read_table
from anabranch.operators.state.events import Events

# Rows that are hashed, looked up and compared while they are in the cache; smaller batches go
# together, since a piece costs a quarter of a millisecond however small it is.
_STRIDE: Final = 16_384
_ENOUGH: Final = 1_024


@dataclass(frozen=True, eq=False)
class Piece:
    """Some rows of batches, one after the other; `hashes` if the batches bring them."""

    kind: Codes
    start: Ints
    payload: pa.Table
    hashes: Hashes | None


def pieces(batches: Sequence[Batch]) -> Iterator[Piece]:
    """All rows, in order, in pieces of about one size."""
    waiting: list[Batch] = []
    for batch in batches:
        if waiting and sum(map(len, waiting)) + len(batch) > _STRIDE:
            yield from _cut(waiting)
            waiting = []
        waiting.append(batch)
    if waiting:
        yield from _cut(waiting)


def _cut(batches: Sequence[Batch]) -> Iterator[Piece]:
    kind = np.concatenate([batch.kind for batch in batches])
    start = np.concatenate([batch.start for batch in batches])
    payload = pa.concat_tables([batch.payload for batch in batches])
    known = [batch.hashes for batch in batches if batch.hashes is not None]
    hashes = np.concatenate(known) if len(known) == len(batches) else None
    for first, end in _ranges(payload, len(kind)):
        rows = slice(first, end)
        some = None if hashes is None else hashes[rows]
        yield Piece(kind[rows], start[rows], payload.slice(first, end - first), some)


def _ranges(payload: pa.Table, count: int) -> Iterator[tuple[int, int]]:
    """Rows that go together: payloads that lie in two places would be copied into one first."""
    chunks = [len(chunk) for chunk in payload.column(0).chunks] if payload.num_columns else []
    first = end = 0
    for size in chunks or [count]:
        if size >= _ENOUGH and end > first:
            yield first, end
            first = end
        end += size
        while end - first >= min(_ENOUGH, _STRIDE):
            yield first, min(end, first + _STRIDE)
            first = min(end, first + _STRIDE)
    if end > first:
        yield first, end


def hash_names(columns: Sequence[Column], count: int) -> Hashes:
    """The 128-bit hash of each payload, two words per row; batches that have it bring it."""
    return hash_columns(columns, count)


def find_piece(
    table: Events, piece: Piece, start: Ints, may_add: Mask, rows: Ints, mark: int
) -> tuple[Lookup, Ints]:
    """Look up these rows of a piece, each by this start and its payload.

    Returns what was found (`Lookup.id`), and the numbers of the rows that were added.
    """
    columns = read_table(piece.payload)
    hashes = hash_names(columns, len(start)) if piece.hashes is None else piece.hashes
    candidates = table.candidates(int(np.count_nonzero(may_add)))
    asked = Lookup(np.ascontiguousarray(start), hashes, may_add, candidates)
    return asked, table.find(asked, rows, columns, mark)
