"""Keys that Spark shuffles to a chosen partition, so that lane i is always task i.

Spark's shuffle hashes the key (Murmur3).  With keys 0, 1, 2 two lanes may meet in one partition
while another partition is empty: one task would do the work of two, and a trigger would take
twice as long.  So the keys are searched whose hashes are the lanes' numbers.
"""

from functools import cache
from itertools import count
from typing import Final


@cache
def lane_keys(lanes: int) -> tuple[int, ...]:
    """A key for each lane, such that Spark shuffles lane i into partition i of as many.

    >>> [spark_hash(key) % 4 for key in lane_keys(4)]
    [0, 1, 2, 3]
    """
    found: dict[int, int] = {}
    for key in count():
        if len(found) == lanes:
            break
        found.setdefault(spark_hash(key) % lanes, key)
    return tuple(found[lane] for lane in range(lanes))


def spark_hash(key: int) -> int:
    """Spark's hash of an int column, by which it shuffles (Murmur3, 32 bits, seed 42)."""
    mixed = _turn(key * 0xCC9E2D51, 15) * 0x1B873593
    mixed = _turn(42 ^ (mixed & _WORD), 13) * 5 + 0xE6546B64 & _WORD
    mixed ^= 4
    mixed = (mixed ^ mixed >> 16) * 0x85EBCA6B & _WORD
    mixed = (mixed ^ mixed >> 13) * 0xC2B2AE35 & _WORD
    mixed ^= mixed >> 16
    return mixed - (1 << 32) if mixed >> 31 else mixed


def _turn(word: int, bits: int) -> int:
    word &= _WORD
    return (word << bits | word >> (32 - bits)) & _WORD


_WORD: Final = (1 << 32) - 1
