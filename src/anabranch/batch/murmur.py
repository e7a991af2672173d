"""MurmurHash3 x64 128 (Austin Appleby, public domain), to be called from kernels.

`murmur(data, begin, end, low, high)` hashes `data[begin:end]`.  The published function starts
both halves of its state with one 32-bit seed; here they are handed in, so that the hash of one
value can be the seed of the next.  With both 0 it gives the published values (the reference
implementation's verification value is a test).

Written with plain byte loads: the compiler turns eight of them into one load, and the same code
runs without the compiler.
"""

from typing import TypeAlias

import numpy as np

from anabranch.batch.batch import Bytes
from anabranch.batch.kernel import part

U64 = np.uint64
Word: TypeAlias = np.uint64
Hash: TypeAlias = tuple[Word, Word]
_C1 = U64(0x87C37B91114253D5)
_C2 = U64(0x4CF5AD432745937F)
_N1 = U64(0x52DCE729)
_N2 = U64(0x38495AB5)
_F1 = U64(0xFF51AFD7ED558CCD)
_F2 = U64(0xC4CEB9FE1A85EC53)
_FIVE = U64(5)
_EIGHT = U64(8)
_SIXTEEN = U64(16)


@part
def load(data: Bytes, at: Word) -> Word:
    """Eight bytes at any place, the first one lowest."""
    word = U64(data[at])
    word |= U64(data[at + U64(1)]) << U64(8)
    word |= U64(data[at + U64(2)]) << U64(16)
    word |= U64(data[at + U64(3)]) << U64(24)
    word |= U64(data[at + U64(4)]) << U64(32)
    word |= U64(data[at + U64(5)]) << U64(40)
    word |= U64(data[at + U64(6)]) << U64(48)
    word |= U64(data[at + U64(7)]) << U64(56)
    return word


@part
def load_few(data: Bytes, at: Word, count: Word) -> Word:
    """At most eight bytes, the first one lowest."""
    word = U64(0)
    if at + _EIGHT <= U64(data.size):
        # One load and a mask; a shift by all 64 bits would be undefined.
        bits = _EIGHT * count
        word = load(data, at) & ((U64(1) << (bits & U64(63))) - U64(1) - U64(bits >> U64(6)))
    else:
        for i in range(count):
            word |= U64(data[at + U64(i)]) << U64(8 * i)
    return word


@part
def rotate(word: Word, bits: int) -> Word:
    """Rotated to the left."""
    return (word << U64(bits)) | (word >> U64(64 - bits))


@part
def stir_low(word: Word) -> Word:
    """What goes into the low half."""
    return rotate(word * _C1, 31) * _C2


@part
def stir_high(word: Word) -> Word:
    """What goes into the high half."""
    return rotate(word * _C2, 33) * _C1


@part
def avalanche(word: Word) -> Word:
    """Every bit of the word changes about half of the bits of the result."""
    word ^= word >> U64(33)
    word *= _F1
    word ^= word >> U64(33)
    word *= _F2
    return word ^ (word >> U64(33))


@part
def finish(low: Word, high: Word, length: Word) -> Hash:
    """The state after the last byte as the hash."""
    low ^= length
    high ^= length
    low += high
    high += low
    low = avalanche(low)
    high = avalanche(high)
    low += high
    high += low
    return low, high


@part
def murmur_word(word: Word, width: Word, low: Word, high: Word) -> Hash:
    """The hash of a value of at most eight bytes, given as a word."""
    return finish(low ^ stir_low(word), high, width)


@part
def murmur(data: Bytes, begin: Word, end: Word, low: Word, high: Word) -> Hash:
    """The hash of `data[begin:end]`; begin and end are uint64."""
    length = end - begin
    at = begin
    while at + _SIXTEEN <= end:
        low ^= stir_low(load(data, at))
        low = (rotate(low, 27) + high) * _FIVE + _N1
        high ^= stir_high(load(data, at + _EIGHT))
        high = (rotate(high, 31) + low) * _FIVE + _N2
        at += _SIXTEEN
    # No branches: an absent word is 0, and a stirred 0 changes nothing.
    few = min(end - at, _EIGHT)
    high ^= stir_high(load_few(data, at + few, end - at - few))
    low ^= stir_low(load_few(data, at, few))
    return finish(low, high, length)
