"""Which event an element is about: exact, found by hash and decided by value.

Every data element gets the number of its node.  Names are searched in `batch.index`; a hit is
compared by value with the payload that the node holds, and goes on searching if it differs (a
true collision of 128 bits, or one that somebody made).  A name that is not there becomes a new
node if its start is not behind the output's frontier; its payload is stored at once, so that
the next element with it compares with the store like any other.

Papers: LMerge IV-D, the first tier of in2t (SameVsPayload).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from anabranch.batch.batch import STABLE, Batch, Codes, Ints, Mask
from anabranch.batch.index import NOBODY
from anabranch.batch.kernel import frozen, kernel
from anabranch.operators.state.events import Events
from anabranch.operators.state.final_names import UNKNOWN, FinalNames
from anabranch.operators.state.pieces import Piece, find_piece, pieces


@dataclass(frozen=True, eq=False)
class Located:
    """Of each element the node (or NOBODY) and the end it is final with (or UNKNOWN).

    `created` are the nodes that were made for these elements, in their order.
    """

    node: Ints
    final_end: Ints
    created: Ints


def locate(
    nodes: Events, names: FinalNames, batches: Sequence[Batch], *, frontier: int, mark: int
) -> Located:
    """Find the node of each element, or make one if it starts at the frontier or later."""
    found = [_locate_piece(nodes, names, piece, frontier, mark) for piece in pieces(batches)]
    if len(found) == 1:
        return found[0]
    none = np.empty(0, np.int64)
    return Located(
        np.concatenate([none, *(piece.node for piece in found)]),
        np.concatenate([none, *(piece.final_end for piece in found)]),
        np.concatenate([none, *(piece.created for piece in found)]),
    )


def _locate_piece(
    nodes: Events, names: FinalNames, piece: Piece, frontier: int, mark: int
) -> Located:
    start = np.ascontiguousarray(piece.start)
    may_add, data = np.empty(len(start), np.bool_), np.empty(len(start), np.int64)
    count = int(list_data(frozen(piece.kind), frozen(start), frontier, may_add, data))
    rows = data[:count]
    asked, created = find_piece(nodes, piece, start, may_add, rows, mark)
    final_end, behind = np.full(len(start), UNKNOWN, np.int64), np.empty(count, np.int64)
    behind = behind[: int(list_nameless(frozen(rows), asked.id, behind))]
    if len(behind):
        hashes = np.stack((asked.low[behind], asked.high[behind]), axis=1)
        final_end[behind] = names.ends(start[behind], hashes.view(np.uint64))
    return Located(asked.id, final_end, created)


@kernel
def list_data(kind: Codes, start: Ints, frontier: int, may_add: Mask, data: Ints) -> int:
    """Which rows are data, and for which of them a node may be made; how many are data."""
    count = 0
    for row in range(kind.size):
        may_add[row] = kind[row] != STABLE and start[row] >= frontier
        if kind[row] != STABLE:
            data[count] = row
            count += 1
    return count


@kernel
def list_nameless(data: Ints, ids: Ints, behind: Ints) -> int:
    """Those of these rows that have no node; returns how many they are."""
    count = 0
    for k in range(data.size):
        if ids[data[k]] == NOBODY:
            behind[count] = data[k]
            count += 1
    return count
