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

from anabranch.batch.batch import STABLE, Batch, Ints
from anabranch.batch.index import NOBODY
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
    is_data, start = piece.kind != STABLE, piece.start
    rows, may_add = np.flatnonzero(is_data), is_data & (start >= frontier)
    asked, created = find_piece(nodes, piece, start, may_add, rows, mark)
    final_end = np.full(len(start), UNKNOWN, np.int64)
    behind = rows[asked.id[rows] == NOBODY]
    if len(behind):
        hashes = np.stack((asked.low[behind], asked.high[behind]), axis=1)
        final_end[behind] = names.ends(start[behind], hashes.view(np.uint64))
    return Located(asked.id, final_end, created)
