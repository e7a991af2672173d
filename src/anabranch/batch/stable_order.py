"""The stable order of numbers: what `np.argsort(kind="stable")` gives, in fewer passes.

Times of a step are near one another, so a few of their bits decide: a radix sort by eleven
bits at a time, on as many of them as the range has.  Numbers in order cost a look at each.

>>> stable_order(np.array([5, 3, 5, 1])).tolist()
[3, 1, 0, 2]
>>> order_by(np.array([1, 0, 1]), np.array([4, 9, 2])).tolist()
[1, 2, 0]
"""

from typing import Final

import numpy as np

from anabranch.batch.batch import Ints
from anabranch.batch.kernel import frozen_rows, kernel

_BITS: Final = 11
_MOST: Final = 4 * _BITS
"""Of a wider range more passes would be needed than comparisons cost."""
_FEW: Final = 256


def stable_order(values: Ints) -> Ints:
    """The positions in ascending order; of equal numbers in the order of the positions."""
    count = len(values)
    low, high = (int(values.min()), int(values.max())) if count > _FEW else (0, 0)
    bits = (high - low).bit_length()
    if count <= _FEW or bits > _MOST:
        return np.argsort(values, kind="stable").astype(np.int64, copy=False)
    numbers, order = frozen_rows(values), np.arange(count)
    if not descents(numbers):
        return order
    other, counts = np.empty(count, np.int64), np.empty(1 << _BITS, np.int64)
    passes = -(-bits // _BITS)
    sort_all(numbers, low, passes, order, other, counts)
    return other if passes % 2 else order


def order_by(first: Ints, then: Ints) -> Ints:
    """The positions by one number, and where it is equal by another."""
    order = stable_order(then)
    return order[stable_order(first[order])]


@kernel
def descents(values: Ints) -> int:
    """How many numbers are less than the one before them."""
    count = 0
    for k in range(1, values.size):
        count += 1 if values[k] < values[k - 1] else 0
    return count


@kernel
def sort_all(
    values: Ints, low: int, passes: int, order: Ints, other: Ints, counts: Ints
) -> None:
    """Sort positions by the low digits first; each pass goes from one array to the other."""
    mask = counts.size - 1
    for turn in range(passes):
        shift = turn * _BITS
        for digit in range(counts.size):
            counts[digit] = 0
        for k in range(values.size):
            counts[((values[k] - low) >> shift) & mask] += 1
        at = 0
        for digit in range(counts.size):
            size = counts[digit]
            counts[digit] = at
            at += size
        for k in range(values.size):
            row = order[k] if turn % 2 == 0 else other[k]
            digit = ((values[row] - low) >> shift) & mask
            if turn % 2 == 0:
                other[counts[digit]] = row
            else:
                order[counts[digit]] = row
            counts[digit] += 1
