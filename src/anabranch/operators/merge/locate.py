"""Which event an element is about: exact, found by hash and decided by value.

Every data element gets the number of its node.  Names are searched in `batch.index`; a hit is
compared by value with the payload that the node holds, and goes on searching if it differs (a
true collision of 128 bits, or one that somebody made).  A name that is not there becomes a new
node if its start is not behind the output's frontier; its payload is stored at once, so that
the next element with it compares with the store like any other.

Papers: LMerge IV-D, the first tier of in2t (SameVsPayload).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from anabranch.batch.batch import STABLE, Batch, Codes, Hashes, Ints, Mask
from anabranch.batch.columns import Column
from anabranch.batch.hashing import hash_columns
from anabranch.batch.index import NOBODY, Lookup
from anabranch.batch.kernel import frozen, kernel
from anabranch.batch.store import read_table
from anabranch.operators.state.events import Events
from anabranch.operators.state.final_names import UNKNOWN, FinalNames

# Rows that are hashed, looked up and compared while they are in the cache; smaller batches go
# together, since a piece costs a quarter of a millisecond however small it is.
_STRIDE: Final = 16_384
_ENOUGH: Final = 1_024


@dataclass(frozen=True, eq=False)
class Located:
    """Of each element the node (or NOBODY) and the end it is final with (or UNKNOWN).

    `created` are the nodes that were made for these elements, in their order.
    """

    node: Ints
    final_end: Ints
    created: Ints


def hash_names(columns: Sequence[Column], count: int) -> Hashes:
    """The 128-bit hash of each payload, two words per row; batches that have it bring it."""
    return hash_columns(columns, count)


def locate(
    nodes: Events, names: FinalNames, batches: Sequence[Batch], *, frontier: int, mark: int
) -> Located:
    """Find the node of each element, or make one if it starts at the frontier or later."""
    found = [_locate_piece(nodes, names, piece, frontier, mark) for piece in _pieces(batches)]
    if len(found) == 1:
        return found[0]
    none = np.empty(0, np.int64)
    return Located(
        np.concatenate([none, *(piece.node for piece in found)]),
        np.concatenate([none, *(piece.final_end for piece in found)]),
        np.concatenate([none, *(piece.created for piece in found)]),
    )


@dataclass(frozen=True, eq=False)
class _Piece:
    kind: Codes
    start: Ints
    payload: pa.Table
    hashes: Hashes | None


def _pieces(batches: Sequence[Batch]) -> Iterator[_Piece]:
    """All rows, in order, in pieces of about one size."""
    waiting: list[Batch] = []
    for batch in batches:
        if waiting and sum(map(len, waiting)) + len(batch) > _STRIDE:
            yield from _cut(waiting)
            waiting = []
        waiting.append(batch)
    if waiting:
        yield from _cut(waiting)


def _cut(batches: Sequence[Batch]) -> Iterator[_Piece]:
    kind = np.concatenate([batch.kind for batch in batches])
    start = np.concatenate([batch.start for batch in batches])
    payload = pa.concat_tables([batch.payload for batch in batches])
    known = [batch.hashes for batch in batches if batch.hashes is not None]
    hashes = np.concatenate(known) if len(known) == len(batches) else None
    for first, end in _ranges(payload, len(kind)):
        rows = slice(first, end)
        some = None if hashes is None else hashes[rows]
        yield _Piece(kind[rows], start[rows], payload.slice(first, end - first), some)


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


def _locate_piece(
    nodes: Events, names: FinalNames, piece: _Piece, frontier: int, mark: int
) -> Located:
    columns = read_table(piece.payload)
    start = np.ascontiguousarray(piece.start)
    hashes = hash_names(columns, len(start)) if piece.hashes is None else piece.hashes
    may_add, data = np.empty(len(start), np.bool_), np.empty(len(start), np.int64)
    count, adds = list_data(frozen(piece.kind), frozen(start), frontier, may_add, data)
    asked = Lookup(start, hashes, may_add, nodes.candidates(adds))
    rows = data[:count]
    created = nodes.find(asked, rows, columns, mark)
    final_end = np.full(len(start), UNKNOWN, np.int64)
    behind = np.empty(count, np.int64)
    behind = behind[: int(list_nameless(frozen(data[:count]), asked.id, behind))]
    if len(behind):
        final_end[behind] = names.ends(start[behind], hashes[behind])
    return Located(asked.id, final_end, created)


@kernel
def list_data(
    kind: Codes, start: Ints, frontier: int, may_add: Mask, data: Ints
) -> tuple[int, int]:
    """Which rows are data, and for which of them a node may be made; counts of both."""
    count, adds = 0, 0
    for row in range(kind.size):
        may_add[row] = kind[row] != STABLE and start[row] >= frontier
        if kind[row] != STABLE:
            data[count] = row
            count += 1
            if may_add[row]:
                adds += 1
    return count, adds


@kernel
def list_nameless(data: Ints, ids: Ints, behind: Ints) -> int:
    """Those of these rows that have no node; returns how many they are."""
    count = 0
    for k in range(data.size):
        if ids[data[k]] == NOBODY:
            behind[count] = data[k]
            count += 1
    return count
