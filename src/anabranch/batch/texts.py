"""The place of each text in a fixed list of texts, found by hash and decided by value.

A lookup costs the same however long the list is, but for the cache of the processor.  The table
is made once, with the list, and is plain arrays: it pickles, and no worker makes it again.

>>> Texts.of(["a", "b"]).find(pa.chunked_array([["b", "c", None, "a"]])).tolist()
[1, -1, -1, 0]
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from anabranch.batch.batch import Bytes, Hashes, Ints, Mask
from anabranch.batch.columns import Column, read
from anabranch.batch.equality import equal_bytes
from anabranch.batch.hashing import hash_columns
from anabranch.batch.kernel import frozen, kernel, part
from anabranch.batch.murmur import U64, Word

Words: TypeAlias = NDArray[np.uint64]

_IDS: Final = U64(0xFFFFFFFF)
"""The half of a slot with the place of its text, plus one; the other half is of its hash."""
_FREE: Final = U64(0)
_ONE: Final = U64(1)
NOT_THERE: Final = -1
"""The place of a text that is not in the list."""


@dataclass(frozen=True, eq=False)
class Texts:
    """Distinct texts, and a hash table of them."""

    data: Bytes
    offsets: Ints
    slots: Words

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @classmethod
    def of(cls, texts: Sequence[str]) -> "Texts":
        """These texts, in this order; each comes once."""
        (column,) = read(pa.array(texts, pa.large_string()))
        slots = np.zeros(1 << max(2 * len(texts), 1).bit_length(), np.uint64)
        offsets = frozen(column.offsets.astype(np.int64))
        fill(frozen(hash_columns([column], len(texts))), slots)
        return cls(column.data, offsets, slots)

    def find(self, texts: pa.ChunkedArray) -> Ints:
        """The place of each of these texts; NOT_THERE for others, and where there is none."""
        found = np.empty(len(texts), np.int64)
        begin = 0
        for chunk in texts.chunks:
            (column,) = read(chunk)
            self._find(column, found[begin : begin + len(chunk)])
            begin += len(chunk)
        return found

    def _find(self, column: Column, found: Ints) -> None:
        hashes = frozen(hash_columns([column], column.count))
        asked = (column.data, frozen(np.ascontiguousarray(column.offsets)), column.valid)
        known = (frozen(self.data), frozen(self.offsets), frozen(self.slots))
        guess(hashes, known[2], found)
        confirm(hashes, asked, known, found)


@kernel
def fill(hashes: Hashes, slots: Words) -> None:
    """Put each text into the first free slot from its place on."""
    mask = U64(slots.size - 1)
    for row in range(hashes.shape[0]):
        at = hashes[row, 0] & mask
        while slots[at] != _FREE:
            at = (at + _ONE) & mask
        slots[at] = (hashes[row, 1] & ~_IDS) | U64(row + 1)


@kernel
def guess(hashes: Hashes, slots: Words, found: Ints) -> None:
    """The first text with the hash of each row.

    A loop of its own, so that the processor waits for many slots at once: with all of a row in
    one loop, 100,000 rows that are looked up among 100,000 took two to three times as long.
    """
    mask = U64(slots.size - 1)
    for row in range(found.size):
        tag, at = hashes[row, 1] & ~_IDS, hashes[row, 0] & mask
        while slots[at] != _FREE and slots[at] & ~_IDS != tag:
            at = (at + _ONE) & mask
        found[row] = np.int64(slots[at] & _IDS) - 1


@kernel
def confirm(
    hashes: Hashes,
    asked: tuple[Bytes, Ints, Mask],
    known: tuple[Bytes, Ints, Words],
    found: Ints,
) -> None:
    """Compare each text with the one that was guessed; if it is another, look further."""
    data, offsets, valid = asked
    texts, ends, slots = known
    mask, has_nulls = U64(slots.size - 1), valid.size > 0
    for row in range(found.size):
        if has_nulls and not valid[row]:
            found[row] = NOT_THERE
        elif found[row] != NOT_THERE:
            begin, end = U64(offsets[row]), U64(offsets[row + 1])
            if same(data, begin, end, texts, ends, U64(found[row])):
                continue
            tag, at = hashes[row, 1] & ~_IDS, hashes[row, 0] & mask
            found[row] = NOT_THERE
            while slots[at] != _FREE:
                place = (slots[at] & _IDS) - _ONE
                is_tag = slots[at] & ~_IDS == tag
                if is_tag and same(data, begin, end, texts, ends, place):
                    found[row] = np.int64(place)
                    break
                at = (at + _ONE) & mask


@part
def same(data: Bytes, begin: Word, end: Word, texts: Bytes, ends: Ints, place: Word) -> bool:
    """Whether these bytes are the text at a place."""
    first = U64(ends[place])
    size = U64(ends[place + _ONE]) - first
    return size == end - begin and equal_bytes(data, begin, texts, first, size)
