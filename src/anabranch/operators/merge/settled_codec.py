"""Settled names as tables, and in parts: `settled/K` has the names with the numbers of block K.

A block that is full is never written again.  A part may hold names that were forgotten since;
the control says which is the first that counts, and which number comes next.
"""

from collections.abc import Mapping
from typing import Final

import numpy as np
import pyarrow as pa

from anabranch.batch.batch import Ints
from anabranch.operators.merge.settled import BLOCK, BLOCK_BITS, END, Settled
from anabranch.operators.merge.slots import HIGH, LOW, START
from anabranch.operators.state_codec import StateKind, column_of, header_of, to_table
from anabranch.operators.state_parts import part_of, with_mark

_COLUMNS: Final = {"start": START, "high": HIGH, "low": LOW, "end": END}
# Version 1 of R3 called the first word of the hash high.
SWAPPED: Final = {"start": START, "high": LOW, "low": HIGH, "end": END}


def settled_table(rows: Ints) -> pa.Table:
    """These settled names."""
    return to_table({name: rows[:, column] for name, column in _COLUMNS.items()})


def read_settled(table: pa.Table, columns: Mapping[str, int] = _COLUMNS) -> Ints:
    """The rows of a table of settled names, by end."""
    rows = np.empty((table.num_rows, len(columns)), np.int64)
    for name, column in columns.items():
        rows[:, column] = column_of(table, name).view(np.int64)
    return rows


def settled_parts(settled: Settled, since: int) -> tuple[dict[str, bytes], list[str]]:
    """The parts that got a name after a mark, and those that have none any more."""
    new, emptied = settled.blocks(since)
    written = {}
    for block in new:
        first = max(block << BLOCK_BITS, settled.first)
        rows = settled.rows(first, min((block + 1) << BLOCK_BITS, settled.next))
        written[f"settled/{block}"] = with_mark(first, settled_table(rows))
    return written, [f"settled/{block}" for block in emptied]


def read_settled_parts(
    settled: Settled, parts: Mapping[str, bytes], end: int, mark: int, kind: StateKind
) -> None:
    """Fill what is empty with the names up to the number `end`."""
    for block in range(settled.first >> BLOCK_BITS, -(-end // BLOCK)):
        if settled.next == end:
            break
        table = kind.open(part_of(parts, f"settled/{block}", kind)).next()
        first = int(header_of(table)["mark"])
        rows = read_settled(table)[settled.next - first : end - first]
        settled.remember(rows[:, : LOW + 1], rows[:, END], mark)
    if f"settled/{end >> BLOCK_BITS}" in parts:
        settled.reopen(mark)
