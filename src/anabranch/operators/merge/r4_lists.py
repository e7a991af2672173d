"""Bags of ends: a short list for each identity and column (the output, then each replica).

A list is sorted by end, with a count for each end.  Nearly all bags have one event, which is in
the row itself (`single`, as in R3); only a bag of two or more has a block of cells:

    single   ABSENT: nothing was ever said; the start: all events were removed; else the end
    block    where the block is in `cells`, or NO_BLOCK if `single` says it all
    cells    of a block: first its size and class, and the number of events; then (end, count)

Blocks have room for a power of two of ends (their class) and are used again: `heads` has the
first free block of each class, how far the cells are used, and the greatest class so far.
Kernels cannot make room: whoever adds asks first whether `needed_room` is there.

Papers: LMerge IV-E, the lower two tiers of in3t.
"""

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from anabranch.batch.batch import NEVER_UNITS, Ints
from anabranch.batch.kernel import kernel, part
from anabranch.batch.store import grown

ABSENT: Final = int(NEVER_UNITS)
"""Never mentioned by this replica; not on the output."""

NO_BLOCK: Final = -1
OUTPUT: Final = 0
"""The column of the output; replica i has the column i + 1."""

_CLASS_BITS: Final = 6
_CLASS_MASK: Final = (1 << _CLASS_BITS) - 1
_CLASSES: Final = 40
_USED: Final = _CLASSES
_LARGEST: Final = _CLASSES + 1
_FIRST_CELLS: Final = 64


class Lists(NamedTuple):
    """The arrays, as kernels take them."""

    single: Ints
    block: NDArray[np.int32]
    cells: Ints
    heads: Ints


def no_lists() -> Lists:
    """For no identities and no replicas."""
    heads = np.full(_CLASSES + 2, NO_BLOCK, np.int64)
    heads[_USED], heads[_LARGEST] = 0, 1
    cells = np.zeros((_FIRST_CELLS, 2), np.int64)
    return Lists(np.empty((0, 1), np.int64), np.empty((0, 1), np.int32), cells, heads)


def with_cells(lists: Lists, more: int = 0) -> Lists:
    """The same with room for what one visit may add, and for `more` cells."""
    size = int(lists.heads[_USED]) + (32 << int(lists.heads[_LARGEST])) + more
    return lists._replace(cells=grown(lists.cells, size))


@part
def has_room(lists: Any, ends: Any) -> Any:
    """Whether one visit that may add this many ends to one list finds room for its blocks."""
    largest = np.int64(4) << lists.heads[_LARGEST]
    return lists.heads[_USED] + 4 * (largest + ends) + 8 <= lists.cells.shape[0]


@part
def total(lists: Any, node: Any, column: Any, start: Any) -> Any:
    """How many events there are."""
    at = lists.block[node, column]
    if at >= 0:
        return lists.cells[at, 1]
    return np.int64(lists.single[node, column] > start)


@part
def size(lists: Any, node: Any, column: Any, start: Any) -> Any:
    """How many different ends there are."""
    at = lists.block[node, column]
    if at >= 0:
        return lists.cells[at, 0] >> _CLASS_BITS
    return np.int64(lists.single[node, column] > start)


@part
def end_at(lists: Any, node: Any, column: Any, k: Any) -> Any:
    """The k-th smallest end."""
    at = lists.block[node, column]
    return lists.cells[at + 1 + k, 0] if at >= 0 else lists.single[node, column]


@part
def count_at(lists: Any, node: Any, column: Any, k: Any) -> Any:
    """How many events have the k-th smallest end."""
    at = lists.block[node, column]
    return lists.cells[at + 1 + k, 1] if at >= 0 else np.int64(1)


@part
def was_told(lists: Any, node: Any, column: Any) -> Any:
    """Whether this replica ever mentioned this identity."""
    return lists.single[node, column] != ABSENT


