"""The event table of a merge, with bags of ends for identities that have several events.

A row is an identity.  Nearly all have one event, whose ends are in the row itself.  When a
replica inserts an identity that it has already, the row becomes a bag: each of its cells is
then the address of a block in `cells`, and OUT and SHOWN hold the number of a record.

    a cell     ABSENT: never mentioned; else the address of a block, which may be empty
    a block    first (ends and size class, number of events); then (end, count), ascending
    a record   the output's bag as the step makes it and as readers have it (one block while
               they are equal), and what the step notes about the identity

Blocks have room for a power of two of ends (their class) and are used again: `heads` has the
first free block of each class, how far cells and records are used, and the greatest class so
far.  Kernels cannot make room: whoever adds asks first whether there `has_room`.

Papers: LMerge IV-D, in2t and IV-E, in3t (Figure 1).
"""

from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from anabranch.batch.batch import Ints
from anabranch.batch.index import START
from anabranch.batch.kernel import kernel, part
from anabranch.batch.store import grown
from anabranch.operators.merge.layout import BAG, ENDS, OUT, SHOWN
from anabranch.operators.state.events import ABSENT, FLAGS, LIVE, Events

OUT_BLOCK: Final = 0
SHOWN_BLOCK: Final = 1
CREDIT: Final = 2
"""While a step lasts: how many inserts bring an event of it to the output."""
CREDITED_BY: Final = 3
"""The replica of the first of these, and its end."""
CREDITED_END: Final = 4
MARK: Final = 5
"""The mark of the last step that has it among its touched bags."""
_RECORD: Final = 6

_CLASS_BITS: Final = 6
_CLASS_MASK: Final = (1 << _CLASS_BITS) - 1
_CLASSES: Final = 40
_USED: Final = _CLASSES
_LARGEST: Final = _CLASSES + 1
_RECORDS: Final = _CLASSES + 2
_FREE_RECORD: Final = _CLASSES + 3
_NONE: Final = -1
_FIRST_ROOM: Final = 64


class Bags(NamedTuple):
    """The arrays, as kernels take them."""

    cells: Ints
    heads: Ints
    records: Ints


def no_bags() -> Bags:
    """No identity has several events."""
    heads = np.full(_FREE_RECORD + 1, _NONE, np.int64)
    heads[_USED], heads[_LARGEST], heads[_RECORDS] = 0, 1, 0
    return Bags(np.empty((0, 2), np.int64), heads, np.empty((0, _RECORD), np.int64))


def with_room(bags: Bags, events: int = 0, records: int = 0) -> Bags:
    """The same with room for one visit, and for `events` and `records` more."""
    used, largest = int(bags.heads[_USED]), int(bags.heads[_LARGEST])
    size = used + (64 << largest) + 16 * events + _FIRST_ROOM
    records += int(bags.heads[_RECORDS]) + _FIRST_ROOM
    return bags._replace(cells=grown(bags.cells, size), records=grown(bags.records, records))


@part
def has_room(bags: Bags, ends: int) -> bool:
    """Whether one visit that may add this many ends finds room for its blocks."""
    heads = bags.heads
    # Blocks double, so what a visit copies or widens is bounded by the widest block so far and
    # by the ends that it may add.
    largest = 4 << heads[_LARGEST]
    has_record = heads[_FREE_RECORD] >= 0 or heads[_RECORDS] < bags.records.shape[0]
    return bool(has_record and heads[_USED] + 4 * (largest + ends) + 8 <= bags.cells.shape[0])


@part
def total(bags: Bags, at: int) -> int:
    """How many events a bag has."""
    return int(bags.cells[at, 1]) if at >= 0 else 0


@part
def size(bags: Bags, at: int) -> int:
    """How many different ends a bag has."""
    return int(bags.cells[at, 0] >> _CLASS_BITS) if at >= 0 else 0


@part
def end_at(bags: Bags, at: int, k: int) -> int:
    """The k-th smallest end."""
    return int(bags.cells[at + 1 + k, 0])


@part
def count_at(bags: Bags, at: int, k: int) -> int:
    """How many events have the k-th smallest end."""
    return int(bags.cells[at + 1 + k, 1])


@part
def last_end(bags: Bags, at: int) -> int:
    """The greatest end of a bag; ABSENT if it has no event."""
    ends = size(bags, at)
    return end_at(bags, at, ends - 1) if ends > 0 else ABSENT


