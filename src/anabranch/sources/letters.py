"""Strings of N letters as an Arrow column, each a function of a number and a seed alone.

No table of strings is kept: whoever needs the string of a number computes it again, so memory
does not grow with the number of events.  Letters are `a` to `p`, which no format must escape.

>>> texts(np.array([7, -1, 7]), width=4, seed=1).to_pylist()
['jail', None, 'jail']
"""

from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from anabranch.batch.batch import Ints
from anabranch.batch.buffers import pack_bits

Words = NDArray[np.uint64]

GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)
LOW_BITS: Final = np.uint64(0x0F0F0F0F0F0F0F0F)
LETTER_A: Final = np.uint64(0x6161616161616161)


def texts(numbers: Ints, *, width: int, seed: int) -> pa.Array:
    """The text of each number; null for a number below 0."""
    known = numbers >= 0
    names = numbers[known].astype(np.uint64)
    letters = _letters(names, width, seed)
    offsets = np.zeros(len(numbers) + 1, np.int32)
    np.cumsum(known * width, out=offsets[1:])
    buffers = [pack_bits(known), pa.py_buffer(offsets), pa.py_buffer(letters)]
    return pa.Array.from_buffers(pa.string(), len(numbers), buffers)


def _letters(names: Words, width: int, seed: int) -> NDArray[np.uint8]:
    count = -(-width // 8)
    salt = _mix(np.array([seed & (2**64 - 1)], np.uint64) + GOLDEN)
    state = (
        _mix(names * GOLDEN + salt)[:, None] + np.arange(1, count + 1, dtype=np.uint64) * GOLDEN
    )
    words = (_mix(state) & LOW_BITS) + LETTER_A
    # Little-endian on every machine, so that files are the same everywhere.
    letters = words.astype("<u8", copy=False).view(np.uint8)
    return np.ascontiguousarray(letters[:, :width])


def _mix(words: Words) -> Words:
    """SplitMix64's finaliser (Steele, Lea, Flood 2014): every bit depends on every bit."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))