@part
def find(cells: Any, at: Any, ends: Any, end: Any) -> Any:
    """How many ends of a block are smaller."""
    low, high = np.int64(0), ends
    while low < high:
        middle = (low + high) >> 1
        if cells[at + 1 + middle, 0] < end:
            low = middle + 1
        else:
            high = middle
    return low


@part
def take_block(lists: Any, order: Any) -> Any:
    """A block of this class; there is room."""
    heads, cells = lists.heads, lists.cells
    at = heads[order]
    if at >= 0:
        heads[order] = cells[at, 0]
    else:
        at = heads[_USED]
        heads[_USED] = at + 1 + (np.int64(1) << order)
        heads[_LARGEST] = max(heads[_LARGEST], order)
    return at


@part
def give_block(lists: Any, at: Any, order: Any) -> None:
    """Let a block be used again."""
    lists.cells[at, 0] = lists.heads[order]
    lists.heads[order] = at


@kernel
def add_end(lists: Any, node: Any, column: Any, start: Any, end: Any) -> None:
    """One event more with this end; there is room."""
    cells, at = lists.cells, np.int64(lists.block[node, column])
    if at < 0:
        other = lists.single[node, column]
        lists.single[node, column] = end
        if other <= start:
            return
        at = take_block(lists, np.int64(1))
        lists.block[node, column] = at
        ends = np.int64(1 if other == end else 2)
        cells[at, 0], cells[at, 1] = (ends << _CLASS_BITS) | 1, 2
        cells[at + ends, 0], cells[at + ends, 1] = max(other, end), 3 - ends
        cells[at + 1, 0] = min(other, end)
        cells[at + 1, 1] = 3 - ends
        return
    ends, order = cells[at, 0] >> _CLASS_BITS, cells[at, 0] & _CLASS_MASK
    k = find(cells, at, ends, end)
    if k < ends and cells[at + 1 + k, 0] == end:
        cells[at + 1 + k, 1] += 1
        cells[at, 1] += 1
        return
    if ends == np.int64(1) << order:
        wider = take_block(lists, order + 1)
        for i in range(ends + 1):
            cells[wider + i, 0], cells[wider + i, 1] = cells[at + i, 0], cells[at + i, 1]
        give_block(lists, at, order)
        at, order = wider, order + 1
        lists.block[node, column] = at
    for i in range(at + 1 + ends, at + 1 + k, -1):
        cells[i, 0], cells[i, 1] = cells[i - 1, 0], cells[i - 1, 1]
    cells[at + 1 + k, 0], cells[at + 1 + k, 1] = end, 1
    cells[at, 0] = ((ends + 1) << _CLASS_BITS) | order
    cells[at, 1] += 1


@kernel
def remove_end(lists: Any, node: Any, column: Any, start: Any, end: Any) -> Any:
    """One event less with this end; whether there was one."""
    cells, at = lists.cells, np.int64(lists.block[node, column])
    if at < 0:
        if end <= start or lists.single[node, column] != end:
            return False
        lists.single[node, column] = start
        return True
    ends, order = cells[at, 0] >> _CLASS_BITS, cells[at, 0] & _CLASS_MASK
    k = find(cells, at, ends, end)
    if k == ends or cells[at + 1 + k, 0] != end:
        return False
    cells[at, 1] -= 1
    cells[at + 1 + k, 1] -= 1
    if cells[at + 1 + k, 1] == 0:
        ends -= 1
        for i in range(at + 1 + k, at + 1 + ends):
            cells[i, 0], cells[i, 1] = cells[i + 1, 0], cells[i + 1, 1]
        cells[at, 0] = (ends << _CLASS_BITS) | order
    if cells[at, 1] == 1:
        lists.single[node, column] = cells[at + 1, 0]
        lists.block[node, column] = NO_BLOCK
        give_block(lists, at, order)
    return True


@kernel
def free_blocks(lists: Any, nodes: Any, columns: Any) -> None:
    """Let the blocks of these identities in these columns be used again."""
    for node in nodes:
        for column in columns:
            at = np.int64(lists.block[node, column])
            if at >= 0:
                give_block(lists, at, lists.cells[at, 0] & _CLASS_MASK)
                lists.block[node, column] = NO_BLOCK


