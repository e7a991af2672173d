"""Exact sums: values split into digits of 32 bits, and digits rounded to a result once.

A sum is a row of int64 digits; digit k has the weight 2 ** (32 * k + base).  A value adds at
most 32 bits (signed) to a digit, so 2 ** 31 values fit before a digit overflows, and no carry
moves until a result is asked for.  So sums are the same in any order, and a removal subtracts.

Of floats only a window of digits is kept, as wide as the values so far need.
"""

import math
from typing import Final, TypeAlias

import numpy as np

from anabranch.batch.batch import Floats, Ints, Mask
from anabranch.batch.kernel import kernel, part
from anabranch.batch.murmur import U64

BITS: Final = 32
_LOW: Final = 0xFFFFFFFF

FLOAT_BASE: Final = -1088
"""The weight of digit 0 of a sum of doubles, as an exponent; the least double is 2 ** -1074."""
SQUARE_BASE: Final = 2 * FLOAT_BASE

SPECIALS: Final = 3
"""NaN, infinity and -infinity are counted in this many slots."""

_MANTISSA: Final = (1 << 52) - 1
_MOST_EXPONENT: Final = 0x7FF
_LEAST: Final = -1074

Window: TypeAlias = tuple[int, int, int]
"""The first column of a sum, its digits, and the exponent of the weight of the first one."""


@part
def parts_of(bits: np.int64) -> tuple[np.int64, np.int64]:
    """The mantissa and the exponent of a finite double: |x| = mantissa * 2 ** exponent."""
    exponent = (bits >> 52) & _MOST_EXPONENT
    mantissa = bits & _MANTISSA
    if exponent == 0:
        return mantissa, np.int64(_LEAST)
    return mantissa | (1 << 52), exponent - 1075


@part
def split_one(bits: np.int64, squared: bool, digits: Ints) -> np.int64:  # noqa: FBT001
    """The five digits of |x| or x * x, of which the first is at the index that is returned."""
    mantissa, exponent = parts_of(bits)
    low, high = mantissa & _LOW, mantissa >> BITS
    base = np.int64(FLOAT_BASE)
    if squared:
        exponent, base = 2 * exponent, np.int64(SQUARE_BASE)
    shift = (exponent - base) & 31
    at = (exponent - base) >> 5
    if squared:
        # low * low may need 64 bits: halves of 16 bits keep everything below 2 ** 63.
        tail, head = low & 0xFFFF, low >> 16
        cross = 2 * tail * head
        lowest = tail * tail + ((cross & 0xFFFF) << 16)
        digits[0] = lowest & _LOW
        middle = (lowest >> BITS) + (cross >> 16) + head * head
        both = 2 * low * high
        middle += both & _LOW
        digits[1] = middle & _LOW
        upper = (middle >> BITS) + (both >> BITS) + high * high
        digits[2] = upper & _LOW
        digits[3] = upper >> BITS
    else:
        digits[0], digits[1], digits[2], digits[3] = low, high, 0, 0
    carry = np.int64(0)
    for k in range(4):
        moved = (digits[k] << shift) + carry
        digits[k], carry = moved & _LOW, moved >> BITS
    digits[4] = carry
    return at


@kernel
def measure(values: Ints, valid: Mask, squared: bool, digits: Ints, found: Ints) -> None:  # noqa: FBT001
    """Widens `found` (first digit, last digit + 1, whether specials) to what values need."""
    for i in range(values.size):
        if not valid[i]:
            continue
        bits = values[i]
        # NaN and the infinities are counted apart: they have no digits.
        if (bits >> 52) & _MOST_EXPONENT == _MOST_EXPONENT:
            found[2] = 1
            continue
        at = split_one(bits, squared, digits)
        for k in range(5):
            if digits[k] != 0:
                found[0] = min(found[0], at + k)
                found[1] = max(found[1], at + k + 1)


