"""Payloads compared by value, as Spark's `groupBy` compares.

null equals null, every NaN equals every NaN, -0.0 equals 0.0, at any depth; otherwise values
are equal when their bytes are.  Both sides must have columns of the same plain types.

>>> left, right = pa.table({"a": [1.0, None]}), pa.table({"a": [None, 1.0]})
>>> equal_rows(left, np.array([0, 1, 1]), right, np.array([1, 1, 0])).tolist()
[True, False, True]
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from anabranch.batch.batch import Bytes, Ints, Mask
from anabranch.batch.columns import FIXED, VARIED, Column
from anabranch.batch.hashing import value
from anabranch.batch.kernel import frozen_rows, kernel, part
from anabranch.batch.murmur import U64, Word, load, load_few
from anabranch.batch.store import read_table


def equal_rows(left: pa.Table, left_rows: Ints, right: pa.Table, right_rows: Ints) -> Mask:
    """Where row `left_rows[i]` of the left equals row `right_rows[i]` of the right."""
    if len(left_rows) != len(right_rows) or left.num_columns != right.num_columns:
        message = (
            f"rows cannot be compared: {len(left_rows)} of {left.num_columns} columns with "
            f"{len(right_rows)} of {right.num_columns} columns"
        )
        raise ValueError(message)
    columns = read_table(left), read_table(right)
    return equal_columns(
        columns[0], frozen_rows(left_rows), columns[1], frozen_rows(right_rows)
    )


def equal_columns(
    left: Sequence[Column], left_rows: Ints, right: Sequence[Column], right_rows: Ints
) -> Mask:
    """The same for columns; rows must be as `frozen_rows` makes them."""
    same = np.ones(len(left_rows), np.bool_)
    for one, other in zip(left, right, strict=True):
        _compare(one, left_rows, other, right_rows, same)
    return same


def _compare(
    left: Column, left_rows: Ints, right: Column, right_rows: Ints, same: Mask
) -> None:
    if left.layout != right.layout:
        message = (
            f"columns of different types cannot be compared: {left.layout}, {right.layout}"
        )
        raise ValueError(message)
    layout = left.layout
    nulls = left.valid, right.valid
    if layout.kind == FIXED:
        width, is_float = layout.width, layout.is_float
        compare_fixed(
            left.data, left_rows, right.data, right_rows, width, is_float, *nulls, same
        )
        return
    ends = left.offsets, right.offsets
    if layout.kind == VARIED:
        compare_varied(left.data, left_rows, right.data, right_rows, *ends, *nulls, same)
        return
    sizes = np.zeros(len(same), np.int64)
    compare_sizes(left_rows, right_rows, *ends, *nulls, same, sizes)
    total = int(sizes.sum())
    if not total:
        return
    pair, left_items, right_items = np.empty((3, total), np.int64)
    list_items(left_rows, right_rows, *ends, sizes, pair, left_items, right_items)
    items = equal_columns(
        left.items, frozen_rows(left_items), right.items, frozen_rows(right_items)
    )
    same[pair[~items]] = False


@part
def both(i: int, j: int, left_valid: Mask, right_valid: Mask) -> int:
    """2 if both values are there, 1 if neither is (they are equal), 0 if one is."""
    one = left_valid.size == 0 or left_valid[i]
    other = right_valid.size == 0 or right_valid[j]
    if one != other:
        return 0
    return 2 if one else 1


@part
def equal_bytes(left: Bytes, left_at: Word, right: Bytes, right_at: Word, count: Word) -> bool:
    """Whether `count` bytes are the same."""
    done = U64(0)
    while done + U64(32) <= count:
        # Four words at once: nearly all that is compared is equal.
        i, j = left_at + done, right_at + done
        differs = load(left, i) ^ load(right, j)
        differs |= load(left, i + U64(8)) ^ load(right, j + U64(8))
        differs |= load(left, i + U64(16)) ^ load(right, j + U64(16))
        differs |= load(left, i + U64(24)) ^ load(right, j + U64(24))
        if differs != U64(0):
            return False
        done += U64(32)
    while done + U64(8) <= count:
        if load(left, left_at + done) != load(right, right_at + done):
            return False
        done += U64(8)
    rest = count - done
    return bool(load_few(left, left_at + done, rest) == load_few(right, right_at + done, rest))


@kernel
def compare_fixed(
    left: Bytes,
    left_rows: Ints,
    right: Bytes,
    right_rows: Ints,
    width: int,
    is_float: bool,  # noqa: FBT001
    left_valid: Mask,
    right_valid: Mask,
    same: Mask,
) -> None:
    """Clears `same` where values of `width` bytes differ."""
    for k in range(same.size):
        i, j = left_rows[k], right_rows[k]
        there = both(i, j, left_valid, right_valid)
        if there == 0:
            same[k] = False
        elif there == 2:
            if width <= 8:
                one, other = value(left, i, width, is_float), value(right, j, width, is_float)
                same[k] &= one == other
            else:
                begin, other_begin = U64(i * width), U64(j * width)
                same[k] &= equal_bytes(left, begin, right, other_begin, U64(width))


@kernel
def compare_varied(
    left: Bytes,
    left_rows: Ints,
    right: Bytes,
    right_rows: Ints,
    left_ends: Ints,
    right_ends: Ints,
    left_valid: Mask,
    right_valid: Mask,
    same: Mask,
) -> None:
    """Clears `same` where the bytes between offsets differ."""
    for k in range(same.size):
        i, j = left_rows[k], right_rows[k]
        there = both(i, j, left_valid, right_valid)
        if there == 0:
            same[k] = False
        elif there == 2 and same[k]:
            begin, other_begin = left_ends[i], right_ends[j]
            count = left_ends[i + 1] - begin
            if count != right_ends[j + 1] - other_begin:
                same[k] = False
            else:
                same[k] = equal_bytes(left, U64(begin), right, U64(other_begin), U64(count))


@kernel
def compare_sizes(
    left_rows: Ints,
    right_rows: Ints,
    left_ends: Ints,
    right_ends: Ints,
    left_valid: Mask,
    right_valid: Mask,
    same: Mask,
    sizes: Ints,
) -> None:
    """Clears `same` where lists have different sizes; `sizes` is what is left to compare."""
    for k in range(same.size):
        i, j = left_rows[k], right_rows[k]
        there = both(i, j, left_valid, right_valid)
        count = left_ends[i + 1] - left_ends[i]
        if there == 0 or (there == 2 and count != right_ends[j + 1] - right_ends[j]):
            same[k] = False
        elif there == 2 and same[k]:
            sizes[k] = count


@kernel
def list_items(
    left_rows: Ints,
    right_rows: Ints,
    left_ends: Ints,
    right_ends: Ints,
    sizes: Ints,
    pair: Ints,
    left_items: Ints,
    right_items: Ints,
) -> None:
    """The pairs of items to compare, and the pair of rows that each belongs to."""
    at = 0
    for k in range(sizes.size):
        for n in range(sizes[k]):
            pair[at] = k
            left_items[at] = left_ends[left_rows[k]] + n
            right_items[at] = right_ends[right_rows[k]] + n
            at += 1