@part
def find(bags: Bags, at: int, end: int) -> int:
    """How many ends of a bag are smaller."""
    low, high = 0, size(bags, at)
    while low < high:
        middle = (low + high) >> 1
        if bags.cells[at + 1 + middle, 0] < end:
            low = middle + 1
        else:
            high = middle
    return low


@part
def has_end(bags: Bags, at: int, end: int) -> bool:
    """Whether there is an event with this end."""
    k = find(bags, at, end)
    return bool(k < size(bags, at) and bags.cells[at + 1 + k, 0] == end)


@part
def take_block(bags: Bags, order: int) -> int:
    """A block of this class, with no end; there is room."""
    heads, cells = bags.heads, bags.cells
    at = int(heads[order])
    # A free block holds the address of the next free one of its class.
    if at >= 0:
        heads[order] = cells[at, 0]
    else:
        at = int(heads[_USED])
        heads[_USED] = at + 1 + (1 << order)
        heads[_LARGEST] = max(heads[_LARGEST], order)
    cells[at, 0], cells[at, 1] = order, 0
    return at


@part
def give_block(bags: Bags, at: int) -> None:
    """Let a block be used again; ABSENT is none."""
    if at >= 0:
        order = bags.cells[at, 0] & _CLASS_MASK
        bags.cells[at, 0] = bags.heads[order]
        bags.heads[order] = at


@part
def copy_block(bags: Bags, at: int, order: int) -> int:
    """A copy of a block in a block of this class, which is not smaller; there is room."""
    other, cells = take_block(bags, order), bags.cells
    ends = size(bags, at)
    cells[other, 0], cells[other, 1] = (ends << _CLASS_BITS) | order, cells[at, 1]
    for i in range(1, ends + 1):
        cells[other + i, 0], cells[other + i, 1] = cells[at + i, 0], cells[at + i, 1]
    return other


@kernel
def add_end(bags: Bags, at: int, end: int) -> int:
    """One event more with this end; where the bag is now.  There is room."""
    cells = bags.cells
    if at < 0:
        at = take_block(bags, 1)
    ends, order = cells[at, 0] >> _CLASS_BITS, cells[at, 0] & _CLASS_MASK
    k = find(bags, at, end)
    # Events with equal ends are one cell with a count.
    if k < ends and cells[at + 1 + k, 0] == end:
        cells[at + 1 + k, 1] += 1
        cells[at, 1] += 1
        return at
    # Full: the ends move to a block of the next class, twice as wide.
    if ends == 1 << order:
        wider = copy_block(bags, at, order + 1)
        give_block(bags, at)
        at, order = wider, order + 1
    # Ends stay sorted: differences of two bags are one pass.
    for i in range(at + 1 + ends, at + 1 + k, -1):
        cells[i, 0], cells[i, 1] = cells[i - 1, 0], cells[i - 1, 1]
    cells[at + 1 + k, 0], cells[at + 1 + k, 1] = end, 1
    cells[at, 0] = ((ends + 1) << _CLASS_BITS) | order
    cells[at, 1] += 1
    return at


@kernel
def remove_end(bags: Bags, at: int, end: int) -> bool:
    """One event less with this end; whether there was one.  The block stays."""
    cells = bags.cells
    if at < 0 or not has_end(bags, at, end):
        return False
    ends, order = cells[at, 0] >> _CLASS_BITS, cells[at, 0] & _CLASS_MASK
    k = find(bags, at, end)
    cells[at, 1] -= 1
    cells[at + 1 + k, 1] -= 1
    # The last event with this end: close the gap.
    if cells[at + 1 + k, 1] == 0:
        ends -= 1
        for i in range(at + 1 + k, at + 1 + ends):
            cells[i, 0], cells[i, 1] = cells[i + 1, 0], cells[i + 1, 1]
        cells[at, 0] = (ends << _CLASS_BITS) | order
    return True


@part
def take_record(bags: Bags) -> int:
    """A record without bags; there is room."""
    heads, records = bags.heads, bags.records
    record = int(heads[_FREE_RECORD])
    if record >= 0:
        heads[_FREE_RECORD] = records[record, OUT_BLOCK]
    else:
        record = int(heads[_RECORDS])
        heads[_RECORDS] = record + 1
    records[record, OUT_BLOCK] = records[record, SHOWN_BLOCK] = ABSENT
    records[record, CREDIT] = records[record, CREDITED_BY] = 0
    records[record, CREDITED_END], records[record, MARK] = 0, ABSENT
    return record