@kernel
def split(
    values: Ints,
    valid: Mask,
    squared: bool,  # noqa: FBT001
    first: int,
    special: bool,  # noqa: FBT001
    digits: Ints,
    out: Ints,
) -> None:
    """Writes the digits of each value to `out`, whose column 0 (after specials) is `first`."""
    skip = SPECIALS if special else 0
    for i in range(values.size):
        if not valid[i]:
            continue
        bits = values[i]
        is_negative = bits < 0 and not squared
        if (bits >> 52) & _MOST_EXPONENT == _MOST_EXPONENT:
            if bits & _MANTISSA != 0:
                out[i, 0] = 1
            elif bits < 0:
                out[i, 2] = 1
            else:
                out[i, 1] = 1
            continue
        at = split_one(bits, squared, digits)
        for k in range(5):
            if digits[k] != 0:
                out[i, skip + at + k - first] = -digits[k] if is_negative else digits[k]


@part
def carried(row: Ints, begin: int, count: int, digits: Ints) -> int:
    """The magnitude of a sum as digits below 2 ** 32, one more than it has; and its sign."""
    carry = np.int64(0)
    for k in range(count):
        moved = row[begin + k] + carry
        digits[k], carry = moved & _LOW, moved >> BITS
    # Two's complement: the sign is in what is carried out of the last digit.
    if carry >= 0:
        digits[count] = carry
        return 1
    borrow = np.int64(1)
    for k in range(count):
        moved = (digits[k] ^ _LOW) + borrow
        digits[k], borrow = moved & _LOW, moved >> BITS
    digits[count] = -carry - 1 + borrow
    return -1


@part
def leading_zeros(word: int) -> int:
    """How many of the 32 bits of a digit, which is not 0, are 0 before the first 1."""
    found = 0
    for bits in (16, 8, 4, 2, 1):
        if word >> (BITS - bits) == 0:
            word = (word << bits) & _LOW
            found += bits
    return found


@part
def nearest(digits: Ints, count: int, base: int) -> float:
    """The double next to a magnitude in digits, ties to even."""
    top = count - 1
    while top >= 0 and digits[top] == 0:
        top -= 1
    if top < 0:
        return 0.0
    # The first 64 bits, the first of which is 1, and whether there is anything behind them.
    zeros = leading_zeros(digits[top])
    second = digits[top - 1] if top > 0 else 0
    third = digits[top - 2] if top > 1 else 0
    word = (U64(digits[top]) << U64(BITS)) | U64(second)
    word = (word << U64(zeros)) | U64(third >> (BITS - zeros))
    is_more = (third << zeros) & _LOW != 0
    for k in range(top - 2):
        is_more = is_more or digits[k] != 0
    # The weights of the first bit and of the last one that a double keeps; a number below the
    # least normal one keeps fewer.
    highest = 32 * top + 31 - zeros
    last = max(highest - 52, _LEAST - base)
    dropped = last - highest + 63
    if dropped > 64 or last + base > 1023:
        return 0.0 if dropped > 64 else math.inf
    # Round half to even: half a unit goes up only if more follows, or the kept part is odd.
    half = U64(1) << U64(dropped - 1)
    kept = word >> U64(dropped) if dropped < 64 else U64(0)
    is_more = is_more or word & (half - U64(1)) != U64(0)
    if word & half != U64(0) and (is_more or kept & U64(1) == U64(1)):
        kept += U64(1)
    return math.ldexp(float(kept), last + base)


@kernel
def round_all(rows: Ints, begin: int, count: int, base: int, digits: Ints, out: Floats) -> None:
    """The double next to each exact sum."""
    for i in range(out.size):
        sign = carried(rows[i], begin, count, digits)
        out[i] = sign * nearest(digits, count + 1, base)


@kernel
def whole_all(rows: Ints, begin: int, count: int, digits: Ints, out: Ints) -> int:
    """Each sum as a bigint; returns the first row that does not fit, or -1."""
    for i in range(out.size):
        sign = carried(rows[i], begin, count, digits)
        for k in range(2, count + 1):
            if digits[k] != 0:
                return i
        low = digits[0]
        high = digits[1]
        # The least bigint has no positive counterpart.
        if high >= 1 << 31 and not (sign < 0 and high == 1 << 31 and low == 0):
            return i
        out[i] = sign * ((high << BITS) | low)
    return -1