@kernel
def count_ends(lists: Any, starts: Any, nodes: Any, counts: Any) -> None:
    """How many (end, count) rows each identity and column has; one for a removed bag."""
    for i in range(nodes.size):
        node = nodes[i]
        for column in range(lists.single.shape[1]):
            ends = size(lists, node, column, starts[i])
            counts[i, column] = max(ends, np.int64(lists.single[node, column] != ABSENT))


@kernel
def write_ends(lists: Any, starts: Any, nodes: Any, rows: Any) -> None:
    """The rows (identity's number, column, end, count); a removed bag has the count 0."""
    k = 0
    for i in range(nodes.size):
        node = nodes[i]
        for column in range(lists.single.shape[1]):
            ends = size(lists, node, column, starts[i])
            for j in range(ends):
                rows[k, 0], rows[k, 1] = i, column
                rows[k, 2] = end_at(lists, node, column, j)
                rows[k, 3] = count_at(lists, node, column, j)
                k += 1
            if ends == 0 and lists.single[node, column] != ABSENT:
                rows[k, 0], rows[k, 1], rows[k, 2], rows[k, 3] = i, column, starts[i], 0
                k += 1


@kernel
def read_ends(lists: Any, nodes: Any, rows: Any) -> None:
    """Fill empty lists from such rows, sorted by identity, column and end; there is room."""
    k = 0
    while k < rows.shape[0]:
        last, events = k, np.int64(0)
        identity, column = rows[k, 0], rows[k, 1]
        while last < rows.shape[0] and rows[last, 0] == identity and rows[last, 1] == column:
            events += rows[last, 3]
            last += 1
        node, ends = nodes[identity], np.int64(last - k)
        lists.single[node, column] = rows[k, 2]
        if events > 1:
            order = np.int64(1)
            while np.int64(1) << order < ends:
                order += 1
            at = take_block(lists, order)
            lists.block[node, column] = at
            lists.cells[at, 0], lists.cells[at, 1] = (ends << _CLASS_BITS) | order, events
            for j in range(ends):
                lists.cells[at + 1 + j, 0] = rows[k + j, 2]
                lists.cells[at + 1 + j, 1] = rows[k + j, 3]
        k = last


def check_lists(lists: Lists, starts: Ints, nodes: Ints) -> None:
    """Assert what must always hold: sorted, counted, and no cell lost or used twice."""
    at = lists.block[nodes][lists.block[nodes] >= 0].astype(np.int64)
    word = lists.cells[at, 0]
    taken = int((1 + (1 << (word & _CLASS_MASK))).sum())
    for order in range(_CLASSES):
        block = int(lists.heads[order])
        while block >= 0:
            taken += 1 + (1 << order)
            block = int(lists.cells[block, 0])
    assert taken == lists.heads[_USED] <= len(lists.cells), f"cells were lost: {taken}"
    counts = np.empty((len(nodes), lists.single.shape[1]), np.int64)
    count_ends(lists, starts, nodes, counts)
    rows = np.empty((int(counts.sum()), 4), np.int64)
    write_ends(lists, starts, nodes, rows)
    order_of = np.lexsort((rows[:, 2], rows[:, 1], rows[:, 0]))
    assert (order_of == np.arange(len(rows))).all(), "an end out of order"
    same = (rows[1:, :3] == rows[:-1, :3]).all(axis=1)
    assert not same.any(), "an end twice"
    events = np.zeros(counts.shape, np.int64)
    np.add.at(events, (rows[:, 0], rows[:, 1]), rows[:, 3])
    blocks = lists.block[nodes]
    said = lists.cells[np.maximum(blocks, 0), 1]
    single = (lists.single[nodes] > starts[:, None]).astype(np.int64)
    assert (events == np.where(blocks >= 0, said, single)).all(), "miscounted events"
    assert ((events > 1) == (blocks >= 0)).all(), "a block for one event"