@part
def make_bag(bags: Bags, rows: Ints, node: int) -> None:
    """Turn a row with one event into a bag; there is room."""
    start, record = rows[node, START], take_record(bags)
    out, shown = rows[node, OUT], rows[node, SHOWN]
    if out != ABSENT:
        bags.records[record, OUT_BLOCK] = add_end(bags, ABSENT, out)
    # Equal bags share one block until the output changes; see `change_output`.
    if shown == out:
        bags.records[record, SHOWN_BLOCK] = bags.records[record, OUT_BLOCK]
    elif shown != ABSENT:
        bags.records[record, SHOWN_BLOCK] = add_end(bags, ABSENT, shown)
    rows[node, OUT] = rows[node, SHOWN] = record
    for column in range(ENDS, rows.shape[1]):
        end = rows[node, column]
        if end > start:
            rows[node, column] = add_end(bags, ABSENT, end)
        # A tombstone: the replica has removed all, which is not the same as never mentioned.
        elif end != ABSENT:
            rows[node, column] = take_block(bags, 1)
    rows[node, FLAGS] |= BAG


@part
def change_output(bags: Bags, record: int, old_end: int, end: int) -> None:
    """One event of the output gets another end, is new (no old end) or is gone (no end)."""
    records = bags.records
    at = records[record, OUT_BLOCK]
    if at >= 0 and at == records[record, SHOWN_BLOCK]:
        # Readers still have the bag as it was.
        at = copy_block(bags, at, bags.cells[at, 0] & _CLASS_MASK)
    if old_end != ABSENT:
        remove_end(bags, at, old_end)
    if end != ABSENT:
        at = add_end(bags, at, end)
    records[record, OUT_BLOCK] = at


@part
def touch_bag(bags: Bags, rows: Ints, node: int, mark: int, touched: Ints, count: int) -> int:
    """Note once that a bag was touched in this step; how many were."""
    record = rows[node, OUT]
    if bags.records[record, MARK] != mark:
        bags.records[record, MARK] = mark
        touched[count] = node
        count += 1
    return count


@kernel
def settle_bags(bags: Bags, rows: Ints, nodes: Ints) -> None:
    """Readers have what the output has from now on; no credit is left."""
    for k in range(nodes.size):
        record = rows[nodes[k], OUT]
        out, shown = bags.records[record, OUT_BLOCK], bags.records[record, SHOWN_BLOCK]
        # Copied when the output changed: readers do not need the old one any more.
        if out != shown:
            give_block(bags, shown)
        bags.records[record, SHOWN_BLOCK] = out
        bags.records[record, CREDIT] = 0


@kernel
def dissolve(bags: Bags, rows: Ints, nodes: Ints) -> None:
    """Turn bags that leave into rows with one event, that of their last end."""
    for k in range(nodes.size):
        node = nodes[k]
        record = rows[node, OUT]
        # The row must outlive its blocks by one look: `list_final` reads its last end.
        at = bags.records[record, OUT_BLOCK]
        last = last_end(bags, at)
        give_block(bags, at)
        if bags.records[record, SHOWN_BLOCK] != at:
            give_block(bags, bags.records[record, SHOWN_BLOCK])
        for column in range(ENDS, rows.shape[1]):
            give_block(bags, rows[node, column])
            rows[node, column] = ABSENT
        bags.records[record, OUT_BLOCK] = bags.heads[_FREE_RECORD]
        bags.heads[_FREE_RECORD] = record
        rows[node, OUT] = rows[node, SHOWN] = last
        rows[node, FLAGS] &= ~BAG


@kernel
def free_column(bags: Bags, rows: Ints, nodes: Ints, column: int) -> None:
    """Let the blocks of one column be used again."""
    for k in range(nodes.size):
        give_block(bags, rows[nodes[k], column])


@part
def block_of(bags: Bags, rows: Ints, node: int, column: int) -> int:
    """The block of a column of a bag: OUT, or that of a replica."""
    cell = int(rows[node, column])
    return int(bags.records[cell, OUT_BLOCK]) if column == OUT else cell


@kernel
def list_ends(bags: Bags, rows: Ints, nodes: Ints, columns: Ints, found: Ints) -> int:
    """Write rows (place in `nodes`, place in `columns`, end, count); how many there are.

    A bag without events has one row with the count 0.  `found` may have no room: then they are
    only counted.
    """
    listed = 0
    for i in range(nodes.size):
        for j in range(columns.size):
            at = block_of(bags, rows, nodes[i], columns[j])
            ends = size(bags, at)
            # An empty block is listed too: the replica removed all.
            for k in range(ends if ends > 0 else int(at >= 0)):
                if listed < found.shape[0]:
                    found[listed, 0], found[listed, 1] = i, j
                    found[listed, 2], found[listed, 3] = rows[nodes[i], START], 0
                    if ends > 0:
                        found[listed, 2] = end_at(bags, at, k)
                        found[listed, 3] = count_at(bags, at, k)
                listed += 1
    return listed


