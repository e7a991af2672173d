"""Incremental saves: a state in blocks, of which a save writes those that changed.

A part is a name and bytes.  Every state has the part `control`, which every save writes; large
states keep their rows in blocks of numbers, and each block in parts of its own.  A state counts
its changes (its `mark`); a block remembers when a row of it was last changed, and when one last
got a payload, so a save knows what is older than the one before.

The control part lists the change number of each block, and each part has its own: parts
that do not belong together are refused by name.  A part that the control does not name is not
looked at, so a part may be deleted late.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from anabranch.batch.batch import Ints, Mask
from anabranch.batch.buffers import take
from anabranch.errors import StateError
from anabranch.operators.state.codec import (
    StateKind,
    Streams,
    column_of,
    header_of,
    to_table,
    write_tables,
)

CONTROL: Final = "control"
"""The part that names the others."""

EVERYTHING: Final = -1
"""A mark before all changes."""

BLOCK_BITS: Final = 10
BLOCK: Final = 1 << BLOCK_BITS
"""The number of rows in one block."""


@dataclass(frozen=True, eq=False)
class Saved:
    """What changed in a state, by name of part; apply it to what was saved before.

    `deleted` parts may never have been there.  `mark` is what to give as `since` next time.
    """

    written: Mapping[str, bytes]
    deleted: tuple[str, ...]
    mark: int


class Blocks:
    """The blocks that have rows, and those that lost their last one since they were saved.

    `number` rises; `changed` and `filled` are marks; `held` is how many rows there are.  What
    was never saved is dropped as soon as it is empty: `_created` is the mark at which the block
    got its first row, `_saved` the mark of the last save.
    """

    def __init__(self, number: Ints, changed: Ints, filled: Ints, held: Ints) -> None:
        """Blocks that were saved, perhaps."""
        self.number, self.changed, self.filled, self.held = number, changed, filled, held
        self._created = np.zeros(len(number), np.int64)
        self._saved = 0

    def __repr__(self) -> str:
        rows = zip(self.number.tolist(), self.held.tolist(), strict=True)
        return f"Blocks({', '.join(f'{held} rows in {number}' for number, held in rows)})"

    @classmethod
    def none(cls) -> "Blocks":
        """Nothing is held."""
        empty = np.empty(0, np.int64)
        return cls(empty, empty, empty, empty)

    @classmethod
    def read(cls, table: pa.Table) -> "Blocks":
        """As `table` wrote them; see `hold`."""
        block, changed, filled = (
            column_of(table, name).copy() for name in ("block", "changed", "filled")
        )
        return cls(block, changed, filled, np.zeros(len(block), np.int64))

    def copy(self) -> "Blocks":
        """The same, to be changed."""
        columns = (self.number, self.changed, self.filled, self.held)
        return Blocks(*(column.copy() for column in columns))

    def change(self, ids: Ints, mark: int) -> None:
        """These rows were changed."""
        self.changed[self._find(ids, mark)[0]] = mark

    def add(self, ids: Ints, mark: int) -> None:
        """These rows are new, and have payloads."""
        at, count = self._find(ids, mark)
        self.changed[at] = self.filled[at] = mark
        self.held[at] += count

    def remove(self, ids: Ints, mark: int) -> None:
        """These rows left."""
        at, count = self._find(ids, mark)
        self.changed[at] = mark
        self.held[at] -= count
        if len(at):
            self._keep((self.held > 0) | (self._created <= self._saved))

    def hold(self, ids: Ints) -> None:
        """These rows are there, as they were saved."""
        at, count = self._find(ids, 0)
        self.held[at] += count

    def forget(self, since: int, mark: int) -> None:
        """All is saved up to `mark`; what was empty at `since` is no longer needed."""
        self._saved = mark
        self._keep((self.held > 0) | (self.changed > since))

    def _find(self, ids: Ints, mark: int) -> tuple[Ints, Ints]:
        """Where the blocks of these rows are here, and how many of the rows each has."""
        blocks: Ints
        blocks, count = np.unique(ids >> BLOCK_BITS, return_counts=True)
        new = blocks[~np.isin(blocks, self.number, assume_unique=True)]
        if len(new):
            at = np.searchsorted(self.number, new)
            self.number = np.insert(self.number, at, new)
            self.changed, self.filled, self.held = (
                np.insert(column, at, 0) for column in (self.changed, self.filled, self.held)
            )
            self._created = np.insert(self._created, at, mark)
        return np.searchsorted(self.number, blocks), count

    def _keep(self, rows: Mask) -> None:
        if not rows.all():
            self.number, self.changed = self.number[rows], self.changed[rows]
            self.filled, self.held = self.filled[rows], self.held[rows]
            self._created = self._created[rows]

    def after(self, since: int) -> "tuple[list[Block], list[int]]":
        """The blocks with rows that changed after a mark, and those that became empty."""
        has_rows, is_new = self.held > 0, self.changed > since
        columns = (self.number, self.changed, self.filled)
        rows = zip(*(column[has_rows & is_new].tolist() for column in columns), strict=True)
        return [Block(*row) for row in rows], self.number[~has_rows & is_new].tolist()

    def named(self) -> "list[Block]":
        """All blocks, as the control names them."""
        columns = (self.number, self.changed, self.filled)
        return [Block(*row) for row in zip(*(c.tolist() for c in columns), strict=True)]

    def table(self) -> pa.Table:
        """The blocks with rows, for the control."""
        rows = self.held > 0
        columns = {"block": self.number, "changed": self.changed, "filled": self.filled}
        return to_table({name: column[rows] for name, column in columns.items()})

    def check(self, ids: Ints) -> None:
        """Assert that just these rows are held."""
        blocks, count = np.unique(ids >> BLOCK_BITS, return_counts=True)
        rows = self.held > 0
        numbers, held = self.number[rows].tolist(), self.held[rows].tolist()
        assert numbers == blocks.tolist(), f"blocks with rows {numbers} != {blocks.tolist()}"
        assert held == count.tolist(), f"rows per block {held} != {count.tolist()}"
        assert (self.held >= 0).all(), f"rows per block < 0: {self.held}"


@dataclass(frozen=True, slots=True)
class Block:
    """A block of numbers: when a row of it changed, and when one got a payload."""

    number: int
    changed: int
    filled: int


def with_mark(mark: int, table: pa.Table, *more: pa.Table) -> bytes:
    """A part with the number of its change."""
    return write_tables(table.replace_schema_metadata({"mark": str(mark)}), *more)


def part_of(parts: Mapping[str, bytes], name: str, kind: StateKind) -> bytes:
    """One part; StateError if it is missing."""
    data = parts.get(name)
    if data is None:
        message = (
            f"{kind.operator}: the state has no part '{name}', but its control names it; the "
            "checkpoint is incomplete; start with a new checkpoint and output folder"
        )
        raise StateError(message)
    return data


def read_marked(
    parts: Mapping[str, bytes], name: str, mark: int, kind: StateKind
) -> tuple[pa.Table, Streams]:
    """The first table of a part, and the rest, if it is the part that this save needs."""
    source = kind.open(part_of(parts, name, kind))
    table = source.next()
    found = header_of(table).get("mark", "unknown")
    if found != str(mark):
        message = (
            f"{kind.operator}: part '{name}' of the state is of change {found}, the control "
            f"asks for {mark}; the parts are of different saves; start with a new checkpoint "
            "and output folder"
        )
        raise StateError(message)
    return table, source


@dataclass(frozen=True)
class InBlocks:
    """Rows with numbers and payloads, and the blocks that they are in.

    `ids` are the numbers of the rows of a block, rising; `tables` are some of the rows, the
    first table with their numbers as `node`; `payload` are their payloads.  `at_once`: one
    table has a row for each number, and numbers of several blocks may be asked.
    """

    blocks: Blocks
    ids: Callable[[int], Ints]
    tables: Callable[[Ints], tuple[pa.Table, ...]]
    payload: Callable[[Ints], pa.Table]
    at_once: bool = True


def write_blocks(held: InBlocks, since: int) -> tuple[dict[str, bytes], list[str]]:
    """The parts of the blocks that changed after a mark, and the names of those that are gone.

    `nodes/K` has the rows of block K; `payload/K` its payloads, and is written only when a row
    got one.  It may hold payloads of rows that left.
    """
    written, deleted = {}, []
    changed, emptied = held.blocks.after(since)
    ids = [held.ids(block.number) for block in changed]
    for block, tables in zip(changed, _tables(held, ids), strict=True):
        written[f"nodes/{block.number}"] = with_mark(block.changed, *tables)
    filled = [at for at, block in enumerate(changed) if block.filled > since]
    some = [ids[at] for at in filled]
    payloads = _slices(held.payload, some) if held.at_once else map(held.payload, some)
    for at, payload in zip(filled, payloads, strict=True):
        numbers, block = to_table({"node": ids[at]}), changed[at]
        part = with_mark(block.filled, numbers, payload.replace_schema_metadata(None))
        written[f"payload/{block.number}"] = part
    for number in emptied:
        deleted += [f"nodes/{number}", f"payload/{number}"]
    return written, deleted


def _tables(held: InBlocks, ids: Sequence[Ints]) -> Iterator[tuple[pa.Table, ...]]:
    """The tables of each block."""
    if held.at_once:
        yield from ((table,) for table in _slices(lambda all_: held.tables(all_)[0], ids))
    else:
        yield from map(held.tables, ids)


def _slices(read: Callable[[Ints], pa.Table], ids: Sequence[Ints]) -> Iterator[pa.Table]:
    """A table with a row for each number, cut as the numbers are: one read costs less."""
    if not ids:
        return
    whole = read(np.concatenate(ids))
    first = 0
    for mine in ids:
        yield whole.slice(first, len(mine))
        first += len(mine)


def read_blocks(
    parts: Mapping[str, bytes], blocks: Blocks, kind: StateKind
) -> Iterator[tuple[pa.Table, Streams, pa.Table]]:
    """Of each block its first table, the tables after it, and the payload of each row."""
    for block in blocks.named():
        rows, more = read_marked(parts, f"nodes/{block.number}", block.changed, kind)
        known, payload = read_marked(parts, f"payload/{block.number}", block.filled, kind)
        at = np.searchsorted(column_of(known, "node"), column_of(rows, "node"))
        yield rows, more, take(payload.next(), at)