@part
def is_below(digits: Ints, count: int, limit: Ints) -> bool:
    """Whether a magnitude is less than a limit of five digits."""
    for k in range(count - 1, -1, -1):
        other = limit[k] if k < 5 else 0
        if digits[k] != other:
            return bool(digits[k] < other)
    return False


@part
def write_decimal(digits: Ints, sign: int, out: Ints) -> None:
    """A magnitude of at most 127 bits, with its sign, as two words."""
    low = (digits[1] << BITS) | digits[0]
    high = (digits[3] << BITS) | digits[2]
    if sign < 0:
        low, high = ~low + 1, ~high
        if low == 0:
            high += 1
    out[0], out[1] = low, high


@kernel
def decimal_all(
    rows: Ints,
    begin: int,
    count: int,
    factor: int,
    divisor: Ints,
    limit: Ints,
    digits: Ints,
    out: Ints,
) -> int:
    """Each sum, times `factor`, by its divisor (half up); the first that is not below `limit`.

    A divisor of 0 gives 0.  Returns -1 if all fit.
    """
    for i in range(out.shape[0]):
        sign = carried(rows[i], begin, count, digits)
        size = count + 2
        digits[count + 1] = 0
        carry = np.int64(0)
        for k in range(size):
            moved = digits[k] * factor + carry
            digits[k], carry = moved & _LOW, moved >> BITS
        by = divisor[i]
        if by > 1:
            rest = np.int64(0)
            for k in range(size - 1, -1, -1):
                # The rest is below 2 ** 31, so this is below 2 ** 63.
                moved = (rest << BITS) | digits[k]
                digits[k], rest = moved // by, moved % by
            # Half up, as Spark rounds decimals.
            carry = np.int64(1) if 2 * rest >= by else np.int64(0)
            for k in range(size):
                moved = digits[k] + carry
                digits[k], carry = moved & _LOW, moved >> BITS
        if by > 0 and not is_below(digits, size, limit):
            return i
        write_decimal(digits, sign, out[i])
    return -1


@part
def multiply(one: Ints, count: int, other: Ints, many: int, product: Ints) -> None:
    """The product of two magnitudes, of `count` + `many` digits."""
    for k in range(count + many):
        product[k] = 0
    for j in range(many):
        carry = np.int64(0)
        for k in range(count):
            # Halves of 16 bits: a product of two digits may need all 64 bits.
            low, high = one[k] & 0xFFFF, one[k] >> 16
            first, second = low * other[j], high * other[j]
            moved = product[j + k] + carry + (first & _LOW) + ((second & 0xFFFF) << 16)
            product[j + k] = moved & _LOW
            carry = (moved >> BITS) + (first >> BITS) + (second >> 16)
        product[j + count] = carry


@kernel
def deviate_all(
    rows: Ints, sums: Window, squares: Window, counts: Ints, scratch: Ints, out: Floats
) -> None:
    """The standard deviation of samples, from exact sums of values and of squares.

    `sums` and `squares` are (first column, digits, exponent of the weight of the first digit),
    both windows with `2 * exponent(sums) == exponent(squares)`.
    """
    digits, product, other = scratch[0], scratch[1], scratch[2]
    for i in range(out.size):
        n = counts[i]
        if n < 2:
            out[i] = 0.0
            continue
        # n * sum(x * x) - sum(x) ** 2, in digits with the weight of the squares.
        size = sums[1] + 1
        carried(rows[i], sums[0], sums[1], digits)
        multiply(digits, size, digits, size, product)
        many = squares[1] + 1
        carried(rows[i], squares[0], squares[1], digits)
        other[0], other[1] = n & _LOW, n >> BITS
        wide = max(2 * size, many + 2)
        for k in range(2 * size, wide):
            product[k] = 0
        total = scratch[3]
        multiply(digits, many, other, 2, total)
        for k in range(many + 2, wide):
            total[k] = 0
        borrow = np.int64(0)
        for k in range(wide):
            moved = total[k] - product[k] + borrow
            total[k], borrow = moved & _LOW, moved >> BITS
        spread = nearest(total, wide, squares[2])
        out[i] = math.sqrt(spread / (float(n) * float(n - 1)))