def ends_of(bags: Bags, rows: Ints, nodes: Ints, columns: Ints) -> Ints:
    """The ends of these bags, as `list_ends` writes them."""
    none = np.empty((0, 4), np.int64)
    found = np.empty((int(list_ends(bags, rows, nodes, columns, none)), 4), np.int64)
    list_ends(bags, rows, nodes, columns, found)
    return found


@kernel
def fill_bags(bags: Bags, rows: Ints, nodes: Ints, columns: Ints, ends: Ints) -> None:
    """Turn rows into the bags that `list_ends` has written; there is room for all."""
    for i in range(nodes.size):
        node, record = nodes[i], take_record(bags)
        for j in range(columns.size):
            rows[node, columns[j]] = ABSENT
        rows[node, OUT] = rows[node, SHOWN] = record
        rows[node, FLAGS] |= BAG
    # A row with the count 0 makes an empty block: a tombstone.
    for k in range(ends.shape[0]):
        node, column = nodes[ends[k, 0]], columns[ends[k, 1]]
        at = block_of(bags, rows, node, column)
        if at < 0:
            at = take_block(bags, 1)
        for _ in range(ends[k, 3]):
            at = add_end(bags, at, ends[k, 2])
        if column == OUT:
            record = rows[node, OUT]
            bags.records[record, OUT_BLOCK] = bags.records[record, SHOWN_BLOCK] = at
        else:
            rows[node, column] = at


def check_bags(bags: Bags, rows: Ints, nodes: Ints) -> None:
    """Assert what must always hold: sorted, counted, and no cell or record lost."""
    heads, cells = bags.heads, bags.cells
    columns = np.arange(ENDS, rows.shape[1])
    records = rows[nodes, OUT]
    out, shown = bags.records[records, OUT_BLOCK], bags.records[records, SHOWN_BLOCK]
    assert (out == shown).all(), f"output blocks {out} != what readers have {shown}"
    at = np.concatenate([out, rows[nodes][:, columns].ravel()])
    at = at[at >= 0]
    taken = int((1 + (1 << (cells[at, 0] & _CLASS_MASK))).sum())
    for order in range(_CLASSES):
        block = int(heads[order])
        while block >= 0:
            taken += 1 + (1 << order)
            block = int(cells[block, 0])
    assert taken == heads[_USED] <= len(cells), f"{taken} cells of {heads[_USED]} accounted"
    free, record = 0, int(heads[_FREE_RECORD])
    while record >= 0:
        free, record = free + 1, int(bags.records[record, OUT_BLOCK])
    assert free + len(nodes) == heads[_RECORDS], f"{free} + {len(nodes)} records"
    rows_of = ends_of(bags, rows, nodes, np.append(OUT, columns))
    order_of = np.lexsort((rows_of[:, 2], rows_of[:, 1], rows_of[:, 0]))
    assert (order_of == np.arange(len(rows_of))).all(), f"ends are not sorted: order {order_of}"
    same = (rows_of[1:, :3] == rows_of[:-1, :3]).all(axis=1)
    assert not same.any(), f"an end occurs twice in a bag: rows {np.flatnonzero(same)}"


class Nodes(Events):
    """The event table of a merge: rows (see `layout`), an end per replica, and the bags."""

    def __init__(self, payload: pa.Schema, *, replicas: int = 0) -> None:
        super().__init__(payload, width=ENDS + replicas)
        self.bags = no_bags()

    @property
    def nbytes(self) -> int:
        """Bytes of rows, names, free numbers and bags; payloads not counted."""
        return super().nbytes + sum(array.nbytes for array in self.bags)

    def bag_ids(self) -> Ints:
        """The numbers of the rows that are bags; costs a look at each row."""
        return np.flatnonzero(self.rows[: self.used, FLAGS] & (LIVE | BAG) == LIVE | BAG)

    def make_room_in_bags(self, events: int = 0, records: int = 0) -> None:
        """Reserve room for one visit, and for `events` and `records` more."""
        self.bags = with_room(self.bags, events, records)

    def remove_replica(self, replica: int) -> None:
        """Drop the column of this replica."""
        if len(self.bags.cells):
            free_column(self.bags, self.rows, self.bag_ids(), ENDS + replica)
        self.remove_column(ENDS + replica)
